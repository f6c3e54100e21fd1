// apiary/queue/conservative_queue.h - every job has a reserved start time that no later job delays.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/model/placer.h>
#include <apiary/queue/book.h>
#include <apiary/queue/detail/gpu_profile.h>

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
  // Jobs get reservations, in order, until so many waiting jobs have one, as with bf_max_job_test
  // of Slurm; 0: all. When one of them starts or leaves, the first job in the order that was not
  // tried gets one. A job without a reservation does not start. A job whose start is unknown (see
  // conservative_queue::reserved) has none. If its start becomes known, because another job ends
  // early or leaves, it gets one although the others are so many.
  std::size_t depth = 0;
};

// Conservative backfilling: every job (with a depth: each of the first) gets the earliest
// reservation that earlier ones allow when it arrives, and no later job delays it. When a job ends
// before its estimate, each job in order of arrival gives up its reservation and takes the earliest
// one, until none moves.
//
// Model:    Mu'alem, Feitelson, "Utilization, predictability, workloads, and user runtime
//           estimates" (IEEE TPDS 2001), conservative backfilling with compression.
// Limits:   a reservation holds where any GPUs will do, no job runs longer than its estimate and no
//           server breaks. A job that does not fit at its reserved time gets another one. A job
//           that does not fit on the healthy servers has none until a server is repaired. After a
//           late start, because decide() came after wake(), all reservations are made again.
// Requires: times >= 0 that never decrease; decide() at wake() and after each time at which a job
//           was submitted or ended, or a server broke or was repaired.
// Cost:     submit, a start, and an end on time: O(log jobs), and for each gap between reservations
//           that is too short for the new job. An early end, a withdrawal or a job that does not
//           fit at its time: as a submit for each waiting job that was tried, and again until none
//           moves. An overrun, a late start, an outage or a repair: O(running jobs log jobs), and
//           as a submit of every waiting job; after an outage and a repair a copy of the placer
//           also ends all running jobs. With `depth` it reads only jobs with reservations, those
//           whose start is unknown, those that do not fit on the healthy servers, and the next ones
//           in the order until enough have reservations: set it where hundreds of jobs wait. The
//           module's page has figures. A server that is marked bad again, or healthy again, costs
//           nothing.
// Example:  examples/job_queues.cpp
template <JobPlacer P>
class conservative_queue {
 public:
  // A queue over a placer on which no job runs.
  explicit conservative_queue(P placer, conservative_options options = {})
      : jobs_(std::move(placer)), profile_(this->placer().idle_gpus()), options_(options) {}

  // A job arrives. kInvalidArgument: no job id, a negative estimate (0 counts as 1), or the job
  // would not fit in an idle cluster. kAlreadyExists: a job with this id waits or runs.
  [[nodiscard]] absl::Status submit(const job_request& r, time_ms now) {
    APIARY_ASSIGN_OR_RETURN(record* const added, jobs_.add(r, r.estimate));
    added->key = now;
    wait(*added, now);
    return absl::OkStatus();
  }
  // The job has ended, or its owner cancels it before it starts. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, time_ms now) {
    APIARY_ASSIGN_OR_RETURN(record* const r, jobs_.find(job));
    if (r->running) {
      APIARY_RETURN_IF_ERROR(stop(*r));
      profile_.give(now, r->ends, r->request.gpus);
      move_up_ = move_up_ || now < r->ends;
    } else {
      jobs_.leave(*r, now);
      unreserved_.erase({r->key, job.value});
      tried_.erase({r->key, job.value});
      set_start(*r, max_time);
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
    extend_late_jobs(now);
    rebuild_ = rebuild_ || (!starts_.empty() && starts_.begin()->first < now);
    if (rebuild_) {
      start_over(now);
    } else {
      profile_.forget_before(now);
      if (move_up_) {
        APIARY_RETURN_IF_ERROR(take_unreserved());
        while (move_up(now)) {
        }
      }
    }
    APIARY_RETURN_IF_ERROR(reserve(now));
    move_up_ = rebuild_ = false;
    jobs_.queues().begin_round();
    while (!starts_.empty() && starts_.begin()->first <= now) {
      APIARY_RETURN_IF_ERROR(start(jobs_[job_id(starts_.begin()->second)], now, actions));
      if (starts_.empty() || starts_.begin()->first > now) APIARY_RETURN_IF_ERROR(reserve(now));
    }
    jobs_.queues().end_round(placer().idle_gpus(), delay_cause::order, now);
    return absl::OkStatus();
  }
  // When decide() must be called: at the next reservation, or when a running job should have ended.
  [[nodiscard]] time_ms wake() const noexcept {
    if (num_waiting() == 0) return max_time;
    const auto end = ends_.first();
    return (std::min)(starts_.empty() ? max_time : starts_.begin()->first,
                      end ? end->key : max_time);
  }

