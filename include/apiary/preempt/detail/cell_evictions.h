// apiary/preempt/detail/cell_evictions.h - the cheapest gangs to evict in a cell, for each number of tasks.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/preempt/detail/eviction_levels.h>
#include <apiary/preempt/detail/group_capacity.h>
#include <apiary/preempt/detail/node_evictions.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Computes for a cell the least cost of evictions for each capacity. The cost of a gang is either
// split among its allocations (then the costs are lower bounds over all cells together), or counted
// in full in each cell.
//
// A cell directly above the nodes: gangs on several of its nodes connect them; for each set of
// connected nodes all subsets of the largest few of these gangs are tried, and each node has a
// knapsack of the others. Other cells: the sums of the tables of their children.
// Requires: as group_capacity.
// Cost:     table O(nodes of the cell * 2^connecting gangs * (GPUs of a node)^2) and O(tasks^2).
class cell_evictions : public group_capacity {
 public:
  // Whether a gang counts in full in each cell, not times 2^scale(), or with its allocations there.
  void count_in_full(bool to) noexcept { full_ = to; }

  // cost[s]: the least cost of evictions in the cell so that it holds s times the step of its level;
  // up to what all evictions allow.
  void table(std::size_t h, std::uint32_t c, std::vector<std::uint64_t>& cost) {
    local_of_.resize(candidates_.size(), none);
    if (h == 1) {
      solve_lowest(c, none, cost, nullptr);
    } else {
      solve_inner(h, c, none, cost, nullptr);
    }
  }
  // Appends the allocations that table() has counted for `steps`; of a gang with several, it may
  // have counted some only.
  void append_evictions(std::size_t h, std::uint32_t c, std::uint32_t steps,
                        std::vector<std::uint32_t>& to) {
    std::vector<std::uint64_t> cost;
    if (h == 1) {
      solve_lowest(c, steps, cost, &to);
    } else {
      solve_inner(h, c, steps, cost, &to);
    }
  }
  // Operations since begin(), each of some nanoseconds.
  [[nodiscard]] std::uint64_t work() const noexcept { return work_ + node_.work(); }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  using table_choice = std::vector<std::uint32_t>;
  struct local_gang {
    std::uint32_t candidate = 0;
    std::uint32_t nodes = 0;       // in the cell
    std::uint32_t first_node = 0;  // the first of them
    std::uint32_t tried = none;    // position among the gangs of which all subsets are tried
    std::uint64_t cost = 0;        // in the cell
  };
  struct item {
    std::uint32_t gang = 0;  // position in gangs_
    std::uint32_t allocation = 0;
  };
  // Nodes of a cell that gangs connect.
  struct component {
    std::vector<std::uint32_t> nodes;
    std::vector<std::uint32_t> tried;  // gangs of which all subsets are tried
    std::vector<std::uint64_t> cost;
    std::vector<std::uint32_t> subset;  // of `tried`, for each cost
  };

