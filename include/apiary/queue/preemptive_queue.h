// apiary/queue/preemptive_queue.h - shortest remaining and least attained service, with preemption.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/model/placer.h>
#include <apiary/queue/detail/job_records.h>
#include <apiary/queue/detail/run_queues.h>
#include <apiary/queue/detail/wait_queues.h>
#include <apiary/queue/server_placer.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Options of a preemptive_queue.
struct preemptive_options {
  // Which jobs come first.
  enum class rules : std::uint8_t {
    shortest_remaining,  // the smallest GPUs * remaining time, by the estimate
    least_attained,      // the smallest GPUs * time that the job has run so far
  };
  rules rule = rules::least_attained;  // which jobs run
  // least_attained only: jobs are chosen again at the first decide() from each multiple of it on.
  time_ms quantum = 1;
  // least_attained only, in GPUs * ms, above 0, ascending: jobs are ordered by the largest
  // threshold that they have reached, or 0, then by id. Empty: by what they have attained.
  std::vector<std::int64_t> thresholds{};
  // shortest_remaining only: a job whose server breaks keeps its work in whole intervals of this
  // length, in ms; 0: it keeps nothing. All time since its start counts as work: if a start costs
  // time, it keeps less than the order of the jobs assumes.
  time_ms checkpoint_interval = 0;
};

// A queue that suspends jobs. In order of GPU-time, then of job id, every job that fits in what the
// earlier jobs leave runs; all others are suspended. shortest_remaining chooses at each event,
// least_attained at multiples of its quantum; between them it only starts jobs that fit. The choice
// counts GPUs: if the job that needs GPUs does not fit after all, the other one continues.
//
// Model:    Gu et al., "Tiresias" (NSDI 2019): two-dimensional orders; with thresholds, the queues of
//           its discretized order, in which jobs are in order of id (there: of their first start).
// Requires: times >= 0 that never decrease; GPUs * time below 2^62; decide() at wake() and after
//           each time at which a job was submitted or ended, or a server broke or was repaired. A
//           job makes progress from its start on, and keeps it when it is suspended.
// Bound:    none: a job starves while jobs with less GPU-time keep arriving and take its GPUs, with
//           thresholds too. Use bounded_wait_queue, which has the same orders and bounds each wait.
// Cost:     a choice takes O(distinct GPU counts that run * log jobs) for each kind (GPU count and
//           demand) that waits, each job that takes GPUs of another and each job that is suspended
//           or comes after one; the rest as batch_queue.
// Example:  examples/job_queues.cpp
template <JobPlacer Placer>
class preemptive_queue {
 public:
  // A queue over a placer on which no job runs. Requires: options.quantum > 0; thresholds as there;
  // checkpoint_interval >= 0.
  explicit preemptive_queue(Placer placer, preemptive_options options = {})
      : jobs_(std::move(placer)), options_(std::move(options)), running_(options_.thresholds) {
    APIARY_ASSERT(options_.quantum > 0 && options_.checkpoint_interval >= 0);
    APIARY_ASSERT(by_remaining()
                      ? options_.thresholds.empty()
                      : std::is_sorted(options_.thresholds.begin(), options_.thresholds.end()) &&
                            (options_.thresholds.empty() || options_.thresholds.front() > 0));
  }

