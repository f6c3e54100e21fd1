// apiary/gandiva/detail/time_slice.h - which jobs of a server run in the next time slice.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// All times of time sharing are below this one, so that a pass fits into 64 bits.
inline constexpr time_ms slice_end_of_time = time_ms{1} << 43;

// A job on a server whose jobs run in time slices.
struct sliced_job {
  job_id job{};
  std::uint32_t gpus = 1;
  std::int32_t priority = 0;
  std::int64_t pass = 0;  // the time that the job ran, as slice_pass()
};

// What running for `ran` adds to a pass. Requires: weight > 0, 0 <= ran < slice_end_of_time.
[[nodiscard]] constexpr std::int64_t slice_pass(time_ms ran, std::uint32_t weight) noexcept {
  APIARY_ASSERT(weight > 0);
  return ran * 0xfffff / weight;
}

// kInvalidArgument: a weight that is not in 1, ..., 1000.
[[nodiscard]] inline absl::Status check_slice_weight(job_id job, std::uint32_t weight) {
  if (weight > 0 && weight <= 1000) return absl::OkStatus();
  return absl::InvalidArgumentError("job " + std::to_string(job.value) + " has weight " +
                                    std::to_string(weight) + "; a weight is 1 to 1000");
}
// kInvalidArgument: a time before `last`, or one that is not below slice_end_of_time.
[[nodiscard]] inline absl::Status check_slice_time(time_ms now, time_ms last) {
  if (now >= last && now < slice_end_of_time) return absl::OkStatus();
  return absl::InvalidArgumentError("time " + std::to_string(now) + " is not in " +
                                    std::to_string(last) + ", ..., " +
                                    std::to_string(slice_end_of_time - 1));
}

// Chooses the jobs of the next time slice on `gpus` GPUs: by priority (highest first), pass (lowest
// first) and id, each that fits into the GPUs left. Returns their indices, ascending. A new job
// starts with the lowest pass on its server. O(jobs log jobs).
// Model: stride scheduling (Waldspurger, Weihl, MIT/LCS/TM-528, 1995); Gandiva: round robin.
[[nodiscard]] inline std::vector<std::size_t> choose_slice(std::span<const sliced_job> jobs,
                                                           std::uint32_t gpus) {
  std::vector<std::size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (jobs[a].priority != jobs[b].priority) return jobs[a].priority > jobs[b].priority;
    if (jobs[a].pass != jobs[b].pass) return jobs[a].pass < jobs[b].pass;
    return jobs[a].job < jobs[b].job;
  });
  std::vector<std::size_t> chosen;
  for (const std::size_t i : order) {
    if (jobs[i].gpus > gpus) continue;
    gpus -= jobs[i].gpus;
    chosen.push_back(i);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace detail
APIARY_NAMESPACE_END
