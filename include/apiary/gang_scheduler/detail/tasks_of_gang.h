// apiary/gang_scheduler/detail/tasks_of_gang.h - which tasks of a gang must be in one cell, and which are equal.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// What a node offers to tasks that look for one.
struct offered_node {
  std::uint32_t free = 0;   // masks of GPUs
  std::uint32_t whole = 0;  // if all other gangs on it end
  std::uint32_t idle = 0;   // `whole` before any task was placed
  std::uint32_t start = 0;  // `free` before any task was placed
  resources host{};
  resources whole_host{};
  bool usable = false;
  bool own = false;    // a task of the gang is or was here, or is placed here
  bool freed = false;  // the other gangs on it are taken as ended

  [[nodiscard]] bool fits(const constrained_task_group& task) const noexcept {
    return static_cast<std::uint32_t>(std::popcount(free)) >= task.gpus && task.host.fits_in(host);
  }
  // Nodes where the task fits come first, the fullest of them; then those with most free GPUs.
  [[nodiscard]] std::uint32_t rank(const constrained_task_group& task) const noexcept {
    const auto gpus = static_cast<std::uint32_t>(std::popcount(free));
    return fits(task) ? gpus : 64 - gpus;
  }
  // How many such tasks these GPUs, CPU and memory are enough for.
  [[nodiscard]] static std::uint32_t capacity(const constrained_task_group& task,
                                              std::uint32_t mask, const resources& has) noexcept {
    std::uint32_t n = ~std::uint32_t{0};
    if (task.gpus > 0) n = static_cast<std::uint32_t>(std::popcount(mask)) / task.gpus;
    if (task.host.cpu_milli > 0) n = (std::min)(n, has.cpu_milli / task.host.cpu_milli);
    if (task.host.memory_mib > 0) n = (std::min)(n, has.memory_mib / task.host.memory_mib);
    return n;
  }
};

// The tasks of a gang by number, in the order of the task groups. Requires: the gang outlives it.
// Cost: O(tasks + groups) to make it; are_equal O(slices); for_each_mate O(mates, groups with the same
//       leader group).
class tasks_of_gang {
 public:
  static constexpr std::uint32_t nowhere = ~std::uint32_t{0};

  explicit tasks_of_gang(const topology_constraints& gang) : gang_(gang) {
    for (std::uint32_t m = 0; m < gang.groups.size(); ++m) {
      first_.push_back(size());
      group_of_.resize(group_of_.size() + gang.groups[m].tasks, m);
    }
    first_worker_.assign(gang.groups.size(), no_task_group);
    next_worker_.assign(gang.groups.size(), no_task_group);
    for (std::uint32_t m = static_cast<std::uint32_t>(gang.groups.size()); m-- > 0;) {
      if (gang.groups[m].leader == no_task_group) continue;
      next_worker_[m] = first_worker_[gang.groups[m].leader];
      first_worker_[gang.groups[m].leader] = m;
    }
  }
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(group_of_.size());
  }
  [[nodiscard]] std::uint32_t group_index(std::uint32_t t) const { return group_of_[t]; }
  [[nodiscard]] const constrained_task_group& group(std::uint32_t t) const {
    return gang_.groups[group_of_[t]];
  }
  // Calls f(level, position) for each task that has a node and must be in one cell of the level with
  // task t.
  template <class F>
  void for_each_mate(const std::vector<std::uint32_t>& where, std::uint32_t t, const F& f) const {
    const std::uint32_t m = group_of_[t];
    const std::uint32_t i = t - first_[m];
    const auto range = [&](std::uint32_t of, std::uint32_t from, std::uint32_t size, level_t l) {
      const std::uint32_t end = (std::min)(from + size, gang_.groups[of].tasks);
      for (std::uint32_t k = from; k < end; ++k)
        if (where[first_[of] + k] != nowhere) f(l, where[first_[of] + k]);
    };
    for (const level_count& s : group(t).slices) range(m, i / s.tasks * s.tasks, s.tasks, s.level);
    const std::vector<constrained_task_group>& groups = gang_.groups;
    const std::uint32_t leaders = group(t).leader == no_task_group ? m : group(t).leader;
    const std::uint32_t replica = i / (group(t).tasks / groups[leaders].tasks);
    const auto workers = [&](std::uint32_t o) {
      if (groups[o].tasks == 0) return;
      const level_t l = groups[o].on_node_of_leader() ? 0 : groups[o].leader_level;
      const std::uint32_t each = groups[o].tasks / groups[leaders].tasks;
      range(leaders, replica, 1, l);
      range(o, replica * each, each, l);
    };
    if (leaders != m) return workers(m);
    for (std::uint32_t o = first_worker_[m]; o != no_task_group; o = next_worker_[o]) workers(o);
  }
  // Whether two tasks are equal: of one group without leaders, in the same slices.
  [[nodiscard]] bool are_equal(std::uint32_t a, std::uint32_t b) const {
    const std::uint32_t m = group_of_[a];
    bool equal =
        group_of_[b] == m && group(a).leader == no_task_group && first_worker_[m] == no_task_group;
    for (const level_count& s : group(a).slices)
      equal = equal && (a - first_[m]) / s.tasks == (b - first_[m]) / s.tasks;
    return equal;
  }

 private:
  const topology_constraints& gang_;
  std::vector<std::uint32_t> first_;     // task of each group
  std::vector<std::uint32_t> group_of_;  // each task
  // Of each group: the first of its groups of workers; of these: the next one of the same leaders.
  std::vector<std::uint32_t> first_worker_;
  std::vector<std::uint32_t> next_worker_;
};

}  // namespace detail
APIARY_NAMESPACE_END
