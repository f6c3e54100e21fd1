// apiary/preempt/detail/branch_and_bound.h - which of many gangs can be spared: branch and bound over all sets.
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

// Decides one gang after the other, in the order given: it is spared where the newcomer still fits
// with all undecided gangs evicted, and then, or otherwise, it is evicted. Sets that cost as much
// as the best one so far, or go beyond a limit, are left out. With dear gangs first, these are
// spared first.
//
// The world says what fits, and keeps what is found; all gangs are evicted when the search begins,
// and the newcomer fits then. Once the search ends they stand as it left them.
//   world.least() -> std::uint64_t    only sets that cost less matter; 0: no more of them
//   world.pay() -> bool               whether one more gang may be tried
//   world.spare(k) -> fit_verdict     gang k runs on; what is known of the newcomer then
//   world.evict(k)                    takes that back
//   world.take(k) -> bool             gang k is a victim; whether no limit is exceeded then
//   world.give_back(k)                takes that back
//   world.keep()                      the newcomer fits; no set so far costs less
//
// Cost: what the world takes; O(1) a step, 1 byte a gang.
class branch_and_bound {
 public:
  // Whether it is certain that no set costs less than the best one: false if the budget ended, for
  // the search or for a verdict. costs: of each gang.
  template <class World>
  bool operator()(World&& world, std::span<const std::uint64_t> costs) {
    spared_.assign(costs.size(), 0);
    bool certain = true;
    std::uint64_t cost = 0;
    std::size_t k = 0;  // gangs decided
    bool within = true;
    while (true) {
      for (; within && cost < world.least() && k < costs.size(); ++k) {
        if (!world.pay()) return false;
        const fit_verdict verdict = world.spare(k);
        spared_[k] = verdict == fit_verdict::fits ? 1 : 0;
        if (verdict == fit_verdict::fits) continue;
        certain = certain && verdict == fit_verdict::does_not_fit;
        world.evict(k);
        cost += costs[k];
        within = world.take(k);
      }
      if (within && cost < world.least()) world.keep();
      // Back to the last gang that is spared: now it is evicted.
      for (; k > 0 && spared_[k - 1] == 0; --k) {
        cost -= costs[k - 1];
        world.give_back(k - 1);
      }
      if (k == 0) return certain;
      world.evict(k - 1);
      spared_[k - 1] = 0;
      cost += costs[k - 1];
      within = world.take(k - 1);
    }
  }

 private:
  std::vector<unsigned char> spared_;  // of the gangs decided
};

}  // namespace detail
APIARY_NAMESPACE_END
