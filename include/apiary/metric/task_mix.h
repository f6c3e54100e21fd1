// apiary/metric/task_mix.h - the typical tasks of a cluster, with weights.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/sort.h>
#include <apiary/model/request.h>

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
  explicit task_mix(const std::vector<std::pair<task_kind, std::uint32_t>>& kinds) {
    for (const auto& [kind, weight] : kinds) total_weight_ += weight;
    APIARY_VERIFY(total_weight_ >> 32 == 0);
    for (const auto& [kind, weight] : kinds) {
      APIARY_VERIFY(kind.valid());
      if (weight == 0) continue;
      tasks_.push_back(
          {kind, weight, static_cast<double>(weight) / static_cast<double>(total_weight_)});
    }
  }

  // The most frequent kinds of a history, as few as cover `coverage_percent` of its tasks. Ties go
  // to the greater (cpu_milli, gpu_milli, gpus, spec, models). Requires: every kind is valid().
  // Cost: O(n log n).
  [[nodiscard]] static task_mix from_history(std::span<const task_kind> seen,
                                             std::uint32_t coverage_percent = 95) {
    const auto before = [](const weighted_kind& a, const weighted_kind& b) {
      const task_kind& x = a.kind;
      const task_kind& y = b.kind;
      return std::tie(a.weight, x.cpu_milli, x.gpu_milli, x.gpus, x.spec, x.models) >
             std::tie(b.weight, y.cpu_milli, y.gpu_milli, y.gpus, y.spec, y.models);
    };
    std::vector<weighted_kind> sorted;
    for (const task_kind& kind : seen) {
      APIARY_VERIFY(kind.valid());
      sorted.push_back({kind, 1, 0.0});
    }
    detail::merge_sort(sorted, before);
    task_mix mix;
    for (const weighted_kind& task : sorted) {
      if (mix.tasks_.empty() || mix.tasks_.back().kind != task.kind) {
        mix.tasks_.push_back(task);
      } else {
        ++mix.tasks_.back().weight;
      }
    }
    detail::merge_sort(mix.tasks_, before);
    const auto n = static_cast<double>(seen.size());
    const double wanted = coverage_percent * n / 100.0;
    std::size_t taken = 0;
    while (taken < mix.tasks_.size() && static_cast<double>(mix.total_weight_) < wanted) {
      mix.total_weight_ += mix.tasks_[taken++].weight;
    }
    mix.tasks_.resize(taken);
    for (weighted_kind& task : mix.tasks_) {
      task.probability = task.weight / n / (static_cast<double>(mix.total_weight_) / n);
    }
    return mix;
  }

  // The kinds with their weights.
  [[nodiscard]] std::span<const weighted_kind> tasks() const noexcept { return tasks_; }
  // The sum of the weights.
  [[nodiscard]] std::uint64_t total_weight() const noexcept { return total_weight_; }

 private:
  std::vector<weighted_kind> tasks_;
  std::uint64_t total_weight_ = 0;
};

APIARY_NAMESPACE_END
