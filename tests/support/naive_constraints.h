// apiary/tests/support/naive_constraints.h - gangs under constraints: two slow ways to place them, and checks.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/model/resources.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

namespace apiary_test {

// Racks of nodes of so many leaves, perhaps in blocks; nodes are level 1.
struct test_cluster {
  apiary::ragged_tree tree;
  std::vector<std::uint32_t> free;
  std::vector<apiary::resources> hosts;  // or none

  [[nodiscard]] std::uint32_t num_nodes() const { return static_cast<std::uint32_t>(free.size()); }
  // The cell of a level a node is in, by its place; 0 above the roots.
  [[nodiscard]] std::uint32_t cell(std::uint32_t node, apiary::level_t l) const {
    if (l == tree.num_levels()) return 0;
    return tree.ancestor(tree.cells(1)[node], l).value - tree.cells(l).first.value;
  }
};

// The same cells as ragged_tree.
template <apiary::CellTree Tree>
apiary::ragged_tree ragged_copy(const Tree& tree) {
  std::vector<std::vector<std::uint32_t>> fan_outs{{tree.cells(tree.num_levels() - 1).size()}};
  for (apiary::level_t l = tree.num_levels() - 1; l > 0; --l) {
    std::vector<std::uint32_t>& below = fan_outs.emplace_back();
    for (const apiary::cell_id c : tree.cells(l)) below.push_back(tree.children(c, l).size());
  }
  return apiary::ragged_tree(fan_outs);
}

// The node of each task of each task group.
using assignment = std::vector<std::vector<std::uint32_t>>;

// Whether tasks on these nodes can be cut into slices of the sizes from `at` on, largest first:
// every way to choose the other tasks in the slice of the first task is tried.
inline bool sliceable(const test_cluster& cluster, const std::vector<std::uint32_t>& nodes,
                      const std::vector<apiary::level_count>& slices, std::size_t at) {
  if (at == slices.size() || nodes.empty()) return true;
  const std::size_t size = slices[at].tasks;
  if (nodes.size() < size) return false;
  std::vector<bool> chosen(nodes.size() - 1, false);
  std::fill(chosen.end() - static_cast<std::ptrdiff_t>(size - 1), chosen.end(), true);
  do {
    std::vector<std::uint32_t> slice{nodes[0]};
    std::vector<std::uint32_t> rest;
    for (std::size_t i = 1; i < nodes.size(); ++i)
      (chosen[i - 1] ? slice : rest).push_back(nodes[i]);
    const auto elsewhere = [&](std::uint32_t n) {
      return cluster.cell(n, slices[at].level) != cluster.cell(slice[0], slices[at].level);
    };
    if (std::none_of(slice.begin(), slice.end(), elsewhere) &&
        sliceable(cluster, slice, slices, at + 1) && sliceable(cluster, rest, slices, at))
      return true;
  } while (std::next_permutation(chosen.begin(), chosen.end()));
  return false;
}

// Whether an assignment keeps all constraints, within one cell of the level.
inline bool meets_constraints(const test_cluster& cluster, const apiary::topology_constraints& gang,
                              const assignment& nodes, apiary::level_t within) {
  std::vector<std::uint64_t> leaves(cluster.num_nodes());
  std::vector<std::uint64_t> cpu(cluster.num_nodes());
  std::vector<std::uint64_t> memory(cluster.num_nodes());
  std::set<std::uint32_t> cells;
  for (std::size_t m = 0; m < gang.groups.size(); ++m) {
    const apiary::constrained_task_group& group = gang.groups[m];
    if (nodes[m].size() != group.tasks) return false;
    for (const std::uint32_t n : nodes[m]) {
      leaves[n] += group.gpus;
      cpu[n] += group.host.cpu_milli;
      memory[n] += group.host.memory_mib;
      cells.insert(cluster.cell(n, within));
    }
    for (const apiary::level_count& s : group.spread) {
      std::map<std::uint32_t, std::uint32_t> there;
      for (const std::uint32_t n : nodes[m])
        if (++there[cluster.cell(n, s.level)] > s.tasks) return false;
    }
    std::vector<apiary::level_count> slices = group.slices;
    std::sort(slices.begin(), slices.end(),
              [](const auto& a, const auto& b) { return a.level > b.level; });
    if (!sliceable(cluster, nodes[m], slices, 0)) return false;
    if (group.leader == apiary::no_task_group || group.tasks == 0) continue;
    const std::vector<std::uint32_t>& leaders = nodes[group.leader];
    const apiary::level_t level = group.on_node_of_leader() ? 1 : group.leader_level;
    for (std::uint32_t n = 0; n < cluster.num_nodes(); ++n) {
      const auto here = [&](const std::vector<std::uint32_t>& all) {
        return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [&](auto other) {
          return cluster.cell(other, level) == cluster.cell(n, level);
        }));
      };
      if (here(nodes[m]) != here(leaders) * (group.tasks / leaders.size())) return false;
    }
  }
  for (std::uint32_t n = 0; n < cluster.num_nodes(); ++n) {
    if (leaves[n] > cluster.free[n]) return false;
    if (!cluster.hosts.empty() &&
        (cpu[n] > cluster.hosts[n].cpu_milli || memory[n] > cluster.hosts[n].memory_mib))
      return false;
  }
  return cells.size() <= 1;
}

