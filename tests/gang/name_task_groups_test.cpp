// apiary/tests/gang/name_task_groups_test.cpp - portions of co-located groups become those of task groups.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/lean_vector.h>
#include <apiary/core/rng.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/topology_constraints.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary::detail;

// Tasks by task group and node.
using tasks_at = std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t>;

tasks_at sum_up(const apiary::detail::lean_vector<tasks_on_node>& portions) {
  tasks_at tasks;
  for (const tasks_on_node& p : portions) tasks[{p.group, p.node}] += p.tasks;
  return tasks;
}
// Ascending by task group, then by node, each pair once.
bool ascending_once(const apiary::detail::lean_vector<tasks_on_node>& portions) {
  for (std::size_t i = 1; i < portions.size(); ++i) {
    const tasks_on_node& a = portions[i - 1];
    const tasks_on_node& b = portions[i];
    if (a.group > b.group || (a.group == b.group && a.node >= b.node)) return false;
  }
  return true;
}

TEST_CASE("tasks_on_node: task groups of one kind one after the other, in the order of the nodes") {
  // Task groups 0 and 2 are of one kind; 3 is led by 1, with two tasks for its one.
  const topology_constraints gang{.groups = {{.tasks = 2, .gpus = 1},
                                             {.tasks = 1, .gpus = 4},
                                             {.tasks = 3, .gpus = 1},
                                             {.tasks = 2, .gpus = 2, .leader = 1}}};
  colocated_groups groups;
  groups.assign(gang, 0, 1);
  REQUIRE(groups.size() == 2);
  REQUIRE(groups.group_of(2) == groups.group_of(0));
  apiary::detail::lean_vector<tasks_on_node> portions = {
      {7, 0, 2}, {3, 0, 1}, {5, 1, 1}, {4, 0, 2}};
  apiary::detail::lean_vector<tasks_on_node> scratch;
  groups.name_task_groups(gang, portions, scratch);
  CHECK(portions == apiary::detail::lean_vector<tasks_on_node>{
                        {3, 0, 1}, {4, 0, 1}, {5, 1, 1}, {4, 2, 1}, {7, 2, 2}, {5, 3, 2}});
}

TEST_CASE("tasks_on_node: every task is somewhere, and the led ones are with their leaders") {
  for (std::uint64_t run = 0; run < apiary_test::scaled(std::uint64_t{5'000}); ++run) {
    CAPTURE(run);
    rng random(run);
    topology_constraints gang;
    for (std::uint32_t m = 1 + random.uniform(4); m > 0; --m) {
      constrained_task_group group{.tasks = random.uniform(5), .gpus = 1 + random.uniform(2)};
      const auto before = static_cast<std::uint32_t>(gang.groups.size());
      const std::uint32_t leader = random.uniform(before + 1);
      if (leader < before && gang.groups[leader].leader == no_task_group) {
        group.leader = leader;
        group.tasks = gang.groups[leader].tasks * (1 + random.uniform(3));
      }
      gang.groups.push_back(group);
    }
    REQUIRE(gang.valid(0, 1));
    colocated_groups groups;
    groups.assign(gang, 0, 1);
    apiary::detail::lean_vector<tasks_on_node> portions;
    for (std::uint32_t u = 0; u < groups.size(); ++u)
      for (std::uint32_t t = 0; t < groups[u].tasks; ++t)
        portions.push_back({random.uniform(6), u, 1});
    const tasks_at kinds = sum_up(portions);

    apiary::detail::lean_vector<tasks_on_node> scratch;
    groups.name_task_groups(gang, portions, scratch);
    REQUIRE(ascending_once(portions));
    const tasks_at placements = sum_up(portions);
    tasks_at kinds_again;
    std::vector<std::uint32_t> placed(gang.groups.size(), 0);
    for (const auto& [at, tasks] : placements) {
      const auto [m, node] = at;
      REQUIRE(tasks > 0);
      placed[m] += tasks;
      const std::uint32_t leader = gang.groups[m].leader;
      if (leader == no_task_group) {
        kinds_again[{groups.group_of(m), node}] += tasks;
        continue;
      }
      const std::uint32_t each = gang.groups[m].tasks / gang.groups[leader].tasks;
      const auto led_by = placements.find({leader, node});
      REQUIRE(led_by != placements.end());
      REQUIRE(tasks == each * led_by->second);
    }
    REQUIRE(kinds_again == kinds);
    for (std::size_t m = 0; m < placed.size(); ++m) REQUIRE(placed[m] == gang.groups[m].tasks);
  }
}

}  // namespace
