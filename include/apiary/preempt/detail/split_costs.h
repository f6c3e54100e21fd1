// apiary/preempt/detail/split_costs.h - a lower bound of victims, with costs split among cells.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/preempt/detail/node_evictions.h>
#include <apiary/preempt/detail/unit_tables.h>
#include <apiary/preempt/victim_set.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Splits the cost of each gang among its allocations, so that each cell has a lower bound of its
// own on the cost of evictions there, and the bounds of several cells can be added.
// Requires: as group_capacity.
// Cost:     begin O(nodes + allocations + candidates); least_cost O(nodes of the cell + their
//           allocations).
class group_costs {
 public:
  // Right after in.begin().
  void begin(group_capacity& in) {
    in_ = &in;
    split_costs();
  }
  [[nodiscard]] std::span<const std::uint64_t> costs() const noexcept { return split_; }
  // The cost of a gang that is counted with this allocation, times 2^scale().
  [[nodiscard]] std::uint64_t& cost_of_allocation(std::uint32_t a) noexcept { return split_[a]; }
  [[nodiscard]] std::uint32_t scale() const noexcept { return scale_; }
  // After least_cost(): the most tasks that the cell may hold after evictions.
  [[nodiscard]] std::uint64_t possible() const noexcept { return possible_; }
  // A lower bound, with split costs, on what one more step of tasks costs in the cell: the cheapest
  // tasks of all its nodes. `tasks`: how many tasks the cell must hold.
  [[nodiscard]] std::uint64_t least_cost(std::size_t h, std::uint32_t c, std::uint32_t tasks) {
    const auto [first, last] = in_->levels().nodes(h, c);
    prices_.clear();
    std::uint64_t present = 0;
    for (std::uint32_t n = first; n < last; ++n) present += list_prices(n);
    possible_ = present + prices_.size();
    in_->add_work(last - first + prices_.size());
    if (present >= tasks) return 0;
    const std::uint64_t missing = tasks - present;
    if (prices_.size() < missing) return never;
    const auto end = prices_.begin() + static_cast<std::ptrdiff_t>(missing);
    if (missing == 1) return *std::min_element(prices_.begin(), prices_.end());
    if (end != prices_.end()) std::nth_element(prices_.begin(), end, prices_.end());
    std::uint64_t sum = 0;
    for (auto p = prices_.begin(); p != end; ++p) sum += *p;
    return sum;
  }
  // Without the factor 2^scale(), rounded up.
  [[nodiscard]] std::uint64_t unscaled(std::uint64_t cost) const noexcept {
    if (cost == never) return never;
    return (cost >> scale_) + ((cost & ((1ULL << scale_) - 1)) != 0 ? 1 : 0);
  }

 private:
  static constexpr std::uint64_t never = group_capacity::never;
  using item = group_capacity::item;
  // Most divisors are powers of two: a shift takes a tenth of the time of a division.
  [[nodiscard]] static constexpr std::uint64_t quotient(std::uint64_t a, std::uint64_t b) noexcept {
    return (b & (b - 1)) == 0 ? a >> std::countr_zero(b) : a / b;
  }

