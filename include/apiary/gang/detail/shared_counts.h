// apiary/gang/detail/shared_counts.h - tasks of one group on nodes with shared GPUs, counted without a search.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Whether max_units is exact: the task takes whole GPUs, one fraction of a GPU, or no GPU.
[[nodiscard]] inline bool is_counted_exactly(const colocated_groups::group& group) noexcept {
  return group.fractions.empty() || group.gpus == 1;
}

// The most tasks of one group that a node can hold, alone and without constraints; an upper bound
// in general. Cost: O(GPUs of the node + fractions of the task).
[[nodiscard]] inline std::uint32_t max_units(const node_state& node,
                                             const colocated_groups::group& group) noexcept {
  if (!node.healthy) return 0;
  std::uint64_t n = group.tasks;
  if (group.cpu_milli > 0) n = (std::min)(n, node.left.cpu_milli / group.cpu_milli);
  if (group.memory_mib > 0) n = (std::min)(n, node.left.memory_mib / group.memory_mib);
  if (group.gpus == 0) return static_cast<std::uint32_t>(n);
  if (!node.accessible(group.models)) return 0;
  const std::uint64_t whole = group.gpus - group.fractions.size();
  std::uint64_t milli = whole * whole_gpu;
  for (const milli_gpu part : group.fractions) milli += part;
  std::uint64_t free = 0;      // devices
  std::uint64_t of_share = 0;  // fractions of the first size
  std::uint64_t left = 0;
  for (std::uint32_t d = 0; d < node.gpus; ++d) {
    free += node.gpu_left[d] == whole_gpu ? 1U : 0U;
    left += node.gpu_left[d];
    if (!group.fractions.empty())
      of_share += std::uint64_t{node.gpu_left[d]} / group.fractions.front();
  }
  if (whole > 0) n = (std::min)(n, free / whole);
  if (group.fractions.size() == 1) n = (std::min)(n, of_share);
  return static_cast<std::uint32_t>((std::min)(n, left / milli));
}

}  // namespace detail
APIARY_NAMESPACE_END
