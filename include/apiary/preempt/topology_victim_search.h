// apiary/preempt/topology_victim_search.h - the victims of least cost that make room for a gang under rules.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/detail/bounded_cells.h>
#include <apiary/preempt/detail/branch_and_bound.h>
#include <apiary/preempt/detail/eviction_cells.h>
#include <apiary/preempt/detail/eviction_trial.h>
#include <apiary/preempt/detail/incremental_sort.h>
#include <apiary/preempt/disruption_budget.h>
#include <apiary/preempt/eviction_candidate.h>
#include <apiary/preempt/victim_search.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Searches the set of running gangs of least total cost whose eviction lets a gang fit under its
// rules. Which level the gang prefers does not count.
//
// A gang fits one cell of the level it requires, and there only what is evicted from that cell
// counts. So each cell is a search of its own, in ascending order of the bounds of eviction_cells,
// until a bound reaches the cost of the best set so far.
//
// * With no other rules victim_search looks for the set.
// * Otherwise it gives a bound, which holds with the other rules, too. What fits topology_fit says:
//   with the cheapest gangs of all evicted; then, in each cell, with the victims without rules and
//   the cheapest, and with the cheapest alone; each time those that turn out not to be needed are
//   spared, the dearest first. Then branch and bound (preempt/detail/branch_and_bound.h).
//
// So the set costs no more than taking the cheapest first does, if the budget decides what fits
// then. What goes beyond a tenant's limit is passed over there, and it may be that only branch and
// bound finds a set, or that none is found. One budget is for all of it: steps as of topology_fit; a
// set tried in a cell counts as set_steps besides, and topology_fit may take a quarter of what is left.
// A set that this does not decide counts as one that does not fit, but the lower bound does not
// follow from that.
//
// Who must not be evicted is no candidate, and tenants have limits, as for victim_search. All is
// tried on the rooms themselves and taken back.
//
// Requires: as victim_search; valid(gang); shares name nodes of the rooms.
// Invalid:  as eviction_cells and eviction_trial.
// Cost:     O(candidates + shares + cells + nodes); in each cell searched as victim_search; and the
//           budget. Under other rules also topology_fit without steps, 2 log2(candidates) times and
//           once for each victim on the nodes that it then chose.
template <CellTree Tree>
class topology_victim_search {
 public:
  static constexpr std::uint64_t set_steps = victim_search::set_steps;

  explicit topology_victim_search(std::uint64_t budget = 1'000'000) noexcept : budget_(budget) {}

  // does_not_fit: not even with all candidates evicted, or with none of the sets within the limits;
  // budget_ended: not known, or none was found. CPU and memory do not count.
  fit_verdict operator()(capacity_index<Tree>& capacities, const topology_constraints& gang,
                         std::span<const eviction_candidate> candidates,
                         std::span<const gpus_on_node> shares,
                         const disruption_budgets& limits = {}) {
    return (*this)(capacities, gang, candidates, shares, {}, {}, limits);
  }
  // The same where CPU and memory count: hosts are what is left of each node, and freed is what
  // each share gives back, so that a no is one for them, too.
  // Requires: hosts for each node and freed for each share, or neither.
  fit_verdict operator()(capacity_index<Tree>& capacities, const topology_constraints& gang,
                         std::span<const eviction_candidate> candidates,
                         std::span<const gpus_on_node> shares, std::span<const resources> hosts,
                         std::span<const resources> freed, const disruption_budgets& limits = {}) {
    gang_ = gang;
    gang_.preferred = any_level;
    candidates_ = candidates;
    shares_ = shares;
    trial_.begin(capacities, candidates, shares, hosts, freed);
    tally_.begin(limits, candidates, shares);
    victims_.clear();
    cost_ = 0;
    bound_ = 0;
    steps_ = 0;
    share_out(left() / 4);
    if (fits_now() == fit_verdict::fits) return fit_verdict::fits;
    cost_ = never;
    members_.clear();
    for (const constrained_task_group& m : gang.members) {
      if (m.gpus == 0 || m.tasks == 0) continue;
      if (m.gpus > capacities.max_free()) return fit_verdict::does_not_fit;
      members_.push_back({.tasks = m.tasks, .gpus = m.gpus});
    }
    const level_t level = gang.required == any_level ? capacities.top() : gang.required;
    cells_.begin(capacities, level, candidates, shares, members_);
    return has_other_constraints() ? search_by_constraints() : search_by_leaves();
  }

