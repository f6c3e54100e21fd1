// apiary/examples/programs/published_fragmentation.h - FGD and its measure, with the rounding of the published simulator.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/dense_map.h>
#include <apiary/core/ids.h>
#include <apiary/fgd/node_score.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

namespace example {

using namespace apiary;

// The measure of metric/fragmentation.h, summed in double in the order of the published simulator.
// Use it to reproduce published figures, which depend on the last bit, and to see the classes.
// Model: "Beware of Fragmentation" (USENIX ATC 2023), section 3, and the simulator of its authors.
// Cost:  O(kinds of the mix * GPUs of the node).
class published_fragmentation {
 public:
  // Why a mix of tasks cannot use what is left of the GPUs of a node, in thousandths of GPUs. Each
  // kind of task counts with its probability, in the first class that matches:
  //
  // | class | a kind m of the mix on the node             | counts                         |
  // |-------|---------------------------------------------|--------------------------------|
  // | xl    | m asks for no GPU, the node has the CPU     | all that is left               |
  // | xr    | m asks for no GPU, CPU is short             | all that is left               |
  // | na    | m may not run on this model of GPU          | all that is left               |
  // | q3    | m fits                                      | the GPUs big enough for it     |
  // | q2    | m fits; or m lacks GPUs, not CPU            | the GPUs too small; or all     |
  // | q4    | m lacks CPU, not GPUs                       | all that is left               |
  // | q1    | m lacks both                                | all that is left               |
  struct amounts {
    // Thousandths of GPUs in each class.
    double q1 = 0.0, q2 = 0.0, q3 = 0.0, q4 = 0.0, xl = 0.0, xr = 0.0, na = 0.0;

    // F: the sum of all classes except q3, which is usable.
    [[nodiscard]] double fragmentation() const noexcept { return q1 + q2 + q4 + xl + xr + na; }
  };

  // Measures against this mix.
  explicit published_fragmentation(task_mix mix) : mix_(std::move(mix)) {}

  // The mix.
  [[nodiscard]] const task_mix& mix() const noexcept { return mix_; }
  // The classes of one node.
  [[nodiscard]] amounts classes(const node_state& node) const noexcept {
    amounts f;
    const std::uint32_t left = node.total_gpu_left();
    for (const task_mix::weighted_kind& t : mix_.tasks()) {
      const double all = t.probability * left;
      const bool has_cpu = node.left.cpu_milli >= t.kind.cpu_milli;
      if (t.kind.gpus == 0) {
        (has_cpu ? f.xl : f.xr) += all;
        continue;
      }
      if (!node.accessible(t.kind.models)) {
        f.na += all;
        continue;
      }
      std::uint32_t enough = 0;
      std::uint32_t small = 0;
      for (const milli_gpu left_here : node.each_gpu()) {
        if (left_here >= t.kind.gpu_milli) {
          ++enough;
        } else {
          small += left_here;
        }
      }
      if (enough < t.kind.gpus) {
        (has_cpu ? f.q2 : f.q1) += all;
      } else if (!has_cpu) {
        f.q4 += all;
      } else {
        f.q3 += t.probability * (left - small);
        f.q2 += t.probability * small;
      }
    }
    return f;
  }
  // F(n) in thousandths of GPUs.
  [[nodiscard]] double operator()(const node_state& node) const noexcept {
    return classes(node).fragmentation();
  }

 private:
  task_mix mix_;
};

// The score of fgd/fragmentation_gradient.h with F in double. It reproduces the published decisions
// exactly if the compiler does not contract double arithmetic (x86-64 without FMA, or
// -ffp-contract=off). To schedule, use fragmentation_gradient.
// Cost: score O(kinds of the mix * GPUs of the node * distinct fractions left).
class published_fragmentation_gradient {
 public:
  // Scores do not depend on memory.
  static constexpr bool ignores_memory = true;

  // Measures against this mix.
  explicit published_fragmentation_gradient(task_mix mix) : metric_(std::move(mix)) {}

  // kInvalidArgument: the mix is empty.
  [[nodiscard]] absl::Status check() const {
    if (metric_.mix().total_weight() > 0) return absl::OkStatus();
    return absl::InvalidArgumentError("the task mix is empty; a score needs typical tasks");
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

}  // namespace example
