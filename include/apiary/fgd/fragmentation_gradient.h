// apiary/fgd/fragmentation_gradient.h - FGD's score: how little a placement fragments the cluster.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/dense_map.h>
#include <apiary/core/ids.h>
#include <apiary/fgd/detail/errors.h>
#include <apiary/fgd/node_score.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>

APIARY_NAMESPACE_BEGIN

// The score of FGD: trunc(100 * sigmoid((F(n) before - F(n) after) / 1000)), where F(n) is the
// fragmentation of node n. A task with a fraction of a GPU gets the score of its best GPU, and the
// first GPU with that score.
//
// The score is exact: F is an integer here (metric/fragmentation.h), and the sigmoid becomes 99
// integer thresholds. They are logarithms rounded up: one within the last bit of a double of an
// integer could differ by one between mathematical libraries.
//
// Model: "Beware of Fragmentation" (USENIX ATC 2023), section 4. Difference: placements that do not
//        change F all score 50 here; in the published simulator 49 or 50, by the last bit.
// Cost:  score and update as fragmentation::usable; 8 bytes for each node.
class fragmentation_gradient {
 public:
  // Scores do not depend on memory.
  static constexpr bool ignores_memory = true;

  // A score that lowers this metric.
  explicit fragmentation_gradient(fragmentation metric) : metric_(std::move(metric)) {
    const double scale = 1000.0 * static_cast<double>(metric_.total_weight());
    for (std::uint32_t s = 1; s < 100; ++s) {
      least_gain_[s - 1] = static_cast<std::int64_t>(std::ceil(scale * std::log(s / (100.0 - s))));
    }
  }

  // kInvalidArgument: the mix of the metric is empty.
  [[nodiscard]] absl::Status check() const { return detail::check_mix(metric_.total_weight()); }
  // Computes the fragmentation of node n again, after a change of the node.
  void update(const node_table& nodes, node_id n) {
    if (!usable_.contains(n)) usable_.resize(n.value + 1);
    usable_[n] = metric_.usable(nodes[n]);
  }

  // The score of node n.
  [[nodiscard]] std::uint32_t score(const node_table& nodes, node_id n,
                                    const task_request& task) const noexcept {
    const outlook ahead(*this, nodes[n], n, task);
    if (!task.wants_part_of_gpu()) return to_score(ahead.gain);
    std::int64_t best = ahead.worst;
    for (const milli_gpu left : nodes[n].each_gpu()) {
      if (left >= task.gpu_milli) best = (std::max)(best, ahead.gain_on(left, task.gpu_milli));
    }
    return to_score(best);
  }
  // The GPUs of node n that give this score.
  [[nodiscard]] std::uint32_t gpu_mask(const node_table& nodes, node_id n,
                                       const task_request& task) const noexcept {
    if (!task.wants_gpu()) return 0;
    const node_state& node = nodes[n];
    if (task.wants_whole_gpus()) return node.first_free_gpus(task.gpus);
    const outlook ahead(*this, node, n, task);
    const std::uint32_t best = score(nodes, n, task);
    std::uint32_t i = 0;
    while (node.gpu_left[i] < task.gpu_milli ||
           to_score(ahead.gain_on(node.gpu_left[i], task.gpu_milli)) != best) {
      ++i;
    }
    return std::uint32_t{1} << i;
  }

  // What a change of a node adds: W * (F after - F before), W the total weight of the mix.
  [[nodiscard]] std::int64_t cost(const node_state& before,
                                  const node_state& after) const noexcept {
    return static_cast<std::int64_t>(metric_.weighted(after) - metric_.weighted(before));
  }

 private:
  // The node without the task's CPU, and what its GPUs are then worth to the mix.
  struct outlook {
    fragmentation::row row;
    std::uint32_t free = 0;
    std::int64_t gain = 0;  // W * (F before - F after); without the GPU, for a fraction of one
    static constexpr std::int64_t worst = INT64_MIN;

    outlook(const fragmentation_gradient& self, const node_state& node, node_id n,
            const task_request& task) noexcept
        : row(self.metric_.row_of(node.model, node.left.cpu_milli - task.cpu_milli)),
          free(node.free_gpus()) {
      const std::uint64_t taken = self.metric_.total_weight() * task.total_gpu_milli();
      gain = static_cast<std::int64_t>(taken + row.usable(node.each_gpu()) - self.usable_[n]);
      if (task.wants_whole_gpus()) {
        gain += several(free - task.gpus) -
                static_cast<std::int64_t>(task.gpus * row.of_gpu(whole_gpu));
      }
    }
    // What kinds with several GPUs gain when `now` GPUs are free instead of `free`.
    [[nodiscard]] std::int64_t several(std::uint32_t now) const noexcept {
      return static_cast<std::int64_t>(row.of_free(now) - row.of_free(free));
    }
    [[nodiscard]] std::int64_t gain_on(milli_gpu left, milli_gpu taken) const noexcept {
      const auto after = static_cast<milli_gpu>(left - taken);
      return gain + static_cast<std::int64_t>(row.of_gpu(after) - row.of_gpu(left)) +
             (left == whole_gpu ? several(free - 1) : 0);
    }
  };

  [[nodiscard]] std::uint32_t to_score(std::int64_t gain) const noexcept {
    return static_cast<std::uint32_t>(
        std::upper_bound(least_gain_.begin(), least_gain_.end(), gain) - least_gain_.begin());
  }

  fragmentation metric_;
  dense_map<node_id, std::uint64_t> usable_;   // W * (left - F) of each node as it is
  std::array<std::int64_t, 99> least_gain_{};  // for the scores 1, ..., 99
};

static_assert(NodeScore<fragmentation_gradient>);

APIARY_NAMESPACE_END
