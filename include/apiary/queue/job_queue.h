// apiary/queue/job_queue.h - jobs that run to their end, with any placer, order and reservation.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/model/placer.h>
#include <apiary/model/plan.h>
#include <apiary/queue/book.h>
#include <apiary/queue/kinds.h>
#include <apiary/queue/orders.h>
#include <apiary/queue/reservations.h>
#include <apiary/queue/stop.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A queue of jobs that run to their end: the order says which job is first, the reservation which
// others may start before it, and the placer where a job runs. It is a JobScheduler.
//
//   job_queue queue(server_placer::create({.gpus = {8, 8}}).value(), arrival_order(), first_fit());
//
// If the placer lets jobs give way to others (PreemptingPlacer), a job that starts suspends them;
// they wait again at their old position.
//
// Requires: times >= 0 that never decrease; decide() after each time at which a job was submitted
//           or ended, or a server broke or was repaired.
// Cost:     a call O(log jobs). decide: O(log jobs) for each kind (see Placer) that waits, O(log
//           jobs) and a proposal for each job that starts, and a proposal for each kind that does
//           not fit; and what the reservation takes.
// Example:  examples/own_queue.cpp; queue/policies.h has names for the usual combinations
template <JobPlacer P, JobOrder Order, class Reservation>
class job_queue {
  using record = queued_job<P>;

 public:
  // A position in the order.
  using entry = typename kind_queues<typename P::kind>::entry;

  // A queue over a placer on which no job runs.
  explicit job_queue(P placer, Order order = {}, Reservation reservation = {})
      : jobs_(std::move(placer)), order_(std::move(order)), reservation_(std::move(reservation)) {}

