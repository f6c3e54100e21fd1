// apiary/sched/batch_queue.h - jobs that run to their end, first come first served or backfilled.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/core/weighted_tree.h>
#include <apiary/model/job_request.h>
#include <apiary/sched/job_placer.h>
#include <apiary/sched/wait_lines.h>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

enum class batch_rule : std::uint8_t {
  fifo,      // nobody passes the first one
  backfill,  // whoever fits starts, in order; the first one may wait for ever
  easy,      // whoever fits starts, unless the first one would start later for it
};

struct batch_options {
  batch_rule rule = batch_rule::easy;
  // A job is treated as if it had come priority * ageing earlier: with time everyone becomes first.
  tick_t ageing = 0;
};

// Decides which job starts when; a placer says where. Jobs run until the host says that they ended.
//
// Order:    by arrival less priority * ageing, then by job id. The order of two jobs never changes,
//           so that ageing costs nothing.
// Model:    EASY is Lifka, "The ANL/IBM SP scheduling system" (JSSPP 1995): the first job has a
//           reservation at the moment when, by the estimates, enough GPUs will be idle for it;
//           others start if they end before or leave it enough. It is kept where any GPUs will do
//           and no job runs longer than its estimate; where places matter it counts GPUs only.
// Requires: times >= 0 that never go back; |priority| * ageing and times below 2^61. decide() after
//           each moment at which something was submitted, ended, broke or was repaired.
// Cost:     a call O(log jobs) in the order; decide a search of the lines (sched/wait_lines.h) and
//           a proposal for each job that starts, and as many for lines without a place.
// Example:  examples/job_queues.cpp
template <JobPlacer Placer>
class batch_queue {
 public:
  // When the first job will start by the estimates; forever if that is unknown.
  struct reservation {
    job_id job{};
    tick_t at = forever;
    std::uint32_t spare = 0;  // GPUs that it leaves idle then
    friend bool operator==(const reservation&, const reservation&) noexcept = default;
  };

  explicit batch_queue(Placer placer, batch_options options = {})
      : placer_(std::move(placer)), options_(options) {}

  // kInvalidArgument: no job id, a negative estimate, or it fits not even into the empty cluster.
  // kAlreadyExists: a job of this id is here.
  [[nodiscard]] absl::Status submit(const job_request& r, tick_t now) {
    if (!r.job.valid()) return absl::InvalidArgumentError("a job needs an id");
    if (r.estimate < 0) {
      return absl::InvalidArgumentError(name(r.job) + ": estimate " + std::to_string(r.estimate));
    }
    APIARY_RETURN_IF_ERROR(placer_.check(r));
    const auto [at, is_new] = jobs_.try_emplace(r.job.value);
    if (!is_new) return absl::AlreadyExistsError(name(r.job) + " is here already");
    at->second.request = r;
    at->second.key = now - r.priority * options_.ageing;
    at->second.entered = lines_.enter(r, at->second.key, now);
    return absl::OkStatus();
  }

