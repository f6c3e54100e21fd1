// apiary/gandiva/detail/elastic.h - jobs that take the idle GPUs of their server, and give them back.
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

// A running job that may have more GPUs of its server than it asked for.
struct elastic_job {
  job_id job{};
  std::uint32_t asked = 1;
  std::uint32_t has = 1;   // asked, ..., most
  std::uint32_t most = 1;  // that it can use
};
// How many GPUs it has from now on.
struct resize {
  job_id job{};
  std::uint32_t gpus = 0;
  friend constexpr bool operator==(resize, resize) noexcept = default;
};

// Gives or takes one GPU after the other; `next` is the index of the job whose turn it is, or the
// number of jobs. Those that changed, in the order of `jobs`.
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

// Hands out the idle GPUs of a server once they have been idle for the whole period: one at a time
// to the job with the fewest that can use more, ties by id. So the smallest shares are as large as
// they can be. In the order of `jobs`; empty while idle_for < period.
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

// Takes back `needed` GPUs, or all beyond what was asked for if these are fewer: one at a time from
// the job with the most that has some beyond, ties by the highest id. In the order of `jobs`.
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