  // A job arrives. kInvalidArgument: no job id, a negative estimate, or the job would not fit in an
  // idle cluster. kAlreadyExists: a job with this id waits or runs.
  [[nodiscard]] absl::Status submit(const job_request& r, time_ms now) {
    APIARY_ASSIGN_OR_RETURN(record* const added, jobs_.add(r, r.estimate));
    added->key = order_.position(r, now);
    jobs_.wait(*added, now);
    return absl::OkStatus();
  }
  // The job has ended, or its owner cancels it. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, time_ms now) {
    APIARY_ASSIGN_OR_RETURN(record* const r, jobs_.find(job));
    if (r->running) {
      APIARY_RETURN_IF_ERROR(stop(*r, now));
    } else {
      jobs_.leave(*r, now);
      reservation_.withdrawn();
      if (held_.job == job) held_ = {};
    }
    jobs_.forget(job);
    return absl::OkStatus();
  }

  // The server is broken. Its jobs wait again, at their old position in the order. Returns them,
  // ascending. kNotFound: there is no such server.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms now) {
    APIARY_ASSIGN_OR_RETURN(std::vector<job_id> stopped,
                            jobs_.mark_bad(n, [&](record& r) { return stop_and_wait(r, now); }));
    if (jobs_.servers_changed()) reservation_.servers_changed();
    return stopped;
  }
  // The server is repaired. kNotFound: there is no such server.
  [[nodiscard]] absl::Status mark_healthy(node_id n, time_ms /*now*/) {
    APIARY_RETURN_IF_ERROR(jobs_.mark_healthy(n));
    if (jobs_.servers_changed()) reservation_.servers_changed();
    return absl::OkStatus();
  }

  // Starts every job that may start now. Appends the actions to `actions`; the queue has applied
  // them, and the host carries them out. An error only if the placer returns one; no job is lost
  // then.
  [[nodiscard]] absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    if constexpr (requires { jobs_.placer().set_time(now); }) jobs_.placer().set_time(now);
    jobs_.queues().begin_round();
    const first_waits held = end_hold(now);
    const absl::Status done = start_jobs(round(*this, actions), now);
    if (!done.ok()) {  // the job waits for GPUs as before
      const record* const r = jobs_.look_up(held.job);
      if (r != nullptr && !r->running) held_ = held;
      return done;
    }
    if (Reservation::only_first_waits_for_gpus) {
      jobs_.queues().set_causes([](const auto&, bool) { return delay_cause::order; }, now);
    } else {
      jobs_.queues().end_round(placer().idle_gpus(), delay_cause::order, now);
    }
    return absl::OkStatus();
  }
  // When decide() must be called even if nothing happens: never.
  [[nodiscard]] time_ms wake() const noexcept { return max_time; }
  // The number of waiting jobs.
  [[nodiscard]] std::size_t num_waiting() const noexcept { return jobs_.queues().size(); }
  // The number of running jobs.
  [[nodiscard]] std::size_t num_running() const noexcept { return jobs_.num_running(); }
  // All GPUs, including those on bad servers.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return placer().total_gpus(); }
  // The placer, with the jobs that run.
  [[nodiscard]] const P& placer() const noexcept { return jobs_.placer(); }
  // What the reservation knows.
  [[nodiscard]] const Reservation& reservations() const noexcept { return reservation_; }
  // Whether a job waited after the last decide(), which was no error.
  [[nodiscard]] bool blocked() const noexcept { return blocked_; }

  // The queue in a decision, as a reservation sees it.
  class round {
   public:
    using entry = job_queue::entry;  // a position in the order

    // A decision that appends to `actions`.
    round(job_queue& queue, std::vector<job_action>& actions)
        : all_(&queue),
          actions_(&actions),
          first_action_(static_cast<std::ptrdiff_t>(actions.size())) {}
    // The placer, with the jobs that run.
    [[nodiscard]] const P& placer() const noexcept { return all_->placer(); }
    // The waiting jobs.
    [[nodiscard]] kind_queues<typename P::kind>& queues() const noexcept {
      return all_->jobs_.queues();
    }
    // The ends of the running jobs, by their estimates, with their GPUs as weights.
    [[nodiscard]] const weighted_tree& ends() const noexcept { return all_->ends_; }
    // The record of a job. Requires: there is such a job.
    [[nodiscard]] record& record_of(job_id job) const { return all_->jobs_[job]; }
    // The record of a running job; null: it does not run.
    [[nodiscard]] record* running(job_id job) const {
      record* const r = all_->jobs_.look_up(job);
      return r != nullptr && r->running ? r : nullptr;
    }
    // The next job that may fit on idle GPUs: as kind_queues::first_that_may.
    template <class Limit>
    [[nodiscard]] std::optional<entry> next_that_may(Limit&& limit) const {
      return queues().first_that_may(placer().idle_gpus(), limit);
    }
    // The next job that may fit, with a PreemptingPlacer also on GPUs that others use.
    [[nodiscard]] std::optional<entry> next_that_may() const {
      return queues().first_that_may(PreemptingPlacer<P> ? placer().total_gpus()
                                                         : placer().idle_gpus());
    }
    // Starts the job if it fits on idle GPUs and accept(placement) is true. Returns whether it has
    // started. If it does not fit, its kind fails in this round.
    template <class Accept>
    [[nodiscard]] absl::StatusOr<bool> start(const entry& e, time_ms now, Accept&& accept) const {
      if (e.kind.gpus > placer().idle_gpus()) {
        queues().fail(e.kind);
        return false;
      }
      record& r = record_of(e.job);
      APIARY_ASSIGN_OR_RETURN(const bool started, all_->jobs_.start(r, now, *actions_, accept));
      if (started) note_start(r, now);
      return started;
    }
    // Starts the job if it fits. With a PreemptingPlacer, other jobs give way.
    [[nodiscard]] absl::StatusOr<bool> start(const entry& e, time_ms now) const {
      if constexpr (PreemptingPlacer<P>) {
        return start_preempting(e, now);
      } else {
        return start(e, now, [](const job_placement&) { return true; });
      }
    }

   private:
    [[nodiscard]] absl::StatusOr<bool> start_preempting(const entry& e, time_ms now) const {
      record& r = record_of(e.job);
      P& below = all_->jobs_.placer();
      APIARY_ASSIGN_OR_RETURN(placer_answer<job_placement> plan,
                              below.propose_preempting(r.request));
      const bool preempts = plan.result == plan_result::preempt;
      if (preempts) {
        APIARY_RETURN_IF_ERROR(below.reserve(e.job));
        queues().begin_round();  // other kinds may fit beside the victims' GPUs
        APIARY_ASSIGN_OR_RETURN(plan,
                                place_after(below, r.request, plan.victims,
                                            [&](job_id victim) { return suspend(victim, now); }));
      }
      if (plan.result != plan_result::bind) {
        queues().fail(e.kind);
        return false;
      }
      const absl::Status done = all_->jobs_.start_at(r, std::move(plan.where), now, *actions_);
      if (!done.ok() && preempts) (void)below.finish(e.job);
      APIARY_RETURN_IF_ERROR(done);
      note_start(r, now);
      return true;
    }
    // The job, whose start is the last action, runs now.
    void note_start(record& r, time_ms now) const {
      r.where = actions_->back().where;
      actions_->back().waited += std::exchange(r.waited, {});
      r.ends = add_time(now, r.estimate);
      all_->ends_.insert({r.ends, r.request.job.value, r.request.gpus});
      all_->reservation_.started(r);
      if constexpr (requires { all_->order_.started(r.key); }) all_->order_.started(r.key);
    }
    // A running job gives way. One that has started in this decision has not started at all.
    [[nodiscard]] absl::Status suspend(job_id victim, time_ms now) const {
      record& r = record_of(victim);
      APIARY_RETURN_IF_ERROR(all_->stop_and_wait(r, now));
      const auto began = std::find_if(actions_->begin() + first_action_, actions_->end(),
                                      [&](const job_action& a) {
                                        return a.job == victim && a.what == job_action::verb::start;
                                      });
      if (began == actions_->end()) {
        actions_->push_back({job_action::verb::suspend, victim, {}, {}});
      } else {
        r.waited += began->waited;
        actions_->erase(began);
      }
      return absl::OkStatus();
    }

    job_queue* all_;
    std::vector<job_action>* actions_;
    std::ptrdiff_t first_action_;  // of this decision
  };

 private:
  // The first job after a decision, if it alone waits for GPUs.
  struct first_waits {
    job_id job{};
    time_ms since = 0;
    delay_cause cause{};
  };

  [[nodiscard]] absl::Status stop(record& r, time_ms now) {
    APIARY_RETURN_IF_ERROR(jobs_.stop(r));
    ends_.erase(r.ends, r.request.job.value);
    reservation_.ended(r, now);
    return absl::OkStatus();
  }
  [[nodiscard]] absl::Status stop_and_wait(record& r, time_ms now) {
    APIARY_RETURN_IF_ERROR(stop(r, now));
    jobs_.wait(r, now);
    return absl::OkStatus();
  }

  // Starts every job that may start now.
  [[nodiscard]] absl::Status start_jobs(const round& q, time_ms now) {
    blocked_ = false;
    while (const std::optional<entry> first = jobs_.queues().first()) {
      APIARY_ASSIGN_OR_RETURN(const bool started, q.start(*first, now));
      if (started) continue;
      const bool too_few = first->kind.gpus > placer().idle_gpus();
      APIARY_RETURN_IF_ERROR(reservation_.fill(q, *first, now));
      blocked_ = true;
      if (Reservation::only_first_waits_for_gpus)
        held_ = {first->job, now, too_few ? delay_cause::capacity : delay_cause::fragmentation};
      break;
    }
    return absl::OkStatus();
  }
  // The clock of the first job has counted the time since the last decision as one of waiting for
  // other jobs; see reservation_events. Returns what it waits for, from now on.
  first_waits end_hold(time_ms now) {
    first_waits held = std::exchange(held_, {});
    if (!held.job.valid()) return held;
    delays& waited = jobs_[held.job].waited;
    waited[held.cause] += now - held.since;
    waited[delay_cause::order] -= now - held.since;
    held.since = now;
    return held;
  }

  job_book<P, record> jobs_;
  Order order_;
  Reservation reservation_;
  weighted_tree ends_;  // ends of running jobs, with their GPUs as weights
  bool blocked_ = false;
  first_waits held_{};
};

APIARY_NAMESPACE_END
