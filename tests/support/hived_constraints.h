// apiary/tests/support/hived_constraints.h - HiveD gangs under constraints: made at random, and checked.
// SPDX-License-Identifier: MIT
#pragma once

#include "support/naive_constraints.h"
#include "support/naive_gang.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/hived/constraints.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/layout.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace apiary_test {

// The cell of a level that a node lies in, by its chain and its place there; in a chain without the
// level that of all nodes.
[[nodiscard]] inline std::pair<std::uint32_t, std::uint32_t> cell_of(
    const apiary::hived_layout& layout, apiary::node_id node, apiary::level_t level) {
  const apiary::chain_id c = layout.chain_of(node);
  const apiary::chain_layout& chain = layout.chain(c);
  std::uint32_t place = node.value - chain.first_node;
  if (level >= chain.tree.num_levels()) return {c.value, 0};
  for (apiary::level_t l = chain.node_level; l < level; ++l) place /= chain.tree.fan_out(l + 1);
  return {c.value, place};
}

// Whether all tasks that run lie in one cell of the level.
[[nodiscard]] inline bool in_one_cell(const apiary::hived_layout& layout,
                                      std::span<const apiary::hived_placement> tasks,
                                      apiary::level_t level) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> cells;
  for (const apiary::hived_placement& t : tasks)
    if (t.leaves != 0) ++cells[cell_of(layout, t.node, level)];
  return cells.size() <= 1;
}

// Which rule the tasks of a gang break where they are; empty: none. Tasks that have ended count for
// nothing.
[[nodiscard]] inline std::string broken_rule(const apiary::hived_layout& layout,
                                             const apiary::gang_request& r,
                                             const std::vector<apiary::hived_placement>& tasks) {
  const apiary::level_t required = r.constraints->required;
  if (required != apiary::any_level && !in_one_cell(layout, tasks, required))
    return "not in one cell of level " + std::to_string(required);
  std::vector<std::size_t> first{0};
  for (const apiary::task_group& m : r.groups) first.push_back(first.back() + m.tasks);
  if (tasks.size() != first.back()) return "not all tasks";
  for (std::size_t m = 0; m < r.constraints->groups.size(); ++m) {
    const apiary::request_constraints::of_group& constraints = r.constraints->groups[m];
    const std::string group = "task group " + std::to_string(m) + ": ";
    for (const apiary::level_count& s : constraints.slices) {
      for (std::size_t i = first[m]; i < first[m + 1]; i += s.tasks)
        if (!in_one_cell(layout, std::span(tasks).subspan(i, s.tasks), s.level))
          return group + "a slice of level " + std::to_string(s.level) + " is torn";
    }
    for (const apiary::level_count& s : constraints.spread) {
      std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> there;
      for (std::size_t i = first[m]; i < first[m + 1]; ++i) {
        if (tasks[i].leaves != 0 && ++there[cell_of(layout, tasks[i].node, s.level)] > s.tasks)
          return group + "too many in a cell of level " + std::to_string(s.level);
      }
    }
    if (constraints.leader == apiary::no_task_group) continue;
    const std::size_t leaders = first[constraints.leader];
    const std::uint32_t each = r.groups[m].tasks / r.groups[constraints.leader].tasks;
    for (std::size_t i = 0; i < r.groups[m].tasks; ++i) {
      const apiary::hived_placement& led = tasks[first[m] + i];
      const apiary::hived_placement& leader = tasks[leaders + i / each];
      if (led.leaves != 0 && leader.leaves != 0 && led.node != leader.node)
        return group + "task " + std::to_string(i) + " is not with its leader";
    }
  }
  return "";
}

