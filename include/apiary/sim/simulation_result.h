// apiary/sim/simulation_result.h - the options, events, result and figures of a simulation of jobs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/metric/utilization.h>
#include <apiary/model/job.h>
#include <apiary/trace/job_list.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The costs of starts, failures and migrations, the failures of jobs, and the end of a simulation.
struct simulation_options {
  // A failure of a job itself, not of its server.
  struct job_failure {
    using kind = failure_class;  // unknown: the job is retried up to max_retries times
    job_id job{};                // the job
    // It fails with so much progress, in ms at full speed, kept work included. A retry that keeps
    // as much or more fails as soon as it can make progress.
    time_ms at = 0;
    kind why = kind::unknown;  // whether it is retried
  };
  // ms from a start, growth or shrinking of a job until it makes progress; >= 0. simulate() adds it
  // once to the estimate of each job.
  time_ms start_cost = 0;
  // A job saves its progress after so much work, in ms, and loses the work since then if its server
  // or the job itself fails; 0: it loses all of its work.
  time_ms checkpoint_interval = 0;
  time_ms until = max_time;              // the simulation ends then, even if jobs are still running
  time_ms migration_cost = 0;            // ms from a migration until the job makes progress; >= 0
  std::vector<std::uint32_t> servers{};  // GPUs of each server; empty: measures no fragmentation
  // By job; those of one job happen one after the other, until one is not before its duration. A
  // job that fails loses its progress since the last checkpoint and is submitted again, or ends. If
  // the scheduler has fail() (see JobScheduler), that decides instead, and max_retries is not used.
  std::vector<job_failure> failures{};
  std::uint32_t max_retries = 3;  // how often a job is retried after failures of unknown kind
};

// The speed of a job that nothing slows down, in thousandths.
inline constexpr std::uint32_t full_speed = 1000;

// Something that happened in a simulation, as passed to the observer.
struct simulation_event {
  // What happened.
  enum class kind : std::uint8_t {
    arrival,
    start,
    suspension,
    end,
    breakdown,  // the job stopped because its server broke
    failure,    // a server broke
    repair,     // a server is healthy again
    migration,
    resize,        // the job grew or shrank
    speed_change,  // another job came to the GPUs of the job, or left them
    job_failure    // the job failed; it waits again, or ends
  };
  kind what = kind::arrival;  // what happened
  time_ms at = 0;             // when it happened
  job_id job{};               // not set for failure and repair
  node_id node{};             // set only for failure and repair
  std::uint32_t gpus = 0;     // the GPUs that the job has
  std::uint32_t nodes = 0;    // the nodes on which the job runs
  std::uint32_t speed = 0;    // the speed of the job from `from` on, in thousandths
  time_ms from = 0;           // the job makes no progress before this time
  bool retried = false;       // set only for job_failure: whether the job waits again
};

// The outcome of a simulation; metrics_of() turns it into figures.
struct simulation_result {
  // The history of a job in a simulation. A time is max_time if the event did not happen.
  struct job_record {
    time_ms started = max_time;   // the first start
    time_ms ended = max_time;     // the end of the job
    delays waited{};              // waiting time by cause
    std::uint32_t suspended = 0;  // number of suspensions
    std::uint32_t broken = 0;     // number of failures of a server on which the job ran
    std::uint32_t migrated = 0;   // number of migrations
    std::uint32_t resized = 0;    // number of times that the job grew or shrank
    time_ms lost = 0;             // work lost in failures, in milliseconds at full speed
    std::uint32_t failed = 0;     // number of failures of the job itself
    bool given_up = false;        // it ended with a failure
  };
  std::vector<job_record> jobs{};  // the history of each job
  utilization gpus{0};             // GPUs in use over time; a GPU that two jobs share counts once
  double scattered = 0.0;    // integral over time (ms) of the fragmentation of idle GPUs (0 to 1)
  time_ms ended = 0;         // the time of the last event
  std::uint64_t events = 0;  // the number of events
  std::uint64_t decisions = 0;  // the number of calls of decide()
  digest log{};                 // a digest of all events with their placements, in order
};

