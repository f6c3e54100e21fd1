// apiary/gang/detail/topology_constraints_inl.h - bodies of gang/topology_constraints.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/gang/topology_constraints.h>

#include <cstdint>
#include <initializer_list>
#include <string>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The text with each # replaced by the next of the numbers.
[[nodiscard]] inline std::string with_numbers(const char* text,
                                              std::initializer_list<std::uint64_t> numbers) {
  std::string all;
  const std::uint64_t* next = numbers.begin();
  for (; *text != 0; ++text) {
    if (*text == '#') {
      all += std::to_string(*next++);
    } else {
      all += *text;
    }
  }
  return all;
}

}  // namespace detail

APIARY_INLINE std::string topology_constraints::fault(level_t node_level,
                                                      level_t num_levels) const {
  using detail::with_numbers;
  const auto known = [&](level_t l) { return l >= node_level && l < num_levels; };
  const auto no_level = [&](const char* what, std::uint32_t group, level_t l) {
    return with_numbers(what, {group}) +
           with_numbers(" level #; the levels are # to #", {l, node_level, num_levels - 1});
  };
  if (required != any_level && !known(required)) return no_level("the gang requires", 0, required);
  if (preferred != any_level && !known(preferred))
    return no_level("the gang prefers", 0, preferred);
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < groups.size(); ++i) {
    const constrained_task_group& m = groups[i];
    sum += m.tasks;
    if (sum > max_tasks)
      return with_numbers("task group #: with its # tasks the gang has more than # tasks",
                          {i, m.tasks, max_tasks});
    for (const level_count& s : m.slices) {
      if (!known(s.level)) return no_level("task group # has slices at", i, s.level);
      if (s.tasks == 0 || m.tasks % s.tasks != 0)
        return with_numbers("task group #: slices of # tasks (level #) do not divide its # tasks",
                            {i, s.tasks, s.level, m.tasks});
      for (const level_count& other : m.slices) {
        if (&other != &s && other.level == s.level)
          return with_numbers("task group # has two sizes of slices at level #", {i, s.level});
        if (other.level > s.level && other.tasks % s.tasks != 0)
          return with_numbers(
              "task group #: slices of # tasks (level #) do not divide slices of # tasks (level #)",
              {i, s.tasks, s.level, other.tasks, other.level});
      }
    }
    for (const level_count& s : m.spread)
      if (!known(s.level)) return no_level("task group # has anti-affinity at", i, s.level);
    if (m.leader == no_task_group && m.leader_level != any_level)
      return with_numbers("task group # has a leader level and no leader", {i});
    if (m.leader == no_task_group) continue;
    if (m.leader_level != any_level && (m.leader_level == node_level || !known(m.leader_level)))
      return with_numbers("task group #: leader level # is not a level above the nodes",
                          {i, m.leader_level});
    if (m.leader >= groups.size())
      return with_numbers("task group #: its leader, task group #, is not in the gang",
                          {i, m.leader});
    const constrained_task_group& leader = groups[m.leader];
    if (m.leader == i || leader.leader != no_task_group)
      return with_numbers("task group #: its leader, task group #, has a leader", {i, m.leader});
    if (leader.tasks == 0 ? m.tasks != 0 : m.tasks % leader.tasks != 0)
      return with_numbers(
          "task group #: # tasks are not a multiple of the # tasks of its leader, task group #",
          {i, m.tasks, leader.tasks, m.leader});
  }
  return {};
}

APIARY_NAMESPACE_END
