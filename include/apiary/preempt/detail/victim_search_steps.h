// apiary/preempt/detail/victim_search_steps.h - the steps that both victim searches have in common.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/preempt/detail/disruption_tally.h>
#include <apiary/preempt/detail/incremental_sort.h>
#include <apiary/preempt/victim_set.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Decides for one gang after the other, in the given order, whether it is evicted. A gang is
// reprieved first, if the new gang still fits with all undecided gangs evicted; then it is evicted.
// Sets that cost as much as the best set so far, or exceed a disruption budget, are left out.
//
// The caller passes a problem, which decides what fits and keeps the sets that are found. When the
// search begins, all gangs are evicted and the new gang fits.
//   problem.cost_to_beat() -> std::uint64_t  only sets that cost less are of use; 0: no set is
//   problem.pay() -> bool                    whether one more gang may be tried
//   problem.reprieve(k) -> fit_verdict       gang k keeps running; whether the new gang still fits
//   problem.evict(k)                         undoes reprieve(k)
//   problem.add_victim(k) -> bool            gang k is a victim; whether all budgets still hold
//   problem.remove_victim(k)                 undoes add_victim(k)
//   problem.keep()                           the new gang fits; no set so far costs less
// Cost: the calls of the problem, and O(1) for each step. Memory: 1 byte for each gang.
class branch_and_bound {
 public:
  // False if the budget ended, for the search or a verdict: then a set may cost less than the best.
  template <class Problem>
  bool operator()(Problem&& problem, std::span<const std::uint64_t> costs) {
    reprieved_.assign(costs.size(), 0);
    bool certain = true;
    std::uint64_t cost = 0;
    std::size_t k = 0;  // gangs decided
    bool within = true;
    while (true) {
      for (; within && cost < problem.cost_to_beat() && k < costs.size(); ++k) {
        if (!problem.pay()) return false;
        const fit_verdict verdict = problem.reprieve(k);
        reprieved_[k] = verdict == fit_verdict::fits ? 1 : 0;
        if (verdict == fit_verdict::fits) continue;
        certain = certain && verdict == fit_verdict::does_not_fit;
        problem.evict(k);
        cost += costs[k];
        within = problem.add_victim(k);
      }
      if (within && cost < problem.cost_to_beat()) problem.keep();
      // Back to the last gang that is reprieved: now it is evicted.
      for (; k > 0 && reprieved_[k - 1] == 0; --k) {
        cost -= costs[k - 1];
        problem.remove_victim(k - 1);
      }
      if (k == 0) return certain;
      problem.evict(k - 1);
      reprieved_[k - 1] = 0;
      cost += costs[k - 1];
      within = problem.add_victim(k - 1);
    }
  }

 private:
  lean_vector<unsigned char> reprieved_;  // of the gangs decided
};

// The base of victim_search and topology_victim_search. It keeps the best set of victims so far,
// reprieves victims that are not needed, and runs branch and bound, within one budget of steps.
// Evictions (eviction_state or eviction_trial) records which candidates are evicted:
//   evictions.evict(j)            evicts candidate j and lists it in tried()
//   evictions.set_evicted(j, to)  changes a listed candidate, and leaves the list as it is
//   evictions.evicted(j) -> bool
//   evictions.tried()             candidates evicted since reprieve_all(); some may be reprieved
//   evictions.reprieve_all()      no candidate is evicted
//   evictions.work()              operations so far
template <class Evictions>
class victim_search_steps {
 protected:
  static constexpr std::uint64_t set_steps = 200;  // the steps that one set of victims counts as
  static constexpr std::uint64_t never = victim_set::never;
  // Candidates, their allocations and nodes that are read in a step, and how many of them are read
  // with any budget.
  static constexpr std::uint64_t read_in_a_step = 48;
  static constexpr std::uint64_t free_entries = 16'384;
  // Operations on evictions, of at most some tens of nanoseconds.
  static constexpr std::uint64_t work_in_a_step = 48;
  static constexpr std::uint64_t groups_in_a_step = 256;  // of disruption budgets

  explicit victim_search_steps(std::uint64_t budget) noexcept : budget_(budget) {}

