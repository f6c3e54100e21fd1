// apiary/preempt/detail/cell_evictions.h - the cheapest gangs to evict in a cell, for each number of tasks.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/preempt/detail/cell_components.h>
#include <apiary/preempt/detail/eviction_levels.h>
#include <apiary/preempt/detail/node_evictions.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Computes for a cell the least cost of evictions for each capacity. The cost of a gang is either
// split among its allocations (then the costs of several cells add up to a lower bound), or counted
// in full in each cell.
//
// In a cell directly above the nodes, gangs on several nodes connect these nodes. For each set of
// connected nodes the search tries all subsets of the few largest of these gangs, and solves a
// knapsack of the other gangs on each node. If costs count in full, it chooses the other gangs with
// their costs split among their nodes, and then counts each of them once. The table of any other
// cell is the sum of the tables of its children.
// Requires: as group_costs.
// Cost:     table O(nodes of the cell * 2^connecting gangs * (GPUs of a node)^2) and O(tasks^2).
class cell_evictions : public cell_components {
 public:
  // cost[s]: the least cost of evictions after which the cell holds s times the step of its level,
  // for each s that is possible. False if work() would exceed the limit; then the table is empty,
  // and work() is the limit.
  [[nodiscard]] bool table(std::size_t h, std::uint32_t c, lean_vector<std::uint64_t>& cost) {
    const bool solved =
        h == 1 ? solve_lowest(c, none, cost, nullptr) : solve_inner(h, c, none, cost, nullptr);
    if (!solved) cost.clear();
    return solved;
  }
  // Appends the allocations that table() has counted for `steps`. It may have counted only some of
  // the allocations of a gang. False, and some of them, if work() would exceed the limit.
  bool append_evictions(std::size_t h, std::uint32_t c, std::uint32_t steps,
                        lean_vector<std::uint32_t>& to) {
    lean_vector<std::uint64_t> cost;
    return h == 1 ? solve_lowest(c, steps, cost, &to) : solve_inner(h, c, steps, cost, &to);
  }
  // Tables end where work() would exceed this number.
  void limit_work(std::uint64_t most) noexcept { most_work_ = most; }
  // Operations since begin(), each of some nanoseconds.
  [[nodiscard]] std::uint64_t work() const noexcept { return work_ + node_.work(); }

 private:
  using table_choice = lean_vector<std::uint32_t>;

