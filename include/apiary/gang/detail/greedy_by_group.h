// apiary/gang/detail/greedy_by_group.h - places a gang in a cell, one task group after another.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/constraint_levels.h>
#include <apiary/gang/detail/fill_children.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Orders in which to place the groups: most GPUs first; groups with constraints first, of equals
// most CPU. The second one is left out if it is the same; both are if the gang has replicas, which
// one group after another would split.
[[nodiscard]] inline std::vector<std::vector<std::uint32_t>> orders_of_groups(
    const colocated_groups& groups) {
  if (!groups.links().empty()) return {};
  std::vector<std::uint32_t> first(groups.size());
  for (std::uint32_t u = 0; u < first.size(); ++u) first[u] = u;
  merge_sort(first, [&](auto a, auto b) { return groups[a].gpus > groups[b].gpus; });
  std::vector<std::uint32_t> second = first;
  merge_sort(second, [&](std::uint32_t a, std::uint32_t b) {
    const bool free_a = groups[a].constrained == any_level;
    const bool free_b = groups[b].constrained == any_level;
    return free_a != free_b ? free_b : groups[a].cpu_milli > groups[b].cpu_milli;
  });
  if (second == first) return {std::move(first)};
  return {std::move(first), std::move(second)};
}

// What is left of a node with whole GPUs. Nodes in use are filled before others; a position without
// free GPUs counts for nothing, whether there is a node or not.
struct node_capacity_left {
  const colocated_groups* groups = nullptr;
  std::uint64_t gpus = 0;
  std::uint64_t cpu_milli = (std::numeric_limits<std::uint64_t>::max)();
  std::uint64_t memory_mib = (std::numeric_limits<std::uint64_t>::max)();
  bool in_use = false;

  [[nodiscard]] std::uint64_t capacity(std::uint32_t u) const noexcept {
    const colocated_groups::group& group = (*groups)[u];
    std::uint64_t n = group.tasks;
    if (group.gpus > 0) n = (std::min)(n, gpus / group.gpus);
    if (group.cpu_milli > 0) n = (std::min)(n, cpu_milli / group.cpu_milli);
    if (group.memory_mib > 0) n = (std::min)(n, memory_mib / group.memory_mib);
    return n;
  }
  void put(std::uint32_t u, std::uint64_t n) noexcept {
    gpus -= n * (*groups)[u].gpus;
    cpu_milli -= n * (*groups)[u].cpu_milli;
    memory_mib -= n * (*groups)[u].memory_mib;
    in_use = true;
  }
  [[nodiscard]] std::uint64_t free() const noexcept {
    return in_use || gpus == 0 ? gpus : gpus + 65;
  }
};

// Places a gang in one cell, one co-located group after another, each exactly within its
// constraints. A placement that it finds is valid, but it may find none although there is one.
//
// Node: capacity(group) returns how many more tasks of a group fit; put(group, tasks) takes them;
// free() returns how much is left, less on a node that is to be filled before others.
// Cost: one call of capacity for each group and node of the cell, and O(log) for each child used.
template <CellTree Tree, class Node>
class greedy_by_group {
 public:
  greedy_by_group(const Tree& tree, level_t node_level, const colocated_groups& groups) noexcept
      : tree_(&tree), groups_(&groups), node_level_(node_level) {}

  // Places all groups in cell c of level l, whose nodes are `nodes`, and appends their tasks to
  // `to`. Returns false if a group does not fit; groups before it stay placed.
  bool operator()(level_t l, std::uint32_t c, std::span<const std::uint32_t> order,
                  gang_objective objective, std::span<Node> nodes, std::vector<tasks_on_node>& to) {
    first_ = positions_inside(*tree_, l, c, node_level_).first.value;
    nodes_ = nodes;
    objective_ = objective;
    at_.resize(l - node_level_ + 1);
    for (level_t k = node_level_; k <= l; ++k) {
      const id_range<cell_id> cells = positions_inside(*tree_, l, c, k);
      at_[k - node_level_].first = cells.first.value;
      at_[k - node_level_].cells.resize(cells.size());
    }
    for (const std::uint32_t u : order) {
      if (count(u, l, c).capacity < (*groups_)[u].tasks) return false;
      place(u, l, c, (*groups_)[u].tasks, to);
    }
    return true;
  }

 private:
  struct counted {
    std::uint32_t capacity = 0;
    std::uint64_t free = 0;
  };
  struct level {
    std::uint32_t first = 0;  // position of the first cell
    std::vector<counted> cells{};
  };
  counted count(std::uint32_t u, level_t l, std::uint32_t c) {
    std::uint64_t capacity = 0;
    std::uint64_t free = 0;
    if (l == node_level_) {
      capacity = nodes_[c - first_].capacity(u);
      free = nodes_[c - first_].free();
    } else {
      const level_t below = level_below(*groups_, u, l, node_level_);
      for (const cell_id i : positions_inside(*tree_, l, c, below)) {
        const counted child = count(u, below, i.value);
        capacity += child.capacity;
        free += child.free;
      }
    }
    level& at = at_[l - node_level_];
    return at.cells[c - at.first] = {groups_->bound(u, l, capacity), free};
  }
  void place(std::uint32_t u, level_t l, std::uint32_t c, std::uint32_t n,
             std::vector<tasks_on_node>& to) {
    if (l == node_level_) {
      nodes_[c - first_].put(u, n);
      return to.push_back({c, u, n});
    }
    const level_t below = level_below(*groups_, u, l, node_level_);
    const level& at = at_[below - node_level_];
    std::vector<child_capacity> children;
    for (const cell_id i : positions_inside(*tree_, l, c, below)) {
      const counted& child = at.cells[i.value - at.first];
      if (child.capacity > 0) children.push_back({i.value, child.capacity, child.free});
    }
    for (const tasks_in_cell& i : fill_children(children, n, objective_))
      place(u, below, i.cell, i.tasks, to);
  }

  const Tree* tree_;
  const colocated_groups* groups_;
  level_t node_level_;
  std::uint32_t first_ = 0;  // position of the first node
  std::span<Node> nodes_;
  gang_objective objective_ = gang_objective::whole_cells;
  std::vector<level> at_;  // from the nodes up
};

}  // namespace detail
APIARY_NAMESPACE_END
