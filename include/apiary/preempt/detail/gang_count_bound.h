// apiary/preempt/detail/gang_count_bound.h - a lower bound raised to what so many gangs cost.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/preempt/detail/incremental_sort.h>
#include <apiary/preempt/victim_set.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Raises a lower bound on the cost of a set of candidates. Let n be the least number of gangs that
// can cost as much as the bound: the most expensive gangs that add up to it. A set has at least n
// gangs, so it costs at least as much as the n cheapest gangs. Cost: begin O(1); then as
// incremental_sort for n gangs.
class gang_count_bound {
 public:
  void begin(std::span<const eviction_candidate> candidates) {
    candidates_ = candidates;
    largest_.begin(static_cast<std::uint32_t>(candidates.size()));
    smallest_.begin(static_cast<std::uint32_t>(candidates.size()));
    sums_of_largest_.assign(1, 0);
    sums_of_smallest_.assign(1, 0);
  }
  // Operations since the last call.
  [[nodiscard]] std::uint64_t take_work() noexcept {
    return largest_.take_work() + smallest_.take_work();
  }
  [[nodiscard]] std::uint64_t operator()(std::uint64_t bound) {
    if (bound == incremental_sort::never) return bound;
    std::size_t gangs = 0;
    while (sum_of(gangs, largest_, sums_of_largest_,
                  [&](std::uint32_t j) { return ~candidates_[j].cost; }) < bound &&
           gangs < candidates_.size())
      ++gangs;
    return (std::max)(bound, sum_of(gangs, smallest_, sums_of_smallest_,
                                    [&](std::uint32_t j) { return candidates_[j].cost; }));
  }

 private:
  // The sum of the costs of the first n gangs in this order.
  template <class Price>
  std::uint64_t sum_of(std::size_t n, incremental_sort& order, lean_vector<std::uint64_t>& sums,
                       const Price& price) {
    while (sums.size() <= n) {
      const keyed_number* const top = order.top(price);
      if (top == nullptr) return sums.back();
      sums.push_back(sums.back() + candidates_[top->number].cost);
      order.pop();
    }
    return sums[n];
  }

  std::span<const eviction_candidate> candidates_;
  incremental_sort largest_;  // the most expensive first
  incremental_sort smallest_;
  lean_vector<std::uint64_t> sums_of_largest_;
  lean_vector<std::uint64_t> sums_of_smallest_;
};

}  // namespace detail
APIARY_NAMESPACE_END
