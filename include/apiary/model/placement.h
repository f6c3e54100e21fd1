// apiary/model/placement.h - what a scheduler answers.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>

#include <bit>
#include <cstdint>

APIARY_NAMESPACE_BEGIN

// A place for a task: a node, and bit i for each device i of it.
struct placement {
  node_id node{};
  std::uint32_t device_mask = 0;

  [[nodiscard]] constexpr std::uint32_t num_devices() const noexcept {
    return static_cast<std::uint32_t>(std::popcount(device_mask));
  }
  friend constexpr bool operator==(placement, placement) noexcept = default;
};

APIARY_NAMESPACE_END
