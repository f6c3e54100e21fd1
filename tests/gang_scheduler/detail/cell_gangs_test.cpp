// apiary/tests/gang_scheduler/detail/cell_gangs_test.cpp - no set of gangs in a cell costs less than the bound.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/rng.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/detail/victim_candidates.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

namespace {

constexpr std::uint32_t node_size = 8;

// Gangs on the nodes of one of two racks, and what they cost.
struct busy_rack {
  struct here {
    std::uint32_t gang = 0;
    std::uint32_t node = 0;  // in the rack
    std::uint32_t gpus = 0;
  };
  std::vector<std::uint32_t> free;
  std::vector<here> in_use;
  std::vector<std::int32_t> priorities;
  std::vector<std::uint64_t> costs;

  // Whether tasks of t GPUs and tasks of one GPU fit once the gangs of the mask have ended.
  [[nodiscard]] bool fits(std::uint32_t ended, std::uint32_t tasks, std::uint32_t t,
                          std::uint32_t single) const {
    std::vector<std::uint32_t> left = free;
    for (const here& h : in_use)
      if ((ended >> h.gang & 1) != 0) left[h.node] += h.gpus;
    std::uint32_t slots = 0;
    std::uint32_t gpus = 0;
    for (const std::uint32_t n : left) slots += n / t, gpus += n;
    return slots >= tasks && gpus >= tasks * t + single;
  }
};

busy_rack random_busy_rack(rng& random, std::uint32_t nodes) {
  busy_rack r;
  r.free.resize(nodes);
  for (std::uint32_t& f : r.free) f = random.uniform(node_size + 1);
  const std::uint32_t gangs = 1 + random.uniform(9);
  const bool equal_costs = random.uniform(3) == 0;
  for (std::uint32_t g = 0; g < gangs; ++g) {
    r.priorities.push_back(static_cast<std::int32_t>(random.uniform(3)));
    const auto p = static_cast<std::uint64_t>(r.priorities[g]);
    r.costs.push_back(100 * p + (equal_costs ? 1 : 1 + random.uniform(50)));
  }
  for (std::uint32_t n = 0; n < nodes; ++n) {
    std::uint32_t left = node_size - r.free[n];
    for (std::uint32_t g = 0; g < gangs && left > 0; ++g) {
      if (random.uniform(2) == 0) continue;
      const std::uint32_t gpus = 1 + random.uniform(left);
      r.in_use.push_back({g, n, gpus});
      left -= gpus;
    }
  }
  return r;
}

}  // namespace

TEST_CASE("victim_bounds: no set of gangs whose end lets a gang into the cell costs less") {
  std::uint64_t asked = 0;
  std::uint64_t possible = 0;
  std::uint64_t needed = 0;
  std::uint64_t tight = 0;
  for (std::uint64_t seed = 0; seed < scaled(std::uint64_t{40'000}); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t rack = random.uniform(2);
    const std::uint32_t nodes = rack == 0 ? 4 : 3;
    const busy_rack r = random_busy_rack(random, nodes);
    capacity_index<ragged_tree> capacities(ragged_tree({{2}, {4, 3}}), 0, node_size);
    for (std::uint32_t n = 0; n < nodes; ++n) capacities.set(4 * rack + n, r.free[n]);
    topology_constraints gang;
    gang.groups = {{1 + random.uniform(5), 1 + random.uniform(node_size)}};
    if (random.uniform(2) == 0) gang.groups.push_back({random.uniform(4), 1});
    const std::uint32_t tasks = gang.groups[0].tasks;
    const std::uint32_t t = gang.groups[0].gpus;
    const std::uint32_t single = gang.groups.size() == 2 ? gang.groups[1].tasks : 0;

    cell_gangs in_cells;
    in_cells.begin(2);
    in_cells.refresh([&](std::uint32_t c, detail::lean_vector<cell_gangs::gang>& to) {
      if (c != rack) return;
      for (const busy_rack::here& h : r.in_use) to.push_back({h.gang, h.gpus, 1});
    });
    detail::lean_vector<victim_bounds::candidate> candidates;
    for (const cell_gangs::gang& g : in_cells.in(rack))
      candidates.push_back({r.priorities[g.slot], g.gpus, g.nodes, r.costs[g.slot]});
    victim_bounds bounds;
    bounds.begin(capacities, 1, gang);
    const std::size_t fewest = bounds.fewest(rack, in_cells.most(rack));
    const std::uint64_t bound = bounds.cost(rack, candidates);

    std::uint64_t least = victim_bounds::never;
    int least_gangs = 99;
    for (std::uint32_t ended = 0; ended < 1U << r.costs.size(); ++ended) {
      if (!r.fits(ended, tasks, t, single)) continue;
      std::uint64_t cost = 0;
      for (std::size_t g = 0; g < r.costs.size(); ++g)
        cost += (ended >> g & 1) != 0 ? r.costs[g] : 0;
      least = std::min(least, cost);
      least_gangs = std::min(least_gangs, std::popcount(ended));
    }
    ++asked;
    REQUIRE(bound <= least);
    if (least == victim_bounds::never) continue;
    ++possible;
    REQUIRE(fewest <= static_cast<std::size_t>(least_gangs));
    if (least == 0) continue;
    REQUIRE(bound > 0);
    REQUIRE(fewest > 0);
    ++needed;
    tight += bound == least ? 1U : 0U;
  }
  MESSAGE(asked << " asked, " << possible << " possible, " << needed << " need victims, " << tight
                << " bounds are the least cost");
  CHECK(possible < asked);
  CHECK(3 * tight > needed);
}
