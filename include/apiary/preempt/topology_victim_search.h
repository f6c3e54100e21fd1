// apiary/preempt/topology_victim_search.h - the victims of least cost, under topology constraints.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/detail/equal_tasks.h>
#include <apiary/preempt/detail/eviction_cells.h>
#include <apiary/preempt/detail/eviction_states.h>
#include <apiary/preempt/detail/unit_tables.h>
#include <apiary/preempt/victim_search.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Searches the set of running gangs of least total cost whose eviction lets a new gang fit under
// its topology constraints: one rack, slices, anti-affinity, leaders, CPU and memory. Only victims
// in one cell of the required level count, so each cell is searched alone, in ascending order of
// its lower bound, until a bound reaches the cost of the best set. preempt/README.md has details.
//
// The search changes the capacity index while it runs, and restores it before it returns.
//
// Model:    kube-scheduler, and HiveD (OSDI 2020) section 3.4, take victims greedily, node by node.
// Requires: as victim_search; gang.valid(); allocations name nodes of the capacity index. The level
//           that the gang prefers does not count.
// Invalid:  allocations of more GPUs than a node may have, hosts without `freed` for each
//           allocation, and `freed` without hosts abort (APIARY_VERIFY).
// Cost:     the budget, and what reading 16,384 entries takes. Entries are nodes, candidates and
//           their allocations; a step pays for 48 that are read. If the budget does not pay for
//           reading the input, see can_read(), the search only decides whether the gang fits now.
//           If tasks differ and have other constraints, each set that it tries takes O(nodes * task
//           groups): a step for 32 of them, but at most a 256th of the budget.
// Memory:   about 150 bytes for each entry, also for allocations that no candidate names, and at
//           most 16 bytes for each step.
template <CellTree Tree>
class topology_victim_search : detail::victim_search_steps<detail::eviction_trial<Tree>> {
  using base = detail::victim_search_steps<detail::eviction_trial<Tree>>;

 public:
  // The steps of the budget for each set of victims, besides those of topology_fit.
  using base::set_steps;
  // The cost if there is no set of victims.
  using base::never;

