// apiary/tests/policy/ruled_preempt_test.cpp - victims under rules against trying every set.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/room_index.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/model/uniform_tree.h>
#include <apiary/policy/eviction_state.h>
#include <apiary/policy/gang_fit.h>
#include <apiary/policy/gang_rules.h>
#include <apiary/policy/ruled_fit.h>
#include <apiary/policy/ruled_preempt.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <support/levels.h>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

// Racks of nodes of eight leaves, with gangs on them.
struct running {
  room_index<uniform_tree> rooms;
  std::vector<eviction_candidate> candidates;
  std::vector<node_share> shares;

  running(std::uint32_t racks, std::uint32_t nodes)
      : rooms(uniform_tree{racks, nodes, 8}, node, 8) {
    for (std::uint32_t n = 0; n < rooms.num_nodes(); ++n) rooms.set(n, 8);
  }
  void run(std::uint64_t cost, const std::vector<node_share>& where) {
    const auto first = static_cast<std::uint32_t>(shares.size());
    for (const node_share& s : where) {
      rooms.set(s.node, rooms.free(s.node) - s.leaves);
      shares.push_back(s);
    }
    candidates.push_back({cost, first, static_cast<std::uint32_t>(shares.size())});
  }
  [[nodiscard]] bool fits_without(std::uint32_t victims, const gang_rules& gang) const {
    room_index<uniform_tree> left = rooms;
    for (std::uint32_t j = 0; j < candidates.size(); ++j) {
      if ((victims >> j & 1) == 0) continue;
      for (std::uint32_t s = candidates[j].first; s < candidates[j].last; ++s)
        left.set(shares[s].node, left.free(shares[s].node) + shares[s].leaves);
    }
    return ruled_fit<uniform_tree>()(left, gang) == fit_verdict::fits;
  }
  [[nodiscard]] std::uint64_t least(const gang_rules& gang) const {
    std::uint64_t best = std::numeric_limits<std::uint64_t>::max();
    for (std::uint32_t set = 0; set < 1U << candidates.size(); ++set) {
      std::uint64_t cost = 0;
      for (std::uint32_t j = 0; j < candidates.size(); ++j)
        if ((set >> j & 1) != 0) cost += candidates[j].cost;
      if (cost < best && fits_without(set, gang)) best = cost;
    }
    return best;
  }
};

gang_rules in_rack(std::uint32_t tasks, std::uint32_t leaves) {
  gang_rules gang;
  gang.members = {{tasks, leaves}};
  gang.required = rack;
  return gang;
}

}  // namespace

