// apiary/preempt/victim_search.h - the victims of least cost whose eviction lets a gang fit.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/model/request.h>
#include <apiary/preempt/detail/disruption_tally.h>
#include <apiary/preempt/detail/equal_tasks.h>
#include <apiary/preempt/detail/eviction_states.h>
#include <apiary/preempt/detail/incremental_sort.h>
#include <apiary/preempt/detail/slot_bounds.h>
#include <apiary/preempt/detail/unit_tables.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

APIARY_NAMESPACE_BEGIN
namespace detail {

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
  // These candidates are evicted, and that is enough. Reprieves the last ones that are not needed,
  // if more than the first `too_few` are left, by halving the difference.
  template <class Fits>
  void evict_fewer(std::span<const std::uint32_t> in_order, std::size_t too_few, const Fits& fits) {
    std::size_t enough = in_order.size();
    std::size_t now = enough;
    const auto evict_first = [&](std::size_t n) {
      for (; now < n; ++now) evictions_.set_evicted(in_order[now], true);
      for (; now > n; --now) evictions_.set_evicted(in_order[now - 1], false);
    };
    while (too_few + 1 < enough) {
      evict_first(too_few + (enough - too_few) / 2);
      (fits() ? enough : too_few) = now;
    }
    evict_first(enough);
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
  // enough. Decides for one after the other whether it is evicted: it is reprieved first, if the
  // new gang still fits with all undecided ones evicted; then it is evicted. Sets that cost as much
  // as the best set so far, or exceed a disruption budget, are left out. Returns whether it is
  // certain that no set costs less. Leaves candidates evicted.
  template <class Verdict>
  bool branch(const Verdict& verdict) {
    tally_.clear();
    for (const std::uint32_t j : order_) evictions_.evict(j);
    reprieved_.assign(order_.size(), 0);
    bool certain = true;
    bool within = true;
    std::uint64_t cost = 0;
    std::size_t k = 0;  // candidates decided
    const auto is_better = [&] {
      return within && cost < cost_to_beat() && bound_ < cost_to_beat();
    };
    const auto add_victim = [&](std::uint32_t j) {
      evictions_.set_evicted(j, true);
      cost += candidates_[j].cost;
      within = tally_.add_victim(j);
    };
    while (true) {
      for (; is_better() && k < order_.size(); ++k) {
        if (!pay_for_set()) return false;
        evictions_.set_evicted(order_[k], false);
        const fit_verdict found = verdict();
        reprieved_[k] = found == fit_verdict::fits ? 1 : 0;
        if (found == fit_verdict::fits) continue;
        certain = certain && found == fit_verdict::does_not_fit;
        add_victim(order_[k]);
      }
      if (is_better()) keep();
      // Back to the last candidate that is reprieved: now it is evicted.
      for (; k > 0 && reprieved_[k - 1] == 0; --k) {
        cost -= candidates_[order_[k - 1]].cost;
        tally_.remove_victim(order_[k - 1]);
      }
      if (k == 0) return certain;
      reprieved_[k - 1] = 0;
      add_victim(order_[k - 1]);
    }
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
  lean_vector<std::uint32_t> order_;      // of branch and bound
  lean_vector<unsigned char> reprieved_;  // of those in order_ that are decided
  lean_vector<std::uint32_t> victims_;
  std::uint64_t cost_ = 0;
  std::uint64_t bound_ = 0;
};

}  // namespace detail

// Searches the set of running gangs of least total cost whose eviction lets a new gang fit, without
// topology constraints (with them: topology_victim_search). Greedy orders come first, then a
// search within the budget: for equal tasks with bounds of groups of nodes, otherwise branch and
// bound over all candidates (preempt/README.md). The result costs at most as much as evicting the
// cheapest gangs first, none of its victims can be reprieved, and it has a lower bound.
//
// Model:    kube-scheduler, and HiveD (OSDI 2020) section 3.4, take victims greedily, node by node.
// Requires: the candidates cost less than 2^63 in sum; allocations are within the nodes; at most 64
//           GPUs a node and a task. A gang that must not be evicted is no candidate: its GPUs are
//           neither free nor in the allocations.
// Cost:     the budget, and what reading 16,384 entries takes. Entries are nodes, candidates and
//           their allocations; a step pays for 48 that are read, and for about 16 evictions. If the
//           budget does not pay for reading the input (can_read), the search ends with
//           `budget_ended` and has used all steps. If it ends before a greedy order does, there may
//           be no set. There is no branch and bound over all candidates if they are more than the
//           sets that the budget allows.
// Memory:   as topology_victim_search.
// Example:  preempt/README.md; through gang_scheduler examples/least_cost_victims.cpp
class victim_search : detail::victim_search_steps<detail::eviction_state> {
 public:
  // The steps of the budget for each set of victims. Such a step takes about 0.1 microseconds,
  // any step at most about one.
  using victim_search_steps::set_steps;
  // No limit on the cost, or no set of victims.
  using victim_search_steps::never;
  // can_read(entries, budget): whether a budget pays for reading so many nodes, candidates and
  // allocations of candidates together: 24 for each step, and 16,384 more. Reading takes half of
  // these steps.
  using victim_search_steps::can_read;

