// apiary/tests/gang/topology_constraints_test.cpp - which constraints are valid.
// SPDX-License-Identifier: MIT
#include "support/levels.h"
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/gang/topology_constraints.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

bool understood(const topology_constraints& gang) { return gang.valid(node, block + 1); }

topology_constraints gang_of_member(std::uint32_t tasks, std::vector<level_count> slices,
                                    std::vector<level_count> spread = {}) {
  topology_constraints gang;
  gang.groups.push_back({tasks, 1});
  gang.groups[0].slices = std::move(slices);
  gang.groups[0].spread = std::move(spread);
  return gang;
}

topology_constraints led_gang(std::uint32_t leaders, std::uint32_t workers) {
  topology_constraints gang;
  gang.groups = {{leaders, 1}, {workers, 2}};
  gang.groups[1].leader = 0;
  return gang;
}

}  // namespace

TEST_CASE("topology_constraints: levels are those of nodes or above") {
  topology_constraints gang;
  CHECK(understood(gang));
  for (level_t l = leaf; l <= block + 2; ++l) {
    CAPTURE(l);
    const bool known = l == node || l == rack || l == block;
    gang = {};
    gang.required = l;
    CHECK(understood(gang) == known);
    gang = {};
    gang.preferred = l;
    CHECK(understood(gang) == known);
    CHECK(understood(gang_of_member(4, {{l, 2}})) == known);
    CHECK(understood(gang_of_member(4, {}, {{l, 3}})) == known);
  }
  CHECK(understood(gang_of_member(4, {}, {{rack, 0}})));
  CHECK(understood(gang_of_member(4, {}, {{rack, 1}, {rack, 2}})));
}

TEST_CASE(
    "topology_constraints: slices divide the tasks and one another, each of a level of its own") {
  for (std::uint32_t tasks = 0; tasks <= 12; ++tasks) {
    for (std::uint32_t of_rack = 0; of_rack <= 13; ++of_rack) {
      CAPTURE(tasks);
      CAPTURE(of_rack);
      const bool alone = of_rack > 0 && tasks % of_rack == 0;
      CHECK(understood(gang_of_member(tasks, {{rack, of_rack}})) == alone);
      for (std::uint32_t of_block = 1; of_block <= 12; ++of_block) {
        CAPTURE(of_block);
        const bool both = alone && tasks % of_block == 0 && of_block % of_rack == 0;
        CHECK(understood(gang_of_member(tasks, {{rack, of_rack}, {block, of_block}})) == both);
        CHECK(understood(gang_of_member(tasks, {{block, of_block}, {rack, of_rack}})) == both);
        CHECK(!understood(gang_of_member(tasks, {{rack, of_rack}, {rack, of_block}})));
      }
    }
  }
}

TEST_CASE("topology_constraints: a leader has no leader, and its tasks divide those it leads") {
  for (std::uint32_t leaders = 0; leaders <= 6; ++leaders) {
    for (std::uint32_t workers = 0; workers <= 12; ++workers) {
      CAPTURE(leaders);
      CAPTURE(workers);
      bool divide = workers == 0;
      for (std::uint32_t n = leaders; leaders > 0 && n <= workers; n += leaders)
        divide = divide || n == workers;
      CHECK(understood(led_gang(leaders, workers)) == divide);
    }
  }
  topology_constraints gang = led_gang(2, 4);
  gang.groups[1].leader = 2;
  CHECK(!understood(gang));  // there is no such task group
  gang.groups[1].leader = 1;
  CHECK(!understood(gang));  // itself
  gang.groups[1].leader = 0;
  gang.groups.push_back({4, 1});
  gang.groups[2].leader = 1;
  CHECK(!understood(gang));
  gang.groups[2].leader = 0;
  CHECK(understood(gang));
}

TEST_CASE("topology_constraints: all task groups together have fewer than 2^32 tasks") {
  constexpr std::uint32_t half = std::uint32_t{1} << 31;
  topology_constraints gang;
  gang.groups = {{half, 1}, {half - 1, 1}};
  CHECK(understood(gang));
  gang.groups.push_back({1, 0});
  const std::string fault = gang.fault(node, block + 1);
  CHECK(fault.starts_with("task group 2: with its 1 tasks the gang has more than"));
  gang.groups = {{half, 1}, {half, 1}};
  CHECK(!understood(gang));
}

TEST_CASE("topology_constraints: each fault names the task group, the value and the limit") {
  const auto fault = [](const topology_constraints& gang) { return gang.fault(node, block + 1); };
  CHECK(fault({.required = 7}) == "the gang requires level 7; the levels are 1 to 3");
  CHECK(fault({.preferred = 0}) == "the gang prefers level 0; the levels are 1 to 3");
  CHECK(fault(gang_of_member(4, {{leaf, 2}})) ==
        "task group 0 has slices at level 0; the levels are 1 to 3");
  CHECK(fault(gang_of_member(4, {}, {{4, 2}})) ==
        "task group 0 has anti-affinity at level 4; the levels are 1 to 3");
  CHECK(fault(gang_of_member(4, {{rack, 3}})) ==
        "task group 0: slices of 3 tasks (level 2) do not divide its 4 tasks");
  CHECK(fault(gang_of_member(4, {{rack, 2}, {rack, 4}})) ==
        "task group 0 has two sizes of slices at level 2");
  CHECK(fault(gang_of_member(12, {{rack, 4}, {block, 6}})) ==
        "task group 0: slices of 4 tasks (level 2) do not divide slices of 6 tasks (level 3)");
  CHECK(fault(led_gang(2, 3)) ==
        "task group 1: 3 tasks are not a multiple of the 2 tasks of its leader, task group 0");
  topology_constraints gang = led_gang(2, 4);
  gang.groups[1].leader = 5;
  CHECK(fault(gang) == "task group 1: its leader, task group 5, is not in the gang");
  gang.groups[1].leader = 1;
  CHECK(fault(gang) == "task group 1: its leader, task group 1, has a leader");
  gang.groups[1].leader = 0;
  gang.groups[1].leader_level = node;
  CHECK(fault(gang) == "task group 1: leader level 1 is not a level above the nodes");
  gang.groups[1].leader = no_task_group;
  CHECK(fault(gang) == "task group 1 has a leader level and no leader");
}
