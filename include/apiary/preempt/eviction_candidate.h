// apiary/preempt/eviction_candidate.h - a running gang that may be preempted, and its GPUs by node.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstdint>

APIARY_NAMESPACE_BEGIN

// The GPUs of one node that become free when a gang is evicted.
struct gpus_on_node {
  std::uint32_t node = 0;  // index of the node
  std::uint32_t gpus = 0;  // number of GPUs
};

// A running gang that a search may evict. A gang is evicted as a whole or not at all.
//
// All gangs of a search keep their GPUs in one list, the allocations. This gang has the entries
// first, ..., last-1 of that list, at most one entry for each node.
struct eviction_candidate {
  std::uint64_t cost = 0;   // cost of evicting the gang, for example from victim_cost
  std::uint32_t first = 0;  // its first allocation
  std::uint32_t last = 0;   // the index after its last allocation
};

APIARY_NAMESPACE_END
