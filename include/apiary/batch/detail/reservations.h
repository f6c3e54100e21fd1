// apiary/batch/detail/reservations.h - start times of waiting jobs, moved up when GPUs become free.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/batch/detail/reservation_profile.h>
#include <apiary/container/summed_tree.h>
#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A waiting job with its reservation.
struct reserved_job {
  std::int64_t key = 0;  // its position in the order, with the id
  job_id job{};
  std::uint32_t gpus = 0;
  time_ms length = 0;           // for which it needs the GPUs
  time_ms reserved = max_time;  // when it starts; max_time: unknown, it has no reservation
  [[nodiscard]] static bool before(const reserved_job& a, const reserved_job& b) noexcept {
    return a.key != b.key ? a.key < b.key : a.job < b.job;
  }
};

// The reservations of waiting jobs, each at the earliest time that the other ones allow, and the
// GPUs that these and the running jobs leave free over time.
//
// When GPUs become free, move_up() looks only at the gaps there: at the times from the first one
// with enough free GPUs for a job to the first one with fewer. A job can start earlier if such a gap
// begins before its reservation, and either reaches to it or is long enough for the job.
//
// Cost: O(log jobs) for a call, and for each gap that is too short for a new job. move_up: a search
//       for each GPU count and each gap in an interval that became free, first when it did and again
//       for each job that moves into the gap. A search is O(log jobs) where the jobs that are short
//       enough are not all reserved before the gap.
class reservations {
 public:
  explicit reservations(std::int64_t free, time_ms now = 0) : profile_(free, now) {}

  // The reserved time; max_time: unknown; nullopt: the job was not added. Here and below, only the
  // key, the id and the GPUs of `which` count, and cancel() and start() require that it was added.
  [[nodiscard]] std::optional<time_ms> find(const reserved_job& which) const {
    const auto jobs = jobs_.find(which.gpus);
    const reserved_job* const found = jobs == jobs_.end() ? nullptr : jobs->second.find(which);
    return found == nullptr ? std::nullopt : std::optional(found->reserved);
  }
  // How many jobs have a known reserved time.
  [[nodiscard]] std::size_t num_known() const noexcept { return starts_.size(); }
  // The first reserved time as the key, and its job as the id.
  [[nodiscard]] std::optional<weighted_tree::item> first() const { return starts_.first(); }
  // Nothing happens before `now` any more. Requires: no reservation is earlier.
  void forget_before(time_ms now) { profile_.forget_before(now); }

  // The job gets the earliest reservation from `from` on.
  void add(reserved_job r, time_ms from) {
    r.reserved = profile_.earliest(from, r.length, r.gpus);
    insert(r);
  }
  // The job does not wait any more. Its reservation becomes free.
  void cancel(const reserved_job& which) {
    const reserved_job r = remove(which);
    if (r.reserved == max_time) return;
    profile_.give(r.reserved, end_of(r), r.gpus);
    freed_.push_back({r.reserved, end_of(r)});
  }
  // The job runs from its reserved time on; its GPUs stay taken until the end of its reservation.
  void start(const reserved_job& which) { remove(which); }
  // The job could not start now. It gets the earliest reservation after the next change.
  void postpone(reserved_job r, time_ms now) {
    cancel(r);
    const time_ms change = profile_.next_change(now);
    r.reserved = change == max_time ? max_time : profile_.earliest(change, r.length, r.gpus);
    insert(r);
    freed_.push_back({now, r.reserved});
  }
  // GPUs of a running job become free in [from, until), which was taken.
  void give(time_ms from, time_ms until, std::uint32_t gpus) {
    profile_.give(from, until, gpus);
    if (from < until) freed_.push_back({from, until});
  }

  // The jobs that were added have the earliest times, although GPUs became free before.
  void forget_freed() noexcept { freed_.clear(); }
  // Moves the jobs to earlier times, one after the other in order, again and again until none can
  // move: as if each job gave up its reservation and took the earliest one. The jobs of `added`, in
  // order, have no reservation yet; they get one when it is their turn in the first round.
  void move_up(const std::vector<reserved_job>& added) {
    auto next = added.begin();
    do {
      const std::vector<interval> freed = joined(std::exchange(freed_, {}));
      constexpr reserved_job none{.key = (std::numeric_limits<std::int64_t>::min)()};
      for (const interval& f : freed) offer_all(f, none);
      while (next != added.end() || !offers_.empty()) {
        if (next != added.end() &&
            (offers_.empty() || reserved_job::before(*next, offers_.front().to))) {
          add(*next++, profile_.start());
          continue;
        }
        std::pop_heap(offers_.begin(), offers_.end());
        const offer o = offers_.back();
        offers_.pop_back();
        take(o);
        offer_gaps(o.to.gpus, jobs_.at(o.to.gpus), o.when, o.to);
      }
    } while (!freed_.empty());
  }

