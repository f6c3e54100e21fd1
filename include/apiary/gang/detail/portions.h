// apiary/gang/detail/portions.h - tasks of co-located groups become tasks of task groups.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/topology_constraints.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Sorts portions by task group, then node, and merges those of one group on one node.
inline void sort_portions(std::vector<tasks_on_node>& portions) {
  std::vector<keyed_number> tasks;
  for (const tasks_on_node& p : portions)
    tasks.push_back({std::uint64_t{p.group} << 32 | p.node, p.tasks});
  keyed_number::sort(tasks);
  portions.clear();
  for (const keyed_number& t : tasks) {
    const auto group = static_cast<std::uint32_t>(t.key >> 32);
    const auto node = static_cast<std::uint32_t>(t.key);
    if (portions.empty() || portions.back().group != group || portions.back().node != node)
      portions.push_back({node, group, 0});
    portions.back().tasks += t.number;
  }
}

// Turns portions of co-located groups into portions of task groups: the tasks of merged task groups
// follow one after another, each in the order of the nodes, together with the tasks that they lead.
// Requires: the portions name co-located groups of `gang` and contain every task once.
// Cost:     O(portions * log portions + groups), with the portions of led groups.
inline void portions_of_task_groups(const topology_constraints& gang,
                                    const colocated_groups& groups,
                                    std::vector<tasks_on_node>& portions,
                                    std::vector<tasks_on_node>& scratch) {
  sort_portions(portions);
  scratch.swap(portions);
  portions.clear();
  std::vector<std::uint32_t> first_led;  // by group; empty if no group has a leader
  std::vector<std::uint32_t> next_led;   // the next group with the same leader
  for (auto m = static_cast<std::uint32_t>(gang.groups.size()); m-- > 0;) {
    const constrained_task_group& led = gang.groups[m];
    if (!led.on_node_of_leader() || led.tasks == 0) continue;
    first_led.resize(gang.groups.size(), no_task_group);
    next_led.resize(gang.groups.size(), no_task_group);
    next_led[m] = first_led[led.leader];
    first_led[led.leader] = m;
  }
  const auto put = [&](std::uint32_t node, std::uint32_t leader, std::uint32_t n) {
    portions.push_back({node, leader, n});
    if (first_led.empty()) return;
    for (std::uint32_t m = first_led[leader]; m != no_task_group; m = next_led[m])
      portions.push_back({node, m, n * (gang.groups[m].tasks / gang.groups[leader].tasks)});
  };
  std::uint32_t group = 0;
  std::uint32_t done = 0;  // of its tasks
  for (std::size_t i = 0; i < scratch.size(); ++i) {
    const std::uint32_t u = scratch[i].group;
    if (i == 0 || scratch[i - 1].group != u) {
      group = groups[u].first_group;
      done = 0;
    }
    for (std::uint32_t left = scratch[i].tasks; left > 0;) {
      while (groups.group_of(group) != u || done == gang.groups[group].tasks) {
        ++group;
        done = 0;
      }
      const std::uint32_t n = (std::min)(left, gang.groups[group].tasks - done);
      put(scratch[i].node, group, n);
      done += n;
      left -= n;
    }
  }
  sort_portions(portions);
}

}  // namespace detail
APIARY_NAMESPACE_END
