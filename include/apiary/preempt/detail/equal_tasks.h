// apiary/preempt/detail/equal_tasks.h - the victims of least cost for one group of equal tasks.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/detail/disruption_tally.h>
#include <apiary/preempt/detail/incremental_sort.h>
#include <apiary/preempt/detail/slot_bounds.h>
#include <apiary/preempt/detail/split_costs.h>
#include <apiary/preempt/detail/unit_tables.h>
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
// the nodes. unit_tables computes the cost of each capacity of a unit.
//
// Bound:  the cost of a gang in several units is split among them. Then the units are independent,
//         and dynamic programming over them gives a lower bound. Costs are shifted to the units
//         that the solution uses, and the bound is computed again, a few times (Lagrangian
//         decomposition).
// Sets:   the victims of each such solution; emptied nodes; the best set with one gang exchanged.
//         While there is no set: the cheapest gangs. No victim in a set can be reprieved. The rest
//         of the budget is for branch and bound.
// Cost:   O(nodes + allocations + candidates), the first bound and the first set; the rest is
//         within the budget. Units are solved in ascending order of cheap bounds, and only as many
//         as needed.
class group_victim_search {
 public:
  static constexpr std::uint64_t never = group_capacity::never;
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
    cells_.begin(levels, free, hosts, candidates, allocations, freed);
    split_.begin(cells_);
    by_count_.begin(candidates);
    bounds_ = split_.bounds();
    candidates_ = candidates;
    allocations_ = allocations;
    begun_ = cells_.work();
    of_step_ = split_.step() > 1 ? of_slices : 1;
    budget_ = (std::min)(budget, never / of_step_) * of_step_;
    begin_budget(false);
    order_.clear();
    for (std::uint32_t r = 0; r < bounds_.size(); ++r) {
      if (cells_.capacity(levels.root(), r) >= levels.tasks) return {victims_, 0, 0, 0};
      if (bounds_[r] != never) order_.push_back({bounds_[r], r});
    }
    if (order_.empty()) return {victims_, cost_, never, 0};
    keyed_number::sort(order_);
    const std::uint64_t all = budget_;
    for (std::size_t i = 0; i < order_.size(); ++i)
      if (bounds_[order_[i].number] < cost_ && !ended())
        raise_bound(order_[i].number, work_left() / (order_.size() - i + 1));
    begin_budget(true);
    if (victims_.empty()) evict_cheapest();
    if (!victims_.empty() && bounds_[best_root_] < cost_) {
      empty_nodes(left() - (std::min)(left(), all / 16));
      exchange_victims(left() - (std::min)(left(), all / 16));
    }
    for (const keyed_number& at : order_) {
      if (bounds_[at.number] >= cost_ || ended()) continue;
      split_.begin_root(at.number);
      forced_.clear();
      bounds_[at.number] = (std::max)(bounds_[at.number], branch(bounds_[at.number], max_rounds));
    }
    const std::uint64_t least = *std::min_element(bounds_.begin(), bounds_.end());
    return {victims_, cost_, (std::min)(least, cost_), steps()};
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  static constexpr std::uint64_t of_slices = 2;  // operations of a step if units hold slices
  // Tables end with the budget, which is smaller when a set is known, or is not found greedily.
  void begin_budget(bool has_set) noexcept {
    has_set_ = has_set;
    const std::uint64_t now = cells_.work();
    split_.limit_work(work_left() < never - now ? now + work_left() : never);
  }
  // A lower bound raised to what so many gangs cost.
  [[nodiscard]] std::uint64_t raised(std::uint64_t bound) {
    bound = by_count_(bound);
    cells_.add_work(by_count_.take_work());
    return bound;
  }
  // The steps of the budget so far.
  [[nodiscard]] std::uint64_t steps() const noexcept {
    return used() / of_step_ + (used() % of_step_ != 0 ? 1 : 0);
  }
  [[nodiscard]] bool ended() const noexcept { return work_left() == 0; }
  // Operations until the end: four for each step before the first set is known.
  [[nodiscard]] std::uint64_t work_left() const noexcept {
    const std::uint64_t times = has_set_ ? 1 : 4 / of_step_;
    const std::uint64_t most = (std::min)(budget_, never / times) * times;
    return most - (std::min)(cells_.work() - begun_, most);
  }
  [[nodiscard]] std::uint64_t used() const noexcept {
    return (std::min)(cells_.work() - begun_, budget_);
  }
  [[nodiscard]] std::uint64_t left() const noexcept { return budget_ - used(); }
  [[nodiscard]] bool in_root(std::uint32_t a) const noexcept { return split_.in_root(a); }

