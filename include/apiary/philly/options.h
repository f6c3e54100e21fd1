// apiary/philly/options.h - options of the Philly scheduler.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/model/server_spec.h>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Where the GPUs of a job may be, the strictest first. A rack is an RDMA domain. For a job that is
// larger than every rack, only the number of servers counts.
enum class job_locality : std::uint8_t {
  packed,    // in one rack, on the fewest servers that could hold it if they were idle
  one_rack,  // in one rack, on any servers
  anywhere,  // on any servers
};

// Options of the Philly scheduler. The default times are the published ones.
struct philly_options {
  server_spec servers{};                // `anywhere` is not used
  std::vector<std::uint32_t> quotas{};  // GPUs of each tenant
  time_ms acquire_time = 150'000;       // a job tries to get its GPUs; published: 2 to 3 minutes
  time_ms backoff_time = 120'000;       // how long it pauses after that
  std::uint32_t max_tries = 5;  // the locality relaxes after max_tries + 1 tries; no_limit: never
  job_locality first_locality = job_locality::packed;  // of a new job
  // Jobs preempt others while this percentage of the healthy GPUs is in use; nullopt: never.
  std::optional<std::uint32_t> preempt_percent = 90;
  std::uint32_t max_retries = 3;  // after failures of unknown cause
  // For max_tries: a job keeps its first locality.
  static constexpr std::uint32_t no_limit = (std::numeric_limits<std::uint32_t>::max)();

  // kInvalidArgument: as servers.check(); no tenant, quotas that add up to more GPUs than there
  // are, a percentage above 100, or a time not above 0.
  [[nodiscard]] absl::Status check() const {
    APIARY_RETURN_IF_ERROR(servers.check());
    std::uint64_t gpus = 0;
    for (const std::uint32_t here : servers.gpus) gpus += here;
    if (quotas.empty()) return absl::InvalidArgumentError("no tenant has a quota");
    std::uint64_t reserved = 0;
    for (const std::uint32_t quota : quotas) reserved += quota;
    if (reserved > gpus) {
      return absl::InvalidArgumentError(
          absl::StrCat("the quotas add up to ", reserved, " GPUs; the cluster has ", gpus));
    }
    if (preempt_percent && *preempt_percent > 100)
      return absl::InvalidArgumentError(
          absl::StrCat("preempt_percent is ", *preempt_percent, "; it must be at most 100"));
    if (acquire_time > 0 && backoff_time > 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("acquire_time ", acquire_time, ", backoff_time ",
                                                   backoff_time, ": both must be above 0"));
  }
};

APIARY_NAMESPACE_END