  // budget: steps for one call; all that the search does counts. gang_fit may take a quarter of
  // what is left for each set. A set that it does not decide counts as too small, and the search
  // then does not raise the lower bound.
  explicit victim_search(std::uint64_t budget = 512 * set_steps) noexcept
      : victim_search_steps(budget) {}
  // Changes the budget of the following calls.
  void set_budget(std::uint64_t budget) noexcept { budget_ = budget; }

  // Searches the victims.
  //   others       nodes without candidates, by free GPUs
  //   free         free GPUs of the other nodes; allocations name these nodes 0, 1, ...
  //   candidates   the gangs that may be evicted
  //   allocations  their GPUs
  //   groups       the task groups of the new gang
  //   cost_limit   the search ends when its lower bound reaches this limit; sets that cost as much
  //                or more are of no use
  //   budgets      the most that each tenant may lose. Greedy orders skip gangs beyond it. If no
  //                order finds a set, the search evicts all candidates and reprieves gangs of
  //                tenants beyond their budgets; it may still find no set.
  victim_set operator()(std::span<const gang_fit::node_class> others,
                        std::span<const std::uint32_t> free,
                        std::span<const eviction_candidate> candidates,
                        std::span<const gpus_on_node> allocations,
                        std::span<const task_group> groups, std::uint64_t cost_limit = never,
                        const disruption_budgets& budgets = {}) {
    if (!count_entries(free.size(), candidates)) {
      begin({}, {}, {}, cost_limit);
      cost_ = never;
      steps_ = budget_;
      return answer(fit_verdict::budget_ended);
    }
    return solve(others, free, candidates, allocations, groups, cost_limit, budgets, true);
  }

 private:
  template <CellTree Tree>
  friend class topology_victim_search;

  static constexpr std::uint32_t max_gpus = detail::eviction_state::max_gpus;
  // Without `fully`, the greedy orders only. Requires: entries_ is what it reads.
  victim_set solve(std::span<const gang_fit::node_class> others,
                   std::span<const std::uint32_t> free,
                   std::span<const eviction_candidate> candidates,
                   std::span<const gpus_on_node> allocations, std::span<const task_group> groups,
                   std::uint64_t cost_limit, const disruption_budgets& budgets, bool fully) {
    begin(candidates, allocations, budgets, cost_limit);
    fully_ = fully;
    work_ = 0;
    spend_reading(entries_);
    free_ = free;
    others_.fill(0);
    for (const gang_fit::node_class& c : others) others_[c.free] += c.nodes;
    groups_.clear();
    for (const task_group& m : groups)
      if (m.tasks > 0 && m.gpus > 0) groups_.push_back(m);
    evictions_.begin(others, free, candidates, allocations, groups_);
    const gang_fit::result possible = pack(evictions_.all_evicted(), left());
    if (possible.verdict != fit_verdict::fits) {
      victim_set none = answer(possible.verdict);
      if (possible.verdict == fit_verdict::does_not_fit) none.shortage = possible.shortage;
      return none;
    }
    const fit_verdict verdict = fits() ? fit_verdict::fits : search();
    settle(work_);
    return answer(verdict);
  }