  // When the job will start, by the estimates; nullopt: it does not wait. max_time: it has no
  // reservation, because it does not fit on the healthy servers, or only after the end of a job
  // without an estimate, or because it is beyond the depth.
  [[nodiscard]] std::optional<time_ms> reserved(job_id job) const {
    const record* const found = jobs_.look_up(job);
    if (found == nullptr || found->running) return std::nullopt;
    return found->reserved;
  }
  // The number of waiting jobs.
  [[nodiscard]] std::size_t num_waiting() const noexcept { return jobs_.queues().size(); }
  // The number of running jobs.
  [[nodiscard]] std::size_t num_running() const noexcept { return jobs_.num_running(); }
  // All GPUs, including those on bad servers.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return placer().total_gpus(); }
  // The placer, with the jobs that run.
  [[nodiscard]] const P& placer() const noexcept { return jobs_.placer(); }

 private:
  struct record : booked_job<P> {
    time_ms reserved = max_time;  // its start; max_time: unknown
    bool fits = true;             // on the healthy servers when no job runs, as far as it was asked
    time_ms started = 0;
    time_ms ends = 0;  // by the estimate
  };
  using key_and_id = std::pair<std::int64_t, std::uint32_t>;

  // For how long it needs its GPUs.
  [[nodiscard]] static time_ms length_of(const record& r) {
    return (std::max<time_ms>)(1, r.estimate);
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
  // The job is to start then, and no longer at its reserved time.
  void set_start(record& r, time_ms at) {
    const std::uint32_t gpus = r.request.gpus;
    if (r.reserved != max_time) {
      profile_.give(r.reserved, add_time(r.reserved, length_of(r)), gpus);
      starts_.erase({r.reserved, r.request.job.value});
    }
    r.reserved = at;
    if (at == max_time) return;
    profile_.take(at, add_time(at, length_of(r)), gpus);
    starts_.emplace(at, r.request.job.value);
  }
  // Running jobs that should have ended are taken to run as long again.
  void extend_late_jobs(time_ms now) {
    while (const auto late = ends_.first()) {
      if (late->key > now) break;
      record& r = jobs_[job_id(late->id)];
      ends_.erase(late->key, late->id);
      r.ends = add_time(now, (std::max<time_ms>)(1, now - r.started));
      ends_.insert({r.ends, late->id, r.request.gpus});
      rebuild_ = true;
    }
  }
  // Each job that was tried takes the earliest start, in order. Returns whether one has moved.
  bool move_up(time_ms now) {
    bool moved = false;
    for (const key_and_id& at : tried_) {
      record& r = jobs_[job_id(at.second)];
      if (!r.fits) continue;
      const time_ms earlier = profile_.earliest(now, length_of(r), r.request.gpus, r.reserved);
      if (earlier >= r.reserved) continue;
      set_start(r, earlier);
      moved = true;
    }
    return moved;
  }
  // Whether the job fits on the healthy servers when no job runs.
  [[nodiscard]] absl::StatusOr<bool> fits_idle(const record& r) {
    if (bad_.empty()) return true;  // as check() said
    const auto known = fits_idle_.find(r.kind);
    if (known != fits_idle_.end()) return known->second;
    if (!idle_) {
      P idle = placer();
      for (auto i = ends_.first(); i; i = ends_.next(i->key, i->id))
        APIARY_RETURN_IF_ERROR(idle.finish(job_id(i->id)));
      idle_.emplace(std::move(idle));
    }
    APIARY_ASSIGN_OR_RETURN(const std::optional<job_placement> where, idle_->propose(r.request));
    return fits_idle_[r.kind] = where.has_value();
  }
  // Whether one more job may get a reservation, if so many others get one.
  [[nodiscard]] bool may_reserve(std::size_t others = 0) const noexcept {
    return !unreserved_.empty() &&
           (options_.depth == 0 || starts_.size() + others < options_.depth);
  }
  // Takes the first job out of unreserved_. Returns it.
  [[nodiscard]] absl::StatusOr<record*> take_first() {
    record& r = jobs_[job_id(unreserved_.begin()->second)];
    APIARY_ASSIGN_OR_RETURN(r.fits, fits_idle(r));
    tried_.insert(unreserved_.extract(unreserved_.begin()));
    return &r;
  }
  // Takes the first jobs, as many as may get reservations.
  [[nodiscard]] absl::Status take_unreserved() {
    std::size_t fresh = 0;
    while (may_reserve(fresh)) {
      APIARY_ASSIGN_OR_RETURN(const record* const first, take_first());
      fresh += first->fits ? 1 : 0;
    }
    return absl::OkStatus();
  }
  // Makes reservations for the first jobs, until as many as may have one do.
  [[nodiscard]] absl::Status reserve(time_ms now) {
    while (may_reserve()) {
      APIARY_ASSIGN_OR_RETURN(record* const first, take_first());
      if (first->fits)
        set_start(*first, profile_.earliest(now, length_of(*first), first->request.gpus));
    }
    return absl::OkStatus();
  }
  // Withdraws all reservations; only the running jobs have GPUs. Jobs for which no start was sought
  // are not read.
  void start_over(time_ms now) {
    profile_ = detail::gpu_profile(placer().idle_gpus(), now);
    for (auto at = ends_.first(); at; at = ends_.next(at->key, at->id))
      profile_.give(at->key, max_time, at->weight);
    for (const key_and_id& at : starts_) jobs_[job_id(at.second)].reserved = max_time;
    starts_.clear();
    unreserved_.merge(tried_);
  }

  [[nodiscard]] absl::Status start(record& r, time_ms now, std::vector<job_action>& actions) {
    APIARY_ASSIGN_OR_RETURN(const bool started, jobs_.start(r, now, actions));
    set_start(r, max_time);
    if (!started) {
      const time_ms change = profile_.next_change(now);
      if (change != max_time) set_start(r, profile_.earliest(change, length_of(r), r.request.gpus));
      move_up_ = true;  // the next decide() tries again
      return absl::OkStatus();
    }
    tried_.erase({r.key, r.request.job.value});
    r.started = now;
    r.ends = add_time(now, length_of(r));
    profile_.take(now, r.ends, r.request.gpus);
    ends_.insert({r.ends, r.request.job.value, r.request.gpus});
    return absl::OkStatus();
  }

  job_book<P, record> jobs_;
  detail::gpu_profile profile_;  // the free GPUs beside running jobs and reservations
  conservative_options options_;
  weighted_tree ends_;  // ends of running jobs, with their GPUs as weights
  // Waiting jobs by arrival: those for which no start was sought yet, and the others, which have a
  // reservation, an unknown start, or do not fit on the healthy servers.
  std::set<key_and_id> unreserved_, tried_;
  std::set<key_and_id> starts_;  // reserved times of waiting jobs
  bool move_up_ = false;         // reservations may move earlier
  bool rebuild_ = false;         // all reservations must be made again
  std::set<std::uint32_t> bad_;  // broken servers; while there are any:
  std::optional<P> idle_;        // the placer without the running jobs, since the servers changed
  std::map<typename P::kind, bool> fits_idle_;  // whether a job of this kind fits there
};

APIARY_NAMESPACE_END
