// apiary/tests/preempt/detail/unit_tables_test.cpp - the gangs to evict in a cell, against trying all sets.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/rng.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/detail/split_costs.h>
#include <apiary/preempt/detail/unit_tables.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <support/levels.h>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary_test;
using apiary::detail::eviction_levels;
using apiary::detail::group_capacity;
using apiary::detail::group_costs;
using apiary::detail::lean_vector;
using apiary::detail::unit_tables;

namespace {

// Gangs in cells, their costs there, and the tables.
struct cell_evictions : group_capacity, group_costs, unit_tables {
  using group_capacity::never;
  void begin(const eviction_levels& levels, std::span<const std::uint32_t> free,
             std::span<const resources> hosts, std::span<const eviction_candidate> candidates,
             std::span<const gpus_on_node> allocations, std::span<const resources> freed) {
    group_capacity::begin(levels, free, hosts, candidates, allocations, freed);
    group_costs::begin(*this);
    unit_tables::begin(*this, costs());
  }
};

// Two blocks of two racks of three nodes, gangs on up to four nodes, and a group under constraints.
struct evictable_cells {
  capacity_index<uniform_tree> capacities{uniform_tree{2, 2, 3, 8}, node, 8};
  std::vector<eviction_candidate> candidates;
  std::vector<gpus_on_node> allocations;
  std::vector<resources> hosts;
  std::vector<resources> freed;
  topology_constraints gang;
  colocated_groups groups;
  eviction_levels levels;

  explicit evictable_cells(std::uint64_t seed) {
    rng random(seed);
    std::vector<std::uint32_t> free(12, 8);
    const bool hosted = random.uniform(2) == 0;
    for (std::uint32_t j = random.uniform(8); j > 0; --j) {
      const auto first = static_cast<std::uint32_t>(allocations.size());
      for (std::uint32_t n = random.uniform(12), i = 1 + random.uniform(4); i > 0 && n < 12; --i) {
        if (free[n] > 0) {
          allocations.push_back({n, 1 + random.uniform(free[n])});
          free[n] -= allocations.back().gpus;
          if (hosted) freed.push_back({random.uniform(6), random.uniform(6)});
        }
        n += 1 + random.uniform(2);
      }
      candidates.push_back(
          {1 + random.uniform(30), first, static_cast<std::uint32_t>(allocations.size())});
    }
    for (std::uint32_t n = 0; n < 12; ++n) {
      capacities.set(n, random.uniform(free[n] + 1));
      if (hosted) hosts.push_back({random.uniform(6), random.uniform(6)});
    }
    auto& group = gang.groups.emplace_back();
    group.tasks = 4 * (1 + random.uniform(3));
    group.gpus = 1 + random.uniform(8);
    if (hosted) group.host = {random.uniform(5), random.uniform(5)};
    if (random.uniform(2) == 0) group.slices = {{rack, 2}};
    if (random.uniform(3) == 0) group.slices.push_back({block, 4});
    if (random.uniform(2) == 0) group.spread = {{node + random.uniform(2), 1 + random.uniform(4)}};
    groups.assign(gang, node, capacities.top());
    levels.assign(capacities, capacities.top(), groups);
  }
  void begin(cell_evictions& cells) const {
    cells.begin(levels, capacities.free(), hosts, candidates, allocations, freed);
  }
};

// Whether the table of a cell of level 1 has the least costs: all gangs there are in that cell
// alone, and at most five of them are on several nodes.
bool tries_all_sets(const evictable_cells& in, std::size_t h, std::uint32_t c) {
  if (h != 1) return false;
  const auto [first, last] = in.levels.nodes(h, c);
  std::uint32_t wide = 0;
  for (const eviction_candidate& j : in.candidates) {
    std::uint32_t inside = 0;
    for (std::uint32_t a = j.first; a < j.last; ++a) {
      const std::uint32_t n = in.allocations[a].node;
      inside += n >= first && n < last ? 1U : 0U;
    }
    if (inside > 0 && inside < j.last - j.first) return false;
    wide += inside > 1 ? 1U : 0U;
  }
  return wide <= 5;
}

}  // namespace

