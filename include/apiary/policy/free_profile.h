// apiary/policy/free_profile.h - how many GPUs will be free when.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/model/job_request.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

APIARY_NAMESPACE_BEGIN

// A step function of time from a start that moves on, the same for ever behind its last step. It may
// fall below 0.
//
// Cost: take, give, earliest O(log steps + steps that they pass); at most two steps for each take
//       that was not given back.
class free_profile {
 public:
  explicit free_profile(std::int64_t free, tick_t start = 0) : steps_{{start, free}} {}

  // `gpus` fewer (more) from `from` until before `until`. What lies before the start does not count.
  void take(tick_t from, tick_t until, std::int64_t gpus) { add(from, until, -gpus); }
  void give(tick_t from, tick_t until, std::int64_t gpus) { add(from, until, gpus); }

  [[nodiscard]] std::int64_t free_at(tick_t t) const noexcept {
    APIARY_ASSERT(t >= start());
    return std::prev(steps_.upper_bound(t))->second;
  }
  // The first moment, not before `from`, from which `gpus` are free for so long; forever if there is
  // none. Requires: from >= start().
  [[nodiscard]] tick_t earliest(tick_t from, tick_t length, std::int64_t gpus) const noexcept {
    APIARY_ASSERT(from >= start());
    tick_t at = from;
    for (auto step = std::prev(steps_.upper_bound(from)); step != steps_.end(); ++step) {
      if (step->first >= later_by(at, length) && step->first > at) return at;
      if (step->second < gpus)
        at = std::next(step) == steps_.end() ? forever : std::next(step)->first;
    }
    return at;
  }
  // The first change behind t; forever if there is none.
  [[nodiscard]] tick_t next_change(tick_t t) const noexcept {
    const auto step = steps_.upper_bound(t);
    return step == steps_.end() ? forever : step->first;
  }

  [[nodiscard]] tick_t start() const noexcept { return steps_.begin()->first; }
  // Forgets what was before `now`. Requires: now >= start().
  void forget_before(tick_t now) {
    const std::int64_t free = free_at(now);
    steps_.erase(steps_.begin(), steps_.upper_bound(now));
    steps_.emplace(now, free);
  }

  friend bool operator==(const free_profile&, const free_profile&) = default;

 private:
  using steps = std::map<tick_t, std::int64_t>;

  // The step that begins at t, made if there is none.
  steps::iterator split(tick_t t) {
    const auto behind = steps_.upper_bound(t);
    const auto at = std::prev(behind);
    return at->first == t ? at : steps_.emplace_hint(behind, t, at->second);
  }
  void add(tick_t from, tick_t until, std::int64_t gpus) {
    from = std::max(from, start());
    if (from >= until) return;
    const auto first = split(from);
    const auto last = until == forever ? steps_.end() : split(until);
    for (auto step = first; step != last; ++step) step->second += gpus;
    join(last);
    join(first);
  }
  // Drops the step if it is none.
  void join(steps::iterator step) {
    if (step == steps_.end() || step == steps_.begin()) return;
    if (std::prev(step)->second == step->second) steps_.erase(step);
  }

  steps steps_;  // from each moment on, how many are free
};

APIARY_NAMESPACE_END
