// apiary/tests/gang/detail/constraint_levels_test.cpp - levels without constraints are skipped, and change nothing.
// SPDX-License-Identifier: MIT
#include "support/levels.h"
#include "support/naive_cells.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/capacity_count.h>
#include <apiary/gang/topology_constraints.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

TEST_CASE("constraints_at: where steps grow or fewer may be; level_below skips the other levels") {
  constexpr level_t row = 4;
  constexpr level_t top = 6;  // one above the roots
  topology_constraints gang;
  gang.groups = {{.tasks = 8, .gpus = 1, .slices = {{rack, 4}}, .spread = {{row, 4}}},
                 {.tasks = 8, .gpus = 2, .spread = {{block, 2}}},
                 {.tasks = 1, .gpus = 3}};
  colocated_groups groups;
  groups.assign(gang, node, top);
  REQUIRE(groups.size() == 3);
  const auto at = [&](std::size_t u) {
    std::vector<level_t> levels;
    for (level_t l = rack; l < top; ++l)
      if (constraints_at(groups, u, l)) levels.push_back(l);
    return levels;
  };
  CHECK(at(0) == std::vector<level_t>{rack, row});
  CHECK(at(1) == std::vector<level_t>{block});
  CHECK(at(2).empty());
  CHECK(level_below(groups, 0, top, node) == row);
  CHECK(level_below(groups, 0, row, node) == rack);
  CHECK(level_below(groups, 0, rack, node) == node);
  CHECK(level_below(groups, 2, top, node) == node);
  CHECK(level_below(groups, top, node) == row);
  CHECK(level_below(groups, row, node) == block);  // of the second kind
  CHECK(level_below(groups, block, node) == rack);
}

TEST_CASE("capacity_above: of one kind alone what every cell can hold, all vectors tried") {
  std::size_t cut = 0;  // times the constraints left less than the capacity
  for (std::uint64_t seed = 0; seed < scaled(1000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t most = 1 + random.uniform(8);
    const test_cluster cluster = random_small_cells(random, most);
    const topology_constraints gang = random_small_gang(random, std::min(most, 4U));
    const naive_cells naive(cluster, gang);
    colocated_groups groups;
    groups.assign(gang, node, cluster.tree.num_levels());
    for (std::size_t u = 0; u < groups.size(); ++u) {
      std::vector<std::uint32_t> on_nodes;
      for (std::uint32_t n = 0; n < cluster.num_nodes(); ++n) {
        const auto fit = [&](std::uint64_t units_here) {
          return units_here * groups[u].gpus <= cluster.free[n] &&
                 (cluster.hosts.empty() ||
                  (units_here * groups[u].cpu_milli <= cluster.hosts[n].cpu_milli &&
                   units_here * groups[u].memory_mib <= cluster.hosts[n].memory_mib));
        };
        on_nodes.push_back(0);
        while (on_nodes[n] < groups[u].tasks && fit(on_nodes[n] + 1)) ++on_nodes[n];
      }
      for (level_t l = node; l <= cluster.tree.num_levels(); ++l) {
        const auto capacities = capacity_above(cluster.tree, groups, u, node, l, on_nodes);
        REQUIRE(capacities.size() == naive.num_cells(l));
        for (std::uint32_t c = 0; c < capacities.size(); ++c) {
          std::uint32_t largest = 0;
          std::uint32_t without_constraints = 0;
          for (const naive_cells::counts& v : naive.held(l, c)) {
            if (std::count(v.begin(), v.end(), 0U) + (v[u] > 0 ? 1 : 0) ==
                static_cast<std::ptrdiff_t>(v.size()))
              largest = std::max(largest, v[u]);
          }
          for (std::uint32_t n = 0; n < on_nodes.size(); ++n)
            without_constraints += cluster.cell(n, l) == c ? on_nodes[n] : 0;
          REQUIRE(capacities[c] == largest);
          cut += largest < std::min(without_constraints, groups[u].tasks) ? 1U : 0U;
        }
      }
    }
  }
  CHECK(cut > 0);
}
