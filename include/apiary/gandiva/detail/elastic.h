// apiary/gandiva/detail/elastic.h - growing jobs to idle GPUs of their server, and shrinking them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
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

// Gives `gpus` idle GPUs of a server (`more`) one by one to the job with the fewest that can use
// more (ties: the lower id), or takes GPUs from the job with the most that has grown (ties: the
// higher id), while there is such a job. Returns the jobs that changed, in order. O(jobs * gpus).
// Model: "Gandiva" (OSDI 2018), §3.2, grow-shrink, for jobs that opted in.
[[nodiscard]] inline std::vector<resize> resized(std::span<const elastic_job> jobs,
                                                 std::uint32_t gpus, bool more) {
  std::vector<elastic_job> now(jobs.begin(), jobs.end());
  for (; gpus > 0; --gpus) {
    elastic_job* next = nullptr;
    for (elastic_job& j : now) {
      if (more ? j.has >= j.most : j.has <= j.asked) continue;
      if (next == nullptr || (std::pair(j.has, j.job) < std::pair(next->has, next->job)) == more)
        next = &j;
    }
    if (next == nullptr) break;
    next->has += more ? 1U : ~0U;
  }
  std::vector<resize> changed;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i].has != jobs[i].has) changed.push_back({now[i].job, now[i].has});
  }
  return changed;
}

}  // namespace detail
APIARY_NAMESPACE_END
