// apiary/queue/batch_queue.h - FIFO and EASY backfilling: jobs that run to their end.
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
#include <apiary/queue/detail/placer_forecast.h>
#include <apiary/queue/detail/wait_queues.h>
#include <apiary/queue/server_placer.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Options of a batch_queue.
struct batch_options {
  // Which jobs may start before the first job in the queue.
  enum class rules : std::uint8_t {
    fifo,       // none
    backfill,   // every job that fits, in order; the first job may starve
    easy,       // a job that does not delay the first job's reservation of a number of GPUs
    easy_gpus,  // the same, but the reservation is for particular GPUs
  };
  rules rule = rules::easy;  // which jobs may start
  // The order of the jobs; ties by job id.
  enum class orders : std::uint8_t {
    arrival,   // by arrival; with aging, each job becomes the first one
    gpu_time,  // by GPUs * estimate, at most 2^61: shortest service first; long jobs may starve
  };
  orders order = orders::arrival;  // the order of the jobs
  // For orders::arrival: a job counts as if it had arrived priority * aging milliseconds earlier.
  time_ms aging = 0;
};

// A queue of jobs that run to their end: FIFO, first-fit backfilling or EASY backfilling. The queue
// decides when a job starts; the placer decides where. The order of two jobs never changes: by
// arrival time minus priority * aging, or by GPU-time, then by job id.
//
// Model:    EASY is Lifka, "The ANL/IBM SP scheduling system" (JSSPP 1995). The first job has a
//           reservation at the time when, by the estimates, it will fit: with `easy` enough GPUs
//           will be idle, with `easy_gpus` the placer finds GPUs. Another job starts if it ends
//           before that time or leaves these GPUs idle. The page says when a reservation holds.
//           The order by GPU-time is that of Hu et al., "Characterization and prediction of deep
//           learning workloads" (SC 2021), QSSF; the prediction is the job's estimate.
// Requires: times >= 0 that never decrease; |priority| * aging and times below 2^61; decide() after
//           each time at which a job was submitted or ended, or a server broke or was repaired.
// Cost:     a call O(log jobs). decide: O(log jobs) for each kind (GPU count and demand) that waits,
//           O(log jobs) and a proposal for each job that starts, and a proposal for each kind that
//           does not fit. easy_gpus: after each start again a proposal for each kind that was found
//           to delay the first job. It also keeps a copy of the placer at the time of the
//           reservation: a call of the placer for each job that starts or ends, and for each end
//           that this time passes.
// Example:  examples/job_queues.cpp
template <JobPlacer Placer>
class batch_queue {
 public:
  // The start of the first job, by the estimates.
  struct reservation {
    job_id job{};                  // the first job
    time_ms at = max_time;         // max_time: unknown
    std::uint32_t extra_gpus = 0;  // GPUs that stay idle at that time
    friend bool operator==(const reservation&, const reservation&) noexcept = default;
  };

  // A queue over a placer on which no job runs.
  explicit batch_queue(Placer placer, batch_options options = {})
      : jobs_(std::move(placer)), options_(options) {}

