// apiary/explain/detail/node_freeing.h - what it costs to free nodes.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/sort.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>

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

}  // namespace detail
APIARY_NAMESPACE_END