  // Evicts the gangs in set_, reprieves those that are not needed, and keeps the rest if it costs
  // less than the best set.
  void try_set() {
    sort_unique(set_);
    tally_->clear();
    for (const std::uint32_t j : set_) {
      cells_.set_evicted(j, true);
      tally_->add_victim(j);
    }
    keep_minimal();
    for (const std::uint32_t j : set_) cells_.set_evicted(j, false);
  }
  [[nodiscard]] bool fits() const { return split_.missing(split_.root()) == 0; }
  // The gangs in set_ are evicted.
  void keep_minimal() {
    if (!fits()) return;
    by_cost_.clear();
    for (const std::uint32_t j : set_) by_cost_.push_back({~candidates_[j].cost, j});
    keyed_number::sort(by_cost_);
    std::uint64_t cost = 0;
    minimal_.clear();
    for (const keyed_number& k : by_cost_) {
      cells_.set_evicted(k.number, false);
      if (fits()) {
        tally_->remove_victim(k.number);
        continue;
      }
      cells_.set_evicted(k.number, true);
      minimal_.push_back(k.number);
      cost += candidates_[k.number].cost;
    }
    if (cost >= cost_ || !tally_->within_budgets()) return;
    cost_ = cost;
    best_root_ = split_.root();
    begin_budget(true);
    victims_ = minimal_;
    merge_sort(victims_);
  }

