// apiary/gandiva/detail/time_slice.h - which of the jobs that share a server run next.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A job on a server that takes turns.
struct sliced_job {
  job_id job{};
  std::uint32_t gpus = 1;
  std::int32_t priority = 0;
  std::int64_t pass = 0;  // the time that it ran, in slice_pass()
};

// What `ran` adds to the pass of a job: the more weight, the less. Requires: weight > 0, 0 <= ran <
// 2^43.
[[nodiscard]] constexpr std::int64_t slice_pass(time_ms ran, std::uint32_t weight) noexcept {
  APIARY_ASSERT(weight > 0);
  return ran * 0xfffff / weight;
}

// Indices of the jobs that run in the next quantum on so many GPUs, ascending: in the order of
// priority (the highest first), pass (the least first) and id, each that fits into what is left.
//
// So whoever waits is first of its priority in the end, and jobs of one priority get time by their
// weights; a job never keeps one of a higher priority from running.
// Model: stride scheduling (Waldspurger, Weihl, MIT/LCS/TM-528, 1995); in Gandiva (OSDI 2018, §3.1)
//        round robin. A job that comes begins with the least pass of those that are there.
// Cost:  O(jobs log jobs).
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