TEST_CASE("unit_tables: each capacity of a cell costs at most what the best set costs") {
  cell_evictions cells;
  std::uint32_t exact = 0;
  for (std::uint64_t seed = 0; seed < scaled(2'000U); ++seed) {
    CAPTURE(seed);
    const evictable_cells in(seed);
    in.begin(cells);
    lean_vector<std::uint64_t> cost;
    for (std::size_t h = 1; h < in.levels.levels.size(); ++h) {
      const std::uint32_t step = in.levels.levels[h].step;
      for (std::uint32_t c = 0; c < in.levels.num_cells(h); ++c) {
        CAPTURE(h);
        CAPTURE(c);
        std::vector<std::uint64_t> least(in.levels.levels[h].most / step + 1,
                                         cell_evictions::never);
        for (std::uint32_t set = 0; set < 1U << in.candidates.size(); ++set) {
          std::uint64_t sum = 0;
          for (std::uint32_t j = 0; j < in.candidates.size(); ++j) {
            cells.set_evicted(j, (set >> j & 1) != 0);
            sum += (set >> j & 1) != 0 ? in.candidates[j].cost : 0;
          }
          for (std::uint32_t k = cells.capacity(h, c) / step + 1; k-- > 0;)
            least[k] = std::min(least[k], sum);
        }
        for (std::uint32_t j = 0; j < in.candidates.size(); ++j) cells.set_evicted(j, false);
        REQUIRE(cells.table(h, c, cost));
        const bool all = tries_all_sets(in, h, c);
        for (std::size_t k = 0; k < least.size(); ++k) {
          REQUIRE((k < cost.size()) == (least[k] != cell_evictions::never));
          if (k >= cost.size()) break;
          REQUIRE((cost[k] >> cells.scale()) <= least[k]);
          if (all) REQUIRE(cost[k] == least[k] << cells.scale());
          lean_vector<std::uint32_t> evicted;
          cells.append_evictions(h, c, static_cast<std::uint32_t>(k), evicted);
          std::uint64_t sum = 0;
          for (const std::uint32_t a : evicted) {
            const std::uint32_t j = cells.candidate_of(a);
            sum += cells.evicted(j) ? 0 : in.candidates[j].cost;
            cells.set_evicted(j, true);
          }
          REQUIRE(cells.capacity(h, c) >= k * step);
          if (all) REQUIRE(sum == least[k]);
          exact += all && sum > 0 ? 1U : 0U;
          for (const std::uint32_t a : evicted) cells.set_evicted(cells.candidate_of(a), false);
        }
        // The cheap bound of some more tasks.
        const std::uint32_t now = cells.capacity(h, c);
        for (std::uint32_t more = step; now + more <= in.levels.levels[h].most; more += step) {
          const std::uint64_t bound = cells.least_cost(h, c, now + more);
          const std::size_t k = (now + more) / step;
          if (k < cost.size()) REQUIRE(bound <= cost[k]);
        }
      }
    }
  }
  CHECK(exact > 0);
}

TEST_CASE("unit_tables: a table ends where it would take more work than the limit") {
  std::uint32_t ended = 0;
  for (std::uint64_t seed = 0; seed < scaled(300U); ++seed) {
    CAPTURE(seed);
    const evictable_cells in(seed);
    const std::size_t root = in.levels.root();
    lean_vector<std::uint64_t> full;
    lean_vector<std::uint64_t> cost;
    cell_evictions all;
    in.begin(all);
    const std::uint64_t begun = all.work();
    REQUIRE(all.table(root, 0, full));
    const std::uint64_t needed = all.work() - begun;
    for (std::uint64_t most = 0; most < needed + 2; most += 1 + needed / 8) {
      CAPTURE(most);
      cell_evictions cells;
      in.begin(cells);
      cells.limit_work(begun + most);
      if (cells.table(root, 0, cost)) {
        REQUIRE(cost == full);
        continue;
      }
      ++ended;
      REQUIRE(cost.empty());
      REQUIRE(most < needed);
      REQUIRE(cells.work() >= begun + most);
      cells.limit_work(cell_evictions::never);
      REQUIRE(cells.table(root, 0, cost));
      REQUIRE(cost == full);
    }
  }
  CHECK(ended > 0);
}

TEST_CASE("unit_tables: a sum of large tables is not begun beyond the limit") {
  // Two nodes hold 5,000 tasks without GPUs each: adding the second takes 5,001 times 5,001.
  eviction_levels levels;
  levels.levels.resize(2);
  levels.levels[0].above = {0, 0};
  levels.levels[0].most = levels.levels[1].most = 10'000;
  levels.levels[1].above = {0};
  levels.levels[1].first = {0, 2};
  levels.task = {0, 1, 0};
  levels.tasks = 10'000;
  const std::vector<std::uint32_t> free(2, 8);
  const std::vector<resources> hosts(2, resources{1, 0});
  const std::vector<gpus_on_node> allocations{{0, 0}, {1, 0}};
  const std::vector<resources> freed(2, resources{4'999, 0});
  const std::vector<eviction_candidate> candidates{{7, 0, 1}, {9, 1, 2}};
  cell_evictions cells;
  cells.begin(levels, free, hosts, candidates, allocations, freed);
  cells.limit_work(1'000'000);
  lean_vector<std::uint64_t> cost;
  CHECK(!cells.table(1, 0, cost));
  CHECK(cells.work() == 1'000'000);
  cells.limit_work(100'000'000);
  REQUIRE(cells.table(1, 0, cost));
  CHECK(cells.work() > 25'000'000);
  CHECK(cost.size() == 10'001);
}

TEST_CASE("unit_tables: the split costs of a gang add up to its cost") {
  cell_evictions cells;
  for (std::uint64_t seed = 0; seed < scaled(500U); ++seed) {
    CAPTURE(seed);
    const evictable_cells in(seed);
    in.begin(cells);
    for (const eviction_candidate& c : in.candidates) {
      std::uint64_t sum = 0;
      for (std::uint32_t a = c.first; a < c.last; ++a) sum += cells.cost_of_allocation(a);
      if (sum > 0) REQUIRE(sum == c.cost << cells.scale());
    }
  }
}
