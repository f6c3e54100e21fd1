// apiary/batch/conservative_queue.h - conservative backfilling: every job has a reservation.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/batch/detail/job_records.h>
#include <apiary/batch/detail/reservations.h>
#include <apiary/batch/detail/wait_queues.h>
#include <apiary/batch/job_placer.h>
#include <apiary/batch/server_placer.h>
#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/model/job_scheduler.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Options of a conservative_queue.
struct conservative_options {
  // At most so many waiting jobs have reservations, as with bf_max_job_test of Slurm; 0: all. When one
  // of them starts or leaves, the first job in the order without a reservation gets one. A job
  // without a reservation does not start. A job whose start is unknown, because it waits for a
  // repair, counts as one of them.
  std::size_t depth = 0;
};

// Conservative backfilling: every job (with a depth: each of the first) gets the earliest reservation
// that earlier ones allow when it arrives, and no later job delays it. When a job ends before its estimate, all reservations are
// tried again, in order of arrival, until none moves earlier.
//
// Model:    Mu'alem, Feitelson, "Utilization, predictability, workloads, and user runtime
//           estimates" (IEEE TPDS 2001), conservative backfilling with compression.
// Limits:   a reservation holds where any GPUs will do, no job runs longer than its estimate and no
//           server breaks. A job that does not fit at its reserved time gets another one. After a
//           late start, because decide() came after wake(), all reservations are made again.
// Requires: times >= 0 that never decrease; decide() at wake() and after each time at which a job
//           was submitted or ended, or a server broke or was repaired.
// Cost:     submit, a start, and an end on time: O(log jobs), and for each gap between reservations
//           that is too short for the new job. An early end, a withdrawal or a job that does not fit
//           at its time: for each GPU count and each gap at the times that became free, and for each
//           job that moves; the module's page says how much. An overrun, a late start or a server
//           event: as a submit of every waiting job. By the definition one such event may move every
//           waiting job: on 2,000 full GPUs, with servers of 8 on which jobs often do not fit at
//           their times, a decision moves 250 of 500 waiting jobs (2 ms). With `depth` it moves at
//           most `depth` jobs.
// Example:  examples/job_queues.cpp
template <JobPlacer Placer>
class conservative_queue {
 public:
  // A queue over a placer on which no job runs.
  explicit conservative_queue(Placer placer, conservative_options options = {})
      : jobs_(std::move(placer)), reservations_(this->placer().idle_gpus()), options_(options) {}

