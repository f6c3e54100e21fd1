// apiary/preempt/eviction_candidate.h - a running gang that may be preempted, and its GPUs by node.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <bit>
#include <concepts>
#include <cstdint>

APIARY_NAMESPACE_BEGIN

// Leaves of a node that become free when a gang is evicted.
struct gpus_on_node {
  std::uint32_t node = 0;
  std::uint32_t leaves = 0;
};

// A gang that may be evicted, wholly or not at all: its shares are first, ..., last-1 of a list,
// at most one a node.
struct eviction_candidate {
  std::uint64_t cost = 0;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

// What a leaf costs when a gang has so many, rounded down. Requires: leaves > 0.
template <std::unsigned_integral Cost>
[[nodiscard]] constexpr Cost cost_a_leaf(Cost cost, std::uint32_t leaves) noexcept {
  // Most gangs have a power of two: a shift is a tenth of a division.
  return std::has_single_bit(leaves) ? cost >> std::countr_zero(leaves) : cost / leaves;
}

APIARY_NAMESPACE_END
