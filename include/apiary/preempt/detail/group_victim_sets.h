// apiary/preempt/detail/group_victim_sets.h - sets of victims for one group of tasks, found greedily.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/preempt/detail/disruption_tally.h>
#include <apiary/preempt/detail/incremental_sort.h>
#include <apiary/preempt/detail/units_by_key.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Finds sets of victims and keeps the cheapest one: from given gangs; the cheapest gangs first; one
// unit after the other, the cheapest first, each gang counted in full once; and from the best set,
// without what it evicts in one unit. No victim in a set can be reprieved, and all budgets hold.
// Cost: the calls of cell_evictions; fill() solves units in ascending order of cheap bounds, and only
//       as many as needed.
class group_victim_sets : protected units_by_key {
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
  // try_set(). Stops if no more than `reserve` is left of the budget, and the gangs cost as much as the
  // best set or are more than the budget allows.
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
  // tasks fit; then continues as try_set(). `several`: takes several steps of a unit together if that
  // costs less for each step; otherwise one step at a time. The unit `first` comes first, and
  // `without` is left out. Before it takes the cheapest step so far, it computes better bounds for at
  // most max_tries units; a unit that it solves counts as tries_of_solving.
  void fill(bool several, std::uint32_t first, std::uint32_t without, std::uint32_t max_tries) {
    cells_.count_in_full(true);
    tally_->clear();
    without_ = without;
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
    begin_units_by_key();
    later_.clear();
    if (first != none) take(first, key_of(first).steps);
    while (!fits() && !ended() && take_cheapest(max_tries)) {
    }
    keep_minimal();
    for (const std::uint32_t j : set_) cells_.set_evicted(j, false);
    for (const std::uint32_t j : protected_) cells_.set_protected(j, false);
    for (const std::uint32_t u : changed_) units_[u].changed = false;
  }
  // Evicts what the cheapest step costs. False if no unit has a step more.
  bool take_cheapest(std::uint32_t max_tries) {
    for (const keyed_number& k : later_) keyed_number::push(by_key_, k);
    later_.clear();
    const std::uint32_t needed = several_ != 0 ? missing(root_) : 1;
    keyed_number best{never, 0};
    keyed_number top;
    for (std::uint32_t tries = 0; !ended();) {
      if (tries >= max_tries && best.key != never) break;
      if (!next_unit(top)) break;
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
      } else if (tries < max_tries) {
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
  void evict(std::uint32_t j) {
    cells_.set_evicted(j, true);
    mark_changed(j);
  }
  // A better lower bound of the next step.
  void tighten(std::uint32_t u) {
    mark_refined(u);
    const std::uint32_t now = cells_.capacity(at_, u);
    const std::uint64_t bound = now + step() > levels_->levels[at_].most
                                    ? never
                                    : cells_.least_cost_in_full(at_, u, now + step());
    for (full_key& k : keys_of(u)) k = {(std::max)(k.key, bound), 0, true};
  }
  void solve_in_full(std::uint32_t u, std::uint32_t needed) {
    mark_refined(u);
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
      fill(false, starts[i].number, none, few_tries);
    }
  }
  // Improves the best set, unit by unit, for the units where the set adds capacity. It takes out the
  // gangs of the unit (all, or those that are in no other such unit) and fills the set again, with
  // the unit and without it. It stops when no set is cheaper, or when no more than `reserve` is left
  // of the budget; with the same best set the next call goes on from there.
  void improve(std::uint64_t reserve) {
    if (victims_.empty()) return;
    begin_root(best_root_);
    if (cost_ != improved_.cost || best_root_ != improved_.root) begin_improving();
    while (true) {
      if (improved_.next == improved_.units.size() * changes.size()) {
        if (!improved_.cheaper) return;
        begin_improving();
        continue;
      }
      if (left() <= reserve || bounds_[root_] >= cost_) return;
      const std::size_t i = improved_.next++;
      improve_unit(improved_.units[i / changes.size()], changes[i % changes.size()]);
    }
  }
  // The units that hold more steps once the best set is evicted, ascending.
  void list_filled_units(lean_vector<std::uint32_t>& to) {
    to.clear();
    for (const std::uint32_t j : victims_)
      for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a)
        if (in_root(a)) to.push_back(unit_of_[allocations_[a].node]);
    sort_unique(to);
    more_.clear();
    for (const std::uint32_t u : to) more_.push_back(cells_.capacity(at_, u));
    for (const std::uint32_t j : victims_) cells_.set_evicted(j, true);
    std::size_t filled = 0;
    for (std::size_t i = 0; i < to.size(); ++i)
      if (cells_.capacity(at_, to[i]) >= more_[i] + step()) to[filled++] = to[i];
    to.resize(filled);
    for (const std::uint32_t j : victims_) cells_.set_evicted(j, false);
  }
  [[nodiscard]] bool is_in_another(std::uint32_t j, std::uint32_t u,
                                   const lean_vector<std::uint32_t>& units) const {
    for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a) {
      const std::uint32_t other = unit_of_[allocations_[a].node];
      if (other != u && std::binary_search(units.begin(), units.end(), other)) return true;
    }
    return false;
  }
  [[nodiscard]] bool is_in(std::uint32_t j, std::uint32_t u) const {
    for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a)
      if (unit_of_[allocations_[a].node] == u) return true;
    return false;
  }

  // How improve() changes the best set at a unit.
  struct change {
    bool all = false;      // without all gangs there
    bool several = false;  // as fill()
    bool with = false;     // the unit may be filled again
  };
  void begin_improving() {
    list_filled_units(improved_.units);
    improved_.root = best_root_;
    improved_.cost = cost_;
    improved_.next = 0;
    improved_.cheaper = false;
  }
  void improve_unit(std::uint32_t u, const change& c) {
    set_.clear();
    for (const std::uint32_t j : victims_)
      if (!is_in(j, u) || (!c.all && is_in_another(j, u, improved_.units))) set_.push_back(j);
    if (set_.size() == victims_.size()) return;
    fill(c.several, none, c.with ? none : u, few_tries);
    improved_.cheaper = improved_.cheaper || cost_ < improved_.cost;
    improved_.cost = cost_;
  }

  static constexpr std::array<change, 6> changes{{{false, false, false},
                                                  {false, true, false},
                                                  {true, false, false},
                                                  {true, false, true},
                                                  {true, true, false},
                                                  {true, true, true}}};
  static constexpr std::uint32_t tries_of_solving = 16;
  static constexpr std::uint64_t few_evictions = 512;
  static constexpr std::size_t max_starts = 12;

  // How far improve() has come.
  struct progress {
    std::uint64_t cost = never;  // of the best set then
    std::uint32_t root = none;
    std::size_t next = 0;  // unit and change
    bool cheaper = false;  // since the units were listed
    lean_vector<std::uint32_t> units{};
  };
  progress improved_;

  disruption_tally* tally_ = nullptr;
  lean_vector<keyed_number> later_;  // not looked at before the next step is taken
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
