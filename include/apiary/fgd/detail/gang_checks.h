// apiary/fgd/detail/gang_checks.h - checks of a gang that shares GPUs, and of its tree.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/fgd/detail/request_checks.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/topology/tree.h>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The largest number of tasks in a gang.
inline constexpr std::uint32_t max_gang_tasks = 1'000'000;

// OK, or kInvalidArgument for a task that is not valid(), or more than max_gang_tasks tasks.
[[nodiscard]] inline absl::Status check_tasks(const topology_constraints& gang) {
  std::uint64_t tasks = 0;
  for (std::size_t m = 0; m < gang.groups.size(); ++m) {
    APIARY_RETURN_IF_ERROR(check_task(absl::StrCat("task group ", m), gang.groups[m].task()));
    tasks += gang.groups[m].tasks;
  }
  if (tasks <= max_gang_tasks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a gang has ", tasks, " tasks; the limit is ", max_gang_tasks));
}
// OK, or kInvalidArgument for a gang, a tree or a node level that do not match.
template <CellTree Tree>
[[nodiscard]] absl::Status check_gang(const topology_constraints& gang, const Tree& tree,
                                      level_t node_level, std::uint32_t nodes) {
  if (node_level >= tree.num_levels())
    return absl::InvalidArgumentError(
        absl::StrCat("node level ", node_level, " in a tree with ", tree.num_levels(), " levels"));
  if (tree.cells(node_level).size() != nodes)
    return absl::InvalidArgumentError(absl::StrCat("level ", node_level, " of the tree has ",
                                                   tree.cells(node_level).size(), " cells for ",
                                                   nodes, " nodes"));
  APIARY_RETURN_IF_ERROR(check_tasks(gang));
  const std::string fault = gang.fault(node_level, tree.num_levels());
  if (!fault.empty()) return absl::InvalidArgumentError(fault);
  for (std::size_t m = 0; m < gang.groups.size(); ++m)
    if (gang.groups[m].leader_level != any_level)
      return absl::InvalidArgumentError(
          absl::StrCat("task group ", m,
                       " has a leader level; FGD places workers only on the node of their leader"));
  return absl::OkStatus();
}

// Whether no task group has slices, anti-affinity or a leader: only the cell of the gang counts.
[[nodiscard]] inline bool tasks_are_independent(const topology_constraints& gang) noexcept {
  return std::all_of(gang.groups.begin(), gang.groups.end(), [](const constrained_task_group& m) {
    return m.slices.empty() && m.spread.empty() && m.leader == no_task_group;
  });
}
// kNotFound: the job is no running gang.
[[nodiscard]] inline absl::Status no_such_gang(job_id job, bool runs) {
  if (!runs) return does_not_run(job);
  return absl::NotFoundError(absl::StrCat(name_of(job), " is no gang"));
}
// kNotFound: no task of the job runs on the node at a placement.
[[nodiscard]] inline absl::Status no_such_task(job_id job, std::uint32_t group, node_id n) {
  return absl::NotFoundError(absl::StrCat(name_of(job), " has no task of task group ", group,
                                          " on these GPUs of node ", n.value));
}

}  // namespace detail
APIARY_NAMESPACE_END