  static std::uint64_t add(std::uint64_t a, std::uint64_t b) noexcept {
    return a + b < a ? never : a + b;
  }
  // sum[k] = the least of sum[k - i] + part[i], for k up to `most`.
  void add_table(std::vector<std::uint64_t>& sum, std::span<const std::uint64_t> part,
                 std::size_t most, table_choice* choice) {
    if (part.size() == 1 && part[0] == 0 && choice == nullptr) return;
    const std::size_t size = (std::min)(most + 1, sum.size() + part.size() - 1);
    next_.assign(size, never);
    if (choice != nullptr) choice->assign(size, 0);
    for (std::size_t i = 0; i < part.size(); ++i)
      for (std::size_t k = 0; k < sum.size() && k + i < size; ++k) {
        const std::uint64_t cost = add(sum[k], part[i]);
        if (cost >= next_[k + i]) continue;
        next_[k + i] = cost;
        if (choice != nullptr) (*choice)[k + i] = static_cast<std::uint32_t>(i);
      }
    work_ += (std::min)(size, sum.size()) * part.size();
    sum.swap(next_);
  }
  [[nodiscard]] std::uint32_t steps_per_step(std::size_t h) const noexcept {
    return levels_->levels[h].step / levels_->levels[h - 1].step;
  }
  void take_steps(std::size_t h, const std::vector<std::uint64_t>& sum,
                  std::vector<std::uint64_t>& cost) const {
    const std::size_t each = steps_per_step(h);
    cost.clear();
    for (std::size_t s = 0; s < sum.size(); s += each) cost.push_back(sum[s]);
  }
  // Cells above the lowest: sums of their children. If `steps` is not none, appends the victims.
  void solve_inner(std::size_t h, std::uint32_t c, std::uint32_t steps,
                   std::vector<std::uint64_t>& cost, std::vector<std::uint32_t>* victims) {
    const std::uint32_t first = levels_->levels[h].first[c];
    const std::uint32_t last = levels_->levels[h].first[c + 1];
    const std::size_t most = levels_->levels[h].most / levels_->levels[h - 1].step;
    std::vector<std::uint64_t> sum{0};
    std::vector<std::uint64_t> part;
    std::vector<table_choice> choices(victims == nullptr ? 0 : last - first);
    for (std::uint32_t i = first; i < last; ++i) {
      table(h - 1, i, part);
      add_table(sum, part, most, victims == nullptr ? nullptr : &choices[i - first]);
    }
    take_steps(h, sum, cost);
    if (victims == nullptr) return;
    std::size_t k = std::size_t{steps} * steps_per_step(h);
    for (std::uint32_t i = last; i-- > first;) {
      const std::uint32_t here = choices[i - first][k];
      k -= here;
      if (here > 0) append_evictions(h - 1, i, here, *victims);
    }
  }
  void list_gangs(std::uint32_t first, std::uint32_t last) {
    items_.clear();
    gangs_.clear();
    first_item_.clear();
    joined_.clear();
    for (std::uint32_t n = first; n < last; ++n) {
      first_item_.push_back(static_cast<std::uint32_t>(items_.size()));
      joined_.push_back(n - first);
      if (most_of_node_[n] == capacity_[0][n]) continue;  // no eviction helps
      for (const std::uint32_t a : on(n)) {
        const std::uint32_t j = candidate_of_[a];
        if (states_[j] != running || (!hosted_ && allocations_[a].gpus == 0)) continue;
        if (local_of_[j] == none) {
          local_of_[j] = static_cast<std::uint32_t>(gangs_.size());
          gangs_.push_back({j, 0, n - first, none, 0});
        }
        local_gang& g = gangs_[local_of_[j]];
        ++g.nodes;
        g.cost = full_ ? candidates_[j].cost : g.cost + split_[a];
        items_.push_back({local_of_[j], a});
        const std::uint32_t x = representative(g.first_node);
        const std::uint32_t y = representative(n - first);
        joined_[(std::max)(x, y)] = (std::min)(x, y);
      }
    }
    first_item_.push_back(static_cast<std::uint32_t>(items_.size()));
    for (const local_gang& g : gangs_) local_of_[g.candidate] = none;
    work_ += items_.size() + joined_.size();
  }
  [[nodiscard]] std::uint32_t representative(std::uint32_t n) noexcept {
    while (joined_[n] != n) n = joined_[n] = joined_[joined_[n]];
    return n;
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
      at.tried.resize(tried);
      for (std::uint32_t t = 0; t < tried; ++t) gangs_[at.tried[t]].tried = t;
    }
  }
  // Solves one node if the gangs in the subset are evicted. on_node_ lists the others.
  void solve_node(std::uint32_t first, std::uint32_t n, std::uint32_t subset) {
    node_amounts left = amounts(first + n);
    on_node_.clear();
    node_gangs_.clear();
    for (std::uint32_t i = first_item_[n]; i < first_item_[n + 1]; ++i) {
      const local_gang& g = gangs_[items_[i].gang];
      const std::uint32_t a = items_[i].allocation;
      if (g.tried != none) {
        if ((subset >> g.tried & 1) != 0) left += freed_by(a);
        continue;
      }
      on_node_.push_back(a);
      node_gangs_.push_back({full_ ? candidates_[g.candidate].cost : split_[a], freed_by(a)});
    }
    node_.solve(left, node_gangs_, task_, levels_->levels[0].step, levels_->levels[0].most,
                hosted_);
  }
  void solve_component(std::uint32_t first, component& at, std::size_t most) {
    at.cost.clear();
    at.subset.clear();
    for (std::uint32_t subset = 0; subset < 1U << at.tried.size(); ++subset) {
      std::uint64_t base = 0;
      for (std::size_t t = 0; t < at.tried.size(); ++t)
        if ((subset >> t & 1) != 0) base += gangs_[at.tried[t]].cost;
      sum_.assign(1, base);
      for (const std::uint32_t n : at.nodes) {
        solve_node(first, n, subset);
        add_table(sum_, node_.cost(), most, nullptr);
      }
      if (sum_.size() > at.cost.size()) {
        at.cost.resize(sum_.size(), never);
        at.subset.resize(sum_.size(), 0);
      }
      for (std::size_t k = 0; k < sum_.size(); ++k)
        if (sum_[k] < at.cost[k]) {
          at.cost[k] = sum_[k];
          at.subset[k] = subset;
        }
    }
    for (std::size_t k = at.cost.size(); k-- > 1;)
      if (at.cost[k] < at.cost[k - 1]) {
        at.cost[k - 1] = at.cost[k];
        at.subset[k - 1] = at.subset[k];
      }
  }
  // A cell directly above the nodes.
  void solve_lowest(std::uint32_t c, std::uint32_t steps, std::vector<std::uint64_t>& cost,
                    std::vector<std::uint32_t>* victims) {
    const std::uint32_t first = levels_->levels[1].first[c];
    list_gangs(first, levels_->levels[1].first[c + 1]);
    list_components();
    const std::size_t most = levels_->levels[1].most / levels_->levels[0].step;
    std::vector<std::uint64_t> sum{0};
    std::vector<table_choice> choices(victims == nullptr ? 0 : num_components_);
    for (std::size_t i = 0; i < num_components_; ++i) {
      solve_component(first, components_[i], most);
      add_table(sum, components_[i].cost, most, victims == nullptr ? nullptr : &choices[i]);
    }
    take_steps(1, sum, cost);
    if (victims == nullptr) return;
    std::size_t k = std::size_t{steps} * steps_per_step(1);
    for (std::size_t i = num_components_; i-- > 0;) {
      const std::uint32_t here = choices[i][k];
      k -= here;
      if (here > 0) append_evictions_of(first, components_[i], here, most, *victims);
    }
  }
  void append_evictions_of(std::uint32_t first, const component& at, std::uint32_t k,
                           std::size_t most, std::vector<std::uint32_t>& to) {
    const std::uint32_t subset = at.subset[k];
    for (std::size_t t = 0; t < at.tried.size(); ++t)
      if ((subset >> t & 1) != 0)
        for (const item& i : items_)
          if (i.gang == at.tried[t]) to.push_back(i.allocation);
    std::vector<table_choice> choices(at.nodes.size());
    sum_.assign(1, 0);
    for (std::size_t i = 0; i < at.nodes.size(); ++i) {
      solve_node(first, at.nodes[i], subset);
      add_table(sum_, node_.cost(), most, &choices[i]);
    }
    for (std::size_t i = at.nodes.size(); i-- > 0;) {
      const std::uint32_t here = choices[i][k];
      k -= here;
      if (here == 0) continue;
      solve_node(first, at.nodes[i], subset);
      for (std::size_t g = 0; g < on_node_.size() && g < 64; ++g)
        if ((node_.set(here) >> g & 1) != 0) to.push_back(on_node_[g]);
    }
  }

  static constexpr std::size_t max_tried = 5;          // gangs of which all subsets are tried
  static constexpr std::size_t max_solved_nodes = 64;  // nodes times subsets of a component

  bool full_ = false;
  std::vector<std::uint64_t> next_;
  std::vector<std::uint64_t> sum_;
  std::vector<std::uint32_t> local_of_;  // of each candidate
  std::vector<local_gang> gangs_;
  std::vector<item> items_;
  std::vector<std::uint32_t> first_item_;  // of each node of the cell
  std::vector<std::uint32_t> joined_;
  std::vector<std::uint32_t> component_of_;
  std::vector<component> components_;
  std::size_t num_components_ = 0;
  node_evictions node_;
  std::vector<node_evictions::gang> node_gangs_;
  std::vector<std::uint32_t> on_node_;  // allocations
};

}  // namespace detail
APIARY_NAMESPACE_END