 private:
  struct interval {
    time_ms from = 0;
    time_ms until = 0;
  };
  // The jobs of some GPU count, in order.
  struct in_order {
    using item = reserved_job;
    struct summary {
      time_ms shortest = max_time;  // the least length
      time_ms first = max_time;     // the first reservation
      time_ms last = 0;             // the last one
      // Whether a job may start earlier in a gap. For a single job: whether it can.
      [[nodiscard]] bool gains(const interval& gap) const noexcept {
        return last > gap.from && (first <= gap.until || shortest <= gap.until - gap.from);
      }
    };
    [[nodiscard]] static bool before(const item& a, const item& b) noexcept {
      return reserved_job::before(a, b);
    }
    [[nodiscard]] static std::uint64_t number(const item& r) noexcept { return r.job.value; }
    [[nodiscard]] static summary sum(const summary* left, const item& r,
                                     const summary* right) noexcept {
      summary all{r.length, r.reserved, r.reserved};
      for (const summary* const child : {left, right}) {
        if (child == nullptr) continue;
        all.shortest = (std::min)(all.shortest, child->shortest);
        all.first = (std::min)(all.first, child->first);
        all.last = (std::max)(all.last, child->last);
      }
      return all;
    }
  };
  using tree = summed_tree<in_order>;
  // A gap, when it was found, and the first job, after those that had it offered, that gains.
  struct offer {
    reserved_job to{};
    interval when{};
    // The first job in order comes first, with its earliest gap.
    friend bool operator<(const offer& a, const offer& b) noexcept {
      if (reserved_job::before(a.to, b.to)) return false;
      return reserved_job::before(b.to, a.to) || a.when.from > b.when.from;
    }
  };

  [[nodiscard]] static time_ms end_of(const reserved_job& r) noexcept {
    return add_time(r.reserved, r.length);
  }
  void insert(const reserved_job& r) {
    jobs_[r.gpus].insert(r);
    book(r);
  }
  void book(const reserved_job& r) {
    if (r.reserved == max_time) return;
    starts_.insert({r.reserved, r.job.value, 0});
    profile_.take(r.reserved, end_of(r), r.gpus);
  }
  reserved_job remove(const reserved_job& which) {
    tree& jobs = jobs_.at(which.gpus);
    const reserved_job r = *jobs.find(which);
    jobs.erase(r);
    if (r.reserved != max_time) starts_.erase(r.reserved, r.job.value);
    return r;
  }
  // Disjoint intervals that cover these from the start of the profile on, in order.
  [[nodiscard]] std::vector<interval> joined(std::vector<interval> some) const {
    std::sort(some.begin(), some.end(),
              [](const interval& a, const interval& b) { return a.from < b.from; });
    std::vector<interval> all;
    for (interval i : some) {
      i.from = (std::max)(i.from, profile_.start());
      if (i.from >= i.until) continue;
      if (!all.empty() && i.from <= all.back().until) {
        all.back().until = (std::max)(all.back().until, i.until);
      } else {
        all.push_back(i);
      }
    }
    return all;
  }
  // Offers the gaps that overlap `freed` to the jobs after `passed`.
  void offer_all(const interval& freed, const reserved_job& passed) {
    for (const auto& [gpus, jobs] : jobs_) {
      if (!offer_gaps(gpus, jobs, freed, passed)) return;
    }
  }
  // The same for jobs of `gpus` GPUs. Returns whether there is such a gap.
  bool offer_gaps(std::uint32_t gpus, const tree& jobs, const interval& freed,
                  const reserved_job& passed) {
    if (profile_.first_at_least(freed.from, gpus) >= freed.until) return false;
    if (jobs.empty()) return true;
    // A gap that begins after the last reservation is of no use.
    const time_ms last = jobs[jobs.root()].all.last;
    const time_ms until = (std::max)(freed.from + 1, (std::min)(freed.until, last));
    profile_.each_gap(freed.from, until, gpus, [&](time_ms from, time_ms end) {
      const interval gap{from, end};
      const auto any = [&](const in_order::summary& all) { return all.gains(gap); };
      const auto gains = [&](const reserved_job& r) {
        return in_order::sum(nullptr, r, nullptr).gains(gap);
      };
      const reserved_job* const first = jobs.first_after(passed, any, gains);
      if (first == nullptr) return;
      offers_.push_back({*first, gap});
      std::push_heap(offers_.begin(), offers_.end());
    });
    return true;
  }
  // The job moves to the earliest time that it can, if it still gains.
  void take(const offer& o) {
    tree& jobs = jobs_.at(o.to.gpus);
    reserved_job r = *jobs.find(o.to);
    const time_ms before = r.reserved;
    if (o.when.from >= before) return;  // it has moved since
    const time_ms at = profile_.earliest(o.when.from, r.length, r.gpus, before);
    if (at == before) return;
    if (before != max_time) {
      starts_.erase(before, r.job.value);
      profile_.give(before, end_of(r), r.gpus);
    }
    const time_ms end = end_of(r);
    r.reserved = at;
    book(r);
    jobs.edit(r, [&](reserved_job& here) { here.reserved = at; });
    if (before == max_time) return;
    const interval freed{(std::max)(before, end_of(r)), end};
    if (freed.from >= freed.until) return;
    freed_.push_back(freed);
    offer_all(freed, r);
  }

  reservation_profile profile_;         // without running jobs and reservations
  std::map<std::uint32_t, tree> jobs_;  // by GPUs
  weighted_tree starts_;                // reserved times
  std::vector<interval> freed_;         // since the last move_up()
  std::vector<offer> offers_;           // of a round of move_up(), as a heap
};

}  // namespace detail
APIARY_NAMESPACE_END
