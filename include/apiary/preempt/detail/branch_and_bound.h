// apiary/preempt/detail/branch_and_bound.h - branch and bound over all sets of victims.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/gang/fit_verdict.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Decides for one gang after the other, in the given order, whether it is evicted.
//
// A gang is reprieved first, if the new gang still fits with all undecided gangs evicted; after
// that, or if it cannot be reprieved, it is evicted. Sets that cost as much as the best set so far,
// and sets beyond a disruption budget, are left out. If expensive gangs come first, they are
// reprieved first.
//
// The world decides what fits, and keeps what is found. All gangs are evicted when the search
// begins, and the new gang fits then. After the search the gangs are as the search left them.
//   world.cost_to_beat() -> std::uint64_t  only sets that cost less are of use; 0: no set is
//   world.pay() -> bool                    whether one more gang may be tried
//   world.reprieve(k) -> fit_verdict       gang k keeps running; what is known of the new gang then
//   world.evict(k)                         undoes reprieve(k)
//   world.add_victim(k) -> bool            gang k is a victim; whether all budgets hold then
//   world.remove_victim(k)                 undoes add_victim(k)
//   world.keep()                           the new gang fits; no set so far costs less
//
// Cost: the calls of the world; O(1) a step besides; 1 byte a gang.
class branch_and_bound {
 public:
  // Whether it is certain that no set costs less than the best one: false if the budget ended, for
  // the search or for a verdict. costs: the cost of each gang.
  template <class World>
  bool operator()(World&& world, std::span<const std::uint64_t> costs) {
    reprieved_.assign(costs.size(), 0);
    bool certain = true;
    std::uint64_t cost = 0;
    std::size_t k = 0;  // gangs decided
    bool within = true;
    while (true) {
      for (; within && cost < world.cost_to_beat() && k < costs.size(); ++k) {
        if (!world.pay()) return false;
        const fit_verdict verdict = world.reprieve(k);
        reprieved_[k] = verdict == fit_verdict::fits ? 1 : 0;
        if (verdict == fit_verdict::fits) continue;
        certain = certain && verdict == fit_verdict::does_not_fit;
        world.evict(k);
        cost += costs[k];
        within = world.add_victim(k);
      }
      if (within && cost < world.cost_to_beat()) world.keep();
      // Back to the last gang that is reprieved: now it is evicted.
      for (; k > 0 && reprieved_[k - 1] == 0; --k) {
        cost -= costs[k - 1];
        world.remove_victim(k - 1);
      }
      if (k == 0) return certain;
      world.evict(k - 1);
      reprieved_[k - 1] = 0;
      cost += costs[k - 1];
      within = world.add_victim(k - 1);
    }
  }

 private:
  std::vector<unsigned char> reprieved_;  // of the gangs decided
};

}  // namespace detail
APIARY_NAMESPACE_END