  // Evicts the cheapest gangs until the tasks fit in a root cell; then continues as try_set().
  // Stops if they cost as much as the limit, or are more than the budget allows.
  void evict_cheapest() {
    if (*std::min_element(bounds_.begin(), bounds_.end()) >= cost_) return;
    cheapest_.begin(static_cast<std::uint32_t>(candidates_.size()));
    tally_->clear();
    set_.clear();
    bool enough = false;
    // A step may take as long as the eviction of a gang does.
    const std::uint64_t most = few_evictions + (std::min)(budget_, never / 4) / 2 * 3;
    for (std::uint64_t sum = 0; !enough; cheapest_.pop()) {
      const keyed_number* const top =
          cheapest_.top([&](std::uint32_t j) { return candidates_[j].cost; });
      cells_.add_work(cheapest_.take_work());
      if (top == nullptr) break;
      const std::uint32_t j = top->number;
      if (sum + candidates_[j].cost >= cost_ || set_.size() >= most) break;
      if (!tally_->try_add_victim(j)) continue;
      sum += candidates_[j].cost;
      set_.push_back(j);
      cells_.set_evicted(j, true);
      for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last && !enough; ++a) {
        split_.begin_root(cells_.root_of(allocations_[a].node));
        enough = fits();
      }
    }
    if (enough) keep_minimal();
    for (const std::uint32_t j : set_) cells_.set_evicted(j, false);
  }

  // Empties one node after the other, the cheapest node of a unit first, until the unit holds a
  // step more: each time in the unit where that costs least. When the tasks fit, continues as
  // try_set(). Stops if no more than `reserve` is left of the budget.
  void empty_nodes(std::uint64_t reserve) {
    split_.begin_root(best_root_);
    set_.clear();
    tally_->clear();
    cells_.add_work(split_.last_unit() - split_.first_unit());
    lean_vector<std::uint64_t> costs(split_.last_unit() - split_.first_unit(), 0);
    lean_vector<unsigned char> known(costs.size(), 0);
    while (!fits()) {
      for (std::uint32_t u = split_.first_unit(); u < split_.last_unit() && left() > reserve; ++u) {
        if (known[u - split_.first_unit()] != 0) continue;
        known[u - split_.first_unit()] = 1;
        costs[u - split_.first_unit()] = empty_nodes_of(u);
        for (const std::uint32_t j : more_) cells_.set_evicted(j, false);
      }
      cells_.add_work(costs.size());
      const auto least = std::min_element(costs.begin(), costs.end());
      if (left() <= reserve || *least == never) break;
      empty_nodes_of(split_.first_unit() + static_cast<std::uint32_t>(least - costs.begin()));
      for (const std::uint32_t j : more_) {
        tally_->add_victim(j);
        set_.push_back(j);
        for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a)
          if (in_root(a)) known[split_.unit_of(allocations_[a].node) - split_.first_unit()] = 0;
      }
    }
    keep_minimal();
    for (const std::uint32_t j : set_) cells_.set_evicted(j, false);
  }

  // Evicts the gangs of nodes of the unit until it holds a step more, and lists them in more_.
  // Returns their cost; `never` if the unit does not hold a step more then.
  std::uint64_t empty_nodes_of(std::uint32_t u) {
    more_.clear();
    by_cost_.clear();
    const auto [first, last] = split_.nodes_of(u);
    for (std::uint32_t n = first; n < last; ++n) {
      std::uint64_t cost = 0;
      for (const auto& i : cells_.on(n))
        if (!cells_.evicted(i.candidate)) cost += candidates_[i.candidate].cost;
      by_cost_.push_back({cost, n});
      cells_.add_work(1 + cells_.on(n).size());
    }
    keyed_number::sort(by_cost_);
    const std::uint32_t before = split_.capacity(u);
    std::uint64_t cost = 0;
    for (const keyed_number& k : by_cost_) {
      if (split_.capacity(u) > before) return cost;
      for (const auto& i : cells_.on(k.number)) {
        if (cells_.evicted(i.candidate)) continue;
        cells_.set_evicted(i.candidate, true);
        more_.push_back(i.candidate);
        cost += candidates_[i.candidate].cost;
      }
    }
    return split_.capacity(u) > before ? cost : never;
  }

  // Replaces a victim of the best set by a cheaper gang in the same units, again and again. Stops
  // if no more than `reserve` is left of the budget.
  void exchange_victims(std::uint64_t reserve) {
    for (bool cheaper = true; cheaper;) {
      cheaper = false;
      const lean_vector<std::uint32_t> victims = victims_;
      for (std::size_t i = 0; i < victims.size() && !cheaper; ++i) {
        if (left() <= reserve || bounds_[best_root_] >= cost_) return;
        cheaper = exchange(victims, victims[i]);
      }
    }
  }
  // exchange_victims() for one victim. False if no set is cheaper.
  bool exchange(const lean_vector<std::uint32_t>& victims, std::uint32_t victim) {
    split_.begin_root(best_root_);
    more_.clear();
    for (std::uint32_t a = candidates_[victim].first; a < candidates_[victim].last; ++a)
      if (in_root(a)) more_.push_back(split_.unit_of(allocations_[a].node));
    sort_unique(more_);
    for (const std::uint32_t j : victims) cells_.set_evicted(j, j != victim);
    by_cost_.clear();
    for (const std::uint32_t u : more_) {
      const auto [first, last] = split_.nodes_of(u);
      for (std::uint32_t n = first; n < last; ++n) {
        for (const auto& i : cells_.on(n))
          if (!cells_.evicted(i.candidate) &&
              candidates_[i.candidate].cost < candidates_[victim].cost)
            by_cost_.push_back({candidates_[i.candidate].cost, i.candidate});
        cells_.add_work(1 + cells_.on(n).size());
      }
    }
    sort_unique(by_cost_);
    std::uint32_t other = none;
    for (std::size_t k = 0; k < by_cost_.size() && other == none; ++k) {
      cells_.set_evicted(by_cost_[k].number, true);
      if (fits()) other = by_cost_[k].number;
      cells_.set_evicted(by_cost_[k].number, false);
    }
    for (const std::uint32_t j : victims) cells_.set_evicted(j, false);
    if (other == none) return false;
    set_ = victims;
    std::replace(set_.begin(), set_.end(), victim, other);
    const std::uint64_t before = cost_;
    try_set();
    return cost_ < before;
  }

  // A bound, and the set that comes with it.
  void raise_bound(std::uint32_t root, std::uint64_t budget) {
    split_.begin_root(root);
    bounds_[root] = (std::max)(bounds_[root], raised(split_.unscaled(split_.solve_split(budget))));
    if (bounds_[root] < cost_) try_chosen();
  }
  // Branch and bound: with the gangs in forced_ evicted, and some protected. Returns a lower bound
  // of all such sets; a set that it leaves out costs no less than the best one.
  std::uint64_t branch(std::uint64_t bound, std::uint32_t rounds) {
    std::uint32_t j = none;
    for (std::uint32_t round = 0; round < rounds; ++round) {
      std::uint64_t rest = split_.unscaled(split_.solve_split(left()));
      for (const std::uint32_t v : forced_)
        rest = rest == never ? never : rest + candidates_[v].cost;
      const std::uint64_t before = bound;
      bound = (std::max)(bound, raised(rest));
      if (bound >= cost_ || ended()) return bound;
      j = gang_to_branch_on();
      try_chosen();
      if (bound >= cost_ || j == none || ended()) return bound;
      if ((round > 1 && bound == before) || round + 1 == rounds || !split_.move_costs()) break;
    }
    force(j, true);
    const std::uint64_t with = forced_within_budgets() ? branch(bound, 2) : never;
    force(j, false);
    cells_.set_protected(j, true);
    split_.refresh_units_of(j);
    const std::uint64_t without = with < cost_ && ended() ? bound : branch(bound, 2);
    cells_.set_protected(j, false);
    split_.refresh_units_of(j);
    return (std::max)(bound, (std::min)(with, without));
  }
  void force(std::uint32_t j, bool to) {
    cells_.set_evicted(j, to);
    if (to) {
      forced_.push_back(j);
    } else {
      forced_.pop_back();
    }
    split_.refresh_units_of(j);
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
    const std::span<const std::uint32_t> chosen = split_.chosen();
    std::uint64_t most = 0;
    std::uint32_t best = none;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const std::uint32_t j = cells_.candidate_of(chosen[i]);
      if (i > 0 && cells_.candidate_of(chosen[i - 1]) == j) continue;
      std::uint64_t left = 0;
      std::size_t k = i;
      for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a) {
        const bool is_chosen = k < chosen.size() && chosen[k] == a;
        if (is_chosen) {
          ++k;
        } else if (in_root(a)) {
          left += split_.cost_of_allocation(a);
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
    for (const std::uint32_t a : split_.chosen()) set_.push_back(cells_.candidate_of(a));
    sort_unique(set_);
  }
  void try_chosen() {
    if (split_.chosen().empty() && forced_.empty()) return;
    list_chosen_gangs();
    try_set();
    for (const std::uint32_t j : forced_) cells_.set_evicted(j, true);
  }
  static constexpr std::uint64_t few_evictions = 512;

  static constexpr std::uint32_t max_rounds = 8;

  group_capacity cells_;
  split_costs split_;
  gang_count_bound by_count_;
  std::span<const eviction_candidate> candidates_;
  std::span<const gpus_on_node> allocations_;
  std::span<std::uint64_t> bounds_;  // of each root cell
  std::uint64_t budget_ = 0;         // operations
  std::uint64_t of_step_ = 1;        // operations that a step of the budget pays for
  std::uint64_t begun_ = 0;          // work then
  bool has_set_ = false;             // a set of victims is known
  disruption_tally* tally_ = nullptr;
  lean_vector<keyed_number> by_cost_;
  lean_vector<std::uint32_t> more_;
  incremental_sort cheapest_;
  lean_vector<std::uint32_t> set_;
  lean_vector<std::uint32_t> minimal_;
  lean_vector<std::uint32_t> victims_;
  std::uint64_t cost_ = never;
  std::uint32_t best_root_ = 0;
  lean_vector<keyed_number> order_;
  lean_vector<std::uint32_t> forced_;  // gangs that branch() has evicted
};

}  // namespace detail
APIARY_NAMESPACE_END
