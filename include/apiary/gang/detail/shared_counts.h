// apiary/gang/detail/shared_counts.h - units of one kind on nodes that share GPUs, without a search.
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

// Whether max_units is exact: a unit of whole GPUs, of one share, or of none.
[[nodiscard]] inline bool is_counted_exactly(const gang_units::unit& unit) noexcept {
  return unit.shares.empty() || unit.gpus == 1;
}

// No node has room for more units of one kind, alone and rules aside.
// Cost: O(GPUs of the node + shares of the unit).
[[nodiscard]] inline std::uint32_t max_units(const node_state& node,
                                             const gang_units::unit& unit) noexcept {
  if (!node.healthy) return 0;
  std::uint64_t n = unit.tasks;
  if (unit.cpu_milli > 0) n = std::min(n, node.left.cpu_milli / unit.cpu_milli);
  if (unit.memory_mib > 0) n = std::min(n, node.left.memory_mib / unit.memory_mib);
  if (unit.gpus == 0) return static_cast<std::uint32_t>(n);
  if (!node.accessible(unit.models)) return 0;
  const std::uint64_t whole = unit.gpus - unit.shares.size();
  std::uint64_t milli = whole * whole_gpu;
  for (const milli_gpu part : unit.shares) milli += part;
  std::uint64_t free = 0;      // devices
  std::uint64_t of_share = 0;  // shares of the first size
  std::uint64_t left = 0;
  for (std::uint32_t d = 0; d < node.gpus; ++d) {
    free += node.gpu_left[d] == whole_gpu ? 1U : 0U;
    left += node.gpu_left[d];
    if (!unit.shares.empty()) of_share += std::uint64_t{node.gpu_left[d]} / unit.shares.front();
  }
  if (whole > 0) n = std::min(n, free / whole);
  if (unit.shares.size() == 1) n = std::min(n, of_share);
  return static_cast<std::uint32_t>(std::min(n, left / milli));
}

}  // namespace detail
APIARY_NAMESPACE_END
