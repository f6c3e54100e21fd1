// apiary/tests/support/naive_cells.h - all that cells can hold of a gang, vector by vector.
// SPDX-License-Identifier: MIT
#pragma once

#include "support/levels.h"
#include "support/naive_constraints.h"
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/topology/ragged_tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

namespace apiary_test {

// A kind of task: task groups without a leader that have no constraints and need the same with those they
// lead, or one task group.
struct naive_kind {
  std::vector<std::uint32_t> groups{};
  std::uint32_t tasks = 0;
  std::uint64_t leaves = 0;  // that a task needs, with those it leads
  std::uint64_t cpu = 0;
  std::uint64_t memory = 0;
};

// A gang in a cluster, asked of one cell after the other what it can hold: by the definition of the
// constraints, every vector of counts of its kinds tried. For small gangs.
class naive_cells {
 public:
  using counts = std::vector<std::uint32_t>;

  naive_cells(const test_cluster& cluster, const apiary::topology_constraints& gang)
      : cluster_(cluster), gang_(gang) {
    for (std::uint32_t m = 0; m < gang.groups.size(); ++m) {
      const apiary::constrained_task_group& group = gang.groups[m];
      if (group.leader != apiary::no_task_group || group.tasks == 0) continue;
      naive_kind k{{m}, group.tasks};
      for (const std::uint32_t other : with(m)) {
        for (std::uint32_t t = 0; t < gang.groups[other].tasks / group.tasks; ++t) {
          k.leaves += gang.groups[other].gpus;
          k.cpu += gang.groups[other].host.cpu_milli;
          k.memory += gang.groups[other].host.memory_mib;
        }
      }
      bool joined = false;
      for (naive_kind& known : kinds_) {
        if (joined || lowest_constraint(m) != apiary::any_level ||
            lowest_constraint(known.groups[0]) != apiary::any_level || known.leaves != k.leaves ||
            known.cpu != k.cpu || known.memory != k.memory)
          continue;
        known.groups.push_back(m);
        known.tasks += group.tasks;
        joined = true;
      }
      if (!joined) kinds_.push_back(k);
    }
  }

  [[nodiscard]] const std::vector<naive_kind>& kinds() const { return kinds_; }
  [[nodiscard]] counts tasks() const {
    counts all;
    for (const naive_kind& k : kinds_) all.push_back(k.tasks);
    return all;
  }
  [[nodiscard]] apiary::level_t lowest_constraint(std::uint32_t leader) const {
    apiary::level_t lowest = apiary::any_level;
    for (const std::uint32_t m : with(leader)) {
      for (const auto& s : gang_.groups[m].slices) lowest = std::min(lowest, s.level);
      for (const auto& s : gang_.groups[m].spread) lowest = std::min(lowest, s.level);
    }
    return lowest;
  }

  // Whether a cell of the level may have n tasks of a kind, in some cell of the next level that may
  // have its tasks, and so on. A cell of a level is made of whole cells of the levels below.
  [[nodiscard]] bool may(std::size_t kind, apiary::level_t l, std::uint32_t n) const {
    const std::uint32_t leader = kinds_[kind].groups[0];
    if (n > kinds_[kind].tasks) return false;
    for (const std::uint32_t m : with(leader)) {
      const apiary::constrained_task_group& group = gang_.groups[m];
      const std::uint32_t here = n * (group.tasks / gang_.groups[leader].tasks);
      for (const auto& s : group.slices)
        if (s.level <= l && here % s.tasks != 0) return false;
      for (const auto& s : group.spread)
        if (s.level == l && here > s.tasks) return false;
    }
    if (l == cluster_.tree.num_levels()) return true;
    for (std::uint32_t above = n; above <= kinds_[kind].tasks; ++above)
      if (may(kind, l + 1, above)) return true;
    return false;
  }
  // The greatest number up to n that a cell of the level may have.
  [[nodiscard]] std::uint32_t bound(std::size_t kind, apiary::level_t l, std::uint64_t n) const {
    auto most = static_cast<std::uint32_t>(std::min<std::uint64_t>(n, kinds_[kind].tasks));
    while (!may(kind, l, most)) --most;
    return most;
  }

