// apiary/gang/detail/capacity_count.h - the capacity of cells for one group, or for a weight.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>
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

// Whether the constraints of group u at level l allow fewer tasks than the level above, or larger
// steps than the level below.
// Requires: l is above the nodes and at most the level of the roots.
[[nodiscard]] inline bool constraints_at(const colocated_groups& groups, std::size_t u,
                                         level_t l) noexcept {
  const auto here = groups.at(u, l);
  return here.most != groups.at(u, l + 1).most || here.step != groups.at(u, l - 1).step;
}

// The next level below l with constraints of group u, or the node level. Requires: l > node_level.
[[nodiscard]] inline level_t level_below(const colocated_groups& groups, std::size_t u, level_t l,
                                         level_t node_level) noexcept {
  level_t k = l - 1;
  while (k > node_level && !constraints_at(groups, u, k)) --k;
  return k;
}
// The same for the constraints of any group.
[[nodiscard]] inline level_t level_below(const colocated_groups& groups, level_t l,
                                         level_t node_level) noexcept {
  level_t below = node_level;
  for (std::size_t u = 0; u < groups.size(); ++u) {
    const level_t k = level_below(groups, u, l, node_level);
    below = k > below ? k : below;
  }
  for (const colocated_groups::link& k : groups.links())
    if (k.level < l && k.level > below) below = k.level;
  return below;
}

// The exact capacity of each cell of level l for tasks of group u alone, from the capacity of each
// node without constraints. Cost: O(nodes).
template <CellTree Tree>
[[nodiscard]] std::vector<std::uint32_t> capacity_above(const Tree& tree,
                                                        const colocated_groups& groups,
                                                        std::size_t u, level_t node_level,
                                                        level_t l,
                                                        std::vector<std::uint32_t> capacity) {
  for (std::uint32_t& n : capacity) n = groups.bound(u, node_level, n);
  for (level_t k = node_level; k < l;) {
    level_t above = k + 1;
    while (above < l && !constraints_at(groups, u, above)) ++above;
    std::vector<std::uint32_t> sums(num_positions(tree, above));
    for (std::uint32_t c = 0; c < sums.size(); ++c) {
      std::uint64_t sum = 0;
      for (const cell_id i : positions_inside(tree, above, c, k)) sum += capacity[i.value];
      sums[c] = groups.bound(u, above, sum);
    }
    capacity = std::move(sums);
    k = above;
  }
  return capacity;
}

// The largest weight that each cell of level l can hold, from that of each node; as
// infeasibility_proof counts it, for several groups. Cost: O(nodes).
template <CellTree Tree>
[[nodiscard]] lean_vector<std::uint64_t> weight_above(const Tree& tree,
                                                      const colocated_groups& groups,
                                                      std::span<const std::uint32_t> weights,
                                                      level_t node_level, level_t l,
                                                      lean_vector<std::uint64_t> most) {
  for (level_t k = node_level + 1; k <= l; ++k) {
    std::uint64_t limit = 0;
    for (std::size_t u = 0; u < groups.size(); ++u)
      limit += std::uint64_t{weights[u]} * groups.at(u, k).most;
    lean_vector<std::uint64_t> above(num_positions(tree, k), 0);
    for (std::uint32_t c = 0; c < above.size(); ++c) {
      for (const cell_id i : positions_inside(tree, k, c, k - 1)) above[c] += most[i.value];
      above[c] = (std::min)(above[c], limit);
    }
    most = std::move(above);
  }
  return most;
}

// `copies` equal children of a cell. Each has capacity for `capacity` tasks, and `free` free GPUs.
struct child_capacity {
  std::uint32_t cell = 0;
  std::uint32_t capacity = 0;
  std::uint64_t free = 0;
  std::uint32_t copies = 1;
};

// The tasks that a child of a cell takes.
struct tasks_in_cell {
  std::uint32_t cell = 0;
  std::uint32_t tasks = 0;
};

