// apiary/metric/task_mix.h - the typical tasks of a cluster, with weights.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/model/request.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A kind of task. Two tasks are of the same kind if they are equal except for memory.
struct task_kind {
  std::uint32_t cpu_milli = 0;   // thousandths of a core
  std::uint32_t gpus = 0;        // 0: no GPU
  milli_gpu gpu_milli = 0;       // of each GPU
  model_set models = any_model;  // GPU models that it accepts
  // The rank of the text that stated the GPU models: other words make another kind, as published.
  std::uint32_t spec = 0;

  // As task_request::valid().
  [[nodiscard]] constexpr bool valid() const noexcept {
    return task_request{.gpus = gpus, .gpu_milli = gpu_milli}.valid();
  }
  friend bool operator==(const task_kind&, const task_kind&) noexcept = default;
};

// The target workload of a fragmentation metric: kinds of tasks with weights.
//
// Model:   "Beware of Fragmentation" (USENIX ATC 2023), section 3.2.
// Example: examples/fragmentation.cpp
class task_mix {
 public:
  // A kind of task and how often it occurs.
  struct weighted_kind {
    task_kind kind{};          // the kind
    std::uint32_t weight = 0;  // how often it occurs
    double probability = 0.0;  // weight / sum of the weights, rounded as in the published simulator
  };

  // A mix without kinds.
  task_mix() = default;

  // A mix of kinds with given weights. Kinds with weight 0 are ignored.
  // Requires: every kind is valid(); the sum of the weights is below 2^32.
  explicit task_mix(const std::vector<std::pair<task_kind, std::uint32_t>>& kinds);

  // The most frequent kinds of a history, as few as cover `coverage_percent` of its tasks. Ties go
  // to the greater (cpu_milli, gpu_milli, gpus, spec, models). Requires: every kind is valid().
  // Cost: O(n log n).
  [[nodiscard]] static task_mix from_history(std::span<const task_kind> seen,
                                             std::uint32_t coverage_percent = 95);

  // The kinds with their weights.
  [[nodiscard]] std::span<const weighted_kind> tasks() const noexcept { return tasks_; }
  // The sum of the weights.
  [[nodiscard]] std::uint64_t total_weight() const noexcept { return total_weight_; }

 private:
  std::vector<weighted_kind> tasks_;
  std::uint64_t total_weight_ = 0;
};

// A task mix that is learnt from arrivals, for hosts without a history: an exponential average. A
// task counts half as much after 0.69 * window later arrivals.
//
// Cost:    add: O(log kinds), and O(kinds) for a new kind. mix: O(kinds log kinds).
// Example: examples/learned_prices.cpp
class recent_mix {
  // What kinds are sorted by.
  [[nodiscard]] static auto key(const task_kind& k) noexcept {
    return std::tie(k.cpu_milli, k.gpu_milli, k.gpus, k.spec, k.models);
  }

 public:
  // The most kinds that are kept. A new kind then replaces the one that counts least.
  static constexpr std::size_t max_kinds = 4096;
  // Nothing has arrived. Requires: 0 < window <= 1,000,000.
  explicit recent_mix(std::uint32_t window) noexcept : window_(window) {
    APIARY_ASSERT(window > 0 && window <= 1'000'000);
  }

  // A task of this kind has arrived. Requires: kind.valid().
  void add(const task_kind& kind);
  // The number of arrivals.
  [[nodiscard]] std::uint64_t arrivals() const noexcept { return arrivals_; }
  // The kinds that have arrived, the most frequent ones first, and of equally frequent ones the
  // greater ones. A kind that counts less than 1/100,000 of all may be missing.
  [[nodiscard]] task_mix mix() const;

 private:
  struct counted {
    task_kind kind{};
    std::uint64_t weight = 0;
  };
  // Where the kind is, or would be.
  [[nodiscard]] std::vector<counted>::iterator position_of(const task_kind& kind);

  std::uint32_t window_;
  std::uint64_t arrivals_ = 0;
  std::uint64_t unit_ = std::uint64_t{1} << 20;  // what the next task counts
  std::vector<counted> kinds_{};                 // by kind
};

APIARY_NAMESPACE_END

#ifndef APIARY_COMPILED
#include <apiary/metric/detail/task_mix_inl.h>
#endif
