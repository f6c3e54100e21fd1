// apiary/tests/abort/unblock_hosts.cpp - a host has no more left than it has in all.
// SPDX-License-Identifier: MIT
// EXPECT: host_capacity.*does not hold
#include <apiary/alloc/capacity_index.h>
#include <apiary/explain/unblock_search.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>
#include <apiary/topology/uniform_tree.h>

#include <cstdint>
#include <vector>

int main() {
  using namespace apiary;
  capacity_index<uniform_tree> capacities(uniform_tree{2, 8}, 1, 8);
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 8}};
  const std::vector<std::uint32_t> capacity{8, 8};
  const std::vector<resources> hosts{{2'000, 0}, {0, 0}};
  const std::vector<resources> host_capacity{{1'000, 0}, {1'000, 0}};
  unblock_search<uniform_tree> search;
  return search(capacities, gang, capacity, hosts, host_capacity).nodes.empty() ? 0 : 1;
}
