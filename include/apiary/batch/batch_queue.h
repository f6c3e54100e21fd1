// apiary/batch/batch_queue.h - jobs that run to their end, first come first served or backfilled.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/batch/detail/job_book.h>
#include <apiary/batch/detail/wait_queues.h>
#include <apiary/batch/job_placer.h>
#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

enum class batch_rule : std::uint8_t {
  fifo,         // nobody passes the first one
  backfill,     // whoever fits starts, in order; the first one may wait for ever
  easy,         // whoever fits starts, unless the first one would start later for it
  easy_places,  // the same where places matter: the first one's place is reserved, too
};

struct batch_options {
  batch_rule rule = batch_rule::easy;
  // A job is treated as if it had come priority * ageing earlier: with time everyone becomes first.
  time_ms aging = 0;
};

// Decides which job starts when; a placer says where. Jobs run until the host says that they ended.
//
// Order:    by arrival less priority * ageing, then by job id. The order of two jobs never changes,
//           so that ageing costs nothing.
// Model:    EASY is Lifka, "The ANL/IBM SP scheduling system" (JSSPP 1995): the first job has a
//           reservation at the moment when, by the estimates, enough GPUs will be idle for it;
//           others start if they end before or leave it enough. It is kept where any GPUs will do
//           and no job runs longer than its estimate; where places matter it counts GPUs only.
//           With easy_places it is the moment when the placer would have a place for the first job,
//           and others start if they end before or would not get any of that place; it is kept
//           wherever no job runs longer than its estimate and no server breaks.
// Requires: times >= 0 that never go back; |priority| * ageing and times below 2^61. decide() after
//           each moment at which something was submitted, ended, broke or was repaired.
// Cost:     a call O(log jobs) in the order; decide a search of the lines (batch/detail/wait_queues.h) and
//           a proposal for each job that starts, and as many for lines without a place. With
//           easy_places as many for each job that starts, a copy of the placer, finish() of the
//           jobs that end before, and a proposal for each moment at which one does.
// Example:  examples/job_queues.cpp
template <JobPlacer Placer>
class batch_queue {
 public:
  // When the first job will start by the estimates; forever if that is unknown.
  struct reservation {
    job_id job{};
    time_ms at = forever;
    std::uint32_t spare = 0;  // GPUs that it leaves idle then
    friend bool operator==(const reservation&, const reservation&) noexcept = default;
  };

  explicit batch_queue(Placer placer, batch_options options = {})
      : jobs_(std::move(placer)), options_(options) {}

  // kInvalidArgument: no job id, a negative estimate, or it fits not even into the empty cluster.
  // kAlreadyExists: a job of this id is here.
  [[nodiscard]] absl::Status submit(const job_request& r, time_ms now) {
    APIARY_ASSIGN_OR_RETURN(record* const added, jobs_.add(r, 0, forever));
    added->key = now - r.priority * options_.aging;
    jobs_.wait(*added, now);
    return absl::OkStatus();
  }

