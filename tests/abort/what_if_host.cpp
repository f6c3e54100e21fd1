// apiary/tests/abort/what_if_host.cpp - a task that needs more CPU than its host has free.
// SPDX-License-Identifier: MIT
// EXPECT: cpu_milli <= left.cpu_milli.*does not hold
#include <apiary/alloc/capacity_index.h>
#include <apiary/alloc/journal.h>
#include <apiary/explain/what_if.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>
#include <apiary/topology/uniform_tree.h>

#include <vector>

int main() {
  using namespace apiary;
  capacity_index<uniform_tree> capacities(uniform_tree{2, 8}, 1, 8);
  capacities.set(0, 8);
  std::vector<resources> hosts{{1'000, 0}, {8'000, 0}};
  topology_constraints gang;
  gang.groups = {{.tasks = 2, .gpus = 1, .host = {600, 0}}};
  const std::vector<tasks_on_node> portions{{.node = 0, .group = 0, .tasks = 2}};
  journal log;
  transaction tx(log);
  journaled::place_gang<uniform_tree>(tx, capacities, gang, portions, hosts);
  return 0;
}
