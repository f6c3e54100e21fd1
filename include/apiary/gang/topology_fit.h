// apiary/gang/topology_fit.h - exact placement of a gang under topology constraints.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/candidate_cells.h>
#include <apiary/gang/detail/capacity_count.h>
#include <apiary/gang/detail/greedy.h>
#include <apiary/gang/detail/pareto_search.h>
#include <apiary/gang/detail/refusals.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Places a gang under its topology constraints on nodes with whole free GPUs, or proves that it
// does not fit; the module's page says how. The answer is exact unless the step budget ends. The
// search goes from the preferred level up to the required one and takes the first level that has a
// cell for the gang. The objective chooses the cell, and the nodes if groups are placed greedily.
//
// A step is a comparison of two vectors, eight looks at a node for one group while groups are
// placed greedily (some 100 nanoseconds), a cell of 16 groups at which gang_fit looks, or a step of
// gang_fit. The cells divide the budget; all levels
// below the required one get half.
//
// Requires: gang.valid() for the tree; `hosts` holds the free CPU and memory of each node, or is
//           empty if they do not count.
// Cost:     without constraints O(cells of the level * sizes) and gang_fit in the cell. One group
//           under constraints: O(cells of the lowest constrained level); with CPU or memory
//           O(nodes). Other groups count against the budget. Each cell that is tried adds
//           O(log cells). Memory: O(nodes + groups), and at most 64 bytes a step.
// Example:  on the page of the module
template <CellTree Tree>
class topology_fit {
 public:
  // What a search found. Spans are valid until the next call. `portions` are ordered by task group,
  // then node. Tasks of a group, and of the groups that it leads, are numbered in the order of the
  // nodes, so slices are consecutive tasks.
  struct result {
    fit_verdict verdict = fit_verdict::does_not_fit;  // whether the gang fits
    level_t level = 0;                                // level of the chosen cell
    std::uint32_t cell = 0;                           // position of the chosen cell in its level
    std::span<const tasks_on_node> portions{};        // which tasks each node takes
    bool is_lowest = true;    // no lower level holds the gang; false if the budget ended there
    bool is_refused = false;  // the gang fits nowhere, even if the budget ended before the proof
    std::uint64_t steps = 0;  // steps of the budget that were used
  };

  // budget: the most steps that one call may take.
  explicit topology_fit(std::uint64_t budget = 1'000'000,
                        gang_objective objective = gang_objective::whole_cells) noexcept
      : budget_(budget), objective_(objective) {}
  // Changes the budget of the following calls.
  void set_budget(std::uint64_t budget) noexcept { budget_ = budget; }

  // Searches for a placement.
  result operator()(const capacity_index<Tree>& capacities, const topology_constraints& gang,
                    std::span<const resources> hosts = {}) {
    const fit_verdict verdict = decide(capacities, gang, hosts);
    return {verdict, level_, cell_, portions_, lowest_, refused_, steps_};
  }

  // After `does_not_fit`: the proof for users, for the same arguments.
  // Cost: O(nodes * groups * GPUs of a node).
  [[nodiscard]] infeasibility_proof explain(const capacity_index<Tree>& capacities,
                                            const topology_constraints& gang,
                                            std::span<const resources> hosts = {}) {
    const level_t l = gang.required == any_level ? capacities.top() : gang.required;
    return detail::explain_refusal(capacities, groups_, hosts, l, weighings_, listed_);
  }

 private:
  // A cell that is not decided yet.
  struct open_cell {
    std::uint32_t cell = 0;
    bool refused = false;  // the gang does not fit, but the proof is missing
  };
  static constexpr std::uint64_t few_steps = 1'000;
  static constexpr std::size_t groups_of_a_step = 16;  // that gang_fit reads in a cell
  static constexpr std::size_t few_weighings = 16;     // that are tried on a cell
  // At nodes, each for one group, while groups are placed greedily.
  static constexpr std::uint64_t looks_of_a_step = 8;
  // Nodes that find_node() looks at without steps, if there are fewer than eight groups.
  static constexpr std::uint32_t free_looks = 1'024;

