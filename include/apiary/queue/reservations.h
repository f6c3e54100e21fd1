// apiary/queue/reservations.h - which jobs may start before the first job that does not fit.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/model/placer.h>
#include <apiary/queue/book.h>
#include <apiary/queue/forecast.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>

APIARY_NAMESPACE_BEGIN

// The start of the first job, by the estimates.
struct reservation {
  job_id job{};                  // the first job
  time_ms at = max_time;         // max_time: unknown
  std::uint32_t extra_gpus = 0;  // GPUs that stay idle at that time
  friend bool operator==(const reservation&, const reservation&) noexcept = default;
};

// The record of a job of a job_queue.
template <Placer P>
struct queued_job : booked_job<P> {
  typename P::placement_type where{};  // where it runs
  time_ms ends = 0;                    // when it ends by its estimate, if it runs
  bool still_runs = false;             // at the time of a reservation; see easy_by_placement
  delays waited{};                     // to be added to what the clock of its kind counts
};

// What a reservation is told. It may hide these with its own; none needs to do anything.
struct reservation_events {
  // Whether all jobs but the first one wait for the jobs before them. Otherwise also those for
  // which there are not enough GPUs wait for GPUs.
  static constexpr bool only_first_waits_for_gpus = false;
  // The job, which waited, runs from now on.
  template <class Record>
  void started(const Record& /*job*/) noexcept {}
  // The job, which ran, does not run any more.
  template <class Record>
  void ended(Record& /*job*/, time_ms /*now*/) noexcept {}
  // A waiting job was cancelled.
  void withdrawn() noexcept {}
  // A server broke or was repaired.
  void servers_changed() noexcept {}
};

// A reservation starts the jobs that may overtake the first job of a queue, after this one did not
// fit.
//
// (v: a reservation, q: the job_queue of a decision, first: an entry of kind_queues, now: a time)
// | expression            | meaning                                                              |
// |-----------------------|----------------------------------------------------------------------|
// | v.fill(q, first, now) | starts other jobs with q.next_that_may and q.start; a Status          |
// | events                | those of reservation_events, from which it derives                   |
//
// These are: no_backfill, first_fit, easy_by_count, easy_by_placement and easy_beside; a queue that
// plans the start of every job is conservative_queue. If the placer preempts, a job that overtakes
// by first_fit may suspend others; with EASY it may not, because one of them may be the first job
// then.
//
// No job overtakes the first one.
struct no_backfill : reservation_events {
  // See above.
  template <class Queue>
  [[nodiscard]] absl::Status fill(Queue& /*q*/, const typename Queue::entry& /*first*/,
                                  time_ms /*now*/) {
    return absl::OkStatus();
  }
};

// Every job that fits overtakes the first one, in order. The first one may starve.
struct first_fit : reservation_events {
  // See no_backfill.
  template <class Queue>
  [[nodiscard]] absl::Status fill(Queue& q, const typename Queue::entry& /*first*/, time_ms now) {
    while (const auto next = q.next_that_may()) {
      APIARY_RETURN_IF_ERROR(q.start(*next, now).status());
    }
    return absl::OkStatus();
  }
};

// EASY backfilling: a job overtakes the first one if, by the estimates, it does not delay the time
// at which enough GPUs will be idle for the first one. If enough GPUs are idle already, but not
// where the first job can use them, every other job that fits in the rest of them starts, and the
// first job may wait for as long as such jobs arrive.
// Model: Lifka, "The ANL/IBM SP scheduling system" (JSSPP 1995).
class easy_by_count : public reservation_events {
 public:
  // See no_backfill.
  template <class Queue>
  [[nodiscard]] absl::Status fill(Queue& q, const typename Queue::entry& first, time_ms now) {
    reserved_ = of(q, first, now);
    const auto longest = [&](const auto& kind, bool) {
      if (kind.gpus <= reserved_.extra_gpus || reserved_.at == max_time) return max_time;
      return reserved_.at - now;
    };
    const auto anywhere = [](const auto& /*placement*/) { return true; };
    while (const auto next = q.next_that_may(longest)) {
      APIARY_ASSIGN_OR_RETURN(const bool started, q.start(*next, now, anywhere));
      if (started && q.record_of(next->job).ends > reserved_.at)
        reserved_.extra_gpus -= next->kind.gpus;
    }
    return absl::OkStatus();
  }
  // The reservation of the last fill().
  [[nodiscard]] const reservation& reserved() const noexcept { return reserved_; }

