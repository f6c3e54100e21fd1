// apiary/gang/check_constraints.h - an error message for invalid topology constraints.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/topology_constraints.h>

#include <absl/status/status.h>

#include <cstdint>
#include <string>

APIARY_NAMESPACE_BEGIN

// Says in words why a gang is not valid() in a tree with num_levels levels whose nodes are at
// node_level: it names the task group, the level and the number. Returns OK if the gang is valid.
// kInvalidArgument: the first invalid constraint. Cost: O(groups * levels^2).
[[nodiscard]] inline absl::Status check_constraints(const topology_constraints& gang,
                                                    level_t node_level, level_t num_levels) {
  using kind = constraint_fault::kind;
  const constraint_fault fault = find_fault(gang, node_level, num_levels);
  if (fault.what == kind::none) return absl::OkStatus();
  const auto tasks = [](std::uint32_t n) { return std::to_string(n) + " tasks"; };
  const auto slices = [&](const level_count& s) {
    return "slices of " + tasks(s.tasks) + " (level " + std::to_string(s.level) + ")";
  };
  const auto level = [&](const std::string& what, level_t l) {
    return what + " level " + std::to_string(l) + "; the levels are " + std::to_string(node_level) +
           " to " + std::to_string(num_levels - 1);
  };
  const bool of_member = fault.group != no_task_group;
  const constrained_task_group& m = of_member ? gang.groups[fault.group] : constrained_task_group{};
  const std::string name = of_member ? "task group " + std::to_string(fault.group) : "the gang";
  const std::string leader = " its leader, task group " + std::to_string(m.leader);
  const auto words = [&]() -> std::string {
    switch (fault.what) {
      case kind::required_level:
        return level(name + " requires", gang.required);
      case kind::preferred_level:
        return level(name + " prefers", gang.preferred);
      case kind::slice_level:
        return level(name + " has slices at", fault.slice.level);
      case kind::slice_tasks:
        return name + ": " + slices(fault.slice) + " do not divide its " + tasks(m.tasks);
      case kind::slice_twice:
        return name + " has two sizes of slices at level " + std::to_string(fault.slice.level);
      case kind::slice_of_slices:
        return name + ": " + slices(fault.slice) + " do not divide " + slices(fault.other);
      case kind::spread_level:
        return level(name + " has anti-affinity at", fault.slice.level);
      case kind::no_leader:
        return name + ":" + leader + ", is not in the gang";
      case kind::led_leader:
        return name + ":" + leader + ", has a leader";
      case kind::leader_tasks:
        return name + ": " + tasks(m.tasks) + " are not a multiple of the " +
               tasks(gang.groups[m.leader].tasks) + " of" + leader;
      case kind::too_many_tasks:
        return name + ": with its " + tasks(m.tasks) + " the gang has more than " +
               std::to_string(max_tasks_of_gang) + " tasks";
      case kind::none:
        break;
    }
    return {};
  };
  return absl::InvalidArgumentError(words());
}

APIARY_NAMESPACE_END
