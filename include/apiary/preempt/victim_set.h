// apiary/preempt/victim_set.h - the answer of a victim search: the victims, their cost and a lower bound.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/gang_fit.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

APIARY_NAMESPACE_BEGIN

// The answer of victim_search and topology_victim_search.
struct victim_set {
  // The cost if there is no set of victims, or if it is not known.
  static constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();

  // fits:         the gang fits once the victims are evicted, or no set costs less than the cost
  //               limit of the search: then `cost` is `never`.
  // does_not_fit: it does not fit even if all candidates are evicted, or no set of victims within
  //               the disruption budgets is enough.
  // budget_ended: it is not known whether there is a set, or none was found.
  fit_verdict verdict = fit_verdict::budget_ended;
  // The candidates to evict, ascending. The search owns the memory: valid until its next call.
  std::span<const std::uint32_t> victims{};
  // The sum of the costs of the victims.
  std::uint64_t cost = 0;
  // No set of victims costs less. The victims are proved to be optimal if this equals `cost`.
  std::uint64_t lower_bound = 0;
  // The steps of the budget that the search has used.
  std::uint64_t steps = 0;
  // victim_search only, after does_not_fit: a count of GPUs that proves it even if all candidates
  // are evicted, if there is such a count.
  std::optional<gang_fit::shortage> shortage{};
};

APIARY_NAMESPACE_END