  static std::uint64_t add(std::uint64_t a, std::uint64_t b) noexcept {
    return a + b < a ? never : a + b;
  }
  // Whether so much more work is within the limit. If not, all work up to the limit is done.
  [[nodiscard]] bool may_work(std::uint64_t more) noexcept {
    const std::uint64_t now = work();
    if (now <= most_work_ && more <= most_work_ - now) return true;
    if (now < most_work_) work_ += most_work_ - now;
    return false;
  }
  // sum[k] = the least of sum[k - i] + part[i], for k up to `most`. False: beyond the limit.
  [[nodiscard]] bool add_table(lean_vector<std::uint64_t>& sum, std::span<const std::uint64_t> part,
                               std::size_t most, table_choice* choice) {
    if (part.size() == 1 && part[0] == 0 && choice == nullptr) return true;
    const std::size_t size = (std::min)(most + 1, sum.size() + part.size() - 1);
    const std::uint64_t more = std::uint64_t{(std::min)(size, sum.size())} * part.size();
    if (!may_work(more)) return false;
    next_.assign(size, never);
    if (choice != nullptr) choice->assign(size, 0);
    for (std::size_t i = 0; i < part.size(); ++i)
      for (std::size_t k = 0; k < sum.size() && k + i < size; ++k) {
        const std::uint64_t cost = add(sum[k], part[i]);
        if (cost >= next_[k + i]) continue;
        next_[k + i] = cost;
        if (choice != nullptr) (*choice)[k + i] = static_cast<std::uint32_t>(i);
      }
    work_ += more;
    sum.swap(next_);
    return true;
  }
  [[nodiscard]] std::uint32_t steps_per_step(std::size_t h) const noexcept {
    return levels_->levels[h].step / levels_->levels[h - 1].step;
  }
  void take_steps(std::size_t h, const lean_vector<std::uint64_t>& sum,
                  lean_vector<std::uint64_t>& cost) const {
    const std::size_t each = steps_per_step(h);
    cost.clear();
    for (std::size_t s = 0; s < sum.size(); s += each) cost.push_back(sum[s]);
  }
  // Cells above the lowest: sums of their children. If `steps` is not none, appends the victims.
  [[nodiscard]] bool solve_inner(std::size_t h, std::uint32_t c, std::uint32_t steps,
                                 lean_vector<std::uint64_t>& cost,
                                 lean_vector<std::uint32_t>* victims) {
    const std::uint32_t first = levels_->levels[h].first[c];
    const std::uint32_t last = levels_->levels[h].first[c + 1];
    const std::size_t most = levels_->levels[h].most / levels_->levels[h - 1].step;
    lean_vector<std::uint64_t> sum{0};
    lean_vector<std::uint64_t> part;
    std::vector<table_choice> choices(victims == nullptr ? 0 : last - first);
    for (std::uint32_t i = first; i < last; ++i) {
      if (!table(h - 1, i, part) ||
          !add_table(sum, part, most, victims == nullptr ? nullptr : &choices[i - first]))
        return false;
    }
    take_steps(h, sum, cost);
    if (victims == nullptr) return true;
    std::size_t k = std::size_t{steps} * steps_per_step(h);
    for (std::uint32_t i = last; i-- > first;) {
      const std::uint32_t here = choices[i - first][k];
      k -= here;
      if (here > 0 && !append_evictions(h - 1, i, here, *victims)) return false;
    }
    return true;
  }
  // Solves one node if the gangs in the subset are evicted.
  [[nodiscard]] bool solve_node(std::uint32_t first, std::uint32_t n, std::uint32_t subset) {
    if (!may_work(0)) return false;
    node_amounts left = amounts(first + n);
    node_gangs_.clear();
    for (std::uint32_t i = first_item_[n]; i < first_item_[n + 1]; ++i) {
      const local_gang& g = gangs_[items_[i].gang];
      const item& what = items_[i].what;
      if (g.tried != none) {
        if ((subset >> g.tried & 1) != 0) left += freed_by(what);
        continue;
      }
      node_gangs_.push_back({full_ ? g.price : split_[what.allocation], freed_by(what)});
    }
    return node_.solve(left, node_gangs_, task_, levels_->levels[0].step, levels_->levels[0].most,
                       hosted_, most_work_ - work()) ||
           may_work(most_work_);
  }
  [[nodiscard]] bool solve_component(std::uint32_t first, component& at, std::size_t most) {
    at.cost.clear();
    at.subset.clear();
    at.solved.clear();
    for (std::uint32_t subset = 0; subset < 1U << at.tried.size(); ++subset) {
      std::uint64_t base = 0;
      for (std::size_t t = 0; t < at.tried.size(); ++t)
        if ((subset >> t & 1) != 0) base += gangs_[at.tried[t]].cost;
      if (full_ && !at.all_tried) {
        if (!sum_nodes_with_choices(first, at, subset, most)) return false;
        for (std::uint32_t k = 0; k < sum_.size(); ++k)
          keep_solution(at, k, base + cost_in_full(at, k), subset);
        continue;
      }
      sum_.assign(1, base);
      for (const std::uint32_t n : at.nodes) {
        if (!solve_node(first, n, subset) || !add_table(sum_, node_.cost(), most, nullptr))
          return false;
      }
      for (std::uint32_t k = 0; k < sum_.size(); ++k) keep_solution(at, k, sum_[k], subset);
    }
    for (std::size_t k = at.cost.size(); k-- > 1;)
      if (at.cost[k] < at.cost[k - 1]) {
        at.cost[k - 1] = at.cost[k];
        at.subset[k - 1] = at.subset[k];
        at.solved[k - 1] = at.solved[k];
      }
    return true;
  }
  static void keep_solution(component& at, std::uint32_t k, std::uint64_t cost,
                            std::uint32_t subset) {
    if (k >= at.cost.size()) {
      at.cost.resize(k + 1, never);
      at.subset.resize(k + 1, 0);
      at.solved.resize(k + 1, 0);
    }
    if (cost >= at.cost[k]) return;
    at.cost[k] = cost;
    at.subset[k] = subset;
    at.solved[k] = k;
  }
  // Fills sum_ with the costs of the nodes of a component if the subset is evicted, and choices_
  // and sets_ with the gangs that are evicted on each node.
  [[nodiscard]] bool sum_nodes_with_choices(std::uint32_t first, const component& at,
                                            std::uint32_t subset, std::size_t most) {
    if (choices_.size() < at.nodes.size()) {
      choices_.resize(at.nodes.size());
      sets_.resize(at.nodes.size());
    }
    sum_.assign(1, 0);
    for (std::size_t i = 0; i < at.nodes.size(); ++i) {
      if (!solve_node(first, at.nodes[i], subset)) return false;
      sets_[i].clear();
      for (std::size_t k = 0; k < node_.cost().size(); ++k) sets_[i].push_back(node_.set(k));
      if (!add_table(sum_, node_.cost(), most, &choices_[i])) return false;
    }
    return true;
  }
  // After sum_nodes_with_choices(): calls use(item) for each item that is evicted for capacity k.
  template <class Use>
  void for_each_evicted(const component& at, std::size_t k, const Use& use) {
    for (std::size_t i = at.nodes.size(); i-- > 0;) {
      const std::uint32_t here = choices_[i][k];
      k -= here;
      std::uint64_t set = here == 0 ? 0 : sets_[i][here];
      const std::uint32_t n = at.nodes[i];
      for (std::uint32_t t = first_item_[n]; set != 0 && t < first_item_[n + 1]; ++t) {
        if (gangs_[items_[t].gang].tried != none) continue;
        if ((set & 1) != 0) use(items_[t]);
        set >>= 1;
      }
    }
  }
  // The sum of their costs, each gang once.
  [[nodiscard]] std::uint64_t cost_in_full(const component& at, std::size_t k) {
    std::uint64_t cost = 0;
    ++solution_;
    for_each_evicted(at, k, [&](const local_item& i) {
      local_gang& g = gangs_[i.gang];
      ++work_;
      if (g.solution == solution_) return;
      g.solution = solution_;
      cost += g.cost;
    });
    work_ += at.nodes.size();
    return cost;
  }
  // A cell directly above the nodes.
  [[nodiscard]] bool solve_lowest(std::uint32_t c, std::uint32_t steps,
                                  lean_vector<std::uint64_t>& cost,
                                  lean_vector<std::uint32_t>* victims) {
    const std::uint32_t first = levels_->levels[1].first[c];
    list_gangs(first, levels_->levels[1].first[c + 1]);
    list_components();
    const std::size_t most = levels_->levels[1].most / levels_->levels[0].step;
    lean_vector<std::uint64_t> sum{0};
    std::vector<table_choice> choices(victims == nullptr ? 0 : num_components_);
    for (std::size_t i = 0; i < num_components_; ++i) {
      if (!solve_component(first, components_[i], most) ||
          !add_table(sum, components_[i].cost, most, victims == nullptr ? nullptr : &choices[i]))
        return false;
    }
    take_steps(1, sum, cost);
    if (victims == nullptr) return true;
    std::size_t k = std::size_t{steps} * steps_per_step(1);
    for (std::size_t i = num_components_; i-- > 0;) {
      const std::uint32_t here = choices[i][k];
      k -= here;
      if (here > 0 && !append_evictions_of(first, components_[i], here, most, *victims))
        return false;
    }
    return true;
  }
  [[nodiscard]] bool append_evictions_of(std::uint32_t first, const component& at, std::uint32_t k,
                                         std::size_t most, lean_vector<std::uint32_t>& to) {
    const std::uint32_t subset = at.subset[k];
    for (std::size_t t = 0; t < at.tried.size(); ++t)
      if ((subset >> t & 1) != 0)
        for (const local_item& i : items_)
          if (i.gang == at.tried[t]) to.push_back(i.what.allocation);
    if (!sum_nodes_with_choices(first, at, subset, most)) return false;
    for_each_evicted(at, at.solved[k],
                     [&](const local_item& i) { to.push_back(i.what.allocation); });
    return true;
  }

  lean_vector<std::uint64_t> next_;
  lean_vector<std::uint64_t> sum_;
  node_evictions node_;
  lean_vector<node_evictions::gang> node_gangs_;
  std::vector<table_choice> choices_;             // of each node of a component
  std::vector<lean_vector<std::uint64_t>> sets_;  // of each node of a component, by capacity
  std::uint32_t solution_ = 0;
  std::uint64_t most_work_ = never;
};

}  // namespace detail
APIARY_NAMESPACE_END