  // The job has ended, or is withdrawn before it started. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, tick_t now) {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return absl::NotFoundError("there is no " + name(job));
    record& r = found->second;
    if (r.running) {
      APIARY_RETURN_IF_ERROR(stop(r));
    } else {
      lines_.leave(r.request, r.key, r.entered, now);
    }
    jobs_.erase(found);
    return absl::OkStatus();
  }

  // The server is broken: what runs there stops and waits again, at its old place in the order. The
  // jobs that stopped, ascending. kNotFound: no such server.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, tick_t now) {
    APIARY_RETURN_IF_ERROR(placer_.mark_bad(n));
    std::vector<job_id> stopped = placer_.jobs_on(n);
    for (const job_id job : stopped) {
      record& r = jobs_.at(job.value);
      APIARY_RETURN_IF_ERROR(stop(r));
      r.entered = lines_.enter(r.request, r.key, now);
    }
    return stopped;
  }
  [[nodiscard]] absl::Status mark_healthy(node_id n, tick_t /*now*/) {
    return placer_.mark_healthy(n);
  }

  // Starts what may start now: appends to `actions`, which the host carries out; all are taken here
  // already. An error only where the placer answers one of its own.
  [[nodiscard]] absl::Status decide(tick_t now, std::vector<job_action>& actions) {
    lines_.begin_round();
    reserved_.reset();
    while (const std::optional<wait_lines::entry> first = lines_.first()) {
      APIARY_ASSIGN_OR_RETURN(const bool started, start(*first, now, actions));
      if (!started) break;
    }
    const std::optional<wait_lines::entry> first = lines_.first();
    if (first && options_.rule == batch_rule::backfill) {
      APIARY_RETURN_IF_ERROR(fill(now, actions, [](std::uint32_t) { return forever; }));
    } else if (first && options_.rule == batch_rule::easy) {
      reserved_ = reserve(*first, now);
      const auto longest = [&](std::uint32_t gpus) {
        if (gpus <= reserved_->spare || reserved_->at == forever) return forever;
        return reserved_->at - now;
      };
      APIARY_RETURN_IF_ERROR(fill(now, actions, longest));
    }
    lines_.end_round(placer_.idle_gpus(), delay_cause::order, now);
    return absl::OkStatus();
  }
  // When decide() wants to be called although nothing happens.
  [[nodiscard]] tick_t wake() const noexcept { return forever; }

  // What the last decide() reserved, easy only; nullopt when nobody waited.
  [[nodiscard]] const std::optional<reservation>& reserved() const noexcept { return reserved_; }
  [[nodiscard]] std::size_t num_waiting() const noexcept { return lines_.size(); }
  [[nodiscard]] std::size_t num_running() const noexcept { return jobs_.size() - lines_.size(); }
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return placer_.total_gpus(); }
  [[nodiscard]] const Placer& placer() const noexcept { return placer_; }

 private:
  struct record {
    job_request request{};
    std::int64_t key = 0;
    delays entered{};  // reading of the line's clock
    tick_t ends = 0;   // by the estimate
    bool running = false;
  };

  [[nodiscard]] static std::string name(job_id job) { return "job " + std::to_string(job.value); }

  [[nodiscard]] absl::Status stop(record& r) {
    APIARY_RETURN_IF_ERROR(placer_.finish(r.request.job));
    ends_.erase(r.ends, r.request.job.value);
    r.running = false;
    return absl::OkStatus();
  }

  // Starts the job if it has a place; otherwise its line has failed.
  [[nodiscard]] absl::StatusOr<bool> start(const wait_lines::entry& e, tick_t now,
                                           std::vector<job_action>& actions) {
    if (e.gpus > placer_.idle_gpus()) return false;
    record& r = jobs_.at(e.job.value);
    absl::StatusOr<job_place> place = placer_.propose(r.request);
    if (absl::IsResourceExhausted(place.status())) {
      lines_.fail(e.gpus);
      return false;
    }
    APIARY_RETURN_IF_ERROR(place.status());
    APIARY_RETURN_IF_ERROR(placer_.commit(r.request, *place));
    const delays waited = lines_.leave(r.request, r.key, r.entered, now);
    r.running = true;
    r.ends = later_by(now, r.request.estimate);
    ends_.insert({r.ends, e.job.value, e.gpus});
    actions.push_back({job_action::verb::start, e.job, *std::move(place), waited});
    return true;
  }

  // Starts, in order, what has a place and an estimate of at most longest(GPUs).
  template <class Longest>
  [[nodiscard]] absl::Status fill(tick_t now, std::vector<job_action>& actions, Longest longest) {
    while (const auto next = lines_.first_that_may(placer_.idle_gpus(), longest)) {
      APIARY_ASSIGN_OR_RETURN(const bool started, start(*next, now, actions));
      if (!started || !reserved_) continue;
      if (jobs_.at(next->job.value).ends > reserved_->at) reserved_->spare -= next->gpus;
    }
    return absl::OkStatus();
  }

  // When, by the estimates, the job's GPUs will be idle. What should have ended ends now.
  [[nodiscard]] reservation reserve(const wait_lines::entry& e, tick_t now) const {
    const std::int64_t idle = placer_.idle_gpus();
    reservation r{e.job, now, 0};
    if (idle < e.gpus) {
      const std::optional<weighted_tree::reached> end = ends_.reach(e.gpus - idle);
      if (!end) return {e.job, forever, 0};
      r.at = std::max(now, end->at.key);
    }
    r.spare = static_cast<std::uint32_t>(idle + ends_.sum_to(r.at) - e.gpus);
    return r;
  }

  Placer placer_;
  batch_options options_;
  absl::flat_hash_map<std::uint32_t, record> jobs_;
  wait_lines lines_;
  weighted_tree ends_;  // of running jobs, weighed by their GPUs
  std::optional<reservation> reserved_;
};

APIARY_NAMESPACE_END
