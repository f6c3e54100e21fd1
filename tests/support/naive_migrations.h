// apiary/tests/support/naive_migrations.h - the best move of a task, by making each and counting again.
// SPDX-License-Identifier: MIT
#pragma once

#include "naive_sharing.h"
#include <apiary/fgd/detail/fragmentation_migrations.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace apiary_test {

[[nodiscard]] inline std::uint64_t weighted_fragmentation(const apiary::task_mix& mix,
                                                          const apiary::node_table& nodes) {
  std::uint64_t sum = 0;
  for (const apiary::node_id n : nodes.ids()) sum += weighted_fragmentation(mix, nodes[n]);
  return sum;
}

// Every task, every node, every device: what fragmentation_migrations::best should find.
[[nodiscard]] inline std::optional<apiary::detail::fragmentation_migration> naive_best_move(
    const apiary::task_mix& mix, const apiary::node_table& nodes,
    std::span<const apiary::detail::placed_request> tasks, std::uint32_t cost) {
  const std::uint64_t before = weighted_fragmentation(mix, nodes);
  std::optional<apiary::detail::fragmentation_migration> best;
  std::uint64_t best_gpus = 1;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const apiary::task_request& task = tasks[i].task;
    apiary::node_table without = nodes;
    without.remove(task, tasks[i].where);
    std::optional<apiary::detail::fragmentation_migration> to;  // of this task
    const auto consider = [&](apiary::placement where) {
      apiary::node_table then = without;
      then.place(task, where);
      const std::uint64_t after = weighted_fragmentation(mix, then);
      if (after >= before || (to && before - after <= to->gain)) return;
      to = apiary::detail::fragmentation_migration{i, where, before - after};
    };
    for (const apiary::node_id n : nodes.ids()) {
      if (!without[n].fits(task)) continue;
      if (!task.wants_part_of_gpu()) {
        consider({n, task.wants_gpu() ? without[n].first_free_gpus(task.gpus) : 0});
        continue;
      }
      for (std::uint32_t d = 0; d < without[n].gpus; ++d)
        if (without[n].gpu_left[d] >= task.gpu_milli) consider({n, 1U << d});
    }
    if (!to) continue;
    const std::uint64_t gpus = task.wants_gpu() ? task.total_gpu_milli() : 1000;
    if (to->gain * 1000 <= cost * mix.total_weight() * gpus) continue;
    if (best && to->gain * best_gpus <= best->gain * gpus) continue;
    best = to;
    best_gpus = gpus;
  }
  return best;
}

}  // namespace apiary_test
