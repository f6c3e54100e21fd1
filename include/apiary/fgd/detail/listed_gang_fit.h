// apiary/fgd/detail/listed_gang_fit.h - where a gang fits whose task groups have nodes of their own.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/shared_gpu_fit.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Places the tasks of a gang, each task group on its nodes, by a depth-first search: the groups with the
// fewest nodes first, and equal tasks on nodes in the order of their ids. Changes the nodes while it
// runs, and takes that back.
//
// Requires: check_suggested() is OK.
// Cost:     O(nodes * groups), and at most `budget` steps; a step looks at a node.
class listed_gang_fit {
 public:
  // The most tasks, because calls are as deep.
  static constexpr std::size_t max_tasks = 256;

  listed_gang_fit(node_table& nodes, const topology_constraints& gang,
                  std::span<const summary_bitset> suggested, std::uint64_t budget)
      : nodes_(nodes), gang_(gang), suggested_(suggested), steps_left_(budget) {
    std::vector<std::uint32_t> order(gang.groups.size());
    for (std::uint32_t g = 0; g < order.size(); ++g) order[g] = g;
    merge_sort(order, [&](std::uint32_t a, std::uint32_t b) {
      return suggested[a].count() < suggested[b].count();
    });
    for (const std::uint32_t g : order) {
      is_large_ = is_large_ || gang.groups[g].tasks > max_tasks - tasks_.size();
      if (!is_large_) tasks_.insert(tasks_.end(), gang.groups[g].tasks, g);
    }
  }
  // Whether the gang fits. `budget_ended`: the steps were not enough to tell, or it has more than
  // max_tasks tasks.
  [[nodiscard]] fit_verdict operator()() {
    if (is_large_) return fit_verdict::budget_ended;
    if (place_from(0)) return fit_verdict::fits;
    return steps_left_ == 0 ? fit_verdict::budget_ended : fit_verdict::does_not_fit;
  }
  // The placements, by task group. Requires: the gang fits.
  [[nodiscard]] std::vector<task_placement> placements() && {
    merge_sort(placed_,
               [](const task_placement& a, const task_placement& b) { return a.group < b.group; });
    return std::move(placed_);
  }

 private:
  // Places the tasks from number t on. Returns whether they fit; then they are listed.
  bool place_from(std::size_t t) {
    if (t == tasks_.size()) return true;
    const std::uint32_t g = tasks_[t];
    const task_request task = gang_.groups[g].task();
    const bool is_equal = t > 0 && tasks_[t - 1] == g;
    const std::uint32_t first = is_equal ? placed_.back().where.node.value : 0;
    for (std::uint32_t n = suggested_[g].find_next(first); n != summary_bitset::npos;
         n = suggested_[g].find_next(n + 1)) {
      if (steps_left_ == 0) return false;
      --steps_left_;
      const node_id node(n);
      if (!nodes_.contains(node) || !nodes_[node].fits(task)) continue;
      if (!task.wants_part_of_gpu()) {
        if (place(t, {node, nodes_[node].first_free_gpus(task.gpus)})) return true;
        continue;
      }
      for (std::uint32_t i = 0; i < nodes_[node].gpus; ++i)
        if (is_first_of_its_kind(nodes_[node], i, task) && place(t, {node, std::uint32_t{1} << i}))
          return true;
    }
    return false;
  }
  // Whether the fraction fits on GPU i, and no GPU before it has as much left.
  [[nodiscard]] static bool is_first_of_its_kind(const node_state& node, std::uint32_t i,
                                                 const task_request& task) noexcept {
    for (std::uint32_t before = 0; before < i; ++before)
      if (node.gpu_left[before] == node.gpu_left[i]) return false;
    return node.gpu_left[i] >= task.gpu_milli;
  }
  // Places task t, and those after it.
  bool place(std::size_t t, placement where) {
    const std::uint32_t g = tasks_[t];
    const task_request task = gang_.groups[g].task();
    nodes_.place(task, where);
    placed_.push_back({g, where});
    const bool all = place_from(t + 1);
    nodes_.remove(task, where);
    if (!all) placed_.pop_back();
    return all;
  }

  node_table& nodes_;
  const topology_constraints& gang_;
  std::span<const summary_bitset> suggested_;
  std::uint64_t steps_left_;
  bool is_large_ = false;               // it has more than max_tasks tasks
  std::vector<std::uint32_t> tasks_{};  // the group of each task
  std::vector<task_placement> placed_{};
};

}  // namespace detail
APIARY_NAMESPACE_END
