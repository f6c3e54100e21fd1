// apiary/explain/detail/node_freeing.h - what it costs to free nodes, and in which order to free them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// What a node has free: now, or when it is wholly free.
struct node_free {
  std::uint32_t gpus = 0;
  resources host{};
  friend bool operator==(const node_free&, const node_free&) = default;
};

// A step of unblock_search is so many steps of min_cost_fit, which are shorter.
inline constexpr std::uint64_t sums_of_a_step = 4;

// The cost of freeing a node: first the GPUs in use count, then the nodes. The costs of all nodes
// add up to less than 2^62.
[[nodiscard]] inline std::uint64_t cost_of_freeing(const node_free& now, const node_free& whole,
                                                   std::size_t nodes) noexcept {
  return now == whole ? 0 : std::uint64_t{whole.gpus - now.gpus} * (nodes + 1) + 1;
}

// Numbers the classes of equal nodes from 0. Cost: O(nodes * log).
inline void classes_of_nodes(std::span<const node_free> now, std::span<const node_free> whole,
                             std::vector<std::uint32_t>& classes,
                             std::vector<std::uint32_t>& class_nodes) {
  const auto less = [&](std::uint32_t a, std::uint32_t b) {
    for (const auto& of : {now, whole}) {
      if (of[a].gpus != of[b].gpus) return of[a].gpus < of[b].gpus;
      if (of[a].host.cpu_milli != of[b].host.cpu_milli)
        return of[a].host.cpu_milli < of[b].host.cpu_milli;
      if (of[a].host.memory_mib != of[b].host.memory_mib)
        return of[a].host.memory_mib < of[b].host.memory_mib;
    }
    return false;
  };
  std::vector<std::uint32_t> sorted;
  for (std::uint32_t n = 0; n < now.size(); ++n) sorted.push_back(n);
  merge_sort(sorted, less);
  classes.assign(now.size(), 0);
  class_nodes.clear();
  for (const std::uint32_t n : sorted) {
    if (class_nodes.empty() || less(class_nodes.back(), n)) class_nodes.push_back(n);
    classes[n] = static_cast<std::uint32_t>(class_nodes.size() - 1);
  }
}

// The cost of tasks on a node, for min_cost_fit: nothing if they fit now, the cost of freeing the
// node if they fit then.
class freeing_cost {
 public:
  // class_nodes: a node of each class.
  freeing_cost(const colocated_groups* groups, std::span<const node_free> now,
               std::span<const node_free> whole, std::span<const std::uint32_t> class_nodes,
               bool gpus_only)
      : groups_(groups), now_(now), whole_(whole), class_nodes_(class_nodes), gpus_(gpus_only) {}

  std::optional<std::int64_t> operator()(std::uint32_t node_class,
                                         std::span<const std::uint32_t> tasks) const {
    const std::uint32_t n = class_nodes_[node_class];
    if (holds(now_[n], tasks)) return 0;
    if (!holds(whole_[n], tasks)) return std::nullopt;
    return static_cast<std::int64_t>(cost_of_freeing(now_[n], whole_[n], now_.size()));
  }
  // How many tasks of group u, at most `limit`, a node can hold beside these tasks of the other
  // groups.
  [[nodiscard]] std::uint32_t most(std::uint32_t node_class, std::span<const std::uint32_t> tasks,
                                   std::size_t u, std::uint32_t limit) const {
    node_free left = whole_[class_nodes_[node_class]];
    std::uint64_t n = limit;
    const auto reduce = [&](std::uint64_t free, const auto& need) {
      for (std::size_t v = 0; v < tasks.size(); ++v)
        if (v != u) free -= (std::min)(free, tasks[v] * need((*groups_)[v]));
      if (const std::uint64_t each = need((*groups_)[u]); each > 0) n = (std::min)(n, free / each);
    };
    reduce(left.gpus, [](const auto& group) { return std::uint64_t{group.gpus}; });
    if (!gpus_) {
      reduce(left.host.cpu_milli, [](const auto& group) { return group.cpu_milli; });
      reduce(left.host.memory_mib, [](const auto& group) { return group.memory_mib; });
    }
    return static_cast<std::uint32_t>(n);
  }
  // The nodes that must be free for these tasks, ascending. Requires: portions as min_cost_fit
  // returns them for the gang.
  void nodes_to_free(const colocated_groups& groups, const topology_constraints& gang,
                     std::span<const tasks_on_node> portions,
                     std::span<const std::uint32_t> classes,
                     std::vector<std::uint32_t>& nodes) const {
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < portions.size(); ++i)
      if (gang.groups[portions[i].group].leader == no_task_group) order.push_back(i);
    merge_sort(order, [&](std::uint32_t a, std::uint32_t b) {
      return portions[a].node < portions[b].node;
    });
    nodes.clear();
    std::vector<std::uint32_t> tasks;
    for (std::size_t i = 0; i < order.size();) {
      const std::uint32_t node = portions[order[i]].node;
      tasks.assign(groups.size(), 0);
      for (; i < order.size() && portions[order[i]].node == node; ++i)
        tasks[groups.group_of(portions[order[i]].group)] += portions[order[i]].tasks;
      if ((*this)(classes[node], tasks) != 0) nodes.push_back(node);
    }
  }

 private:
  [[nodiscard]] bool holds(const node_free& node, std::span<const std::uint32_t> tasks) const {
    std::uint64_t gpus = 0;
    std::uint64_t cpu_milli = 0;
    std::uint64_t memory_mib = 0;
    for (std::size_t u = 0; u < tasks.size(); ++u) {
      const colocated_groups::group& group = (*groups_)[u];
      gpus += std::uint64_t{tasks[u]} * group.gpus;
      if (gpus > node.gpus) return false;
      if (gpus_) continue;
      cpu_milli += tasks[u] * group.cpu_milli;
      memory_mib += tasks[u] * group.memory_mib;
      if (cpu_milli > node.host.cpu_milli || memory_mib > node.host.memory_mib) return false;
    }
    return true;
  }

  const colocated_groups* groups_;
  std::span<const node_free> now_;
  std::span<const node_free> whole_;
  std::span<const std::uint32_t> class_nodes_;
  bool gpus_;  // CPU and memory do not count
};