  // Reading takes half of the budget, or what `free_entries` take.
  [[nodiscard]] static constexpr bool can_read(std::uint64_t entries,
                                               std::uint64_t budget) noexcept {
    return entries <= free_entries || (entries - free_entries) / (read_in_a_step / 2) <= budget;
  }
  // Counts what a search would read: nodes, candidates, and the allocations of the candidates.
  // Returns whether the budget pays for it.
  [[nodiscard]] bool count_entries(std::size_t nodes,
                                   std::span<const eviction_candidate> candidates) noexcept {
    entries_ = std::uint64_t{nodes} + candidates.size();
    if (!can_read(entries_, budget_)) return false;
    for (const eviction_candidate& c : candidates) entries_ += c.last - c.first;
    return can_read(entries_, budget_);
  }
  void begin(std::span<const eviction_candidate> candidates,
             std::span<const gpus_on_node> allocations, const disruption_budgets& budgets,
             std::uint64_t cost_limit) {
    candidates_ = candidates;
    allocations_ = allocations;
    cost_limit_ = cost_limit;
    tally_.begin(budgets, candidates, allocations);
    victims_.clear();
    cost_ = 0;
    bound_ = 0;
    steps_ = unpaid_ = settled_ = orders_ = 0;
    spend(budgets.max.size() / groups_in_a_step);
  }
  [[nodiscard]] victim_set answer(fit_verdict verdict) const noexcept {
    return {.verdict = verdict,
            .victims = victims_,
            .cost = cost_,
            .lower_bound = bound_,
            .steps = steps_};
  }
  [[nodiscard]] std::uint64_t left() const noexcept { return budget_ - steps_; }
  // Counts steps that are taken even if the budget has ended. They are few then, see in_debt().
  void spend(std::uint64_t steps) noexcept {
    const std::uint64_t paid = (std::min)(steps, left());
    steps_ += paid;
    unpaid_ += steps - paid;
  }
  // Counts entries that are read.
  void spend_reading(std::uint64_t entries) noexcept { spend(entries / read_in_a_step); }
  // Whether more steps were taken after the end of the budget than `free_entries` take.
  [[nodiscard]] bool in_debt() const noexcept { return unpaid_ > free_entries / read_in_a_step; }
  // Counts the work on evictions and orders since begin(), and `more`, if it has not been counted
  // yet.
  void settle(std::uint64_t more = 0) noexcept {
    orders_ += cheapest_.take_work();
    const std::uint64_t steps = (evictions_.work() + orders_ + more) / work_in_a_step;
    if (steps <= settled_) return;
    spend(steps - settled_);
    settled_ = steps;
  }
  [[nodiscard]] bool pay_for_set() noexcept {
    if (left() < set_steps) return false;
    steps_ += set_steps;
    return true;
  }
  [[nodiscard]] std::uint64_t cost_to_beat() const noexcept {
    return (std::min)(cost_, cost_limit_);
  }
  void sort_most_expensive_first(lean_vector<std::uint32_t>& candidates) const {
    lean_vector<keyed_number> by_cost;
    for (const std::uint32_t j : candidates) by_cost.push_back({~candidates_[j].cost, j});
    keyed_number::sort(by_cost);
    for (std::size_t i = 0; i < candidates.size(); ++i) candidates[i] = by_cost[i].number;
  }
  // Reprieves evicted candidates that are not needed, the most expensive first; then keep().
  template <class Verdict>
  void reprieve_and_keep(const Verdict& verdict) {
    set_.clear();
    for (const std::uint32_t j : evictions_.tried())
      if (evictions_.evicted(j)) set_.push_back(j);
    sort_most_expensive_first(set_);
    for (const std::uint32_t j : set_) {
      evictions_.set_evicted(j, false);
      if (verdict() != fit_verdict::fits) evictions_.set_evicted(j, true);
    }
    keep();
  }
  // Keeps the evicted candidates if no set so far costs less or as much.
  void keep() {
    std::uint64_t cost = 0;
    set_.clear();
    for (const std::uint32_t j : evictions_.tried()) {
      if (!evictions_.evicted(j)) continue;
      cost += candidates_[j].cost;
      set_.push_back(j);
    }
    keep_set(cost);
  }
  // The same for the candidates in set_, which cost this much.
  void keep_set(std::uint64_t cost) {
    if (cost >= cost_) return;
    cost_ = cost;
    victims_ = set_;
    merge_sort(victims_);
  }
  // Whether the budget allows one set for each candidate.
  [[nodiscard]] bool affords_sets(std::size_t candidates) const noexcept {
    return candidates <= left() / set_steps;
  }
  // Branch and bound over the candidates in order_, the most expensive first; all of them must be
  // enough. Returns whether it is certain that no set costs less. Leaves candidates evicted.
  template <class Verdict>
  bool branch(const Verdict& verdict) {
    costs_.clear();
    tally_.clear();
    for (const std::uint32_t j : order_) {
      evictions_.evict(j);
      costs_.push_back(candidates_[j].cost);
    }
    return search_(branches<Verdict>{*this, verdict}, costs_);
  }

  std::uint64_t budget_;
  std::uint64_t steps_ = 0;
  std::uint64_t unpaid_ = 0;   // steps that were taken after the end of the budget
  std::uint64_t entries_ = 0;  // by count_entries()
  std::uint64_t settled_ = 0;  // steps of the work that settle() has counted
  std::uint64_t orders_ = 0;   // work of cheapest_
  std::uint64_t cost_limit_ = never;
  std::span<const eviction_candidate> candidates_;
  std::span<const gpus_on_node> allocations_;
  Evictions evictions_;
  disruption_tally tally_;
  incremental_sort cheapest_;
  lean_vector<std::uint32_t> set_;
  lean_vector<std::uint32_t> order_;  // of branch and bound
  lean_vector<std::uint32_t> victims_;
  std::uint64_t cost_ = 0;
  std::uint64_t bound_ = 0;

 private:
  // The problem that branch_and_bound solves.
  template <class Verdict>
  struct branches {
    victim_search_steps& in;
    const Verdict& verdict;
    [[nodiscard]] std::uint64_t cost_to_beat() const {
      return in.cost_to_beat() <= in.bound_ ? 0 : in.cost_to_beat();
    }
    bool pay() { return in.pay_for_set(); }
    fit_verdict reprieve(std::size_t k) {
      in.evictions_.set_evicted(in.order_[k], false);
      return verdict();
    }
    void evict(std::size_t k) { in.evictions_.set_evicted(in.order_[k], true); }
    bool add_victim(std::size_t k) { return in.tally_.add_victim(in.order_[k]); }
    void remove_victim(std::size_t k) { in.tally_.remove_victim(in.order_[k]); }
    void keep() { in.keep(); }
  };

  branch_and_bound search_;
  lean_vector<std::uint64_t> costs_;  // of the candidates in order_
};

}  // namespace detail
APIARY_NAMESPACE_END
