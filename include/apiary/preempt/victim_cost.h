// apiary/preempt/victim_cost.h - what it costs to end gangs: by priority class, number and GPU-time.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN

// What is lost when a running gang ends.
struct victim_loss {
  std::uint32_t priority = 0;  // class of the gang; a greater one matters more
  std::uint64_t gpu_time = 0;  // that has to be spent again, in any unit
};

// Costs for victim_search, all candidates being among the gangs: as few gangs as can be of the
// highest class, then of the next one, and so on. So no number of gangs of lower classes costs as
// much as one of a higher class, and in one class fewer gangs cost less. Where all these numbers
// are equal, the least GPU-time in sum.
//
// The cost is one number of mixed radix: GPU-time, then gangs of each class, the lowest first. All
// gangs together cost less than 2^63. What has no room there is left out, the least important
// first: GPU-time is rounded down to multiples of 2^time_shift(); and where that is not enough, the
// lowest classes count as one. With n1, n2, ... gangs in the classes (n1 + 1) (n2 + 1) ... is at
// most 2^63, and GPU-time has what is left: beside 20,000 gangs in three classes 31 million in sum.
//
// A limit on the victims of one tenant is not a cost: see preempt/disruption_budget.h. Who must not be evicted at
// all is no candidate.
//
// Cost: made in O(gangs * log), 64 times O(gangs) at most where GPU-times are large; O(log classes)
//       a gang.
class victim_cost {
 public:
  explicit victim_cost(std::span<const victim_loss> gangs) {
    std::vector<std::uint32_t> priorities;
    for (const victim_loss& g : gangs) priorities.push_back(g.priority);
    std::sort(priorities.begin(), priorities.end());
    // From the highest class down as many as have room, the last one with all that are lower.
    std::uint64_t sets = 1;  // numbers of gangs in the classes so far
    for (std::size_t last = priorities.size(); last > 0;) {
      const auto at = std::lower_bound(priorities.begin(), priorities.end(), priorities[last - 1]);
      const auto first = static_cast<std::size_t>(at - priorities.begin());
      const std::uint64_t rest = first > 0 ? first + 1 : 1;  // for all lower ones as one class
      const bool apart = last - first + 1 <= most / sets / rest;
      const std::size_t from = apart ? first : 0;
      classes_.push_back({priorities[from], last - from + 1});
      sets *= last - from + 1;
      last = from;
    }
    const std::uint64_t times = most / sets;
    while (!has_room(gangs, times)) ++time_shift_;
    std::reverse(classes_.begin(), classes_.end());
    std::uint64_t weight = times;
    for (a_class& c : classes_) {
      const std::uint64_t gangs_and_one = c.weight;
      c.weight = weight;
      weight *= gangs_and_one;
    }
  }

  // Requires: one of the gangs.
  [[nodiscard]] std::uint64_t operator()(const victim_loss& gang) const noexcept {
    const auto after = std::upper_bound(
        classes_.begin(), classes_.end(), gang.priority,
        [](std::uint32_t priority, const a_class& c) { return priority < c.lowest; });
    APIARY_ASSERT(after != classes_.begin());
    return (after - 1)->weight + counted(gang);
  }
  // Classes that are told apart.
  [[nodiscard]] std::size_t num_classes() const noexcept { return classes_.size(); }
  [[nodiscard]] std::uint32_t time_shift() const noexcept { return time_shift_; }

 private:
  static constexpr std::uint64_t most = std::uint64_t{1} << 63;
  struct a_class {
    std::uint32_t lowest = 0;  // priority
    std::uint64_t weight = 0;  // of a gang
  };

  [[nodiscard]] std::uint64_t counted(const victim_loss& gang) const noexcept {
    return time_shift_ < 64 ? gang.gpu_time >> time_shift_ : 0;
  }
  // Whether the sum of the GPU-times, rounded, is below that.
  [[nodiscard]] bool has_room(std::span<const victim_loss> gangs, std::uint64_t times) const {
    std::uint64_t left = times - 1;
    for (const victim_loss& g : gangs) {
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
