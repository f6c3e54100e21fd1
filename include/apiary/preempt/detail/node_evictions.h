// apiary/preempt/detail/node_evictions.h - the cheapest gangs to evict on a node.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

APIARY_NAMESPACE_BEGIN
namespace detail {

// What a node has free, what a gang frees on it, or what a task needs.
struct node_amounts {
  std::uint64_t gpus = 0;
  std::uint64_t cpu_milli = 0;
  std::uint64_t memory_mib = 0;
  constexpr node_amounts& operator+=(const node_amounts& a) noexcept {
    gpus += a.gpus;
    cpu_milli += a.cpu_milli;
    memory_mib += a.memory_mib;
    return *this;
  }
  constexpr node_amounts& operator-=(const node_amounts& a) noexcept {
    gpus -= a.gpus;
    cpu_milli -= a.cpu_milli;
    memory_mib -= a.memory_mib;
    return *this;
  }
  // How many tasks with these needs these amounts hold, at most `most`.
  [[nodiscard]] constexpr std::uint32_t holds(const node_amounts& task,
                                              std::uint32_t most) const noexcept {
    std::uint64_t n = most;
    if (task.gpus > 0) n = (std::min)(n, gpus / task.gpus);
    if (task.cpu_milli > 0) n = (std::min)(n, cpu_milli / task.cpu_milli);
    if (task.memory_mib > 0) n = (std::min)(n, memory_mib / task.memory_mib);
    return static_cast<std::uint32_t>(n);
  }
};

// For each number of tasks, the least cost of gangs on a node whose eviction lets the node hold
// them: a knapsack over what the gangs free. With more than 64 gangs, or more than max_states sets
// that are worth keeping, the costs are lower bounds only, and the sets may be too small.
// Cost: O(gangs * GPUs); with CPU or memory O(gangs * max_states^2) at worst.
class node_evictions {
 public:
  static constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();
  static constexpr std::size_t max_states = 64;
  struct gang {
    std::uint64_t cost = 0;
    node_amounts frees;
  };
  // cost[k] for k = 0, 1, ...: the least cost for k * step tasks, up to all that evictions allow.
  // False if that takes more than max_work operations; then there are no costs.
  // Requires: what all gangs free and the node has free does not exceed 64 GPUs if hosted is false.
  [[nodiscard]] bool solve(const node_amounts& free, std::span<const gang> gangs,
                           const node_amounts& task, std::uint32_t step, std::uint32_t most,
                           bool hosted, std::uint64_t max_work = never) {
    cost_.clear();
    sets_.clear();
    if (hosted) return by_all_resources(free, gangs, task, step, most, max_work);
    by_gpus(free, gangs, task, step, most);
    work_ += cost_.size();
    return true;
  }
  [[nodiscard]] std::span<const std::uint64_t> cost() const noexcept { return cost_; }
  // The gangs to evict for k * step tasks: bit i is gang i.
  [[nodiscard]] std::uint64_t set(std::size_t k) const noexcept { return sets_[k]; }
  // Operations since the last call.
  [[nodiscard]] std::uint64_t take_work() noexcept { return std::exchange(work_, 0); }

