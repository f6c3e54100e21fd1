// apiary/gang/detail/greedy.h - places a gang in a cell: group after group, or node after node.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/capacity_count.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
                  gang_objective objective, std::span<Node> nodes, lean_vector<tasks_on_node>& to) {
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
    lean_vector<counted> cells{};
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
             lean_vector<tasks_on_node>& to) {
    if (l == node_level_) {
      nodes_[c - first_].put(u, n);
      return to.push_back({c, u, n});
    }
    const level_t below = level_below(*groups_, u, l, node_level_);
    const level& at = at_[below - node_level_];
    lean_vector<child_capacity> children;
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

// Fills one node after another until all tasks are placed. In a large cell with mostly free nodes
// it reads few nodes, even for many groups; greedy_by_group reads all of them. A placement that it
// finds is valid, but it may find none although there is one.
// Cost: a step for each group that it looks at; it looks at the groups with tasks left, in order,
//       until no such group has a task that is small enough for the GPUs that are left, or until 16
//       groups one after another do not fit.
template <CellTree Tree>
class fill_nodes {
 public:
  // Places all groups in cell c of level l and appends their tasks to `to`. Returns false if it
  // does not succeed, or if there are constraints between the nodes and level l. It takes the node
  // with the fewest free GPUs first (for fewest_nodes: with the most); a node takes the groups in
  // `order`.
  bool operator()(const capacity_index<Tree>& capacities, const colocated_groups& groups,
                  std::span<const resources> hosts, std::span<const std::uint32_t> order,
                  gang_objective objective, level_t l, std::uint32_t c, step_budget& steps,
                  lean_vector<tasks_on_node>& to) {
    const level_t node_level = capacities.node_level();
    if (level_below(groups, l, node_level) != node_level) return false;
    const std::size_t before = to.size();
    begin(groups, order, capacities.max_free());
    const id_range<cell_id> nodes = capacities.nodes(l, c);
    for (std::uint32_t i = 0; i <= capacities.max_free(); ++i) {
      const std::uint32_t free =
          objective == gang_objective::fewest_nodes ? capacities.max_free() - i : i;
      for (std::uint32_t n = capacities.first_node(free, nodes.first.value);
           n < nodes.last.value && smallest_ <= free; n = capacities.first_node(free, n + 1)) {
        const node_capacity_left node(groups, free, hosts, n);
        if (!steps.pay(fill(groups, node_level, n, node, to)) || first_ == none) break;
      }
      if (steps.ended() || first_ == none) break;
    }
    if (first_ == none && !steps.ended()) return true;
    to.resize(before);
    return false;
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  static constexpr std::uint32_t most_missed = 16;  // groups one after another

  void begin(const colocated_groups& groups, std::span<const std::uint32_t> order,
             std::uint32_t max_free) {
    first_ = none;
    next_.resize(groups.size());
    tasks_.resize(groups.size());
    by_gpus_.assign(max_free + std::size_t{2}, 0);
    for (std::size_t i = order.size(); i-- > 0;) {
      const std::uint32_t u = order[i];
      next_[u] = first_;
      first_ = u;
      tasks_[u] = groups[u].tasks;
      ++by_gpus_[(std::min)(groups[u].gpus, max_free + 1)];
    }
    smallest_ = 0;
    skip_sizes();
  }
  // After a group has no tasks left.
  void skip_sizes() {
    while (smallest_ + std::size_t{1} < by_gpus_.size() && by_gpus_[smallest_] == 0) ++smallest_;
  }
  // Puts tasks on node n. Returns at how many groups it has looked.
  std::uint64_t fill(const colocated_groups& groups, level_t node_level, std::uint32_t n,
                     node_capacity_left node, lean_vector<tasks_on_node>& to) {
    std::uint64_t looks = 0;
    std::uint32_t missed = 0;
    for (std::uint32_t* at = &first_;
         *at != none && smallest_ <= node.gpus && missed < most_missed;) {
      const std::uint32_t u = *at;
      ++looks;
      const std::uint32_t most = groups.bound(u, node_level, node.capacity(u));
      const std::uint32_t tasks = (std::min)(most, tasks_[u]);
      missed = tasks == 0 ? missed + 1 : 0;
      if (tasks > 0) {
        node.put(u, tasks);
        to.push_back({n, u, tasks});
        tasks_[u] -= tasks;
      }
      if (tasks_[u] > 0) {
        at = &next_[u];
        continue;
      }
      *at = next_[u];
      --by_gpus_[(std::min)(groups[u].gpus, static_cast<std::uint32_t>(by_gpus_.size() - 1))];
      skip_sizes();
    }
    return looks;
  }

  std::uint32_t first_ = none;          // the first group with tasks to place
  std::vector<std::uint32_t> next_;     // of each group
  std::vector<std::uint32_t> tasks_;    // of each group, to place
  std::vector<std::uint32_t> by_gpus_;  // groups with tasks to place, by the GPUs of a task
  std::uint32_t smallest_ = 0;          // the fewest GPUs of a task that is to be placed
};

}  // namespace detail
APIARY_NAMESPACE_END