  // When, by the estimates, enough GPUs will be idle for this job. A job beyond its estimate ends
  // now.
  template <class Queue>
  [[nodiscard]] static reservation of(const Queue& q, const typename Queue::entry& e, time_ms now) {
    const std::int64_t idle = q.placer().idle_gpus();
    const std::int64_t gpus = e.kind.gpus;
    reservation r{e.job, now, 0};
    if (idle < gpus) {
      const std::optional<weighted_tree::reached> end = q.ends().reach(gpus - idle);
      if (!end) return {e.job, max_time, 0};
      r.at = (std::max)(now, end->at.key);
    }
    r.extra_gpus = static_cast<std::uint32_t>(idle + q.ends().sum_to(r.at) - gpus);
    return r;
  }

 private:
  reservation reserved_{};
};

namespace detail {

// What reservations share that place the first job on a copy of the placer (forecast.h).
template <Placer P, class Fit>
class forecast_reservation : public reservation_events {
 public:
  void started(const queued_job<P>& r) { forecast_.started(r.request.job); }
  void ended(queued_job<P>& r, time_ms now) { forecast_.ended(r.request.job, r, now); }
  void withdrawn() noexcept { forecast_.withdrawn(); }
  void servers_changed() { forecast_.forget(); }

 protected:
  // When the first job fits, by the estimates, but not before `earliest`; nullopt: unknown.
  template <class Queue>
  [[nodiscard]] absl::StatusOr<std::optional<time_ms>> first_fit(const Queue& q, job_id first,
                                                                 time_ms now, time_ms earliest) {
    const auto of = [&](job_id job) { return q.running(job); };
    const auto copy = [&] { return q.placer(); };
    return forecast_.first_fit(copy, q.record_of(first).request, now, earliest, q.ends(), of);
  }
  // After an error the copy may be half a step ahead.
  [[nodiscard]] absl::Status end_of_fill(absl::Status done) {
    if (!done.ok()) forecast_.forget();
    return done;
  }

  placer_forecast<P, Fit> forecast_;
};

}  // namespace detail

// EASY backfilling with particular GPUs: the first job is placed on a copy of the placer in which
// the running jobs have ended, one after the other, until it fits. A job overtakes it if it ends
// before that time or leaves its GPUs idle.
// Cost: keeps the copy from one decision to the next (forecast.h): a call of the
//       placer for each job that starts or ends, and for each end that the time of the reservation
//       passes. After each start a proposal for each kind that was found to delay the first job.
template <Placer P>
class easy_by_placement : public detail::forecast_reservation<P, proposal_fit> {
 public:
  // See no_backfill.
  template <class Queue>
  [[nodiscard]] absl::Status fill(Queue& q, const typename Queue::entry& first, time_ms now) {
    return this->end_of_fill(reserve_and_fill(q, first, now));
  }
  // The reservation of the last fill().
  [[nodiscard]] const reservation& reserved() const noexcept { return reserved_; }

 private:
  template <class Queue>
  [[nodiscard]] absl::Status reserve_and_fill(Queue& q, const typename Queue::entry& first,
                                              time_ms now) {
    APIARY_ASSIGN_OR_RETURN(
        const std::optional<time_ms> at,
        this->first_fit(q, first.job, now, easy_by_count::of(q, first, now).at));
    if (at) APIARY_RETURN_IF_ERROR(forecast_.hold(q.record_of(first.job).request));
    reserved_ = {first.job, at.value_or(max_time), at ? forecast_.idle_gpus() : 0};
    APIARY_RETURN_IF_ERROR(fill_beside(q, now));
    return at ? forecast_.finish(first.job) : absl::OkStatus();
  }
  template <class Queue>
  [[nodiscard]] absl::Status fill_beside(Queue& q, time_ms now) {
    const auto longest = [&](const auto& /*kind*/, bool delays) {
      return delays ? reserved_.at - now : max_time;
    };
    while (const auto next = q.next_that_may(longest)) {
      queued_job<P>& r = q.record_of(next->job);
      bool still_runs = false;
      const auto accept = [&](const typename P::placement_type& where) {
        if (add_time(now, r.estimate) <= reserved_.at) return true;
        still_runs = forecast_.add(r.request, where);
        if (!still_runs) q.queues().delay(r.kind);  // it would use reserved GPUs
        return still_runs;
      };
      APIARY_ASSIGN_OR_RETURN(const bool started, q.start(*next, now, accept));
      if (!started) continue;
      r.still_runs = still_runs;
      if (still_runs) reserved_.extra_gpus = forecast_.idle_gpus();
      q.queues().forget_delays();  // the placer may choose other GPUs now
    }
    return absl::OkStatus();
  }

