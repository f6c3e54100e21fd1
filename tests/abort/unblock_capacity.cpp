// apiary/tests/abort/unblock_capacity.cpp - a node cannot have less than it has free.
// SPDX-License-Identifier: MIT
// EXPECT: capacity.*does not hold
#include <apiary/alloc/capacity_index.h>
#include <apiary/explain/unblock_search.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/topology/uniform_tree.h>

#include <cstdint>
#include <vector>

int main() {
  using namespace apiary;
  capacity_index<uniform_tree> capacities(uniform_tree{2, 8}, 1, 8);
  capacities.set(0, 4);
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 8}};
  const std::vector<std::uint32_t> capacity{3, 8};
  unblock_search<uniform_tree> search;
  return search(capacities, gang, capacity).nodes.empty() ? 0 : 1;
}
