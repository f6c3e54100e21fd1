// apiary/queue/detail/run_queues.h - running jobs, by a GPU-time that changes while they run.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A job's position in the order is max(0, GPUs * (level + shift)), then its id. The shift is common
// to all jobs and changes with time, so jobs with equal GPU counts, in one queue, keep their order.
// With thresholds, the position is the largest of them that this is not below, or 0.
// Requires: the shift never increases while a job is below 0 and, with thresholds, no job is and
//           the shift never decreases; positions and times below 2^62; thresholds above 0,
//           ascending.
// Cost:     a call O(log jobs), or O(GPU counts * log jobs) where it looks at all queues; amortized
//           for shift_to(), which moves each job once; with thresholds, once for each of them.
class run_queues {
 public:
  // A job at its position.
  struct entry {
    job_id job{};
    std::int64_t key = 0;
    std::uint32_t gpus = 0;
  };
  explicit run_queues(std::vector<std::int64_t> thresholds = {})
      : thresholds_(std::move(thresholds)), crossings_(thresholds_.size()) {}
  // The GPUs of all jobs.
  [[nodiscard]] std::uint32_t gpus() const noexcept { return gpus_; }
  [[nodiscard]] bool empty() const noexcept { return gpus_ == 0; }

  // Requires: the job is not here, and has GPUs.
  void insert(job_id job, std::uint32_t gpus, std::int64_t level) {
    gpus_ += gpus;
    if (!thresholds_.empty()) {
      const std::size_t step = step_at((level + shift_) * gpus);
      steps_.insert({step_begin(step), job.value, gpus});
      if (step < thresholds_.size())
        crossings_[step].insert({crossing(step, gpus) - level, job.value, gpus});
      return;
    }
    below(level) ? below_.insert({job.value, job.value, gpus})
                 : queues_[gpus].insert({level, job.value, gpus});
  }
  // Requires: it was inserted with these.
  void erase(job_id job, std::uint32_t gpus, std::int64_t level) {
    gpus_ -= gpus;
    if (!thresholds_.empty()) {
      const std::size_t step = step_at((level + shift_) * gpus);
      steps_.erase(step_begin(step), job.value);
      if (step < thresholds_.size())
        crossings_[step].erase(crossing(step, gpus) - level, job.value);
      return;
    }
    below(level) ? below_.erase(job.value, job.value) : queues_.at(gpus).erase(level, job.value);
  }
  // Sets the shift.
  void shift_to(std::int64_t shift) {
    shift_ = shift;
    for (std::size_t step = 0; step < crossings_.size(); ++step) {
      while (const std::optional<weighted_tree::item> first = crossings_[step].first()) {
        if (first->key > shift) break;
        crossings_[step].erase(first->key, first->id);
        steps_.erase(step_begin(step), first->id);
        const auto gpus = static_cast<std::uint32_t>(first->weight);
        gpus_ -= gpus;
        insert(job_id(first->id), gpus, crossing(step, gpus) - first->key);
      }
    }
    for (auto& [gpus, jobs] : queues_) {
      while (const std::optional<weighted_tree::item> first = jobs.first()) {
        if (!below(first->key)) break;
        jobs.erase(first->key, first->id);
        below_.insert({first->id, first->id, gpus});
      }
    }
  }
  // The GPUs of all jobs before this position >= 0 and id, which no job has.
  [[nodiscard]] std::uint32_t gpus_before(std::int64_t position, job_id job) const noexcept {
    if (!thresholds_.empty()) return static_cast<std::uint32_t>(steps_.sum_to(position, job.value));
    std::int64_t sum = position > 0 ? below_.sum() : below_.sum_to(job.value);
    for (const auto& [gpus, jobs] : queues_) {
      const std::int64_t level = position / gpus - shift_;
      sum += position % gpus == 0 ? jobs.sum_to(level, job.value) : jobs.sum_to(level);
    }
    return static_cast<std::uint32_t>(sum);
  }

  // Visits all jobs from the last to the first. Requires: the queues do not change meanwhile.
  class walk_back {
   public:
    explicit walk_back(const run_queues& all) {
      constexpr std::int64_t end = (std::numeric_limits<std::int64_t>::max)();
      for (const auto& [gpus, jobs] : all.queues_) {
        if (!jobs.empty()) cursors_.push_back({&jobs, all.shift_, gpus, jobs.previous(end, ~0U)});
      }
      if (!all.below_.empty())
        cursors_.push_back({&all.below_, 0, 0, all.below_.previous(end, ~0U)});
      if (!all.steps_.empty())
        cursors_.push_back({&all.steps_, 0, 1, all.steps_.previous(end, ~0U)});
    }
    // The next job; nullopt after the first job of all.
    std::optional<entry> next() {
      cursor* last = nullptr;
      for (cursor& c : cursors_) {
        if (c.next && (last == nullptr || before(*last, c))) last = &c;
      }
      if (last == nullptr) return std::nullopt;
      const entry found{job_id(last->next->id), position(*last),
                        static_cast<std::uint32_t>(last->next->weight)};
      last->next = last->jobs->previous(last->next->key, last->next->id);
      return found;
    }

   private:
    struct cursor {
      const weighted_tree* jobs;
      std::int64_t shift;
      std::uint32_t gpus;  // by which key and shift are multiplied
      std::optional<weighted_tree::item> next;
    };
    [[nodiscard]] std::int64_t position(const cursor& c) const noexcept {
      return (c.next->key + c.shift) * c.gpus;
    }
    [[nodiscard]] bool before(const cursor& a, const cursor& b) const noexcept {
      return position(a) != position(b) ? position(a) < position(b) : a.next->id < b.next->id;
    }

    std::vector<cursor> cursors_;
  };

 private:
  [[nodiscard]] bool below(std::int64_t level) const noexcept { return level + shift_ < 0; }
  // The number of thresholds up to this position.
  [[nodiscard]] std::size_t step_at(std::int64_t position) const noexcept {
    const auto above = std::upper_bound(thresholds_.begin(), thresholds_.end(), position);
    return static_cast<std::size_t>(above - thresholds_.begin());
  }
  [[nodiscard]] std::int64_t step_begin(std::size_t step) const noexcept {
    return step == 0 ? 0 : thresholds_[step - 1];
  }
  // The least sum of level and shift that is beyond this step.
  [[nodiscard]] std::int64_t crossing(std::size_t step, std::uint32_t gpus) const noexcept {
    return (thresholds_[step] + gpus - 1) / gpus;
  }
  std::vector<std::int64_t> thresholds_;
  weighted_tree steps_;                   // with thresholds, all jobs, by position
  std::vector<weighted_tree> crossings_;  // by the shift at which a job reaches each threshold
  std::map<std::uint32_t, weighted_tree> queues_;  // by GPUs; by level, weighed by GPUs
  weighted_tree below_;                            // jobs below 0, by id
  std::int64_t shift_ = 0;
  std::uint32_t gpus_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
