// apiary/sched/rules_check.h - what is wrong with the rules of a gang, in words.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/policy/gang_rules.h>

#include <absl/status/status.h>

#include <cstdint>
#include <string>

APIARY_NAMESPACE_BEGIN

// The first reason for which a gang is not valid() for nodes of this level in a tree of so many
// levels, with member, level and number; OK if it is valid.
// kInvalidArgument: that reason. Cost: O(members * levels^2).
[[nodiscard]] inline absl::Status check_rules(const gang_rules& gang, level_t node_level,
                                              level_t num_levels) {
  const auto level = [&](level_t l, const std::string& what) {
    if (l >= node_level && l < num_levels) return absl::OkStatus();
    return absl::InvalidArgumentError(what + " level " + std::to_string(l) + ": there are levels " +
                                      std::to_string(node_level) + " to " +
                                      std::to_string(num_levels - 1));
  };
  if (gang.required != any_level) APIARY_RETURN_IF_ERROR(level(gang.required, "the gang requires"));
  if (gang.preferred != any_level)
    APIARY_RETURN_IF_ERROR(level(gang.preferred, "the gang prefers"));
  for (std::uint32_t i = 0; i < gang.members.size(); ++i) {
    const ruled_member& m = gang.members[i];
    const std::string name = "member " + std::to_string(i);
    const auto tasks = [](std::uint32_t n) { return std::to_string(n) + " tasks"; };
    const auto at = [](const level_count& s) { return " of level " + std::to_string(s.level); };
    for (const level_count& s : m.slices) {
      APIARY_RETURN_IF_ERROR(level(s.level, name + " has slices of"));
      if (s.tasks == 0 || m.tasks % s.tasks != 0)
        return absl::InvalidArgumentError(name + ": slices" + at(s) + " of " + tasks(s.tasks) +
                                          " are no whole part of its " + tasks(m.tasks));
      for (const level_count& other : m.slices) {
        if (&other != &s && other.level == s.level)
          return absl::InvalidArgumentError(name + " has two kinds of slices" + at(s));
        if (other.level > s.level && other.tasks % s.tasks != 0)
          return absl::InvalidArgumentError(name + ": slices" + at(s) + " of " + tasks(s.tasks) +
                                            " are no whole part of those" + at(other) + " of " +
                                            tasks(other.tasks));
      }
    }
    for (const level_count& s : m.spread)
      APIARY_RETURN_IF_ERROR(level(s.level, name + " is spread over"));
    if (m.leader == no_member) continue;
    const std::string leader = " its leader, member " + std::to_string(m.leader);
    if (m.leader >= gang.members.size())
      return absl::InvalidArgumentError(name + ":" + leader + ", is not in the gang");
    const ruled_member& head = gang.members[m.leader];
    if (m.leader == i || head.leader != no_member)
      return absl::InvalidArgumentError(name + ":" + leader + ", is led");
    if (head.tasks == 0 ? m.tasks != 0 : m.tasks % head.tasks != 0)
      return absl::InvalidArgumentError(name + ": " + tasks(m.tasks) + " are no multiple of the " +
                                        tasks(head.tasks) + " of" + leader);
  }
  APIARY_ASSERT(valid(gang, node_level, num_levels));
  return absl::OkStatus();
}

APIARY_NAMESPACE_END