  // Requires: the gang does not fit now, and fits if all candidates are evicted.
  fit_verdict search() {
    cost_ = never;
    const std::uint64_t sizes =
        1 + left() / (1 + 3 * entries_ / read_in_a_step);  // for which the budget pays
    bound_ = lower_bound_(evictions_, candidates_, sizes);
    spend_reading(3 * entries_ * (std::min<std::uint64_t>)(sizes, evictions_.slots().size()));
    if (bound_ >= cost_limit_) return fit_verdict::fits;
    evict_gangs([&](std::uint32_t j) { return candidates_[j].cost; });
    keep_minimal_if_fits();
    evict_gangs([&](std::uint32_t j) { return evictions_.price(j).cost; });
    keep_minimal_if_fits();
    evict_nodes();
    keep_minimal_if_fits();
    if (cost_ == never) {  // the disruption budgets exclude all of these
      if (lower_bound_.is_short_within_budgets(evictions_, candidates_, allocations_, tally_))
        return fit_verdict::does_not_fit;
      spend_reading(2 * entries_);
      if (!in_debt()) {
        evict_all_within_budgets();
        keep_minimal_if_fits();
      }
    }
    improve();
    if (cost_ == never && bound_ == never) return fit_verdict::does_not_fit;
    return cost_ == never && bound_ < cost_limit_ ? fit_verdict::budget_ended : fit_verdict::fits;
  }
  gang_fit::result pack(const detail::eviction_state::histogram& nodes, std::uint64_t budget) {
    classes_.clear();
    for (std::uint32_t f = 1; f <= max_gpus; ++f)
      if (nodes[f] > 0) classes_.push_back({f, nodes[f]});
    fit_.set_budget(budget);
    const gang_fit::result packed = fit_(classes_, groups_);
    steps_ += packed.steps;
    return packed;
  }
  // The slot counts come first: they mostly say no, and often yes.
  fit_verdict verdict() {
    work_ += 1 + evictions_.slots().size() / 8;
    if (evictions_.is_short_of_slots()) return fit_verdict::does_not_fit;
    if (evictions_.slots_decide()) return fit_verdict::fits;
    work_ += (1 + evictions_.slots().size() / 4) * work_in_a_step;
    settle(work_);
    if (in_debt()) return fit_verdict::budget_ended;
    return pack(evictions_.by_free(), left() / 4).verdict;
  }
  bool fits() { return verdict() == fit_verdict::fits; }
  // Evicts the cheapest candidates within the budgets, until the gang is known to fit. If slots do
  // not decide, it asks after twice as many evictions each time, and then halves the difference.
  template <class Price>
  void evict_gangs(const Price& price) {
    cheapest_.begin(static_cast<std::uint32_t>(candidates_.size()));
    tally_.clear();
    std::size_t too_few = 0;  // so many are not known to be enough
    std::size_t next = 0;     // fits() is asked after so many
    std::size_t gap = 1;
    for (bool evicted = true; !all_tried(); cheapest_.pop()) {
      const std::size_t now = evictions_.tried().size();
      if (evicted && now >= next) {
        if (fits()) break;
        too_few = now;
        gap = evictions_.is_short_of_slots() ? 1 : 2 * gap;
        next = now + gap;
      }
      if (in_debt()) return;
      const keyed_number* const top = cheapest_.top(price);
      if (top == nullptr) return;
      evicted = tally_.try_add_victim(top->number);
      if (evicted) evictions_.evict(top->number);
      settle(work_);
    }
    evict_fewer(evictions_.tried(), too_few, [&] { return fits(); });
  }
  [[nodiscard]] bool all_tried() const noexcept {
    return evictions_.tried().size() == candidates_.size();
  }
  // All candidates, the most expensive first.
  void list_all() {
    order_.clear();
    for (std::uint32_t j = 0; j < candidates_.size(); ++j) order_.push_back(j);
    sort_most_expensive_first(order_);
  }
  // Evicts all candidates; then reprieves those of tenants beyond their budget.
  void evict_all_within_budgets() {
    tally_.clear();
    list_all();
    for (const std::uint32_t j : order_) {
      evictions_.evict(j);
      tally_.add_victim(j);
    }
    for (const std::uint32_t j : order_) {
      if (tally_.within_budgets()) return;
      if (!tally_.over_budget(j)) continue;
      evictions_.set_evicted(j, false);
      if (fits()) {
        tally_.remove_victim(j);
      } else {
        evictions_.set_evicted(j, true);
      }
    }
    if (!tally_.within_budgets()) evictions_.reprieve_all();
  }
  // Empties the nodes with the lowest price for each new slot of the largest size, within the
  // budgets. Gangs that are evicted already cost nothing.
  void evict_nodes() {
    tally_.clear();
    std::uint32_t size = 0;
    for (const auto& s : evictions_.slots()) size = (std::max)(size, s.size);
    for (std::uint32_t f = 0; f <= max_gpus; ++f) slots_of_[f] = f / size;
    const std::span<const detail::eviction_state::node_sums> nodes = evictions_.nodes();
    const auto price_before = [&](std::uint32_t n) {
      const std::uint64_t slots = slots_of_[nodes[n].gpus] - slots_of_[nodes[n].free];
      return slots == 0 ? never : slots == 1 ? nodes[n].cost : nodes[n].cost / slots;
    };
    cheapest_.begin(static_cast<std::uint32_t>(nodes.size()));
    heap_.clear();  // nodes whose price has changed since
    while (!in_debt() && !fits()) {
      const keyed_number* const top = cheapest_.top(price_before);
      if (top == nullptr && heap_.empty()) break;
      const bool changed = !heap_.empty() && (top == nullptr || !(*top < heap_.front()));
      const auto [price, node] = changed ? keyed_number::pop(heap_) : *top;
      if (!changed) cheapest_.pop();
      if (price_of(node) != price) continue;  // the heap has its present price
      if (!add_all_on(node)) continue;
      changed_nodes_.clear();
      evictions_.for_each_on(node, [&](std::uint32_t j, std::uint32_t) {
        if (evictions_.evicted(j)) return;
        evictions_.evict(j);
        for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a)
          changed_nodes_.push_back(allocations_[a].node);
      });
      detail::sort_unique(changed_nodes_);
      for (const std::uint32_t n : changed_nodes_) {
        const std::uint64_t now = price_of(n);
        if (now != never) keyed_number::push(heap_, {now, n});
      }
      settle(work_);
    }
  }
  // Counts all candidates on the node as victims if the budgets allow it; whether they do.
  bool add_all_on(std::uint32_t node) {
    if (tally_.unlimited()) return true;
    const auto count = [&](bool more) {
      evictions_.for_each_on(node, [&](std::uint32_t j, std::uint32_t) {
        if (evictions_.evicted(j)) return;
        more ? static_cast<void>(tally_.add_victim(j)) : tally_.remove_victim(j);
      });
    };
    count(true);
    if (tally_.within_budgets()) return true;
    count(false);
    return false;
  }
  // The cost of emptying a node now, for each new slot of the largest size.
  [[nodiscard]] std::uint64_t price_of(std::uint32_t node) noexcept {
    std::uint64_t cost = 0;
    std::uint32_t freed = evictions_.free(node);
    evictions_.for_each_on(node, [&](std::uint32_t j, std::uint32_t gpus) {
      ++work_;
      if (evictions_.evicted(j)) return;
      cost += candidates_[j].cost;
      freed += gpus;
    });
    const std::uint32_t slots = slots_of_[freed] - slots_of_[evictions_.free(node)];
    return slots == 0 ? never : cost / slots;
  }
  // If the gang fits: keeps the set without victims that are not needed.
  void keep_minimal_if_fits() {
    if (all_tried() || fits()) reprieve_and_keep([&] { return verdict(); });
    evictions_.reprieve_all();
  }
  void improve() {
    settle(work_);
    if (cost_to_beat() <= bound_ || !fully_) return;
    const bool equal = evictions_.slots().size() == 1;
    if (equal && candidates_.size() > few_candidates && left() > 0) search_equal_tasks();
    if (cost_to_beat() <= bound_ || !affords_sets(candidates_.size())) return;
    list_all();
    if (branch([&] { return verdict(); })) bound_ = cost_to_beat();
    evictions_.reprieve_all();
  }

