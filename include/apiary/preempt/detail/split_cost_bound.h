// apiary/preempt/detail/split_cost_bound.h - a lower bound of victims, with costs split among cells.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/detail/cell_evictions.h>
#include <apiary/preempt/detail/eviction_levels.h>
#include <apiary/preempt/detail/gang_count_bound.h>
#include <apiary/preempt/victim_set.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A lower bound on the cost of victims for one group of tasks in one cell, the root. The root is
// divided into units: the cells of the highest level below it that has slices or anti-affinity,
// otherwise the cells directly above the nodes. The cost of a gang in several units is split among
// them. Then the units are independent, and dynamic programming over them gives the bound. If costs
// are shifted to the units that the solution uses, the bound is often greater.
//
// Model: Lagrangian decomposition (Guignard, Kim 1987); here half of a cost is shifted at a time.
// Cost:  begin O(nodes + allocations + candidates); solve_split solves units in ascending order of
//        cheap bounds, and only as many as needed, within the budget.
class split_cost_bound {
 protected:
  static constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  static constexpr std::uint64_t of_slices = 2;    // operations of a step if units hold slices
  static constexpr std::uint32_t few_tries = 256;  // units looked at for each that is taken
  // The least cost of a step, with costs in full, if `steps` steps are freed together; if `steps`
  // is 0, a lower bound on that cost.
  struct full_key {
    std::uint64_t key = 0;
    std::uint32_t steps = 0;
    bool tight = false;  // the bound has been computed for the unit, not from split costs
    friend bool operator==(const full_key&, const full_key&) = default;
  };
  using full_keys = std::array<full_key, 2>;  // of one step alone, and of several
  struct unit {
    std::uint64_t rate = 0;             // split: a lower bound on the cost of one step more
    full_keys key{};                    // while no gang is evicted
    std::uint32_t possible = 0;         // at most so many steps more
    bool solved = false;                // split: `cost` is valid
    bool changed = false;               // victims have allocations there
    lean_vector<std::uint64_t> cost{};  // split: of so many steps more than now
  };
  // Begins with no gang evicted. bounds_ has a cheap lower bound for each cell of the root level,
  // `never` where the tasks do not fit whatever is evicted. `budget`: steps from now on.
  void begin(const eviction_levels& levels, std::span<const std::uint32_t> free,
             std::span<const resources> hosts, std::span<const eviction_candidate> candidates,
             std::span<const gpus_on_node> allocations, std::span<const resources> freed,
             std::uint64_t budget) {
    levels_ = &levels;
    candidates_ = candidates;
    allocations_ = allocations;
    cells_.begin(levels, free, hosts, candidates, allocations, freed);
    cells_.limit_work(never);
    work_ = 0;
    has_set_ = false;
    choose_unit_level();
    begin_units();
    bounds_.clear();
    for (std::uint32_t r = 0; r < levels.num_cells(levels.root()); ++r)
      bounds_.push_back(cells_.most_capacity(r) < levels.tasks ? never : first_bound(r));
    by_count_.begin(candidates);
    begun_ = work();
    of_step_ = step() > 1 ? of_slices : 1;
    budget_ = (std::min)(budget, never / of_step_) * of_step_;
    limit_tables();
  }
  // Tables end with the budget.
  void limit_tables() noexcept {
    const std::uint64_t now = cells_.work();
    cells_.limit_work(work_left() < never - now ? now + work_left() : never);
  }
  // A lower bound raised to what so many gangs cost.
  [[nodiscard]] std::uint64_t raised(std::uint64_t bound) {
    bound = by_count_(bound);
    work_ += by_count_.take_work();
    return bound;
  }
  // Tasks of one step of a unit.
  [[nodiscard]] std::uint32_t step() const noexcept { return levels_->levels[at_].step; }
  // The steps of the budget so far.
  [[nodiscard]] std::uint64_t steps() const noexcept {
    return used() / of_step_ + (used() % of_step_ != 0 ? 1 : 0);
  }
  [[nodiscard]] bool ended() const noexcept { return work_left() == 0; }
  // Operations until the end: four for each step before the first set is known.
  [[nodiscard]] std::uint64_t work_left() const noexcept {
    const std::uint64_t times = has_set_ ? 1 : 4 / of_step_;
    const std::uint64_t most = (std::min)(budget_, never / times) * times;
    return most - (std::min)(work() - begun_, most);
  }
  [[nodiscard]] std::uint64_t used() const noexcept { return (std::min)(work() - begun_, budget_); }
  [[nodiscard]] std::uint64_t left() const noexcept { return budget_ - used(); }

  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> units_of(std::uint32_t root) const {
    std::uint32_t first = root;
    std::uint32_t last = root + 1;
    for (std::size_t h = levels_->root(); h > at_; --h) {
      first = levels_->levels[h].first[first];
      last = levels_->levels[h].first[last];
    }
    return {first, last};
  }
  // How many steps the root cell lacks.
  [[nodiscard]] std::uint32_t missing(std::uint32_t root) const {
    const std::uint64_t now = cells_.unlimited_capacity(levels_->root(), root);
    const std::uint64_t had = at_ == levels_->root() ? now - now % step() : now;
    return had >= levels_->tasks ? 0 : static_cast<std::uint32_t>((levels_->tasks - had) / step());
  }
  void begin_root(std::uint32_t root) {
    root_ = root;
    const auto [first, last] = units_of(root);
    first_unit_ = first;
    last_unit_ = last;
  }
  // With split costs: the least cost of the missing steps, and in chosen_ its victims.
  std::uint64_t solve_split(std::uint64_t budget) {
    const std::uint64_t end = work() + budget;
    cells_.count_in_full(false);
    const auto [first, last] = units_of(root_);
    by_rate_.clear();
    for (std::uint32_t u = first; u < last; ++u)
      if (units_[u].rate != never) by_rate_.push_back({units_[u].rate, u});
    keyed_number::make_heap(by_rate_);
    work_ += (last - first) / 32;
    const std::uint32_t needed = missing(root_);
    sum_.assign(1, 0);
    parts_.clear();
    chosen_.clear();
    while (!by_rate_.empty() && !suffices(needed, by_rate_.front().key)) {
      if (work() >= end) return unfinished_bound(needed, by_rate_.front().key);
      const std::uint32_t u = by_rate_.front().number;
      if (!solve_unit(u)) return unfinished_bound(needed, units_[u].rate);
      static_cast<void>(keyed_number::pop(by_rate_));
      if (units_[u].cost.size() < 2) continue;
      if (choices_.size() <= parts_.size()) choices_.emplace_back();
      add_unit(units_[u].cost, needed, choices_[parts_.size()]);
      parts_.push_back(u);
    }
    if (sum_.size() <= needed) return never;
    std::size_t k = needed;
    for (std::size_t i = parts_.size(); i-- > 0;) {
      const std::uint32_t here = choices_[i][k];
      k -= here;
      const std::uint32_t now = cells_.capacity(at_, parts_[i]) / step();
      if (here > 0) cells_.append_evictions(at_, parts_[i], now + here, chosen_);
    }
    return sum_[needed];
  }
  // The table of a unit from its present capacity on. False if the budget has ended.
  [[nodiscard]] bool read_table(std::uint32_t u, lean_vector<std::uint64_t>& cost) {
    limit_tables();
    if (!cells_.table(at_, u, cost)) return false;
    const std::size_t now = (std::min<std::size_t>)(cells_.capacity(at_, u) / step(), cost.size());
    cost.erase_from(std::copy(cost.begin() + now, cost.end(), cost.begin()));
    return true;
  }
  // For each gang with some of its allocations in chosen_: halves the costs of the others and adds
  // these halves to the chosen ones. Returns false if there is no such gang. Requires: chosen_ is
  // sorted.
  bool move_costs() {
    bool moved = false;
    touched_.clear();
    for (std::size_t i = 0; i < chosen_.size();) {
      const std::uint32_t j = cells_.candidate_of(chosen_[i]);
      std::size_t end = i;
      while (end < chosen_.size() && cells_.candidate_of(chosen_[end]) == j) ++end;
      moved = move_costs_of(j, i, end) || moved;
      i = end;
    }
    sort_unique(touched_);
    for (const std::uint32_t u : touched_) refresh_rate(u);
    return moved;
  }

