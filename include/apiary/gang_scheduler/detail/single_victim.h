// apiary/gang_scheduler/detail/single_victim.h - the cheapest gang whose end is enough for another gang.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/journal.h>
#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/gang_scheduler/detail/budgeted_fit.h>
#include <apiary/gang_scheduler/detail/cell_gangs.h>
#include <apiary/gang_scheduler/detail/filter_views.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/detail/victim_candidates.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/ragged_tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Finds the cheapest gang that is enough alone, if it costs at most as much as any two gangs. The
// cheapest gangs are tried one after the other; of equal ones, that of the first job.
// Cost: an eighth of a budget; the last gang that is tried may take another eighth. Memory:
//       O(gangs).
class single_victim {
 public:
  static constexpr std::uint32_t none = scheduled_gangs::none;
  struct result {
    std::uint32_t slot = none;  // none: no gang is known to be enough
    std::uint64_t cost = 0;
    std::uint64_t steps = 0;
  };

  // The gang needs `view`, whose hosts are `hosts` (empty if CPU and memory do not count); `list`
  // has begun with both. It may take `left` steps of the budget. Requires: it is certain that the
  // gang does not fit now; `costs` are those of candidates of `state`.
  result operator()(const scheduled_gangs& state, node_view& view, std::span<const resources> hosts,
                    const topology_constraints& asked, const candidate_costs& costs,
                    listed_candidates& list, std::uint64_t budget, std::uint64_t left) {
    result answer;
    const std::uint64_t eighth = budget / 8;
    // The steps that each gang counts as, besides those of topology_fit.
    const bool reads_nodes = !hosts.empty() || !step_prices::only_gpus(asked);
    const std::uint64_t each =
        (std::max<std::uint64_t>)(128, reads_nodes ? view.free.num_nodes() / 16 : 0) +
        asked.groups.size() / 8;
    if (costs.by_function() || costs.least() == 0 || each > eighth) return answer;
    bounds_.begin(view.free, view.free.top(), asked);
    if (!bounds_.lacks_slots(0)) return answer;  // all gangs may be enough
    // The eighth does not pay for this: which gangs are tried must not depend on how many ran once.
    const std::uint64_t looks = state.num_slots() / slots_of_a_step;
    if (looks > left) return answer;
    answer.steps = looks;
    const std::uint64_t used =
        try_some(state, view, hosts, asked, costs, list, eighth, each, answer);
    answer.steps += used;
    return answer;
  }

 private:
  static constexpr std::uint32_t slots_of_a_step = 256;  // that are read

  // Tries gangs alone. Returns the steps that it took.
  std::uint64_t try_some(const scheduled_gangs& state, node_view& view,
                         std::span<const resources> hosts, const topology_constraints& asked,
                         const candidate_costs& costs, listed_candidates& list,
                         std::uint64_t eighth, std::uint64_t each, result& answer) {
    alone_.clear();
    std::uint64_t cost = victim_set::never;  // of the gangs in equal_
    for (std::uint32_t slot = 0; slot < state.num_slots(); ++slot) {
      const scheduled_gangs::brief& b = state.brief_of(slot);
      if (!costs.is_candidate(slot) || !bounds_.may_be_enough(0, b.gpus, b.nodes)) continue;
      const std::uint64_t of_gang = costs.of(slot);
      if (of_gang <= 2 * costs.least()) alone_.push_back({of_gang, slot});
      cost = (std::min)(cost, of_gang);
    }
    const auto equal = std::partition(alone_.begin(), alone_.end(),
                                      [&](const keyed_number& k) { return k.key != cost; });
    std::uint64_t used = static_cast<std::uint64_t>(equal - alone_.begin()) / 64;
    equal_.clear();
    // A list that is cut off has used the eighth: none of its gangs is tried.
    for (auto at = equal; at != alone_.end() && used + equal_.size() / 16 + each <= eighth; ++at)
      equal_.push_back(state.ordered(at->number));
    used += equal_.size() / 16;
    alone_.erase(equal, alone_.end());
    keyed_number::make_heap(alone_);
    const auto later = [&](const auto& a, const auto& b) { return state.is_before(b, a); };
    topology_constraints gang = asked;
    gang.preferred = any_level;
    fit_.set_budget(eighth);
    std::make_heap(equal_.begin(), equal_.end(), later);
    for (bool known = true; known && used + each <= eighth;) {
      if (equal_.empty()) {
        if (alone_.empty()) break;
        cost = alone_.front().key;
        while (!alone_.empty() && alone_.front().key == cost &&
               used + equal_.size() / 8 + each <= eighth)
          equal_.push_back(state.ordered(keyed_number::pop(alone_).number));
        used += equal_.size() / 8;
        std::make_heap(equal_.begin(), equal_.end(), later);
      }
      std::pop_heap(equal_.begin(), equal_.end(), later);
      const std::uint32_t one = equal_.back().slot;
      equal_.pop_back();
      if (!costs.is_within_budget(one)) {
        used += 3;  // to take it from the heap
        continue;
      }
      const std::uint64_t price = each + step_prices::of_changes(state.brief_of(one).nodes);
      if (used + price > eighth) break;
      journal log;
      transaction tx(log);
      list.clear();
      list.add(one, costs);
      list.evict(tx);
      const auto then = fit_(view.free, gang, hosts);
      used += price + then.steps;
      known = then.verdict == fit_verdict::does_not_fit || then.is_refused;
      if (then.verdict != fit_verdict::fits) continue;
      answer.slot = one;
      answer.cost = cost;
      break;
    }
    return used;
  }

  topology_fit<ragged_tree> fit_;
  victim_bounds bounds_;
  std::vector<keyed_number> alone_;  // gangs that may be enough alone, with their costs
  std::vector<scheduled_gangs::ordered_gang> equal_;  // those that cost the same
};

}  // namespace detail
APIARY_NAMESPACE_END
