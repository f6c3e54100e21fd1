// apiary/sim/detail/check_simulation.h - checks the arguments of simulate().
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>
#include <apiary/sim/simulation_result.h>
#include <apiary/trace/job_list.h>

#include <absl/status/status.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// kInvalidArgument: as simulate().
[[nodiscard]] inline absl::Status check_simulation(std::span<const timed_job> jobs,
                                                   std::span<const outage> outages,
                                                   const simulation_options& options,
                                                   std::uint32_t total_gpus) {
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const timed_job& j = jobs[i];
    if (j.request.job.value == i && j.duration >= 0 && j.duration < time_ms{1} << 53 &&
        j.arrival >= (i == 0 ? 0 : jobs[i - 1].arrival))
      continue;
    return absl::InvalidArgumentError(
        "job " + std::to_string(i) + ": numbered " + std::to_string(j.request.job.value) +
        ", arrival " + std::to_string(j.arrival) + ", duration " + std::to_string(j.duration) +
        "; ids must follow the order of arrival, from 0, and durations must be 0 to 2^53 - 1");
  }
  std::map<node_id, time_ms> broken;  // until when each server was last broken
  for (std::size_t i = 0; i < outages.size(); ++i) {
    const outage& o = outages[i];
    if (o.from >= o.until || o.from < (i == 0 ? 0 : outages[i - 1].from)) {
      return absl::InvalidArgumentError(
          "outage " + std::to_string(i) + ": from " + std::to_string(o.from) + " until " +
          std::to_string(o.until) + "; outages must be in order of their begin, and end later");
    }
    time_ms& until = broken[o.node];
    if (o.from < until) {
      return absl::InvalidArgumentError("outage " + std::to_string(i) + ": server " +
                                        std::to_string(o.node.value) + " breaks at " +
                                        std::to_string(o.from) + ", but it is broken until " +
                                        std::to_string(until));
    }
    until = o.until;
  }
  if (options.start_cost < 0)
    return absl::InvalidArgumentError("a start costs " + std::to_string(options.start_cost) +
                                      " ms; it must cost at least 0");
  if (options.checkpoint_interval < 0)
    return absl::InvalidArgumentError("a job saves its progress every " +
                                      std::to_string(options.checkpoint_interval) +
                                      " ms; the interval must be at least 0");
  if (options.migration_cost < 0)
    return absl::InvalidArgumentError("a migration costs " +
                                      std::to_string(options.migration_cost) +
                                      " ms; it must cost at least 0");
  for (std::size_t i = 0; i < options.failures.size(); ++i) {
    const simulation_options::job_failure& f = options.failures[i];
    if (f.job.value < jobs.size() && f.at >= 0 && (i == 0 || options.failures[i - 1].job <= f.job))
      continue;
    return absl::InvalidArgumentError("failure " + std::to_string(i) + ": of job " +
                                      std::to_string(f.job.value) + " at " + std::to_string(f.at) +
                                      "; failures must be in order of jobs below " +
                                      std::to_string(jobs.size()) + ", and at 0 or later");
  }
  const std::vector<std::uint32_t>& servers = options.servers;
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < servers.size(); ++i) {
    all += servers[i];
    if (servers[i] <= placement::max_gpus) continue;
    return absl::InvalidArgumentError("server " + std::to_string(i) + " has " +
                                      std::to_string(servers[i]) + " GPUs; the limit is " +
                                      std::to_string(placement::max_gpus));
  }
  if (servers.empty() || all == total_gpus) return absl::OkStatus();
  return absl::InvalidArgumentError("the servers have " + std::to_string(all) +
                                    " GPUs; the scheduler has " + std::to_string(total_gpus));
}

// Why the job cannot run on so many GPUs; empty: it can.
[[nodiscard]] inline std::string wrong_gpus(const job_request& r, std::uint64_t gpus) {
  const std::uint32_t most = (std::max)(r.gpus, r.max_gpus);
  if (gpus >= r.gpus && gpus <= most) return {};
  const std::string range = most > r.gpus ? " to " + std::to_string(most) : "";
  return "it asks for " + std::to_string(r.gpus) + range + " GPUs, and `where` has " +
         std::to_string(gpus);
}

}  // namespace detail
APIARY_NAMESPACE_END
