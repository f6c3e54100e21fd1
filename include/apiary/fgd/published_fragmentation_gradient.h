// apiary/fgd/published_fragmentation_gradient.h - the score of FGD with its published rounding.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/dense_map.h>
#include <apiary/core/ids.h>
#include <apiary/fgd/detail/request_checks.h>
#include <apiary/fgd/node_score.h>
#include <apiary/fgd/published_fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

APIARY_NAMESPACE_BEGIN

// The score of fgd/fragmentation_gradient.h with F in double (fgd/published_fragmentation.h). It
// reproduces the published decisions exactly if the compiler does not contract double arithmetic
// (x86-64 without FMA, or -ffp-contract=off). To schedule, use fragmentation_gradient.
// Cost: score O(kinds of the mix * GPUs of the node * distinct fractions left).
class published_fragmentation_gradient {
 public:
  // Scores do not depend on memory.
  static constexpr bool ignores_memory = true;

  // Measures against this mix.
  explicit published_fragmentation_gradient(task_mix mix) : metric_(std::move(mix)) {}

  // kInvalidArgument: the mix is empty.
  [[nodiscard]] absl::Status check() const {
    return detail::check_mix(metric_.mix().total_weight());
  }
  // Computes the fragmentation of node n again, after a change of the node.
  void update(const node_table& nodes, node_id n) {
    if (!now_.contains(n)) now_.resize(n.value + 1);
    now_[n] = metric_(nodes[n]);
  }
  // The score of node n.
  [[nodiscard]] std::uint32_t score(const node_table& nodes, node_id n,
                                    const task_request& task) const noexcept {
    return best(nodes, n, task).score;
  }
  // The GPUs of node n that give this score.
  [[nodiscard]] std::uint32_t gpu_mask(const node_table& nodes, node_id n,
                                       const task_request& task) const noexcept {
    return best(nodes, n, task).gpus;
  }

 private:
  struct choice {
    std::uint32_t gpus = 0;
    std::uint32_t score = 0;
  };

  [[nodiscard]] choice best(const node_table& nodes, node_id n,
                            const task_request& task) const noexcept {
    const node_state& node = nodes[n];
    if (!task.wants_gpu()) return rated(node, n, task, 0);
    if (task.wants_whole_gpus()) return rated(node, n, task, node.first_free_gpus(task.gpus));
    choice found;
    for (std::uint32_t i = 0; i < node.gpus; ++i) {
      bool seen = node.gpu_left[i] < task.gpu_milli;
      for (std::uint32_t j = 0; j < i && !seen; ++j) seen = node.gpu_left[j] == node.gpu_left[i];
      if (seen) continue;
      const choice here = rated(node, n, task, std::uint32_t{1} << i);
      if (found.gpus == 0 || here.score > found.score) found = here;
    }
    return found;
  }
  [[nodiscard]] choice rated(const node_state& before, node_id n, const task_request& task,
                             std::uint32_t gpus) const noexcept {
    node_state node = before;
    node.left -= task.host();
    for (std::uint32_t mask = gpus; mask != 0; mask &= mask - 1) {
      milli_gpu& left = node.gpu_left[static_cast<std::uint32_t>(std::countr_zero(mask))];
      left = static_cast<milli_gpu>(left - task.gpu_milli);
    }
    const double sigmoid = 1.0 / (1.0 + std::exp(-(now_[n] - metric_(node)) / 1000.0));
    return {gpus, static_cast<std::uint32_t>(100.0 * sigmoid)};
  }

  published_fragmentation metric_;
  dense_map<node_id, double> now_;
};

static_assert(NodeScore<published_fragmentation_gradient>);

APIARY_NAMESPACE_END
