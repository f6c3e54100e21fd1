// apiary/tests/gang/topology_constraints_test.cpp - which constraints are valid, and co-located groups.
// SPDX-License-Identifier: MIT
#include "support/levels.h"
#include "support/naive_cells.h"
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
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

TEST_CASE("colocated_groups: what a task needs with those it leads is never less than it is") {
  constexpr std::uint32_t many = std::uint32_t{1} << 29;
  topology_constraints gang = led_gang(1, many);
  for (int i = 0; i < 5; ++i) {
    gang.groups[1].host = {std::uint32_t{1} << 31, std::uint32_t{1} << 31};
    gang.groups.push_back(gang.groups[1]);
  }
  REQUIRE(understood(gang));
  colocated_groups groups;
  groups.assign(gang, node, block + 1);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].gpus == colocated_groups::max_gpus);
  CHECK(groups[0].cpu_milli == colocated_groups::max_host);
  CHECK(groups[0].memory_mib == colocated_groups::max_host);
}

TEST_CASE("colocated_groups: kinds, needs and limits are those that the constraints say") {
  constexpr level_t top = block + 1;
  std::size_t constrained = 0;
  std::size_t joined = 0;
  colocated_groups groups;  // the same one for all: assign() leaves nothing behind
  for (std::uint64_t seed = 0; seed < scaled(2000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const topology_constraints gang = random_small_gang(random, 6);
    REQUIRE(understood(gang));
    const ruled_world world = random_small_cells(random, 6);
    const naive_cells naive(world, gang);
    groups.assign(gang, node, top);
    REQUIRE(groups.size() == naive.kinds().size());
    std::vector<std::uint32_t> group_of(gang.groups.size(), no_task_group);
    level_t lowest = any_level;
    bool hosted = false;
    for (std::uint32_t u = 0; u < groups.size(); ++u) {
      const naive_kind& kind = naive.kinds()[u];
      for (const std::uint32_t m : kind.groups) group_of[m] = u;
      joined += kind.groups.size() - 1;
      CHECK(groups[u].first_group == kind.groups[0]);
      CHECK(groups[u].tasks == kind.tasks);
      CHECK(groups[u].gpus == kind.leaves);
      CHECK(groups[u].cpu_milli == kind.cpu);
      CHECK(groups[u].memory_mib == kind.memory);
      CHECK(groups[u].constrained == naive.lowest_constraint(kind.groups[0]));
      lowest = std::min(lowest, groups[u].constrained);
      hosted = hosted || kind.cpu > 0 || kind.memory > 0;
      constrained += groups[u].constrained == any_level ? 0U : 1U;
      for (level_t l = node; l <= top; ++l) {
        CAPTURE(l);
        const auto limit = groups.at(u, l);
        CHECK(limit.most == naive.bound(u, l, kind.tasks));
        for (std::uint32_t n = 0; n <= kind.tasks; ++n)
          CHECK((n % limit.step == 0 && n <= limit.most) == naive.may(u, l, n));
        for (std::uint32_t n = 0; n <= kind.tasks + 2; ++n)
          CHECK(groups.bound(u, l, n) == naive.bound(u, l, n));
        CHECK(groups.bound(u, l, ~std::uint64_t{0}) == limit.most);
      }
    }
    for (std::uint32_t m = 0; m < gang.groups.size(); ++m) CHECK(groups.group_of(m) == group_of[m]);
    CHECK(groups.lowest_constraint() == lowest);
    CHECK(groups.hosted() == hosted);
  }
  CHECK(constrained > 0);
  if (scale() >= 1) CHECK(joined > 10);
}

TEST_CASE(
    "colocated_groups: slices of a leader and of those it leads come together in whole ones") {
  topology_constraints gang = led_gang(12, 24);
  gang.groups[0].slices = {{rack, 4}};
  gang.groups[1].slices = {{rack, 12}};
  gang.groups[1].spread = {{block, 17}};
  REQUIRE(understood(gang));
  colocated_groups groups;
  groups.assign(gang, node, block + 1);
  CHECK(groups.at(0, node).step == 1);
  CHECK(groups.at(0, rack).step == 12);  // 4 leaders make a slice, 6 make one of workers
  CHECK(groups.at(0, block).step == 12);
  CHECK(groups.at(0, block).most == 0);  // 8 leaders would be, of which no slices are made
  CHECK(groups.at(0, rack).most == 0);
  gang.groups[1].spread = {{block, 24}};
  groups.assign(gang, node, block + 1);
  CHECK(groups.at(0, node).most == 12);
}

TEST_CASE("colocated_groups: shares and kinds of GPU of a task and those it leads") {
  topology_constraints gang = led_gang(2, 4);
  gang.groups[0].gpu_milli = 300;
  gang.groups[0].models = 0b0111;
  gang.groups[1].gpu_milli = 500;
  gang.groups[1].models = 0b1110;
  gang.groups.push_back({2, 0});  // takes no GPU, so it asks for none
  gang.groups[2].leader = 0;
  gang.groups[2].gpu_milli = 100;
  gang.groups[2].models = 0b1000;
  colocated_groups groups;
  groups.assign(gang, node, block);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].fractions == std::vector<milli_gpu>{500, 500, 300});
  CHECK(groups[0].models == 0b0110);
  CHECK(gang.groups[0].shared() == 300);
  CHECK(gang.groups[2].shared() == 0);
  gang.groups[0].gpu_milli = whole_gpu;
  CHECK(gang.groups[0].shared() == 0);
}

TEST_CASE("colocated_groups: those that differ in anything are not of one kind") {
  const constrained_task_group plain{2, 1, {3, 4}};
  std::vector<constrained_task_group> others(7, plain);
  others[1].gpus = 2;
  others[2].host.cpu_milli = 4;
  others[3].host.memory_mib = 5;
  others[4].gpu_milli = 500;
  others[5].models = 1;
  others[6].spread = {{rack, 2}};
  for (std::size_t i = 0; i < others.size(); ++i) {
    CAPTURE(i);
    topology_constraints gang;
    gang.groups = {plain, others[i]};
    colocated_groups groups;
    groups.assign(gang, node, block);
    CHECK(groups.size() == (i == 0 ? 1 : 2));
    CHECK(groups[0].tasks == (i == 0 ? 4 : 2));
    CHECK(groups.at(0, rack).most == groups[0].tasks);
  }
}