// The order in which nodes are freed for the largest tasks of a gang.
template <CellTree Tree>
class freeing_order {
 public:
  freeing_order(const capacity_index<Tree>& capacities, const colocated_groups& groups,
                std::span<const node_free> now, std::span<const node_free> whole, bool gpus_only)
      : capacities_(capacities), groups_(groups), now_(now), whole_(whole), gpus_(gpus_only) {
    for (std::size_t u = 0; u < groups.size(); ++u)
      if (groups[u].gpus >= groups[group_].gpus) group_ = u;
  }
  // The cells of a level with most slots for these tasks, at most `most` cells.
  [[nodiscard]] std::vector<std::uint32_t> closest_cells(level_t l, std::size_t most) const {
    std::vector<keyed_number> cells;
    for (std::uint32_t c = 0; c < capacities_.num_cells(l); ++c) {
      std::uint64_t sum = 0;
      for (const cell_id n : capacities_.nodes(l, c)) sum += tasks_in(now_[n.value]);
      cells.push_back({~sum, c});
    }
    keyed_number::sort(cells);
    std::vector<std::uint32_t> first;
    for (std::size_t i = 0; i < (std::min)(cells.size(), most); ++i)
      first.push_back(cells[i].number);
    return first;
  }
  // The nodes of a cell that are not wholly free. by_slices: the nodes that complete a slice at the
  // least cost are first (if there are no slices: the nodes that give a slot at the least cost),
  // and nodes that give none are last. Otherwise the nodes are in ascending order of cost.
  void operator()(level_t l, std::uint32_t cell, bool by_slices,
                  std::vector<keyed_number>& order) const {
    order.clear();
    level_t slices = capacities_.node_level() + 1;
    while (slices < l && groups_.at(group_, slices).step == 1) ++slices;
    const std::uint32_t step = slices > l ? 1 : groups_.at(group_, slices).step;
    if (!by_slices || step == 1) {
      for (const cell_id n : capacities_.nodes(l, cell)) add(n.value, by_slices, order);
    } else {
      std::vector<keyed_number> inside;
      for (const cell_id c : capacities_.inside(l, cell, slices)) {
        inside.clear();
        std::uint64_t tasks = 0;
        for (const cell_id n : capacities_.nodes(slices, c.value)) {
          tasks += tasks_in(now_[n.value]);
          add(n.value, true, inside);
        }
        keyed_number::sort(inside);
        add_slices(inside, step, tasks % step, order);
      }
    }
    keyed_number::sort(order);
  }

 private:
  static constexpr std::uint64_t last = std::uint64_t{1} << 62;

  void add(std::uint32_t n, bool by_slot, std::vector<keyed_number>& order) const {
    if (now_[n] == whole_[n]) return;
    std::uint64_t key = cost_of_freeing(now_[n], whole_[n], now_.size());
    const std::uint32_t gain = tasks_in(whole_[n]) - tasks_in(now_[n]);
    if (by_slot) key = gain == 0 ? last + key : key * 64 / gain;
    order.push_back({key, n});
  }
  // Gives the nodes of each slice the cost of the slice as their key.
  void add_slices(std::span<const keyed_number> inside, std::uint32_t step, std::uint64_t tasks,
                  std::vector<keyed_number>& order) const {
    std::uint64_t cost = 0;
    std::size_t first = order.size();
    for (const keyed_number& at : inside) {
      const std::uint32_t n = at.number;
      tasks += tasks_in(whole_[n]) - tasks_in(now_[n]);
      cost += cost_of_freeing(now_[n], whole_[n], now_.size());
      order.push_back({last + at.key, n});
      if (tasks < step) continue;
      for (; first < order.size(); ++first) order[first].key = cost;
      cost = 0;
      tasks %= step;
    }
  }
  // How many of the tasks fit, within the constraints of a node.
  [[nodiscard]] std::uint32_t tasks_in(const node_free& in) const noexcept {
    if (groups_.size() == 0) return 0;
    const colocated_groups::group& task = groups_[group_];
    std::uint64_t n = task.tasks;
    if (task.gpus > 0) n = (std::min<std::uint64_t>)(n, in.gpus / task.gpus);
    if (!gpus_ && task.cpu_milli > 0) n = (std::min)(n, in.host.cpu_milli / task.cpu_milli);
    if (!gpus_ && task.memory_mib > 0) n = (std::min)(n, in.host.memory_mib / task.memory_mib);
    return groups_.bound(group_, capacities_.node_level(), n);
  }

  const capacity_index<Tree>& capacities_;
  const colocated_groups& groups_;
  std::span<const node_free> now_;
  std::span<const node_free> whole_;
  bool gpus_;              // CPU and memory do not count
  std::size_t group_ = 0;  // of the largest tasks
};

}  // namespace detail
APIARY_NAMESPACE_END
