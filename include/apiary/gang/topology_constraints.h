// apiary/gang/topology_constraints.h - a gang, its task groups and its topology constraints.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Which cell and which nodes a search prefers when a gang fits in several.
// whole_cells: the cell with the fewest free GPUs that can hold the gang, and there the fullest
// cells and nodes, so that whole cells stay free. fewest_nodes: the cell where the gang needs the
// fewest nodes, and there few nodes. Exact for one task size without CPU, memory and constraints
// above the node level, otherwise an estimate.
enum class gang_objective : std::uint8_t { whole_cells, fewest_nodes };

// No level: as `required`, the whole cluster; as `preferred`, the same level as `required`.
inline constexpr level_t any_level = ~level_t{0};
// No task group: the group has no leader.
inline constexpr std::uint32_t no_task_group = ~std::uint32_t{0};

// A number of tasks in a cell of a level: the size of a slice, or the limit of a spread.
struct level_count {
  level_t level = 0;        // level of the cell
  std::uint32_t tasks = 0;  // how many tasks
  friend constexpr bool operator==(level_count, level_count) noexcept = default;
};

// A group of identical tasks of a gang. Each runs on one node. Only shared_gpu_fit reads gpu_milli
// and models.
//   slices  each slice of `tasks` consecutive tasks is in one cell of the level. A slice of a lower
//           level divides a slice of a higher level: {{rack, 16}, {block, 64}}
//   leader  each task of the leader shares its node with (tasks / tasks of the leader) tasks of
//           this group. With leader_level it shares a cell of that level with them: they are a
//           replica, and different replicas may be in different cells
struct constrained_task_group {
  std::uint32_t tasks = 0;               // how many tasks
  std::uint32_t gpus = 0;                // GPUs of a task
  resources host{};                      // CPU and memory of a task
  std::vector<level_count> slices{};     // slices, each in one cell
  std::vector<level_count> spread{};     // the most tasks in a cell (anti-affinity)
  std::uint32_t leader = no_task_group;  // index of the group that leads this one
  level_t leader_level = any_level;      // where a replica stays together; any_level: on a node
  milli_gpu gpu_milli = whole_gpu;       // thousandths that a task takes of each GPU
  model_set models = any_model;          // GPU models on which the tasks can run

  friend bool operator==(const constrained_task_group&, const constrained_task_group&) = default;

  // Whether the tasks share the nodes of the tasks that lead them.
  [[nodiscard]] bool on_node_of_leader() const noexcept {
    return leader != no_task_group && leader_level == any_level;
  }
  // The request of one task.
  [[nodiscard]] task_request task() const noexcept {
    return {.cpu_milli = host.cpu_milli,
            .memory_mib = host.memory_mib,
            .gpus = gpus,
            .gpu_milli = gpus > 0 ? gpu_milli : milli_gpu{0},
            .models = models};
  }
  // Thousandths of a GPU that a task takes if it shares the GPU; 0 if it takes whole GPUs or none.
  [[nodiscard]] milli_gpu shared() const noexcept {
    return gpus > 0 && gpu_milli < whole_gpu ? gpu_milli : milli_gpu{0};
  }
};

// A gang: its task groups, and the cell in which all tasks must be. A search takes the first level
// from `preferred` up to `required` where the gang fits one cell. Indices of groups are positions
// in `groups`.
struct topology_constraints {
  // The most tasks that all groups of a gang may have together.
  static constexpr std::uint32_t max_tasks = ~std::uint32_t{0};

  std::vector<constrained_task_group> groups{};  // the task groups
  level_t required = any_level;                  // the gang must be in one cell of this level
  level_t preferred = any_level;                 // the gang should be in one cell of this level

  friend bool operator==(const topology_constraints&, const topology_constraints&) = default;