  // Splits the cost of each gang among its allocations in a root cell, by GPUs; only allocations
  // where evictions add capacity count.
  void split_costs() {
    std::uint64_t sum = 1;
    for (const eviction_candidate& c : in_->candidates()) sum += c.cost;
    scale_ = static_cast<std::uint32_t>((std::max)(std::countl_zero(sum), 2) - 2);
    split_.resize(in_->allocations().size());
    lean_vector<std::uint64_t> weight_in(in_->levels().num_cells(in_->levels().root()));
    for (const eviction_candidate& c : in_->candidates()) {
      const auto each = [&](const auto& use) {
        for (std::uint32_t a = c.first; a < c.last; ++a) {
          use(a, weight_in[in_->root_of(in_->allocations()[a].node)], weight_of(a));
        }
      };
      each([](std::uint32_t, std::uint64_t& in, std::uint32_t weight) { in += weight; });
      each([&](std::uint32_t a, std::uint64_t in, std::uint32_t weight) {
        split_[a] = weight == 0 ? 0 : quotient(c.cost << scale_, in) * weight;
      });
      // The first allocation in each root cell has the remainder.
      each([&](std::uint32_t a, std::uint64_t& in, std::uint32_t weight) {
        if (weight == 0) return;
        if (in != 0) split_[a] += (c.cost << scale_) - quotient(c.cost << scale_, in) * in;
        in = 0;
      });
    }
  }
  // Zero where no eviction adds capacity.
  [[nodiscard]] std::uint32_t weight_of(std::uint32_t a) const noexcept {
    const auto [n, gpus] = in_->allocations()[a];
    return in_->most_on(n) > in_->tasks_on(n) ? (std::max)(gpus, 1U) : 0;
  }
  // Appends lower bounds of the costs of each task that a node may hold more. Returns how many
  // tasks it holds.
  std::uint32_t list_prices(std::uint32_t n) {
    const std::uint32_t present = in_->tasks_on(n);
    if (in_->most_on(n) == present) return present;
    const std::uint64_t free = in_->amounts(n).gpus;
    node_amounts all = in_->amounts(n);
    std::uint64_t cost_of_all = 0;       // of the gangs that have GPUs there
    std::uint64_t least = never;         // of one gang
    std::uint64_t least_of_gpu = never;  // of one GPU
    for (const item& i : in_->on(n)) {
      if (!in_->running(i.candidate)) continue;
      all += in_->freed_by(i);
      const std::uint64_t cost = split_[i.allocation];
      least = (std::min)(least, cost);
      if (i.gpus == 0) continue;
      cost_of_all += cost;
      least_of_gpu = (std::min)(least_of_gpu, quotient(cost, i.gpus));
    }
    in_->add_work(in_->on(n).size());
    const std::uint32_t most = in_->node_capacity(all);
    const auto cost_of_tasks = [&](std::uint64_t tasks) {
      const std::uint64_t needs = tasks * in_->task().gpus;
      if (needs == all.gpus) return (std::max)(cost_of_all, least);
      return needs <= free ? least : (std::max)(least_of_gpu * (needs - free), least);
    };
    if (most == present + 1) {
      prices_.push_back(cost_of_tasks(most));
      return present;
    }
    of_tasks_.assign(1, 0);
    for (std::uint32_t k = present + 1; k <= most; ++k)
      of_tasks_.push_back((std::max)(cost_of_tasks(k), of_tasks_.back()));
    // The cheapest tasks of all nodes are a bound only if no task costs less than the one before.
    for (std::size_t i = 0; i + 1 < of_tasks_.size();) {
      std::size_t best = i + 1;
      std::uint64_t price = of_tasks_[best] - of_tasks_[i];
      for (std::size_t k = i + 2; k < of_tasks_.size(); ++k)
        if ((of_tasks_[k] - of_tasks_[i]) / (k - i) <= price) {
          best = k;
          price = (of_tasks_[k] - of_tasks_[i]) / (k - i);
        }
      prices_.append(best - i, price);
      i = best;
    }
    return present;
  }

  group_capacity* in_ = nullptr;
  std::uint32_t scale_ = 0;
  std::uint64_t possible_ = 0;
  lean_vector<std::uint64_t> split_;     // of each allocation
  lean_vector<std::uint64_t> prices_;    // of tasks
  lean_vector<std::uint64_t> of_tasks_;  // of one node: the cost of so many tasks more
};