  // All tasks have the same GPUs.
  void search_equal_tasks() {
    spend_reading(entries_);
    const std::uint32_t gpus = groups_[0].gpus;
    std::uint64_t tasks = 0;
    for (const task_group& m : groups_) tasks += m.tasks;
    for (std::uint32_t f = gpus; f <= max_gpus; ++f) tasks -= others_[f] * (f / gpus);
    levels_.assign(static_cast<std::uint32_t>(free_.size()), gpus,
                   static_cast<std::uint32_t>(tasks));
    const auto found = equal_tasks_(levels_, free_, {}, candidates_, allocations_, {}, tally_,
                                    cost_to_beat(), left());
    spend(found.steps);
    bound_ = (std::max)(bound_, found.lower_bound);
    if (found.cost >= cost_to_beat()) return;
    set_.assign(found.victims);
    keep_set(found.cost);
  }

  static constexpr std::size_t few_candidates = 32;

  gang_fit fit_;
  std::span<const std::uint32_t> free_;               // of the nodes that allocations name
  std::array<std::uint64_t, max_gpus + 1> others_{};  // nodes without candidates, by free GPUs
  detail::eviction_levels levels_;
  detail::group_victim_search equal_tasks_;
  detail::lean_vector<task_group> groups_;  // those with tasks and GPUs
  detail::victim_lower_bound lower_bound_;
  std::array<std::uint32_t, max_gpus + 1> slots_of_{};  // slots of the largest size, by GPUs
  detail::lean_vector<keyed_number> heap_;
  detail::lean_vector<std::uint32_t> changed_nodes_;
  detail::lean_vector<gang_fit::node_class> classes_;
  std::uint64_t work_ = 0;
  bool fully_ = true;
};
APIARY_NAMESPACE_END