// Figures of a simulation, over the jobs that want between min_gpus and max_gpus GPUs and that
// ended, not with a failure.
struct job_metrics {
  // Mean, percentiles and maximum of a set of durations, in milliseconds.
  struct time_summary {
    double mean = 0.0;  // the mean
    time_ms p50 = 0;    // the median
    time_ms p95 = 0;    // the 95th percentile
    time_ms p99 = 0;    // the 99th percentile
    time_ms max = 0;    // the maximum
    // Summarizes the values; all figures are 0 if there are none.
    [[nodiscard]] static time_summary of(std::vector<time_ms> values) {
      if (values.empty()) return {};
      std::sort(values.begin(), values.end());
      double sum = 0.0;
      for (const time_ms value : values) sum += static_cast<double>(value);
      return {sum / static_cast<double>(values.size()), percentile(values, 50),
              percentile(values, 95), percentile(values, 99), values.back()};
    }
    // The p-th percentile by nearest rank. Requires: values sorted, not empty; 0 <= p <= 100.
    [[nodiscard]] static time_ms percentile(std::span<const time_ms> values, double p) noexcept {
      APIARY_ASSERT(!values.empty() && p >= 0.0 && p <= 100.0);
      const double rank = std::ceil(p / 100.0 * static_cast<double>(values.size()));
      return values[rank < 1.0 ? 0 : static_cast<std::size_t>(rank) - 1];
    }
  };
  std::uint64_t ended = 0;     // jobs of these sizes that have ended, not with a failure
  std::uint64_t unended = 0;   // jobs of these sizes that have not ended
  std::uint64_t given_up = 0;  // jobs of these sizes that ended with a failure
  time_summary completion{};   // from arrival to end
  time_summary delay{};        // time spent waiting, before the first start and after suspensions
  delays by_cause{};           // waiting time of all jobs, by cause
  std::uint64_t suspensions = 0;  // times that a job was suspended
  std::uint64_t breakdowns = 0;   // times that a server of a job failed
  std::uint64_t migrations = 0;   // times that a job migrated
  std::uint64_t resizes = 0;      // times that a job grew or shrank
  std::uint64_t failures = 0;     // times that a job failed and was retried
  time_ms lost = 0;               // work that failures undid, at full speed
  time_ms makespan = 0;           // from the first arrival of any job to the last end of these jobs
  // Over jobs of every size, from the first arrival to the last event:
  double utilization = 0.0;  // the mean fraction of GPUs in use, 0 to 1
  // The mean fraction of idle GPUs that a job of one whole server cannot use (not FGD's measure), 0
  // to 1; 0 if simulation_options::servers is empty.
  double fragmentation = 0.0;
};

// Computes the figures in O(jobs log jobs). Requires: `run` is a simulation of `jobs`.
[[nodiscard]] inline job_metrics metrics_of(const simulation_result& run,
                                            std::span<const timed_job> jobs,
                                            std::uint32_t min_gpus = 0,
                                            std::uint32_t max_gpus = ~std::uint32_t{0}) {
  APIARY_ASSERT(run.jobs.size() == jobs.size());
  job_metrics m;
  std::vector<time_ms> completion;
  std::vector<time_ms> delay;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const simulation_result::job_record& r = run.jobs[i];
    if (jobs[i].request.gpus < min_gpus || jobs[i].request.gpus > max_gpus) continue;
    if (r.ended == max_time) {
      ++m.unended;
      continue;
    }
    if (r.given_up) {
      ++m.given_up;
      continue;
    }
    ++m.ended;
    completion.push_back(r.ended - jobs[i].arrival);
    delay.push_back(r.waited.total());
    m.by_cause += r.waited;
    m.suspensions += r.suspended;
    m.breakdowns += r.broken;
    m.migrations += r.migrated;
    m.resizes += r.resized;
    m.failures += r.failed;
    m.lost += r.lost;
    m.makespan = (std::max)(m.makespan, r.ended - jobs.front().arrival);
  }
  m.completion = job_metrics::time_summary::of(std::move(completion));
  m.delay = job_metrics::time_summary::of(std::move(delay));
  if (!jobs.empty() && run.ended > jobs.front().arrival) {
    const auto from_zero = run.gpus.mean(static_cast<std::uint64_t>(run.ended));
    const auto span = static_cast<double>(run.ended - jobs.front().arrival);
    m.utilization = from_zero * static_cast<double>(run.ended) / span;
    m.fragmentation = run.scattered / span;
  }
  return m;
}

APIARY_NAMESPACE_END