  // All vectors of counts that a cell can hold.
  [[nodiscard]] std::set<counts> held(apiary::level_t l, std::uint32_t c) const {
    std::set<counts> sums{counts(kinds_.size(), 0)};
    if (l == node) {
      for (std::size_t k = 0; k < kinds_.size(); ++k) {
        std::set<counts> more;
        for (counts v : sums) {
          for (; v[k] <= kinds_[k].tasks && on_node(v, c); ++v[k])
            if (may(k, l, v[k])) more.insert(v);
        }
        sums = more;
      }
      return sums;
    }
    for (const std::uint32_t child : children(l, c)) {
      std::set<counts> more;
      const std::set<counts> of_child = held(l - 1, child);
      for (const counts& a : sums) {
        for (const counts& b : of_child) {
          counts sum = a;
          bool some = true;
          for (std::size_t k = 0; k < sum.size(); ++k) {
            sum[k] += b[k];
            some = some && sum[k] <= kinds_[k].tasks;
          }
          if (some) more.insert(sum);
        }
      }
      sums = more;
    }
    std::erase_if(sums, [&](const counts& v) {
      for (std::size_t k = 0; k < v.size(); ++k)
        if (!may(k, l, v[k])) return true;
      return false;
    });
    return sums;
  }

  // Those of them that no other one has at least as much of everything as.
  [[nodiscard]] std::set<counts> greatest(apiary::level_t l, std::uint32_t c) const {
    const std::set<counts> all = held(l, c);
    std::set<counts> found;
    for (const counts& v : all) {
      const auto more = [&](const counts& w) {
        return v != w && std::equal(v.begin(), v.end(), w.begin(), std::less_equal<>());
      };
      if (std::none_of(all.begin(), all.end(), more)) found.insert(v);
    }
    return found;
  }

  // The greatest weight that a cell can hold, as the proof counts it.
  [[nodiscard]] std::uint64_t max_weight(const counts& weights, apiary::level_t l,
                                         std::uint32_t c) const {
    const auto heavy = std::count_if(weights.begin(), weights.end(), [](auto w) { return w > 0; });
    std::uint64_t most = 0;
    if (l == node) {
      std::set<counts> all{counts(kinds_.size(), 0)};
      for (std::size_t k = 0; k < kinds_.size(); ++k) {
        std::set<counts> more;
        for (counts v : all) {
          for (; v[k] <= kinds_[k].tasks && on_node(v, c, heavy > 1); ++v[k])
            if (may(k, l, v[k])) more.insert(v);
        }
        all = more;
      }
      for (const counts& v : all) most = std::max(most, weight(weights, v));
      return most;
    }
    for (const std::uint32_t child : children(l, c)) most += max_weight(weights, l - 1, child);
    counts allowed;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      const bool alone = heavy == 1 && weights[k] > 0;
      allowed.push_back(bound(k, l, alone ? most / weights[k] : kinds_[k].tasks));
    }
    return std::min(most, weight(weights, allowed));
  }
  [[nodiscard]] static std::uint64_t weight(const counts& weights, const counts& v) {
    std::uint64_t sum = 0;
    for (std::size_t k = 0; k < v.size(); ++k) sum += std::uint64_t{weights[k]} * v[k];
    return sum;
  }

  [[nodiscard]] std::uint32_t num_cells(apiary::level_t l) const {
    return l == cluster_.tree.num_levels() ? 1 : cluster_.tree.cells(l).size();
  }
  // The cells of the next lower level in a cell, by their positions.
  [[nodiscard]] counts children(apiary::level_t l, std::uint32_t c) const {
    std::set<std::uint32_t> found;
    for (std::uint32_t n = 0; n < cluster_.num_nodes(); ++n)
      if (cluster_.cell(n, l) == c) found.insert(cluster_.cell(n, l - 1));
    return {found.begin(), found.end()};
  }

