// apiary/gang/shared_gpu_fit.h - exact placement of a gang on nodes with shared GPUs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/bin_packing.h>
#include <apiary/gang/detail/capacity_count.h>
#include <apiary/gang/detail/refusals.h>
#include <apiary/gang/detail/shared_capacity.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/min_cost_fit.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Where one task of a task group runs.
struct task_placement {
  std::uint32_t group = 0;  // index of the task group
  placement where{};        // node and GPUs of the task
  friend bool operator==(const task_placement&, const task_placement&) = default;
};

// Places a gang on nodes with shared GPUs, under its topology constraints, at the least cost; or
// proves that it does not fit. A task takes whole GPUs, a fraction of one GPU, or none, with CPU
// and memory as in the node table. The result is exact, or a placement that may not be the
// cheapest (`is_least` is false), or `budget_ended`.
//
// If a node may hold thousands of combinations of tasks, or the budget ends, and no task group has
// slices, anti-affinity or a leader, the task groups are placed greedily, one after another.
//
// Requires: node i of the table is cell i of the node level; gang.valid() for the tree; no task
//           group has a leader_level; task() of each task group is valid().
// Cost:     O(nodes * groups * GPUs of a node); then shared_capacity and min_cost_fit, which share
//           the budget. A step of shared_capacity takes about a microsecond. Memory: O(nodes *
//           groups), at most 64 MB for shared_capacity, and 40 bytes for a step of min_cost_fit.
// Example:  examples/shared_gang.cpp
template <CellTree Tree>
class shared_gpu_fit {
 public:
  // What a search found. The span is valid until the next call. The placements are ordered by task
  // group, then node, so slices are consecutive tasks.
  struct result {
    fit_verdict verdict = fit_verdict::does_not_fit;  // whether the gang fits
    std::span<const task_placement> placements{};     // where each task runs
    level_t level = 0;                                // level of the chosen cell
    std::uint32_t cell = 0;                           // position of the chosen cell in its level
    std::int64_t cost = 0;                            // cost of the chosen GPUs
    bool is_lowest = true;                            // as in min_cost_fit
    bool is_least = true;                             // as in min_cost_fit
    std::uint64_t steps = 0;                          // steps of the budget that were used
  };

  // budget: the most steps that one call may take; at most max_capacity_steps for shared_capacity.
  explicit shared_gpu_fit(std::uint64_t budget = 10'000'000) noexcept : budget_(budget) {}

  // Searches for the cheapest placement. cost(before, after) -> std::int64_t is the cost of
  // changing a node between two states; see shared_capacity.
  template <class Cost>
  result operator()(const node_table& nodes, const Tree& tree, level_t node_level,
                    const topology_constraints& gang, const Cost& cost) {
    APIARY_ASSERT(nodes.size() == tree.cells(node_level).size());
    tree_ = &tree;
    node_level_ = node_level;
    placements_.clear();
    listed_ = {};
    fit_ = min_cost_fit<Tree>(0);
    groups_.assign(gang, node_level, tree.num_levels());
    count(nodes);
    if (is_short((std::min)(gang.required, tree.num_levels()))) return {};
    const bool large = has_many_combinations();
    if (large) {
      const result placed = place_greedily(nodes, gang, budget_ / 2, cost);
      if (placed.verdict == fit_verdict::fits) return placed;
    }
    const std::uint64_t steps = (std::min)(large ? budget_ / 2 : budget_, max_capacity_steps);
    if (!capacities_.assign(nodes, groups_, node_level, steps, cost))
      return place_greedily(nodes, gang, large ? 0 : budget_ - capacities_.steps(), cost);
    fit_ = min_cost_fit<Tree>(budget_ - capacities_.steps());
    weigh(gang);
    const typename min_cost_fit<Tree>::result found =
        fit_(tree, node_level, gang, capacities_.classes(), capacities_, weights_);
    listed_ = found.listed;
    if (found.verdict == fit_verdict::fits) place(nodes, gang, found.portions);
    return {found.verdict, placements_,     found.level,    found.cell,
            found.cost,    found.is_lowest, found.is_least, capacities_.steps() + found.steps};
  }

