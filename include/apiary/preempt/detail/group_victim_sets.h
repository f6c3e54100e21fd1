// apiary/preempt/detail/group_victim_sets.h - sets of victims for one group of tasks, found greedily.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/preempt/detail/disruption_tally.h>
#include <apiary/preempt/detail/incremental_sort.h>
#include <apiary/preempt/detail/split_cost_bound.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Finds sets of victims and keeps the cheapest one: from given gangs; the cheapest gangs first; one
// unit after the other, the cheapest first, each gang counted in full once; emptied nodes; and
// the best set with one gang exchanged. No victim in a set can be reprieved, and all budgets hold.
// Cost: the calls of cell_evictions; fill() solves units in ascending order of cheap bounds, and
//       only as many as needed. Emptied nodes O(nodes + allocations) of the root, and of each unit
//       that changes; an exchange O(nodes + allocations) of the units of the gang, and O(victims).
class group_victim_sets : protected split_cost_bound {
 protected:
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
  [[nodiscard]] bool fits() const { return missing(root_) == 0; }
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
    best_root_ = root_;
    has_set_ = true;
    victims_ = minimal_;
    merge_sort(victims_);
  }

  // Evicts gangs in ascending order of price until the tasks fit in a root cell; then continues as
  // try_set(). Stops if no more than `reserve` is left of the budget, and the gangs cost as much as
  // the best set or are more than the budget allows.
  template <class Price>
  void evict_in_order(const Price& price, std::uint64_t reserve) {
    cheapest_.begin(static_cast<std::uint32_t>(candidates_.size()));
    tally_->clear();
    set_.clear();
    bool enough = false;
    // A step may take as long as the eviction of a gang does.
    const std::uint64_t most = few_evictions + (std::min)(budget_, never / 4) / 2 * 3;
    for (std::uint64_t sum = 0; !enough; cheapest_.pop()) {
      const keyed_number* const top = cheapest_.top(price);
      work_ += cheapest_.take_work();
      if (top == nullptr) break;
      const std::uint32_t j = top->number;
      if (left() <= reserve && (sum + candidates_[j].cost >= cost_ || set_.size() >= most)) break;
      if (!tally_->try_add_victim(j)) continue;
      sum += candidates_[j].cost;
      set_.push_back(j);
      cells_.set_evicted(j, true);
      for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last && !enough; ++a) {
        root_ = cells_.root_of(allocations_[a].node);
        enough = fits();
      }
    }
    if (enough) keep_minimal();
    for (const std::uint32_t j : set_) cells_.set_evicted(j, false);
  }

  // Evicts the gangs in set_, then more gangs, unit by unit, the cheapest step first, until the
  // tasks fit; then continues as try_set(). `several`: takes several steps of a unit together if
  // that costs less for each step; otherwise one step at a time. The unit `first` comes first.
  // Before it takes the cheapest step so far, it computes better bounds for at most few_tries
  // units; a unit that it solves counts as tries_of_solving.
  void fill(bool several, std::uint32_t first) {
    cells_.count_in_full(true);
    tally_->clear();
    several_ = several ? 1 : 0;
    changed_.clear();
    protected_.clear();
    sort_unique(set_);
    if (now_.size() < units_.size()) now_.resize(units_.size());
    for (const std::uint32_t j : set_) {
      tally_->add_victim(j);
      evict(j);
    }
    work_ += last_unit_ - first_unit_;
    by_key_.clear();
    for (std::uint32_t u = first_unit_; u < last_unit_; ++u)
      if (key_of(u).key != never) by_key_.push_back({key_of(u).key, u});
    keyed_number::make_heap(by_key_);
    later_.clear();
    if (first != none) take(first, key_of(first).steps);
    while (!fits() && !ended() && take_cheapest()) {
    }
    keep_minimal();
    for (const std::uint32_t j : set_) cells_.set_evicted(j, false);
    for (const std::uint32_t j : protected_) cells_.set_protected(j, false);
    for (const std::uint32_t u : changed_) units_[u].changed = false;
  }
  // Evicts what the cheapest step costs. False if no unit has a step more.
  bool take_cheapest() {
    for (const keyed_number& k : later_) keyed_number::push(by_key_, k);
    later_.clear();
    const std::uint32_t needed = several_ != 0 ? missing(root_) : 1;
    keyed_number best{never, 0};
    for (std::uint32_t tries = 0; !ended() && !by_key_.empty();) {
      if (tries >= few_tries && best.key != never) break;
      const keyed_number top = keyed_number::pop(by_key_);
      const std::uint32_t u = top.number;
      const full_key at = key_of(u);
      if (top.key != at.key) continue;
      if (at.steps > 0 && at.steps <= needed) {
        best = top;
        break;
      }
      if (at.steps > 0 || at.tight) {
        tries += tries_of_solving;
        solve_in_full(u, missing(root_));
        const full_key solved = key_of(u);
        if (solved.steps > 0 && solved.steps <= needed) best = (std::min)(best, {solved.key, u});
      } else if (tries < few_tries) {
        ++tries;
        tighten(u);
      } else {
        later_.push_back(top);
        continue;
      }
      if (key_of(u).key != never) keyed_number::push(by_key_, {key_of(u).key, u});
    }
    if (best.key != never) take(best.number, key_of(best.number).steps);
    return best.key != never || !later_.empty();
  }
  // While nothing is evicted, a unit keeps its keys in units_; afterwards in now_.
  [[nodiscard]] const full_key& key_of(std::uint32_t u) const noexcept {
    return units_[u].changed ? now_[u][several_] : units_[u].key[several_];
  }
  [[nodiscard]] full_keys& keys_of(std::uint32_t u) noexcept {
    return units_[u].changed ? now_[u] : units_[u].key;
  }
  void mark_changed(std::uint32_t j) {
    for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a)
      mark_unit_changed(unit_of_[allocations_[a].node]);
  }
  void mark_unit_changed(std::uint32_t u) {
    if (!units_[u].changed) {
      changed_.push_back(u);
    } else if (now_[u][several_] == full_key{}) {
      return;
    }
    units_[u].changed = true;
    now_[u].fill({});
    if (u >= first_unit_ && u < last_unit_) keyed_number::push(by_key_, {0, u});
  }
  void evict(std::uint32_t j) {
    cells_.set_evicted(j, true);
    mark_changed(j);
  }
  // A better lower bound of the next step.
  void tighten(std::uint32_t u) {
    const std::uint32_t now = cells_.capacity(at_, u);
    const std::uint64_t bound = now + step() > levels_->levels[at_].most
                                    ? never
                                    : cells_.least_cost_in_full(at_, u, now + step());
    for (full_key& k : keys_of(u)) k = {(std::max)(k.key, bound), 0, true};
  }
  void solve_in_full(std::uint32_t u, std::uint32_t needed) {
    if (!read_table(u, cost_of_unit_)) return;
    std::array<full_key, 2> keys{full_key{never, 0, true}, full_key{never, 0, true}};
    for (std::uint32_t s = 1; s < cost_of_unit_.size() && s <= needed; ++s) {
      const std::uint64_t each = cost_of_unit_[s] / s + (cost_of_unit_[s] % s != 0 ? 1 : 0);
      if (each < keys[1].key) keys[1] = {each, s, true};
    }
    if (cost_of_unit_.size() > 1) keys[0] = {cost_of_unit_[1], 1, true};
    keys_of(u) = keys;
  }
  void take(std::uint32_t u, std::uint32_t steps) {
    more_.clear();
    limit_tables();
    cells_.append_evictions(at_, u, cells_.capacity(at_, u) / step() + steps, more_);
    for (std::uint32_t& a : more_) a = cells_.candidate_of(a);
    sort_unique(more_);
    bool within = true;
    for (const std::uint32_t j : more_) within = tally_->add_victim(j);
    mark_unit_changed(u);
    if (more_.empty()) {  // more gangs on a node than node_evictions counts
      now_[u].fill({never, 0, true});
      return;
    }
    if (within) {
      for (const std::uint32_t j : more_) {
        evict(j);
        set_.push_back(j);
      }
      return;
    }
    for (const std::uint32_t j : more_) tally_->remove_victim(j);
    protect_beyond_budget();
  }
  // The gangs in more_ are too many: protects one that exceeds a budget.
  void protect_beyond_budget() {
    lean_vector<std::uint32_t> taken;
    for (const std::uint32_t j : more_) {
      if (tally_->try_add_victim(j)) {
        taken.push_back(j);
        continue;
      }
      protect(j);
      break;
    }
    for (const std::uint32_t j : taken) tally_->remove_victim(j);
  }
  void protect(std::uint32_t j) {
    cells_.set_protected(j, true);
    protected_.push_back(j);
    mark_changed(j);
  }

  // Of the units whose cheapest step is known, the cheapest few: sets that begin there. No more if
  // only `reserve` is left of the budget.
  void start_elsewhere(std::uint64_t reserve) {
    if (victims_.empty() || bounds_[best_root_] >= cost_) return;
    begin_root(best_root_);
    if (missing(root_) == 1) return;
    lean_vector<keyed_number> starts;
    for (std::uint32_t u = first_unit_; u < last_unit_; ++u)
      if (units_[u].key[0].steps > 0) starts.push_back({units_[u].key[0].key, u});
    work_ += last_unit_ - first_unit_;
    keyed_number::sort(starts);
    for (std::size_t i = 1; i < starts.size() && i < max_starts && left() > reserve; ++i) {
      set_.clear();
      fill(false, starts[i].number);
    }
  }
  // Empties one node after the other, the cheapest node of a unit first, until the unit holds a
  // step more: each time in the unit where that costs least. When the tasks fit, continues as
  // try_set(). Stops if no more than `reserve` is left of the budget.
  void empty_nodes(std::uint64_t reserve) {
    begin_root(best_root_);
    set_.clear();
    tally_->clear();
    work_ += last_unit_ - first_unit_;
    lean_vector<std::uint64_t> costs(last_unit_ - first_unit_, 0);
    lean_vector<unsigned char> known(costs.size(), 0);
    while (!fits()) {
      for (std::uint32_t u = first_unit_; u < last_unit_ && left() > reserve; ++u) {
        if (known[u - first_unit_] != 0) continue;
        known[u - first_unit_] = 1;
        costs[u - first_unit_] = empty_nodes_of(u);
        for (const std::uint32_t j : more_) cells_.set_evicted(j, false);
      }
      work_ += costs.size();
      const auto least = std::min_element(costs.begin(), costs.end());
      if (left() <= reserve || *least == never) break;
      empty_nodes_of(first_unit_ + static_cast<std::uint32_t>(least - costs.begin()));
      for (const std::uint32_t j : more_) {
        tally_->add_victim(j);
        set_.push_back(j);
        for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a)
          if (in_root(a)) known[unit_of_[allocations_[a].node] - first_unit_] = 0;
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
    const auto [first, last] = levels_->nodes(at_, u);
    for (std::uint32_t n = first; n < last; ++n) {
      std::uint64_t cost = 0;
      for (const auto& i : cells_.on(n))
        if (!cells_.evicted(i.candidate)) cost += candidates_[i.candidate].cost;
      by_cost_.push_back({cost, n});
      work_ += 1 + cells_.on(n).size();
    }
    keyed_number::sort(by_cost_);
    const std::uint32_t before = cells_.capacity(at_, u);
    std::uint64_t cost = 0;
    for (const keyed_number& k : by_cost_) {
      if (cells_.capacity(at_, u) > before) return cost;
      for (const auto& i : cells_.on(k.number)) {
        if (cells_.evicted(i.candidate)) continue;
        cells_.set_evicted(i.candidate, true);
        more_.push_back(i.candidate);
        cost += candidates_[i.candidate].cost;
      }
    }
    return cells_.capacity(at_, u) > before ? cost : never;
  }

  // Replaces a victim of the best set by a cheaper gang in the same units, again and again. Stops
  // if no more than `reserve` is left of the budget.
  void exchange_victims(std::uint64_t reserve) {
    for (bool cheaper = !victims_.empty(); cheaper;) {
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
    begin_root(best_root_);
    more_.clear();
    for (std::uint32_t a = candidates_[victim].first; a < candidates_[victim].last; ++a)
      if (in_root(a)) more_.push_back(unit_of_[allocations_[a].node]);
    sort_unique(more_);
    for (const std::uint32_t j : victims) cells_.set_evicted(j, j != victim);
    by_cost_.clear();
    for (const std::uint32_t u : more_) {
      const auto [first, last] = levels_->nodes(at_, u);
      for (std::uint32_t n = first; n < last; ++n) {
        for (const auto& i : cells_.on(n))
          if (!cells_.evicted(i.candidate) &&
              candidates_[i.candidate].cost < candidates_[victim].cost)
            by_cost_.push_back({candidates_[i.candidate].cost, i.candidate});
        work_ += 1 + cells_.on(n).size();
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

  static constexpr std::uint32_t tries_of_solving = 16;
  static constexpr std::uint64_t few_evictions = 512;
  static constexpr std::size_t max_starts = 12;

  disruption_tally* tally_ = nullptr;
  lean_vector<full_keys> now_;  // of changed units
  lean_vector<std::uint32_t> changed_;
  std::size_t several_ = 0;           // which key counts
  lean_vector<keyed_number> by_key_;  // a heap of the units of the root
  lean_vector<keyed_number> later_;   // not looked at before the next step is taken
  lean_vector<keyed_number> by_cost_;
  lean_vector<std::uint32_t> protected_;
  lean_vector<std::uint32_t> more_;
  lean_vector<std::uint64_t> cost_of_unit_;
  incremental_sort cheapest_;
  lean_vector<std::uint32_t> set_;
  lean_vector<std::uint32_t> minimal_;
  lean_vector<std::uint32_t> victims_;
  std::uint64_t cost_ = never;
  std::uint32_t best_root_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
