// apiary/preempt/detail/cell_components.h - the gangs on the nodes of a cell, and which nodes they connect.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/preempt/detail/eviction_levels.h>
#include <apiary/preempt/detail/group_capacity.h>
#include <apiary/preempt/detail/group_costs.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Lists the running gangs of a cell directly above the nodes, and the sets of nodes that they
// connect. The cost of a gang is either the sum of the costs of its allocations there, or counts in
// full.
// Requires: as group_costs.
// Cost:     O(nodes of the cell + their allocations), and sorting the gangs on several nodes.
class cell_components : public group_costs {
 public:
  // Whether a gang counts in full in each cell, not times 2^scale(), or with its allocations there.
  void count_in_full(bool to) noexcept { full_ = to; }

 protected:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  struct local_gang {
    std::uint32_t candidate = 0;
    std::uint32_t nodes = 0;       // in the cell
    std::uint32_t first_node = 0;  // the first of them
    std::uint32_t tried = none;    // position among the gangs of which all subsets are tried
    std::uint64_t cost = 0;        // in the cell
    std::uint64_t price = 0;       // its cost for each of its nodes, if costs count in full
    std::uint32_t solution = 0;    // the last of cost_in_full() in which it is evicted
  };
  struct local_item {
    std::uint32_t gang = 0;  // position in gangs_
    item what;
  };
  // Nodes of a cell that gangs connect.
  struct component {
    lean_vector<std::uint32_t> nodes;
    lean_vector<std::uint32_t> tried;  // gangs of which all subsets are tried
    bool all_tried = true;
    lean_vector<std::uint64_t> cost;
    lean_vector<std::uint32_t> subset;  // of `tried`, for each cost
    lean_vector<std::uint32_t> solved;  // the capacity in whose solution each cost is
  };

  // The gangs on these nodes.
  void list_gangs(std::uint32_t first, std::uint32_t last) {
    items_.clear();
    gangs_.clear();
    first_item_.clear();
    joined_.clear();
    local_of_.resize(candidates_.size(), none);
    for (std::uint32_t n = first; n < last; ++n) {
      first_item_.push_back(static_cast<std::uint32_t>(items_.size()));
      joined_.push_back(n - first);
      if (most_of_node_[n] == capacity_[0][n]) continue;  // no eviction helps
      for (const item& on_node : on(n)) {
        const std::uint32_t j = on_node.candidate;
        if (states_[j] != running || (!hosted_ && on_node.gpus == 0)) continue;
        if (local_of_[j] == none) {
          local_of_[j] = static_cast<std::uint32_t>(gangs_.size());
          gangs_.push_back({j, 0, n - first, none, 0, 0, 0});
        }
        local_gang& g = gangs_[local_of_[j]];
        ++g.nodes;
        g.cost = full_ ? candidates_[j].cost : g.cost + split_[on_node.allocation];
        items_.push_back({local_of_[j], on_node});
        const std::uint32_t x = representative(g.first_node);
        const std::uint32_t y = representative(n - first);
        joined_[(std::max)(x, y)] = (std::min)(x, y);
      }
    }
    first_item_.push_back(static_cast<std::uint32_t>(items_.size()));
    for (local_gang& g : gangs_) {
      local_of_[g.candidate] = none;
      g.price = g.nodes > 1 ? g.cost / g.nodes : g.cost;
    }
    work_ += items_.size() + joined_.size();
  }
  // The components of the nodes; in each, of which gangs all subsets are tried.
  void list_components() {
    num_components_ = 0;
    component_of_.assign(joined_.size(), none);
    for (std::uint32_t n = 0; n < joined_.size(); ++n) {
      const std::uint32_t r = representative(n);
      if (component_of_[r] == none) {
        component_of_[r] = static_cast<std::uint32_t>(num_components_++);
        if (components_.size() < num_components_) components_.emplace_back();
        components_[component_of_[r]].nodes.clear();
        components_[component_of_[r]].tried.clear();
      }
      component_of_[n] = component_of_[r];
      components_[component_of_[n]].nodes.push_back(n);
    }
    for (std::uint32_t g = 0; g < gangs_.size(); ++g)
      if (gangs_[g].nodes > 1) components_[component_of_[gangs_[g].first_node]].tried.push_back(g);
    for (std::size_t i = 0; i < num_components_; ++i) {
      component& at = components_[i];
      std::size_t tried = 0;
      while (tried < max_tried && tried < at.tried.size() &&
             (at.nodes.size() << tried) < max_solved_nodes)
        ++tried;
      if (tried < at.tried.size())
        std::sort(at.tried.begin(), at.tried.end(), [&](std::uint32_t a, std::uint32_t b) {
          return gangs_[a].nodes != gangs_[b].nodes ? gangs_[a].nodes > gangs_[b].nodes : a < b;
        });
      at.all_tried = tried == at.tried.size();
      if (full_ && !at.all_tried && at.nodes.size() >= max_nodes_with_subsets) tried = 0;
      at.tried.resize(tried);
      for (std::uint32_t t = 0; t < tried; ++t) gangs_[at.tried[t]].tried = t;
    }
  }

  static constexpr std::size_t max_tried = 5;          // gangs of which all subsets are tried
  static constexpr std::size_t max_solved_nodes = 64;  // nodes times subsets of a component
  // Costs in full are no bound: with more nodes, and gangs left to try, no subsets are tried.
  static constexpr std::size_t max_nodes_with_subsets = 8;

  bool full_ = false;
  lean_vector<local_gang> gangs_;
  lean_vector<local_item> items_;
  lean_vector<std::uint32_t> first_item_;  // of each node of the cell
  std::vector<component> components_;
  std::size_t num_components_ = 0;

 private:
  [[nodiscard]] std::uint32_t representative(std::uint32_t n) noexcept {
    while (joined_[n] != n) n = joined_[n] = joined_[joined_[n]];
    return n;
  }

  lean_vector<std::uint32_t> local_of_;  // of each candidate
  lean_vector<std::uint32_t> joined_;
  lean_vector<std::uint32_t> component_of_;
};

}  // namespace detail
APIARY_NAMESPACE_END