  // After `does_not_fit`: the proof. Cost: O(nodes * groups) and the vectors that nodes can hold.
  [[nodiscard]] infeasibility_proof explain(const topology_constraints& gang) const {
    const level_t l = (std::min)(gang.required, tree_->num_levels());
    std::vector<detail::weighed_cells> tried;
    for (std::size_t u = 0; u < groups_.size(); ++u) {
      const bool counted = detail::is_counted_exactly(groups_[u]);
      if (!counted && short_) continue;
      std::vector<std::uint32_t> weights(groups_.size(), 0);
      weights[u] = 1;
      tried.push_back({{std::move(weights), groups_[u].tasks}, {}});
      for (const std::uint32_t n : counted ? capacity(u, l) : fit_.capacities(u, l))
        tried.back().most.push_back(n);
    }
    if (!short_ && !weights_.empty()) {
      detail::weighed_cells gpus{{weights_, 0}, fit_.max_weights(weights_, l)};
      for (std::size_t u = 0; u < groups_.size(); ++u)
        gpus.what.needed += std::uint64_t{weights_[u]} * groups_[u].tasks;
      if (!gpus.most.empty()) tried.push_back(std::move(gpus));
    }
    infeasibility_proof why =
        detail::fewest_reasons(l, detail::num_positions(*tree_, l), groups_, tried, listed_);
    why.node_level = node_level_;
    return why;
  }

