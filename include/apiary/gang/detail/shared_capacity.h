// apiary/gang/detail/shared_capacity.h - what nodes with shared GPUs hold of a gang.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
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

// Whether max_units is exact: the task takes whole GPUs, one fraction of a GPU, or no GPU.
[[nodiscard]] inline bool is_counted_exactly(const colocated_groups::group& group) noexcept {
  return group.fractions.empty() || group.gpus == 1;
}

// The most tasks of one group that a node can hold, alone and without constraints; in general an
// upper bound. Cost: O(GPUs of the node + fractions of the task).
[[nodiscard]] inline std::uint32_t max_units(const node_state& node,
                                             const colocated_groups::group& group) noexcept {
  if (!node.healthy) return 0;
  std::uint64_t n = group.tasks;
  if (group.cpu_milli > 0) n = (std::min)(n, node.left.cpu_milli / group.cpu_milli);
  if (group.memory_mib > 0) n = (std::min)(n, node.left.memory_mib / group.memory_mib);
  if (group.gpus == 0) return static_cast<std::uint32_t>(n);
  if (!node.accessible(group.models)) return 0;
  const std::uint64_t whole = group.gpus - group.fractions.size();
  std::uint64_t milli = whole * whole_gpu;
  for (const milli_gpu fraction : group.fractions) milli += fraction;
  std::uint64_t free = 0;         // devices
  std::uint64_t of_fraction = 0;  // fractions of the first size
  std::uint64_t left = 0;
  for (std::uint32_t d = 0; d < node.gpus; ++d) {
    free += node.gpu_left[d] == whole_gpu ? 1U : 0U;
    left += node.gpu_left[d];
    if (!group.fractions.empty())
      of_fraction += std::uint64_t{node.gpu_left[d]} / group.fractions.front();
  }
  if (whole > 0) n = (std::min)(n, free / whole);
  if (group.fractions.size() == 1) n = (std::min)(n, of_fraction);
  return static_cast<std::uint32_t>((std::min)(n, left / milli));
}

