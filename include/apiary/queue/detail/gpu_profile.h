// apiary/queue/detail/gpu_profile.h - how many GPUs will be free at which time.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/summed_tree.h>
#include <apiary/core/config.h>
#include <apiary/model/job.h>

#include <algorithm>
#include <cstdint>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The number of free GPUs, which may be negative, as a step function of time from start() on.
// Cost: a call O(log steps); earliest() also O(gaps that are too short). At most two steps for each
//       take() that was not given back.
class gpu_profile {
 public:
  explicit gpu_profile(std::int64_t free, time_ms start = 0) : start_(start), free_(free) {}
  // Subtracts (adds) `gpus` in [from, until). Times before the start are ignored.
  void take(time_ms from, time_ms until, std::int64_t gpus) { add(from, until, -gpus); }
  void give(time_ms from, time_ms until, std::int64_t gpus) { add(from, until, gpus); }
  [[nodiscard]] time_ms start() const noexcept { return start_; }
  // Here and below: t >= start().
  [[nodiscard]] std::int64_t free_at(time_ms t) const noexcept {
    APIARY_ASSERT(t >= start_);
    std::int64_t free = free_;
    for (std::uint32_t n = steps_.root(); n != tree::none;) {
      const tree::node& here = steps_[n];
      const bool passed = here.at.at <= t;
      if (passed) free += change_before(here) + here.at.change;
      n = passed ? here.right : here.left;
    }
    return free;
  }
  // The first time from t on, but before `latest`, when `gpus` are free for `length` or until
  // `latest`; or `latest`.
  [[nodiscard]] time_ms earliest(time_ms t, time_ms length, std::int64_t gpus,
                                 time_ms latest = max_time) const noexcept {
    if (t >= latest) return latest;
    bool enough = free_at(t) >= gpus;
    time_ms at = t;
    const auto cross = [&](time_ms when) {
      if (!enough) return when < add_time(at, length);  // the gap from `at` on ends
      at = when;
      return true;
    };
    const bool found = !crossings(steps_.root(), free_, {t, latest, gpus}, enough, cross);
    return found || enough ? at : latest;
  }
  // The first change after t; max_time if there is none.
  [[nodiscard]] time_ms next_change(time_ms t) const noexcept {
    time_ms next = max_time;
    for (std::uint32_t n = steps_.root(); n != tree::none;) {
      const tree::node& here = steps_[n];
      const bool later = here.at.at > t;
      if (later) next = here.at.at;
      n = later ? here.left : here.right;
    }
    return next;
  }
  // Drops everything before `now`. Requires: now >= start().
  void forget_before(time_ms now) {
    const std::int64_t free = free_at(now);
    for (time_ms t = next_change(start_); t <= now && t != max_time; t = next_change(start_)) {
      steps_.erase({t, 0});
    }
    start_ = now;
    free_ = free;
  }

 private:
  struct step {
    time_ms at = 0;
    std::int64_t change = 0;  // of the free GPUs, not 0
  };
  // Of the changes of a subtree, in order.
  struct totals {
    std::int64_t sum = 0;
    std::int64_t least = 0;  // the least sum of its first changes, of one or more
    std::int64_t most = 0;   // the largest
  };
  struct by_time {
    using item = step;
    using summary = totals;
    [[nodiscard]] static bool before(const step& a, const step& b) noexcept { return a.at < b.at; }
    [[nodiscard]] static std::uint64_t number(const step& s) noexcept {
      return static_cast<std::uint64_t>(s.at);
    }
    [[nodiscard]] static totals sum(const totals* left, const step& s,
                                    const totals* right) noexcept {
      const std::int64_t here = (left == nullptr ? 0 : left->sum) + s.change;
      totals all{here, here, here};
      if (left != nullptr) {
        all.least = (std::min)(all.least, left->least);
        all.most = (std::max)(all.most, left->most);
      }
      if (right != nullptr) {
        all.sum += right->sum;
        all.least = (std::min)(all.least, here + right->least);
        all.most = (std::max)(all.most, here + right->most);
      }
      return all;
    }
  };
  using tree = summed_tree<by_time>;

  // The sum of all changes of the left child.
  [[nodiscard]] std::int64_t change_before(const tree::node& here) const noexcept {
    return here.left == tree::none ? 0 : steps_[here.left].all.sum;
  }
  // Where to look for changes: after `from`, before `until`.
  struct range {
    time_ms from = 0;
    time_ms until = 0;
    std::int64_t gpus = 0;
  };
  // For each change of a subtree, in order, from at least `gpus` free GPUs to fewer or back:
  // updates `enough` and calls cross(time), until it returns false. Returns whether it never did.
  // `free`: the GPUs before the subtree. Requires: `enough` is what holds after the changes up to
  // `from`.
  template <class Cross>
  bool crossings(std::uint32_t n, std::int64_t free, const range& in, bool& enough,
                 const Cross& cross) const {
    if (n == tree::none) return true;
    const totals& all = steps_[n].all;
    if (enough ? free + all.least >= in.gpus : free + all.most < in.gpus) return true;
    const step& here = steps_[n].at;
    const std::int64_t then = free + change_before(steps_[n]) + here.change;
    if (here.at > in.from) {
      if (!crossings(steps_[n].left, free, in, enough, cross)) return false;
      if (here.at >= in.until) return true;
      if ((then >= in.gpus) != enough) {
        enough = !enough;
        if (!cross(here.at)) return false;
      }
    }
    return crossings(steps_[n].right, then, in, enough, cross);
  }
  void add(time_ms from, time_ms until, std::int64_t gpus) {
    from = (std::max)(from, start_);
    if (from >= until) return;
    if (from == start_) {
      free_ += gpus;
    } else {
      add_step(from, gpus);
    }
    if (until != max_time) add_step(until, -gpus);
  }
  // Requires: t > start().
  void add_step(time_ms t, std::int64_t change) {
    if (change == 0) return;
    bool gone = false;
    const auto more = [&](step& s) { gone = (s.change += change) == 0; };
    if (!steps_.edit({t, 0}, more)) {
      steps_.insert({t, change});
    } else if (gone) {
      steps_.erase({t, 0});
    }
  }

  time_ms start_;
  std::int64_t free_;  // at the start
  tree steps_;         // later changes
};

}  // namespace detail
APIARY_NAMESPACE_END
