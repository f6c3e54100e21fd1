// apiary/gang/colocated_groups.h - the task groups of a gang, as the searches count them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The task groups of a gang, merged into co-located groups. A co-located group consists of a task
// group that shares no leader's node, and of the groups whose tasks share the nodes of its tasks.
// One of its tasks stands for a task of the leader and all tasks on the same node. Task groups with
// the same needs and no constraints are merged into one co-located group.
//
// Slices and anti-affinity become limits for each group and level: the number of tasks in a cell is
// a multiple of `step` and at most `most`. (Tasks are numbered from cell to cell, so slices stay in
// their cells if and only if these numbers are multiples.) Replicas become links: every cell of the
// link's level has, for each task of the leader, a fixed number of tasks of the other group.
//
// Requires: gang.valid().
// Cost:     O(groups * levels), with fractions of GPUs O(groups * (levels + fractions * log)).
class colocated_groups {
 public:
  // Caps of needs, more than any node has, so that the sum over all tasks is below 2^64.
  static constexpr std::uint32_t max_gpus = ~std::uint32_t{0};       // cap of GPUs
  static constexpr std::uint64_t max_host = std::uint64_t{1} << 32;  // cap of CPU and memory

  // A co-located group. All needs are those of one task together with the tasks that it leads.
  struct group {
    std::uint32_t first_group = 0;               // the first of its task groups
    std::uint32_t tasks = 0;                     // tasks of all merged groups that have no leader
    std::uint32_t gpus = 0;                      // at most max_gpus
    std::uint64_t cpu_milli = 0;                 // at most max_host
    std::uint64_t memory_mib = 0;                // at most max_host
    level_t constrained = any_level;             // the lowest level with a constraint
    detail::lean_vector<milli_gpu> fractions{};  // thousandths of each shared GPU, descending
    model_set models = any_model;                // on which all its tasks can run
  };

  // Merges the task groups of a gang for a tree whose levels are below `top`.
  void assign(const topology_constraints& gang, level_t node_level, level_t top) {
    APIARY_ASSERT(gang.valid(node_level, top));
    node_level_ = node_level;
    heights_ = top - node_level + 1;
    groups_.clear();
    limits_.clear();
    hosted_ = false;
    lowest_constraint_ = any_level;
    group_of_.assign(gang.groups.size(), no_task_group);
    list_led(gang);
    list_replicas(gang);
    equal_groups_.assign(8, 0);
    while (equal_groups_.size() < 2 * gang.groups.size())
      equal_groups_.resize(2 * equal_groups_.size());
    for (std::uint32_t m = 0; m < gang.groups.size(); ++m) {
      const constrained_task_group& leader = gang.groups[m];
      if (leader.on_node_of_leader() || leader.tasks == 0) continue;
      group u{m, leader.tasks, 0, 0, 0, linked_[m]};
      for (std::size_t h = 0; h < heights_; ++h) limits_.push_back({1, u.tasks});
      add(u, leader);
      for (std::uint32_t i = first_led_[m]; i != no_task_group; i = next_led_[i])
        add(u, gang.groups[i]);
      if (leader.leader != no_task_group) {
        limit& is = limits_[limits_.size() - heights_ + leader.leader_level - node_level_];
        is.step = common_multiple(is.step, leader.tasks / gang.groups[leader.leader].tasks);
      }
      if (u.constrained != any_level) tighten_limits();
      group_of_[m] = static_cast<std::uint32_t>(join(u));
      if (group_of_[m] < groups_.size()) continue;
      hosted_ = hosted_ || u.cpu_milli > 0 || u.memory_mib > 0;
      lowest_constraint_ = (std::min)(lowest_constraint_, u.constrained);
      groups_.push_back(u);
    }
    for (const constrained_task_group& m : gang.groups)
      if (m.leader != no_task_group && m.leader_level != any_level && m.tasks > 0)
        links_.push_back({group_of_[m.leader],
                          group_of_[static_cast<std::size_t>(&m - gang.groups.data())],
                          m.tasks / gang.groups[m.leader].tasks, m.leader_level});
  }

  // The number of co-located groups.
  [[nodiscard]] std::size_t size() const noexcept { return groups_.size(); }
  // The co-located group of a task group; no_task_group if the task group has a leader or no tasks.
  [[nodiscard]] std::uint32_t group_of(std::uint32_t index) const noexcept {
    return group_of_[index];
  }
  // Co-located group u.
  [[nodiscard]] const group& operator[](std::size_t u) const noexcept { return groups_[u]; }
  // Whether any task takes CPU or memory.
  [[nodiscard]] bool hosted() const noexcept { return hosted_; }
  // The lowest level with a constraint; any_level if there is none.
  [[nodiscard]] level_t lowest_constraint() const noexcept { return lowest_constraint_; }

