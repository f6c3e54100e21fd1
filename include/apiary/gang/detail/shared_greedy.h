// apiary/gang/detail/shared_greedy.h - places a gang on shared GPUs, one task group after another.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Whether no task group has slices, anti-affinity or a leader: only the cell of the gang counts.
[[nodiscard]] inline bool has_independent_tasks(const topology_constraints& gang) noexcept {
  return std::all_of(gang.groups.begin(), gang.groups.end(), [](const constrained_task_group& m) {
    return m.slices.empty() && m.spread.empty() && m.leader == no_task_group;
  });
}

// Places independent tasks on the devices of nodes. The task group with the largest tasks comes
// first, and fills one node after another; a fraction goes to the tightest device. A placement that
// is found is valid, but not every placement is found.
// Cost: a step for each node that a task group looks at, and for each task. Memory: 64 bytes for
//       each node that is looked at, 12 for each task.
class shared_greedy {
 public:
  // A task on its node and devices.
  struct placed_task {
    std::uint32_t group = 0;
    placement where{};
  };
  // Places all tasks on nodes `first` to `last` - 1; otherwise false.
  // Requires: has_independent_tasks(gang).
  bool operator()(const node_table& nodes, std::uint32_t first, std::uint32_t last,
                  const topology_constraints& gang, step_budget& steps) {
    first_ = first;
    states_.clear();
    placed_.clear();
    order_.clear();
    for (std::uint32_t m = 0; m < gang.groups.size(); ++m)
      order_.push_back({~std::uint64_t{gang.groups[m].task().total_gpu_milli()}, m});
    keyed_number::sort(order_);
    for (const keyed_number& next : order_) {
      const task_request task = gang.groups[next.number].task();
      std::uint32_t tasks = gang.groups[next.number].tasks;
      for (std::uint32_t n = first; n < last && tasks > 0; ++n) {
        if (!steps.pay(1)) return false;
        if (n - first == states_.size()) states_.push_back(nodes[node_id(n)]);
        node_state& state = states_[n - first];
        for (; tasks > 0 && state.fits(task); --tasks) {
          if (!steps.pay(1)) return false;
          placed_.push_back({next.number, {node_id(n), take(state, task)}});
        }
      }
      if (tasks > 0) return false;
    }
    return true;
  }
  // The tasks, group after group, each in the order of the nodes.
  [[nodiscard]] std::span<const placed_task> placed() const noexcept { return placed_; }
  // The sum of cost(before, after) over the nodes that have tasks.
  template <class Cost>
  [[nodiscard]] std::int64_t cost(const node_table& nodes, const Cost& cost) const {
    std::int64_t sum = 0;
    for (std::uint32_t i = 0; i < states_.size(); ++i) {
      const node_state& before = nodes[node_id(first_ + i)];
      if (before.left == states_[i].left && before.gpu_left == states_[i].gpu_left) continue;
      sum += cost(before, states_[i]);
    }
    return sum;
  }

 private:
  // Takes what the task needs. Returns the mask of its devices. Requires: it fits.
  [[nodiscard]] static std::uint32_t take(node_state& state, const task_request& task) noexcept {
    std::uint32_t mask = 0;
    if (task.wants_gpu())
      mask = task.wants_whole_gpus() ? state.first_free_gpus(task.gpus)
                                     : state.tightest_gpu(task.gpu_milli);
    state.left -= task.host();
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
      milli_gpu& left = state.gpu_left[static_cast<std::size_t>(std::countr_zero(rest))];
      left = static_cast<milli_gpu>(left - task.gpu_milli);
    }
    return mask;
  }

  std::uint32_t first_ = 0;
  std::vector<node_state> states_;  // of the nodes that were looked at
  std::vector<placed_task> placed_;
  std::vector<keyed_number> order_;  // of the groups
};

}  // namespace detail
APIARY_NAMESPACE_END
