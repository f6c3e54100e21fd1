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
  delays waited{};                     // before a start that was taken back in the same decision
};

// What a reservation is told. It may hide these with its own; none needs to do anything.
struct reservation_events {
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
// These are: no_backfill, first_fit, easy_by_count and easy_by_placement; a queue that plans the
// start of every job is conservative_queue. If the placer preempts, a job that overtakes by
// first_fit may suspend others; with EASY it may not, because one of them may be the first job then.
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

// EASY backfilling with particular GPUs: the first job is placed on a copy of the placer in which
// the running jobs have ended, one after the other, until it fits. A job overtakes it if it ends
// before that time or leaves its GPUs idle.
// Cost: keeps the copy from one decision to the next (forecast.h): a call of the
//       placer for each job that starts or ends, and for each end that the time of the reservation
//       passes. After each start a proposal for each kind that was found to delay the first job.
template <Placer P>
class easy_by_placement : public reservation_events {
 public:
  void started(const queued_job<P>& r) { forecast_.started(r.request.job); }
  void ended(queued_job<P>& r, time_ms now) { forecast_.ended(r.request.job, r, now); }
  void withdrawn() noexcept { forecast_.withdrawn(); }
  void servers_changed() { forecast_.forget(); }

  // See no_backfill.
  template <class Queue>
  [[nodiscard]] absl::Status fill(Queue& q, const typename Queue::entry& first, time_ms now) {
    absl::Status done = reserve_and_fill(q, first, now);
    if (!done.ok()) forecast_.forget();  // the copy may be half a step ahead
    return done;
  }
  // The reservation of the last fill().
  [[nodiscard]] const reservation& reserved() const noexcept { return reserved_; }

 private:
  template <class Queue>
  [[nodiscard]] absl::Status reserve_and_fill(Queue& q, const typename Queue::entry& first,
                                              time_ms now) {
    const auto of = [&](job_id job) { return q.running(job); };
    const auto copy = [&] { return q.placer(); };
    APIARY_ASSIGN_OR_RETURN(const std::optional<time_ms> at,
                            forecast_.first_fit(copy, q.record_of(first.job).request, now,
                                                easy_by_count::of(q, first, now).at, q.ends(), of));
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

  placer_forecast<P> forecast_;
  reservation reserved_{};
};

APIARY_NAMESPACE_END
