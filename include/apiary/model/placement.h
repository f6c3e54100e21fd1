// apiary/model/placement.h - where a task runs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>

#include <bit>
#include <cstdint>

APIARY_NAMESPACE_BEGIN

// Where a task runs: a node, and bit i for each GPU i of that node that it uses.
struct placement {
  static constexpr std::uint32_t max_gpus = 32;  // the most GPUs of a node: the bits of a mask

  node_id node{};              // the node
  std::uint32_t gpu_mask = 0;  // bit i: GPU i of the node

  // How many GPUs it uses.
  [[nodiscard]] constexpr std::uint32_t num_gpus() const noexcept {
    return static_cast<std::uint32_t>(std::popcount(gpu_mask));
  }
  friend constexpr bool operator==(placement, placement) noexcept = default;
};

APIARY_NAMESPACE_END
