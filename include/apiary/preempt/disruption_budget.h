// apiary/preempt/disruption_budget.h - how many gangs and GPUs a tenant may lose to preemption.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstdint>
#include <limits>
#include <span>

APIARY_NAMESPACE_BEGIN

// The most that one group of gangs, for example a tenant, may lose in one preemption. Unlimited
// unless set.
struct disruption_budget {
  std::uint64_t gangs =
      (std::numeric_limits<std::uint64_t>::max)();  // how many gangs may be evicted
  std::uint64_t gpus =
      (std::numeric_limits<std::uint64_t>::max)();  // how many GPUs the evicted gangs may have
};

// The groups of the candidates of a victim search, and the budget of each group. A candidate whose
// group number is not below max.size() has no limit; if `max` is empty, no candidate has one.
struct disruption_budgets {
  std::span<const std::uint32_t> groups{};   // group number of each candidate
  std::span<const disruption_budget> max{};  // budget of each group
  // GPUs that each candidate counts as; empty: the sum of its allocations.
  std::span<const std::uint32_t> gpus{};
};

APIARY_NAMESPACE_END
