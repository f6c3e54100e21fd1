// apiary/philly/options.h - the cluster, the quotas and the times of a Philly scheduler.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/batch/server_placer.h>
#include <apiary/core/config.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Where the GPUs of a job may be, the strictest first. A rack is an RDMA domain. A job that is larger
// than every rack is in no rack; of it only the number of servers is asked.
enum class job_locality : std::uint8_t {
  packed,    // in one rack, on the fewest servers that could hold it were they empty
  one_rack,  // in one rack, on any servers
  anywhere,
};
inline constexpr std::size_t num_job_localities = 3;

// Times in the host's ticks; the defaults are the published ones in milliseconds.
struct philly_options {
  server_spec servers{};  // `anywhere` of it does not count; none of it where a pool is given
  std::vector<std::uint32_t> quotas{};  // GPUs of tenant 0, 1, ...
  time_ms acquire_time = 150'000;       // published: two to three minutes
  time_ms backoff_time = 120'000;
  std::uint32_t max_tries = 5;  // at one locality beyond the first; no_limit: it never relaxes
  job_locality first_locality = job_locality::packed;
  std::uint32_t preempt_percent = 90;  // of healthy GPUs used; above 100: nobody is preempted
  std::uint32_t max_retries = 3;       // of failures of unknown cause

  static constexpr std::uint32_t no_limit = (std::numeric_limits<std::uint32_t>::max)();
};

// kInvalidArgument: no tenant, quotas that are more than all GPUs, times that are not above 0.
[[nodiscard]] inline absl::Status check_philly(const philly_options& options, std::uint64_t gpus) {
  if (options.quotas.empty()) return absl::InvalidArgumentError("no tenant has a quota");
  std::uint64_t reserved = 0;
  for (const std::uint32_t quota : options.quotas) reserved += quota;
  if (reserved > gpus) {
    return absl::InvalidArgumentError("quotas of " + std::to_string(reserved) + " GPUs of " +
                                      std::to_string(gpus));
  }
  if (options.acquire_time <= 0 || options.backoff_time <= 0) {
    return absl::InvalidArgumentError("acquire_time " + std::to_string(options.acquire_time) +
                                      ", backoff_time " + std::to_string(options.backoff_time) +
                                      ": both are above 0");
  }
  return absl::OkStatus();
}
// The same of `servers`; kInvalidArgument also as check_servers(servers).
[[nodiscard]] inline absl::Status check_philly(const philly_options& options) {
  APIARY_RETURN_IF_ERROR(check_servers(options.servers));
  std::uint64_t gpus = 0;
  for (const std::uint32_t here : options.servers.gpus) gpus += here;
  return check_philly(options, gpus);
}

APIARY_NAMESPACE_END