 private:
  struct state {
    std::uint64_t cost = 0;
    node_amounts free;
    std::uint64_t set = 0;
  };
  void by_gpus(const node_amounts& free, std::span<const gang> gangs, const node_amounts& task,
               std::uint32_t step, std::uint32_t most) {
    std::size_t all = 0;
    for (const gang& g : gangs) all += static_cast<std::size_t>(g.frees.gpus);
    // least_[f]: the least cost to free f GPUs more, or more than that.
    least_[0] = {0, 0};
    for (std::size_t f = 1; f <= all; ++f) least_[f] = {never, 0};
    std::size_t freed = 0;
    for (std::size_t i = 0; i < gangs.size(); ++i) {
      const auto n = static_cast<std::size_t>(gangs[i].frees.gpus);
      if (n == 0 || i >= 64) continue;
      for (std::size_t f = freed + 1; f-- > 0;) {
        if (least_[f].cost == never) continue;
        const std::uint64_t cost = least_[f].cost + gangs[i].cost;
        if (cost < least_[f + n].cost) least_[f + n] = {cost, least_[f].set | 1ULL << i};
      }
      freed += n;
      work_ += freed;
    }
    for (std::size_t f = freed; f-- > 0;)
      if (least_[f + 1].cost < least_[f].cost) least_[f] = least_[f + 1];
    for (std::uint64_t k = 0; k * step <= most; ++k) {
      const std::uint64_t needs = k * step * task.gpus;
      if (needs > free.gpus + freed) return;
      const a_set& s = least_[needs > free.gpus ? static_cast<std::size_t>(needs - free.gpus) : 0];
      cost_.push_back(s.cost);
      sets_.push_back(s.set);
    }
  }
  [[nodiscard]] bool by_all_resources(node_amounts free, std::span<const gang> gangs,
                                      const node_amounts& task, std::uint32_t step,
                                      std::uint32_t most, std::uint64_t max_work) {
    const std::uint64_t begun = work_;
    for (std::size_t i = 64; i < gangs.size(); ++i) free += gangs[i].frees;
    node_amounts all = free;
    for (std::size_t i = 0; i < gangs.size() && i < 64; ++i) all += gangs[i].frees;
    const std::uint32_t max_tasks = all.holds(task, most) / step * step;
    work_ += max_tasks / step;
    const node_amounts useful{task.gpus * max_tasks, task.cpu_milli * max_tasks,
                              task.memory_mib * max_tasks};
    const auto clip = [&](state& s) {
      s.free.gpus = (std::min)(s.free.gpus, useful.gpus);
      s.free.cpu_milli = (std::min)(s.free.cpu_milli, useful.cpu_milli);
      s.free.memory_mib = (std::min)(s.free.memory_mib, useful.memory_mib);
    };
    states_.assign(1, {0, free, 0});
    clip(states_[0]);
    for (std::size_t i = 0; i < gangs.size() && i < 64; ++i) {
      if (work_ - begun > max_work) return false;
      const std::size_t before = states_.size();
      for (std::size_t s = 0; s < before; ++s) {
        state more = states_[s];
        more.cost += gangs[i].cost;
        more.free += gangs[i].frees;
        more.set |= 1ULL << i;
        clip(more);
        states_.push_back(more);
      }
      keep_undominated();
    }
    cost_.assign(max_tasks / step + 1, never);
    sets_.assign(cost_.size(), 0);
    for (const state& s : states_) {
      const std::uint32_t k = s.free.holds(task, max_tasks) / step;
      if (s.cost < cost_[k]) {
        cost_[k] = s.cost;
        sets_[k] = s.set;
      }
    }
    for (std::size_t k = cost_.size(); k-- > 1;) {
      if (cost_[k] < cost_[k - 1]) {
        cost_[k - 1] = cost_[k];
        sets_[k - 1] = sets_[k];
      }
    }
    return true;
  }
  [[nodiscard]] static bool covers(const node_amounts& a, const node_amounts& b) noexcept {
    return a.gpus >= b.gpus && a.cpu_milli >= b.cpu_milli && a.memory_mib >= b.memory_mib;
  }
  // Drops sets that cost as much as another one and free less. If too many are left, it merges
  // pairs into one set that costs as little as the cheaper one and frees as much as both.
  void keep_undominated() {
    std::sort(states_.begin(), states_.end(), [](const state& a, const state& b) {
      return a.cost != b.cost ? a.cost < b.cost : a.set < b.set;
    });
    std::size_t kept = 0;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      bool dominated = false;
      for (std::size_t k = 0; k < kept && !dominated; ++k)
        dominated = covers(states_[k].free, states_[i].free);
      work_ += kept + 1;
      if (!dominated) states_[kept++] = states_[i];
    }
    states_.resize(kept);
    while (states_.size() > max_states) {
      kept = 0;
      for (std::size_t i = 0; i < states_.size(); i += 2, ++kept) {
        state both = states_[i];
        if (i + 1 < states_.size()) {
          const node_amounts& other = states_[i + 1].free;
          both.free.gpus = (std::max)(both.free.gpus, other.gpus);
          both.free.cpu_milli = (std::max)(both.free.cpu_milli, other.cpu_milli);
          both.free.memory_mib = (std::max)(both.free.memory_mib, other.memory_mib);
        }
        states_[kept] = both;
      }
      states_.resize(kept);
    }
  }

  struct a_set {
    std::uint64_t cost = 0;
    std::uint64_t set = 0;
  };
  lean_vector<std::uint64_t> cost_;
  lean_vector<std::uint64_t> sets_;
  std::array<a_set, 65> least_{};
  lean_vector<state> states_;
  std::uint64_t work_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
