// apiary/gang/detail/fill_nodes.h - places a gang in a cell, one node after another.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/constraint_levels.h>
#include <apiary/gang/detail/greedy_by_group.h>
#include <apiary/gang/fit_verdict.h>
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
// Cost: a step for each group that it looks at; it looks at the groups with tasks left, in order,
//       until no such group has a task that is small enough for the GPUs that are left, or until
//       `misses` groups one after another do not fit.
template <CellTree Tree>
class fill_nodes {
 public:
  static constexpr std::uint32_t all = ~std::uint32_t{0};

  // Places all groups in cell c of level l and appends their tasks to `to`. Returns false if it
  // does not succeed, or if there are constraints between the nodes and level l. It takes the node
  // with the fewest free GPUs first (for fewest_nodes: with the most); a node takes the groups in
  // `order`, until `misses` groups one after another do not fit.
  bool operator()(const capacity_index<Tree>& capacities, const colocated_groups& groups,
                  std::span<const resources> hosts, std::span<const std::uint32_t> order,
                  gang_objective objective, level_t l, std::uint32_t c, step_budget& steps,
                  std::vector<tasks_on_node>& to, std::uint32_t misses = all) {
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
        node_capacity_left node{&groups, free};
        if (!hosts.empty()) node = {&groups, free, hosts[n].cpu_milli, hosts[n].memory_mib};
        if (!steps.pay(fill(groups, node_level, n, node, misses, to)) || first_ == none) break;
      }
      if (steps.ended() || first_ == none) break;
    }
    if (first_ == none && !steps.ended()) return true;
    to.resize(before);
    return false;
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

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
                     node_capacity_left node, std::uint32_t misses,
                     std::vector<tasks_on_node>& to) {
    std::uint64_t looks = 0;
    std::uint32_t missed = 0;
    for (std::uint32_t* at = &first_; *at != none && smallest_ <= node.gpus && missed < misses;) {
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