  // A job arrives. kInvalidArgument: no job id, a negative estimate, or the job would not fit in an
  // idle cluster; for shortest_remaining also no estimate, or GPUs * estimate not below 2^62.
  // kAlreadyExists: a job with this id waits or runs.
  [[nodiscard]] absl::Status submit(const job_request& r, time_ms now) {
    if (by_remaining() && r.estimate > most_gpu_time / (std::max<time_ms>)(1, r.gpus)) {
      return absl::InvalidArgumentError(absl::StrCat(detail::name_of(r.job), ": an estimate of ",
                                                     r.estimate, " on ", r.gpus,
                                                     " GPUs is not below 2^62 of GPU-time"));
    }
    APIARY_ASSIGN_OR_RETURN(record* const added, jobs_.add(r, 0, max_time));
    wait(*added, now);
    return absl::OkStatus();
  }
  // The job has ended, or its owner cancels it. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, time_ms now) {
    APIARY_ASSIGN_OR_RETURN(record* const r, jobs_.find(job));
    if (r->running) {
      APIARY_RETURN_IF_ERROR(stop(*r, now));
    } else {
      jobs_.leave(*r, now);
    }
    jobs_.forget(job);
    return absl::OkStatus();
  }

  // The server is broken. Its jobs wait again; for shortest_remaining their work since the last
  // checkpoint is to be done again. Returns them, ascending. kNotFound: no such server.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms now) {
    return jobs_.mark_bad(n, [&](record& r) {
      APIARY_RETURN_IF_ERROR(stop(r, now));
      r.lost = r.had - detail::kept_work(r.had - r.lost, options_.checkpoint_interval);
      wait(r, now);
      return absl::OkStatus();
    });
  }
  // The server is repaired. kNotFound: there is no such server.
  [[nodiscard]] absl::Status mark_healthy(node_id n, time_ms /*now*/) {
    return jobs_.mark_healthy(n);
  }

  // Suspends and starts jobs. Appends the actions to `actions`; the queue has applied them already,
  // and the host carries them out in order. An error only if the placer returns one.
  [[nodiscard]] absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    jobs_.queues().begin_round();
    running_.shift_to(by_remaining() ? -now : now);
    const bool choose = by_remaining() || now % options_.quantum == 0 || now >= next_choice_;
    std::vector<job_id> stopped;
    if (choose && !running_.empty() && jobs_.queues().gpus() > placer().idle_gpus()) {
      APIARY_RETURN_IF_ERROR(stop_all_but_first(now, stopped));
    }
    std::vector<job_action> started;
    while (const auto next = jobs_.queues().first_that_may(placer().idle_gpus())) {
      APIARY_RETURN_IF_ERROR(start(*next, now, started));
    }
    for (const job_id job : stopped) {
      if (!std::exchange(jobs_[job].stopped, false)) continue;
      actions.push_back({job_action::verb::suspend, job, {}, {}});
    }
    std::move(started.begin(), started.end(), std::back_inserter(actions));
    jobs_.queues().end_round(placer().idle_gpus(), delay_cause::order, now);
    const bool choose_again = !by_remaining() && !jobs_.queues().empty() && !running_.empty();
    next_choice_ = choose_again
                       ? add_time(now / options_.quantum * options_.quantum, options_.quantum)
                       : max_time;
    return absl::OkStatus();
  }
  // When decide() must be called: for least_attained at the next multiple of the quantum if a job
  // waits and one runs, otherwise never.
  [[nodiscard]] time_ms wake() const noexcept { return next_choice_; }
  // The number of waiting jobs.
  [[nodiscard]] std::size_t num_waiting() const noexcept { return jobs_.queues().size(); }
  // The number of running jobs.
  [[nodiscard]] std::size_t num_running() const noexcept { return jobs_.num_running(); }
  // All GPUs, including those on bad servers.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return placer().total_gpus(); }
  // The placer, with the jobs that run.
  [[nodiscard]] const Placer& placer() const noexcept { return jobs_.placer(); }

 private:
  struct record : detail::booked_job {  // the key is the GPU-time
    time_ms had = 0;                    // how long it ran before its last start
    time_ms lost = 0;                   // of it, what it must run again
    time_ms started = 0;                // its last start
    job_placement where{};              // where it runs or last ran
    bool stopped = false;               // this decide() stopped it; there is no action for that yet
  };
  static constexpr time_ms most_gpu_time = (time_ms{1} << 62) - 1;

  [[nodiscard]] bool by_remaining() const noexcept {
    return options_.rule == preemptive_options::rules::shortest_remaining;
  }
  // The level of a running job in running_.
  [[nodiscard]] std::int64_t level_of(const record& r) const noexcept {
    return by_remaining() ? r.request.estimate - r.had + r.lost + r.started : r.had - r.started;
  }
  void wait(record& r, time_ms now) {
    const time_ms counts =
        by_remaining() ? (std::max<time_ms>)(0, r.request.estimate - r.had + r.lost) : r.had;
    r.key = running_.rounded(counts * r.request.gpus);
    jobs_.wait(r, now);
  }
  [[nodiscard]] absl::Status stop(record& r, time_ms now) {
    APIARY_RETURN_IF_ERROR(jobs_.stop(r));
    running_.erase(r.request.job, r.request.gpus, level_of(r));
    r.had += now - r.started;
    return absl::OkStatus();
  }

  // Stops every running job that is not among the first jobs that fit together. Only the last jobs,
  // from `first_out` on, are checked: those whose GPUs earlier waiting jobs take.
  [[nodiscard]] absl::Status stop_all_but_first(time_ms now, std::vector<job_id>& stopped) {
    using entry = detail::wait_queues::entry;
    const std::uint32_t idle = placer().idle_gpus();
    const std::uint32_t all = idle + running_.gpus();
    entry first_out{.key = (std::numeric_limits<std::int64_t>::max)()};
    std::vector<entry> tail;  // running jobs from first_out on, the last one first
    std::uint32_t tail_gpus = 0;
    std::uint32_t taken = 0;  // GPUs of waiting jobs that come before first_out
    detail::wait_queues::walk waiting(jobs_.queues());
    detail::run_queues::walk_back running(running_);
    const auto fits = [&](const entry& e) {
      return taken + running_.gpus_before(e.key, e.job) + e.gpus <= all;
    };
    while (const std::optional<entry> earlier = waiting.next_before(first_out, fits)) {
      taken += earlier->gpus;
      while (taken > idle + tail_gpus) {
        first_out = *running.next();
        tail.push_back(first_out);
        tail_gpus += first_out.gpus;
      }
    }
    std::uint32_t left = idle + tail_gpus - taken;
    const auto fits_there = [&](const entry& e) { return e.gpus <= left; };
    std::vector<std::uint32_t> last;  // jobs that do not fit
    for (auto runs = tail.rbegin(); runs != tail.rend(); ++runs) {
      while (const auto earlier = waiting.next_before(*runs, fits_there)) left -= earlier->gpus;
      if (runs->gpus <= left) {
        left -= runs->gpus;
      } else {
        last.push_back(runs->job.value);
      }
    }
    for (const std::uint32_t job : last) {
      record& r = jobs_[job_id(job)];
      APIARY_RETURN_IF_ERROR(stop(r, now));
      wait(r, now);
      r.stopped = true;
      stopped.push_back(job_id(job));
    }
    return absl::OkStatus();
  }
  // As jobs_.start(). A job that this decide() stopped continues on its GPUs if they are free.
  [[nodiscard]] absl::Status start(const detail::wait_queues::entry& e, time_ms now,
                                   std::vector<job_action>& actions) {
    record& r = jobs_[e.job];
    if (r.stopped && jobs_.go_on(r, r.where, now)) {
      r.stopped = false;
    } else {
      APIARY_ASSIGN_OR_RETURN(const bool started, jobs_.start(r, now, actions));
      if (!started) return absl::OkStatus();
      r.where = actions.back().where;
    }
    r.started = now;
    running_.insert(e.job, e.gpus, level_of(r));
    return absl::OkStatus();
  }

  detail::job_records<Placer, record> jobs_;
  preemptive_options options_;
  detail::run_queues running_;
  time_ms next_choice_ = max_time;  // the next choice, as of the last decide()
};

static_assert(JobScheduler<preemptive_queue<server_placer>>);

APIARY_NAMESPACE_END
