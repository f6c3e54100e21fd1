// apiary/gang_scheduler/detail/short_slices.h - a gang whose last slice is shorter, as task groups of whole slices.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/gang/topology_constraints.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Whether a group of the gang has slices that do not divide its tasks.
[[nodiscard]] inline bool has_short_slice(const topology_constraints& gang) noexcept {
  return std::any_of(gang.groups.begin(), gang.groups.end(), [](const constrained_task_group& m) {
    return std::any_of(m.slices.begin(), m.slices.end(),
                       [&](const level_count& s) { return s.tasks > 0 && m.tasks % s.tasks != 0; });
  });
}

// The same gang with each such group divided into two: its whole slices, and the remaining tasks.
// The remaining tasks are one slice of the highest level on which the group has slices, and of each
// lower level whose slices are equally large. The tasks keep their order. Two kinds of groups stay
// as they are, and fault() refuses them: a group with anti-affinity, a leader or tasks that it
// leads, and a group whose remaining tasks have a short slice at a lower level. with_rests: if
// false, the remaining tasks are left out, so that the groups keep their indices.
[[nodiscard]] inline topology_constraints with_whole_slices(const topology_constraints& gang,
                                                            bool with_rests = true) {
  topology_constraints split = gang;
  split.groups.clear();
  std::vector<std::uint32_t> new_index;
  std::vector<bool> leads(gang.groups.size());
  for (const constrained_task_group& m : gang.groups)
    if (m.leader < leads.size()) leads[m.leader] = true;
  for (std::uint32_t i = 0; i < gang.groups.size(); ++i) {
    const constrained_task_group& m = gang.groups[i];
    new_index.push_back(static_cast<std::uint32_t>(split.groups.size()));
    split.groups.push_back(m);
    level_count largest;
    for (const level_count& s : m.slices)
      if (s.tasks > largest.tasks) largest = s;
    const std::uint32_t rest = largest.tasks > 0 ? m.tasks % largest.tasks : 0;
    if (rest == 0 || !m.spread.empty() || m.leader != no_task_group || leads[i]) continue;
    constrained_task_group last = m;
    last.tasks = rest;
    for (level_count& s : last.slices)
      if (s.tasks == largest.tasks) s.tasks = rest;
    topology_constraints alone;
    alone.groups = {last};
    if (has_short_slice(alone)) continue;
    split.groups.back().tasks -= rest;
    if (with_rests) split.groups.push_back(std::move(last));
  }
  for (constrained_task_group& m : split.groups)
    if (m.leader < new_index.size()) m.leader = new_index[m.leader];
  return split;
}

}  // namespace detail
APIARY_NAMESPACE_END