  // Each cell of the level, and each cell above it, has `each` tasks of a group for each task of
  // the leader.
  struct link {
    std::uint32_t leader = 0;  // co-located group of the leader
    std::uint32_t group = 0;   // co-located group of the tasks that it leads
    std::uint32_t each = 0;    // tasks for one of the leader
    level_t level = 0;         // of the cell that a replica shares
  };
  // The links of all replicas.
  [[nodiscard]] std::span<const link> links() const noexcept { return links_; }
  // Lowers the counts of tasks in a cell of level l to the most that the links allow.
  void keep_replicas(level_t l, std::vector<std::uint32_t>& counts) const {
    for (bool changed = true; changed;) {
      changed = false;
      for (const link& k : links_) {
        if (k.level > l) continue;
        const std::uint32_t replicas =
            bound(k.leader, l, (std::min)(counts[k.leader], counts[k.group] / k.each));
        const std::uint32_t tasks = bound(k.group, l, std::uint64_t{replicas} * k.each);
        changed = changed || counts[k.leader] != replicas || counts[k.group] != tasks;
        counts[k.leader] = replicas;
        counts[k.group] = tasks;
      }
    }
  }

  // How many tasks of a group a cell may hold: a multiple of `step`, at most `most`.
  struct limit {
    std::uint32_t step = 1;  // the count is a multiple of it
    std::uint32_t most = 0;  // a multiple of step, at most the tasks of the group
  };
  // The limit of group u for the cells of level l.
  [[nodiscard]] limit at(std::size_t u, level_t l) const noexcept {
    return limits_[u * heights_ + (l - node_level_)];
  }
  // The most tasks of group u that a cell of level l with capacity for n may hold.
  [[nodiscard]] std::uint32_t bound(std::size_t u, level_t l, std::uint64_t n) const noexcept {
    const limit is = at(u, l);
    const auto fewer = static_cast<std::uint32_t>(n < is.most ? n : is.most);
    return is.step == 1 ? fewer : fewer - fewer % is.step;
  }

  // Turns portions of co-located groups into portions of task groups, ordered by task group, then
  // node: the tasks of merged task groups follow one after another, each in the order of the nodes,
  // together with the tasks that they lead. `scratch` is a buffer.
  // Requires: the gang of the last call of assign(); the portions contain every task once.
  // Cost: O(portions * log portions + groups), with the portions of led groups.
  void name_task_groups(const topology_constraints& gang,
                        detail::lean_vector<tasks_on_node>& portions,
                        detail::lean_vector<tasks_on_node>& scratch) const {
    sort_portions(portions);
    scratch.swap(portions);
    portions.clear();
    std::uint32_t g = 0;
    std::uint32_t done = 0;  // of its tasks
    for (std::size_t i = 0; i < scratch.size(); ++i) {
      const auto [node, u, tasks] = scratch[i];
      if (i == 0 || scratch[i - 1].group != u) {
        g = groups_[u].first_group;
        done = 0;
      }
      for (std::uint32_t left = tasks; left > 0;) {
        while (group_of_[g] != u || done == gang.groups[g].tasks) {
          ++g;
          done = 0;
        }
        const std::uint32_t n = (std::min)(left, gang.groups[g].tasks - done);
        portions.push_back({node, g, n});
        for (std::uint32_t m = first_led_[g]; m != no_task_group; m = next_led_[m])
          if (gang.groups[m].tasks > 0)
            portions.push_back({node, m, n * (gang.groups[m].tasks / gang.groups[g].tasks)});
        done += n;
        left -= n;
      }
    }
    sort_portions(portions);
  }

