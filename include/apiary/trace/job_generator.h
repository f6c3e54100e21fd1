// apiary/trace/job_generator.h - job lists drawn from a seed.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/trace/job_list.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Jobs of so many GPUs, in parts of all.
struct job_size {
  std::uint32_t gpus = 1;
  std::uint32_t weight = 1;
};

struct job_generator {
  std::uint64_t seed = 1;
  std::uint32_t jobs = 1000;
  std::uint32_t tenants = 1;
  time_ms window = 1;    // arrivals are uniform in [0, window)
  time_ms shortest = 1;  // GPU-time is uniform in [shortest, longest] ...
  time_ms longest = 1;
  bool per_gpu = false;  // ... or, if set, each GPU's time is
  std::vector<job_size> sizes{{}};
};

// The jobs, with their durations as estimates. kInvalidArgument: no size, sizes of 0 GPUs or of no
// weight in all, times or tenants that cannot be.
[[nodiscard]] inline absl::StatusOr<job_list> generate_jobs(const job_generator& spec) {
  constexpr time_ms most = 0xffffffff;
  std::uint64_t weights = 0;
  for (const job_size& size : spec.sizes) {
    if (size.gpus == 0) return absl::InvalidArgumentError("a size of 0 GPUs");
    weights += size.weight;
  }
  if (weights == 0 || weights > most) {
    return absl::InvalidArgumentError("weights of " + std::to_string(weights) + " in all");
  }
  if (spec.window < 1 || spec.window > most || spec.shortest < 1 || spec.longest < spec.shortest ||
      spec.longest > most || spec.tenants == 0) {
    return absl::InvalidArgumentError(
        "a window of " + std::to_string(spec.window) + ", times from " +
        std::to_string(spec.shortest) + " to " + std::to_string(spec.longest) + ", " +
        std::to_string(spec.tenants) + " tenants: times are from 1 to 2^32 - 1");
  }
  rng random(spec.seed);
  job_list list;
  for (std::uint32_t t = 0; t < spec.tenants; ++t) {
    list.tenants.push_back("tenant-" + std::to_string(t));
  }
  for (std::uint32_t i = 0; i < spec.jobs; ++i) {
    timed_job job;
    std::uint64_t pick = random.uniform(static_cast<std::uint32_t>(weights));
    for (const job_size& size : spec.sizes) {
      job.request.gpus = size.gpus;
      if (pick < size.weight) break;
      pick -= size.weight;
    }
    job.arrival = random.uniform(static_cast<std::uint32_t>(spec.window));
    const time_ms time =
        spec.shortest +
        random.uniform(static_cast<std::uint32_t>(spec.longest - spec.shortest + 1));
    const time_ms parts = spec.per_gpu ? 1 : job.request.gpus;
    job.duration = job.request.estimate = (time + parts - 1) / parts;
    job.request.tenant = tenant_id(random.uniform(spec.tenants));
    list.jobs.push_back(job);
  }
  number_by_arrival(list.jobs);
  return list;
}

APIARY_NAMESPACE_END
