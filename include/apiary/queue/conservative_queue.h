// apiary/queue/conservative_queue.h - conservative backfilling: every job has a reservation.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/model/placer.h>
#include <apiary/queue/detail/job_records.h>
#include <apiary/queue/detail/reservations.h>
#include <apiary/queue/detail/wait_queues.h>
#include <apiary/queue/server_placer.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Options of a conservative_queue.
struct conservative_options {
  // Jobs get reservations, in order, until so many waiting jobs have one, as with bf_max_job_test of
  // Slurm; 0: all. When one of them starts or leaves, the first job in the order that was not tried
  // gets one. A job without a reservation does not start. A job whose start is unknown (see
  // conservative_queue::reserved) has none. If its start becomes known, because another job ends
  // early or leaves, it gets one although the others are so many.
  std::size_t depth = 0;
};

// Conservative backfilling: every job (with a depth: each of the first) gets the earliest reservation
// that earlier ones allow when it arrives, and no later job delays it. When a job ends before its
// estimate, all reservations are tried again, in order of arrival, until none moves earlier.
//
// Model:    Mu'alem, Feitelson, "Utilization, predictability, workloads, and user runtime
//           estimates" (IEEE TPDS 2001), conservative backfilling with compression.
// Limits:   a reservation holds where any GPUs will do, no job runs longer than its estimate and no
//           server breaks. A job that does not fit at its reserved time gets another one. A job that
//           does not fit on the healthy servers has none until a server is repaired. After a late
//           start, because decide() came after wake(), all reservations are made again.
// Requires: times >= 0 that never decrease; decide() at wake() and after each time at which a job
//           was submitted or ended, or a server broke or was repaired.
// Cost:     submit, a start, and an end on time: O(log jobs), and for each gap between reservations
//           that is too short for the new job. An early end, a withdrawal or a job that does not fit
//           at its time: for each GPU count and each gap at the times that became free, and for each
//           job that moves; the module's page says how much. An overrun, a late start, an outage or
//           a repair: O(running jobs log jobs), and as a submit of every waiting job; after an outage
//           and a repair a copy of the placer also ends all running jobs. By the definition one such
//           event may move every waiting job: on 2,000 full GPUs, with servers of 8 on which jobs
//           often do not fit at their times, a decision moves up to 180 of 450 waiting jobs, 7 us
//           each, and takes 1.25 ms. With `depth` it reads only jobs with reservations, those whose
//           start is unknown, those that do not fit on the healthy servers, and the next ones in the
//           order until enough have reservations: with 100, an event takes 15 us there. Set it where
//           hundreds of jobs wait. A server that is marked bad again, or healthy again, costs nothing.
//           At 80 % use an event takes 2.8 to 3.1 times as long on 100,000 GPUs as on 2,000: 1.4
//           times as many instructions, and more accesses to memory miss the cache.
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
      if (tried_.erase({r->key, job.value}) == 0) unreserved_.erase({r->key, job.value});
      if (reservations_.find(reserved_as(*r))) reservations_.cancel(reserved_as(*r));
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
    bad_.insert(n.value);
    if (jobs_.servers_changed()) change_servers();
    return stopped;
  }
  // The server is repaired. kNotFound: there is no such server.
  [[nodiscard]] absl::Status mark_healthy(node_id n, time_ms /*now*/) {
    APIARY_RETURN_IF_ERROR(jobs_.mark_healthy(n));
    bad_.erase(n.value);
    if (jobs_.servers_changed()) change_servers();
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
      if (move_up_) {
        APIARY_ASSIGN_OR_RETURN(const std::vector<detail::reserved_job> fresh, take_unreserved());
        reservations_.move_up(fresh);
      }
    }
    APIARY_RETURN_IF_ERROR(reserve(now));
    if (rebuild_) reservations_.forget_freed();
    move_up_ = rebuild_ = false;
    jobs_.queues().begin_round();
    for (auto next = reservations_.first(); next && next->key <= now;) {
      APIARY_RETURN_IF_ERROR(start(jobs_[job_id(next->id)], now, actions));
      next = reservations_.first();
      if (next && next->key <= now) continue;
      APIARY_RETURN_IF_ERROR(reserve(now));
      next = reservations_.first();
    }
    jobs_.queues().end_round(placer().idle_gpus(), delay_cause::order, now);
    return absl::OkStatus();
  }
  // When decide() must be called: at the next reservation, or when a running job should have ended.
  [[nodiscard]] time_ms wake() const noexcept {
    if (num_waiting() == 0) return max_time;
    const auto start = reservations_.first();
    const auto end = ends_.first();
    return (std::min)(start ? start->key : max_time, end ? end->key : max_time);
  }

  // When the job will start, by the estimates; nullopt: it does not wait. max_time: it has no
  // reservation, because it does not fit on the healthy servers, or only after the end of a job
  // without an estimate, or because it is beyond the depth.
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
    unreserved_.emplace(r.key, r.request.job.value);
  }
  [[nodiscard]] absl::Status stop(record& r) {
    APIARY_RETURN_IF_ERROR(jobs_.stop(r));
    ends_.erase(r.ends, r.request.job.value);
    return absl::OkStatus();
  }
  void change_servers() {
    rebuild_ = true;
    idle_.reset();
    fits_idle_.clear();
  }
  // Whether the job fits on the healthy servers when no job runs.
  [[nodiscard]] absl::StatusOr<bool> fits_idle(const record& r) {
    if (bad_.empty()) return true;  // as check() said
    const auto [at, is_new] = fits_idle_.try_emplace(detail::wait_queues::kind(r.request), false);
    if (!is_new) return at->second;
    if (!idle_) {
      idle_.emplace(placer());
      for (auto i = ends_.first(); i; i = ends_.next(i->key, i->id))
        APIARY_RETURN_IF_ERROR(idle_->finish(job_id(i->id)));
    }
    APIARY_ASSIGN_OR_RETURN(const std::optional<job_placement> where, idle_->propose(r.request));
    at->second = where.has_value();
    return at->second;
  }
  // Whether one more job may get a reservation, if so many others get one.
  [[nodiscard]] bool may_reserve(std::size_t others = 0) const noexcept {
    return !unreserved_.empty() &&
           (options_.depth == 0 || reservations_.num_known() + others < options_.depth);
  }
  // Takes the first job out of unreserved_; nullopt: it does not fit on the healthy servers.
  [[nodiscard]] absl::StatusOr<std::optional<detail::reserved_job>> take_first() {
    const record& r = jobs_[job_id(unreserved_.begin()->second)];
    tried_.insert(unreserved_.extract(unreserved_.begin()));
    APIARY_ASSIGN_OR_RETURN(const bool fits, fits_idle(r));
    return fits ? std::optional(reserved_as(r)) : std::nullopt;
  }
  // The first jobs, as many as may get reservations. They are taken to get them.
  [[nodiscard]] absl::StatusOr<std::vector<detail::reserved_job>> take_unreserved() {
    std::vector<detail::reserved_job> fresh;
    while (may_reserve(fresh.size())) {
      APIARY_ASSIGN_OR_RETURN(const std::optional<detail::reserved_job> first, take_first());
      if (first) fresh.push_back(*first);
    }
    return fresh;
  }
  // Makes reservations for the first jobs, until as many as may have one do.
  [[nodiscard]] absl::Status reserve(time_ms now) {
    while (may_reserve()) {
      APIARY_ASSIGN_OR_RETURN(const std::optional<detail::reserved_job> first, take_first());
      if (first) reservations_.add(*first, now);
    }
    return absl::OkStatus();
  }
  // Withdraws all reservations; only the running jobs have GPUs. Jobs for which no start was sought are
  // not read.
  void start_over(time_ms now) {
    reservations_ = detail::reservations(placer().idle_gpus(), now);
    for (auto at = ends_.first(); at; at = ends_.next(at->key, at->id)) {
      reservations_.give(at->key, max_time, static_cast<std::uint32_t>(at->weight));
    }
    unreserved_.merge(tried_);
  }

  [[nodiscard]] absl::Status start(record& r, time_ms now, std::vector<job_action>& actions) {
    APIARY_ASSIGN_OR_RETURN(const bool started, jobs_.start(r, now, actions));
    if (!started) {
      reservations_.postpone(reserved_as(r), now);
      move_up_ = true;  // the next decide() tries again
      return absl::OkStatus();
    }
    reservations_.start(reserved_as(r));
    tried_.erase({r.key, r.request.job.value});
    r.started = now;
    r.ends = add_time(now, length_of(r));
    ends_.insert({r.ends, r.request.job.value, r.request.gpus});
    return absl::OkStatus();
  }

  detail::job_records<Placer, record> jobs_;
  detail::reservations reservations_;  // of waiting jobs
  conservative_options options_;
  weighted_tree ends_;  // ends of running jobs, with their GPUs as weights
  // Waiting jobs by arrival: those for which no start was sought yet, and the others, which have a
  // reservation, an unknown start, or do not fit on the healthy servers.
  std::set<std::pair<std::int64_t, std::uint32_t>> unreserved_, tried_;
  bool move_up_ = false;         // reservations may move earlier
  bool rebuild_ = false;         // all reservations must be made again
  std::set<std::uint32_t> bad_;  // broken servers; while there are any:
  std::optional<Placer> idle_;   // the placer without the running jobs, since the servers changed
  std::map<detail::wait_queues::kind, bool> fits_idle_;  // whether a job of this kind fits there
};

static_assert(JobScheduler<conservative_queue<server_placer>>);

APIARY_NAMESPACE_END
