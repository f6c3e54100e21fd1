// apiary/tests/explain/detail/node_freeing_test.cpp - the order in which nodes are freed.
// SPDX-License-Identifier: MIT
#include "support/levels.h"
#include <apiary/alloc/capacity_index.h>
#include <apiary/container/keyed_number.h>
#include <apiary/explain/detail/node_freeing.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

TEST_CASE("freeing_order: each slice costs what its own nodes cost") {
  // Slices of two nodes; on the nodes 1, 2, 3 and 4 GPUs are in use.
  capacity_index<uniform_tree> capacities(uniform_tree{1, 4, 8}, node, 8);
  std::vector<node_free> now;
  const std::vector<node_free> whole(4, {8, {}});
  for (std::uint32_t n = 0; n < 4; ++n) {
    now.push_back({7 - n, {}});
    capacities.set(n, 7 - n);
  }
  topology_constraints gang;
  gang.groups = {{.tasks = 4, .gpus = 8, .slices = {{rack, 2}}}};
  colocated_groups groups;
  groups.assign(gang, node, capacities.top());
  const freeing_order<uniform_tree> orders(capacities, groups, now, whole, true);
  std::vector<keyed_number> order;
  orders(capacities.top(), 0, true, order);
  const auto cost = [&](std::uint32_t n) { return cost_of_freeing(now[n], whole[n], 4); };
  CHECK(order == std::vector<keyed_number>{{cost(0) + cost(1), 0},
                                           {cost(0) + cost(1), 1},
                                           {cost(2) + cost(3), 2},
                                           {cost(2) + cost(3), 3}});
  CHECK(orders.closest_cells(rack, 8) == std::vector<std::uint32_t>{0});
}
