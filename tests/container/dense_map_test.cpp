// apiary/tests/container/dense_map_test.cpp - values by strong id.
// SPDX-License-Identifier: MIT
#include <apiary/container/dense_map.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace {

using namespace apiary;
using namespace apiary::detail;

using loads = dense_map<cell_id, float>;
template <class Map, class Id>
concept IndexedBy = requires(Map& map, Id i) {
  map[i];
};

static_assert(IndexedBy<loads, cell_id>);
static_assert(!IndexedBy<loads, node_id>);
static_assert(!IndexedBy<loads, std::uint32_t>);
static_assert(std::is_same_v<decltype(std::declval<const loads&>()[cell_id(0)]), const float&>);
static_assert(std::is_nothrow_move_constructible_v<loads>);

TEST_CASE("ids are given in order and find their values") {
  dense_map<job_id, std::string> names;
  CHECK(names.empty());
  CHECK(!names.contains(job_id(0)));
  CHECK(names.push_back("a") == job_id(0));
  const std::string b("b");
  CHECK(names.push_back(b) == job_id(1));  // a copy
  CHECK(names.size() == 2);
  CHECK(names[job_id(1)] == "b");
  CHECK(std::as_const(names)[job_id(0)] == "a");
  CHECK(names.contains(job_id(1)));
  CHECK(!names.contains(job_id(2)));
  CHECK(!names.contains(job_id()));
  std::string all;
  for (const job_id i : names.ids()) all += names[i];
  for (const std::string& name : names) all += name;
  CHECK(all == "abab");
}

TEST_CASE("new places hold the given value") {
  loads map(3, 0.5F);
  map[cell_id(1)] = 2.0F;
  map.resize(5, 1.0F);
  CHECK(map.size() == 5);
  CHECK(map[cell_id(0)] == 0.5F);
  CHECK(map[cell_id(1)] == 2.0F);
  CHECK(map[cell_id(4)] == 1.0F);
  CHECK(dense_map<cell_id, int>(2)[cell_id(1)] == 0);
}

TEST_CASE("values that only move can be kept") {
  dense_map<cell_id, std::unique_ptr<int>> map;
  map.push_back(std::make_unique<int>(7));
  CHECK(*map[cell_id(0)] == 7);
}

TEST_CASE("equal means the same values") {
  loads a(2, 1.0F);
  const loads b = a;
  CHECK(a == b);
  a[cell_id(0)] = 3.0F;
  CHECK(a != b);
}

}  // namespace
