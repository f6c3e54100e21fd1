// apiary/tests/abort/remedy_capacity.cpp - a node cannot have less than it has free.
// SPDX-License-Identifier: MIT
// EXPECT: capacity.*does not hold
#include <apiary/alloc/room_index.h>
#include <apiary/model/uniform_tree.h>
#include <apiary/policy/gang_rules.h>
#include <apiary/policy/remedy.h>

#include <cstdint>
#include <vector>

int main() {
  using namespace apiary;
  room_index<uniform_tree> rooms(uniform_tree{2, 8}, 1, 8);
  rooms.set(0, 4);
  gang_rules gang;
  gang.members = {{.tasks = 1, .leaves = 8}};
  const std::vector<std::uint32_t> capacity{3, 8};
  remedy_search<uniform_tree> remedy;
  return remedy(rooms, gang, capacity) ? 0 : 1;
}