  // A job arrives. kInvalidArgument: no job id, a negative estimate (0 counts as 1), or the job would
  // not fit in an idle cluster. kAlreadyExists: a job with this id waits or runs.
  [[nodiscard]] absl::Status submit(const job_request& r, time_ms now) {
    APIARY_ASSIGN_OR_RETURN(record* const added, jobs_.add(r, 0, max_time));
    added->key = now;
    wait(*added, now);
    return absl::OkStatus();
  }
  // The job has ended, or its owner cancels it before it starts. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, time_ms now) {
    APIARY_ASSIGN_OR_RETURN(record* const r, jobs_.find(job));
    if (r->running) {
      APIARY_RETURN_IF_ERROR(stop(*r));
      reservations_.give(now, r->ends, r->request.gpus);
      move_up_ = move_up_ || now < r->ends;
    } else {
      jobs_.leave(*r, now);
      order_.erase(r->key, job.value);
      if (unreserved_.erase({r->key, job.value}) == 0) reservations_.cancel(reserved_as(*r));
      move_up_ = true;
    }
    jobs_.forget(job);
    return absl::OkStatus();
  }

  // The server is broken. Its jobs wait again, at their old position in the order. Returns them,
  // ascending. kNotFound: there is no such server.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms now) {
    APIARY_ASSIGN_OR_RETURN(std::vector<job_id> stopped, jobs_.mark_bad(n, [&](record& r) {
      APIARY_RETURN_IF_ERROR(stop(r));
      wait(r, now);
      return absl::OkStatus();
    }));
    rebuild_ = true;
    return stopped;
  }
  // The server is repaired. kNotFound: there is no such server.
  [[nodiscard]] absl::Status mark_healthy(node_id n, time_ms /*now*/) {
    APIARY_RETURN_IF_ERROR(jobs_.mark_healthy(n));
    rebuild_ = true;
    return absl::OkStatus();
  }

  // Starts every job whose reserved time has come. Appends the starts to `actions`; the queue has
  // applied them already, and the host carries them out. An error only if the placer returns one.
  [[nodiscard]] absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    while (const auto late = ends_.first()) {
      if (late->key > now) break;
      record& r = jobs_[job_id(late->id)];
      ends_.erase(late->key, late->id);
      r.ends = add_time(now, (std::max<time_ms>)(1, now - r.started));
      ends_.insert({r.ends, late->id, r.request.gpus});
      rebuild_ = true;
    }
    if (const auto late = reservations_.first()) rebuild_ = rebuild_ || late->key < now;
    if (rebuild_) {
      start_over(now);
    } else {
      reservations_.forget_before(now);
      const std::vector<detail::reserved_job> fresh = take_unreserved();
      if (move_up_) {
        reservations_.move_up(fresh);
      } else {
        reserve(fresh, now);
      }
    }
    move_up_ = rebuild_ = false;
    jobs_.queues().begin_round();
    while (true) {
      const auto next = reservations_.first();
      if (next && next->key <= now) {
        APIARY_RETURN_IF_ERROR(start(jobs_[job_id(next->id)], now, actions));
        continue;
      }
      const std::vector<detail::reserved_job> fresh = take_unreserved();
      if (fresh.empty()) break;
      reserve(fresh, now);
    }
    jobs_.queues().end_round(placer().idle_gpus(), delay_cause::order, now);
    return absl::OkStatus();
  }
  // When decide() must be called: at the next reservation, or when a running job should have ended.
  [[nodiscard]] time_ms wake() const noexcept {
    if (order_.empty()) return max_time;
    const auto start = reservations_.first();
    const auto end = ends_.first();
    return (std::min)(start ? start->key : max_time, end ? end->key : max_time);
  }

  // When the job will start, by the estimates; max_time: unknown; nullopt: it does not wait.
  [[nodiscard]] std::optional<time_ms> reserved(job_id job) const {
    const record* const found = jobs_.look_up(job);
    if (found == nullptr || found->running) return std::nullopt;
    return reservations_.find(reserved_as(*found)).value_or(max_time);
  }
  // The number of waiting jobs.
  [[nodiscard]] std::size_t num_waiting() const noexcept { return jobs_.queues().size(); }
  // The number of running jobs.
  [[nodiscard]] std::size_t num_running() const noexcept { return jobs_.num_running(); }
  // All GPUs, including those on bad servers.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return placer().total_gpus(); }
  // The placer, with the jobs that run.
  [[nodiscard]] const Placer& placer() const noexcept { return jobs_.placer(); }

 private:
  struct record : detail::booked_job {
    time_ms started = 0;
    time_ms ends = 0;  // by the estimate
  };

  // For how long it needs its GPUs.
  [[nodiscard]] static time_ms length_of(const record& r) {
    return (std::max<time_ms>)(1, r.request.estimate);
  }
  [[nodiscard]] static detail::reserved_job reserved_as(const record& r) {
    return {r.key, r.request.job, r.request.gpus, length_of(r)};
  }
  void wait(record& r, time_ms now) {
    jobs_.wait(r, now);
    order_.insert({r.key, r.request.job.value, 0});
    unreserved_.emplace(r.key, r.request.job.value);
  }
  [[nodiscard]] absl::Status stop(record& r) {
    APIARY_RETURN_IF_ERROR(jobs_.stop(r));
    ends_.erase(r.ends, r.request.job.value);
    return absl::OkStatus();
  }
  // The first jobs that have no reservation, as many as may have one. They are taken to have one.
  [[nodiscard]] std::vector<detail::reserved_job> take_unreserved() {
    std::vector<detail::reserved_job> fresh;
    while (!unreserved_.empty() &&
           (options_.depth == 0 || order_.size() - unreserved_.size() < options_.depth)) {
      fresh.push_back(reserved_as(jobs_[job_id(unreserved_.begin()->second)]));
      unreserved_.erase(unreserved_.begin());
    }
    return fresh;
  }
  void reserve(const std::vector<detail::reserved_job>& fresh, time_ms now) {
    for (const detail::reserved_job& r : fresh) reservations_.add(r, now);
  }
  // Makes all reservations again, in order, around the running jobs.
  void start_over(time_ms now) {
    reservations_ = detail::reservations(placer().idle_gpus(), now);
    for (auto at = ends_.first(); at; at = ends_.next(at->key, at->id)) {
      reservations_.give(at->key, max_time, static_cast<std::uint32_t>(at->weight));
    }
    for (auto at = order_.first(); at; at = order_.next(at->key, at->id))
      unreserved_.emplace(at->key, at->id);
    reserve(take_unreserved(), now);
    reservations_.forget_freed();
  }

  [[nodiscard]] absl::Status start(record& r, time_ms now, std::vector<job_action>& actions) {
    APIARY_ASSIGN_OR_RETURN(const bool started, jobs_.start(r, now, actions));
    if (!started) {
      reservations_.postpone(reserved_as(r), now);
      move_up_ = true;  // the next decide() tries again
      return absl::OkStatus();
    }
    reservations_.start(reserved_as(r));
    order_.erase(r.key, r.request.job.value);
    r.started = now;
    r.ends = add_time(now, length_of(r));
    ends_.insert({r.ends, r.request.job.value, r.request.gpus});
    return absl::OkStatus();
  }

  detail::job_records<Placer, record> jobs_;
  detail::reservations reservations_;  // of waiting jobs
  conservative_options options_;
  weighted_tree order_;  // waiting jobs, by arrival
  weighted_tree ends_;   // ends of running jobs, with their GPUs as weights
  std::set<std::pair<std::int64_t, std::uint32_t>>
      unreserved_;        // waiting jobs without a reservation
  bool move_up_ = false;  // reservations may move earlier
  bool rebuild_ = false;  // all reservations must be made again
};

static_assert(JobScheduler<conservative_queue<server_placer>>);

APIARY_NAMESPACE_END