 private:
  static constexpr std::uint64_t max_capacity_steps = 1'000'000;
  static constexpr std::uint64_t many_combinations = 1'000;
  // Whether a node may hold many combinations of tasks, so that listing them takes long. If m tasks
  // of each of k groups fit alone, about m^k / k! combinations do.
  [[nodiscard]] bool has_many_combinations() const {
    for (std::size_t n = 0; !alone_.empty() && n < alone_[0].size(); ++n) {
      std::uint64_t combinations = 1;
      for (std::size_t u = 0; u < alone_.size() && combinations < std::uint64_t{1} << 31; ++u)
        combinations = combinations * (std::uint64_t{alone_[u][n]} + u + 1) / (u + 1);
      if (combinations > many_combinations) return true;
    }
    return false;
  }
  // In the first cell, from the preferred level up, whose nodes take all task groups.
  template <class Cost>
  result place_greedily(const node_table& nodes, const topology_constraints& gang,
                        std::uint64_t budget, const Cost& cost) {
    detail::step_budget steps(budget);
    result found{.verdict = fit_verdict::budget_ended};
    if (!detail::has_independent_tasks(gang)) budget = 0;
    const level_t last = (std::min)(gang.required, tree_->num_levels());
    const level_t first = (std::min)(gang.preferred, last);
    for (level_t l = first; l <= last && budget > 0 && !steps.ended(); ++l) {
      const detail::lean_vector<unsigned char> possible = possible_cells(l);
      for (std::uint32_t c = 0; c < possible.size() && !steps.ended(); ++c) {
        if (possible[c] == 0) continue;
        const id_range<cell_id> inside = detail::positions_inside(*tree_, l, c, node_level_);
        if (!greedy_(nodes, inside.first.value, inside.last.value, gang, steps)) continue;
        for (const auto& p : greedy_.placed()) placements_.push_back({p.group, p.where});
        detail::merge_sort(placements_, [](const task_placement& a, const task_placement& b) {
          return a.group < b.group;
        });
        found = {fit_verdict::fits,         placements_, l,     c,
                 greedy_.cost(nodes, cost), l == first,  false, 0};
        found.steps = capacities_.steps() + steps.steps();
        return found;
      }
    }
    found.steps = capacities_.steps() + steps.steps();
    return found;
  }
  // The tasks of each group that a node can hold, each group counted alone.
  void count(const node_table& nodes) {
    alone_.assign(groups_.size(), {});
    for (std::size_t u = 0; u < groups_.size(); ++u)
      for (const node_id n : nodes.ids())
        alone_[u].push_back(detail::max_units(nodes[n], groups_[u]));
  }
  [[nodiscard]] std::vector<std::uint32_t> capacity(std::size_t u, level_t l) const {
    return detail::capacity_above(*tree_, groups_, u, node_level_, l, alone_[u]);
  }
  // The cells of the level that have capacity for each group alone.
  [[nodiscard]] detail::lean_vector<unsigned char> possible_cells(level_t l) const {
    detail::lean_vector<unsigned char> possible(detail::num_positions(*tree_, l), 1);
    for (std::size_t u = 0; u < groups_.size(); ++u) {
      if (!detail::is_counted_exactly(groups_[u])) continue;
      const std::vector<std::uint32_t> capacities = capacity(u, l);
      for (std::size_t c = 0; c < capacities.size(); ++c)
        if (capacities[c] < groups_[u].tasks) possible[c] = 0;
    }
    return possible;
  }
  // Whether every cell of the level lacks capacity for some group.
  bool is_short(level_t l) {
    const detail::lean_vector<unsigned char> possible = possible_cells(l);
    short_ = std::find(possible.begin(), possible.end(), 1) == possible.end();
    return short_;
  }
  // A task weighs its thousandths of GPUs. A single group is weighed by its tasks instead.
  void weigh(const topology_constraints& gang) {
    weights_.clear();
    for (std::size_t u = 0; u < groups_.size(); ++u) {
      const std::uint64_t weight = detail::needs_of(gang, groups_[u].first_group).milli;
      if (weight > (std::numeric_limits<std::uint32_t>::max)()) return weights_.clear();
      weights_.push_back(static_cast<std::uint32_t>(weight));
    }
    const auto weighted =
        std::count_if(weights_.begin(), weights_.end(), [](auto w) { return w > 0; });
    if (weighted < 2) weights_.clear();
  }
  void place(const node_table& nodes, const topology_constraints& gang,
             std::span<const tasks_on_node> portions) {
    std::map<std::uint32_t, std::vector<std::uint32_t>> counts;  // tasks of each group, by node
    for (const tasks_on_node& p : portions) {
      if (gang.groups[p.group].leader != no_task_group) continue;
      std::vector<std::uint32_t>& there = counts[p.node];
      there.resize(groups_.size(), 0);
      there[groups_.group_of(p.group)] += p.tasks;
    }
    std::map<std::uint32_t, std::vector<detail::shared_capacity::taken>> devices;
    for (const auto& [node, there] : counts)
      devices.emplace(node, capacities_.devices(nodes, node_id(node), there));
    for (const tasks_on_node& p : portions) {
      const task_request task = gang.groups[p.group].task();
      std::vector<detail::shared_capacity::taken>& here = devices.at(p.node);
      for (std::uint32_t t = 0; t < p.tasks; ++t) {
        task_placement& is = placements_.emplace_back();
        is = {p.group, {node_id(p.node), 0}};
        for (std::uint32_t d = 0; d < task.gpus; ++d) {
          // Equal fractions are interchangeable.
          const auto at = std::find_if(here.begin(), here.end(),
                                       [&](const auto& x) { return x.milli == task.gpu_milli; });
          APIARY_VERIFY(at != here.end());
          is.where.gpu_mask |= std::uint32_t{1} << at->device;
          here.erase(at);
        }
      }
    }
  }

  std::uint64_t budget_;
  const Tree* tree_ = nullptr;
  level_t node_level_ = 0;
  colocated_groups groups_;
  std::vector<std::vector<std::uint32_t>> alone_;  // by group and node
  bool short_ = false;                             // every cell lacks capacity for some group
  std::vector<std::uint32_t> weights_;             // of a task of each group
  detail::shared_capacity capacities_;
  detail::shared_greedy greedy_;
  min_cost_fit<Tree> fit_;
  std::span<const infeasibility_proof::refusal> listed_;
  std::vector<task_placement> placements_;
};

APIARY_NAMESPACE_END
