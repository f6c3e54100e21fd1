// apiary/preempt/detail/simple_victim_sets.h - sets of victims as a host would choose them by hand.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/preempt/detail/group_victim_sets.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Finds more sets of victims: emptied nodes, and the best set with one gang exchanged. They are
// cheaper than all others on a few loads in a thousand.
// Cost: emptied nodes O(nodes + allocations) of the root, and of each unit that changes; an exchange
//       O(nodes + allocations) of the units of the gang, and O(victims).
class simple_victim_sets : protected group_victim_sets {
 protected:
  // Empties one node after the other, the cheapest node of a unit first, until the unit holds a step
  // more: each time in the unit where that costs least. When the tasks fit, continues as try_set().
  // Stops if no more than `reserve` is left of the budget.
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

  // Replaces a victim of the best set by a cheaper gang in the same units, again and again. Stops if
  // no more than `reserve` is left of the budget.
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

 private:
  // Evicts the gangs of nodes of the unit until it holds a step more, and lists them in more_. Returns
  // their cost; `never` if the unit does not hold a step more then.
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
};

}  // namespace detail
APIARY_NAMESPACE_END
