// apiary/tests/support/naive_sharing.h - fragmentation and placement by their definitions.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/rng.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace apiary_test {

// W * F, summed kind by kind: what each kind cannot use, in whole numbers.
inline std::uint64_t weighted_fragmentation(const apiary::task_mix& mix,
                                            const apiary::node_state& node) {
  std::uint64_t sum = 0;
  for (const apiary::task_mix::weighted_kind& t : mix.tasks()) {
    std::uint32_t all = 0;
    std::uint32_t enough = 0;
    std::uint32_t small = 0;
    for (const apiary::milli_gpu left : node.each_gpu()) {
      all += left;
      if (left >= t.kind.gpu_milli) {
        ++enough;
      } else {
        small += left;
      }
    }
    const bool fits = t.kind.gpus > 0 && node.accessible(t.kind.models) && enough >= t.kind.gpus &&
                      node.left.cpu_milli >= t.kind.cpu_milli;
    sum += std::uint64_t{t.weight} * (fits ? small : all);
  }
  return sum;
}

// The node after the task took the devices.
inline apiary::node_state after(const apiary::node_state& before, const apiary::task_request& task,
                                std::uint32_t devices) {
  apiary::node_state node = before;
  node.left -= task.host();
  for (std::uint32_t i = 0; i < node.gpus; ++i) {
    if ((devices >> i & 1) != 0)
      node.gpu_left[i] = static_cast<apiary::milli_gpu>(node.gpu_left[i] - task.gpu_milli);
  }
  return node;
}

// The score of the task on these devices, both fragmentation values from scratch.
inline int score_devices(const apiary::task_mix& mix, const apiary::node_state& node,
                         const apiary::task_request& task, std::uint32_t devices) {
  const auto before = static_cast<double>(weighted_fragmentation(mix, node));
  const auto then = static_cast<double>(weighted_fragmentation(mix, after(node, task, devices)));
  const double x = (before - then) / static_cast<double>(mix.total_weight()) / 1000.0;
  return static_cast<int>(100.0 / (1.0 + std::exp(-x)));
}

struct scored {
  apiary::placement where{};
  int score = -1;
};

// FGD by its definition on one node: every device tried.
inline scored score_node(const apiary::task_mix& mix, const apiary::node_table& nodes,
                         apiary::node_id n, const apiary::task_request& task) {
  const apiary::node_state& node = nodes[n];
  scored best;
  const auto consider = [&](std::uint32_t devices) {
    const int score = score_devices(mix, node, task, devices);
    if (score > best.score) best = {{n, devices}, score};
  };
  if (!node.fits(task)) return best;
  if (!task.wants_part_of_gpu()) {
    consider(task.wants_gpu() ? node.first_free_gpus(task.gpus) : 0);
    return best;
  }
  for (std::uint32_t i = 0; i < node.gpus; ++i) {
    if (node.gpu_left[i] >= task.gpu_milli) consider(std::uint32_t{1} << i);
  }
  return best;
}

// FGD by its definition: every node scored for every task, the first of the best taken.
inline std::optional<apiary::placement> naive_fgd(const apiary::task_mix& mix,
                                                  const apiary::node_table& nodes,
                                                  const apiary::task_request& task) {
  scored best;
  for (const apiary::node_id n : nodes.ids()) {
    const scored here = score_node(mix, nodes, n, task);
    if (here.score > best.score) best = here;
  }
  if (best.score < 0) return std::nullopt;
  return best.where;
}

// Random input: few distinct amounts, so that ties and exact fits are frequent.
inline apiary::node_shape random_shape(apiary::rng& random) {
  return {{4000 * (1 + random.uniform(16)), 8192 * (1 + random.uniform(8))},
          random.uniform(9),
          static_cast<apiary::gpu_model>(random.uniform(3))};
}
inline apiary::task_request random_task(apiary::rng& random, std::uint32_t job) {
  apiary::task_request task{.job = apiary::job_id(job),
                            .cpu_milli = 1000 * random.uniform(12),
                            .memory_mib = 1024 * random.uniform(16)};
  if (random.uniform(8) == 0) return task;
  const bool whole = random.uniform(2) == 0;
  task.gpus = whole ? 1 + random.uniform(4) : 1;
  task.gpu_milli = static_cast<apiary::milli_gpu>(whole ? 1000 : 50 * (1 + random.uniform(19)));
  if (random.uniform(4) == 0) task.models = 1 + random.uniform(7);
  return task;
}
inline apiary::node_table random_nodes(apiary::rng& random, std::uint32_t count) {
  apiary::node_table nodes;
  for (std::uint32_t i = 0; i < count; ++i) nodes.add(random_shape(random));
  return nodes;
}
inline apiary::task_mix random_mix(apiary::rng& random) {
  std::vector<std::pair<apiary::task_kind, std::uint32_t>> kinds;
  const std::uint32_t count = 1 + random.uniform(12);
  for (std::uint32_t i = 0; i < count; ++i) {
    const apiary::task_request t = random_task(random, i);
    kinds.push_back({{t.cpu_milli, t.gpus, t.gpu_milli, t.models, i}, 1 + random.uniform(1000)});
  }
  return apiary::task_mix(kinds);
}

}  // namespace apiary_test