  // The first invalid constraint in words, with the task group, the level and the numbers; empty if
  // the gang is valid in a tree with num_levels levels whose nodes are at node_level.
  //
  // A gang is valid if: every level is the node level or above it; the slices of a group have
  // different levels, the slice of a level divides the slice of each higher level, and each slice
  // divides the tasks; a leader has no leader, and its tasks divide the tasks that it leads; a
  // leader_level is above the nodes; all groups together have at most max_tasks tasks.
  // Cost: O(groups * levels^2).
  [[nodiscard]] std::string fault(level_t node_level, level_t num_levels) const;
  // Whether the gang is valid; see fault().
  [[nodiscard]] bool valid(level_t node_level, level_t num_levels) const {
    return fault(node_level, num_levels).empty();
  }
};

// The tasks of one task group on one node.
struct tasks_on_node {
  std::uint32_t node = 0;   // index of the node
  std::uint32_t group = 0;  // index of the task group
  std::uint32_t tasks = 0;  // how many of its tasks
  friend bool operator==(const tasks_on_node&, const tasks_on_node&) = default;
};

namespace detail {

// The text with each # replaced by the next of the numbers.
[[nodiscard]] inline std::string with_numbers(const char* text,
                                              std::initializer_list<std::uint64_t> numbers) {
  std::string all;
  const std::uint64_t* next = numbers.begin();
  for (; *text != 0; ++text) {
    if (*text == '#') {
      all += std::to_string(*next++);
    } else {
      all += *text;
    }
  }
  return all;
}

}  // namespace detail

inline std::string topology_constraints::fault(level_t node_level, level_t num_levels) const {
  using detail::with_numbers;
  const auto known = [&](level_t l) { return l >= node_level && l < num_levels; };
  const auto no_level = [&](const char* what, std::uint32_t group, level_t l) {
    return with_numbers(what, {group}) +
           with_numbers(" level #; the levels are # to #", {l, node_level, num_levels - 1});
  };
  if (required != any_level && !known(required)) return no_level("the gang requires", 0, required);
  if (preferred != any_level && !known(preferred))
    return no_level("the gang prefers", 0, preferred);
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < groups.size(); ++i) {
    const constrained_task_group& m = groups[i];
    sum += m.tasks;
    if (sum > max_tasks)
      return with_numbers("task group #: with its # tasks the gang has more than # tasks",
                          {i, m.tasks, max_tasks});
    for (const level_count& s : m.slices) {
      if (!known(s.level)) return no_level("task group # has slices at", i, s.level);
      if (s.tasks == 0 || m.tasks % s.tasks != 0)
        return with_numbers("task group #: slices of # tasks (level #) do not divide its # tasks",
                            {i, s.tasks, s.level, m.tasks});
      for (const level_count& other : m.slices) {
        if (&other != &s && other.level == s.level)
          return with_numbers("task group # has two sizes of slices at level #", {i, s.level});
        if (other.level > s.level && other.tasks % s.tasks != 0)
          return with_numbers(
              "task group #: slices of # tasks (level #) do not divide slices of # tasks (level #)",
              {i, s.tasks, s.level, other.tasks, other.level});
      }
    }
    for (const level_count& s : m.spread)
      if (!known(s.level)) return no_level("task group # has anti-affinity at", i, s.level);
    if (m.leader == no_task_group && m.leader_level != any_level)
      return with_numbers("task group # has a leader level and no leader", {i});
    if (m.leader == no_task_group) continue;
    if (m.leader_level != any_level && (m.leader_level == node_level || !known(m.leader_level)))
      return with_numbers("task group #: leader level # is not a level above the nodes",
                          {i, m.leader_level});
    if (m.leader >= groups.size())
      return with_numbers("task group #: its leader, task group #, is not in the gang",
                          {i, m.leader});
    const constrained_task_group& leader = groups[m.leader];
    if (m.leader == i || leader.leader != no_task_group)
      return with_numbers("task group #: its leader, task group #, has a leader", {i, m.leader});
    if (leader.tasks == 0 ? m.tasks != 0 : m.tasks % leader.tasks != 0)
      return with_numbers(
          "task group #: # tasks are not a multiple of the # tasks of its leader, task group #",
          {i, m.tasks, leader.tasks, m.leader});
  }
  return {};
}

APIARY_NAMESPACE_END