 private:
  // A task group and those it leads that have tasks.
  [[nodiscard]] counts with(std::uint32_t leader) const {
    counts all;
    for (std::uint32_t m = 0; m < gang_.groups.size(); ++m)
      if ((m == leader || gang_.groups[m].leader == leader) && gang_.groups[m].tasks > 0)
        all.push_back(m);
    return all;
  }
  // Whether a node can hold all these, or has leaves for them.
  [[nodiscard]] bool on_node(const counts& v, std::uint32_t n, bool leaves_alone = false) const {
    std::uint64_t leaves = 0;
    std::uint64_t cpu = 0;
    std::uint64_t memory = 0;
    for (std::size_t k = 0; k < v.size(); ++k) {
      leaves += v[k] * kinds_[k].leaves;
      cpu += v[k] * kinds_[k].cpu;
      memory += v[k] * kinds_[k].memory;
    }
    if (leaves > cluster_.free[n]) return false;
    return leaves_alone || cluster_.hosts.empty() ||
           (cpu <= cluster_.hosts[n].cpu_milli && memory <= cluster_.hosts[n].memory_mib);
  }

  const test_cluster& cluster_;
  const apiary::topology_constraints& gang_;
  std::vector<naive_kind> kinds_;
};

// A block or two of one or two racks of up to three nodes of up to `most` leaves.
inline test_cluster random_small_cells(apiary::rng& random, std::uint32_t most) {
  std::vector<std::uint32_t> blocks(1 + random.uniform(2));
  std::vector<std::uint32_t> racks;
  std::uint32_t nodes = 0;
  for (std::uint32_t& b : blocks) {
    b = 1 + random.uniform(2);
    for (std::uint32_t r = 0; r < b; ++r) {
      racks.push_back(1 + random.uniform(3));
      nodes += racks.back();
    }
  }
  const auto num_blocks = static_cast<std::uint32_t>(blocks.size());
  test_cluster cluster{
      apiary::ragged_tree({{num_blocks}, blocks, racks, std::vector<std::uint32_t>(nodes, most)}),
      {},
      {}};
  const bool hosts = random.uniform(2) == 0;
  for (std::uint32_t n = 0; n < nodes; ++n) {
    cluster.free.push_back(random.uniform(most + 1));
    if (hosts) cluster.hosts.push_back({random.uniform(7), random.uniform(7)});
  }
  return cluster;
}

// Up to three task groups of up to four tasks, with constraints, leaders, CPU and memory now and then; valid.
inline apiary::topology_constraints random_small_gang(apiary::rng& random, std::uint32_t most) {
  apiary::topology_constraints gang;
  const std::uint32_t groups = 1 + random.uniform(3);
  const bool hosted = random.uniform(2) == 0;
  for (std::uint32_t m = 0; m < groups; ++m) {
    apiary::constrained_task_group& group = gang.groups.emplace_back();
    group.tasks = random.uniform(8) == 0 ? 0 : 1 + random.uniform(4);
    group.gpus = random.uniform(8) == 0 ? 0 : 1 + random.uniform(most);
    if (hosted && random.uniform(4) > 0) group.host = {random.uniform(4), random.uniform(4)};
    if (m > 0 && gang.groups[0].tasks > 0 && random.uniform(4) == 0) {
      group.leader = 0;
      group.tasks = gang.groups[0].tasks * (1 + random.uniform(2));
    }
    if (random.uniform(2) == 0) continue;
    const std::uint32_t tasks = std::max(group.tasks, 1U);
    for (apiary::level_t l = node; l <= block; ++l) {
      std::uint32_t size = 1 + random.uniform(tasks);
      while (tasks % size != 0) --size;
      const bool nests = group.slices.empty() || size % group.slices.back().tasks == 0;
      if (nests && random.uniform(3) == 0) group.slices.push_back({l, size});
      if (random.uniform(3) == 0) group.spread.push_back({l, random.uniform(tasks + 2)});
    }
  }
  return gang;
}

inline apiary::capacity_index<apiary::ragged_tree> capacities_of_cells(const test_cluster& cluster,
                                                                       std::uint32_t most) {
  apiary::capacity_index<apiary::ragged_tree> capacities(cluster.tree, node, most);
  for (std::uint32_t n = 0; n < cluster.num_nodes(); ++n) capacities.set(n, cluster.free[n]);
  return capacities;
}

}  // namespace apiary_test
