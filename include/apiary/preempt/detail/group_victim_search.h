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
#include <apiary/preempt/detail/group_victim_sets.h>
#include <apiary/preempt/victim_set.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Searches the victims of least cost for one group of equal tasks under its constraints, in the
// cell of the required level where they cost least. It divides the cell into units: the cells of
// the highest level below it that has slices or anti-affinity, otherwise the cells directly above
// the nodes. cell_evictions computes the cost of each capacity of a unit.
//
// Bound:  the cost of a gang in several units is split among them. Then the units are independent,
//         and dynamic programming over them gives a lower bound. Costs are shifted to the units
//         that the solution uses, and the bound is computed again, a few times (Lagrangian
//         decomposition).
// Sets:   the victims of each such solution; greedy sets that evict in one unit after the other,
//         the cheapest unit first, where each gang counts in full once; the same from other first
//         units; emptied nodes; the best set with one gang exchanged for another. While there is no
//         set: the cheapest gangs, and the smallest gangs. No victim in a set can be reprieved. The
//         rest of the budget is for branch and bound.
// Cost:   O(nodes + allocations + candidates), the first bound and the first set; the rest is
//         within the budget. Units are solved in ascending order of cheap bounds, and only as many
//         as needed.
class group_victim_search : group_victim_sets {
 public:
  using group_victim_sets::never;
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
                    disruption_tally& tally, std::uint64_t cost_limit, std::uint64_t budget) {
    tally_ = &tally;
    victims_.clear();
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
    for (std::size_t i = 0; i < order_.size(); ++i)
      if (bounds_[order_[i].number] < cost_ && !ended())
        raise_bound(order_[i].number, left() / (order_.size() - i + 1));
    if (victims_.empty()) evict_greedily(all / 16);
    if (!victims_.empty() && bounds_[best_root_] < cost_) {
      empty_nodes(left() - (std::min)(left(), all / 16));
      exchange_victims(left() - (std::min)(left(), all / 16));
    }
    for (const keyed_number& at : order_) {
      if (bounds_[at.number] >= cost_ || ended()) continue;
      begin_root(at.number);
      forced_.clear();
      bounds_[at.number] = (std::max)(bounds_[at.number], branch(bounds_[at.number], max_rounds));
    }
    const std::uint64_t least = *std::min_element(bounds_.begin(), bounds_.end());
    return {victims_, cost_, (std::min)(least, cost_), steps()};
  }

 private:
  // The cheapest gangs first, and the smallest gangs first. If there are many gangs, it stops as
  // soon as they cost as much as the best set.
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
    fill(several, none);
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

  lean_vector<keyed_number> order_;
  lean_vector<std::uint32_t> forced_;  // gangs that branch() has evicted
};

}  // namespace detail
APIARY_NAMESPACE_END
