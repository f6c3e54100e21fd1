// apiary/trace/job_list.h - lists of jobs with arrival times, and outages of servers.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/model/job.h>
#include <apiary/model/resources.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A job with its arrival and its true duration, which only a simulation knows.
struct timed_job {
  job_request request{};  // what the job asks for
  time_ms arrival = 0;    // when it arrives
  time_ms duration = 0;   // milliseconds at full speed
  // What it needs besides GPUs; number the demands for placers that know job_request::demand.
  resources per_gpu{};      // CPU and memory beside each GPU
  std::uint32_t model = 0;  // m: GPUs of job_list::models[m - 1]; 0: any GPUs
};

// Jobs in order of arrival, job i with the id job_id(i), and the names of their tenants.
struct job_list {
  std::vector<timed_job> jobs{};       // in order of arrival
  std::vector<std::string> tenants{};  // names, by tenant_id
  std::uint64_t left_out = 0;          // jobs of the file without GPUs or without duration
  std::vector<std::string> models{};   // names of the GPU models that jobs need
  // Sorts jobs by arrival (stable) and numbers them from job_id(0).
  static void number_by_arrival(std::vector<timed_job>& jobs) {
    std::stable_sort(jobs.begin(), jobs.end(),
                     [](const timed_job& a, const timed_job& b) { return a.arrival < b.arrival; });
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      jobs[i].request.job = job_id(static_cast<std::uint32_t>(i));
    }
  }
};

// A server that is broken from `from` until before `until`.
struct outage {
  node_id node{};            // the server
  time_ms from = 0;          // from this time on
  time_ms until = max_time;  // healthy again at this time
};

// The parameters of generate_jobs().
struct job_generator {
  // A number of GPUs and how often jobs ask for it, relative to the weights of the other sizes.
  struct size {
    std::uint32_t gpus = 1;    // GPUs of a job
    std::uint32_t weight = 1;  // how often jobs ask for it
  };
  std::uint64_t seed = 1;     // seed of the random numbers
  std::uint32_t jobs = 1000;  // how many jobs
  std::uint32_t tenants = 1;  // how many tenants
  time_ms window = 1;         // arrivals are uniform in [0, window)
  time_ms shortest = 1;       // GPU times (duration times GPUs) are uniform in [shortest, longest]
  time_ms longest = 1;        // at least `shortest`
  bool per_gpu = false;       // the times are durations, not GPU times
  // Not 0: the times are lognormal with this median, and those outside [shortest, longest] become
  // the nearest of both.
  time_ms median = 0;
  std::uint32_t sigma_milli =
      1000;                     // of the logarithm of these times, in thousandths: its deviation
  std::vector<size> sizes{{}};  // the sizes of the jobs
};

namespace detail {

// A lognormal time, by integers alone, at most 2^62. The logarithm is a sum of twelve uniform
// numbers and never more than six deviations away. Requires: 0 < median < 2^32, sigma_milli <=
// 10'000.
[[nodiscard]] inline time_ms lognormal_time(rng& random, time_ms median,
                                            std::uint32_t sigma_milli) {
  constexpr std::int64_t one = 1 << 16;
  std::int64_t deviations = -6 * one;  // a sum of variance one * one
  for (int i = 0; i < 12; ++i) deviations += random.uniform(one);
  const std::int64_t logarithm = deviations * sigma_milli * 1'442'695 / 1'000'000'000;  // to base 2
  // 2^(1/2), 2^(1/4), ..., times 2^30.
  constexpr std::array<std::uint64_t, 16> roots{1518500250, 1276901417, 1170923762, 1121280436,
                                                1097253708, 1085434106, 1079572136, 1076653033,
                                                1075196443, 1074468888, 1074105294, 1073923544,
                                                1073832680, 1073787251, 1073764537, 1073753181};
  std::uint64_t factor = std::uint64_t{1} << 30;
  for (std::size_t i = 0; i < roots.size(); ++i) {
    if ((logarithm >> (15 - i) & 1) != 0) factor = factor * roots[i] >> 30;
  }
  const std::int64_t time = static_cast<std::int64_t>(factor >> 14) * median >> 16;
  const std::int64_t doublings = logarithm >> 16;  // rounded down
  if (doublings < 0) return doublings < -40 ? 0 : time >> -doublings;
  return doublings > 28 ? time_ms{1} << 62 : time << doublings;
}

}  // namespace detail

// Draws the jobs. The estimate of a job is its duration. O(jobs log jobs).
// Errors: kInvalidArgument: no sizes, a size of 0 GPUs, weights with sum 0, no tenants, a time that
//         is not in 1 ... 2^32 - 1 (the median also 0), or sigma_milli above 10,000.
[[nodiscard]] inline absl::StatusOr<job_list> generate_jobs(const job_generator& spec) {
  constexpr time_ms most = 0xffffffff;
  std::uint64_t weights = 0;
  for (const job_generator::size& size : spec.sizes) {
    if (size.gpus == 0) return absl::InvalidArgumentError("a size of 0 GPUs");
    weights += size.weight;
  }
  if (weights == 0 || weights > most) {
    return absl::InvalidArgumentError("the weights add up to " + std::to_string(weights));
  }
  if (spec.window < 1 || spec.window > most || spec.shortest < 1 || spec.longest < spec.shortest ||
      spec.longest > most || spec.tenants == 0) {
    return absl::InvalidArgumentError(
        "a window of " + std::to_string(spec.window) + ", times from " +
        std::to_string(spec.shortest) + " to " + std::to_string(spec.longest) + ", " +
        std::to_string(spec.tenants) + " tenants; times must be 1 to 2^32 - 1, tenants at least 1");
  }
  if (spec.median < 0 || spec.median > most || spec.sigma_milli > 10'000) {
    return absl::InvalidArgumentError("a median of " + std::to_string(spec.median) +
                                      " and sigma_milli " + std::to_string(spec.sigma_milli) +
                                      "; at most 2^32 - 1 and 10,000");
  }
  rng random(spec.seed);
  job_list list;
  for (std::uint32_t t = 0; t < spec.tenants; ++t) {
    list.tenants.push_back("tenant-" + std::to_string(t));
  }
  for (std::uint32_t i = 0; i < spec.jobs; ++i) {
    timed_job job;
    std::uint64_t pick = random.uniform(static_cast<std::uint32_t>(weights));
    for (const job_generator::size& size : spec.sizes) {
      job.request.gpus = size.gpus;
      if (pick < size.weight) break;
      pick -= size.weight;
    }
    job.arrival = random.uniform(static_cast<std::uint32_t>(spec.window));
    const time_ms time =
        spec.median > 0
            ? std::clamp(detail::lognormal_time(random, spec.median, spec.sigma_milli),
                         spec.shortest, spec.longest)
            : spec.shortest +
                  random.uniform(static_cast<std::uint32_t>(spec.longest - spec.shortest + 1));
    const time_ms parts = spec.per_gpu ? 1 : job.request.gpus;
    job.duration = job.request.estimate = (time + parts - 1) / parts;
    job.request.tenant = tenant_id(random.uniform(spec.tenants));
    list.jobs.push_back(job);
  }
  job_list::number_by_arrival(list.jobs);
  return list;
}

APIARY_NAMESPACE_END
