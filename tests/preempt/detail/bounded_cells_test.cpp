// apiary/tests/preempt/detail/bounded_cells_test.cpp - cells in the order of their bounds.
// SPDX-License-Identifier: MIT
#include <apiary/preempt/detail/eviction_cells.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

TEST_CASE("bounded_cells: the least bound first, of equals the first cell, below the best cost") {
  constexpr std::uint64_t never = bounded_cells::never;
  const std::vector<std::uint64_t> bounds{7, 3, never, 3, 9, 5};
  bounded_cells cells;
  bounded_cells::cell at;
  CHECK(cells.least_bound() == never);
  CHECK_FALSE(cells.next(at, never));
  cells.begin(bounds, never);
  CHECK(cells.least_bound() == 3);
  REQUIRE(cells.next(at, never));
  CHECK(at.number == 1);
  REQUIRE(cells.next(at, never));
  CHECK(at.number == 3);
  CHECK(cells.least_bound() == 5);
  at.key = 4;
  cells.searched().push_back(at);
  CHECK(cells.least_bound() == 4);
  CHECK_FALSE(cells.next(at, 5));
  REQUIRE(cells.next(at, 6));
  CHECK(at.number == 5);
  cells.begin(bounds, 7);
  for (const std::uint32_t number : {1U, 3U, 5U}) {
    REQUIRE(cells.next(at, 100));
    CHECK(at.number == number);
  }
  CHECK_FALSE(cells.next(at, 100));
  CHECK(cells.least_bound() == never);
}
