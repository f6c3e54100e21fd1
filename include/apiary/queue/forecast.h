// apiary/queue/forecast.h - a placer as it will be when running jobs have ended.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/model/placer.h>
#include <apiary/model/plan.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Where a job fits on a placer; nullopt: it does not.
struct proposal_fit {
  // See above.
  template <class P>
  [[nodiscard]] static auto of(P& placer, const typename P::request& r, bool /*may*/) {
    return placer.propose(r);
  }
};

// The same for a job that suspends others if the placer preempts: then the placement is empty. If
// it is undecided whether the job fits, it does if it only has to be possible (`may`).
struct preempting_fit {
  // See above.
  template <class P>
  [[nodiscard]] static absl::StatusOr<std::optional<typename P::placement_type>> of(
      P& placer, const typename P::request& r, bool may) {
    if constexpr (PreemptingPlacer<P>) {
      APIARY_ASSIGN_OR_RETURN(auto answer, placer.propose_preempting(r));
      if (answer.result == plan_result::wait && !(may && answer.undecided)) return std::nullopt;
      return std::move(answer.where);
    } else {
      return placer.propose(r);
    }
  }
};

// A copy of a placer without the jobs that will have ended by a time, by their estimates. It is
// kept from one question to the next: it follows the jobs that have started and ended since, and
// its time moves to the first one at which a job fits.
//
// Requires: of P what its calls use: copies, propose, commit, finish and total_gpus as in Placer. A
//           job that fits also fits when more GPUs are idle; otherwise the time may be later than
//           the first one.
// Cost:     started, ended O(1). A question: a call of the placer for each job that has started or
//           ended since the last one; two for each job whose end the time passes, forward or back;
//           a copy of the placer if servers have changed, or if more than twice as many jobs as
//           there are GPUs have started and ended since the last question.
template <class P, class Fit = proposal_fit>
class placer_forecast {
  using request = typename P::request;
  using placement_type = typename P::placement_type;

 public:
  // The job runs from now on.
  void started(job_id job) {
    if (!then_) return;
    started_.push_back(job);
    limit();
  }
  // It does not run any more.
  template <class Record>
  void ended(job_id job, Record& r, time_ms now) {
    const bool was_there = std::exchange(r.still_runs, false);
    if (!then_) return;
    if (was_there) ended_.push_back(job);
    earlier_ = earlier_ || r.ends > now;
    limit();
  }
  // A waiting job has left: another one of its id may fit earlier.
  void withdrawn() noexcept { earlier_ = true; }
  // Servers have changed. The next question begins with a new copy.
  void forget() {
    then_.reset();
    started_.clear();
    ended_.clear();
  }

  // The first time from `now` on at which the job fits, but not before `earliest`; nullopt: it does
  // not fit when all jobs have ended. copy(): the placer with the running jobs. `ends`: their ends.
  // of(job): a pointer to the record (queued_job) of a running job; null if it does not run.
  template <class Copy, class Of>
  [[nodiscard]] absl::StatusOr<std::optional<time_ms>> first_fit(Copy&& copy, const request& r,
                                                                 time_ms now, time_ms earliest,
                                                                 const weighted_tree& ends, Of of) {
    APIARY_RETURN_IF_ERROR(catch_up(copy, now, ends, of));
    const bool may_be_earlier = std::exchange(earlier_, false) || first_ != r.job;
    first_ = r.job;
    APIARY_ASSIGN_OR_RETURN(std::optional<placement_type> where, fit(r, earliest));
    if (where && may_be_earlier) {
      APIARY_ASSIGN_OR_RETURN(where, move_back(r, *std::move(where), now, earliest, ends, of));
    }
    while (!where) {
      const std::optional<weighted_tree::item> next = ends.next(at_, last_id);
      if (!next) {
        at_ = max_time;
        return std::optional<time_ms>();
      }
      APIARY_RETURN_IF_ERROR(end_until(next->key, ends, of));
      APIARY_ASSIGN_OR_RETURN(where, fit(r, earliest));
    }
    where_ = *std::move(where);
    return std::optional(at_);
  }
  // The job of first_fit(), which found a time, runs from then on, until finish().
  [[nodiscard]] absl::Status hold(const request& r) { return then_->commit(r, where_); }
  [[nodiscard]] absl::Status finish(job_id job) { return then_->finish(job); }
  // Whether the job of first_fit() still fits then if `r` runs at `where` from now on. If so, it
  // does.
  [[nodiscard]] absl::StatusOr<bool> fits_beside(const request& first, const request& r,
                                                 const placement_type& where) {
    if (!then_->commit(r, where).ok()) return false;
    APIARY_ASSIGN_OR_RETURN(const std::optional<placement_type> fits,
                            Fit::of(*then_, first, false));
    if (!fits) APIARY_RETURN_IF_ERROR(then_->finish(r.job));
    return fits.has_value();
  }
  // The time of the last question, and the idle GPUs then.
  [[nodiscard]] std::uint32_t idle_gpus() const noexcept { return then_->idle_gpus(); }
  // Whether these GPUs are idle then. If so, the job uses them.
  [[nodiscard]] bool add(const request& r, const placement_type& where) {
    return then_->commit(r, where).ok();
  }