// Distributes n tasks over the children of a cell.
//   whole_cells   fewest free GPUs first, of equals most capacity, then the first. No other way
//                 leaves more of the emptiest children untouched.
//   fewest_nodes  most capacity first, of equals the fewest free GPUs. As soon as one child has
//                 capacity for the rest, the child with the least such capacity is taken.
// If n and all capacities are multiples of a step, each child takes a multiple, too.
// Requires: n is at most the sum of the capacities; no capacity is 0. The vector is used up.
// Cost:     O(children + children used * log children).
[[nodiscard]] inline lean_vector<tasks_in_cell> fill_children(lean_vector<child_capacity>& children,
                                                              std::uint32_t n,
                                                              gang_objective objective) {
  lean_vector<tasks_in_cell> filled;
  const bool few = objective == gang_objective::fewest_nodes;
  const auto later = [&](const child_capacity& a, const child_capacity& b) {
    if (few && a.capacity != b.capacity) return a.capacity < b.capacity;
    if (a.free != b.free) return a.free > b.free;
    return a.capacity != b.capacity ? a.capacity < b.capacity : a.cell > b.cell;
  };
  std::make_heap(children.begin(), children.end(), later);
  while (n > 0) {
    APIARY_ASSERT(!children.empty());
    if (few && children.front().capacity >= n) {
      const child_capacity* best = &children.front();
      for (const child_capacity& p : children) {
        const bool less =
            p.capacity != best->capacity ? p.capacity < best->capacity : later(*best, p);
        if (p.capacity >= n && less) best = &p;
      }
      filled.push_back({best->cell, n});
      break;
    }
    child_capacity& first = children.front();
    const std::uint32_t here = (std::min)(n, first.capacity);
    filled.push_back({first.cell, here});
    n -= here;
    if (--first.copies > 0) continue;
    std::pop_heap(children.begin(), children.end(), later);
    children.pop_back();
  }
  return filled;
}

// What is left of a node with whole GPUs. Nodes in use are filled before others; a position without
// free GPUs counts for nothing, whether there is a node or not.
struct node_capacity_left {
  // Node n with free GPUs; `hosts` as in topology_fit.
  node_capacity_left(const colocated_groups& of, std::uint32_t free,
                     std::span<const resources> hosts = {}, std::uint32_t n = 0) noexcept
      : groups(&of), gpus(free) {
    if (hosts.empty()) return;
    cpu_milli = hosts[n].cpu_milli;
    memory_mib = hosts[n].memory_mib;
  }
  const colocated_groups* groups;
  std::uint64_t gpus;
  std::uint64_t cpu_milli = (std::numeric_limits<std::uint64_t>::max)();
  std::uint64_t memory_mib = (std::numeric_limits<std::uint64_t>::max)();
  bool in_use = false;

  // How many tasks of group u it holds if constraints do not count.
  [[nodiscard]] std::uint64_t capacity(std::size_t u) const noexcept {
    const colocated_groups::group& group = (*groups)[u];
    std::uint64_t n = group.tasks;
    if (group.gpus > 0) n = (std::min)(n, gpus / group.gpus);
    if (group.cpu_milli > 0) n = (std::min)(n, cpu_milli / group.cpu_milli);
    if (group.memory_mib > 0) n = (std::min)(n, memory_mib / group.memory_mib);
    return n;
  }
  void put(std::size_t u, std::uint64_t n) noexcept {
    gpus -= n * (*groups)[u].gpus;
    cpu_milli -= n * (*groups)[u].cpu_milli;
    memory_mib -= n * (*groups)[u].memory_mib;
    in_use = true;
  }
  [[nodiscard]] std::uint64_t free() const noexcept {
    return in_use || gpus == 0 ? gpus : gpus + 65;
  }
};

// The exact capacity of every cell of a level for the tasks of one co-located group alone: the sum
// over the children, rounded down to whole steps, at most the limit of the level.
// Cost:     count O(cells of the lowest constrained level), times the GPUs of a node for a
//           constraint at the node level; O(nodes) for a group that takes CPU, memory or no GPUs.
//           place O(children * log) for each level; if the group takes GPUs, but no CPU and no
//           memory, O(GPUs of a node + nodes used) for the nodes. max_weights O(nodes + groups *
//           GPUs of a node^2).
template <CellTree Tree>
class capacity_count {
 public:
  capacity_count(const capacity_index<Tree>& capacities, const colocated_groups& groups,
                 std::span<const resources> hosts) noexcept
      : capacities_(&capacities), groups_(&groups), hosts_(hosts) {}

