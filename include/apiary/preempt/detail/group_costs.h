// apiary/preempt/detail/group_costs.h - lower bounds on what the tasks of one group cost in a cell.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/detail/eviction_levels.h>
#include <apiary/preempt/detail/group_capacity.h>
#include <apiary/preempt/detail/node_evictions.h>
#include <apiary/preempt/victim_set.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Splits the cost of each gang among its allocations, so that each cell has a lower bound of its
// own on the cost of evictions there, and the bounds of several cells can be added.
// Requires: as group_capacity.
// Cost:     begin O(nodes + allocations + candidates); first_least_cost O(nodes of the cell);
//           least_cost and least_cost_in_full O(nodes of the cell + their allocations).
class group_costs : public group_capacity {
 public:
  void begin(const eviction_levels& levels, std::span<const std::uint32_t> free,
             std::span<const resources> hosts, std::span<const eviction_candidate> candidates,
             std::span<const gpus_on_node> allocations, std::span<const resources> freed) {
    group_capacity::begin(levels, free, hosts, candidates, allocations, freed);
    split_costs();
  }
  // The cost of a gang that is counted with this allocation, times 2^scale().
  [[nodiscard]] std::uint64_t& cost_of_allocation(std::uint32_t a) noexcept { return split_[a]; }
  [[nodiscard]] std::uint32_t scale() const noexcept { return scale_; }
  // After least_cost() or first_least_cost(): the least cost of one gang that a set must have, and
  // the most tasks that the cell may hold after evictions.
  [[nodiscard]] std::uint64_t least_gang() const noexcept { return least_gang_; }
  [[nodiscard]] std::uint64_t possible() const noexcept { return possible_; }
  // A lower bound, with split costs, on what one more step of tasks costs in the cell: the cheapest
  // tasks of all its nodes. `tasks`: how many tasks the cell must hold.
  [[nodiscard]] std::uint64_t least_cost(std::size_t h, std::uint32_t c, std::uint32_t tasks) {
    return sum_of_cheapest(levels_->nodes(h, c), tasks, [&](std::uint32_t n) {
      return list_prices(n, [&](const item& i) { return split_[i.allocation]; });
    });
  }
  // The same right after begin(), while no gang is evicted and no cost has changed.
  [[nodiscard]] std::uint64_t first_least_cost(std::size_t h, std::uint32_t c,
                                               std::uint32_t tasks) {
    return sum_of_cheapest(levels_->nodes(h, c), tasks,
                           [&](std::uint32_t n) { return list_first_prices(n); });
  }
  // The same if the cost of each gang is split among its allocations in this cell alone: a lower
  // bound on the cost in full, not times 2^scale().
  [[nodiscard]] std::uint64_t least_cost_in_full(std::size_t h, std::uint32_t c,
                                                 std::uint32_t tasks) {
    const auto nodes = levels_->nodes(h, c);
    in_cell_.resize(candidates_.size(), 0);
    gangs_in_cell_.clear();
    for (std::uint32_t n = nodes.first; n < nodes.second; ++n) {
      if (most_of_node_[n] == capacity_[0][n]) continue;
      for (const item& i : on(n)) {
        std::uint64_t& weight = in_cell_[i.candidate];
        if (weight == 0) gangs_in_cell_.push_back(i.candidate);
        weight += (std::max)(i.gpus, 1U);
      }
      work_ += on(n).size();
    }
    for (const std::uint32_t j : gangs_in_cell_)
      in_cell_[j] = quotient(candidates_[j].cost << scale_, in_cell_[j]);
    const std::uint64_t sum = sum_of_cheapest(nodes, tasks, [&](std::uint32_t n) {
      return list_prices(
          n, [&](const item& i) { return in_cell_[i.candidate] * (std::max)(i.gpus, 1U); });
    });
    for (const std::uint32_t j : gangs_in_cell_) in_cell_[j] = 0;
    return unscaled(sum);
  }
  // Without the factor 2^scale(), rounded up.
  [[nodiscard]] std::uint64_t unscaled(std::uint64_t cost) const noexcept {
    if (cost == never) return never;
    return (cost >> scale_) + ((cost & ((1ULL << scale_) - 1)) != 0 ? 1 : 0);
  }

 protected:
  // Most divisors are powers of two: a shift takes a tenth of the time of a division.
  [[nodiscard]] static constexpr std::uint64_t quotient(std::uint64_t a, std::uint64_t b) noexcept {
    return (b & (b - 1)) == 0 ? a >> std::countr_zero(b) : a / b;
  }

  std::uint32_t scale_ = 0;
  std::uint64_t least_gang_ = never;
  std::uint64_t possible_ = 0;
  lean_vector<std::uint64_t> split_;    // of each allocation
  lean_vector<std::uint64_t> in_cell_;  // of each candidate: 0 between calls
  lean_vector<std::uint32_t> gangs_in_cell_;
  lean_vector<std::uint64_t> prices_;    // of tasks
  lean_vector<std::uint64_t> of_tasks_;  // of one node: the cost of so many tasks more

