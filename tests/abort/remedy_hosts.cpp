// apiary/tests/abort/remedy_hosts.cpp - a host has no more left than it has in all.
// SPDX-License-Identifier: MIT
// EXPECT: host_capacity.*does not hold
#include <apiary/alloc/room_index.h>
#include <apiary/model/resources.h>
#include <apiary/model/uniform_tree.h>
#include <apiary/policy/gang_rules.h>
#include <apiary/policy/remedy.h>

#include <cstdint>
#include <vector>

int main() {
  using namespace apiary;
  room_index<uniform_tree> rooms(uniform_tree{2, 8}, 1, 8);
  gang_rules gang;
  gang.members = {{.tasks = 1, .leaves = 8}};
  const std::vector<std::uint32_t> capacity{8, 8};
  const std::vector<resources> hosts{{2'000, 0}, {0, 0}};
  const std::vector<resources> host_capacity{{1'000, 0}, {1'000, 0}};
  remedy_search<uniform_tree> remedy;
  return remedy(rooms, gang, capacity, hosts, host_capacity) ? 0 : 1;
}
