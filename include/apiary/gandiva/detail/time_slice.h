// apiary/gandiva/detail/time_slice.h - time slices: their limits, their jobs and what the host does.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
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

// By how much a pass grows in a millisecond if the weight is 1.
inline constexpr std::int64_t slice_pass_unit = 0xfffff;
// What running for `ran` adds to a pass. Requires: weight > 0, 0 <= ran < slice_end_of_time.
[[nodiscard]] constexpr std::int64_t slice_pass(time_ms ran, std::uint32_t weight) noexcept {
  APIARY_ASSERT(weight > 0);
  return ran * slice_pass_unit / weight;
}

// kInvalidArgument: a period, with this name, that is not above 0.
[[nodiscard]] inline absl::Status check_period(const char* name, time_ms period) {
  if (period > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " ", period, " ms; it must be above 0"));
}
// kInvalidArgument: a weight that is not in 1, ..., 1000.
[[nodiscard]] inline absl::Status check_slice_weight(job_id job, std::uint32_t weight) {
  if (weight > 0 && weight <= 1000) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name_of(job), " has weight ", weight, "; a weight is 1 to 1000"));
}
// kInvalidArgument: a time before `last`, or one that is not below slice_end_of_time.
[[nodiscard]] inline absl::Status check_slice_time(time_ms now, time_ms last) {
  if (now >= last && now < slice_end_of_time) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("time ", now, " is not in ", last, ", ..., ", slice_end_of_time - 1));
}

// The time after which a job starves: so many quanta; max_time if `quanta` is 0.
[[nodiscard]] constexpr time_ms starving_time(std::uint32_t quanta, time_ms quantum) noexcept {
  return quanta == 0 || quantum > max_time / quanta ? max_time : quanta * quantum;
}

// The weight by which the time of a job is divided if jobs share GPU-time: 1000 * weight / GPUs, at
// least 1.
[[nodiscard]] constexpr std::uint32_t gpu_time_weight(std::uint32_t weight,
                                                      std::uint32_t gpus) noexcept {
  return (std::max)(1U, weight * 1000 / (std::max)(1U, gpus));
}

// Chooses the jobs of the next time slice on `gpus` GPUs, each that fits into the GPUs left: by
// priority (highest first), then by pass (lowest first) and id. Returns their indices, ascending. A
// new job starts with the lowest pass on its server. O(jobs log jobs).
// Model: stride scheduling (Waldspurger, Weihl, MIT/LCS/TM-528, 1995); Gandiva: round robin.
[[nodiscard]] inline std::vector<std::size_t> choose_slice(std::span<const sliced_job> jobs,
                                                           std::uint32_t gpus) {
  std::vector<std::size_t> order(jobs.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
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

// What the host must do with a job of time_sharing.
template <class Placement>
struct time_sharing_action {
  // The kind of action.
  enum class verb : std::uint8_t {
    start,    // run the job at `where`, for the first time
    suspend,  // stop the job and keep its progress; it waits
    resume,   // run the job at `where`, from where it was suspended
    migrate,  // suspend the job and resume it at `where`
  };
  verb what = verb::start;  // what to do
  job_id job{};             // the job
  Placement where{};        // empty for suspend
  friend bool operator==(const time_sharing_action&, const time_sharing_action&) = default;
};

}  // namespace detail
APIARY_NAMESPACE_END