// A lower bound on the cost of victims for one group of tasks in one cell, the root. The root is
// divided into units: the cells of the highest level below it that has slices or anti-affinity,
// otherwise the cells directly above the nodes. The cost of a gang in several units is split among
// them. Then the units are independent, and dynamic programming over them gives the bound. If costs
// are shifted to the units that the solution uses, the bound is often greater.
//
// Model: Lagrangian decomposition (Guignard, Kim 1987); here half of a cost is shifted at a time.
// Cost:  begin O(nodes + allocations + candidates); solve_split solves units in ascending order of
//        cheap bounds, and only as many as needed, within the budget.
class split_costs {
 public:
  struct unit {
    std::uint64_t rate = 0;             // a lower bound on the cost of one step more
    std::uint32_t possible = 0;         // at most so many steps more
    bool solved = false;                // `cost` is valid
    lean_vector<std::uint64_t> cost{};  // of so many steps more than now
  };
  // Begins with no gang evicted, right after cells.begin().
  void begin(group_capacity& cells) {
    cells_ = &cells;
    levels_ = &cells.levels();
    candidates_ = cells.candidates();
    allocations_ = cells.allocations();
    costs_.begin(cells);
    tables_.begin(cells, costs_.costs());
    choose_unit_level();
    begin_units();
    bounds_.clear();
    for (std::uint32_t r = 0; r < levels_->num_cells(levels_->root()); ++r)
      bounds_.push_back(cells.most_capacity(r) < levels_->tasks ? never : first_bound(r));
  }
  // Tables end where cells.work() would exceed this number.
  void limit_work(std::uint64_t most) noexcept { tables_.limit_work(most); }
  // A cheap lower bound for each cell of the root level, `never` where the tasks do not fit
  // whatever is evicted.
  [[nodiscard]] std::span<std::uint64_t> bounds() noexcept { return bounds_; }
  // Tasks of one step of a unit.
  [[nodiscard]] std::uint32_t step() const noexcept { return levels_->levels[at_].step; }
  // How many steps the root cell lacks.
  [[nodiscard]] std::uint32_t missing(std::uint32_t root) const {
    const std::uint64_t now = cells_->unlimited_capacity(levels_->root(), root);
    const std::uint64_t had = at_ == levels_->root() ? now - now % step() : now;
    return had >= levels_->tasks ? 0 : static_cast<std::uint32_t>((levels_->tasks - had) / step());
  }
  // The following calls are for this root cell.
  void begin_root(std::uint32_t root) {
    root_ = root;
    std::tie(first_unit_, last_unit_) = units_of(root);
  }
  [[nodiscard]] std::uint32_t root() const noexcept { return root_; }
  // Its units: from the first up to, without, the last.
  [[nodiscard]] std::uint32_t first_unit() const noexcept { return first_unit_; }
  [[nodiscard]] std::uint32_t last_unit() const noexcept { return last_unit_; }
  [[nodiscard]] const unit& operator[](std::uint32_t u) const noexcept { return units_[u]; }
  [[nodiscard]] std::uint32_t unit_of(std::uint32_t node) const noexcept { return unit_of_[node]; }
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> nodes_of(std::uint32_t u) const noexcept {
    return levels_->nodes(at_, u);
  }
  [[nodiscard]] std::uint32_t capacity(std::uint32_t u) const noexcept {
    return cells_->capacity(at_, u);
  }
  [[nodiscard]] bool can_hold_more(std::uint32_t u) const noexcept {
    return capacity(u) + step() <= levels_->levels[at_].most;
  }
  // The cost of a gang that is counted with this allocation, times a power of two.
  [[nodiscard]] std::uint64_t cost_of_allocation(std::uint32_t a) noexcept {
    return costs_.cost_of_allocation(a);
  }
  // Without that factor, rounded up.
  [[nodiscard]] std::uint64_t unscaled(std::uint64_t cost) const noexcept {
    return costs_.unscaled(cost);
  }
  // With split costs: the least cost of the missing steps, and in chosen() its victims.
  std::uint64_t solve_split(std::uint64_t budget) {
    const std::uint64_t end = cells_->work() + budget;
    list_by_rate(first_unit_, last_unit_);
    cells_->add_work((last_unit_ - first_unit_) / 32);
    const std::uint32_t needed = missing(root_);
    sum_.assign(1, 0);
    parts_.clear();
    chosen_.clear();
    while (!by_rate_.empty() && !suffices(needed, by_rate_.front().key)) {
      if (cells_->work() >= end) return unfinished_bound(needed, by_rate_.front().key);
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
      const std::uint32_t now = capacity(parts_[i]) / step();
      if (here > 0) tables_.append_evictions(at_, parts_[i], now + here, chosen_);
    }
    merge_sort(chosen_);
    return sum_[needed];
  }
  // The allocations of the solution, ascending.
  [[nodiscard]] std::span<const std::uint32_t> chosen() const noexcept { return chosen_; }
  // For each gang with some of its allocations in chosen(): halves the costs of the others and adds
  // these halves to the chosen ones. Returns false if there is no such gang.
  bool move_costs() {
    bool moved = false;
    touched_.clear();
    for (std::size_t i = 0; i < chosen_.size();) {
      const std::uint32_t j = cells_->candidate_of(chosen_[i]);
      std::size_t end = i;
      while (end < chosen_.size() && cells_->candidate_of(chosen_[end]) == j) ++end;
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

 private:
  static constexpr std::uint64_t never = group_capacity::never;
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> units_of(std::uint32_t root) const {
    std::uint32_t first = root;
    std::uint32_t last = root + 1;
    for (std::size_t h = levels_->root(); h > at_; --h) {
      first = levels_->levels[h].first[first];
      last = levels_->levels[h].first[last];
    }
    return {first, last};
  }
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
      refresh_rate(u);
    }
  }
  void refresh_rate(std::uint32_t u) {
    units_[u].solved = false;
    const std::uint32_t now = capacity(u);
    units_[u].rate = can_hold_more(u) ? costs_.least_cost(at_, u, now + step()) : never;
    units_[u].possible = units_[u].rate == never
                             ? 0
                             : levels_->bound(at_, costs_.possible()) / step() - now / step();
  }
  void list_by_rate(std::uint32_t first, std::uint32_t last) {
    by_rate_.clear();
    for (std::uint32_t u = first; u < last; ++u)
      if (units_[u].rate != never) by_rate_.push_back({units_[u].rate, u});
    keyed_number::make_heap(by_rate_);
  }
  [[nodiscard]] std::uint64_t first_bound(std::uint32_t root) {
    if (at_ == levels_->root())
      return costs_.unscaled(costs_.least_cost(at_, root, levels_->tasks));
    const auto [first, last] = units_of(root);
    list_by_rate(first, last);
    std::uint64_t bound = 0;
    for (std::uint64_t n = missing(root); n > 0;) {
      if (by_rate_.empty()) return never;
      const keyed_number next = keyed_number::pop(by_rate_);
      const std::uint64_t here = (std::min<std::uint64_t>)(n, units_[next.number].possible);
      if (here > 0 && next.key > (never - 1 - bound) / here) return never - 1;
      bound += here * next.key;
      n -= here;
    }
    return costs_.unscaled(bound);
  }

