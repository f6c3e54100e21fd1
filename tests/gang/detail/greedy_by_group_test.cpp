// apiary/tests/gang/detail/greedy_by_group_test.cpp - groups placed one after another: what is found is valid.
// SPDX-License-Identifier: MIT
#include "support/levels.h"
#include "support/naive_cells.h"
#include "support/scale.h"
#include <apiary/core/lean_vector.h>
#include <apiary/core/rng.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/capacity_count.h>
#include <apiary/gang/detail/greedy.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

TEST_CASE(
    "greedy_by_group: every cell holds what it is given; one kind is placed whenever it fits") {
  std::size_t placed = 0;
  std::size_t missed = 0;
  for (std::uint64_t seed = 0; seed < scaled(1000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t most = 1 + random.uniform(8);
    const test_cluster cluster = random_small_cells(random, most);
    const topology_constraints gang = random_small_gang(random, std::min(most, 4U));
    const naive_cells naive(cluster, gang);
    const auto capacities = capacities_of_cells(cluster, most);
    colocated_groups groups;
    groups.assign(gang, node, capacities.top());
    if (groups.size() == 0) continue;
    greedy_by_group<ragged_tree, node_capacity_left> greedy(cluster.tree, node, groups);
    for (level_t l = node; l <= capacities.top(); ++l) {
      for (std::uint32_t c = 0; c < naive.num_cells(l); ++c) {
        const bool fits = naive.held(l, c).contains(naive.tasks());
        bool found = false;
        for (const auto& order : orders_of_groups(groups)) {
          for (const gang_objective objective :
               {gang_objective::whole_cells, gang_objective::fewest_nodes}) {
            std::vector<node_capacity_left> nodes;
            for (const cell_id n : capacities.nodes(l, c))
              nodes.emplace_back(groups, cluster.free[n.value], cluster.hosts, n.value);
            std::vector<naive_cells::counts> on(cluster.num_nodes(),
                                                naive_cells::counts(groups.size()));
            apiary::detail::lean_vector<tasks_on_node> placed_here;
            if (!greedy(l, c, order, objective, nodes, placed_here)) continue;
            for (const tasks_on_node& p : placed_here) on[p.node][p.group] += p.tasks;
            found = true;
            for (level_t k = node; k <= l; ++k) {
              for (std::uint32_t i = 0; i < naive.num_cells(k); ++i) {
                naive_cells::counts here(groups.size(), 0);
                for (std::uint32_t n = 0; n < on.size(); ++n)
                  for (std::size_t u = 0; u < here.size(); ++u)
                    if (cluster.cell(n, k) == i) here[u] += on[n][u];
                REQUIRE(naive.held(k, i).contains(here));
                if (k == l)
                  REQUIRE(here == (i == c ? naive.tasks() : naive_cells::counts(here.size(), 0)));
              }
            }
          }
        }
        if (found) REQUIRE(fits);
        if (groups.size() == 1) REQUIRE(found == fits);
        placed += found ? 1U : 0U;
        missed += fits && !found ? 1U : 0U;
      }
    }
  }
  MESSAGE(placed, " placed, ", missed, " missed");
  CHECK(placed > 0);
  CHECK(missed < placed / 10);
}

TEST_CASE("orders_of_groups: by leaves; constraints first, then by CPU; none twice") {
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 1, .host = {2, 9}},
                 {.tasks = 1, .gpus = 3, .host = {1, 1}},
                 {.tasks = 2, .gpus = 2, .host = {0, 1}, .spread = {{node, 1}}}};
  colocated_groups groups;
  groups.assign(gang, node, 4);
  using order = std::vector<std::uint32_t>;
  CHECK(orders_of_groups(groups) == std::vector<order>{{1, 2, 0}, {2, 0, 1}});
  gang.groups[2].spread.clear();
  for (constrained_task_group& m : gang.groups) m.host.cpu_milli = 1;
  groups.assign(gang, node, 4);
  CHECK(orders_of_groups(groups) == std::vector<order>{{1, 2, 0}});
}

TEST_CASE("constraints_at: a level counts where it forbids what those beside it do not") {
  topology_constraints gang;
  gang.groups = {{.tasks = 8, .gpus = 1, .slices = {{block, 4}}, .spread = {{rack, 2}}}};
  colocated_groups groups;
  groups.assign(gang, leaf, 6);
  CHECK(!constraints_at(groups, 0, node));
  CHECK(constraints_at(groups, 0, rack));
  CHECK(constraints_at(groups, 0, block));
  CHECK(!constraints_at(groups, 0, block + 1));
  CHECK(level_below(groups, 0, 6, leaf) == block);
  CHECK(level_below(groups, block, leaf) == rack);
  CHECK(level_below(groups, rack, leaf) == leaf);
}

TEST_CASE(
    "greedy_by_group: a node in use comes before one that is not, though less is free there") {
  // After the first group four GPUs are free on node 0, three on node 1.
  const ragged_tree tree({{1}, {2}, {8, 8}});
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 4}, {.tasks = 1, .gpus = 3}};
  colocated_groups groups;
  groups.assign(gang, node, tree.num_levels());
  greedy_by_group<ragged_tree, node_capacity_left> greedy(tree, node, groups);
  std::vector<node_capacity_left> nodes{{groups, 8}, {groups, 3}};
  const std::vector<std::uint32_t> order{0, 1};
  apiary::detail::lean_vector<tasks_on_node> placed;
  REQUIRE(greedy(rack, 0, order, gang_objective::whole_cells, nodes, placed));
  REQUIRE(placed.size() == 2);
  for (const tasks_on_node& p : placed) CHECK(p.node == 0);
}
