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
