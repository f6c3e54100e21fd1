// apiary/preempt/detail/group_victim_search.h - the victims of least cost for one group of equal tasks.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/detail/disruption_tally.h>
#include <apiary/preempt/detail/eviction_levels.h>
#include <apiary/preempt/detail/simple_victim_sets.h>
#include <apiary/preempt/detail/unit_excerpt.h>
#include <apiary/preempt/victim_set.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Searches the victims of least cost for one group of equal tasks under its constraints, in the cell
// of the required level where they cost least. It divides the cell into units: the cells of the
// highest level below it that has slices or anti-affinity, otherwise the cells directly above the
// nodes. cell_evictions computes the cost of each capacity of a unit.
//
// Bound:  the cost of a gang in several units is split among them. Then the units are independent,
//         and dynamic programming over them gives a lower bound. Costs are shifted to the units that
//         the solution uses, and the bound is computed again, a few times (Lagrangian
//         decomposition).
// Sets:   the victims of each such solution; greedy sets that evict in one unit after the other, the
//         cheapest unit first, where each gang counts in full once; the same from other first units;
//         the cheapest gangs, and the smallest gangs; emptied nodes. The best set is improved: its
//         victims in one unit are taken back and chosen again, and one gang is exchanged for another.
//         With slices, and if the best set is not proved to be optimal, also the set that searches
//         for one slice after the other find; `of_unit` does these searches.
//         No victim in a set can be reprieved.
// Cost:   O(nodes + allocations + candidates), the first bound and the first set; the rest is within
//         the budget. Units are solved in ascending order of cheap bounds, and only as many as needed.
class group_victim_search : simple_victim_sets {
 public:
  using simple_victim_sets::never;
  // The victims, if a set was found that costs less than the cost limit; otherwise `cost` is the
  // limit. No set costs less than `lower_bound`, which is `never` if there is no set.
  struct result {
    std::span<const std::uint32_t> victims;
    std::uint64_t cost = 0;
    std::uint64_t lower_bound = 0;
    std::uint64_t steps = 0;
  };
  // Requires: levels.root() > 0; the group does not fit now.
  result operator()(const eviction_levels& levels, std::span<const std::uint32_t> free,
                    std::span<const resources> hosts,
                    std::span<const eviction_candidate> candidates,
                    std::span<const gpus_on_node> allocations, std::span<const resources> freed,
                    disruption_tally& tally, std::uint64_t cost_limit, std::uint64_t budget,
                    group_victim_search* of_unit = nullptr) {
    tally_ = &tally;
    freed_ = freed;
    victims_.clear();
    forget_units();
    improved_.cost = never;
    cost_ = cost_limit;
    begin(levels, free, hosts, candidates, allocations, freed, budget);
    order_.clear();
    for (std::uint32_t r = 0; r < bounds_.size(); ++r) {
      if (cells_.capacity(levels.root(), r) >= levels.tasks) return {victims_, 0, 0, 0};
      if (bounds_[r] != never) order_.push_back({bounds_[r], r});
    }
    if (order_.empty()) return {victims_, cost_, never, 0};
    keyed_number::sort(order_);
    const std::uint64_t all = budget_;
    for (const keyed_number& at : order_)
      if (bounds_[at.number] < cost_ && (victims_.empty() || left() > all - all / 4))
        fill_root(at.number, true);
    has_set_ = true;  // or it is not found this way
    if (!victims_.empty() && bounds_[best_root_] < cost_) fill_root(best_root_, false);
    start_elsewhere(all - all / 4);
    improve(order_.size() == 1 ? all / 2 : all - all / 3);
    for (std::size_t i = 0; i < order_.size(); ++i)
      if (bounds_[order_[i].number] < cost_ && !ended())
        raise_bound(order_[i].number, left() / (order_.size() - i + 1));
    improve(all / 4);
    evict_greedily(all / 16);
    if (!victims_.empty() && bounds_[best_root_] < cost_) {
      empty_nodes(left() - (std::min)(left(), all / 16));
      exchange_victims(left() - (std::min)(left(), all / 16));
    }
    const bool by_steps = of_unit != nullptr && step() > 1;
    if (by_steps) budget_ = all - all / 6;  // the rest is for take_step_by_step()
    for (const keyed_number& at : order_) {
      if (bounds_[at.number] >= cost_ || ended()) continue;
      begin_root(at.number);
      forced_.clear();
      bounds_[at.number] = (std::max)(bounds_[at.number], branch(bounds_[at.number], max_rounds));
    }
    budget_ = all;
    for (std::size_t i = 0; i < order_.size() && by_steps && !ended(); ++i)
      if (bounds_[order_[i].number] < cost_) take_step_by_step(order_[i].number, *of_unit);
    improve(0);
    const std::uint64_t least = *std::min_element(bounds_.begin(), bounds_.end());
    return {victims_, cost_, (std::min)(least, cost_), steps()};
  }

