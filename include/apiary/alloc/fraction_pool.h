// apiary/alloc/fraction_pool.h - shares of devices, whole devices, CPU and memory of a node.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <bit>
#include <cstdint>

APIARY_NAMESPACE_BEGIN

// Whether the node can run the task now: it is healthy, has CPU and memory, its GPU model will do,
// and a device has the share left (or enough devices are free).
// Requires: task.valid().
// Cost:     O(GPUs of a node).
[[nodiscard]] inline bool task_fits(const task_request& task, const node_state& node) noexcept {
  if (!node.healthy || !task.host().fits_in(node.left)) return false;
  if (!task.wants_gpu()) return true;
  if (!node.accessible(task.models)) return false;
  std::uint32_t enough = 0;
  for (const milli_gpu left : node.gpu_left) enough += left >= task.gpu_milli ? 1 : 0;
  return enough >= task.gpus;
}

// The lowest-numbered `count` free devices, as a mask. Requires: that many are free.
[[nodiscard]] inline std::uint32_t first_free_devices(const node_state& node,
                                                      std::uint32_t count) noexcept {
  std::uint32_t mask = 0;
  for (std::uint32_t i = 0; i < node.gpus && count > 0; ++i) {
    if (node.gpu_left[i] != whole_gpu) continue;
    mask |= std::uint32_t{1} << i;
    --count;
  }
  APIARY_ASSERT(count == 0);
  return mask;
}

// The device with the least left that has `milli` left, the lowest-numbered of equals, as a mask.
// Requires: there is one.
[[nodiscard]] inline std::uint32_t tightest_device(const node_state& node,
                                                   milli_gpu milli) noexcept {
  std::uint32_t best = max_gpus_per_node;
  for (std::uint32_t i = 0; i < node.gpus; ++i) {
    if (node.gpu_left[i] >= milli &&
        (best == max_gpus_per_node || node.gpu_left[i] < node.gpu_left[best])) {
      best = i;
    }
  }
  APIARY_ASSERT(best < max_gpus_per_node);
  return std::uint32_t{1} << best;
}

// Whether exactly this placement can be taken now. False, not undefined, for a node that does not
// exist or a mask that does not suit the task.
// Requires: task.valid().
// Cost:     O(GPUs of a node).
[[nodiscard]] inline bool can_place_task(const node_table& nodes, const task_request& task,
                                         placement where) noexcept {
  if (!nodes.contains(where.node) || where.num_devices() != task.gpus) return false;
  const node_state& node = nodes[where.node];
  if (!task_fits(task, node) || where.device_mask >> node.gpus != 0) return false;
  for (std::uint32_t mask = where.device_mask; mask != 0; mask &= mask - 1) {
    if (node.gpu_left[static_cast<std::uint32_t>(std::countr_zero(mask))] < task.gpu_milli)
      return false;
  }
  return true;
}

// Takes the placement. Requires: can_place_task(nodes, task, where). Cost: O(devices taken).
inline void place_task(node_table& nodes, const task_request& task, placement where) noexcept {
  APIARY_ASSERT(can_place_task(nodes, task, where));
  node_state& node = nodes[where.node];
  node.left -= task.host();
  for (std::uint32_t mask = where.device_mask; mask != 0; mask &= mask - 1) {
    milli_gpu& left = node.gpu_left[static_cast<std::uint32_t>(std::countr_zero(mask))];
    left = static_cast<milli_gpu>(left - task.gpu_milli);
  }
  if (task.wants_gpu()) nodes.count_task(where.node, task.wants_whole_gpus() ? task.gpus : 0, true);
}

// Gives back what place_task took: with equal arguments, the table is what it was before.
// Requires: that it was taken. Cost: O(devices given).
inline void remove_task(node_table& nodes, const task_request& task, placement where) noexcept {
  node_state& node = nodes[where.node];
  APIARY_ASSERT(where.num_devices() == task.gpus && where.device_mask >> node.gpus == 0);
  node.left += task.host();
  APIARY_ASSERT(node.left.fits_in(nodes.shape(where.node).host));
  for (std::uint32_t mask = where.device_mask; mask != 0; mask &= mask - 1) {
    milli_gpu& left = node.gpu_left[static_cast<std::uint32_t>(std::countr_zero(mask))];
    left = static_cast<milli_gpu>(left + task.gpu_milli);
    APIARY_VERIFY(left <= whole_gpu);
  }
  if (task.wants_gpu())
    nodes.count_task(where.node, task.wants_whole_gpus() ? task.gpus : 0, false);
}

APIARY_NAMESPACE_END
