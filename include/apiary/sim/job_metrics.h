// apiary/sim/job_metrics.h - the figures of a simulation: delays, completion times, GPUs in use.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/model/job.h>
#include <apiary/sim/simulate.h>
#include <apiary/trace/job_list.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The p-th percentile by nearest rank: the least of the values that p % of them do not exceed.
// Requires: values sorted, not empty; 0 <= p <= 100.
[[nodiscard]] inline time_ms percentile(std::span<const time_ms> values, double p) noexcept {
  APIARY_ASSERT(!values.empty() && p >= 0.0 && p <= 100.0);
  const double rank = std::ceil(p / 100.0 * static_cast<double>(values.size()));
  return values[rank < 1.0 ? 0 : static_cast<std::size_t>(rank) - 1];
}

// Mean, percentiles and maximum of a set of durations, in milliseconds.
struct time_summary {
  double mean = 0.0;  // the mean
  time_ms p50 = 0;    // the median
  time_ms p95 = 0;    // the 95th percentile
  time_ms p99 = 0;    // the 99th percentile
  time_ms max = 0;    // the maximum
};
// Summarizes the values; all figures are 0 if there are none.
[[nodiscard]] inline time_summary summary_of(std::vector<time_ms> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  double sum = 0.0;
  for (const time_ms value : values) sum += static_cast<double>(value);
  return {sum / static_cast<double>(values.size()), percentile(values, 50), percentile(values, 95),
          percentile(values, 99), values.back()};
}

// Figures of a simulation, over the jobs that ended and want between min_gpus and max_gpus GPUs.
struct job_metrics {
  std::uint64_t ended = 0;    // jobs of these sizes that have ended
  std::uint64_t unended = 0;  // jobs of these sizes that have not ended
  time_summary completion{};  // from arrival to end
  time_summary delay{};       // time spent waiting, before the first start and after suspensions
  delays by_cause{};          // waiting time of all jobs, by cause
  std::uint64_t suspensions = 0;  // times that a job was suspended
  std::uint64_t breakdowns = 0;   // times that a server of a job failed
  std::uint64_t migrations = 0;   // times that a job migrated
  std::uint64_t resizes = 0;      // times that a job grew or shrank
  time_ms lost = 0;               // work that failures of servers undid, at full speed
  time_ms makespan = 0;           // from the first arrival of any job to the last end of these jobs
  // Over jobs of every size, from the first arrival to the last event:
  double utilization = 0.0;  // the mean share of GPUs in use, 0 to 1
  // The mean share of idle GPUs, 0 to 1, that a job of one whole server cannot use because other jobs
  // use GPUs of the same server; 0 if simulation_options::servers is empty. This is not the measure
  // of FGD (metric/fragmentation.h).
  double fragmentation = 0.0;
};

// Computes the figures. Requires: `run` is a simulation of `jobs`.
// Cost:     O(jobs log jobs).
[[nodiscard]] inline job_metrics metrics_of(const simulation_result& run,
                                            std::span<const timed_job> jobs,
                                            std::uint32_t min_gpus = 0,
                                            std::uint32_t max_gpus = ~std::uint32_t{0}) {
  APIARY_ASSERT(run.jobs.size() == jobs.size());
  job_metrics m;
  std::vector<time_ms> completion;
  std::vector<time_ms> delay;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const job_record& r = run.jobs[i];
    if (jobs[i].request.gpus < min_gpus || jobs[i].request.gpus > max_gpus) continue;
    if (r.ended == max_time) {
      ++m.unended;
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
    m.lost += r.lost;
    m.makespan = (std::max)(m.makespan, r.ended - jobs.front().arrival);
  }
  m.completion = summary_of(std::move(completion));
  m.delay = summary_of(std::move(delay));
  if (!jobs.empty() && run.ended > jobs.front().arrival) {
    const auto from_zero = run.gpus.mean(static_cast<std::uint64_t>(run.ended));
    const auto span = static_cast<double>(run.ended - jobs.front().arrival);
    m.utilization = from_zero * static_cast<double>(run.ended) / span;
    m.fragmentation = run.scattered / span;
  }
  return m;
}

APIARY_NAMESPACE_END