  // After `fits`: as victim_search.
  [[nodiscard]] std::span<const std::uint32_t> victims() const noexcept { return victims_; }
  [[nodiscard]] std::uint64_t cost() const noexcept { return cost_; }
  [[nodiscard]] std::uint64_t lower_bound() const noexcept { return bound_; }
  // Of the budget.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

 private:
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();
  using cell_bound = detail::bounded_cells::cell;

  [[nodiscard]] bool has_other_constraints() const {
    const auto rules = [&](const constrained_task_group& m) {
      return !m.slices.empty() || !m.spread.empty() || m.leader != no_task_group || m.gpus == 0 ||
             (!trial_.hosts().empty() && !(m.host == resources{}));
    };
    return std::any_of(gang_.members.begin(), gang_.members.end(), rules);
  }
  [[nodiscard]] std::uint64_t left() const noexcept { return budget_ - steps_; }
  void share_out(std::uint64_t steps) {
    most_a_fit_ = steps;
    fit_ = topology_fit<Tree>(most_a_fit_);
  }
  // With those evicted that are now; after a yes placed_ are the nodes that the gang takes.
  fit_verdict fits_now() {
    if (most_a_fit_ > left()) share_out(left() / 4);
    const fit_verdict verdict = fit_(trial_.capacities(), gang_, trial_.hosts());
    steps_ += fit_.steps();
    if (verdict != fit_verdict::fits) return verdict;
    placed_.clear();
    for (const gang_portion& p : fit_.portions()) placed_.push_back(p.node);
    std::sort(placed_.begin(), placed_.end());
    return verdict;
  }
  // The same as one set tried.
  fit_verdict try_set() {
    if (!pay_) return fits_now();
    if (left() < set_steps) return fit_verdict::budget_ended;
    steps_ += set_steps;
    return fits_now();
  }

  // Keeps set_ if it is the best so far.
  void keep(std::uint64_t cost) {
    if (cost >= cost_) return;
    cost_ = cost;
    victims_ = set_;
    std::sort(victims_.begin(), victims_.end());
  }
  // Without the other rules: victims, and a better bound of the cell; never if it cannot hold the
  // gang.
  fit_verdict search_cell(cell_bound& at, std::uint64_t budget) {
    cells_.select(at.number);
    search_.set_budget(budget);
    const fit_verdict verdict = search_({}, cells_.free(), cells_.candidates(), cells_.shares(),
                                        members_, cost_, tally_.of(cells_.here()));
    steps_ += search_.steps();
    at.bound =
        verdict == fit_verdict::does_not_fit ? never : std::max(at.bound, search_.lower_bound());
    return verdict;
  }
  // What is certain in the end, with the cells that were searched and those that were not.
  fit_verdict conclude() {
    const std::uint64_t least = order_.least();
    bound_ = std::min(cost_, least);
    if (cost_ != never) return fit_verdict::fits;
    return least == never ? fit_verdict::does_not_fit : fit_verdict::budget_ended;
  }

  fit_verdict search_by_leaves() {
    const auto search = [&](cell_bound& at, std::uint64_t budget) {
      if (search_cell(at, budget) != fit_verdict::fits) return;
      set_.clear();
      for (const std::uint32_t i : search_.victims()) set_.push_back(cells_.here()[i]);
      keep(search_.cost());
    };
    order_.begin(cells_.bounds(), cost_);
    for (cell_bound at; order_.next(at, cost_);) {
      search(at, left() / 8);
      order_.searched().push_back(at);
    }
    // What is left of the budget is for the cells that are not settled.
    std::vector<cell_bound>& searched = order_.searched();
    for (std::size_t i = 0; i < searched.size(); ++i)
      if (searched[i].bound < cost_) search(searched[i], left() / (searched.size() - i));
    return conclude();
  }

