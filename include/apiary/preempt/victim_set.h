// apiary/preempt/victim_set.h - what a victim search is given, and its answer.
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
  std::optional<gpu_shortage> shortage{};
};

APIARY_NAMESPACE_END