 private:
  static constexpr std::uint32_t last_id = (std::numeric_limits<std::uint32_t>::max)();

  // Then a copy of the placer costs less. Requires: between two questions of one decision, a job on
  // each GPU starts and one on each GPU ends, at most.
  void limit() {
    if (started_.size() + ended_.size() > 2 * std::size_t{then_->total_gpus()}) forget();
  }
  [[nodiscard]] absl::StatusOr<std::optional<placement_type>> fit(const request& r,
                                                                  time_ms earliest) {
    if (at_ < earliest) return std::optional<placement_type>();
    return Fit::of(*then_, r, true);
  }
  // Applies what has happened since the last question, and moves to `now` at least.
  template <class Copy, class Of>
  [[nodiscard]] absl::Status catch_up(Copy& copy, time_ms now, const weighted_tree& ends, Of& of) {
    if (!then_) {
      then_.emplace(copy());
      at_ = (std::numeric_limits<time_ms>::min)();
      earlier_ = true;
      for (auto i = ends.first(); i; i = ends.next(i->key, i->id))
        of(job_id(i->id))->still_runs = true;
    }
    for (const job_id job : ended_) APIARY_RETURN_IF_ERROR(then_->finish(job));
    for (const job_id job : started_) {
      auto* const r = of(job);
      if (r == nullptr || r->still_runs || r->ends <= at_) continue;
      APIARY_RETURN_IF_ERROR(then_->commit(r->request, r->where));
      r->still_runs = true;
    }
    ended_.clear();
    started_.clear();
    return now > at_ ? end_until(now, ends, of) : absl::OkStatus();
  }
  // Moves to a later time.
  template <class Of>
  [[nodiscard]] absl::Status end_until(time_ms at, const weighted_tree& ends, Of& of) {
    for (auto i = ends.next(at_, last_id); i && i->key <= at; i = ends.next(i->key, i->id)) {
      if (!std::exchange(of(job_id(i->id))->still_runs, false)) continue;
      APIARY_RETURN_IF_ERROR(then_->finish(job_id(i->id)));
    }
    at_ = at;
    return absl::OkStatus();
  }
  // Moves back while the job fits; returns where. `where`: the same for the present time.
  template <class Of>
  [[nodiscard]] absl::StatusOr<placement_type> move_back(const request& r, placement_type where,
                                                         time_ms now, time_ms earliest,
                                                         const weighted_tree& ends, Of& of) {
    while (true) {
      std::optional<weighted_tree::item> last = ends.previous(at_, last_id);
      if (!last || last->key <= now) {
        at_ = now;
        return where;
      }
      const time_ms end = last->key;
      for (; last && last->key == end; last = ends.previous(last->key, last->id)) {
        auto* const ends_then = of(job_id(last->id));
        APIARY_RETURN_IF_ERROR(then_->commit(ends_then->request, ends_then->where));
        ends_then->still_runs = true;
      }
      at_ = end - 1;
      APIARY_ASSIGN_OR_RETURN(std::optional<placement_type> sooner, fit(r, earliest));
      if (!sooner) {
        APIARY_RETURN_IF_ERROR(end_until(end, ends, of));
        return where;
      }
      where = *std::move(sooner);
    }
  }

  std::optional<P> then_{};
  time_ms at_ = 0;                           // the time of then_; jobs that end later are in it
  job_id first_{};                           // of the last question
  placement_type where_{};                   // of first_, at that time
  bool earlier_ = false;                     // it may fit earlier than at_
  std::vector<job_id> started_{}, ended_{};  // since the last question
};

APIARY_NAMESPACE_END
