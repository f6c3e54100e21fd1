// apiary/tests/support/naive_gang.h - gangs on single nodes: two slow ways to pack them, and checks.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/gang/gang_fit.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace apiary_test {

using leaf_counts = std::vector<std::uint32_t>;  // one a node (free), or one a task (needed)

inline leaf_counts nodes_of(std::span<const apiary::gang_fit::node_class> classes) {
  leaf_counts free;
  for (const apiary::gang_fit::node_class& c : classes) free.insert(free.end(), c.nodes, c.free);
  return free;
}
inline leaf_counts tasks_of(std::span<const apiary::task_group> groups) {
  leaf_counts needed;
  for (const apiary::task_group& m : groups) needed.insert(needed.end(), m.tasks, m.gpus);
  return needed;
}

// Tries every node for every task.
inline bool fits_by_trying(leaf_counts& free, std::span<const std::uint32_t> tasks) {
  if (tasks.empty()) return true;
  for (std::uint32_t& node : free) {
    if (node < tasks.front()) continue;
    node -= tasks.front();
    const bool fits = fits_by_trying(free, tasks.subspan(1));
    node += tasks.front();
    if (fits) return true;
  }
  return false;
}

// For each set of tasks: how far the nodes, filled one after the other, must at least be filled.
inline bool fits_by_sets(std::span<const std::uint32_t> free,
                         std::span<const std::uint32_t> tasks) {
  using filled = std::pair<std::size_t, std::uint32_t>;  // nodes before, leaves of the next one
  std::vector<filled> least(std::size_t{1} << tasks.size(), filled{free.size(), 0});
  least[0] = {0, 0};
  for (std::size_t set = 0; set + 1 < least.size(); ++set) {
    for (std::size_t t = 0; t < tasks.size(); ++t) {
      if ((set >> t & 1) != 0) continue;
      auto [node, used] = least[set];
      while (node < free.size() && used + tasks[t] > free[node]) {
        ++node;
        used = 0;
      }
      filled& with = least[set | std::size_t{1} << t];
      if (node < free.size()) with = std::min(with, filled{node, used + tasks[t]});
    }
  }
  return least.back().first < free.size() || tasks.empty();
}

// Whether the answer of `fit` is a packing of all tasks into these nodes.
inline bool is_packing(const apiary::gang_fit::result& fit,
                       std::span<const apiary::gang_fit::node_class> classes,
                       std::span<const apiary::task_group> groups) {
  std::vector<std::uint64_t> used(classes.size());
  std::vector<std::uint64_t> placed(groups.size());
  for (const apiary::gang_fit::used_node& node : fit.nodes) {
    if (node.node_class >= classes.size() || node.first >= node.last ||
        node.last > fit.portions.size())
      return false;
    ++used[node.node_class];
    std::uint64_t leaves = 0;
    for (std::uint32_t p = node.first; p < node.last; ++p) {
      const auto [group, tasks] = fit.portions[p];
      if (group >= groups.size() || tasks == 0) return false;
      placed[group] += tasks;
      leaves += std::uint64_t{tasks} * groups[group].gpus;
    }
    if (leaves > classes[node.node_class].free) return false;
  }
  for (std::size_t c = 0; c < classes.size(); ++c)
    if (used[c] > classes[c].nodes) return false;
  for (std::size_t m = 0; m < groups.size(); ++m)
    if (placed[m] != groups[m].tasks) return false;
  return true;
}

// Whether the slots of the shortage are counted rightly, task by task and node by node, and short.
inline bool is_cut(const apiary::gpu_shortage& cut, const leaf_counts& free,
                   const leaf_counts& tasks) {
  const auto slots = [&](const leaf_counts& all) {
    std::uint64_t n = 0;
    for (std::uint32_t leaves : all)
      for (; leaves >= cut.gpus; leaves -= cut.gpus) ++n;
    return n;
  };
  return cut.gpus > 0 && slots(tasks) == cut.needed && slots(free) == cut.present &&
         cut.present < cut.needed;
}

}  // namespace apiary_test
