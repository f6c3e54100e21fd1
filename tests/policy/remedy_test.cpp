// apiary/tests/policy/remedy_test.cpp - nodes that let a gang fit, each of them needed.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/journal.h>
#include <apiary/alloc/room_index.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/model/uniform_tree.h>
#include <apiary/policy/gang_rules.h>
#include <apiary/policy/remedy.h>
#include <apiary/policy/ruled_fit.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <support/levels.h>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

constexpr std::uint32_t num_nodes = 6;  // two racks of three

bool fits_with(const std::vector<std::uint32_t>& free, const gang_rules& gang) {
  room_index<uniform_tree> rooms(uniform_tree{2, 3, 4}, node, 4);
  for (std::uint32_t n = 0; n < num_nodes; ++n) rooms.set(n, free[n]);
  return ruled_fit<uniform_tree>()(rooms, gang) == fit_verdict::fits;
}

}  // namespace

TEST_CASE("freeing the nodes of a remedy lets the gang fit, sparing one of them does not") {
  const int rounds = scaled(3'000);
  int found = 0;
  std::uint64_t freed = 0;
  std::uint64_t least_freed = 0;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    room_index<uniform_tree> rooms(uniform_tree{2, 3, 4}, node, 4);
    std::vector<std::uint32_t> free(num_nodes);
    for (std::uint32_t n = 0; n < num_nodes; ++n) {
      free[n] = random.uniform(5);
      rooms.set(n, free[n]);
    }
    gang_rules gang;
    gang.members = {{1 + random.uniform(3), 1 + random.uniform(4)},
                    {random.uniform(3), 1 + random.uniform(4)}};
    if (random.uniform(2) == 0) gang.required = rack;
    if (random.uniform(3) == 0) gang.members[0].spread = {{node, 1}};
    const std::vector<std::uint32_t> capacity(num_nodes, 4);
    remedy_search<uniform_tree> remedy;
    const bool is = remedy(rooms, gang, capacity);
    for (std::uint32_t n = 0; n < num_nodes; ++n) REQUIRE(rooms.free(n) == free[n]);
    REQUIRE(is == fits_with(capacity, gang));
    if (!is) continue;
    std::vector<std::uint32_t> after = free;
    std::uint64_t leaves = 0;
    for (const std::uint32_t n : remedy.nodes()) {
      leaves += 4 - free[n];
      after[n] = 4;
    }
    REQUIRE(leaves == remedy.leaves());
    REQUIRE(fits_with(after, gang));
    for (const std::uint32_t n : remedy.nodes()) {
      after[n] = free[n];
      REQUIRE(!fits_with(after, gang));
      after[n] = 4;
    }
    // Beside the least over all sets of nodes.
    std::uint64_t least = ~std::uint64_t{0};
    for (std::uint32_t set = 0; set < 1U << num_nodes; ++set) {
      std::vector<std::uint32_t> other = free;
      std::uint64_t cost = 0;
      for (std::uint32_t n = 0; n < num_nodes; ++n) {
        if ((set >> n & 1) == 0) continue;
        cost += 4 - free[n];
        other[n] = 4;
      }
      if (cost < least && fits_with(other, gang)) least = cost;
    }
    REQUIRE(least <= leaves);
    found += remedy.nodes().empty() ? 0 : 1;
    freed += leaves;
    least_freed += least;
  }
  MESSAGE(found, " remedies, ", freed, " leaves freed, at least ", least_freed);
  if (scale() >= 1) {
    CHECK(found > 300);
    CHECK(freed * 100 < least_freed * 120);
  }
}

TEST_CASE("a placement takes its leaves until it is taken back") {
  room_index<uniform_tree> rooms(uniform_tree{2, 3, 4}, node, 4);
  for (std::uint32_t n = 0; n < num_nodes; ++n) rooms.set(n, 4);
  gang_rules gang;
  gang.members = {{2, 3}, {2, 1}};
  gang.members[1].leader = 0;
  ruled_fit<uniform_tree> fit;
  REQUIRE(fit(rooms, gang) == fit_verdict::fits);
  journal log;
  {
    transaction tx(log);
    take<uniform_tree>(tx, rooms, gang, fit.portions());
    CHECK(rooms.pieces(rooms.top(), 1)[0] == 16);
    CHECK(rooms.histogram(rooms.top(), 0)[0] == 2);
  }
  CHECK(rooms.pieces(rooms.top(), 1)[0] == 24);
}
