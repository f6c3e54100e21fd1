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

// The most that a group of gangs, such as a tenant, may lose in one preemption; default: no limit.
struct disruption_budget {
  std::uint64_t gangs = (std::numeric_limits<std::uint64_t>::max)();  // gangs that may be evicted
  std::uint64_t gpus = (std::numeric_limits<std::uint64_t>::max)();   // GPUs that they may have
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

// A running gang that a search may evict, as a whole or not at all. It has the entries first, ...,
// last-1 of the list of allocations of all gangs, at most one entry for each node. Entries of no
// gang do not matter.
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
  // The candidates to evict, ascending; valid until the next call of the search.
  std::span<const std::uint32_t> victims{};
  std::uint64_t cost = 0;         // sum of the costs of the victims
  std::uint64_t lower_bound = 0;  // no set costs less; if it equals `cost`, the set is optimal
  std::uint64_t steps = 0;        // steps of the budget that were used
  // victim_search only, after does_not_fit: a count of GPUs that proves it, if there is one.
  std::optional<gpu_shortage> shortage{};
};

APIARY_NAMESPACE_END
