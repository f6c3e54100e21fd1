// apiary/batch/detail/reservation_profile.h - how many GPUs will be free at which time.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/model/job.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The number of free GPUs, which may be negative, as a step function of time from start() on.
// Cost: take, give, earliest O(log steps + steps between the arguments); at most two steps for each
//       take() that was not given back.
class reservation_profile {
 public:
  explicit reservation_profile(std::int64_t free, time_ms start = 0) : steps_{{start, free}} {}
  // Subtracts (adds) `gpus` in [from, until). Times before the start are ignored.
  void take(time_ms from, time_ms until, std::int64_t gpus) { add(from, until, -gpus); }
  void give(time_ms from, time_ms until, std::int64_t gpus) { add(from, until, gpus); }
  [[nodiscard]] std::int64_t free_at(time_ms t) const noexcept {
    APIARY_ASSERT(t >= start());
    return std::prev(steps_.upper_bound(t))->second;
  }
  // The first time, from `from` >= start() on, when `gpus` are free for `length`; or max_time.
  [[nodiscard]] time_ms earliest(time_ms from, time_ms length, std::int64_t gpus) const noexcept {
    APIARY_ASSERT(from >= start());
    time_ms at = from;
    for (auto step = std::prev(steps_.upper_bound(from)); step != steps_.end(); ++step) {
      if (step->first >= add_time(at, length) && step->first > at) return at;
      if (step->second < gpus)
        at = std::next(step) == steps_.end() ? max_time : std::next(step)->first;
    }
    return at;
  }
  // The first change after t; max_time if there is none.
  [[nodiscard]] time_ms next_change(time_ms t) const noexcept {
    const auto step = steps_.upper_bound(t);
    return step == steps_.end() ? max_time : step->first;
  }
  [[nodiscard]] time_ms start() const noexcept { return steps_.begin()->first; }
  // Drops everything before `now`. Requires: now >= start().
  void forget_before(time_ms now) {
    const std::int64_t free = free_at(now);
    steps_.erase(steps_.begin(), steps_.upper_bound(now));
    steps_.emplace(now, free);
  }
  friend bool operator==(const reservation_profile&, const reservation_profile&) = default;

 private:
  using steps = std::map<time_ms, std::int64_t>;
  // The step that begins at t, made if there is none.
  steps::iterator split(time_ms t) {
    const auto behind = steps_.upper_bound(t);
    const auto at = std::prev(behind);
    return at->first == t ? at : steps_.emplace_hint(behind, t, at->second);
  }
  void add(time_ms from, time_ms until, std::int64_t gpus) {
    from = (std::max)(from, start());
    if (from >= until) return;
    const auto first = split(from);
    const auto last = until == max_time ? steps_.end() : split(until);
    for (auto step = first; step != last; ++step) step->second += gpus;
    join(last);
    join(first);
  }
  // Drops the step if the value does not change there.
  void join(steps::iterator step) {
    if (step == steps_.end() || step == steps_.begin()) return;
    if (std::prev(step)->second == step->second) steps_.erase(step);
  }

  steps steps_;  // from each time on, the number of free GPUs
};

}  // namespace detail
APIARY_NAMESPACE_END