// The vectors (tasks of each group of a gang) that each node can hold, and for each the cheapest
// way to put it on the devices. Nodes with equal devices, CPU and memory left form a class, which
// is computed once, one task after another; ways with equal results on the devices are merged.
// Requires: a group with a fraction of a GPU has gpus == 1.
// Cost:     O(nodes * log classes), and for each class the ways to put all its vectors on devices,
//           which the budget counts: exponential in the devices and the number of fraction sizes.
class shared_capacity {
 public:
  // Thousandths of a device; whole_gpu for all of it.
  struct taken {
    milli_gpu milli = 0;
    std::uint32_t device = 0;
  };
  // Computes the vectors of all nodes. cost(before, after) -> std::int64_t is the cost of a change
  // between two states of a node; only what is left of `after` is set. Returns false if the budget
  // ended, or if a node may hold 2^64 vectors or more.
  template <class Cost>
  bool assign(const node_table& nodes, const colocated_groups& groups, level_t node_level,
              std::uint64_t budget, const Cost& cost) {
    budget_ = budget;
    steps_ = 0;
    groups_ = groups;
    most_.clear();
    strides_.clear();
    takes_.clear();
    std::uint64_t vectors = 1;
    for (std::size_t u = 0; u < groups.size(); ++u) {
      most_.push_back((std::min)(groups.at(u, node_level).most, most_by_devices(groups[u])));
      strides_.push_back(vectors);
      const std::uint64_t counts = std::uint64_t{most_[u]} + 1;
      if (vectors > ~std::uint64_t{0} / counts) return false;
      vectors *= counts;
    }
    std::map<class_key, std::uint32_t> known;
    holds_.clear();
    classes_.clear();
    for (const node_id n : nodes.ids()) {
      const auto [at, is_new] =
          known.try_emplace(key_of(nodes[n]), static_cast<std::uint32_t>(known.size()));
      classes_.push_back(at->second);
      if (!is_new) continue;
      holds_.emplace_back();
      if (nodes[n].healthy && !fill(nodes[n], cost)) return false;
    }
    return true;
  }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  // The class of each node.
  [[nodiscard]] std::span<const std::uint32_t> classes() const noexcept { return classes_; }
  // The least cost of these tasks of each group on a node of the class; nullopt if they do not fit.
  [[nodiscard]] std::optional<std::int64_t> operator()(
      std::uint32_t node_class, std::span<const std::uint32_t> counts) const {
    const held* const at = find(node_class, counts);
    return at == nullptr ? std::nullopt : std::optional(at->cost);
  }
  // What these tasks take of the devices of a node, in an order in which it can be taken.
  // Requires: the node can hold them.
  [[nodiscard]] std::vector<taken> devices(const node_table& nodes, node_id n,
                                           std::span<const std::uint32_t> counts) const {
    const held* const at = find(classes_[n.value], counts);
    APIARY_VERIFY(at != nullptr);
    std::vector<take> order;
    for (std::uint32_t t = at->last_take; t != none; t = takes_[t].before)
      order.push_back(takes_[t]);
    std::vector<taken> all;
    std::array<milli_gpu, max_gpus_per_node> left = nodes[n].gpu_left;
    for (std::size_t i = order.size(); i-- > 0;) {
      const auto device = static_cast<std::size_t>(
          std::find(left.begin(), left.end(), order[i].from) - left.begin());
      APIARY_VERIFY(device < nodes[n].gpus);
      left[device] = static_cast<milli_gpu>(left[device] - order[i].milli);
      all.push_back({order[i].milli, static_cast<std::uint32_t>(device)});
    }
    return all;
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  using free_milli = std::array<milli_gpu, max_gpus_per_node>;  // descending
  struct class_key {
    free_milli left{};
    std::uint32_t cpu_milli = 0;
    std::uint32_t memory_mib = 0;
    std::uint32_t model = 0;
    bool healthy = true;
    friend auto operator<=>(const class_key&, const class_key&) = default;
  };
  // Taken from a device with `from` left.
  struct take {
    milli_gpu milli = 0;
    milli_gpu from = 0;
    std::uint32_t before = none;  // what was taken before
  };
  struct way {
    free_milli left{};
    std::uint32_t last_take = none;
  };
  struct begun {
    std::uint64_t number = 0;  // of the vector, in a mixed radix
    way devices{};
  };
  struct held {
    std::uint64_t number = 0;
    std::int64_t cost = 0;
    std::uint32_t last_take = none;
  };
  static void sort_descending(free_milli& left) {
    std::sort(left.begin(), left.end(), [](milli_gpu a, milli_gpu b) { return a > b; });
  }
  [[nodiscard]] static class_key key_of(const node_state& node) {
    if (!node.healthy) return {.healthy = false};
    class_key key{node.gpu_left, node.left.cpu_milli, node.left.memory_mib,
                  node.gpus == 0 ? std::uint32_t{max_gpu_models} : node.model, true};
    sort_descending(key.left);
    return key;
  }
  [[nodiscard]] const held* find(std::uint32_t node_class,
                                 std::span<const std::uint32_t> counts) const {
    std::uint64_t number = 0;
    for (std::size_t u = 0; u < counts.size(); ++u) {
      if (counts[u] > most_[u]) return nullptr;
      number += counts[u] * strides_[u];
    }
    const std::vector<held>& all = holds_[node_class];
    const auto at =
        std::lower_bound(all.begin(), all.end(), number,
                         [](const held& h, std::uint64_t wanted) { return h.number < wanted; });
    return at == all.end() || at->number != number ? nullptr : &*at;
  }
  [[nodiscard]] std::uint64_t count(std::uint64_t number, std::size_t u) const {
    return number / strides_[u] % (std::uint64_t{most_[u]} + 1);
  }
  // The most tasks of one group alone, on a node with all devices free.
  [[nodiscard]] static std::uint32_t most_by_devices(
      const colocated_groups::group& group) noexcept {
    if (group.gpus == 0) return group.tasks;
    std::uint64_t milli = (group.gpus - group.fractions.size()) * std::uint64_t{whole_gpu};
    for (const milli_gpu fraction : group.fractions) milli += fraction;
    constexpr std::uint64_t all = std::uint64_t{max_gpus_per_node} * whole_gpu;
    return static_cast<std::uint32_t>((std::min<std::uint64_t>)(group.tasks, all / milli));
  }
  bool pay() noexcept { return steps_ < budget_ && ++steps_ > 0; }
  // What is left of CPU and memory beside a vector; nullopt if it takes more than there is.
  [[nodiscard]] std::optional<resources> host_beside(const node_state& node,
                                                     std::uint64_t number) const {
    std::uint64_t cpu = 0;
    std::uint64_t memory = 0;
    for (std::size_t u = 0; u < groups_.size(); ++u) {
      cpu += count(number, u) * groups_[u].cpu_milli;
      memory += count(number, u) * groups_[u].memory_mib;
    }
    if (cpu > node.left.cpu_milli || memory > node.left.memory_mib) return std::nullopt;
    return resources{node.left.cpu_milli - static_cast<std::uint32_t>(cpu),
                     node.left.memory_mib - static_cast<std::uint32_t>(memory)};
  }
  template <class Cost>
  bool fill(const node_state& node, const Cost& cost) {
    std::vector<begun> all{{0, {key_of(node).left, none}}};
    std::map<std::pair<std::uint64_t, free_milli>, bool> seen;
    for (std::size_t u = 0; u < groups_.size(); ++u) {
      if (groups_[u].gpus > 0 && !node.accessible(groups_[u].models)) continue;
      for (std::size_t i = 0; i < all.size(); ++i) {
        const begun at = all[i];
        const std::uint64_t number = at.number + strides_[u];
        if (count(at.number, u) >= most_[u] || !host_beside(node, number)) continue;
        if (!add_unit(groups_[u], at.devices)) return false;
        for (const way& w : ways_)
          if (!std::exchange(seen[{number, w.left}], true)) all.push_back({number, w});
      }
    }
    std::map<std::uint64_t, held> best;
    node_state after = node;
    for (const begun& b : all) {
      if (b.number == 0) continue;
      after.left = host_beside(node, b.number).value();
      after.gpu_left = b.devices.left;
      const held here{b.number, cost(node, after), b.devices.last_take};
      const auto [at, is_new] = best.try_emplace(b.number, here);
      if (!is_new && here.cost < at->second.cost) at->second = here;
    }
    for (const auto& [number, h] : best) holds_.back().push_back(h);
    return true;
  }
  // All ways to put one more task on the devices. False if the budget ended.
  bool add_unit(const colocated_groups::group& group, way w) {
    ways_.clear();
    if (!pay()) return false;
    const std::size_t whole = group.gpus - group.fractions.size();
    if (whole > max_gpus_per_node) return true;
    for (std::size_t i = 0; i < whole; ++i) {
      if (w.left[i] != whole_gpu) return true;
      takes_.push_back({whole_gpu, whole_gpu, w.last_take});
      w.last_take = static_cast<std::uint32_t>(takes_.size() - 1);
      w.left[i] = 0;
    }
    sort_descending(w.left);
    ways_.push_back(w);
    for (const milli_gpu fraction : group.fractions) {
      std::map<free_milli, std::uint32_t> next;
      for (const way& from : ways_) {
        for (std::size_t i = 0; i < max_gpus_per_node && from.left[i] >= fraction; ++i) {
          if (i + 1 < max_gpus_per_node && from.left[i + 1] == from.left[i]) continue;
          if (!pay()) return false;
          free_milli left = from.left;
          left[i] = static_cast<milli_gpu>(left[i] - fraction);
          sort_descending(left);
          const auto [at, is_new] = next.try_emplace(left, none);
          if (!is_new) continue;
          takes_.push_back({fraction, from.left[i], from.last_take});
          at->second = static_cast<std::uint32_t>(takes_.size() - 1);
        }
      }
      ways_.clear();
      for (const auto& [left, last] : next) ways_.push_back({left, last});
    }
    return true;
  }

  std::uint64_t budget_ = 0;
  std::uint64_t steps_ = 0;
  colocated_groups groups_;
  std::vector<std::uint32_t> most_;     // tasks of each group on one node
  std::vector<std::uint64_t> strides_;  // of each group
  std::vector<std::uint32_t> classes_;
  std::vector<std::vector<held>> holds_;  // by class, vectors ascending
  std::vector<take> takes_;
  std::vector<way> ways_;
};

}  // namespace detail
APIARY_NAMESPACE_END
