// apiary/preempt/detail/group_capacity.h - what cells hold of one group of tasks while gangs are evicted.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/detail/eviction_levels.h>
#include <apiary/preempt/detail/node_evictions.h>
#include <apiary/preempt/victim_set.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Keeps the capacity of each cell for the tasks of one group while gangs are evicted, and splits the
// cost of each gang among its allocations, so that a cell has a lower bound of its own.
// Requires: as victim_search.
// Cost:     begin O(nodes + allocations + candidates); set_evicted O(allocations of the gang *
//           levels); least_cost O(nodes of the cell + their allocations).
class group_capacity {
 public:
  static constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();

  void begin(const eviction_levels& levels, std::span<const std::uint32_t> free,
             std::span<const resources> hosts, std::span<const eviction_candidate> candidates,
             std::span<const gpus_on_node> allocations, std::span<const resources> freed) {
    levels_ = &levels;
    hosted_ = !hosts.empty() && (levels.task.cpu_milli > 0 || levels.task.memory_mib > 0);
    candidates_ = candidates;
    allocations_ = allocations;
    freed_ = freed;
    free_.assign(free.begin(), free.end());
    hosts_.assign(hosts.begin(), hosted_ ? hosts.end() : hosts.begin());
    task_ = levels.task;
    if (!hosted_) task_.cpu_milli = task_.memory_mib = 0;
    for (std::uint32_t f = 0; f < of_gpus_.size(); ++f)
      of_gpus_[f] = levels.bound(0, node_amounts{f, 0, 0}.holds(task_, levels.levels[0].most));
    states_.assign(candidates.size(), running);
    work_ = 0;
    list_by_node();
    sum_capacities();
    split_costs();
  }
  [[nodiscard]] const eviction_levels& levels() const noexcept { return *levels_; }
  [[nodiscard]] std::uint32_t capacity(std::size_t h, std::uint32_t c) const noexcept {
    return levels_->bound(h, capacity_[h][c]);
  }
  // The same if the level of the cell itself had no limits.
  [[nodiscard]] std::uint64_t unlimited_capacity(std::size_t h, std::uint32_t c) const noexcept {
    return capacity_[h][c];
  }
  // The capacity of a root cell if all candidates were evicted.
  [[nodiscard]] std::uint32_t most_capacity(std::uint32_t root) const noexcept {
    return most_capacity_[root];
  }
  // The root cell of a node.
  [[nodiscard]] std::uint32_t root_of(std::uint32_t node) const noexcept {
    std::uint32_t c = node;
    for (std::size_t h = 0; h < levels_->root(); ++h) c = levels_->levels[h].above[c];
    return c;
  }
  // A gang that runs, is evicted, or must not be evicted.
  [[nodiscard]] bool evicted(std::uint32_t j) const noexcept { return states_[j] == gone; }
  void set_evicted(std::uint32_t j, bool to) {
    if (evicted(j) == to) return;
    states_[j] = to ? gone : running;
    for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a) {
      const std::uint32_t n = allocations_[a].node;
      free_[n] = to ? free_[n] + allocations_[a].gpus : free_[n] - allocations_[a].gpus;
      if (hosted_) {
        if (to) {
          hosts_[n] += freed_[a];
        } else {
          hosts_[n] -= freed_[a];
        }
      }
      change(n);
    }
    work_ += candidates_[j].last - candidates_[j].first;
  }
  void set_protected(std::uint32_t j, bool to) noexcept { states_[j] = to ? kept : running; }
  // The allocations on a node.
  [[nodiscard]] std::span<const std::uint32_t> on(std::uint32_t node) const noexcept {
    return std::span(on_).subspan(first_on_[node], first_on_[node + 1] - first_on_[node]);
  }
  [[nodiscard]] std::uint32_t candidate_of(std::uint32_t a) const noexcept {
    return candidate_of_[a];
  }
  // The cost of a gang that is counted with this allocation, times 2^scale().
  [[nodiscard]] std::uint64_t& cost_of_allocation(std::uint32_t a) noexcept { return split_[a]; }
  [[nodiscard]] std::uint32_t scale() const noexcept { return scale_; }
  // After least_cost(): the least cost of one gang that a set must have, and the most tasks that the
  // cell may hold after evictions.
  [[nodiscard]] std::uint64_t least_gang() const noexcept { return least_gang_; }
  [[nodiscard]] std::uint64_t possible() const noexcept { return possible_; }
  // A lower bound, with split costs, on what one more step of tasks costs in the cell: the cheapest
  // tasks of all its nodes. `tasks`: how many tasks the cell must hold.
  [[nodiscard]] std::uint64_t least_cost(std::size_t h, std::uint32_t c, std::uint32_t tasks) {
    const auto [first, last] = levels_->nodes(h, c);
    prices_.clear();
    least_gang_ = never;
    std::uint64_t present = 0;
    for (std::uint32_t n = first; n < last; ++n) present += list_prices(n);
    possible_ = present + prices_.size();
    work_ += last - first + prices_.size();
    if (present >= tasks) return 0;
    const std::uint64_t missing = tasks - present;
    if (prices_.size() < missing) return never;
    const auto end = prices_.begin() + static_cast<std::ptrdiff_t>(missing);
    if (end != prices_.end()) std::nth_element(prices_.begin(), end, prices_.end());
    std::uint64_t sum = 0;
    for (auto p = prices_.begin(); p != end; ++p) sum += *p;
    return sum;
  }

 protected:
  enum state : std::uint8_t { running, gone, kept };
  [[nodiscard]] node_amounts amounts(std::uint32_t n) const noexcept {
    if (!hosted_) return {free_[n], 0, 0};
    return {free_[n], hosts_[n].cpu_milli, hosts_[n].memory_mib};
  }
  [[nodiscard]] node_amounts freed_by(std::uint32_t a) const noexcept {
    if (!hosted_) return {allocations_[a].gpus, 0, 0};
    return {allocations_[a].gpus, freed_[a].cpu_milli, freed_[a].memory_mib};
  }
  [[nodiscard]] std::uint32_t node_capacity(const node_amounts& left) const noexcept {
    if (!hosted_ && left.gpus < of_gpus_.size())
      return of_gpus_[static_cast<std::size_t>(left.gpus)];
    return levels_->bound(0, left.holds(task_, levels_->levels[0].most));
  }

  const eviction_levels* levels_ = nullptr;
  node_amounts task_;
  std::array<std::uint32_t, 65> of_gpus_{};  // tasks on a node by free GPUs, if not hosted
  bool hosted_ = false;
  std::span<const eviction_candidate> candidates_;
  std::span<const gpus_on_node> allocations_;
  std::span<const resources> freed_;
  std::vector<std::uint32_t> free_;
  std::vector<resources> hosts_;
  std::vector<std::uint8_t> states_;                  // of each candidate
  std::vector<std::uint32_t> first_on_;               // of each node
  std::vector<std::uint32_t> on_;                     // allocations by node
  std::vector<std::uint32_t> candidate_of_;           // of each allocation
  std::vector<std::vector<std::uint64_t>> capacity_;  // by height and cell, without its own limit
  std::vector<std::uint32_t> most_of_node_;
  std::vector<std::uint32_t> most_capacity_;  // of each root cell
  std::uint32_t scale_ = 0;
  std::uint64_t least_gang_ = never;
  std::uint64_t possible_ = 0;
  std::vector<std::uint64_t> split_;     // of each allocation
  std::vector<std::uint64_t> prices_;    // of tasks
  std::vector<std::uint64_t> of_tasks_;  // of one node: the cost of so many tasks more
  std::uint64_t work_ = 0;

 private:
  void list_by_node() {
    first_on_.assign(free_.size() + 1, 0);
    candidate_of_.resize(allocations_.size());
    for (std::uint32_t j = 0; j < candidates_.size(); ++j)
      for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a) {
        ++first_on_[allocations_[a].node];
        candidate_of_[a] = j;
      }
    std::uint32_t sum = 0;
    for (std::uint32_t& f : first_on_) sum = f += sum;
    on_.resize(sum);
    for (std::uint32_t j = static_cast<std::uint32_t>(candidates_.size()); j-- > 0;)
      for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a)
        on_[--first_on_[allocations_[a].node]] = a;
  }
  void sum_capacities() {
    most_of_node_.resize(free_.size());
    capacity_.resize(levels_->levels.size());
    capacity_[0].resize(free_.size());
    std::vector<std::uint64_t> most(free_.size());
    for (std::uint32_t n = 0; n < free_.size(); ++n) {
      node_amounts left = amounts(n);
      capacity_[0][n] = node_capacity(left);
      for (const std::uint32_t a : on(n)) left += freed_by(a);
      most[n] = most_of_node_[n] = node_capacity(left);
    }
    for (std::size_t h = 1; h < capacity_.size(); ++h) {
      capacity_[h].assign(levels_->num_cells(h), 0);
      std::vector<std::uint64_t> sums(capacity_[h].size());
      for (std::uint32_t c = 0; c < most.size(); ++c) {
        const std::uint32_t above = levels_->levels[h - 1].above[c];
        capacity_[h][above] += levels_->bound(h - 1, capacity_[h - 1][c]);
        sums[above] += levels_->bound(h - 1, most[c]);
      }
      most = std::move(sums);
    }
    most_capacity_.clear();
    for (const std::uint64_t m : most) most_capacity_.push_back(levels_->bound(levels_->root(), m));
  }
  void change(std::uint32_t n) {
    std::uint64_t to = node_capacity(amounts(n));
    std::uint32_t c = n;
    for (std::size_t h = 0;; ++h) {
      const std::uint32_t before = levels_->bound(h, capacity_[h][c]);
      capacity_[h][c] = to;
      const std::uint32_t after = levels_->bound(h, to);
      if (before == after || h == levels_->root()) return;
      c = levels_->levels[h].above[c];
      to = capacity_[h + 1][c] + after - before;
    }
  }
  // Splits the cost of each gang among its allocations in a root cell, by GPUs; only allocations
  // where evictions add capacity count.
  void split_costs() {
    std::uint64_t sum = 1;
    for (const eviction_candidate& c : candidates_) sum += c.cost;
    scale_ = static_cast<std::uint32_t>((std::max)(std::countl_zero(sum), 2) - 2);
    split_.resize(allocations_.size());
    if (levels_->num_cells(levels_->root()) == 1) return split_costs_in_one_root();
    std::vector<std::uint64_t> weight_in(levels_->num_cells(levels_->root()));
    for (const eviction_candidate& c : candidates_) {
      const auto each = [&](const auto& use) {
        for (std::uint32_t a = c.first; a < c.last; ++a) {
          use(a, weight_in[root_of(allocations_[a].node)], weight_of(a));
        }
      };
      each([](std::uint32_t, std::uint64_t& in, std::uint32_t weight) { in += weight; });
      each([&](std::uint32_t a, std::uint64_t in, std::uint32_t weight) {
        split_[a] = weight == 0 ? 0 : (c.cost << scale_) / in * weight;
      });
      // The first allocation in each root cell has the remainder.
      each([&](std::uint32_t a, std::uint64_t& in, std::uint32_t weight) {
        if (weight == 0 || in == 0) return;
        split_[a] += (c.cost << scale_) % in;
        in = 0;
      });
    }
  }
  void split_costs_in_one_root() {
    for (const eviction_candidate& c : candidates_) {
      std::uint64_t sum = 0;
      for (std::uint32_t a = c.first; a < c.last; ++a) sum += split_[a] = weight_of(a);
      if (sum == 0) continue;
      const std::uint64_t each = (c.cost << scale_) / sum;
      std::uint64_t rest = (c.cost << scale_) % sum;
      for (std::uint32_t a = c.first; a < c.last; ++a) {
        if (split_[a] == 0) continue;
        split_[a] = split_[a] * each + rest;
        rest = 0;
      }
    }
  }
  // Zero where no eviction adds capacity.
  [[nodiscard]] std::uint32_t weight_of(std::uint32_t a) const noexcept {
    const std::uint32_t n = allocations_[a].node;
    return most_of_node_[n] > capacity_[0][n] ? (std::max)(allocations_[a].gpus, 1U) : 0;
  }
  // Appends lower bounds of the split costs of each task that a node may hold more. Returns how many
  // it holds.
  std::uint32_t list_prices(std::uint32_t n) {
    const node_amounts left = amounts(n);
    const auto present = static_cast<std::uint32_t>(capacity_[0][n]);
    if (most_of_node_[n] == present) return present;
    std::uint64_t sum = 0;
    std::uint64_t least = never;
    std::uint64_t least_of_gpu = never;
    node_amounts all = left;
    for (const std::uint32_t a : on(n)) {
      if (states_[candidate_of_[a]] != running) continue;
      all += freed_by(a);
      sum += split_[a];
      least = (std::min)(least, split_[a]);
      least_gang_ = (std::min)(least_gang_, candidates_[candidate_of_[a]].cost);
      const std::uint32_t gpus = allocations_[a].gpus;
      if (gpus > 0)
        least_of_gpu =
            (std::min)(least_of_gpu, (gpus & (gpus - 1)) == 0 ? split_[a] >> std::countr_zero(gpus)
                                                              : split_[a] / gpus);
    }
    work_ += on(n).size();
    const std::uint32_t most = node_capacity(all);
    if (most == present + 1) {
      const std::uint64_t needs = std::uint64_t{most} * task_.gpus;
      prices_.push_back(needs == all.gpus   ? (std::max)(sum, least)
                        : needs > left.gpus ? (std::max)(least_of_gpu * (needs - left.gpus), least)
                                            : least);
      return present;
    }
    of_tasks_.assign(1, 0);
    for (std::uint32_t k = present + 1; k <= most; ++k) {
      const std::uint64_t needs = k * task_.gpus;
      std::uint64_t cost = needs > left.gpus ? least_of_gpu * (needs - left.gpus) : 0;
      if (needs == all.gpus) cost = sum;
      of_tasks_.push_back((std::max)({cost, of_tasks_.back(), least}));
    }
    // The cheapest tasks of all nodes are a bound only if no task costs less than the one before.
    for (std::size_t i = 0; i + 1 < of_tasks_.size();) {
      std::size_t best = i + 1;
      std::uint64_t price = of_tasks_[best] - of_tasks_[i];
      for (std::size_t k = i + 2; k < of_tasks_.size(); ++k)
        if ((of_tasks_[k] - of_tasks_[i]) / (k - i) <= price) {
          best = k;
          price = (of_tasks_[k] - of_tasks_[i]) / (k - i);
        }
      prices_.insert(prices_.end(), best - i, price);
      i = best;
    }
    return present;
  }
};

}  // namespace detail
APIARY_NAMESPACE_END
