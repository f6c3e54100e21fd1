// apiary/fgd/request_checks.h - what is wrong with a request for shared GPUs, in words.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gang/check_constraints.h>
#include <apiary/gang/shared_gpu_fit.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>
#include <apiary/topology/tree.h>

#include <absl/status/status.h>

#include <cstddef>
#include <cstdint>
#include <string>

APIARY_NAMESPACE_BEGIN

inline constexpr std::uint32_t max_gang_tasks = 1'000'000;

// The nodes as they are, those that are not suggested taken for bad.
// Requires: one bit for each node.
[[nodiscard]] inline node_table suggested_alone(node_table nodes, const summary_bitset& suggested) {
  for (const node_id n : nodes.ids())
    nodes[n].healthy = nodes[n].healthy && suggested.test(n.value);
  return nodes;
}

namespace detail {

// Each is OK or kInvalidArgument, with who, where and which number.

[[nodiscard]] inline absl::Status check_task(const std::string& who, const task_request& task) {
  if (task.valid()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      who + ": " + std::to_string(task.gpus) + " GPUs of " + std::to_string(task.gpu_milli) +
      " thousandths each: a share of one GPU or whole GPUs can be asked for");
}
[[nodiscard]] inline absl::Status check_tasks(const topology_constraints& gang) {
  std::uint64_t tasks = 0;
  for (std::size_t m = 0; m < gang.members.size(); ++m) {
    APIARY_RETURN_IF_ERROR(check_task("member " + std::to_string(m), task_of(gang.members[m])));
    tasks += gang.members[m].tasks;
  }
  if (tasks <= max_gang_tasks) return absl::OkStatus();
  return absl::InvalidArgumentError("a gang of " + std::to_string(tasks) + " tasks: at most " +
                                    std::to_string(max_gang_tasks) + " can be asked for");
}
[[nodiscard]] inline absl::Status check_suggested(const summary_bitset& suggested,
                                                  std::uint32_t nodes) {
  if (suggested.size() == nodes) return absl::OkStatus();
  return absl::InvalidArgumentError("suggested nodes: " + std::to_string(suggested.size()) +
                                    " bits for " + std::to_string(nodes) + " nodes");
}
template <CellTree Tree>
[[nodiscard]] absl::Status check_gang(const topology_constraints& gang, const Tree& tree,
                                      level_t node_level, std::uint32_t nodes) {
  if (node_level >= tree.num_levels())
    return absl::InvalidArgumentError("a node level " + std::to_string(node_level) +
                                      " in a tree of " + std::to_string(tree.num_levels()) +
                                      " levels");
  if (tree.cells(node_level).size() != nodes)
    return absl::InvalidArgumentError("level " + std::to_string(node_level) + " of the tree has " +
                                      std::to_string(tree.cells(node_level).size()) +
                                      " cells for " + std::to_string(nodes) + " nodes");
  APIARY_RETURN_IF_ERROR(check_tasks(gang));
  return check_constraints(gang, node_level, tree.num_levels());
}

}  // namespace detail

APIARY_NAMESPACE_END