  // The job has ended, or is withdrawn before it started. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, time_ms now) {
    APIARY_ASSIGN_OR_RETURN(record* const r, jobs_.find(job));
    if (r->running) {
      APIARY_RETURN_IF_ERROR(stop(*r));
    } else {
      jobs_.leave(*r, now);
    }
    jobs_.forget(job);
    return absl::OkStatus();
  }

  // The server is broken: what runs there stops and waits again, at its old place in the order. The
  // jobs that stopped, ascending. kNotFound: no such server.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms now) {
    return jobs_.mark_bad(n, [&](record& r) {
      APIARY_RETURN_IF_ERROR(stop(r));
      jobs_.wait(r, now);
      return absl::OkStatus();
    });
  }
  [[nodiscard]] absl::Status mark_healthy(node_id n, time_ms /*now*/) {
    return jobs_.mark_healthy(n);
  }

  // Starts what may start now: appends to `actions`, which the host carries out; all are taken here
  // already. An error only where the placer answers one of its own.
  [[nodiscard]] absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    jobs_.lines().begin_round();
    reserved_.reset();
    while (const std::optional<detail::wait_queues::entry> first = jobs_.lines().first()) {
      APIARY_ASSIGN_OR_RETURN(const bool started, start(*first, now, actions));
      if (!started) break;
    }
    const std::optional<detail::wait_queues::entry> first = jobs_.lines().first();
    if (first && options_.rule == batch_rule::backfill) {
      APIARY_RETURN_IF_ERROR(fill(now, actions, [](std::uint32_t) { return forever; }));
    } else if (first && options_.rule == batch_rule::easy) {
      reserved_ = reserve(*first, now);
      const auto longest = [&](std::uint32_t gpus) {
        if (gpus <= reserved_->spare || reserved_->at == forever) return forever;
        return reserved_->at - now;
      };
      APIARY_RETURN_IF_ERROR(fill(now, actions, longest));
    } else if (first && options_.rule == batch_rule::easy_places) {
      APIARY_RETURN_IF_ERROR(fill_around(*first, now, actions));
    }
    jobs_.lines().end_round(placer().idle_gpus(), delay_cause::order, now);
    return absl::OkStatus();
  }
  // When decide() wants to be called although nothing happens.
  [[nodiscard]] time_ms wake() const noexcept { return forever; }

  // What the last decide() reserved, easy and easy_places only; nullopt when nobody waited.
  [[nodiscard]] const std::optional<reservation>& reserved() const noexcept { return reserved_; }
  [[nodiscard]] std::size_t num_waiting() const noexcept { return jobs_.lines().size(); }
  [[nodiscard]] std::size_t num_running() const noexcept { return jobs_.num_running(); }
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return placer().total_gpus(); }
  [[nodiscard]] const Placer& placer() const noexcept { return jobs_.placer(); }

 private:
  struct record : detail::booked_job {
    time_ms ends = 0;  // by the estimate
  };

  [[nodiscard]] absl::Status stop(record& r) {
    APIARY_RETURN_IF_ERROR(jobs_.stop(r));
    ends_.erase(r.ends, r.request.job.value);
    return absl::OkStatus();
  }

  // Starts the job if it has a place; otherwise its line has failed.
  [[nodiscard]] absl::StatusOr<bool> start(const detail::wait_queues::entry& e, time_ms now,
                                           std::vector<job_action>& actions) {
    return start(e, now, actions, [](const job_placement&) { return true; });
  }
  // The same, if accept(place).
  template <class Accept>
  [[nodiscard]] absl::StatusOr<bool> start(const detail::wait_queues::entry& e, time_ms now,
                                           std::vector<job_action>& actions, Accept&& accept) {
    if (e.gpus > placer().idle_gpus()) return false;
    record& r = jobs_[e.job];
    APIARY_ASSIGN_OR_RETURN(const bool started, jobs_.start(r, now, actions, accept));
    if (!started) return false;
    r.ends = later_by(now, r.request.estimate);
    ends_.insert({r.ends, e.job.value, e.gpus});
    return true;
  }

  // Starts, in order, what has a place and an estimate of at most longest(GPUs).
  template <class Longest>
  [[nodiscard]] absl::Status fill(time_ms now, std::vector<job_action>& actions, Longest longest) {
    while (const auto next = jobs_.lines().first_that_may(placer().idle_gpus(), longest)) {
      APIARY_ASSIGN_OR_RETURN(const bool started, start(*next, now, actions));
      if (!started || !reserved_) continue;
      if (jobs_[next->job].ends > reserved_->at) reserved_->spare -= next->gpus;
    }
    return absl::OkStatus();
  }

  // When, by the estimates, the job's GPUs will be idle. What should have ended ends now.
  [[nodiscard]] reservation reserve(const detail::wait_queues::entry& e, time_ms now) const {
    const std::int64_t idle = placer().idle_gpus();
    reservation r{e.job, now, 0};
    if (idle < e.gpus) {
      const std::optional<weighted_tree::reached> end = ends_.reach(e.gpus - idle);
      if (!end) return {e.job, forever, 0};
      r.at = (std::max)(now, end->at.key);
    }
    r.spare = static_cast<std::uint32_t>(idle + ends_.sum_to(r.at) - e.gpus);
    return r;
  }

  // Reserves a place for the first job; starts, in order, what has one and either ends before or
  // keeps off it.
  [[nodiscard]] absl::Status fill_around(const detail::wait_queues::entry& first, time_ms now,
                                         std::vector<job_action>& actions) {
    Placer then = placer();  // becomes what is there at that moment
    APIARY_ASSIGN_OR_RETURN(reserved_, reserve_place(first, now, then));
    std::vector<std::uint32_t> in_the_way;  // numbers of GPUs
    const auto longest = [&](std::uint32_t gpus) {
      const auto end = in_the_way.end();
      return std::find(in_the_way.begin(), end, gpus) == end ? forever : reserved_->at - now;
    };
    while (const auto next = jobs_.lines().first_that_may(placer().idle_gpus(), longest)) {
      const job_request& r = jobs_[next->job].request;
      const auto accept = [&](const job_placement& place) {
        if (later_by(now, r.estimate) <= reserved_->at) return true;
        if (then.commit(r, place).ok()) {
          reserved_->spare = then.idle_gpus();
          return true;
        }
        in_the_way.push_back(r.gpus);
        return false;
      };
      APIARY_ASSIGN_OR_RETURN(const bool started, start(*next, now, actions, accept));
      if (started) in_the_way.clear();  // others may be sent elsewhere now
    }
    return absl::OkStatus();
  }
  // When, by the estimates, there will be a place for the job; it runs there in `then`.
  [[nodiscard]] absl::StatusOr<reservation> reserve_place(const detail::wait_queues::entry& e,
                                                          time_ms now, Placer& then) {
    const job_request& r = jobs_[e.job].request;
    const time_ms earliest = reserve(e, now).at;
    std::optional<weighted_tree::item> end = ends_.first();
    while (end) {
      const time_ms at = (std::max)(now, end->key);
      for (; end && end->key <= at; end = ends_.next(end->key, end->id)) {
        APIARY_RETURN_IF_ERROR(then.finish(job_id(end->id)));
      }
      if (at < earliest) continue;
      const absl::StatusOr<job_placement> place = then.propose(r);
      if (absl::IsResourceExhausted(place.status())) continue;
      APIARY_RETURN_IF_ERROR(place.status());
      APIARY_RETURN_IF_ERROR(then.commit(r, *place));
      return reservation{e.job, at, then.idle_gpus()};
    }
    return reservation{e.job, forever, 0};
  }

  detail::job_records<Placer, record> jobs_;
  batch_options options_;
  weighted_tree ends_;  // of running jobs, weighed by their GPUs
  std::optional<reservation> reserved_;
};

APIARY_NAMESPACE_END