// Tries every assignment of tasks to nodes, tasks of a task group in ascending order of nodes.
inline bool fits_by_assigning(const test_cluster& cluster, const apiary::topology_constraints& gang,
                              apiary::level_t within, assignment& begun, std::size_t group,
                              std::vector<std::uint32_t>& left) {
  if (group == gang.groups.size()) return meets_constraints(cluster, gang, begun, within);
  std::vector<std::uint32_t>& nodes = begun[group];
  if (nodes.size() == gang.groups[group].tasks)
    return fits_by_assigning(cluster, gang, within, begun, group + 1, left);
  for (std::uint32_t n = nodes.empty() ? 0 : nodes.back(); n < cluster.num_nodes(); ++n) {
    if (left[n] < gang.groups[group].gpus) continue;
    left[n] -= gang.groups[group].gpus;
    nodes.push_back(n);
    const bool fits = fits_by_assigning(cluster, gang, within, begun, group, left);
    nodes.pop_back();
    left[n] += gang.groups[group].gpus;
    if (fits) return true;
  }
  return false;
}
inline bool fits_by_assigning(const test_cluster& cluster, const apiary::topology_constraints& gang,
                              apiary::level_t within) {
  assignment begun(gang.groups.size());
  std::vector<std::uint32_t> left = cluster.free;
  return fits_by_assigning(cluster, gang, within, begun, 0, left);
}

// Goes from node to node and decides what each takes; what failed from a node on is remembered by
// the tasks that are left and those in the cells that are not ended yet.
class node_after_node {
 public:
  node_after_node(const test_cluster& cluster, const apiary::topology_constraints& gang)
      : world_(cluster), gang_(gang) {}

  bool operator()(apiary::level_t within) {
    const std::uint32_t cells = world_.cell(world_.num_nodes() - 1, within) + 1;
    for (std::uint32_t c = 0; c < cells; ++c) {
      first_ = 0;
      while (world_.cell(first_, within) != c) ++first_;
      last_ = first_;
      while (last_ < world_.num_nodes() && world_.cell(last_, within) == c) ++last_;
      failed_.clear();
      std::vector<std::uint32_t> left;
      for (const apiary::constrained_task_group& m : gang_.groups) left.push_back(m.tasks);
      open_.assign(world_.tree.num_levels(), std::vector<std::uint32_t>(left.size(), 0));
      if (from(first_, left)) return true;
    }
    return false;
  }