  fit_verdict search_by_constraints() {
    everybody_.clear();
    for (std::uint32_t j = 0; j < candidates_.size(); ++j) everybody_.push_back(j);
    order_.clear();
    pay_ = false;
    const spare_all_at_last at_last{trial_};
    fit_verdict possible = take_cheapest(everybody_);
    if (possible == fit_verdict::budget_ended) {  // with all evicted: here a no matters
      share_out(left());
      possible = fits_now();
    }
    if (possible != fit_verdict::fits) return possible;
    if (!too_many_) settle();
    trial_.spare_all();
    pay_ = true;
    order_.begin(cells_.bounds(), cost_);
    for (cell_bound at; left() >= set_steps && order_.next(at, cost_);) {
      search_by_constraints(at);
      trial_.spare_all();
      order_.searched().push_back(at);
    }
    return conclude();
  }
  void search_by_constraints(cell_bound& at) {
    static_cast<void>(search_cell(at, left() / 8));
    if (at.bound >= cost_) return;
    for (const bool seeded : {true, false}) {
      trial_.spare_all();
      const std::span<const std::uint32_t> seed = search_.victims();
      if (!seeded && seed.empty()) continue;
      if (seeded)
        for (const std::uint32_t i : seed) trial_.evict(cells_.here()[i]);
      const fit_verdict verdict = take_cheapest(cells_.here());
      if (verdict == fit_verdict::does_not_fit) at.bound = never;
      if (too_many_) continue;
      if (verdict != fit_verdict::fits) return;
      settle();
    }
    if (branch()) at.bound = std::max(at.bound, cost_);
  }

  struct spare_all_at_last {
    detail::eviction_trial<Tree>& trial;
    ~spare_all_at_last() { trial.spare_all(); }
  };

