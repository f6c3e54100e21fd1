// apiary/gandiva/detail/time_slice.h - time slices: their limits and the jobs that run in them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
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

// The passes of running jobs, which grow with time.
// Cost: insert, erase O(log jobs); least O(distinct weights).
class running_passes {
  // The pass is base + (now * slice_pass_unit + rest) / weight, rounded down; rest is in (-weight,
  // 0]. So of equal weights the least entry has the least pass at any time.
  struct entry {
    std::int64_t base = 0;
    std::int64_t rest = 0;
    job_id job{};
    friend auto operator<=>(const entry&, const entry&) noexcept = default;
  };

 public:
  // Whether no job runs.
  [[nodiscard]] bool empty() const noexcept { return by_weight_.empty(); }
  // A job runs from `since` on and had this pass then. Requires: weight > 0, 0 <= since < 2^43.
  void insert(job_id job, std::uint32_t weight, std::int64_t pass, time_ms since) {
    by_weight_[weight].insert(entry_of(job, weight, pass, since));
  }
  // Requires: the job was inserted with these.
  void erase(job_id job, std::uint32_t weight, std::int64_t pass, time_ms since) {
    const auto jobs = by_weight_.find(weight);
    jobs->second.erase(entry_of(job, weight, pass, since));
    if (jobs->second.empty()) by_weight_.erase(jobs);
  }
  // The least pass at this time; nullopt: no job runs. Requires: now is not before any `since`.
  [[nodiscard]] std::optional<std::int64_t> least(time_ms now) const {
    std::optional<std::int64_t> pass;
    for (const auto& [weight, jobs] : by_weight_) {
      const std::int64_t at = pass_of(*jobs.begin(), weight, now);
      pass = (std::min)(pass.value_or(at), at);
    }
    return pass;
  }

  // The jobs in order of their passes at this time, the highest first, then of their ids, the
  // highest first. Cost: O(jobs log jobs).
  [[nodiscard]] std::vector<job_id> descending(time_ms now) const {
    std::vector<std::pair<std::int64_t, job_id>> order;
    for (const auto& [weight, jobs] : by_weight_)
      for (const entry& e : jobs) order.emplace_back(pass_of(e, weight, now), e.job);
    std::sort(order.rbegin(), order.rend());
    std::vector<job_id> ids;
    ids.reserve(order.size());
    for (const auto& [pass, job] : order) ids.push_back(job);
    return ids;
  }

 private:
  [[nodiscard]] static std::int64_t pass_of(const entry& e, std::uint32_t weight,
                                            time_ms now) noexcept {
    return e.base + (now * slice_pass_unit + e.rest) / weight;
  }
  [[nodiscard]] static entry entry_of(job_id job, std::uint32_t weight, std::int64_t pass,
                                      time_ms since) noexcept {
    const std::int64_t had = since * slice_pass_unit;
    return {pass - had / weight, -(had % weight), job};
  }

  std::map<std::uint32_t, std::set<entry>> by_weight_;
};

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
