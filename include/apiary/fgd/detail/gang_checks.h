// apiary/fgd/detail/gang_checks.h - checks of a gang that shares GPUs, and of its tree.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/fgd/detail/request_checks.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>
#include <apiary/topology/tree.h>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

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
// OK, or kInvalidArgument if there is not one set of suggested nodes for each task group, or the gang
// has constraints that only the search without such sets knows.
[[nodiscard]] inline absl::Status check_suggested(const topology_constraints& gang,
                                                  std::span<const summary_bitset> suggested,
                                                  std::uint32_t nodes) {
  if (suggested.size() != gang.groups.size())
    return absl::InvalidArgumentError(absl::StrCat(
        "suggested nodes: ", suggested.size(), " sets for ", gang.groups.size(), " task groups"));
  for (std::size_t g = 0; g < suggested.size(); ++g) {
    const absl::Status one = check_suggested(suggested[g], nodes);
    if (!one.ok())
      return absl::InvalidArgumentError(absl::StrCat("task group ", g, ": ", one.message()));
  }
  if (tasks_are_independent(gang) && gang.required == any_level && gang.preferred == any_level)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      "suggested nodes for each task group need a gang without slices, anti-affinity, leaders and "
      "levels");
}

// How many such tasks the node can run now, counted up to `most`. Requires: the task is valid().
[[nodiscard]] inline std::uint64_t count_tasks(const node_state& n, const task_request& task,
                                               std::uint64_t most) noexcept {
  if (!n.fits(task)) return 0;
  if (task.cpu_milli > 0) most = (std::min)(most, std::uint64_t{n.left.cpu_milli / task.cpu_milli});
  if (task.memory_mib > 0)
    most = (std::min)(most, std::uint64_t{n.left.memory_mib / task.memory_mib});
  if (!task.wants_gpu()) return most;
  if (!task.wants_part_of_gpu()) return (std::min)(most, std::uint64_t{n.free_gpus() / task.gpus});
  std::uint64_t on_gpus = 0;
  for (const milli_gpu left : n.each_gpu()) on_gpus += left / task.gpu_milli;
  return (std::min)(most, on_gpus);
}
// The node if it were idle and healthy.
[[nodiscard]] inline node_state idle_and_healthy(const node_table& nodes, node_id n) noexcept {
  node_state state = nodes[n];
  state.healthy = true;
  state.left = nodes.shape(n).host;
  std::fill_n(state.gpu_left.begin(), state.gpus, whole_gpu);
  return state;
}
// Whether counting proves that the gang does not fit, if state_of(g, n) is what task group g may use of
// node n, or a node_state that is not healthy: a task group has more tasks than its nodes can run, or all
// together need more of the GPUs than their nodes have left.
template <class StateOf>
[[nodiscard]] bool is_too_large(const node_table& nodes, const topology_constraints& gang,
                                const StateOf& state_of) {
  std::uint64_t needed = 0;
  std::uint64_t left = 0;
  std::vector<std::uint64_t> missing;  // tasks of each group that no node so far can run
  for (const constrained_task_group& group : gang.groups) {
    missing.push_back(group.tasks);
    needed += group.tasks * group.task().total_gpu_milli();
  }
  for (const node_id n : nodes.ids()) {
    std::uint64_t on_node = 0;
    for (std::size_t g = 0; nodes.contains(n) && g < gang.groups.size(); ++g) {
      if (missing[g] == 0 && on_node > 0) continue;
      const node_state state = state_of(g, n);
      if (!state.healthy) continue;
      on_node = state.total_gpu_left();
      missing[g] -= count_tasks(state, gang.groups[g].task(), missing[g]);
    }
    left += on_node;
  }
  return needed > left ||
         std::any_of(missing.begin(), missing.end(), [](std::uint64_t tasks) { return tasks > 0; });
}
// Why the gang waits, each task group on its nodes, as far as counting proves it. `never`: it would not
// fit on all nodes if they were idle and healthy; `not_suggested`: nor on the suggested ones;
// `unhealthy`: nor on those of them that are healthy, if these were idle; `busy`: nor on what is left of
// them; `undecided`: counting does not prove that it does not fit now.
// Requires: check_suggested() is OK.
[[nodiscard]] inline wait_reason reason_by_counting(const node_table& nodes,
                                                    const topology_constraints& gang,
                                                    std::span<const summary_bitset> suggested) {
  const auto if_suggested = [&](std::size_t g, node_id n, const node_state& state) {
    return suggested[g].test(n.value) ? state : node_state{.healthy = false};
  };
  const auto now = [&](std::size_t g, node_id n) { return if_suggested(g, n, nodes[n]); };
  const auto idle = [&](std::size_t, node_id n) { return idle_and_healthy(nodes, n); };
  const auto idle_suggested = [&](std::size_t g, node_id n) {
    return if_suggested(g, n, idle_and_healthy(nodes, n));
  };
  const auto idle_if_healthy = [&](std::size_t g, node_id n) {
    return if_suggested(
        g, n, nodes[n].healthy ? idle_and_healthy(nodes, n) : node_state{.healthy = false});
  };
  if (!is_too_large(nodes, gang, now)) return wait_reason::undecided;
  if (!is_too_large(nodes, gang, idle_if_healthy)) return wait_reason::busy;
  if (!is_too_large(nodes, gang, idle_suggested)) return wait_reason::unhealthy;
  return is_too_large(nodes, gang, idle) ? wait_reason::never : wait_reason::not_suggested;
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
