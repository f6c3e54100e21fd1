// apiary/batch/preemptive_queue.h - jobs that give way to those that matter more just now.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/batch/detail/job_book.h>
#include <apiary/batch/detail/run_queues.h>
#include <apiary/batch/detail/wait_queues.h>
#include <apiary/batch/job_placer.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

enum class preemptive_rule : std::uint8_t {
  shortest_remaining,  // the least GPUs times estimated time that is left
  least_attained,      // the least GPUs times time had so far
};

struct preemptive_options {
  preemptive_rule rule = preemptive_rule::least_attained;
  time_ms quantum = 1;  // of least_attained: who runs is chosen again at its multiples, or with the
                        // first decide() behind
};

// Lets those jobs run that come first in the order of their GPU-time: in that order each that fits
// into what the earlier ones leave of the cluster, the others are suspended. Shortest remaining
// chooses at each event; least attained at the multiples of its quantum, and between them only
// starts what fits beside those that run. What fits is counted in GPUs: who gives way to a job that
// then finds no place for them goes on where it was.
//
// Order:    by GPU-time, then by job id.
// Model:    Gu et al., "Tiresias" (NSDI 2019), the two-dimensional orders without queues.
// Requires: times >= 0 that never go back; GPUs times time below 2^62; decide() at wake() and after
//           each moment at which something was submitted, ended, broke or was repaired. A job makes
//           progress from the moment it is started.
// Cost:     choosing O(lines log jobs) for each number of GPUs that waits, each job that takes
//           another's GPUs and each that has the place of one suspended or comes after it; the rest
//           as batch/batch_queue.h.
// Example:  examples/job_queues.cpp
template <JobPlacer Placer>
class preemptive_queue {
 public:
  // Requires: options.quantum > 0.
  explicit preemptive_queue(Placer placer, preemptive_options options = {})
      : jobs_(std::move(placer)), options_(options) {
    APIARY_ASSERT(options.quantum > 0);
  }

  // kInvalidArgument: no job id, it fits not even into the empty cluster, a negative estimate, or for
  // shortest_remaining one that is missing or comes to 2^62 of GPU-time. kAlreadyExists: a job of
  // this id is here.
  [[nodiscard]] absl::Status submit(const job_request& r, time_ms now) {
    if (by_remaining() && r.estimate > most_gpu_time / (std::max<time_ms>)(1, r.gpus)) {
      return absl::InvalidArgumentError(
          "job " + std::to_string(r.job.value) + ": an estimate of " + std::to_string(r.estimate) +
          " on " + std::to_string(r.gpus) + " GPUs is not below 2^62 of GPU-time");
    }
    APIARY_ASSIGN_OR_RETURN(record* const added, jobs_.add(r, 0, forever));
    wait(*added, now);
    return absl::OkStatus();
  }

  // The job has ended, or is withdrawn. kNotFound: there is no such job.
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