 private:
  // The victims of one step more in a unit, at least cost.
  struct next_step {
    std::uint64_t cost = 0;  // a lower bound if not solved
    bool bounded = false;    // the bound was computed for the unit as it is now
    bool solved = false;
    lean_vector<std::uint32_t> victims{};
  };
  // One step after the other, each in the unit where the victims of this step alone cost least, as if
  // a host searched victims for each slice alone. If the budget ends, fill() takes the other steps.
  void take_step_by_step(std::uint32_t root, group_victim_search& of_unit) {
    begin_root(root);
    set_.clear();
    next_steps_.resize(last_unit_ - first_unit_);
    step_heap_.clear();
    for (std::uint32_t u = first_unit_; u < last_unit_; ++u) {
      next_step& at = next_steps_[u - first_unit_];
      at.cost = units_[u].rate == never ? never : units_[u].rate >> cells_.scale();
      at.bounded = at.solved = false;
      if (at.cost != never) step_heap_.push_back({at.cost, u});
    }
    work_ += next_steps_.size();
    keyed_number::make_heap(step_heap_);
    while (!fits() && !step_heap_.empty() && !ended()) {
      const keyed_number top = keyed_number::pop(step_heap_);
      next_step& at = next_steps_[top.number - first_unit_];
      if (top.key != at.cost) continue;
      if (at.solved) {
        take_step(at.victims);
        continue;
      }
      if (at.bounded) {
        solve_step(top.number, of_unit);
      } else {
        at.cost = least_cost_of_step(top.number);
        at.bounded = true;
      }
      if (at.cost != never) keyed_number::push(step_heap_, {at.cost, top.number});
    }
    for (const std::uint32_t j : set_) cells_.set_evicted(j, false);
    fill(false, none, none, few_tries);
  }
  void take_step(const lean_vector<std::uint32_t>& victims) {
    more_ = victims;
    for (const std::uint32_t j : more_) {
      set_.push_back(j);
      cells_.set_evicted(j, true);
      for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a) {
        if (!in_root(a)) continue;
        const std::uint32_t u = unit_of_[allocations_[a].node];
        next_step& at = next_steps_[u - first_unit_];
        if (!at.bounded && at.cost == 0) continue;
        at.cost = 0;
        at.bounded = at.solved = false;
        keyed_number::push(step_heap_, {0, u});
      }
    }
  }
  [[nodiscard]] std::uint64_t least_cost_of_step(std::uint32_t u) {
    const std::uint32_t tasks = cells_.capacity(at_, u) + step();
    return tasks > levels_->levels[at_].most ? never : cells_.least_cost_in_full(at_, u, tasks);
  }
  // Takes about a quarter of what is left of the budget at most.
  void solve_step(std::uint32_t u, group_victim_search& of_unit) {
    next_step& at = next_steps_[u - first_unit_];
    excerpt_.begin(cells_, at_, u, cells_.capacity(at_, u) + step(), candidates_, allocations_,
                   freed_, *tally_);
    const result found = of_unit(excerpt_.levels(), excerpt_.free(), excerpt_.hosts(),
                                 excerpt_.candidates(), excerpt_.allocations(), excerpt_.freed(),
                                 excerpt_.tally(), never, left() / 4 / of_step_);
    work_ += of_unit.used() + work_of_entry * excerpt_.entries();
    at.cost = found.cost;
    at.solved = true;
    at.victims.clear();
    for (const std::uint32_t i : found.victims) at.victims.push_back(excerpt_.ids()[i]);
  }
  // The cheapest gangs first, and the smallest gangs first. If there are many gangs, it stops as soon
  // as they cost as much as the best set.
  void evict_greedily(std::uint64_t budget) {
    if (*std::min_element(bounds_.begin(), bounds_.end()) >= cost_) return;
    const std::size_t entries = cells_.num_allocations();
    const bool many = candidates_.size() + entries > (std::min)(budget, left());
    evict_in_order([&](std::uint32_t j) { return candidates_[j].cost; },
                   many ? left() : left() - (std::min)(left(), budget));
    if (many || left() < budget) return;
    work_ += entries;
    evict_in_order([&](std::uint32_t j) { return gpus_of(j); }, left() - budget);
  }
  [[nodiscard]] std::uint64_t gpus_of(std::uint32_t j) const {
    std::uint64_t sum = 0;
    for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a)
      sum += allocations_[a].gpus;
    return sum;
  }
  void fill_root(std::uint32_t root, bool several) {
    begin_root(root);
    set_.clear();
    fill(several, none, none, few_tries);
  }
  // A bound, and the set that comes with it.
  void raise_bound(std::uint32_t root, std::uint64_t budget) {
    begin_root(root);
    bounds_[root] = (std::max)(bounds_[root], raised(cells_.unscaled(solve_split(budget))));
    if (bounds_[root] < cost_) try_chosen();
  }
  // Branch and bound: with the gangs in forced_ evicted, and some protected. Returns a lower bound
  // of all such sets; a set that it leaves out costs no less than the best one.
  std::uint64_t branch(std::uint64_t bound, std::uint32_t rounds) {
    std::uint32_t j = none;
    for (std::uint32_t round = 0; round < rounds; ++round) {
      std::uint64_t rest = cells_.unscaled(solve_split(left()));
      for (const std::uint32_t v : forced_)
        rest = rest == never ? never : rest + candidates_[v].cost;
      bound = (std::max)(bound, raised(rest));
      if (bound >= cost_ || ended()) return bound;
      j = gang_to_branch_on();
      try_chosen();
      if (bound >= cost_ || j == none || ended()) return bound;
      if (round + 1 < rounds && !move_costs()) break;
    }
    force(j, true);
    const std::uint64_t with = forced_within_budgets() ? branch(bound, 2) : never;
    force(j, false);
    cells_.set_protected(j, true);
    refresh_units_of(j);
    const std::uint64_t without = with < cost_ && ended() ? bound : branch(bound, 2);
    cells_.set_protected(j, false);
    refresh_units_of(j);
    return (std::max)(bound, (std::min)(with, without));
  }
  void force(std::uint32_t j, bool to) {
    cells_.set_evicted(j, to);
    if (to) {
      forced_.push_back(j);
    } else {
      forced_.pop_back();
    }
    refresh_units_of(j);
  }
  [[nodiscard]] bool forced_within_budgets() const {
    tally_->clear();
    for (const std::uint32_t j : forced_) tally_->add_victim(j);
    return tally_->within_budgets();
  }
  // The gang with the greatest cost in allocations that are not chosen, the first of equals, among
  // the gangs that have other allocations in chosen_. If there is none: a gang of a group that
  // exceeds its disruption budget; otherwise `none`.
  [[nodiscard]] std::uint32_t gang_to_branch_on() {
    merge_sort(chosen_);
    std::uint64_t most = 0;
    std::uint32_t best = none;
    for (std::size_t i = 0; i < chosen_.size(); ++i) {
      const std::uint32_t j = cells_.candidate_of(chosen_[i]);
      if (i > 0 && cells_.candidate_of(chosen_[i - 1]) == j) continue;
      std::uint64_t left = 0;
      std::size_t k = i;
      for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a) {
        const bool is_chosen = k < chosen_.size() && chosen_[k] == a;
        if (is_chosen) {
          ++k;
        } else if (in_root(a)) {
          left += cells_.cost_of_allocation(a);
        }
      }
      if (left > most || (left == most && left > 0 && j < best)) {
        most = left;
        best = j;
      }
    }
    if (best != none || tally_->unlimited()) return best;
    tally_->clear();
    list_chosen_gangs();
    for (const std::uint32_t j : set_) tally_->add_victim(j);
    for (const std::uint32_t j : set_)
      if (tally_->over_budget(j) && !cells_.evicted(j)) return j;
    return none;
  }
  // Lists in set_ the gangs with allocations in chosen_, and those in forced_.
  void list_chosen_gangs() {
    set_ = forced_;
    for (const std::uint32_t a : chosen_) set_.push_back(cells_.candidate_of(a));
    sort_unique(set_);
  }
  void try_chosen() {
    if (chosen_.empty() && forced_.empty()) return;
    list_chosen_gangs();
    try_set();
    for (const std::uint32_t j : forced_) cells_.set_evicted(j, true);
  }
  static constexpr std::uint32_t max_rounds = 12;
  static constexpr std::uint64_t work_of_entry = 4;  // of an excerpt

  lean_vector<keyed_number> order_;
  std::span<const resources> freed_;
  std::vector<next_step> next_steps_;  // of each unit of the root
  lean_vector<keyed_number> step_heap_;
  unit_excerpt excerpt_;
  lean_vector<std::uint32_t> forced_;  // gangs that branch() has evicted
};

}  // namespace detail
APIARY_NAMESPACE_END
