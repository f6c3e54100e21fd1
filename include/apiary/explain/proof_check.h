// apiary/explain/proof_check.h - verifies a proof that a gang does not fit.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/explain/detail/checked_constraints.h>
#include <apiary/explain/detail/checked_nodes.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/resources.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Verifies an infeasibility_proof: counts everything in it again from the state of the cluster, and
// accepts it only if every number is right. It shares no code with the search that made the proof.
// Use it in tests, or to audit what a scheduler tells a user.
//
// Requires: gang.valid(); all arguments of the constructor outlive the object.
// Invalid:  aborts (APIARY_VERIFY) if the number of nodes differs from that of the cells of their
//           level.
// Cost:     O(nodes * task groups * GPUs of a node) for each weighing. A listed cell costs time
//           that is exponential in the task groups and linear in the tasks that a node may hold.
// Example:  examples/shared_gang.cpp
template <CellTree Tree, class Nodes = detail::checked_whole_gpus>
class proof_check {
 public:
  // For nodes with whole GPUs. node_level: the level of the nodes in the tree. free: free GPUs of
  // each node. hosts: free CPU and memory of each node, or empty if they do not count.
  proof_check(const Tree& tree, level_t node_level, std::span<const std::uint32_t> free,
              std::span<const resources> hosts, const topology_constraints& gang)
      : proof_check(tree, node_level, Nodes{free, hosts}, gang) {}
  // Temporaries are refused, here and below: they would be gone when the proof is checked.
  proof_check(const Tree&, level_t, std::span<const std::uint32_t>, std::span<const resources>,
              const topology_constraints&&) = delete;
  // For nodes with GPUs that tasks share.
  proof_check(const Tree& tree, level_t node_level, const node_table& nodes,
              const topology_constraints& gang)
      : proof_check(tree, node_level, Nodes{&nodes}, gang) {}
  // Temporaries are refused.
  proof_check(const Tree&, level_t, const node_table&, const topology_constraints&&) = delete;
  // Temporaries are refused.
  proof_check(const Tree&, level_t, const node_table&&, const topology_constraints&) = delete;
  // Temporaries are refused.
  proof_check(const Tree&, level_t, Nodes, const topology_constraints&&) = delete;
  // For either.
  proof_check(const Tree& tree, level_t node_level, Nodes nodes, const topology_constraints& gang)
      : tree_(tree), node_level_(node_level), nodes_(nodes), gang_(gang) {
    APIARY_VERIFY(nodes.size() == tree.cells(node_level).size());
    for (std::uint32_t m = 0; m < gang.groups.size(); ++m) {
      const constrained_task_group& asked = gang.groups[m];
      if (asked.on_node_of_leader() || asked.tasks == 0) continue;
      const auto same = [&](std::uint32_t other) {
        return !has_constraints(m) && !has_constraints(other) && task_of(m) == task_of(other);
      };
      const auto at = std::find_if(groups_.begin(), groups_.end(), same);
      if (at == groups_.end()) {
        groups_.push_back(m);
        counts_.push_back(asked.tasks);
      } else {
        counts_[static_cast<std::size_t>(at - groups_.begin())] += asked.tasks;
      }
    }
    for (const std::uint32_t group : groups_) tasks_.push_back(task_of(group));
    constraints_.begin(gang, groups_, counts_, tree.num_levels());
  }

  // Whether the proof is right.
  [[nodiscard]] bool operator()(const infeasibility_proof& why) {
    const bool anywhere = gang_.required == any_level;
    if (why.level != (anywhere ? tree_.num_levels() : gang_.required)) return false;
    if (why.groups != groups_ || why.tasks != counts_) return false;
    if (why.node_level != node_level_ || !bounds_nodes(why.node_gpus)) return false;
    for (const infeasibility_proof::weighing& w : why.weighings) {
      if (w.weights.size() != groups_.size()) return false;
      std::uint64_t needed = 0;
      for (std::size_t k = 0; k < groups_.size(); ++k)
        needed += std::uint64_t{w.weights[k]} * counts_[k];
      if (needed != w.needed) return false;
    }
    if (why.cells.size() != (anywhere ? 1 : tree_.cells(why.level).size())) return false;
    for (std::uint32_t c = 0; c < why.cells.size(); ++c) {
      const infeasibility_proof::refusal& r = why.cells[c];
      if (r.cell != c ||
          !(r.weighing == infeasibility_proof::listed ? is_listed(why, r) : is_weighed(why, r)))
        return false;
    }
    return why.gaps.empty() || why.gaps == slice_gaps(why);
  }