TEST_CASE("victims under rules cost what the best of all sets costs") {
  const int rounds = scaled(1'500);
  int preempted = 0;
  int never_fit = 0;
  ruled_victim_search<uniform_tree> search(100'000);
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    running in(1 + random.uniform(3), 1 + random.uniform(3));
    for (std::uint32_t j = random.uniform(9); j-- > 0;) {
      std::vector<node_share> where;
      for (std::uint32_t n = 0; n < in.rooms.num_nodes(); ++n) {
        if (random.uniform(3) == 0 && in.rooms.free(n) > 0)
          where.push_back({n, 1 + random.uniform(in.rooms.free(n))});
      }
      in.run(random.uniform(3) == 0 ? 10 : 1 + random.uniform(100), where);
    }
    // What others keep.
    for (std::uint32_t n = 0; n < in.rooms.num_nodes(); ++n)
      in.rooms.set(n, in.rooms.free(n) - random.uniform(in.rooms.free(n) / 2 + 1));
    gang_rules gang;
    for (std::uint32_t m = 1 + random.uniform(2); m-- > 0;)
      gang.members.push_back({1 + random.uniform(4), 1 + random.uniform(8)});
    if (random.uniform(2) == 0) gang.required = node + random.uniform(2);
    if (random.uniform(3) == 0) gang.members[0].spread = {{node + random.uniform(2), 1}};
    if (random.uniform(4) == 0) gang.members[0].slices = {{rack, gang.members[0].tasks}};
    if (gang.members.size() > 1 && random.uniform(4) == 0) {
      gang.members[1].tasks = gang.members[0].tasks;
      gang.members[1].leader = 0;
    }
    const std::vector<std::uint32_t> before(in.rooms.free().begin(), in.rooms.free().end());
    const fit_verdict verdict = search(in.rooms, gang, in.candidates, in.shares);
    REQUIRE(std::equal(before.begin(), before.end(), in.rooms.free().begin()));
    const std::uint64_t least = in.least(gang);
    REQUIRE((verdict == fit_verdict::fits) == (least < std::numeric_limits<std::uint64_t>::max()));
    if (verdict != fit_verdict::fits) {
      ++never_fit;
      continue;
    }
    std::uint32_t set = 0;
    std::uint64_t cost = 0;
    for (const std::uint32_t j : search.victims()) {
      set |= 1U << j;
      cost += in.candidates[j].cost;
    }
    REQUIRE(cost == search.cost());
    REQUIRE(in.fits_without(set, gang));
    REQUIRE(search.cost() == least);
    REQUIRE(search.lower_bound() == least);
    preempted += set != 0 ? 1 : 0;

    // Without a budget: a set, and a bound below.
    ruled_victim_search<uniform_tree> hasty(0);
    REQUIRE(hasty(in.rooms, gang, in.candidates, in.shares) == fit_verdict::fits);
    REQUIRE(hasty.lower_bound() <= least);
    REQUIRE(hasty.cost() >= least);
  }
  MESSAGE(preempted, " preempted, ", never_fit, " never fit");
  if (scale() >= 1) {
    CHECK(preempted > 200);
    CHECK(never_fit > 50);
  }
}

TEST_CASE("one victim where the cheapest first takes ten") {
  running in(2, 2);
  in.run(1, {{1, 1}});
  in.run(1, {{1, 1}});
  for (int i = 0; i < 8; ++i) in.run(1, {{0, 1}});
  in.run(7, {{1, 6}});
  in.run(2, {{2, 8}});
  in.run(9, {{3, 8}});
  ruled_victim_search<uniform_tree> search;
  REQUIRE(search(in.rooms, in_rack(1, 8), in.candidates, in.shares) == fit_verdict::fits);
  CHECK(std::vector<std::uint32_t>(search.victims().begin(), search.victims().end()) ==
        std::vector<std::uint32_t>{11});
}

TEST_CASE("leaves are freed on one node, not on four") {
  running in(1, 4);
  for (std::uint32_t n = 0; n < 4; ++n) {
    in.run(10, {{n, 2}});
    in.run(10, {{n, 6}});
  }
  ruled_victim_search<uniform_tree> search;
  REQUIRE(search(in.rooms, in_rack(1, 8), in.candidates, in.shares) == fit_verdict::fits);
  CHECK(search.cost() == 20);
  CHECK(search.lower_bound() <= 20);
  CHECK(std::vector<std::uint32_t>(search.victims().begin(), search.victims().end()) ==
        std::vector<std::uint32_t>{0, 1});
}

TEST_CASE("a gang over two racks makes room in the other one as well") {
  // To empty a rack costs 30 or 40; the gang over both of them costs 25, and its nodes will do where
  // the rack is not required.
  running in(2, 2);
  in.run(25, {{0, 8}, {2, 8}});
  in.run(10, {{1, 8}});
  in.run(20, {{3, 8}});
  ruled_victim_search<uniform_tree> search;
  gang_rules gang = in_rack(2, 8);
  REQUIRE(search(in.rooms, gang, in.candidates, in.shares) == fit_verdict::fits);
  CHECK(search.cost() == 35);
  gang.preferred = rack;
  gang.required = any_level;
  REQUIRE(search(in.rooms, gang, in.candidates, in.shares) == fit_verdict::fits);
  CHECK(search.cost() == 25);
}