  [[nodiscard]] bool in_root(std::uint32_t a) const noexcept {
    const std::uint32_t u = unit_of_[allocations_[a].node];
    return u >= first_unit_ && u < last_unit_;
  }
  void refresh_units_of(std::uint32_t j) {
    touched_.clear();
    for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a)
      touched_.push_back(unit_of_[allocations_[a].node]);
    sort_unique(touched_);
    for (const std::uint32_t u : touched_) refresh_rate(u);
  }

  const eviction_levels* levels_ = nullptr;
  std::span<const eviction_candidate> candidates_;
  std::span<const gpus_on_node> allocations_;
  cell_evictions cells_;
  gang_count_bound by_count_;
  std::size_t at_ = 0;  // height of the units
  std::uint32_t root_ = 0;
  std::uint32_t first_unit_ = 0;
  std::uint32_t last_unit_ = 0;
  std::vector<unit> units_;
  lean_vector<std::uint32_t> unit_of_;  // of each node
  lean_vector<std::uint64_t> bounds_;
  lean_vector<std::uint32_t> chosen_;  // allocations, of the solution with split costs
  lean_vector<std::uint32_t> touched_;
  std::uint64_t budget_ = 0;   // operations
  std::uint64_t of_step_ = 1;  // operations that a step of the budget pays for
  std::uint64_t begun_ = 0;    // work() then
  bool has_set_ = false;       // a set of victims is known
  std::uint64_t work_ = 0;

 private:
  [[nodiscard]] std::uint64_t work() const noexcept { return work_ + cells_.work(); }
  // Sets the level of the units: the highest one below the root that has limits of its own. If no
  // level has limits, the units are the cells directly above the nodes.
  void choose_unit_level() {
    const auto& at = levels_->levels;
    at_ = levels_->root();
    if (at_ == 1) return;
    for (--at_; at_ > 1; --at_)
      if (at[at_].most != at[at_ + 1].most || at[at_].step != at[at_ - 1].step) return;
  }
  void begin_units() {
    const std::uint32_t n = levels_->num_cells(at_);
    units_.resize(n);
    unit_of_.resize(levels_->num_cells(0));
    for (std::uint32_t u = 0; u < n; ++u) {
      const auto [first, last] = levels_->nodes(at_, u);
      for (std::uint32_t i = first; i < last; ++i) unit_of_[i] = u;
      set_rate(u, [&](std::uint32_t tasks) { return cells_.first_least_cost(at_, u, tasks); });
      units_[u].changed = false;
      units_[u].key.fill({never, 0, false});
      if (units_[u].rate == never) continue;
      const std::uint64_t rate = units_[u].rate >> cells_.scale();
      const std::uint64_t gang = cells_.least_gang() == never ? 0 : cells_.least_gang();
      units_[u].key[0].key = (std::max)(rate, gang);
      units_[u].key[1].key = (std::max)(rate, gang / (std::max)(units_[u].possible, 1U));
    }
  }
  void refresh_rate(std::uint32_t u) {
    set_rate(u, [&](std::uint32_t tasks) { return cells_.least_cost(at_, u, tasks); });
  }
  template <class LeastCost>
  void set_rate(std::uint32_t u, const LeastCost& least_cost) {
    units_[u].solved = false;
    const std::uint32_t now = cells_.capacity(at_, u);
    units_[u].rate = now + step() > levels_->levels[at_].most ? never : least_cost(now + step());
    units_[u].possible = units_[u].rate == never
                             ? 0
                             : levels_->bound(at_, cells_.possible()) / step() - now / step();
  }
  [[nodiscard]] std::uint64_t first_bound(std::uint32_t root) {
    if (at_ == levels_->root())
      return cells_.unscaled(cells_.first_least_cost(at_, root, levels_->tasks));
    const auto [first, last] = units_of(root);
    by_rate_.clear();
    for (std::uint32_t u = first; u < last; ++u)
      if (units_[u].rate != never) by_rate_.push_back({units_[u].rate, u});
    keyed_number::make_heap(by_rate_);
    std::uint64_t bound = 0;
    for (std::uint64_t n = missing(root); n > 0;) {
      if (by_rate_.empty()) return never;
      const keyed_number next = keyed_number::pop(by_rate_);
      const std::uint64_t here = (std::min<std::uint64_t>)(n, units_[next.number].possible);
      if (here > 0 && next.key > (never - 1 - bound) / here) return never - 1;
      bound += here * next.key;
      n -= here;
    }
    return cells_.unscaled(bound);
  }

  // Whether no unit that costs at least `rate` for each step lowers the sum.
  [[nodiscard]] bool suffices(std::uint32_t needed, std::uint64_t rate) {
    if (sum_.size() <= needed) return false;
    work_ += needed;
    for (std::uint32_t k = 0; k < needed; ++k) {
      const std::uint64_t more = sum_[needed] - sum_[k];
      if (more / (needed - k) > rate || (more / (needed - k) == rate && more % (needed - k) != 0))
        return false;
    }
    return true;
  }
  // A lower bound if no unit that is left costs less than `rate` for each step.
  [[nodiscard]] std::uint64_t unfinished_bound(std::uint32_t needed, std::uint64_t rate) const {
    std::uint64_t least = never;
    for (std::size_t k = 0; k < sum_.size() && k <= needed; ++k) {
      const std::uint64_t rest = needed - k;
      if (rest > 0 && rate > (never - 1 - sum_[k]) / rest) continue;
      least = (std::min)(least, sum_[k] + rest * rate);
    }
    return least == never ? 0 : least;
  }
  // False if the budget has ended.
  [[nodiscard]] bool solve_unit(std::uint32_t u) {
    if (!units_[u].solved) units_[u].solved = read_table(u, units_[u].cost);
    return units_[u].solved;
  }
  void add_unit(std::span<const std::uint64_t> part, std::uint32_t needed,
                lean_vector<std::uint32_t>& choice) {
    const std::size_t size = (std::min<std::size_t>)(needed + 1, sum_.size() + part.size() - 1);
    next_.assign(size, never);
    choice.assign(size, 0);
    for (std::uint32_t i = 0; i < part.size(); ++i)
      for (std::size_t k = 0; k < sum_.size() && k + i < size; ++k)
        if (sum_[k] + part[i] < next_[k + i]) {
          next_[k + i] = sum_[k] + part[i];
          choice[k + i] = i;
        }
    work_ += (std::min)(size, sum_.size()) * part.size();
    sum_.swap(next_);
  }
  bool move_costs_of(std::uint32_t j, std::size_t first, std::size_t last) {
    std::uint64_t moved = 0;
    std::size_t k = first;
    for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a) {
      if (k < last && chosen_[k] == a) {
        ++k;
        continue;
      }
      std::uint64_t& cost = cells_.cost_of_allocation(a);
      if (cost == 0 || !in_root(a)) continue;
      const std::uint64_t half = cost - cost / 2;
      cost -= half;
      moved += half;
      touched_.push_back(unit_of_[allocations_[a].node]);
    }
    work_ += candidates_[j].last - candidates_[j].first;
    if (moved == 0) return false;
    for (std::size_t i = first; i < last; ++i) {
      const std::uint64_t each = moved / (last - i);
      cells_.cost_of_allocation(chosen_[i]) += each;
      moved -= each;
      touched_.push_back(unit_of_[allocations_[chosen_[i]].node]);
    }
    return true;
  }
  lean_vector<keyed_number> by_rate_;
  lean_vector<std::uint64_t> sum_;
  lean_vector<std::uint64_t> next_;
  lean_vector<std::uint32_t> parts_;
  std::vector<lean_vector<std::uint32_t>> choices_;
};

}  // namespace detail
APIARY_NAMESPACE_END