  // Whether no unit that costs at least `rate` for each step lowers the sum.
  [[nodiscard]] bool suffices(std::uint32_t needed, std::uint64_t rate) {
    if (sum_.size() <= needed) return false;
    cells_->add_work(needed);
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
  // The table of a unit from its present capacity on. False if the limit is reached.
  [[nodiscard]] bool read_table(std::uint32_t u, lean_vector<std::uint64_t>& cost) {
    if (!tables_.table(at_, u, cost)) return false;
    const std::size_t now = (std::min<std::size_t>)(capacity(u) / step(), cost.size());
    cost.erase_from(std::copy(cost.begin() + now, cost.end(), cost.begin()));
    return true;
  }
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
    cells_->add_work((std::min)(size, sum_.size()) * part.size());
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
      std::uint64_t& cost = costs_.cost_of_allocation(a);
      if (cost == 0 || !in_root(a)) continue;
      const std::uint64_t half = cost - cost / 2;
      cost -= half;
      moved += half;
      touched_.push_back(unit_of_[allocations_[a].node]);
    }
    cells_->add_work(candidates_[j].last - candidates_[j].first);
    if (moved == 0) return false;
    for (std::size_t i = first; i < last; ++i) {
      const std::uint64_t each = moved / (last - i);
      costs_.cost_of_allocation(chosen_[i]) += each;
      moved -= each;
      touched_.push_back(unit_of_[allocations_[chosen_[i]].node]);
    }
    return true;
  }
  const eviction_levels* levels_ = nullptr;
  std::span<const eviction_candidate> candidates_;
  std::span<const gpus_on_node> allocations_;
  group_capacity* cells_ = nullptr;
  group_costs costs_;
  unit_tables tables_;
  std::size_t at_ = 0;  // height of the units
  std::uint32_t root_ = 0;
  std::uint32_t first_unit_ = 0;
  std::uint32_t last_unit_ = 0;
  std::vector<unit> units_;
  lean_vector<std::uint32_t> unit_of_;  // of each node
  lean_vector<std::uint64_t> bounds_;
  lean_vector<std::uint32_t> chosen_;  // allocations, of the solution with split costs
  lean_vector<std::uint32_t> touched_;
  lean_vector<keyed_number> by_rate_;
  lean_vector<std::uint64_t> sum_;
  lean_vector<std::uint64_t> next_;
  lean_vector<std::uint32_t> parts_;
  std::vector<lean_vector<std::uint32_t>> choices_;
};
}  // namespace detail
APIARY_NAMESPACE_END
