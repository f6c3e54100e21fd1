// apiary/alloc/fraction_pool.h - places tasks with whole or shared GPUs, CPU and memory on nodes.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <bit>
#include <cstdint>

APIARY_NAMESPACE_BEGIN

// Whether the node can run the task now: the node is healthy, has enough CPU and memory left, has a
// GPU model that the task accepts, and enough GPUs have `task.gpu_milli` left.
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

// Whether a node of this shape could run the task if it were idle and healthy.
// Requires: task.valid().
[[nodiscard]] constexpr bool task_fits_idle(const task_request& task,
                                            const node_shape& shape) noexcept {
  if (!task.host().fits_in(shape.host)) return false;
  return !task.wants_gpu() || (task.gpus <= shape.gpus && contains_model(task.models, shape.model));
}

// The `count` lowest-numbered GPUs of the node that are completely free, as a device mask.
// Requires: at least `count` GPUs are free.
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

// The GPU with the least left among those with at least `milli` thousandths left, as a device mask.
// Ties go to the lowest number. Requires: there is such a GPU.
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

// Whether the task can run at exactly this placement now. The answer is false if the node does not
// exist or the device mask does not match the task.
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

// Subtracts the resources of the task from the node and the GPUs of the placement.
// Requires: can_place_task(nodes, task, where).
// Cost:     O(GPUs of the placement).
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

// Undoes place_task with equal arguments: the table is the same as before that call.
// Requires: the task is placed there.
// Cost:     O(GPUs of the placement).
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