 private:
  bool from(std::uint32_t node, std::vector<std::uint32_t>& left) {
    if (node == last_) return std::all_of(left.begin(), left.end(), [](auto n) { return n == 0; });
    std::vector<std::uint32_t> key{node};
    key.insert(key.end(), left.begin(), left.end());
    for (const auto& open : open_) key.insert(key.end(), open.begin(), open.end());
    if (failed_.contains(key)) return false;
    std::uint64_t cpu = ~std::uint64_t{0};
    std::uint64_t memory = cpu;
    if (!world_.hosts.empty()) {
      cpu = world_.hosts[node].cpu_milli;
      memory = world_.hosts[node].memory_mib;
    }
    if (take(node, 0, world_.free[node], cpu, memory, left)) return true;
    failed_.insert(key);
    return false;
  }
  bool take(std::uint32_t node, std::size_t m, std::uint64_t free, std::uint64_t cpu,
            std::uint64_t memory, std::vector<std::uint32_t>& left) {
    if (m == left.size()) return close(node, left);
    const apiary::constrained_task_group& group = gang_.groups[m];
    bool fits = false;
    for (std::uint32_t n = left[m] + 1; n-- > 0 && !fits;) {
      if (free < std::uint64_t{n} * group.gpus || cpu < std::uint64_t{n} * group.host.cpu_milli ||
          memory < std::uint64_t{n} * group.host.memory_mib)
        continue;
      left[m] -= n;
      for (auto& open : open_) open[m] += n;
      fits = take(node, m + 1, free - std::uint64_t{n} * group.gpus,
                  cpu - std::uint64_t{n} * group.host.cpu_milli,
                  memory - std::uint64_t{n} * group.host.memory_mib, left);
      for (auto& open : open_) open[m] -= n;
      left[m] += n;
    }
    return fits;
  }
  // The cells that end with this node must keep the constraints.
  bool close(std::uint32_t node, std::vector<std::uint32_t>& left) {
    const auto saved = open_;
    bool kept = true;
    for (apiary::level_t l = 1; l < world_.tree.num_levels() && kept; ++l) {
      if (node + 1 < last_ && world_.cell(node, l) == world_.cell(node + 1, l)) break;
      for (std::size_t m = 0; m < left.size(); ++m) {
        const apiary::constrained_task_group& group = gang_.groups[m];
        const std::uint32_t here = open_[l][m];
        for (const auto& s : group.slices) kept = kept && (s.level != l || here % s.tasks == 0);
        for (const auto& s : group.spread) kept = kept && (s.level != l || here <= s.tasks);
        const apiary::level_t shared = group.on_node_of_leader() ? 1 : group.leader_level;
        if (l == shared && group.leader != apiary::no_task_group && group.tasks > 0) {
          const std::uint32_t leaders = gang_.groups[group.leader].tasks;
          kept = kept && here == open_[l][group.leader] * (group.tasks / leaders);
        }
      }
      open_[l].assign(left.size(), 0);
    }
    open_[0].assign(left.size(), 0);
    const bool fits = kept && from(node + 1, left);
    open_ = saved;
    return fits;
  }

  const test_cluster& world_;
  const apiary::topology_constraints& gang_;
  std::uint32_t first_ = 0;
  std::uint32_t last_ = 0;
  std::vector<std::vector<std::uint32_t>> open_;  // tasks of each task group in the open cells
  std::set<std::vector<std::uint32_t>> failed_;
};

// Whether the answer of topology_fit places all tasks by the constraints; slices are consecutive tasks.
template <class Fit>
bool is_valid_placement(const test_cluster& cluster, const apiary::topology_constraints& gang,
                        const Fit& fit) {
  assignment nodes(gang.groups.size());
  for (const auto& p : fit.portions) {
    if (p.group >= nodes.size() || p.node >= cluster.num_nodes() || p.tasks == 0) return false;
    if (!nodes[p.group].empty() && nodes[p.group].back() >= p.node) return false;
    if (cluster.cell(p.node, fit.level) != fit.cell) return false;
    nodes[p.group].insert(nodes[p.group].end(), p.tasks, p.node);
  }
  for (std::size_t m = 0; m < nodes.size(); ++m) {
    for (const apiary::level_count& s : gang.groups[m].slices)
      for (std::size_t i = 0; i < nodes[m].size(); ++i)
        if (cluster.cell(nodes[m][i], s.level) !=
            cluster.cell(nodes[m][i / s.tasks * s.tasks], s.level))
          return false;
  }
  return meets_constraints(cluster, gang, nodes, fit.level);
}

}  // namespace apiary_test