 private:
  // What the gangs on a node cost.
  struct node_costs {
    std::uint64_t all = 0;               // of the gangs that have GPUs there
    std::uint64_t least = never;         // of one gang
    std::uint64_t least_of_gpu = never;  // of one GPU
    std::uint64_t least_gang = never;    // of one gang, in full
    void add(std::uint64_t cost, std::uint32_t gpus, std::uint64_t in_full) noexcept {
      add(cost, gpus, gpus == 0 ? never : quotient(cost, gpus), in_full);
    }
    void add(std::uint64_t cost, std::uint32_t gpus, std::uint64_t of_gpu,
             std::uint64_t in_full) noexcept {
      least = (std::min)(least, cost);
      least_gang = (std::min)(least_gang, in_full);
      if (gpus == 0) return;
      all += cost;
      least_of_gpu = (std::min)(least_of_gpu, of_gpu);
    }
  };
  // Splits the cost of each gang among its allocations in a root cell, by GPUs; only allocations
  // where evictions add capacity count.
  void split_costs() {
    std::uint64_t sum = 1;
    for (const eviction_candidate& c : candidates_) sum += c.cost;
    scale_ = static_cast<std::uint32_t>((std::max)(std::countl_zero(sum), 2) - 2);
    split_.resize(allocations_.size());
    first_costs_.assign(free_.size(), {});
    if (levels_->num_cells(levels_->root()) == 1) return split_costs_in_one_root();
    lean_vector<std::uint64_t> weight_in(levels_->num_cells(levels_->root()));
    for (const eviction_candidate& c : candidates_) {
      const auto each = [&](const auto& use) {
        for (std::uint32_t a = c.first; a < c.last; ++a) {
          use(a, weight_in[root_of(allocations_[a].node)], weight_of(a));
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
        first_costs_[allocations_[a].node].add(split_[a], allocations_[a].gpus, c.cost);
      });
    }
  }
  void split_costs_in_one_root() {
    for (const eviction_candidate& c : candidates_) {
      std::uint64_t sum = 0;
      for (std::uint32_t a = c.first; a < c.last; ++a) sum += split_[a] = weight_of(a);
      if (sum == 0) continue;
      const std::uint64_t each = quotient(c.cost << scale_, sum);
      std::uint64_t rest = (c.cost << scale_) - each * sum;
      for (std::uint32_t a = c.first; a < c.last; ++a) {
        if (split_[a] == 0) continue;
        const auto weight = static_cast<std::uint32_t>(split_[a]);
        const std::uint64_t of_gpu = rest == 0 ? each : each + rest / weight;
        split_[a] = split_[a] * each + rest;
        rest = 0;
        first_costs_[allocations_[a].node].add(split_[a], allocations_[a].gpus, of_gpu, c.cost);
      }
    }
  }
  // Zero where no eviction adds capacity.
  [[nodiscard]] std::uint32_t weight_of(std::uint32_t a) const noexcept {
    return gains_[allocations_[a].node] != 0 ? (std::max)(allocations_[a].gpus, 1U) : 0;
  }
  // A lower bound on the cost of this many tasks on these nodes. list(n) appends the prices of node
  // n to prices_ and returns how many tasks it holds.
  template <class List>
  [[nodiscard]] std::uint64_t sum_of_cheapest(std::pair<std::uint32_t, std::uint32_t> nodes,
                                              std::uint64_t tasks, const List& list) {
    prices_.clear();
    least_gang_ = never;
    std::uint64_t present = 0;
    for (std::uint32_t n = nodes.first; n < nodes.second; ++n) present += list(n);
    possible_ = present + prices_.size();
    work_ += nodes.second - nodes.first + prices_.size();
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
  // Appends lower bounds of the costs of each task that a node may hold more, if item i costs
  // cost_of(i). Returns how many tasks it holds.
  template <class CostOf>
  std::uint32_t list_prices(std::uint32_t n, const CostOf& cost_of) {
    const auto present = static_cast<std::uint32_t>(capacity_[0][n]);
    if (most_of_node_[n] == present) return present;
    node_costs costs;
    node_amounts all = amounts(n);
    for (const item& i : on(n)) {
      if (states_[i.candidate] != running) continue;
      all += freed_by(i);
      costs.add(cost_of(i), i.gpus, candidates_[i.candidate].cost);
    }
    work_ += on(n).size();
    list_prices(n, all, node_capacity(all), costs);
    return present;
  }
  std::uint32_t list_first_prices(std::uint32_t n) {
    const auto present = static_cast<std::uint32_t>(capacity_[0][n]);
    if (most_of_node_[n] != present)
      list_prices(n, most_amounts(n), most_of_node_[n], first_costs_[n]);
    return present;
  }
  // The same if the node can have `all` free, and then holds `most` tasks.
  void list_prices(std::uint32_t n, const node_amounts& all, std::uint32_t most,
                   const node_costs& costs) {
    const auto present = static_cast<std::uint32_t>(capacity_[0][n]);
    const std::uint64_t free = free_[n];
    least_gang_ = (std::min)(least_gang_, costs.least_gang);
    const auto cost_of_tasks = [&](std::uint64_t tasks) {
      const std::uint64_t needs = tasks * task_.gpus;
      if (needs == all.gpus) return (std::max)(costs.all, costs.least);
      if (needs <= free) return costs.least;
      return (std::max)(costs.least_of_gpu * (needs - free), costs.least);
    };
    if (most == present + 1) {
      prices_.push_back(cost_of_tasks(most));
      return;
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
  }

  lean_vector<node_costs> first_costs_;  // of each node, right after begin()
};

}  // namespace detail
APIARY_NAMESPACE_END