 private:
  static constexpr std::uint32_t max_fractions = 16'001;  // more than any node has
  // sum + each * tasks, but at most `most`.
  [[nodiscard]] static std::uint64_t add_up(std::uint64_t sum, std::uint32_t each,
                                            std::uint32_t tasks, std::uint64_t most) noexcept {
    return (std::min)(sum + (std::min)(std::uint64_t{each} * tasks, most), most);
  }
  void add(group& u, const constrained_task_group& m) {
    const std::uint32_t each = m.tasks / u.tasks;
    u.gpus = static_cast<std::uint32_t>(add_up(u.gpus, m.gpus, each, max_gpus));
    u.cpu_milli = add_up(u.cpu_milli, m.host.cpu_milli, each, max_host);
    u.memory_mib = add_up(u.memory_mib, m.host.memory_mib, each, max_host);
    if (each == 0) return;
    if (m.gpus > 0) u.models &= m.models;
    if (m.shared() > 0) {
      const std::size_t more = (std::min)(each, max_fractions);
      std::size_t at = u.fractions.size();
      u.fractions.append(more, m.shared());
      for (; at > 0 && u.fractions[at - 1] < m.shared(); --at) {  // the greatest come first
        u.fractions[at - 1 + more] = u.fractions[at - 1];
        u.fractions[at - 1] = m.shared();
      }
    }
    limit* const limits = &limits_[limits_.size() - heights_];
    for (const level_count& s : m.slices) {
      limit& is = limits[s.level - node_level_];
      is.step = common_multiple(is.step, s.tasks / common_divisor(s.tasks, each));
      u.constrained = (std::min)(u.constrained, s.level);
    }
    for (const level_count& s : m.spread) {
      limit& is = limits[s.level - node_level_];
      is.most = (std::min)(is.most, s.tasks / each);
      u.constrained = (std::min)(u.constrained, s.level);
    }
  }
  // Not std::gcd and std::lcm, because <numeric> would add 600 lines to each user.
  static std::uint32_t common_divisor(std::uint32_t a, std::uint32_t b) noexcept {
    while (b != 0) a = std::exchange(b, a % b);
    return a;
  }
  static std::uint32_t common_multiple(std::uint32_t a, std::uint32_t b) noexcept {
    return a / common_divisor(a, b) * b;
  }
  // Lists the groups that each group leads.
  void list_led(const topology_constraints& gang) {
    first_led_.assign(gang.groups.size(), no_task_group);
    next_led_.assign(gang.groups.size(), no_task_group);
    for (auto m = static_cast<std::uint32_t>(gang.groups.size()); m-- > 0;) {
      const std::uint32_t leader = gang.groups[m].leader;
      if (!gang.groups[m].on_node_of_leader()) continue;
      next_led_[m] = first_led_[leader];
      first_led_[leader] = m;
    }
  }
  // The lowest level at which each group is in a replica.
  void list_replicas(const topology_constraints& gang) {
    links_.clear();
    linked_.assign(gang.groups.size(), any_level);
    for (std::size_t m = 0; m < gang.groups.size(); ++m) {
      const constrained_task_group& led = gang.groups[m];
      if (led.leader == no_task_group || led.leader_level == any_level || led.tasks == 0) continue;
      linked_[m] = led.leader_level;
      linked_[led.leader] = (std::min)(linked_[led.leader], led.leader_level);
    }
  }
  [[nodiscard]] static std::uint64_t hash_of(const group& u) noexcept {
    std::uint64_t hash = u.models;
    const auto mix = [&](std::uint64_t value) {
      hash = (hash ^ value) * 0x9e3779b97f4a7c15U;
      hash ^= hash >> 29;
    };
    mix(u.gpus);
    mix(u.cpu_milli);
    mix(u.memory_mib);
    for (const milli_gpu fraction : u.fractions) mix(fraction);
    return hash;
  }
  // Merges the new group into an equal one without constraints. Returns its index, or size().
  std::size_t join(const group& u) {
    if (u.constrained != any_level) return groups_.size();
    for (auto at = static_cast<std::size_t>(hash_of(u));; ++at) {
      std::uint32_t& known = equal_groups_[at & (equal_groups_.size() - 1)];
      if (known == 0) {
        known = static_cast<std::uint32_t>(groups_.size() + 1);
        return groups_.size();
      }
      const std::size_t i = known - 1;
      group& other = groups_[i];
      if (other.gpus != u.gpus || other.cpu_milli != u.cpu_milli ||
          other.memory_mib != u.memory_mib || other.fractions != u.fractions ||
          other.models != u.models)
        continue;
      other.tasks += u.tasks;
      for (std::size_t h = 0; h < heights_; ++h) limits_[i * heights_ + h].most = other.tasks;
      limits_.resize(groups_.size() * heights_);
      return i;
    }
  }
  // A step is a multiple of each lower step; a cell may hold no more tasks than the cell above.
  void tighten_limits() {
    limit* const limits = &limits_[limits_.size() - heights_];
    for (std::size_t h = 1; h < heights_; ++h)
      limits[h].step = common_multiple(limits[h].step, limits[h - 1].step);
    for (std::size_t h = heights_; h-- > 0;) {
      if (h + 1 < heights_) limits[h].most = (std::min)(limits[h].most, limits[h + 1].most);
      limits[h].most -= limits[h].most % limits[h].step;
    }
  }

  // Sorts portions by group, then node, and merges those of one group on one node.
  static void sort_portions(detail::lean_vector<tasks_on_node>& portions) {
    detail::lean_vector<keyed_number> tasks;
    for (const tasks_on_node& p : portions)
      tasks.push_back({std::uint64_t{p.group} << 32 | p.node, p.tasks});
    keyed_number::sort(tasks);
    portions.clear();
    for (const keyed_number& t : tasks) {
      const auto group = static_cast<std::uint32_t>(t.key >> 32);
      const auto node = static_cast<std::uint32_t>(t.key);
      if (portions.empty() || portions.back().group != group || portions.back().node != node)
        portions.push_back({node, group, 0});
      portions.back().tasks += t.number;
    }
  }

  level_t node_level_ = 0;
  std::size_t heights_ = 0;
  std::vector<group> groups_;
  std::vector<std::uint32_t> group_of_;   // of each task group
  std::vector<std::uint32_t> first_led_;  // the first group that a group leads
  std::vector<std::uint32_t> next_led_;   // the next group with the same leader
  detail::lean_vector<level_t> linked_;   // of each group; any_level: in no replica
  detail::lean_vector<link> links_;
  std::vector<std::uint32_t> equal_groups_;  // hash table: 1 + index, of groups without constraints
  detail::lean_vector<limit> limits_;        // by group, then by level from the nodes up
  bool hosted_ = false;
  level_t lowest_constraint_ = any_level;
};

APIARY_NAMESPACE_END