  // The server is broken: what runs there stops and waits again. The jobs that stopped, ascending.
  // kNotFound: no such server.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms now) {
    return jobs_.mark_bad(n, [&](record& r) {
      APIARY_RETURN_IF_ERROR(stop(r, now));
      wait(r, now);
      return absl::OkStatus();
    });
  }
  [[nodiscard]] absl::Status mark_healthy(node_id n, time_ms /*now*/) {
    return jobs_.mark_healthy(n);
  }

  // Suspends and starts: appends to `actions`, which the host carries out in order; all are taken
  // here already. An error only where the placer answers one of its own.
  [[nodiscard]] absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    jobs_.lines().begin_round();
    running_.shift_to(by_remaining() ? -now : now);
    const bool choose = by_remaining() || now % options_.quantum == 0 || now >= turn_at_;
    std::vector<job_id> stopped;
    if (choose && !running_.empty() && jobs_.lines().gpus() > placer().idle_gpus()) {
      APIARY_RETURN_IF_ERROR(stop_all_but_first(now, stopped));
    }
    std::vector<job_action> started;
    while (const auto next = jobs_.lines().first_that_may(placer().idle_gpus())) {
      APIARY_RETURN_IF_ERROR(start(*next, now, started));
    }
    for (const job_id job : stopped) {
      if (!std::exchange(jobs_[job].stopped, false)) continue;
      actions.push_back({job_action::verb::suspend, job, {}, {}});
    }
    std::move(started.begin(), started.end(), std::back_inserter(actions));
    jobs_.lines().end_round(placer().idle_gpus(), delay_cause::order, now);
    const bool turns = !by_remaining() && !jobs_.lines().empty() && !running_.empty();
    turn_at_ =
        turns ? later_by(now / options_.quantum * options_.quantum, options_.quantum) : forever;
    return absl::OkStatus();
  }
  // When decide() wants to be called although nothing happens: at the next multiple of the quantum
  // if somebody waits.
  [[nodiscard]] time_ms wake() const noexcept { return turn_at_; }

  [[nodiscard]] std::size_t num_waiting() const noexcept { return jobs_.lines().size(); }
  [[nodiscard]] std::size_t num_running() const noexcept { return jobs_.num_running(); }
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return placer().total_gpus(); }
  [[nodiscard]] const Placer& placer() const noexcept { return jobs_.placer(); }

 private:
  struct record : detail::booked_job {  // its key is its GPU-time
    time_ms had = 0;                    // time that it ran before it was last started
    time_ms started = 0;                // the last time
    job_placement place{};              // where it runs, or ran last
    bool stopped = false;               // this decision has stopped it, and nobody was told yet
  };
  static constexpr time_ms most_gpu_time = (time_ms{1} << 62) - 1;

  [[nodiscard]] bool by_remaining() const noexcept {
    return options_.rule == preemptive_rule::shortest_remaining;
  }

  // Of a running job, in running_.
  [[nodiscard]] std::int64_t level_of(const record& r) const noexcept {
    return by_remaining() ? r.request.estimate - r.had + r.started : r.had - r.started;
  }
  void wait(record& r, time_ms now) {
    const time_ms counts =
        by_remaining() ? (std::max<time_ms>)(0, r.request.estimate - r.had) : r.had;
    r.key = counts * r.request.gpus;
    jobs_.wait(r, now);
  }
  [[nodiscard]] absl::Status stop(record& r, time_ms now) {
    APIARY_RETURN_IF_ERROR(jobs_.stop(r));
    running_.erase(r.request.job, r.request.gpus, level_of(r));
    r.had += now - r.started;
    return absl::OkStatus();
  }

  // Stops those that run but are not among the first that fit together.
  //
  // All that run fit beside what is idle. As earlier jobs that wait take more than that, those that
  // run last do not fit any more: the first of them moves forward, and only from there on it has to
  // be asked who still fits. Of these there are few: as many as make up for what was taken.
  [[nodiscard]] absl::Status stop_all_but_first(time_ms now, std::vector<job_id>& stopped) {
    using entry = detail::wait_queues::entry;
    const std::uint32_t idle = placer().idle_gpus();
    const std::uint32_t all = idle + running_.gpus();
    entry first_out{.key = (std::numeric_limits<std::int64_t>::max)()};
    std::vector<entry> tail;  // from it on, the last first
    std::uint32_t tail_gpus = 0;
    std::uint32_t taken = 0;  // by those that wait and come before it
    detail::wait_queues::walk waiting(jobs_.lines());
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
    std::vector<std::uint32_t> last;  // who does not fit
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
  // Starts the job if it has a place; otherwise its line has failed. One that was stopped just now
  // goes on where it was, without an action, if it can.
  [[nodiscard]] absl::Status start(const detail::wait_queues::entry& e, time_ms now,
                                   std::vector<job_action>& actions) {
    record& r = jobs_[e.job];
    if (r.stopped && jobs_.go_on(r, r.place, now)) {
      r.stopped = false;
    } else {
      APIARY_ASSIGN_OR_RETURN(const bool started, jobs_.start(r, now, actions));
      if (!started) return absl::OkStatus();
      r.place = actions.back().place;
    }
    r.started = now;
    running_.insert(e.job, e.gpus, level_of(r));
    return absl::OkStatus();
  }

  detail::job_records<Placer, record> jobs_;
  preemptive_options options_;
  detail::run_queues running_;
  time_ms turn_at_ = forever;  // when the last decide() wanted the next choice
};

APIARY_NAMESPACE_END