 private:
  using vector = std::vector<std::uint32_t>;
  using vectors = std::vector<vector>;  // ascending
  // Whether no node has more GPUs free than this; 0: always.
  [[nodiscard]] bool bounds_nodes(std::uint32_t gpus) const {
    for (std::uint32_t n = 0; gpus > 0 && n < nodes_.size(); ++n)
      if (Nodes::free_gpus(nodes_.of(n)) > gpus) return false;
    return true;
  }
  // The slice_gaps of the proof, from the definition.
  [[nodiscard]] std::vector<infeasibility_proof::slice_gap> slice_gaps(
      const infeasibility_proof& why) {
    std::vector<infeasibility_proof::slice_gap> gaps;
    const infeasibility_proof::reason main = why.main_reason();
    if (main.weighing == infeasibility_proof::listed) return gaps;
    if (weights_ != why.weighings[main.weighing].weights) best_.clear();
    weights_ = why.weighings[main.weighing].weights;
    std::size_t group = groups_.size();
    for (std::size_t k = 0; k < groups_.size(); ++k) {
      if (weights_[k] == 0) continue;
      if (group < groups_.size() || weights_[k] > 1) return gaps;
      group = k;
    }
    vector inside{main.best};
    for (level_t l = why.level;; --l) {
      const std::uint32_t step = together(group, l);
      if (step > (l == node_level_ ? 1 : together(group, l - 1))) {
        infeasibility_proof::slice_gap best{l, 0, 0};
        for (const std::uint32_t c : inside) {
          const std::uint64_t tasks =
              (std::min<std::uint64_t>)(allowed(group, l), raw(group, l, c));
          if (tasks % step > best.tasks % step) best = {l, c, tasks};
        }
        if (best.tasks == 0) return gaps;
        gaps.push_back(best);
        inside = {best.cell};
      }
      if (l == node_level_) return gaps;
      vector below;
      for (const std::uint32_t c : inside)
        for (const std::uint32_t i : children_of(l, c)) below.push_back(i);
      inside = std::move(below);
    }
  }
  // The tasks of a group that a cell can hold if slices at its level do not count.
  [[nodiscard]] std::uint64_t raw(std::size_t group, level_t l, std::uint32_t c) {
    std::uint64_t sum = 0;
    if (l == node_level_) {
      std::vector<node_free> rests{nodes_.of(c)};
      while (sum < allowed(group, l) && place_one_more(group, rests)) ++sum;
      return sum;
    }
    for (const std::uint32_t i : children_of(l, c)) sum += max_weight(l - 1, i);
    return sum;
  }
  [[nodiscard]] bool is_weighed(const infeasibility_proof& why,
                                const infeasibility_proof::refusal& r) {
    if (r.weighing >= why.weighings.size() || !r.counts.empty()) return false;
    const infeasibility_proof::weighing& w = why.weighings[r.weighing];
    if (w.weights != weights_) best_.clear();
    weights_ = w.weights;
    return r.most == max_weight(why.level, r.cell) && r.most < w.needed;
  }
  [[nodiscard]] bool is_listed(const infeasibility_proof& why,
                               const infeasibility_proof::refusal& r) {
    if (groups_.empty() || r.most != 0 || r.counts.size() % groups_.size() != 0) return false;
    vectors listed;
    for (std::size_t i = 0; i < r.counts.size(); i += groups_.size()) {
      const auto first = r.counts.begin() + static_cast<std::ptrdiff_t>(i);
      listed.emplace_back(first, first + static_cast<std::ptrdiff_t>(groups_.size()));
    }
    detail::sort_unique(listed);
    for (const vector& v : listed)
      if (is_at_least(v, counts_)) return false;
    return listed.size() * groups_.size() == r.counts.size() &&
           listed == greatest(why.level, r.cell);
  }
  [[nodiscard]] std::uint32_t allowed(std::size_t group, level_t l) const {
    return constraints_.allowed(group, l);
  }
  [[nodiscard]] std::uint32_t together(std::size_t group, level_t l) const {
    return constraints_.together(group, l);
  }
  using node_free = typename Nodes::node_free;

