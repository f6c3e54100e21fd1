// apiary/gandiva/detail/elastic.h - growing jobs to idle GPUs of their server, and shrinking them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A running job that may use more GPUs of its server than it asked for.
struct elastic_job {
  job_id job{};
  std::uint32_t asked = 1;
  std::uint32_t has = 1;   // asked, ..., most
  std::uint32_t most = 1;  // the most that it can use
};
// A job and the number of GPUs that it has from now on.
struct resize {
  job_id job{};
  std::uint32_t gpus = 0;
  friend constexpr bool operator==(resize, resize) noexcept = default;
};

// Gives (`more`) or takes one GPU after another. next(jobs) is the index of the job that gets or loses
// the next GPU, or the number of jobs to stop. Returns the jobs that changed, in the order of `jobs`.
template <class Next>
[[nodiscard]] std::vector<resize> resize_one_by_one(std::span<const elastic_job> jobs,
                                                    std::uint32_t gpus, bool more, Next&& next) {
  std::vector<elastic_job> now(jobs.begin(), jobs.end());
  for (; gpus > 0; --gpus) {
    const std::size_t i = next(now);
    if (i == now.size()) break;
    now[i].has += more ? 1U : ~0U;
  }
  std::vector<resize> changed;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i].has != jobs[i].has) changed.push_back({now[i].job, now[i].has});
  }
  return changed;
}

// Gives the idle GPUs of a server to its jobs, if the GPUs have been idle for the whole period: one at
// a time to the job with the fewest GPUs that can use more; ties go to the lower id. Returns the jobs
// that grow, in the order of `jobs`; empty if idle_for < period.
//
// Model: "Gandiva" (OSDI 2018), §3.2, grow-shrink, for jobs that opted in.
// Cost:  O(jobs * idle).
[[nodiscard]] inline std::vector<resize> grow(std::span<const elastic_job> jobs, std::uint32_t idle,
                                              time_ms idle_for, time_ms period) {
  if (idle_for < period) return {};
  return resize_one_by_one(jobs, idle, true, [](const std::vector<elastic_job>& now) {
    std::size_t best = now.size();
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (now[i].has >= now[i].most) continue;
      if (best == now.size() || now[i].has < now[best].has ||
          (now[i].has == now[best].has && now[i].job < now[best].job))
        best = i;
    }
    return best;
  });
}

// Takes back `needed` GPUs, or all that jobs have grown by if these are fewer: one at a time from the
// job with the most GPUs that has grown; ties go to the higher id. Returns the jobs that shrink, in the
// order of `jobs`.
// Cost: O(jobs * needed).
[[nodiscard]] inline std::vector<resize> shrink(std::span<const elastic_job> jobs,
                                                std::uint32_t needed) {
  return resize_one_by_one(jobs, needed, false, [](const std::vector<elastic_job>& now) {
    std::size_t best = now.size();
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (now[i].has <= now[i].asked) continue;
      if (best == now.size() || now[i].has > now[best].has ||
          (now[i].has == now[best].has && now[i].job > now[best].job))
        best = i;
    }
    return best;
  });
}

}  // namespace detail
APIARY_NAMESPACE_END
