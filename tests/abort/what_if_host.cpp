// apiary/tests/abort/what_if_host.cpp - a host does not give what it has not left.
// SPDX-License-Identifier: MIT
// EXPECT: cpu_milli <= left.cpu_milli.*does not hold
#include <apiary/alloc/journal.h>
#include <apiary/alloc/room_index.h>
#include <apiary/model/resources.h>
#include <apiary/model/uniform_tree.h>
#include <apiary/policy/gang_portions.h>
#include <apiary/policy/gang_rules.h>
#include <apiary/policy/what_if.h>

#include <vector>

int main() {
  using namespace apiary;
  room_index<uniform_tree> rooms(uniform_tree{2, 8}, 1, 8);
  rooms.set(0, 8);
  std::vector<resources> hosts{{1'000, 0}, {8'000, 0}};
  gang_rules gang;
  gang.members = {{.tasks = 2, .leaves = 1, .host = {600, 0}}};
  const std::vector<gang_portion> portions{{.node = 0, .member = 0, .tasks = 2}};
  journal log;
  transaction tx(log);
  take<uniform_tree>(tx, rooms, gang, portions, hosts);
  return 0;
}