  // The needs of a task of this leader, with the tasks it leads.
  [[nodiscard]] detail::checked_task task_of(std::uint32_t leader) const {
    detail::checked_task t;
    for (const constrained_task_group& m : gang_.groups) {
      if (&m != &gang_.groups[leader] && !(m.on_node_of_leader() && m.leader == leader)) continue;
      t.add(m, m.tasks / gang_.groups[leader].tasks);
    }
    return t;
  }
  [[nodiscard]] bool has_constraints(std::uint32_t leader) const {
    for (const constrained_task_group& m : gang_.groups) {
      if (m.tasks == 0 || (&m != &gang_.groups[leader] && m.leader != leader)) continue;
      if (!m.slices.empty() || !m.spread.empty() || m.leader_level != any_level) return true;
    }
    return false;
  }
  // The greatest weight that a cell can hold; see infeasibility_proof.
  [[nodiscard]] std::uint64_t max_weight(level_t l, std::uint32_t c) {
    const vector& weights = weights_;
    std::size_t heavy = 0;
    std::size_t group = 0;
    for (std::size_t k = 0; k < weights.size(); ++k) {
      if (weights[k] == 0) continue;
      ++heavy;
      group = k;
    }
    if (l == node_level_) {
      node_free free = nodes_.of(c);
      if (heavy > 1) nodes_.ignore_host(free);
      return best_on_node(0, free);
    }
    std::uint64_t allowed_sum = 0;
    for (std::size_t k = 0; k < weights.size(); ++k)
      allowed_sum += std::uint64_t{weights[k]} * allowed(k, l);
    std::uint64_t sum = 0;  // of cells that hold less than 2^64 each; at most what is allowed
    for (const std::uint32_t i : children_of(l, c))
      sum += (std::min)(allowed_sum - sum, max_weight(l - 1, i));
    return heavy == 1 ? sum - sum % (std::uint64_t{weights[group]} * together(group, l)) : sum;
  }
  // Everything that can be free with one more task of group k; false if it cannot be placed.
  bool place_one_more(std::size_t k, std::vector<node_free>& rests) const {
    std::vector<node_free> less;
    for (const node_free& rest : rests)
      nodes_.place(tasks_[k], rest, [&](const node_free& r) { less.push_back(r); });
    detail::sort_unique(less);
    rests.swap(less);
    return !rests.empty();
  }
  // The greatest weight of tasks of groups k, k+1, ... on a node.
  [[nodiscard]] std::uint64_t best_on_node(std::size_t k, const node_free& free) {
    while (k < weights_.size() && weights_[k] == 0) ++k;
    if (k == weights_.size()) return 0;
    const std::pair<std::size_t, node_free> asked{k, free};
    if (const auto known = best_.find(asked); known != best_.end()) return known->second;
    std::uint64_t best = best_on_node(k + 1, free);
    std::vector<node_free> rests{free};
    for (std::uint32_t n = 1; n <= allowed(k, node_level_) && place_one_more(k, rests); ++n) {
      if (n % together(k, node_level_) != 0) continue;
      for (const node_free& rest : rests)
        best = (std::max)(best, std::uint64_t{n} * weights_[k] + best_on_node(k + 1, rest));
    }
    return best_[asked] = best;
  }
  // The greatest counts of tasks that a cell can hold.
  [[nodiscard]] vectors greatest(level_t l, std::uint32_t c) {
    if (l == node_level_) {
      const auto [known, is_new] = on_node_.try_emplace(nodes_.of(c));
      if (is_new) {
        vector counts(groups_.size());
        fill_node(known->second, counts, 0, known->first);
      }
      return known->second;
    }
    vectors sums{vector(groups_.size())};
    vectors useless;
    for (const std::uint32_t i : children_of(l, c)) {
      const vectors child = greatest(l - 1, i);
      if (child == useless) continue;
      vectors next;
      for (const vector& a : sums) {
        for (const vector& b : child) {
          vector sum(groups_.size());
          for (std::size_t k = 0; k < sum.size(); ++k) {
            const std::uint64_t both = std::uint64_t{a[k]} + b[k];
            sum[k] = static_cast<std::uint32_t>((std::min<std::uint64_t>)(both, allowed(k, l)));
          }
          insert(next, sum);
        }
      }
      if (next == sums) useless = child;  // nor does any other child that is equal
      sums = std::move(next);
    }
    vectors whole;
    for (vector v : sums) {
      for (std::size_t k = 0; k < v.size(); ++k) v[k] -= v[k] % together(k, l);
      while (constraints_.lower_to_replicas(v, l)) {
      }
      insert(whole, v);
    }
    return whole;
  }
  void fill_node(vectors& found, vector& counts, std::size_t k, const node_free& free) {
    if (k == groups_.size()) return insert(found, counts);
    fill_node(found, counts, k + 1, free);
    std::vector<node_free> rests{free};
    for (std::uint32_t n = 1; n <= allowed(k, node_level_) && place_one_more(k, rests); ++n) {
      if (n % together(k, node_level_) != 0) continue;
      counts[k] = n;
      for (const node_free& rest : rests) fill_node(found, counts, k + 1, rest);
    }
    counts[k] = 0;
  }
  static bool is_at_least(const vector& a, const vector& b) {
    for (std::size_t k = 0; k < a.size(); ++k)
      if (a[k] < b[k]) return false;
    return true;
  }
  static void insert(vectors& greatest, const vector& v) {
    for (const vector& other : greatest)
      if (is_at_least(other, v)) return;
    std::erase_if(greatest, [&](const vector& other) { return is_at_least(v, other); });
    detail::insert_sorted(greatest, v);
  }
  // The positions of the children of a cell in their level.
  [[nodiscard]] vector children_of(level_t l, std::uint32_t c) const {
    vector positions;
    const std::uint32_t first = tree_.cells(l - 1).first.value;
    if (l == tree_.num_levels()) {
      for (std::uint32_t i = 0; i < tree_.cells(l - 1).size(); ++i) positions.push_back(i);
    } else {
      for (const cell_id child : tree_.children(tree_.cells(l)[c], l))
        positions.push_back(child.value - first);
    }
    return positions;
  }

  const Tree& tree_;
  level_t node_level_;
  Nodes nodes_;
  const topology_constraints& gang_;
  vector groups_;                            // their first task groups
  vector counts_;                            // tasks of each group
  std::vector<detail::checked_task> tasks_;  // needs of one task of each group
  detail::checked_constraints constraints_;
  vector weights_;
  std::map<std::pair<std::size_t, node_free>, std::uint64_t> best_;  // by nodes, for these weights
  std::map<node_free, vectors> on_node_;
};

// The arguments of the constructor choose Nodes.
template <CellTree Tree>
proof_check(const Tree&, level_t, std::span<const std::uint32_t>, std::span<const resources>,
            const topology_constraints&) -> proof_check<Tree, detail::checked_whole_gpus>;
// Nodes with shared GPUs.
template <CellTree Tree>
proof_check(const Tree&, level_t, const node_table&, const topology_constraints&)
    -> proof_check<Tree, detail::checked_shared_gpus>;

APIARY_NAMESPACE_END
