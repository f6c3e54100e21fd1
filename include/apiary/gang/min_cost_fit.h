// apiary/gang/min_cost_fit.h - the cheapest placement of a gang, by a cost that the caller gives.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/bin_packing.h>
#include <apiary/gang/detail/capacity_count.h>
#include <apiary/gang/detail/cost_tables.h>
#include <apiary/gang/detail/greedy.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Places a gang under its topology constraints where the sum of a cost over the nodes is least:
// for example added fragmentation, split cells or watts. The caller gives the cost and says what
// a node can hold. The search goes from the preferred level up to the required one. It
// takes the first level where a cell can hold the gang, and there the cell of least cost (the first
// one of equal cells). Counts refuse most cells; cost_tables computes the others. If the budget is
// too small for that, the placement is greedy, and need not be the cheapest.
//
// Requires: gang.valid() for the tree. A leader_level does not count: replicas may be split.
// Cost:     O(nodes * groups) and class_vectors, which the budget pays for. For each cell that no
//           count refuses also cost_tables, if the product of (tasks + 1) over the groups is within
//           the budget. The levels below the required one together get half of the budget.
template <CellTree Tree>
class min_cost_fit {
 public:
  using counts = detail::class_vectors::counts;  // tasks of each group

  // What a search found. Spans are valid until the next call; `portions` are as in topology_fit.
  struct result {
    fit_verdict verdict = fit_verdict::does_not_fit;  // whether the gang fits
    level_t level = 0;                                // level of the chosen cell
    std::uint32_t cell = 0;                           // position of the chosen cell in its level
    std::span<const tasks_on_node> portions{};        // which tasks each node takes
    std::int64_t cost = 0;                            // cost of the chosen nodes
    bool is_lowest = true;    // no lower level holds the gang; false if the budget ended there
    bool is_least = true;     // nothing at this level costs less; false if the budget ended
    std::uint64_t steps = 0;  // steps of the search
    // After `does_not_fit`: the cells of the last level that no count refuses, with what they hold.
    std::span<const infeasibility_proof::refusal> listed{};
  };

  // budget: the most steps that one call may take.
  explicit min_cost_fit(std::uint64_t budget = 10'000'000) noexcept : budget_(budget) {}

  // Searches for the cheapest placement.
  // classes: the class of each node, numbered from 0; nodes of a class are equal.
  // cost(class, counts) -> std::optional<std::int64_t>: the cost of this number of tasks of each
  // group (not all 0) on such a node, or nullopt if the node cannot hold them. It is called for
  // counts within the constraints of a node, or below. A node that can hold some counts must be
  // able to hold all smaller ones. The costs of a gang must add up to less than 2^62.
  // weights: the weight of a task of each group, which refuses cells; or nothing.
  template <class Cost>
  result operator()(const Tree& tree, level_t node_level, const topology_constraints& gang,
                    std::span<const std::uint32_t> classes, const Cost& cost,
                    std::span<const std::uint32_t> weights = {}) {
    const fit_verdict verdict = decide(tree, node_level, gang, classes, cost, weights);
    return {verdict, level_, cell_, portions_, cost_, lowest_, least_, steps_, listed_};
  }

  // The most steps that one call may take.
  [[nodiscard]] std::uint64_t budget() const noexcept { return budget_; }
  // The steps of a greedy try, in one order of the groups, in a cell of so many nodes.
  [[nodiscard]] static std::uint64_t greedy_steps(std::uint64_t nodes,
                                                  std::uint64_t groups) noexcept {
    return (7 + detail::class_vectors::price(groups)) * nodes * groups;
  }

  // After a search: the exact capacity of each cell of level l for group u alone. Cost: O(nodes).
  [[nodiscard]] std::vector<std::uint32_t> capacities(std::size_t u, level_t l) const {
    std::vector<std::uint32_t> on_nodes;
    for (const std::uint32_t c : classes_) on_nodes.push_back(vectors_.alone(c, u));
    return detail::capacity_above(*tree_, groups_, u, node_level_, l, std::move(on_nodes));
  }
  // After a search: the largest weight that each cell of level l can hold (infeasibility_proof);
  // empty if the budget ended before, or if the search got no weights and its tables would be too
  // large.
  // Cost: O(nodes) and the vectors of the classes.
  [[nodiscard]] detail::lean_vector<std::uint64_t> max_weights(counts weights, level_t l) const {
    detail::lean_vector<std::uint64_t> most;
    if (!all_asked_) return most;
    detail::lean_vector<std::uint64_t> of_class;
    for (const std::uint32_t c : classes_) {
      while (of_class.size() <= c)
        of_class.push_back(
            vectors_.max_weight(static_cast<std::uint32_t>(of_class.size()), weights));
      most.push_back(of_class[c]);
    }
    return detail::weight_above(*tree_, groups_, weights, node_level_, l, std::move(most));
  }

