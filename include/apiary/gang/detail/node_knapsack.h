// apiary/gang/detail/node_knapsack.h - the heaviest tasks that a node with whole free GPUs can hold.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The largest weight of tasks that a node with 0, 1, ... free GPUs can hold (a knapsack), and how
// many tasks of each size that takes. Cost: O(sizes * GPUs), times the tasks on a node for sizes
// with a limit.
class node_knapsack {
 public:
  // A size of tasks. A node holds a multiple of `step` tasks, at most `most`.
  struct task_size {
    std::uint32_t gpus = 0;
    std::uint32_t tasks = 0;
    std::uint32_t step = 1;
    std::uint32_t most = ~std::uint32_t{0};
  };
  // Requires: at least one GPU a task, and weights of at least 0.
  void assign(std::span<const task_size> sizes, std::span<const std::int64_t> weights,
              std::size_t max_free) {
    gpus_.clear();
    best_.assign(max_free + 1, 0);
    taken_.assign(sizes.size() * (max_free + 1), 0);
    for (std::size_t u = 0; u < sizes.size(); ++u) {
      gpus_.push_back(sizes[u].gpus);
      std::uint32_t* const taken = &taken_[u * (max_free + 1)];
      const std::size_t step = std::size_t{sizes[u].step} * sizes[u].gpus;
      if (weights[u] <= 0 || step > max_free) continue;
      const std::int64_t weight = weights[u] * sizes[u].step;
      const std::uint32_t most = (std::min)(sizes[u].most, sizes[u].tasks) / sizes[u].step;
      if (most >= max_free / step) {
        for (std::size_t f = step; f <= max_free; ++f) {
          if (best_[f - step] + weight <= best_[f]) continue;
          best_[f] = best_[f - step] + weight;
          taken[f] = taken[f - step] + sizes[u].step;
        }
        continue;
      }
      for (std::size_t f = max_free + 1; f-- > step;) {
        const std::int64_t before = best_[f];
        for (std::uint32_t n = 1; n <= most && n * step <= f; ++n) {
          if (best_[f - n * step] + n * weight <= best_[f]) continue;
          best_[f] = best_[f - n * step] + n * weight;
          taken[f] = n * sizes[u].step;
        }
        if (best_[f] == before) taken[f] = 0;
      }
    }
  }
  // The largest weight for each number of free GPUs.
  [[nodiscard]] std::span<const std::int64_t> best() const noexcept { return best_; }
  // Appends the tasks of each size of a heaviest combination.
  void append_tasks(std::size_t free, lean_vector<std::int64_t>& to) const {
    const std::size_t first = to.size();
    to.resize(first + gpus_.size());
    for (std::size_t u = gpus_.size(); u-- > 0;) {
      const std::uint32_t n = taken_[u * best_.size() + free];
      to[first + u] = n;
      free -= n * gpus_[u];
    }
  }

 private:
  lean_vector<std::uint32_t> gpus_;
  lean_vector<std::int64_t> best_;
  lean_vector<std::uint32_t> taken_;  // by size, then by free GPUs
};

}  // namespace detail
APIARY_NAMESPACE_END
