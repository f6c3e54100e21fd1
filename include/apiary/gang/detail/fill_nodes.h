// apiary/gang/detail/fill_nodes.h - places a gang in a cell, one node after another.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/constraint_levels.h>
#include <apiary/gang/detail/greedy_by_group.h>
#include <apiary/gang/detail/step_budget.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Fills one node after another until all tasks are placed. In a large cell with mostly free nodes
// it reads few nodes, even for many groups; greedy_by_group reads all of them. A placement that it
// finds is valid, but it may find none although there is one.
// Cost: a step for each group that has tasks left, at each node that has the GPUs for one of them.
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
                  std::vector<tasks_on_node>& to) {
    const level_t node_level = capacities.node_level();
    if (level_below(groups, l, node_level) != node_level) return false;
    const std::size_t before = to.size();
    left_.assign(order.begin(), order.end());
    tasks_.resize(groups.size());
    for (std::size_t u = 0; u < groups.size(); ++u) tasks_[u] = groups[u].tasks;
    const id_range<cell_id> nodes = capacities.nodes(l, c);
    for (std::uint32_t i = 0; i <= capacities.max_free(); ++i) {
      const std::uint32_t free =
          objective == gang_objective::fewest_nodes ? capacities.max_free() - i : i;
      std::uint32_t smallest = least_gpus(groups);
      for (std::uint32_t n = capacities.first_node(free, nodes.first.value);
           n < nodes.last.value && smallest <= free; n = capacities.first_node(free, n + 1)) {
        if (!steps.pay(left_.size())) break;
        node_capacity_left node{&groups, free};
        if (!hosts.empty()) node = {&groups, free, hosts[n].cpu_milli, hosts[n].memory_mib};
        std::erase_if(left_, [&](std::uint32_t u) {
          const std::uint32_t most = groups.bound(u, node_level, node.capacity(u));
          const std::uint32_t tasks = (std::min)(most, tasks_[u]);
          if (tasks == 0) return false;
          node.put(u, tasks);
          to.push_back({n, u, tasks});
          tasks_[u] -= tasks;
          return tasks_[u] == 0;
        });
        if (left_.empty()) return true;
        smallest = least_gpus(groups);
      }
    }
    to.resize(before);
    return false;
  }

 private:
  // The fewest GPUs of a task that is to be placed: nodes with fewer are passed over.
  [[nodiscard]] std::uint32_t least_gpus(const colocated_groups& groups) const {
    std::uint32_t least = groups[left_[0]].gpus;
    for (const std::uint32_t u : left_) least = (std::min)(least, groups[u].gpus);
    return least;
  }

  std::vector<std::uint32_t> left_;   // groups with tasks to place
  std::vector<std::uint32_t> tasks_;  // of each group, to place
};

}  // namespace detail
APIARY_NAMESPACE_END