  // A job arrives. kInvalidArgument: no job id, a negative estimate, or the job would not fit in an
  // idle cluster. kAlreadyExists: a job with this id waits or runs.
  [[nodiscard]] absl::Status submit(const job_request& r, time_ms now) {
    APIARY_ASSIGN_OR_RETURN(record* const added, jobs_.add(r, 0, max_time));
    constexpr time_ms most = time_ms{1} << 61;
    const time_ms gpu_time = r.estimate < most / r.gpus ? r.estimate * r.gpus : most;
    added->key = options_.order == batch_options::orders::gpu_time
                     ? gpu_time
                     : now - r.priority * options_.aging;
    jobs_.wait(*added, now);
    return absl::OkStatus();
  }
  // The job has ended, or its owner cancels it before it starts. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, time_ms now) {
    APIARY_ASSIGN_OR_RETURN(record* const r, jobs_.find(job));
    if (r->running) {
      APIARY_RETURN_IF_ERROR(stop(*r, now));
    } else {
      jobs_.leave(*r, now);
      forecast_.withdrawn();
    }
    jobs_.forget(job);
    return absl::OkStatus();
  }

  // The server is broken. Its jobs wait again, at their old position in the order. Returns them,
  // ascending. kNotFound: there is no such server.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms now) {
    APIARY_ASSIGN_OR_RETURN(std::vector<job_id> stopped, jobs_.mark_bad(n, [&](record& r) {
      APIARY_RETURN_IF_ERROR(stop(r, now));
      jobs_.wait(r, now);
      return absl::OkStatus();
    }));
    if (jobs_.servers_changed()) forecast_.forget();
    return stopped;
  }
  // The server is repaired. kNotFound: there is no such server.
  [[nodiscard]] absl::Status mark_healthy(node_id n, time_ms /*now*/) {
    APIARY_RETURN_IF_ERROR(jobs_.mark_healthy(n));
    if (jobs_.servers_changed()) forecast_.forget();
    return absl::OkStatus();
  }

  // Starts every job that may start now. Appends the starts to `actions`; the queue has applied
  // them, and the host carries them out. An error only if the placer returns one.
  [[nodiscard]] absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    jobs_.queues().begin_round();
    reserved_.reset();
    std::optional<detail::wait_queues::entry> first;
    while ((first = jobs_.queues().first())) {
      APIARY_ASSIGN_OR_RETURN(const bool started, start(*first, now, actions));
      if (!started) break;
    }
    if (first && options_.rule == batch_options::rules::backfill) {
      APIARY_RETURN_IF_ERROR(fill(now, actions, [](const kind&, bool) { return max_time; }));
    } else if (first && options_.rule == batch_options::rules::easy) {
      reserved_ = reserve(*first, now);
      const auto longest = [&](const kind& k, bool) {
        if (k.gpus <= reserved_->extra_gpus || reserved_->at == max_time) return max_time;
        return reserved_->at - now;
      };
      APIARY_RETURN_IF_ERROR(fill(now, actions, longest));
    } else if (first && options_.rule == batch_options::rules::easy_gpus) {
      APIARY_RETURN_IF_ERROR(fill_around(*first, now, actions));
    }
    jobs_.queues().end_round(placer().idle_gpus(), delay_cause::order, now);
    return absl::OkStatus();
  }
  // When decide() must be called even if nothing happens: never.
  [[nodiscard]] time_ms wake() const noexcept { return max_time; }
  // The reservation of the last decide(), for easy and easy_gpus; nullopt if no job waits.
  [[nodiscard]] const std::optional<reservation>& reserved() const noexcept { return reserved_; }
  // The number of waiting jobs.
  [[nodiscard]] std::size_t num_waiting() const noexcept { return jobs_.queues().size(); }
  // The number of running jobs.
  [[nodiscard]] std::size_t num_running() const noexcept { return jobs_.num_running(); }
  // All GPUs, including those on bad servers.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return placer().total_gpus(); }
  // The placer, with the jobs that run.
  [[nodiscard]] const Placer& placer() const noexcept { return jobs_.placer(); }

 private:
  using kind = detail::wait_queues::kind;
  struct record : detail::booked_job, detail::forecast_job {};

  [[nodiscard]] absl::Status stop(record& r, time_ms now) {
    APIARY_RETURN_IF_ERROR(jobs_.stop(r));
    ends_.erase(r.ends, r.request.job.value);
    forecast_.ended(r.request.job, r, now);
    return absl::OkStatus();
  }

  // As job_records::start.
  template <class Accept = detail::accept_any>
  [[nodiscard]] absl::StatusOr<bool> start(const detail::wait_queues::entry& e, time_ms now,
                                           std::vector<job_action>& actions, Accept&& accept = {}) {
    if (e.gpus > placer().idle_gpus()) return false;
    record& r = jobs_[e.job];
    APIARY_ASSIGN_OR_RETURN(const bool started, jobs_.start(r, now, actions, accept));
    if (!started) return false;
    r.ends = add_time(now, r.request.estimate);
    ends_.insert({r.ends, e.job.value, e.gpus});
    if (options_.rule == batch_options::rules::easy_gpus) {
      r.where = actions.back().where;
      forecast_.started(e.job);
    }
    return true;
  }

  // Starts, in order, every job that fits and whose estimate is at most longest(kind, delays).
  template <class Longest>
  [[nodiscard]] absl::Status fill(time_ms now, std::vector<job_action>& actions, Longest longest) {
    while (const auto next = jobs_.queues().first_that_may(placer().idle_gpus(), longest)) {
      APIARY_ASSIGN_OR_RETURN(const bool started, start(*next, now, actions));
      if (!started || !reserved_) continue;
      if (jobs_[next->job].ends > reserved_->at) reserved_->extra_gpus -= next->gpus;
    }
    return absl::OkStatus();
  }

  // When, by the estimates, enough GPUs will be idle. A job beyond its estimate ends now.
  [[nodiscard]] reservation reserve(const detail::wait_queues::entry& e, time_ms now) const {
    const std::int64_t idle = placer().idle_gpus();
    reservation r{e.job, now, 0};
    if (idle < e.gpus) {
      const std::optional<weighted_tree::reached> end = ends_.reach(e.gpus - idle);
      if (!end) return {e.job, max_time, 0};
      r.at = (std::max)(now, end->at.key);
    }
    r.extra_gpus = static_cast<std::uint32_t>(idle + ends_.sum_to(r.at) - e.gpus);
    return r;
  }

  // Reserves GPUs for the first job; starts others that end before that or use none of its GPUs.
  [[nodiscard]] absl::Status fill_around(const detail::wait_queues::entry& first, time_ms now,
                                         std::vector<job_action>& actions) {
    const auto of = [this](job_id job) {
      record* const r = jobs_.look_up(job);
      return r != nullptr && r->running ? r : nullptr;
    };
    APIARY_ASSIGN_OR_RETURN(const std::optional<time_ms> at,
                            forecast_.first_fit(placer(), jobs_[first.job].request, now,
                                                reserve(first, now).at, ends_, of));
    reserved_ = reservation{first.job, at.value_or(max_time), at ? forecast_.idle_gpus() : 0};
    const auto longest = [&](const kind&, bool delays) {
      return delays ? reserved_->at - now : max_time;
    };
    while (const auto next = jobs_.queues().first_that_may(placer().idle_gpus(), longest)) {
      record& r = jobs_[next->job];
      const auto accept = [&](const job_placement& where) {
        if (add_time(now, r.request.estimate) <= reserved_->at) return true;
        if (forecast_.add(r.request, where)) {
          r.still_runs = true;
          reserved_->extra_gpus = forecast_.idle_gpus();
          return true;
        }
        jobs_.queues().delay(r.request);  // it would use reserved GPUs
        return false;
      };
      APIARY_ASSIGN_OR_RETURN(const bool started, start(*next, now, actions, accept));
      if (started) jobs_.queues().forget_delays();  // the placer may choose other GPUs now
    }
    return at ? forecast_.finish(first.job) : absl::OkStatus();
  }

  detail::job_records<Placer, record> jobs_;
  batch_options options_;
  weighted_tree ends_;                        // ends of running jobs, with their GPUs as weights
  detail::placer_forecast<Placer> forecast_;  // for easy_gpus
  std::optional<reservation> reserved_;
};

static_assert(JobScheduler<batch_queue<server_placer>>);

APIARY_NAMESPACE_END
