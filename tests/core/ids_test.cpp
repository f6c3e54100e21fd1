// apiary/tests/core/ids_test.cpp - strong ids and ranges of them.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <vector>

namespace {

using namespace apiary;

static_assert(sizeof(cell_id) == 4 && alignof(cell_id) == 4);
static_assert(std::is_trivially_copyable_v<cell_id>);
static_assert(std::is_nothrow_default_constructible_v<cell_id>);
static_assert(std::totally_ordered<cell_id>);
static_assert(!std::is_convertible_v<std::uint32_t, cell_id>);
static_assert(!std::is_convertible_v<cell_id, std::uint32_t>);
static_assert(!std::is_constructible_v<cell_id, node_id>);
static_assert(!std::is_assignable_v<cell_id&, node_id>);
static_assert(!std::equality_comparable_with<cell_id, node_id>);
static_assert(!std::is_same_v<job_id, tenant_id>);
static_assert(std::forward_iterator<id_range<cell_id>::iterator>);
static_assert(!cell_id().valid());
static_assert(cell_id(0).valid());
static_assert(!cell_id(~std::uint32_t{0}).valid());

TEST_CASE("an id keeps its value and orders by it") {
  constexpr cell_id five(5);
  CHECK(five.value == 5);
  CHECK(five == cell_id(5));
  CHECK(five != cell_id(6));
  CHECK(five < cell_id(6));
  CHECK(cell_id(6) > five);
  CHECK(five < cell_id());  // what is not valid comes last
}

TEST_CASE("the greatest number alone stands for no id") {
  cell_id last(~std::uint32_t{0} - 1);
  CHECK(last.valid());
  ++last.value;
  CHECK(!last.valid());
}

TEST_CASE("a range is walked from first to one before last") {
  const id_range<cell_id> range{cell_id(3), cell_id(7)};
  std::vector<std::uint32_t> seen;
  for (const cell_id c : range) seen.push_back(c.value);
  CHECK(seen == std::vector<std::uint32_t>{3, 4, 5, 6});
  CHECK(range.size() == 4);
  CHECK(!range.empty());
  for (std::uint32_t i = 0; i < range.size(); ++i) CHECK(range[i].value == seen[i]);
  CHECK(std::distance(range.begin(), range.end()) == 4);
  auto at = range.begin();
  CHECK(*at++ == cell_id(3));
  CHECK(*at == cell_id(4));
}

TEST_CASE("a range contains exactly what it walks over") {
  for (std::uint32_t first = 0; first < 6; ++first) {
    for (std::uint32_t last = first; last < 6; ++last) {
      const id_range<node_id> range{node_id(first), node_id(last)};
      for (std::uint32_t i = 0; i < 8; ++i) {
        CAPTURE(first);
        CAPTURE(last);
        CAPTURE(i);
        CHECK(range.contains(node_id(i)) ==
              (std::find(range.begin(), range.end(), node_id(i)) != range.end()));
      }
      CHECK(!range.contains(node_id()));
    }
  }
}

TEST_CASE("a default range is empty") {
  constexpr id_range<cell_id> none;
  CHECK(none.empty());
  CHECK(none.size() == 0);
  CHECK(none.begin() == none.end());
  CHECK(!none.contains(cell_id(0)));
}

}  // namespace