  // How many cells or nodes count(u, l) looks at.
  [[nodiscard]] std::uint64_t cells_to_count(std::size_t u, level_t l) const noexcept {
    const level_t node_level = capacities_->node_level();
    if (by_node(u)) return capacities_->num_nodes();
    const level_t lowest = (std::min)((*groups_)[u].constrained, l);
    if (lowest > node_level || l == node_level) return capacities_->num_cells(lowest);
    return capacities_->num_cells(lowest + 1) * (std::uint64_t{capacities_->max_free()} + 1);
  }
  // The capacity of each cell of level l for tasks of group u.
  std::span<const std::uint32_t> count(std::size_t u, level_t l) {
    const level_t node_level = capacities_->node_level();
    const colocated_groups::group& group = (*groups_)[u];
    base_ = by_node(u) ? node_level : (std::min)(group.constrained, l);
    const bool by_histogram = base_ == node_level && l > node_level && !by_node(u);
    if (by_histogram) ++base_;
    counts_.resize(l - node_level + 1);
    std::vector<std::uint32_t>& base = counts_[base_ - node_level];
    base.resize(capacities_->num_cells(base_));
    if (base_ == node_level) {
      count_nodes(u, base);
    } else if (by_histogram) {
      std::vector<std::uint32_t> each;  // on a node with 0, 1, ... free GPUs
      for (std::uint32_t f = 0; f <= capacities_->max_free(); ++f)
        each.push_back(groups_->bound(u, node_level, f / group.gpus));
      for (std::uint32_t c = 0; c < base.size(); ++c) {
        const std::span<const std::uint32_t> nodes = capacities_->histogram(base_, c);
        std::uint64_t sum = 0;
        for (std::uint32_t f = group.gpus; f < nodes.size(); ++f)
          sum += std::uint64_t{nodes[f]} * each[f];
        base[c] = groups_->bound(u, base_, sum);
      }
    } else if (group.gpus <= capacities_->max_free()) {
      const std::span<const std::uint32_t> slots = capacities_->slots(base_, group.gpus);
      for (std::size_t c = 0; c < base.size(); ++c) base[c] = groups_->bound(u, base_, slots[c]);
    } else {
      base.assign(base.size(), 0);
    }
    for (level_t k = base_ + 1; k <= l; ++k) {
      std::vector<std::uint32_t>& here = counts_[k - node_level];
      here.resize(capacities_->num_cells(k));
      for (std::uint32_t c = 0; c < here.size(); ++c) {
        std::uint64_t sum = 0;
        for (const cell_id i : capacities_->inside(k, c, k - 1))
          sum += counts_[k - 1 - node_level][i.value];
        here[c] = groups_->bound(u, k, sum);
      }
    }
    return counts_[l - node_level];
  }
  // After count(u, l): puts n tasks into cell c of level l, and appends them to `to`.
  // Requires: n is a multiple of the step at level l, and at most the capacity.
  void place(std::uint32_t u, level_t l, std::uint32_t c, std::uint32_t n, gang_objective objective,
             lean_vector<tasks_on_node>& to) const {
    if (n == 0) return;
    const level_t node_level = capacities_->node_level();
    if (l == node_level) return to.push_back({c, u, n});
    const level_t below = level_below(*groups_, u, l, node_level);
    lean_vector<child_capacity> children;
    if (below == node_level && !by_node(u)) {
      // Equal nodes have equal capacity.
      const std::span<const std::uint32_t> nodes = capacities_->histogram(l, c);
      for (std::uint32_t f = (*groups_)[u].gpus; f < nodes.size(); ++f) {
        const std::uint32_t capacity = groups_->bound(u, node_level, f / (*groups_)[u].gpus);
        if (nodes[f] > 0 && capacity > 0) children.push_back({f, capacity, f, nodes[f]});
      }
      std::vector<std::uint32_t> next(nodes.size(), capacities_->nodes(l, c).first.value);
      for (const tasks_in_cell& at : fill_children(children, n, objective)) {
        const std::uint32_t node = capacities_->first_node(at.cell, next[at.cell]);
        next[at.cell] = node + 1;
        to.push_back({node, u, at.tasks});
      }
      return;
    }
    const id_range<cell_id> inside = capacities_->inside(l, c, below);
    children.reserve(inside.size());
    for (const cell_id i : inside) {
      const std::uint32_t capacity = counts_[below - node_level][i.value];
      if (capacity == 0) continue;
      child_capacity& child = children.emplace_back();
      child.cell = i.value;
      child.capacity = capacity;
      child.free = capacities_->free(below, i.value);
    }
    for (const tasks_in_cell& at : fill_children(children, n, objective))
      place(u, below, at.cell, at.tasks, objective, to);
  }
  // The largest weight that each cell of level l can hold, as infeasibility_proof counts it.
  [[nodiscard]] lean_vector<std::uint64_t> max_weights(std::span<const std::uint32_t> weights,
                                                       level_t l) {
    std::size_t weighted = 0;
    std::size_t group = 0;
    for (std::size_t u = 0; u < weights.size(); ++u) {
      if (weights[u] == 0) continue;
      ++weighted;
      group = u;
    }
    if (weighted == 0) return lean_vector<std::uint64_t>(capacities_->num_cells(l), 0);
    if (weighted == 1) {
      const std::span<const std::uint32_t> capacities = count(group, l);
      lean_vector<std::uint64_t> most;
      for (const std::uint32_t n : capacities) most.push_back(std::uint64_t{n} * weights[group]);
      return most;
    }
    const lean_vector<std::uint64_t> of_free = max_weight_by_free(weights);
    lean_vector<std::uint64_t> most;
    for (const std::uint32_t f : capacities_->free()) most.push_back(of_free[f]);
    return weight_above(capacities_->tree(), *groups_, weights, capacities_->node_level(), l,
                        std::move(most));
  }

