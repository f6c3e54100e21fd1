// apiary/queue/detail/reservations.h - start times of waiting jobs, moved up when GPUs become free.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/summed_tree.h>
#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>
#include <apiary/queue/detail/reservation_profile.h>

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
// Cost: O(log jobs) for a call, and for each gap that is too short for a new job. move_up: O(log jobs)
//       for each GPU count and each gap in an interval that became free, for each job that moves and
//       each gap that it takes from jobs of some GPU count; and after each move for each GPU count
//       a search of the next job, which is O(log jobs) where the jobs that are short enough are not
//       all reserved before the gaps.
class reservations {
 public:
  explicit reservations(std::int64_t free, time_ms now = 0) : profile_(free, now) {}

  // The reserved time; max_time: unknown; nullopt: the job was not added. Here and below, only the
  // key, the id and the GPUs of `which` count, and cancel() and start() require that it was added.
  [[nodiscard]] std::optional<time_ms> find(const reserved_job& which) const {
    const auto jobs = jobs_.find(which.gpus);
    const reserved_job* const found = jobs == jobs_.end() ? nullptr : jobs->second.jobs.find(which);
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
  // order, have no reservation yet; they get one when all jobs before them have moved in the first
  // round.
  void move_up(const std::vector<reserved_job>& added) {
    auto next = added.begin();
    do {
      tried_ = {.key = (std::numeric_limits<std::int64_t>::min)()};
      for (const interval& f : joined(std::exchange(freed_, {}))) find_gaps(f);
      while (true) {
        kind* const first = first_kind();
        if (next != added.end() &&
            (first == nullptr || reserved_job::before(*next, *first->next))) {
          add(*next++, profile_.start());
        } else if (first != nullptr) {
          tried_ = *first->next;
          first->searches = true;
          move(*first, tried_);
        } else {
          break;
        }
      }
      for (kind* const k : with_gaps_) *k = {.jobs = std::move(k->jobs)};
      with_gaps_.clear();
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
  // Gaps by their begins.
  struct by_begin {
    using item = interval;
    struct summary {
      time_ms from = max_time;  // the first begin
      time_ms until = 0;        // the last end
      time_ms longest = 0;      // the greatest length
    };
    [[nodiscard]] static bool before(const item& a, const item& b) noexcept {
      return a.from < b.from;
    }
    [[nodiscard]] static std::uint64_t number(const item& gap) noexcept {
      return static_cast<std::uint64_t>(gap.from);
    }
    [[nodiscard]] static summary sum(const summary* left, const item& gap,
                                     const summary* right) noexcept {
      summary all{gap.from, gap.until, gap.until - gap.from};
      for (const summary* const child : {left, right}) {
        if (child == nullptr) continue;
        all.from = (std::min)(all.from, child->from);
        all.until = (std::max)(all.until, child->until);
        all.longest = (std::max)(all.longest, child->longest);
      }
      return all;
    }
  };
  // The jobs of some GPU count. During a round of move_up() also gaps for them: those that became
  // free, as they were then. Other jobs may have taken GPUs there since.
  struct kind {
    tree jobs{};
    summed_tree<by_begin> gaps{};
    std::optional<reserved_job> next{};  // the first job after tried_ for which there is a gap
    bool searches = false;               // whether `next` must be searched
    bool has_gaps = false;               // whether the kind is in with_gaps_
  };

  [[nodiscard]] static time_ms end_of(const reserved_job& r) noexcept {
    return add_time(r.reserved, r.length);
  }
  void insert(const reserved_job& r) {
    jobs_[r.gpus].jobs.insert(r);
    book(r);
  }
  void book(const reserved_job& r) {
    if (r.reserved == max_time) return;
    starts_.insert({r.reserved, r.job.value, 0});
    profile_.take(r.reserved, end_of(r), r.gpus);
  }
  reserved_job remove(const reserved_job& which) {
    tree& jobs = jobs_.at(which.gpus).jobs;
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
  // Finds the gaps that overlap `freed`.
  void find_gaps(const interval& freed) {
    for (auto& [gpus, k] : jobs_) {
      if (!find_gaps(gpus, k, freed)) return;
    }
  }
  // The same for jobs of `gpus` GPUs. Returns whether there is such a gap.
  bool find_gaps(std::uint32_t gpus, kind& k, const interval& freed) {
    if (profile_.first_at_least(freed.from, gpus) >= freed.until) return false;
    if (k.jobs.empty()) return true;
    // A gap that begins after the last reservation is of no use.
    const time_ms last = k.jobs[k.jobs.root()].all.last;
    const time_ms until = (std::max)(freed.from + 1, (std::min)(freed.until, last));
    // A gap of this begin that is longer may hold a second one, behind GPUs that were taken.
    profile_.each_gap(freed.from, until, gpus, [&](time_ms from, time_ms end) {
      if (!k.gaps.edit({from, end}, [&](interval& gap) { gap.until = (std::max)(gap.until, end); }))
        k.gaps.insert({from, end});
    });
    k.searches = true;
    if (!std::exchange(k.has_gaps, true)) with_gaps_.push_back(&k);
    return true;
  }
  // The first gap in which the job starts earlier; null: there is none.
  [[nodiscard]] static const interval* gap_for(const kind& k, const reserved_job& r) {
    // The job may give up its own reservation, so a gap that reaches to it is long enough.
    const interval* const found = k.gaps.first_after(
        {(std::numeric_limits<time_ms>::min)(), 0},
        [&](const by_begin::summary& all) {
          return all.longest >= r.length || all.until >= r.reserved;
        },
        [&](const interval& gap) {
          return gap.until - gap.from >= r.length || gap.until >= r.reserved;
        });
    return found != nullptr && found->from < r.reserved ? found : nullptr;
  }
  // The kind of the first job after tried_ for which there is a gap; null: there is none.
  [[nodiscard]] kind* first_kind() {
    kind* first = nullptr;
    for (kind* const k : with_gaps_) {
      if (std::exchange(k->searches, false)) search(*k);
      if (k->next && (first == nullptr || reserved_job::before(*k->next, *first->next))) first = k;
    }
    return first;
  }
  void search(kind& k) const {
    k.next.reset();
    if (k.gaps.empty()) return;
    const by_begin::summary& gaps = k.gaps[k.gaps.root()].all;
    const reserved_job* const found = k.jobs.first_after(
        tried_,
        [&](const in_order::summary& all) {
          return all.last > gaps.from && (all.shortest <= gaps.longest || all.first <= gaps.until);
        },
        [&](const reserved_job& r) { return gap_for(k, r) != nullptr; });
    if (found != nullptr) k.next = *found;
  }
  // The job moves to the earliest time that it can, if there is one.
  void move(kind& k, reserved_job r) {
    const interval* found = gap_for(k, r);
    while (found != nullptr && profile_.first_below(found->from, r.gpus) != found->until) {
      const interval taken = *found;
      k.gaps.erase(taken);
      find_gaps(r.gpus, k, taken);  // what is left of it
      found = gap_for(k, r);
    }
    if (found == nullptr) return;
    const time_ms before = r.reserved;
    const time_ms end = end_of(r);
    if (before != max_time) {
      starts_.erase(before, r.job.value);
      profile_.give(before, end, r.gpus);
    }
    r.reserved = found->from;
    book(r);
    k.jobs.edit(r, [&](reserved_job& here) { here.reserved = r.reserved; });
    if (before == max_time) return;
    const interval freed{(std::max)(before, end_of(r)), end};
    if (freed.from >= freed.until) return;
    freed_.push_back(freed);
    find_gaps(freed);
  }

  reservation_profile profile_;         // without running jobs and reservations
  std::map<std::uint32_t, kind> jobs_;  // by GPUs
  weighted_tree starts_;                // reserved times
  std::vector<interval> freed_;         // since the last move_up()
  // During a round of move_up():
  reserved_job tried_{};          // all jobs up to this one had the chance to move
  std::vector<kind*> with_gaps_;  // kinds for which there are gaps
};

}  // namespace detail
APIARY_NAMESPACE_END
