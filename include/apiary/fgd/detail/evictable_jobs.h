// apiary/fgd/detail/evictable_jobs.h - the jobs on a node that may be evicted, by priority.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>
#include <apiary/preempt/shared_victim_search.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The jobs on a node that may be evicted, and what each of them uses there.
//
// Cost: add, remove: O(jobs on the node). The others: O(log jobs). Memory: 72 bytes for each job.
class evictable_jobs {
 public:
  using candidate = shared_victim_search::candidate;
  // The cost of no job.
  static constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();

  // A task of a job with this priority and cost runs on these GPUs.
  void add(const task_request& task, std::uint32_t gpu_mask, std::uint32_t priority,
           std::uint64_t cost) {
    const std::size_t at = position(priority, task.job);
    if (at == owners_.size() || owners_[at].job != task.job) {
      const auto offset = static_cast<std::ptrdiff_t>(at);
      owners_.insert(owners_.begin() + offset, {priority, 0, task.job, 0});
      candidates_.insert(candidates_.begin() + offset, {.cost = cost});
    }
    ++owners_[at].tasks;
    find_least(at);
    candidates_[at].host += task.host();
    for (std::uint32_t mask = gpu_mask; mask != 0; mask &= mask - 1) {
      milli_gpu& used = candidates_[at].gpus[static_cast<std::size_t>(std::countr_zero(mask))];
      used = static_cast<milli_gpu>(used + task.gpu_milli);
    }
  }
  // Takes add() back. Requires: it was called for the task, with this priority.
  void remove(const task_request& task, std::uint32_t gpu_mask, std::uint32_t priority) {
    const std::size_t at = position(priority, task.job);
    APIARY_ASSERT(at < owners_.size() && owners_[at].job == task.job);
    candidates_[at].host -= task.host();
    for (std::uint32_t mask = gpu_mask; mask != 0; mask &= mask - 1) {
      milli_gpu& used = candidates_[at].gpus[static_cast<std::size_t>(std::countr_zero(mask))];
      used = static_cast<milli_gpu>(used - task.gpu_milli);
    }
    if (--owners_[at].tasks > 0) return;
    const auto offset = static_cast<std::ptrdiff_t>(at);
    owners_.erase(owners_.begin() + offset);
    candidates_.erase(candidates_.begin() + offset);
    find_least(at);
  }

  // The jobs of priorities below this one.
  [[nodiscard]] std::span<const candidate> below(std::uint32_t priority) const {
    return std::span(candidates_).first(position(priority, job_id(0)));
  }
  // The cost of the cheapest of them; never: there is none.
  [[nodiscard]] std::uint64_t least_below(std::uint32_t priority) const {
    const std::size_t jobs = position(priority, job_id(0));
    return jobs > 0 ? owners_[jobs - 1].least : never;
  }
  // The job of candidate `number`.
  [[nodiscard]] job_id job(std::size_t number) const noexcept { return owners_[number].job; }

 private:
  // A job, and how many of its tasks are on the node.
  struct owner {
    std::uint32_t priority = 0;
    std::uint32_t tasks = 0;
    job_id job{};
    std::uint64_t least = 0;  // of its cost and the costs of those before it
  };

  // Where the job is, or would be.
  [[nodiscard]] std::size_t position(std::uint32_t priority, job_id job) const {
    const auto at = std::lower_bound(owners_.begin(), owners_.end(), std::pair{priority, job},
                                     [](const owner& a, const std::pair<std::uint32_t, job_id>& b) {
                                       return std::pair{a.priority, a.job} < b;
                                     });
    return static_cast<std::size_t>(at - owners_.begin());
  }
  // Computes `least` again from owner number `at` on.
  void find_least(std::size_t at) {
    for (; at < owners_.size(); ++at) {
      owners_[at].least = candidates_[at].cost;
      if (at > 0) owners_[at].least = (std::min)(owners_[at].least, owners_[at - 1].least);
    }
  }

  std::vector<owner> owners_{};          // by priority and id
  std::vector<candidate> candidates_{};  // what each owner uses
};

}  // namespace detail
APIARY_NAMESPACE_END
