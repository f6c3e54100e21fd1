// apiary/explain/detail/checked_constraints.h - slices and anti-affinity, as proof_check counts them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/topology_constraints.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// What the constraints of a gang allow in a cell, for each of its co-located groups.
class checked_constraints {
 public:
  // groups: the leader of each group. counts: its tasks.
  void begin(const topology_constraints& gang, std::span<const std::uint32_t> groups,
             std::span<const std::uint32_t> counts, level_t num_levels) {
    levels_ = num_levels + 1;
    for (std::size_t k = 0; k < groups.size(); ++k) {
      const constrained_task_group& led = gang.groups[groups[k]];
      if (led.leader == no_task_group) continue;
      const auto at = std::find(groups.begin(), groups.end(), led.leader) - groups.begin();
      replicas_.push_back({static_cast<std::size_t>(at), k,
                           led.tasks / gang.groups[led.leader].tasks, led.leader_level});
    }
    for (std::size_t k = 0; k < groups.size(); ++k) {
      for (level_t l = 0; l < levels_; ++l) together_.push_back(together_at(gang, groups[k], l));
      for (level_t l = 0; l < levels_; ++l)
        allowed_.push_back(allowed_at(gang, k, groups[k], counts[k], l));
    }
  }
  // The most tasks of a group that constraints allow in a cell of this level, those of the levels
  // above included.
  [[nodiscard]] std::uint32_t allowed(std::size_t group, level_t l) const {
    return allowed_[group * levels_ + l];
  }
  // How many tasks must be placed together.
  [[nodiscard]] std::uint32_t together(std::size_t group, level_t l) const {
    return together_[group * levels_ + l];
  }

  // Takes out of the tasks in a cell those of a leader without its workers, and the reverse.
  // Returns whether there were any.
  [[nodiscard]] bool lower_to_replicas(std::vector<std::uint32_t>& tasks, level_t l) const {
    const std::vector<std::uint32_t> before = tasks;
    for (const replica& r : replicas_) {
      if (r.level > l) continue;
      std::uint32_t& leaders = tasks[r.leader];
      std::uint32_t& workers = tasks[r.group];
      while (std::uint64_t{leaders} * r.each > workers || leaders % together(r.leader, l) != 0)
        --leaders;
      while (workers > leaders * r.each || workers % together(r.group, l) != 0) --workers;
    }
    return tasks != before;
  }

 private:
  struct replica {
    std::size_t leader = 0;
    std::size_t group = 0;
    std::uint32_t each = 0;  // tasks of the group for one of the leader
    level_t level = 0;
  };
  [[nodiscard]] std::uint32_t allowed_at(const topology_constraints& gang, std::size_t group,
                                         std::uint32_t first, std::uint32_t count,
                                         level_t l) const {
    const constrained_task_group& leader = gang.groups[first];
    std::uint32_t max = count;
    for (level_t above = levels_; above-- > l;) {
      for (const constrained_task_group& m : gang.groups) {
        if (m.tasks == 0 || (&m != &leader && !(m.on_node_of_leader() && m.leader == first)))
          continue;
        for (const level_count& s : m.spread)
          if (s.level == above) max = (std::min)(max, s.tasks / (m.tasks / leader.tasks));
      }
      max -= max % together(group, above);
    }
    return max;
  }
  [[nodiscard]] static std::uint32_t together_at(const topology_constraints& gang,
                                                 std::uint32_t first, level_t l) {
    const constrained_task_group& leader = gang.groups[first];
    for (std::uint32_t n = 1; n < leader.tasks; ++n) {
      bool whole = leader.leader == no_task_group || leader.leader_level > l ||
                   n % (leader.tasks / gang.groups[leader.leader].tasks) == 0;
      for (const constrained_task_group& m : gang.groups) {
        if (&m != &leader && !(m.on_node_of_leader() && m.leader == first)) continue;
        for (const level_count& s : m.slices)
          whole = whole && (s.level > l || n * (m.tasks / leader.tasks) % s.tasks == 0);
      }
      if (whole) return n;
    }
    return leader.tasks;
  }

  level_t levels_ = 0;
  std::vector<replica> replicas_;
  std::vector<std::uint32_t> allowed_;  // by group and level
  std::vector<std::uint32_t> together_;
};

}  // namespace detail
APIARY_NAMESPACE_END