  // Evicts those of least cost beside those that are evicted, no more of them than it takes until
  // the gang is known to fit, and none beyond the limits. If that is not so with any of them: what
  // is known with all, the limits left out; too_many_ then, if that is not a no.
  fit_verdict take_cheapest(std::span<const std::uint32_t> among) {
    too_many_ = false;
    tally_.clear();
    for (const std::uint32_t j : trial_.tried())
      if (trial_.evicted(j)) tally_.take(j);
    bool passed_over = false;
    const auto price = [&](std::uint32_t i) {
      return trial_.evicted(among[i]) ? never : candidates_[among[i]].cost;
    };
    fit_verdict verdict = try_set();
    if (verdict == fit_verdict::fits) return verdict;
    cheapest_.begin(static_cast<std::uint32_t>(among.size()));
    taken_.clear();
    std::size_t few = 0;  // not known to be enough
    while (verdict != fit_verdict::fits) {
      few = taken_.size();
      const std::size_t more = few + std::max<std::size_t>(few, 1);
      while (taken_.size() < more) {
        const detail::incremental_sort::entry* const top = cheapest_.top(price);
        if (top == nullptr) break;
        const std::uint32_t j = among[top->number];
        cheapest_.pop();
        if (!tally_.admit(j)) {
          passed_over = true;
          continue;
        }
        taken_.push_back(j);
        trial_.evict(j);
      }
      if (taken_.size() == few) return passed_over ? take_all(among) : verdict;
      verdict = try_set();
    }
    std::size_t enough = taken_.size();
    std::size_t now = enough;
    const auto take = [&](std::size_t n) {
      for (; now < n; ++now) trial_.evict(taken_[now]);
      for (; now > n; --now) trial_.spare(taken_[now - 1]);
    };
    while (few + 1 < enough) {
      take(few + (enough - few) / 2);
      (try_set() == fit_verdict::fits ? enough : few) = now;
    }
    take(enough);
    return fit_verdict::fits;
  }
  fit_verdict take_all(std::span<const std::uint32_t> among) {
    for (const std::uint32_t j : among) trial_.evict(j);
    const fit_verdict verdict = try_set();
    too_many_ = verdict != fit_verdict::does_not_fit;
    return verdict;
  }
  // After a yes: spares whom it can, the dearest first, and keeps the set.
  void settle() {
    set_.clear();
    for (const std::uint32_t j : trial_.tried()) {
      if (!is_where_placed(j)) trial_.spare(j);
      if (trial_.evicted(j)) set_.push_back(j);
    }
    std::sort(set_.begin(), set_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return candidates_[a].cost != candidates_[b].cost ? candidates_[a].cost > candidates_[b].cost
                                                        : a < b;
    });
    for (const std::uint32_t j : set_) {
      trial_.spare(j);
      if (try_set() != fit_verdict::fits) trial_.evict(j);
    }
    keep_chosen();
  }
  [[nodiscard]] bool is_where_placed(std::uint32_t j) const {
    for (std::uint32_t s = candidates_[j].first; s < candidates_[j].last; ++s)
      if (std::binary_search(placed_.begin(), placed_.end(), shares_[s].node)) return true;
    return false;
  }
  void keep_chosen() {
    std::uint64_t cost = 0;
    set_.clear();
    for (const std::uint32_t j : trial_.tried()) {
      if (!trial_.evicted(j)) continue;
      cost += candidates_[j].cost;
      set_.push_back(j);
    }
    keep(cost);
  }

  // Over all sets of the candidates of a cell that will do together. Whether it is certain that
  // none costs less than the best set.
  bool branch() {
    if (cells_.here().size() > left() / set_steps) return false;
    by_cost_.assign(cells_.here().begin(), cells_.here().end());
    std::stable_sort(by_cost_.begin(), by_cost_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return candidates_[a].cost > candidates_[b].cost;
    });
    costs_.clear();
    for (const std::uint32_t j : by_cost_) {
      trial_.evict(j);
      costs_.push_back(candidates_[j].cost);
    }
    tally_.clear();
    return branch_(tries{*this}, costs_);
  }
  // For branch_and_bound.
  struct tries {
    topology_victim_search& in;

    [[nodiscard]] std::uint64_t least() const { return in.cost_; }
    [[nodiscard]] bool pay() const { return in.left() >= set_steps; }
    fit_verdict spare(std::size_t k) {
      in.trial_.spare(in.by_cost_[k]);
      return in.try_set();
    }
    void evict(std::size_t k) { in.trial_.evict(in.by_cost_[k]); }
    bool take(std::size_t k) { return in.tally_.take(in.by_cost_[k]); }
    void give_back(std::size_t k) { in.tally_.give_back(in.by_cost_[k]); }
    void keep() { in.keep_chosen(); }
  };

  std::uint64_t budget_;
  std::uint64_t steps_ = 0;
  std::uint64_t most_a_fit_ = 0;
  bool pay_ = false;  // sets tried count
  topology_fit<Tree> fit_;
  victim_search search_;  // without the other rules
  detail::branch_and_bound branch_;
  detail::eviction_trial<Tree> trial_;
  disruption_tally tally_;
  bool too_many_ = false;  // more are evicted than the limits allow
  topology_constraints gang_;
  std::span<const eviction_candidate> candidates_;
  std::span<const gpus_on_node> shares_;
  std::vector<task_group> members_;  // without rules
  detail::eviction_cells<Tree> cells_;
  detail::bounded_cells order_;
  std::vector<std::uint32_t> everybody_;
  detail::incremental_sort cheapest_;
  std::vector<std::uint32_t> taken_;
  std::vector<std::uint32_t> placed_;  // nodes, ascending
  std::vector<std::uint32_t> by_cost_;
  std::vector<std::uint64_t> costs_;
  std::vector<std::uint32_t> set_;
  std::vector<std::uint32_t> victims_;
  std::uint64_t cost_ = 0;
  std::uint64_t bound_ = 0;
};

APIARY_NAMESPACE_END