// Puts a gang under constraints that can be understood in the chain.
inline void add_constraints(apiary::gang_request& r, const apiary::chain_layout& chain,
                            apiary::rng& random) {
  const apiary::level_t levels = chain.tree.num_levels();
  const auto level = [&] { return chain.node_level + random.uniform(levels - chain.node_level); };
  const auto group = [&](std::size_t m) -> apiary::request_constraints::of_group& {
    r.constraints.edit().groups.resize(r.groups.size());
    return r.constraints.edit().groups[m];
  };
  if (random.uniform(2) == 0) r.constraints.edit().required = level();
  if (random.uniform(3) == 0) r.constraints.edit().preferred = level();
  if (r.groups.size() > 1 && random.uniform(2) == 0) {
    group(1).leader = 0;
    r.groups[1].tasks = r.groups[0].tasks * (1 + random.uniform(2));
  }
  for (std::size_t m = 0; m < r.groups.size(); ++m) {
    if (random.uniform(3) == 0) {
      const std::uint32_t slice = 1 + random.uniform(r.groups[m].tasks);
      if (r.groups[m].tasks % slice == 0) group(m).slices.push_back({level(), slice});
      if (r.groups[m].tasks % 2 == 0 && slice == 1 && !r.constraints->groups.empty() &&
          !r.constraints->groups[m].slices.empty())
        group(m).slices.push_back({level(), 2});
    }
    if (random.uniform(3) == 0) group(m).spread.push_back({level(), 1 + random.uniform(2)});
  }
  if (!apiary::constraints_of(r).valid(chain.node_level, levels))
    r.constraints.edit().groups.clear();
}

// Whether a spread of a guaranteed gang depends on bindings: its tenant has several whole cells below
// the level of the spread, and the group has more tasks than may be in one cell.
[[nodiscard]] inline bool depends_on_bindings(const apiary::gang_request& r,
                                              const apiary::detail::virtual_cluster& cluster) {
  if (r.constraints->required != apiary::any_level) return false;
  for (std::size_t m = 0; m < r.constraints->groups.size(); ++m) {
    for (const apiary::level_count& s : r.constraints->groups[m].spread) {
      if (r.groups[m].tasks <= s.tasks) continue;
      std::uint32_t below = 0;
      for (apiary::level_t l = 0; l < s.level; ++l) below += cluster.tree().roots(l).size();
      if (below > 1) return true;
    }
  }
  return false;
}

// Whether a gang fits under its constraints in whole cells of these levels of a chain, each alone in cells
// of the levels above; `free`: the leaves of their nodes, one cell after the other. within: in one
// cell of this level; any_level: of the one that is required.
[[nodiscard]] inline bool fits_in_whole_cells(const apiary::uniform_tree& tree,
                                              apiary::level_t node_level,
                                              std::span<const apiary::level_t> whole,
                                              const leaf_counts& free,
                                              const apiary::gang_request& r,
                                              apiary::level_t within = apiary::any_level) {
  if (free.empty()) return false;
  const apiary::level_t levels = tree.num_levels();
  std::vector<std::vector<std::uint32_t>> fan_outs(levels - node_level + 1);
  fan_outs[0] = {static_cast<std::uint32_t>(whole.size())};
  for (const apiary::level_t w : whole) {
    std::uint32_t cells = 1;
    for (apiary::level_t l = levels; --l > node_level;) {
      const std::uint32_t each = l <= w ? tree.fan_out(l) : 1;
      fan_outs[levels - l].insert(fan_outs[levels - l].end(), cells, each);
      cells *= each;
    }
    fan_outs.back().insert(fan_outs.back().end(), cells, 1);
  }
  const test_cluster cluster{apiary::ragged_tree(fan_outs), free, {}};
  apiary::topology_constraints gang = apiary::constraints_of(r);
  const auto shift = [&](apiary::level_t l) {
    return l == apiary::any_level ? levels - node_level + 1 : l - node_level + 1;
  };
  for (apiary::constrained_task_group& m : gang.groups) {
    for (apiary::level_count& s : m.slices) s.level = shift(s.level);
    for (apiary::level_count& s : m.spread) s.level = shift(s.level);
  }
  return node_after_node(
      cluster, gang)(shift(within == apiary::any_level ? r.constraints->required : within));
}

}  // namespace apiary_test