  using detail::forecast_reservation<P, proposal_fit>::forecast_;
  reservation reserved_{};
};

// EASY backfilling by trial: the time of the first job is as with easy_by_placement, but no GPUs
// are reserved. Each job after it is tried once, in order: it overtakes the first one if it ends
// before that time, or if the first one fits then beside it, wherever that is. If the placer
// preempts, the first job counts on the GPUs of jobs that it may suspend. If it is undecided
// whether the first job fits when jobs have ended, this is taken to be its time, and jobs that end
// later wait.
// Cost: as easy_by_placement, and for each job that would end later two or three calls on the copy.
//       A kind that does not fit is proposed again only after a job has ended.
template <Placer P>
class easy_beside : public detail::forecast_reservation<P, preempting_fit> {
  using base = detail::forecast_reservation<P, preempting_fit>;

 public:
  void ended(queued_job<P>& r, time_ms now) {
    base::ended(r, now);
    full_.clear();
  }
  void servers_changed() {
    base::servers_changed();
    full_.clear();
  }
  // See no_backfill.
  template <class Queue>
  [[nodiscard]] absl::Status fill(Queue& q, const typename Queue::entry& first, time_ms now) {
    return this->end_of_fill(reserve_and_fill(q, first, now));
  }

 private:
  template <class Queue>
  [[nodiscard]] absl::Status reserve_and_fill(Queue& q, const typename Queue::entry& first,
                                              time_ms now) {
    const typename P::request& first_request = q.record_of(first.job).request;
    std::optional<time_ms> at;  // of the first job
    if (const std::optional<weighted_tree::item> end = q.ends().first()) {
      APIARY_ASSIGN_OR_RETURN(at, this->first_fit(q, first.job, now, (std::max)(now, end->key)));
    }
    const auto longest = [&](const auto& /*kind*/, bool delays) {
      return delays ? (std::min)(*at - now, max_time - 1) : max_time;
    };
    for (const typename P::kind& kind : full_) {
      if (q.queues().jobs_of(kind) != nullptr) q.queues().fail(kind);
    }
    while (const auto next = q.next_that_may(longest)) {
      queued_job<P>& r = q.record_of(next->job);
      const time_ms ends = add_time(now, r.estimate);
      const bool in_time = !at || (ends <= *at && ends != max_time);
      bool fits = false;
      absl::StatusOr<bool> beside = in_time;
      const auto accept = [&](const typename P::placement_type& where) {
        fits = true;
        if (!in_time) beside = forecast_.fits_beside(first_request, r.request, where);
        return beside.ok() && *beside;
      };
      APIARY_ASSIGN_OR_RETURN(const bool started, q.start(*next, now, accept));
      APIARY_RETURN_IF_ERROR(beside.status());
      if (started) {
        r.still_runs = !in_time && ends > *at;
        if (!in_time && !r.still_runs) APIARY_RETURN_IF_ERROR(forecast_.finish(next->job));
        q.queues().forget_delays_after(*next);  // the placer may choose other GPUs now
      } else if (fits) {
        q.queues().delay(next->kind);
      } else {
        full_.insert(next->kind);
      }
    }
    return absl::OkStatus();
  }

  using base::forecast_;
  std::set<typename P::kind> full_{};  // they did not fit, and no job has ended since
};

APIARY_NAMESPACE_END