 private:
  // Whether nodes with equal numbers of free GPUs may differ in capacity.
  [[nodiscard]] bool by_node(std::size_t u) const noexcept {
    const colocated_groups::group& group = (*groups_)[u];
    return group.gpus == 0 || (!hosts_.empty() && (group.cpu_milli > 0 || group.memory_mib > 0));
  }
  void count_nodes(std::size_t u, std::vector<std::uint32_t>& to) {
    const colocated_groups::group& group = (*groups_)[u];
    const level_t node_level = capacities_->node_level();
    of_free_.clear();
    for (std::uint32_t f = 0; f <= capacities_->max_free(); ++f) {
      std::uint32_t n = group.tasks;
      if (group.gpus > 0) n = (std::min)(n, f / group.gpus);
      of_free_.push_back({n, groups_->bound(u, node_level, n)});
    }
    const std::span<const std::uint32_t> free = capacities_->free();
    for (std::uint32_t node = 0; node < to.size(); ++node) {
      const auto [most, bounded] = of_free_[free[node]];
      to[node] = bounded;
      if (hosts_.empty() || bounded == 0) continue;
      // Most nodes are not short of CPU and memory; a product takes less time than a quotient.
      std::uint64_t n = most;
      if (n * group.cpu_milli > hosts_[node].cpu_milli)
        n = hosts_[node].cpu_milli / group.cpu_milli;
      if (n * group.memory_mib > hosts_[node].memory_mib)
        n = hosts_[node].memory_mib / group.memory_mib;
      if (n < most) to[node] = groups_->bound(u, node_level, n);
    }
  }
  // The largest weight on a node with 0, 1, ... free GPUs: a knapsack.
  [[nodiscard]] lean_vector<std::uint64_t> max_weight_by_free(
      std::span<const std::uint32_t> weights) const {
    lean_vector<std::uint64_t> best(capacities_->max_free() + 1, 0);
    for (std::size_t u = 0; u < weights.size(); ++u) {
      const auto [step, most] = groups_->at(u, capacities_->node_level());
      const std::size_t gpus = std::size_t{step} * (*groups_)[u].gpus;
      const std::uint64_t weight = std::uint64_t{step} * weights[u];
      if (weight == 0) continue;
      for (std::size_t f = best.size(); f-- > 0;) {
        std::uint64_t most_here = best[f];
        for (std::uint32_t n = 1; n <= most / step && n * gpus <= f; ++n)
          most_here = (std::max)(most_here, best[f - n * gpus] + n * weight);
        best[f] = most_here;
      }
    }
    return best;
  }

  const capacity_index<Tree>* capacities_;
  const colocated_groups* groups_;
  std::span<const resources> hosts_;
  level_t base_ = 0;
  struct tasks_of_free {
    std::uint32_t most = 0;     // tasks for whose GPUs a node suffices
    std::uint32_t bounded = 0;  // within the limit of a node
  };
  lean_vector<tasks_of_free> of_free_;              // by the free GPUs of a node
  std::vector<std::vector<std::uint32_t>> counts_;  // by level from the nodes up
};

}  // namespace detail
APIARY_NAMESPACE_END