  // budget: steps for one call; a step takes about 10 nanoseconds if all tasks are equal. Otherwise
  // topology_fit may take a quarter of what is left for each set. A set that it does not decide
  // counts as too small, and the search then does not raise the bound.
  explicit topology_victim_search(std::uint64_t budget = 200'000) noexcept : base(budget) {}
  // Changes the budget of the following calls.
  void set_budget(std::uint64_t budget) noexcept { budget_ = budget; }
  // can_read(entries, budget): whether a budget pays for reading so many candidates, allocations of
  // candidates and nodes together: 24 for each step, and 16,384 more. Reading takes half of these
  // steps, the search has the others. If the budget does not pay, a search ends with `budget_ended`
  // and has used all steps, unless the gang fits without victims. If tasks differ and have
  // constraints besides the required level, a third of the budget must pay.
  using base::can_read;

  // Searches the victims; CPU and memory do not count. Gangs beyond a disruption budget are passed
  // over, so it may find no set, or only by branch and bound. If the budget decides what fits, the
  // set costs at most as much as evicting the cheapest gangs first.
  victim_set operator()(capacity_index<Tree>& capacities, const topology_constraints& gang,
                        std::span<const eviction_candidate> candidates,
                        std::span<const gpus_on_node> allocations,
                        const disruption_budgets& budgets = {}) {
    return (*this)(capacities, gang, candidates, allocations, {}, {}, budgets);
  }
  // The same with CPU and memory. hosts: what each node has free; freed: what each allocation gives
  // back. Requires: both, or both empty.
  victim_set operator()(capacity_index<Tree>& capacities, const topology_constraints& gang,
                        std::span<const eviction_candidate> candidates,
                        std::span<const gpus_on_node> allocations, std::span<const resources> hosts,
                        std::span<const resources> freed, const disruption_budgets& budgets = {}) {
    gang_ = gang;
    gang_.preferred = any_level;
    if (!this->count_entries(capacities.num_nodes(), candidates))
      return answer_unread(capacities, hosts);
    this->begin(candidates, allocations, budgets, never);
    this->spend_reading(entries_);
    evictions_.begin(capacities, candidates, allocations, hosts, freed);
    limit_fit(left() / 4);
    if (fits_now() == fit_verdict::fits) return this->answer(fit_verdict::fits);
    cost_ = never;
    if (!cells_.list_groups(gang_, capacities.max_free(), groups_))
      return this->answer(fit_verdict::does_not_fit);
    const level_t level = gang.required == any_level ? capacities.top() : gang.required;
    colocated_.assign(gang_, capacities.node_level(), capacities.top());
    one_group_ = colocated_.size() == 1 && level > capacities.node_level();
    const bool one_large_cell = level == capacities.top() && candidates.size() > max_small_cell;
    if (one_group_ && (one_large_cell || has_other_constraints()))
      return this->answer(search_one_group(level));
    if (has_other_constraints()) {
      if (!can_read(entries_, budget_ / times_by_constraints)) {
        steps_ = budget_;
        return this->answer(fit_verdict::budget_ended);
      }
      this->spend_reading(entries_ * (times_by_constraints - 1));
    }
    cells_.begin(capacities, level, candidates, allocations, groups_, left());
    this->spend(cells_.take_steps());
    if (has_other_constraints()) return this->answer(search_by_constraints());
    const fit_verdict verdict = search_by_gpus();
    const std::uint64_t bound = bound_;
    if (!one_group_ || bound == cost_ || this->in_debt()) return this->answer(verdict);
    this->spend_reading(entries_);
    const fit_verdict of_group = search_one_group(level);
    bound_ = (std::max)(bound_, bound);
    if (cost_ != never) return this->answer(fit_verdict::fits);
    return this->answer(of_group == fit_verdict::does_not_fit ? of_group : verdict);
  }

 private:
  using cell_bound = detail::bounded_cells::cell;
  using base::allocations_, base::bound_, base::budget_, base::candidates_, base::cost_,
      base::cheapest_, base::entries_, base::left, base::order_, base::set_, base::steps_,
      base::tally_, base::victims_, base::evictions_;

  // The input is too much for the budget: whether the gang fits without victims.
  victim_set answer_unread(const capacity_index<Tree>& capacities,
                           std::span<const resources> hosts) {
    this->begin({}, {}, {}, never);
    limit_fit(budget_);
    const auto found = fit_(capacities, gang_, hosts);
    if (found.verdict == fit_verdict::fits) {
      steps_ = found.steps;
      return this->answer(fit_verdict::fits);
    }
    cost_ = never;
    steps_ = budget_;
    return this->answer(fit_verdict::budget_ended);
  }
  [[nodiscard]] bool has_other_constraints() const {
    const auto has = [&](const constrained_task_group& m) {
      return !m.slices.empty() || !m.spread.empty() || m.leader != no_task_group || m.gpus == 0 ||
             (!evictions_.hosts().empty() && !(m.host == resources{}));
    };
    return std::any_of(gang_.groups.begin(), gang_.groups.end(), has);
  }
  void limit_fit(std::uint64_t steps) {
    max_fit_steps_ = steps;
    fit_.set_budget(steps);
  }
  // What a call of topology_fit does besides its own steps counts as so many, fewer than it takes
  // on a large cluster: a budget from 256 on pays for 256 calls, enough for a set of cheap gangs.
  [[nodiscard]] std::uint64_t fit_steps() const noexcept {
    const std::uint64_t looked_at =
        std::uint64_t{evictions_.capacities().num_nodes()} * colocated_.size();
    return (std::max<std::uint64_t>)(1, (std::min)((looked_at + 31) / 32, budget_ / 256));
  }
  [[nodiscard]] bool pay_for_fit() noexcept {
    this->settle();
    if (left() < fit_steps()) return false;
    steps_ += fit_steps();
    return true;
  }
  // With the present evictions. If the gang fits, placed_ has the nodes that it takes.
  fit_verdict fits_now() {
    if (max_fit_steps_ > left()) limit_fit(left() / 4);
    const auto found = fit_(evictions_.capacities(), gang_, evictions_.hosts());
    steps_ += found.steps;
    if (found.verdict != fit_verdict::fits) return found.verdict;
    placed_.clear();
    for (const tasks_on_node& p : found.portions) placed_.push_back(p.node);
    detail::merge_sort(placed_);
    return found.verdict;
  }
  // The same within the budget; if sets_count_, as one set of victims.
  fit_verdict try_set() {
    if ((sets_count_ && !this->pay_for_set()) || !pay_for_fit()) return fit_verdict::budget_ended;
    return fits_now();
  }
  // Without the other constraints, with one step of `parts` of what is left. Raises the cell's
  // bound, to never if it cannot hold the gang.
  victim_set search_cell(cell_bound& at, std::uint64_t parts) {
    cells_.select(at.number);
    this->spend(cells_.take_steps());
    // group_victim_search is better in large cells.
    const bool greedily = one_group_ && cells_.ids().size() > max_small_cell;
    search_.set_budget(left() / parts);
    search_.entries_ =
        cells_.free().size() + cells_.candidates().size() + cells_.allocations().size();
    const victim_set found =
        search_.solve({}, cells_.free(), cells_.candidates(), cells_.allocations(), groups_, cost_,
                      tally_.subset(cells_.ids()), !greedily);
    this->spend(search_.steps_ + search_.unpaid_);
    at.key =
        found.verdict == fit_verdict::does_not_fit ? never : (std::max)(at.key, found.lower_bound);
    return found;
  }
  // The verdict in the end, with the bounds of all cells, searched or not.
  fit_verdict conclude() {
    this->settle();
    const std::uint64_t least = by_bound_.least_bound();
    bound_ = (std::min)(cost_, least);
    if (cost_ != never) return fit_verdict::fits;
    return least == never ? fit_verdict::does_not_fit : fit_verdict::budget_ended;
  }
  fit_verdict search_by_gpus() {
    const auto search = [&](cell_bound& at, std::uint64_t parts) {
      const victim_set found = search_cell(at, parts);
      if (found.verdict != fit_verdict::fits) return;
      set_.clear();
      for (const std::uint32_t i : found.victims) set_.push_back(cells_.ids()[i]);
      this->keep_set(found.cost);
    };
    by_bound_.begin(cells_.bounds(), cost_);
    const bool one_cell = cells_.bounds().size() == 1;
    for (cell_bound at; !this->in_debt() && by_bound_.next(at, cost_);) {
      search(at, one_cell ? 1 : 8);
      by_bound_.searched().push_back(at);
    }
    if (one_group_ || one_cell) return conclude();
    // What is left of the budget is for the cells that may still have a better set.
    std::vector<cell_bound>& searched = by_bound_.searched();
    for (std::size_t i = 0; i < searched.size(); ++i)
      if (searched[i].key < cost_ && left() > 0) search(searched[i], searched.size() - i);
    return conclude();
  }
  fit_verdict search_one_group(level_t level) {
    levels_.assign(evictions_.capacities(), level, colocated_);
    const auto found =
        group_search_(levels_, evictions_.capacities().free(), evictions_.hosts(), candidates_,
                      allocations_, evictions_.freed(), tally_, cost_, left());
    this->spend(found.steps);
    if (found.cost < cost_) {
      set_.assign(found.victims);
      this->keep_set(found.cost);
    }
    bound_ = found.lower_bound;
    if (bound_ == never) return fit_verdict::does_not_fit;
    return cost_ == never ? fit_verdict::budget_ended : fit_verdict::fits;
  }
  fit_verdict search_by_constraints() {
    all_.clear();
    for (std::uint32_t j = 0; j < candidates_.size(); ++j) all_.push_back(j);
    by_bound_.clear();
    sets_count_ = false;
    const reprieve_at_end at_end{evictions_};
    fit_verdict possible = evict_cheapest(all_);
    bool affordable = true;
    if (possible == fit_verdict::budget_ended) {  // with all evicted: here a no is a proof
      limit_fit(left());
      possible = fits_now();
      affordable = possible == fit_verdict::fits && affords_minimal();
    }
    if (possible != fit_verdict::fits) return possible;
    if (affordable && !over_budget_) keep_minimal();
    evictions_.reprieve_all();
    sets_count_ = true;
    by_bound_.begin(cells_.bounds(), cost_);
    for (cell_bound at; left() >= set_steps && by_bound_.next(at, cost_);) {
      search_by_constraints(at);
      evictions_.reprieve_all();
      by_bound_.searched().push_back(at);
    }
    return conclude();
  }
  void search_by_constraints(cell_bound& at) {
    const victim_set first = search_cell(at, 8);
    if (at.key >= cost_) return;
    for (const bool from_first : {true, false}) {
      evictions_.reprieve_all();
      if (!from_first && first.victims.empty()) continue;
      if (from_first)
        for (const std::uint32_t i : first.victims) evictions_.evict(cells_.ids()[i]);
      const fit_verdict verdict = evict_cheapest(cells_.ids());
      if (verdict == fit_verdict::does_not_fit) at.key = never;
      if (over_budget_) continue;
      if (verdict != fit_verdict::fits) return;
      keep_minimal();
    }
    // Branch and bound over the candidates of the cell, which are enough together: it proves the
    // least set of a few, and finds nothing among many.
    if (cells_.ids().size() > max_branched || !this->affords_sets(cells_.ids().size())) return;
    order_.assign(cells_.ids());
    this->sort_most_expensive_first(order_);
    const auto verdict = [&] { return pay_for_fit() ? fits_now() : fit_verdict::budget_ended; };
    if (this->branch(verdict)) at.key = (std::max)(at.key, cost_);
  }
  struct reprieve_at_end {
    detail::eviction_trial<Tree>& evictions;
    ~reprieve_at_end() { evictions.reprieve_all(); }
  };

  // Evicts the cheapest of these candidates until the gang is known to fit, but none beyond the
  // disruption budgets. If it then does not fit, evicts all of them, beyond the budgets too, and
  // returns the verdict; over_budget_ is then true, unless the verdict is does_not_fit. Where sets
  // count, it ends when the budget does not pay for one more: what it evicted then decides nothing.
  fit_verdict evict_cheapest(std::span<const std::uint32_t> among) {
    over_budget_ = false;
    tally_.clear();
    for (const std::uint32_t j : evictions_.tried())
      if (evictions_.evicted(j)) tally_.add_victim(j);
    bool passed_over = false;
    const auto price = [&](std::uint32_t i) {
      return evictions_.evicted(among[i]) ? never : candidates_[among[i]].cost;
    };
    fit_verdict verdict = try_set();
    if (verdict == fit_verdict::fits) return verdict;
    cheapest_.begin(static_cast<std::uint32_t>(among.size()));
    evicted_.clear();
    std::size_t too_few = 0;  // so many are not known to be enough
    while (verdict != fit_verdict::fits) {
      if (sets_count_ && left() < set_steps + fit_steps()) return fit_verdict::budget_ended;
      too_few = evicted_.size();
      const std::size_t more = too_few + (std::max<std::size_t>)(too_few, 1);
      while (evicted_.size() < more) {
        const keyed_number* const top = cheapest_.top(price);
        if (top == nullptr) break;
        const std::uint32_t j = among[top->number];
        cheapest_.pop();
        if (!tally_.try_add_victim(j)) {
          passed_over = true;
          continue;
        }
        evicted_.push_back(j);
        evictions_.evict(j);
      }
      if (evicted_.size() == too_few) return passed_over ? evict_all(among) : verdict;
      verdict = try_set();
    }
    this->evict_fewer(evicted_, too_few, [&] { return try_set() == fit_verdict::fits; });
    return fit_verdict::fits;
  }
  fit_verdict evict_all(std::span<const std::uint32_t> among) {
    for (const std::uint32_t j : among) evictions_.evict(j);
    const fit_verdict verdict = try_set();
    over_budget_ = verdict != fit_verdict::does_not_fit;
    return verdict;
  }
  // Whether the budget pays for a fit for each gang that keep_minimal() would try. Without one,
  // gangs that are not needed would stay in the set.
  [[nodiscard]] bool affords_minimal() const {
    const std::span<const std::uint32_t> tried = evictions_.tried();
    const auto is_tried = [&](std::uint32_t j) { return is_on_placed_node(j); };
    const auto fits = std::count_if(tried.begin(), tried.end(), is_tried);
    return static_cast<std::uint64_t>(fits) <= left() / fit_steps();
  }
  // After a yes: keeps the set without victims that are not needed.
  void keep_minimal() {
    for (const std::uint32_t j : evictions_.tried())
      if (!is_on_placed_node(j)) evictions_.set_evicted(j, false);
    this->reprieve_and_keep([&] { return try_set(); });
  }
  [[nodiscard]] bool is_on_placed_node(std::uint32_t j) const {
    for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a)
      if (std::binary_search(placed_.begin(), placed_.end(), allocations_[a].node)) return true;
    return false;
  }

  static constexpr std::size_t max_small_cell = 32;  // candidates
  static constexpr std::size_t max_branched = 16;    // the same
  static constexpr std::uint64_t times_by_constraints =
      3;  // that a candidate is evicted and reprieved

  std::uint64_t max_fit_steps_ = 0;  // of fit_
  bool one_group_ = false;           // of equal tasks
  bool sets_count_ = false;          // sets count against the budget
  bool over_budget_ = false;         // more candidates are evicted than the budgets allow
  topology_fit<Tree> fit_;
  victim_search search_;  // without the other constraints
  topology_constraints gang_;
  detail::lean_vector<task_group> groups_;  // without constraints, each number of GPUs once
  detail::eviction_cells<Tree> cells_;
  colocated_groups colocated_;
  detail::eviction_levels levels_;
  detail::group_victim_search group_search_;
  detail::bounded_cells by_bound_;
  detail::lean_vector<std::uint32_t> all_;      // the candidates
  detail::lean_vector<std::uint32_t> evicted_;  // by evict_cheapest
  detail::lean_vector<std::uint32_t> placed_;   // nodes, ascending
};

APIARY_NAMESPACE_END
