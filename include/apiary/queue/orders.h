// apiary/queue/orders.h - which job comes first.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/model/job.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The order of the jobs of a job_queue, which run to their end: a job has one position for ever,
// also when it waits again because its server broke. An order may have a state, for example what
// each tenant has got so far.
//
// (o: an order, r: a job_request, now: a time)
// | expression         | meaning                                                              |
// |--------------------|----------------------------------------------------------------------|
// | o.position(r, now) | the position of r, which is submitted now: a lower one comes first,   |
// |                    | among equals the lower job id                                        |
// | o.started(p)       | optional: a job at position p starts                                 |
// Example: examples/own_queue.cpp
template <class O>
concept JobOrder = requires(O& o, const job_request& r, time_ms now) {
  { o.position(r, now) } -> std::same_as<std::int64_t>;
};

// By arrival. With an aging, a job counts as if it had arrived priority * aging milliseconds
// earlier, so each job becomes the first one.
struct arrival_order {
  time_ms aging = 0;  // milliseconds for each unit of priority
  // See JobOrder. Requires: |priority| * aging and times below 2^61.
  [[nodiscard]] std::int64_t position(const job_request& r, time_ms now) const noexcept {
    return now - r.priority * aging;
  }
};

// By GPUs * estimate, at most 2^61: shortest service first. Long jobs may starve.
// Model: Hu et al., "Characterization and prediction of deep learning workloads" (SC 2021), QSSF;
//        the prediction is the job's estimate.
struct gpu_time_order {
  // See JobOrder.
  [[nodiscard]] std::int64_t position(const job_request& r, time_ms /*now*/) const noexcept {
    constexpr time_ms most = time_ms{1} << 61;
    return r.estimate < most / r.gpus ? r.estimate * r.gpus : most;
  }
};

// The higher priority first, then by arrival. Jobs of low priority may starve.
class priority_order {
 public:
  // See JobOrder. Requires: fewer than 2^31 jobs.
  [[nodiscard]] std::int64_t position(const job_request& r, time_ms /*now*/) noexcept {
    return -std::int64_t{r.priority} * (std::int64_t{1} << 31) + arrivals_++;
  }

 private:
  std::int64_t arrivals_ = 0;
};

// How much a job of a suspending_queue has run.
struct service {
  time_ms had = 0;      // how long it ran before its last start
  time_ms lost = 0;     // of it, what it must run again because a server broke
  time_ms started = 0;  // its last start
};

// The order of the jobs of a suspending_queue: by GPU-time. The position of a job that waits stays;
// that of a job that runs is max(0, GPUs * (level + shift(now))): the level stays, the shift
// changes with time.
// Model: the two-dimensional orders of Gu et al., "Tiresias" (NSDI 2019); with thresholds, the
//        queues of its discretized order, in which jobs are in order of id (there: of their first
//        start).
class service_order {
 public:
  // Which GPU-time counts.
  enum class measures : std::uint8_t {
    attained,   // GPUs * time that the job has run so far
    remaining,  // GPUs * remaining time, by the estimate
  };
  // The least of this GPU-time comes first. thresholds, for attained only: jobs are ordered by the
  // largest threshold that they have reached, or 0, then by id; empty: by what they have attained.
  // Requires: thresholds above 0, ascending.
  explicit service_order(measures measure = measures::attained,
                         std::vector<std::int64_t> thresholds = {})
      : measure_(measure), thresholds_(std::move(thresholds)) {
    APIARY_ASSERT(thresholds_.empty() || (measure_ == measures::attained && thresholds_[0] > 0 &&
                                          std::is_sorted(thresholds_.begin(), thresholds_.end())));
  }
  // Whether each job needs an estimate.
  [[nodiscard]] bool needs_estimates() const noexcept { return measure_ == measures::remaining; }
  // In GPUs * ms.
  [[nodiscard]] const std::vector<std::int64_t>& thresholds() const noexcept { return thresholds_; }
  // The position of a job that waits.
  [[nodiscard]] std::int64_t waiting(const job_request& r, const service& s) const noexcept {
    if (needs_estimates()) return (std::max<time_ms>)(0, r.estimate - s.had + s.lost) * r.gpus;
    const std::int64_t attained = s.had * r.gpus;
    if (thresholds_.empty()) return attained;
    const auto above = std::upper_bound(thresholds_.begin(), thresholds_.end(), attained);
    return above == thresholds_.begin() ? 0 : *(above - 1);
  }
  // The level of a job that runs.
  [[nodiscard]] std::int64_t level(const job_request& r, const service& s) const noexcept {
    return needs_estimates() ? r.estimate - s.had + s.lost + s.started : s.had - s.started;
  }
  // What all levels are shifted by now.
  [[nodiscard]] std::int64_t shift(time_ms now) const noexcept {
    return needs_estimates() ? -now : now;
  }

 private:
  measures measure_;
  std::vector<std::int64_t> thresholds_;
};

APIARY_NAMESPACE_END