  fit_verdict decide(const capacity_index<Tree>& capacities, const topology_constraints& gang,
                     std::span<const resources> hosts) {
    begin(capacities, gang, hosts);
    const level_t last = gang.required == any_level ? capacities.top() : gang.required;
    fit_verdict verdict = fit_verdict::does_not_fit;
    for (level_t l = (std::min)(gang.preferred, last); l <= last; ++l) {
      level_ = l;
      last_ = l == last;
      limit_ = last_ ? budget_ : budget_ / 2;
      verdict = groups_.size() == 0 ? fit_verdict::fits : try_level(l);
      if (verdict == fit_verdict::fits) {
        groups_.name_task_groups(gang, portions_, by_group_);
        return verdict;
      }
      lowest_ = lowest_ && verdict != fit_verdict::budget_ended;
    }
    refused_ = std::none_of(open_.begin(), open_.end(), [](auto& c) { return !c.refused; });
    return verdict;
  }

  void begin(const capacity_index<Tree>& capacities, const topology_constraints& gang,
             std::span<const resources> hosts) {
    APIARY_ASSERT(hosts.empty() || hosts.size() == capacities.num_nodes());
    capacities_ = &capacities;
    hosts_ = hosts;
    groups_.assign(gang, capacities.node_level(), capacities.top());
    sizes_.assign(groups_, !hosts.empty());
    weighings_.begin(capacities, groups_);
    orders_.clear();
    portions_.clear();
    listed_.clear();
    open_.clear();
    fronts_ready_ = false;
    lowest_ = true;
    refused_ = false;
    steps_ = 0;
    cell_ = 0;
  }
  // Two passes over the cells, the second one over those that the first has not decided.
  fit_verdict try_level(level_t l) {
    open_.clear();
    if (l == capacities_->node_level()) {
      if (find_node()) return fit_verdict::fits;
    } else {
      if (!sizes_.constrained && sizes_.largest > capacities_->max_free())
        return fit_verdict::does_not_fit;
      detail::step_budget counts(left(limit_) / 4);
      cells_.assign(*capacities_, groups_, sizes_, hosts_, l, objective_, counts);
      pay(counts.steps());
      const std::uint64_t end = steps_ + left(limit_) / 4;
      while (!cells_.empty()) {
        open_cell at{cells_.next()};
        const fit_verdict verdict = try_quickly(l, at, end);
        if (verdict == fit_verdict::fits) return verdict;
        if (verdict == fit_verdict::budget_ended) open_.push_back(at);
      }
    }
    if (l > capacities_->node_level()) weigh_open_cells(l);
    if (search_open_cells(l)) return fit_verdict::fits;
    return open_.empty() ? fit_verdict::does_not_fit : fit_verdict::budget_ended;
  }
  // Tries each open cell with an equal fraction of the remaining steps, at least an eighth. Returns
  // whether the gang fits one.
  bool search_open_cells(level_t l) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      open_cell at = open_[i];
      if (left(limit_) == 0) {
        open_[kept++] = at;
        continue;
      }
      cell_ = at.cell;
      const std::size_t cells_left = (std::min<std::size_t>)(open_.size() - i, 8);
      const fit_verdict verdict = try_long(l, at, steps_ + left(limit_) / cells_left);
      if (verdict == fit_verdict::fits) return true;
      if (verdict == fit_verdict::budget_ended) open_[kept++] = at;
    }
    open_.resize(kept);
    return false;
  }
  fit_verdict try_long(level_t l, open_cell& at, std::uint64_t end) {
    if (!at.refused && !sizes_.constrained) {
      const fit_verdict verdict = pack(l, at, left(end) / 2);
      if (verdict != fit_verdict::budget_ended) return verdict;
    }
    return search(l, at.cell, end);
  }
  // Takes the fullest node that holds all tasks. Nodes that a proof must list stay open.
  bool find_node() {
    const level_t l = capacities_->node_level();
    bool allowed = true;
    for (std::size_t u = 0; u < groups_.size(); ++u)
      allowed = allowed && groups_.bound(u, l, groups_[u].tasks) == groups_[u].tasks;
    cell_ = summary_bitset::npos;
    for (std::uint64_t f = sizes_.gpus; f <= capacities_->max_free() && allowed; ++f) {
      const auto free = static_cast<std::uint32_t>(f);
      cell_ = capacities_->first_node(free, 0);
      while (cell_ != summary_bitset::npos && !sizes_.fit_host(hosts_, cell_))
        cell_ = capacities_->first_node(free, cell_ + 1);
      if (cell_ == summary_bitset::npos) continue;
      for (std::uint32_t u = 0; u < groups_.size(); ++u)
        portions_.push_back({cell_, u, groups_[u].tasks});
      return true;
    }
    for (std::uint32_t n = 0;
         n < capacities_->num_nodes() && allowed && last_ && sizes_.constrained; ++n) {
      if (n % 16 == 0) pay(groups_.size() / 8);
      if (n % 64 == 0 && n >= free_looks) pay((std::min<std::size_t>)(groups_.size(), 8));
      if (each_fits_alone(n)) open_.push_back({n, true});
      if (left(limit_) == 0 && (groups_.size() >= 8 || n >= free_looks)) {
        open_.push_back({n, true});  // the others are not known
        break;
      }
    }
    return false;
  }
  [[nodiscard]] bool each_fits_alone(std::uint32_t n) const {
    const detail::node_capacity_left node = left_of(n);
    for (std::uint32_t u = 0; u < groups_.size(); ++u)
      if (node.capacity(u) < groups_[u].tasks) return false;
    return true;
  }
  [[nodiscard]] detail::node_capacity_left left_of(std::uint32_t n) const {
    return {groups_, capacities_->free(n), hosts_, n};
  }
  fit_verdict try_quickly(level_t l, open_cell& at, std::uint64_t end) {
    cell_ = at.cell;
    if (!sizes_.constrained) return pack(l, at, (std::min)(left(end), few_steps));
    if (groups_.size() > 1) return place_greedily(l, end);
    cells_.count().place(0, l, cell_, groups_[0].tasks, objective_, portions_);
    return fit_verdict::fits;
  }
  // Node after node, then group after group.
  fit_verdict place_greedily(level_t l, std::uint64_t end) {
    if (1 + groups_.size() / looks_of_a_step > left(end)) return fit_verdict::budget_ended;
    if (orders_.empty()) orders_ = detail::orders_of_groups(groups_);
    if (orders_.empty()) return fit_verdict::budget_ended;
    if (fill_nodes(l, left(end) / 2)) return fit_verdict::fits;
    const id_range<cell_id> nodes = capacities_->nodes(l, cell_);
    const std::uint64_t looks = std::uint64_t{nodes.size()} * groups_.size();
    const std::uint64_t price = 1 + looks / looks_of_a_step;
    detail::greedy_by_group<Tree, detail::node_capacity_left> greedy(
        capacities_->tree(), capacities_->node_level(), groups_);
    for (std::size_t i = 0; i < orders_.size() && price <= left(end); ++i) {
      steps_ += price;
      nodes_.clear();
      for (const cell_id n : nodes) nodes_.push_back(left_of(n.value));
      portions_.clear();
      if (greedy(l, cell_, orders_[i], objective_, nodes_, portions_)) return fit_verdict::fits;
    }
    portions_.clear();
    return fit_verdict::budget_ended;
  }
  // Places the groups in cell_, one node after another.
  bool fill_nodes(level_t l, std::uint64_t budget) {
    detail::step_budget looks(looks_of_a_step * budget);
    portions_.clear();
    const bool fits = fill_nodes_(*capacities_, groups_, hosts_, orders_.front(), objective_, l,
                                  cell_, looks, portions_);
    pay(1 + looks.steps() / looks_of_a_step);
    return fits;
  }
  // Without constraints. At the last level, a refusal without a count of slots still needs a proof.
  fit_verdict pack(level_t l, open_cell& at, std::uint64_t budget) {
    const std::uint64_t price = 1 + groups_.size() / groups_of_a_step;  // one of many cells
    if (budget < price) return fit_verdict::budget_ended;
    steps_ += price;
    classes_.clear();
    const std::span<const std::uint32_t> nodes = capacities_->histogram(l, at.cell);
    for (std::uint32_t f = 1; f < nodes.size(); ++f)
      if (nodes[f] > 0) classes_.push_back({f, nodes[f]});
    if (objective_ == gang_objective::fewest_nodes) std::reverse(classes_.begin(), classes_.end());
    fit_.set_budget(budget - price);
    const gang_fit::result packed = fit_(classes_, sizes_.sizes);
    steps_ += packed.steps;
    at.refused = packed.verdict == fit_verdict::does_not_fit;
    if (!packed.weights.empty()) {
      weighings_.add(packed.weights);
      remove_refused_cells(l);
    } else if (at.refused && last_ && !packed.shortage && !weigh(l, at.cell)) {
      return fit_verdict::budget_ended;
    }
    if (packed.verdict != fit_verdict::fits) return packed.verdict;
    next_.assign(nodes.size(), capacities_->nodes(l, at.cell).first.value);
    for (const gang_fit::used_node& used : packed.nodes) {
      std::uint32_t& next = next_[classes_[used.node_class].free];
      const std::uint32_t node = capacities_->first_node(classes_[used.node_class].free, next);
      next = node + 1;
      for (std::uint32_t p = used.first; p < used.last; ++p)
        portions_.push_back({node, packed.portions[p].group, packed.portions[p].tasks});
    }
    return packed.verdict;
  }
  // Searches for weights that refuse the cell. They remove all other cells that they refuse, too.
  bool weigh(level_t l, std::uint32_t c) {
    detail::step_budget steps(left(limit_) / 8);
    const bool found = weighings_.find(l, c, steps);
    pay(steps.steps());
    if (found) remove_refused_cells(l);
    return found;
  }
  void remove_refused_cells(level_t l) {
    const std::size_t last = weighings_.all().size() - 1;
    pay(cells_.size());
    cells_.remove_if([&](std::uint32_t c) { return weighings_.refuse(l, c, last); });
  }
  // Removes the open cells that weights refuse. Without constraints pack() has sought weights.
  void weigh_open_cells(level_t l) {
    const auto is_refused = [&](const open_cell& at) {
      if (left(limit_) == 0 && weighings_.all().size() > few_weighings) return false;
      pay(1 + weighings_.all().size() / few_weighings);
      return weighings_.refuse(l, at.cell) || (sizes_.constrained && weigh(l, at.cell));
    };
    std::size_t kept = 0;
    for (const open_cell& at : open_)
      if (!is_refused(at)) open_[kept++] = at;
    open_.resize(kept);
  }
  [[nodiscard]] std::uint64_t left(std::uint64_t end) const noexcept {
    return end > steps_ ? end - steps_ : 0;
  }
  void pay(std::uint64_t steps) noexcept { steps_ += (std::min)(steps, left(limit_)); }
  fit_verdict search(level_t l, std::uint32_t c, std::uint64_t end) {
    if (!fronts_ready_) fronts_.begin(*capacities_, groups_, hosts_);
    fronts_ready_ = true;
    const bool made = fronts_.make(l, c, left(end));
    steps_ += fronts_.steps();
    if (!made) return fit_verdict::budget_ended;
    if (fronts_.holds_gang()) {
      fronts_.place(portions_);
      return fit_verdict::fits;
    }
    if (last_) listed_.push_back({c, infeasibility_proof::listed, 0, fronts_.front().values()});
    return fit_verdict::does_not_fit;
  }

  std::uint64_t budget_;
  gang_objective objective_;
  gang_fit fit_;
  const capacity_index<Tree>* capacities_ = nullptr;
  std::span<const resources> hosts_;
  colocated_groups groups_;
  detail::group_sizes sizes_;
  detail::candidate_cells<Tree> cells_;
  detail::cell_weighings<Tree> weighings_;  // that refused cells
  detail::lean_vector<open_cell> open_;
  std::vector<std::vector<std::uint32_t>> orders_;         // of groups
  detail::lean_vector<detail::node_capacity_left> nodes_;  // of a cell
  detail::fill_nodes<Tree> fill_nodes_;
  detail::lean_vector<gang_fit::node_class> classes_;
  std::vector<std::uint32_t> next_;  // of each number of free GPUs, where to look for a node
  detail::pareto_search<Tree> fronts_;
  bool fronts_ready_ = false;
  std::vector<infeasibility_proof::refusal> listed_;  // cells of the last level, refused by a list
  level_t level_ = 0;
  bool last_ = false;        // the level is the required one
  std::uint64_t limit_ = 0;  // steps until the end of the level
  bool lowest_ = true;
  bool refused_ = false;
  std::uint32_t cell_ = 0;
  detail::lean_vector<tasks_on_node> portions_;
  detail::lean_vector<tasks_on_node> by_group_;  // by co-located group
  std::uint64_t steps_ = 0;
};

APIARY_NAMESPACE_END
