// apiary/preempt/victim_cost.h - what it costs to evict a gang: class, number, lost GPU-time.
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
// Model:    a cost is a number of mixed radix. Its digits, the lowest first, are the GPU-time and
//           the number of gangs of each class in ascending order; the sum over all gangs is below
//           2^63. If that range is too small, GPU-time is rounded down to multiples of
//           2^time_shift(); if it is still too small, the lowest classes count as one class. With
//           20,000 gangs in three classes, the GPU-times may add up to 31 million.
// Requires: all candidates of the search are among the gangs of the constructor.
// Cost:     constructor from gangs O(gangs * log), at most 64 times O(gangs) if GPU-times are
//           large; from classes O(classes). Then O(log classes) a gang.
// Example:  through gang_scheduler examples/least_cost_victims.cpp
class victim_cost {
 public:
  // What the cluster loses when a running gang is evicted.
  struct loss {
    std::uint32_t priority = 0;  // priority class of the gang; a greater one is more important
    std::uint64_t gpu_time = 0;  // GPU-time that has to be spent again, in any unit
  };

  // The gangs of one priority class.
  struct class_size {
    std::uint32_t priority = 0;
    std::uint64_t gangs = 0;
  };

  // For these gangs.
  explicit victim_cost(std::span<const loss> gangs) {
    std::vector<std::uint32_t> priorities;
    for (const loss& g : gangs) priorities.push_back(g.priority);
    detail::merge_sort(priorities);
    std::vector<class_size> sizes;
    for (const std::uint32_t p : priorities) {
      if (sizes.empty() || sizes.back().priority != p) sizes.push_back({p, 0});
      ++sizes.back().gangs;
    }
    const std::uint64_t times = list_classes(sizes);
    while (!time_is_below(gangs, times)) ++time_shift_;
    set_weights(times);
  }
  // For gangs of these classes, whose GPU-times add up to at most this much. Requires: classes are
  // in ascending order of priority. Cost: O(classes).
  victim_cost(std::span<const class_size> classes, std::uint64_t gpu_time) {
    APIARY_ASSERT(std::is_sorted(
        classes.begin(), classes.end(),
        [](const class_size& a, const class_size& b) { return a.priority < b.priority; }));
    const std::uint64_t times = list_classes(classes);
    while (time_shift_ < 64 && gpu_time >> time_shift_ >= times) ++time_shift_;
    set_weights(times);
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
  // Lists as many classes as the range allows, the highest first; the last one also has the gangs
  // of all lower classes. The weight of a class is its number of gangs plus one. Returns how many
  // different sums of GPU-time the range still allows.
  std::uint64_t list_classes(std::span<const class_size> sizes) {
    std::uint64_t rest = 0;  // gangs of the classes that are not listed
    for (const class_size& c : sizes) rest += c.gangs;
    std::uint64_t sets = 1;  // numbers of gangs in the classes so far
    for (std::size_t i = sizes.size(); i-- > 0;) {
      const std::uint64_t below = rest - sizes[i].gangs;
      const bool separate = sizes[i].gangs + 1 <= max_cost / sets / (below > 0 ? below + 1 : 1);
      const std::uint64_t gangs = separate ? sizes[i].gangs : rest;
      classes_.push_back({separate ? sizes[i].priority : sizes[0].priority, gangs + 1});
      sets *= gangs + 1;
      if (!separate) break;
      rest = below;
    }
    return max_cost / sets;
  }
  void set_weights(std::uint64_t weight) {
    std::reverse(classes_.begin(), classes_.end());
    for (a_class& c : classes_) {
      const std::uint64_t gangs_and_one = c.weight;
      c.weight = weight;
      weight *= gangs_and_one;
    }
  }
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
