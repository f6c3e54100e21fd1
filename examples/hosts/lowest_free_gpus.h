// apiary/examples/hosts/lowest_free_gpus.h - chooses GPUs for a task that a host already runs on a node.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/model/placement.h>

#include <cstdint>
#include <optional>
#include <span>

// The lowest GPUs of the node that neither a gang nor one of `others` uses, as a mask. Hosts that do not
// say which GPUs a task uses take these. Nullopt: the node has fewer, or does not exist.
[[nodiscard]] inline std::optional<std::uint32_t> lowest_free_gpus(
    const apiary::gang_scheduler& cluster, apiary::node_id node, std::uint32_t gpus,
    std::span<const apiary::placement> others) {
  if (cluster.node(node) == nullptr) return std::nullopt;
  std::uint32_t used = 0;
  for (const apiary::job_key& gang : cluster.jobs_on(node))
    for (const apiary::placement& task : cluster.find(gang)->tasks)
      if (task.node == node) used |= task.gpu_mask;
  for (const apiary::placement& task : others)
    if (task.node == node) used |= task.gpu_mask;
  std::uint32_t mask = 0;
  for (std::uint32_t g = 0; g < cluster.node(node)->gpus && gpus > 0; ++g)
    if ((used >> g & 1U) == 0) mask |= std::uint32_t{1} << g, --gpus;
  if (gpus > 0) return std::nullopt;
  return mask;
}