 private:
  static constexpr std::size_t counts_of_a_step = 4;
  static constexpr std::int64_t never = detail::cost_tables<Tree>::never;

  // What is left of a node, as greedy_by_group needs it. Nodes in use are filled before others.
  template <class Cost>
  struct node_left {
    const Cost* cost = nullptr;
    const detail::class_vectors* vectors = nullptr;
    std::uint32_t node_class = 0;
    std::uint64_t left = 0;  // tasks of all groups, each counted alone
    std::vector<std::uint32_t> tasks{};
    bool in_use = false;

    [[nodiscard]] std::uint32_t capacity(std::uint32_t u) {
      const std::uint32_t before = tasks[u];
      if constexpr (detail::class_vectors::counts_tasks<Cost>)
        return cost->most(node_class, tasks, u, vectors->alone(node_class, u)) - before;
      std::uint32_t capacity = before;
      for (std::uint32_t more = vectors->alone(node_class, u); capacity < more;) {
        tasks[u] = capacity + (more - capacity + 1) / 2;
        if ((*cost)(node_class, tasks)) {
          capacity = tasks[u];
        } else {
          more = tasks[u] - 1;
        }
      }
      tasks[u] = before;
      return capacity - before;
    }
    void put(std::uint32_t u, std::uint32_t n) noexcept {
      tasks[u] += n;
      left -= (std::min<std::uint64_t>)(n, left);
      in_use = true;
    }
    [[nodiscard]] std::uint64_t free() const noexcept {
      return in_use ? left : left + (std::uint64_t{1} << 40);
    }
  };
  template <class Cost>
  fit_verdict decide(const Tree& tree, level_t node_level, const topology_constraints& gang,
                     std::span<const std::uint32_t> classes, const Cost& cost, counts weights) {
    begin(tree, node_level, gang, classes);
    const level_t last = (std::min)(gang.required, tree.num_levels());
    level_ = (std::min)(gang.preferred, last);
    if (groups_.size() == 0) return fit_verdict::fits;
    std::uint32_t num_classes = 0;
    for (const std::uint32_t c : classes) num_classes = (std::max)(num_classes, c + 1);
    detail::step_budget all(budget_);
    const bool known = vectors_.ask_alone(groups_, node_level, num_classes, cost, all);
    steps_ = all.steps();
    if (!known) return fit_verdict::budget_ended;
    fit_verdict verdict = fit_verdict::does_not_fit;
    for (level_t l = level_; l <= last; ++l) {
      level_ = l;
      const std::uint64_t limit = l == last ? budget_ : (std::max)(steps_, budget_ / 2);
      verdict = try_level(l, l == last, limit, cost, weights);
      if (verdict == fit_verdict::fits) {
        groups_.name_task_groups(gang, portions_, scratch_);
        return verdict;
      }
      lowest_ = lowest_ && verdict != fit_verdict::budget_ended;
    }
    return verdict;
  }
  void begin(const Tree& tree, level_t node_level, const topology_constraints& gang,
             std::span<const std::uint32_t> classes) {
    tree_ = &tree;
    node_level_ = node_level;
    classes_ = classes;
    APIARY_ASSERT(classes.size() == detail::num_positions(tree, node_level));
    groups_.assign(gang, node_level, tree.num_levels());
    portions_.clear();
    listed_.clear();
    steps_ = 0;
    all_asked_ = false;
    tables_ready_ = false;
    lowest_ = true;
    least_ = true;
    cell_ = 0;
    cost_ = 0;
  }
  template <class Cost>
  fit_verdict try_level(level_t l, bool last, std::uint64_t limit, const Cost& cost,
                        counts weights) {
    detail::step_budget steps(limit - steps_);
    if (!steps.pay(std::uint64_t{groups_.size()} * classes_.size() / counts_of_a_step)) {
      steps_ = limit;
      least_ = false;
      return fit_verdict::budget_ended;
    }
    steps_ += steps.steps();
    find_cells(l);
    if (cells_.empty()) return fit_verdict::does_not_fit;
    // Steps for greedy_by_group: enough for two orders on every node.
    const std::uint64_t for_greedy =
        (std::min)((limit - steps_) / 4, std::uint64_t{16} * groups_.size() * classes_.size());
    steps = detail::step_budget(limit - for_greedy - steps_);
    if (!all_asked_ && (!weights.empty() || has_tables(steps.left())))
      all_asked_ = vectors_.ask_all(cost, steps);
    if (all_asked_ && !weights.empty()) refuse_by(weights, l);
    if (all_asked_ && !tables_ready_)
      tables_ready_ = tables_.begin(*tree_, node_level_, groups_, classes_, vectors_, steps);
    const fit_verdict verdict = cells_.empty() ? fit_verdict::does_not_fit : search(l, last, steps);
    steps_ += steps.steps();
    if (verdict != fit_verdict::budget_ended) return verdict;
    least_ = false;
    detail::step_budget rest(limit - steps_);
    const bool found = place_greedily(l, cost, rest);
    steps_ += rest.steps();
    return found ? fit_verdict::fits : fit_verdict::budget_ended;
  }
  // The cells that can hold each group alone.
  void find_cells(level_t l) {
    detail::lean_vector<unsigned char> possible(detail::num_positions(*tree_, l), 1);
    for (std::size_t u = 0; u < groups_.size(); ++u) {
      const std::vector<std::uint32_t> capacity = capacities(u, l);
      for (std::size_t c = 0; c < capacity.size(); ++c)
        if (capacity[c] < groups_[u].tasks) possible[c] = 0;
    }
    cells_.clear();
    for (std::uint32_t c = 0; c < possible.size(); ++c)
      if (possible[c] != 0) cells_.push_back(c);
  }
  // Whether the tables are small enough for so many steps; otherwise the vectors are of no use.
  [[nodiscard]] bool has_tables(std::uint64_t most) const {
    std::uint64_t size = 1;
    for (std::size_t u = 0; u < groups_.size() && size <= most; ++u)
      size *= std::uint64_t{groups_[u].tasks} + 1;
    return size <= most;
  }
  void refuse_by(counts weights, level_t l) {
    std::uint64_t needed = 0;
    for (std::size_t u = 0; u < groups_.size(); ++u)
      needed += std::uint64_t{weights[u]} * groups_[u].tasks;
    const detail::lean_vector<std::uint64_t> most = max_weights(weights, l);
    std::erase_if(cells_, [&](std::uint32_t c) { return most[c] < needed; });
  }
  fit_verdict search(level_t l, bool last, detail::step_budget& steps) {
    listed_.clear();
    if (!tables_ready_) return fit_verdict::budget_ended;
    bool found = false;
    for (const std::uint32_t c : cells_) {
      const std::optional<std::int64_t> least = tables_.make(l, c, steps);
      if (!least) break;
      if (*least == never) {
        if (last && !found)
          listed_.push_back({c, infeasibility_proof::listed, 0, tables_.greatest().values()});
        continue;
      }
      if (found && *least >= cost_) continue;
      found = true;
      cost_ = *least;
      cell_ = c;
      portions_.clear();
      tables_.place(portions_);
    }
    least_ = found && !steps.ended();
    if (found) return fit_verdict::fits;
    return steps.ended() ? fit_verdict::budget_ended : fit_verdict::does_not_fit;
  }
  // The cheaper of two orders in the first cell that takes all groups. The steps that are left
  // may be too few for a cell, but enough for a smaller one.
  template <class Cost>
  bool place_greedily(level_t l, const Cost& cost, detail::step_budget& steps) {
    using node = node_left<Cost>;
    detail::greedy_by_group<Tree, node> greedy(*tree_, node_level_, groups_);
    const std::vector<std::vector<std::uint32_t>> orders = detail::orders_of_groups(groups_);
    std::vector<node> nodes;
    detail::lean_vector<tasks_on_node> placed;
    for (const std::uint32_t c : cells_) {
      bool found = false;
      for (const std::vector<std::uint32_t>& order : orders) {
        const id_range<cell_id> inside = detail::positions_inside(*tree_, l, c, node_level_);
        if (!steps.try_pay(greedy_steps(inside.size(), groups_.size()))) break;
        nodes.clear();
        for (const cell_id i : inside) {
          node& at = nodes.emplace_back();
          at = {&cost, &vectors_, classes_[i.value], 0, {}, false};
          at.tasks.resize(groups_.size());
          for (std::size_t u = 0; u < groups_.size(); ++u)
            at.left += vectors_.alone(at.node_class, u);
        }
        placed.clear();
        if (!greedy(l, c, order, gang_objective::whole_cells, nodes, placed)) continue;
        std::int64_t sum = 0;
        for (const node& at : nodes)
          if (at.in_use) sum += cost(at.node_class, counts(at.tasks)).value();
        if (found && sum >= cost_) continue;
        found = true;
        cell_ = c;
        cost_ = sum;
        portions_ = placed;
      }
      if (found) return true;
    }
    return false;
  }

  std::uint64_t budget_;
  const Tree* tree_ = nullptr;
  level_t node_level_ = 0;
  std::span<const std::uint32_t> classes_;
  colocated_groups groups_;
  detail::class_vectors vectors_;
  bool all_asked_ = false;  // class_vectors::ask_all is done
  detail::cost_tables<Tree> tables_;
  bool tables_ready_ = false;
  std::uint64_t steps_ = 0;
  bool lowest_ = true;
  bool least_ = true;
  level_t level_ = 0;
  std::uint32_t cell_ = 0;
  std::int64_t cost_ = 0;
  detail::lean_vector<tasks_on_node> portions_;
  detail::lean_vector<tasks_on_node> scratch_;
  std::vector<std::uint32_t> cells_;  // of a level, that no count refuses
  std::vector<infeasibility_proof::refusal> listed_;
};

APIARY_NAMESPACE_END
