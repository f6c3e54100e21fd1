// apiary/preempt/victim_cost.h - the cost of evicting a gang: priority class, number, lost GPU-time.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/sort.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Costs for victim_search, for gangs with priority classes. A set of victims costs less if it has
// fewer gangs of the highest class; if these are equal, fewer of the next class, and so on; if all
// are equal, less lost GPU-time in sum. One gang costs more than all gangs of lower classes.
//
// Model:    a number of mixed radix: the GPU-time, then the number of gangs of each class, the
//           lowest class first, below 2^63 for all gangs together. If that range is too small,
//           GPU-time is rounded down to multiples of 2^time_shift(); then the lowest classes count
//           as one. 20,000 gangs in three classes leave GPU-times of 31 million in sum.
// Requires: all candidates of the search are among the gangs of the constructor.
// Cost:     constructor O(gangs * log), at most 64 times O(gangs) if GPU-times are large; then
//           O(log classes) a gang.
// Example:  through gang_scheduler examples/least_cost_victims.cpp
class victim_cost {
 public:
  // What the cluster loses when a running gang is evicted.
  struct loss {
    std::uint32_t priority = 0;  // priority class of the gang; a greater one is more important
    std::uint64_t gpu_time = 0;  // GPU-time that has to be spent again, in any unit
  };

  // For these gangs.
  explicit victim_cost(std::span<const loss> gangs) {
    std::vector<std::uint32_t> priorities;
    for (const loss& g : gangs) priorities.push_back(g.priority);
    detail::merge_sort(priorities);
    // As many of the highest classes as the range allows; the last one has all lower classes, too.
    std::uint64_t sets = 1;  // numbers of gangs in the classes so far
    for (std::size_t last = priorities.size(); last > 0;) {
      const auto at = std::lower_bound(priorities.begin(), priorities.end(), priorities[last - 1]);
      const auto first = static_cast<std::size_t>(at - priorities.begin());
      const std::uint64_t rest = first > 0 ? first + 1 : 1;  // for all lower classes as one
      const bool separate = last - first + 1 <= max_cost / sets / rest;
      const std::size_t from = separate ? first : 0;
      classes_.push_back({priorities[from], last - from + 1});
      sets *= last - from + 1;
      last = from;
    }
    const std::uint64_t times = max_cost / sets;
    while (!time_is_below(gangs, times)) ++time_shift_;
    std::reverse(classes_.begin(), classes_.end());
    std::uint64_t weight = times;
    for (a_class& c : classes_) {
      const std::uint64_t gangs_and_one = c.weight;
      c.weight = weight;
      weight *= gangs_and_one;
    }
  }

  // The cost of one gang. Requires: it is one of the gangs of the constructor.
  [[nodiscard]] std::uint64_t operator()(const loss& gang) const noexcept {
    const auto after = std::upper_bound(
        classes_.begin(), classes_.end(), gang.priority,
        [](std::uint32_t priority, const a_class& c) { return priority < c.lowest; });
    APIARY_ASSERT(after != classes_.begin());
    return (after - 1)->weight + counted(gang);
  }
  // The priority classes that differ in cost.
  [[nodiscard]] std::size_t num_classes() const noexcept { return classes_.size(); }
  // GPU-time is rounded down to multiples of 2^time_shift().
  [[nodiscard]] std::uint32_t time_shift() const noexcept { return time_shift_; }

 private:
  static constexpr std::uint64_t max_cost = std::uint64_t{1} << 63;
  struct a_class {
    std::uint32_t lowest = 0;  // lowest priority in it
    std::uint64_t weight = 0;  // of a gang
  };
  [[nodiscard]] std::uint64_t counted(const loss& gang) const noexcept {
    return time_shift_ < 64 ? gang.gpu_time >> time_shift_ : 0;
  }
  // Whether the sum of the rounded GPU-times is below `times`.
  [[nodiscard]] bool time_is_below(std::span<const loss> gangs, std::uint64_t times) const {
    std::uint64_t left = times - 1;
    for (const loss& g : gangs) {
      const std::uint64_t time = counted(g);
      if (time > left) return false;
      left -= time;
    }
    return true;
  }

  std::vector<a_class> classes_;  // ascending
  std::uint32_t time_shift_ = 0;
};

APIARY_NAMESPACE_END
