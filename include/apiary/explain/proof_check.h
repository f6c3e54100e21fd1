// apiary/explain/proof_check.h - counts a certificate again, from the gang and what is free.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
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
#include <numeric>
#include <set>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Whether a certificate proves that a gang does not fit: everything in it is counted again, and
// every number must be right. It reads the state alone and shares no code with the search.
//
// Nodes: checked_leaves or checked_shares.
// Requires: valid(gang); free: leaves of each node; hosts: of each node, or nothing if CPU and
//           memory do not count. Or, instead of both, a table of nodes that share GPUs. All that is
//           handed over outlives it.
// Cost:     O(nodes * kinds * leaves of a node) for each weighing; a listed cell as much as it takes
//           to list it, which is exponential in the kinds of task and linear in the tasks that a
//           node may hold, tasks without GPUs included.
template <CellTree Tree, class Nodes = detail::checked_leaves>
class proof_check {
 public:
  proof_check(const Tree& tree, level_t node_level, std::span<const std::uint32_t> free,
              std::span<const resources> hosts, const topology_constraints& gang)
      : proof_check(tree, node_level, Nodes{free, hosts}, gang) {}
  proof_check(const Tree&, level_t, std::span<const std::uint32_t>, std::span<const resources>,
              const topology_constraints&&) = delete;
  proof_check(const Tree& tree, level_t node_level, const node_table& nodes,
              const topology_constraints& gang)
      : proof_check(tree, node_level, Nodes{&nodes}, gang) {}
  proof_check(const Tree&, level_t, const node_table&, const topology_constraints&&) = delete;
  proof_check(const Tree&, level_t, const node_table&&, const topology_constraints&) = delete;
  proof_check(const Tree&, level_t, Nodes, const topology_constraints&&) = delete;
  proof_check(const Tree& tree, level_t node_level, Nodes nodes, const topology_constraints& gang)
      : tree_(tree), node_level_(node_level), nodes_(nodes), gang_(gang) {
    APIARY_VERIFY(nodes.size() == tree.cells(node_level).size());
    for (std::uint32_t m = 0; m < gang.members.size(); ++m) {
      const constrained_task_group& member = gang.members[m];
      if (member.leader != no_task_group || member.tasks == 0) continue;
      const auto same = [&](std::uint32_t other) {
        return !has_constraints(m) && !has_constraints(other) && task_of(m) == task_of(other);
      };
      const auto at = std::find_if(kinds_.begin(), kinds_.end(), same);
      if (at == kinds_.end()) {
        kinds_.push_back(m);
        counts_.push_back(member.tasks);
      } else {
        counts_[static_cast<std::size_t>(at - kinds_.begin())] += member.tasks;
      }
    }
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      tasks_.push_back(task_of(kinds_[k]));
      for (level_t l = 0; l <= tree.num_levels(); ++l)
        together_.push_back(together_by_constraints(k, l));
      for (level_t l = 0; l <= tree.num_levels(); ++l)
        allowed_.push_back(allowed_by_constraints(k, l));
    }
  }

  [[nodiscard]] bool operator()(const infeasibility_proof& why) {
    const bool anywhere = gang_.required == any_level;
    if (why.level != (anywhere ? tree_.num_levels() : gang_.required)) return false;
    if (why.groups != kinds_) return false;
    for (const infeasibility_proof::weighing& w : why.weighings) {
      if (w.weights.size() != kinds_.size()) return false;
      std::uint64_t needed = 0;
      for (std::size_t k = 0; k < kinds_.size(); ++k)
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
    return true;
  }

 private:
  using vector = std::vector<std::uint32_t>;

  [[nodiscard]] bool is_weighed(const infeasibility_proof& why,
                                const infeasibility_proof::refusal& r) {
    if (r.weighing >= why.weighings.size() || !r.counts.empty()) return false;
    const infeasibility_proof::weighing& w = why.weighings[r.weighing];
    if (w.weights != weights_) borne_.clear();
    weights_ = w.weights;
    return r.most == most(why.level, r.cell) && r.most < w.needed;
  }
  [[nodiscard]] bool is_listed(const infeasibility_proof& why,
                               const infeasibility_proof::refusal& r) {
    if (kinds_.empty() || r.most != 0 || r.counts.size() % kinds_.size() != 0) return false;
    std::set<vector> listed;
    for (std::size_t i = 0; i < r.counts.size(); i += kinds_.size()) {
      const auto first = r.counts.begin() + static_cast<std::ptrdiff_t>(i);
      listed.emplace(first, first + static_cast<std::ptrdiff_t>(kinds_.size()));
    }
    for (const vector& v : listed)
      if (is_at_least(v, counts_)) return false;
    return listed.size() * kinds_.size() == r.counts.size() &&
           listed == greatest(why.level, r.cell);
  }

  // The most tasks of a kind that the rules allow in a cell, those above it counted too, and how
  // many must come together.
  [[nodiscard]] std::uint32_t allowed(std::size_t kind, level_t l) const {
    return allowed_[kind * (tree_.num_levels() + 1) + l];
  }
  [[nodiscard]] std::uint32_t together(std::size_t kind, level_t l) const {
    return together_[kind * (tree_.num_levels() + 1) + l];
  }
  [[nodiscard]] std::uint32_t allowed_by_constraints(std::size_t kind, level_t l) const {
    const constrained_task_group& leader = gang_.members[kinds_[kind]];
    std::uint32_t most = counts_[kind];
    for (level_t above = tree_.num_levels() + 1; above-- > l;) {
      for (const constrained_task_group& m : gang_.members) {
        if (m.tasks == 0 || (&m != &leader && m.leader != kinds_[kind])) continue;
        for (const level_count& s : m.spread)
          if (s.level == above) most = std::min(most, s.tasks / (m.tasks / leader.tasks));
      }
      most -= most % together(kind, above);
    }
    return most;
  }
  [[nodiscard]] std::uint32_t together_by_constraints(std::size_t kind, level_t l) const {
    const constrained_task_group& leader = gang_.members[kinds_[kind]];
    for (std::uint32_t n = 1; n < leader.tasks; ++n) {
      bool whole = true;
      for (const constrained_task_group& m : gang_.members) {
        if (&m != &leader && m.leader != kinds_[kind]) continue;
        for (const level_count& s : m.slices)
          whole = whole && (s.level > l || n * (m.tasks / leader.tasks) % s.tasks == 0);
      }
      if (whole) return n;
    }
    return leader.tasks;
  }
  using node_room = typename Nodes::room;

  // What a task of a member needs, with those it leads.
  [[nodiscard]] detail::checked_task task_of(std::uint32_t leader) const {
    detail::checked_task t;
    for (const constrained_task_group& m : gang_.members) {
      if (&m != &gang_.members[leader] && m.leader != leader) continue;
      t.add(m, m.tasks / gang_.members[leader].tasks);
    }
    return t;
  }
  [[nodiscard]] bool has_constraints(std::uint32_t leader) const {
    for (const constrained_task_group& m : gang_.members) {
      if (m.tasks == 0 || (&m != &gang_.members[leader] && m.leader != leader)) continue;
      if (!m.slices.empty() || !m.spread.empty()) return true;
    }
    return false;
  }
  // What a cell bears; see certificate.
  [[nodiscard]] std::uint64_t most(level_t l, std::uint32_t c) {
    const vector& weights = weights_;
    std::size_t heavy = 0;
    std::size_t kind = 0;
    for (std::size_t k = 0; k < weights.size(); ++k) {
      if (weights[k] == 0) continue;
      ++heavy;
      kind = k;
    }
    if (l == node_level_) {
      node_room room = nodes_.of(c);
      if (heavy > 1) nodes_.weigh_together(room);
      return best_on_node(0, room);
    }
    std::uint64_t rules = 0;
    for (std::size_t k = 0; k < weights.size(); ++k)
      rules += std::uint64_t{weights[k]} * allowed(k, l);
    std::uint64_t sum = 0;  // of cells that each bear less than 2^64; never more than the rules
    for (const std::uint32_t i : parts(l, c)) sum += std::min(rules - sum, most(l - 1, i));
    return heavy == 1 ? sum - sum % (std::uint64_t{weights[kind]} * together(kind, l)) : sum;
  }
  // All that can be left with one more task of kind k; false if it cannot be put there.
  bool put_one_more(std::size_t k, std::set<node_room>& rests) const {
    std::set<node_room> less;
    for (const node_room& rest : rests)
      nodes_.put(tasks_[k], rest, [&](const node_room& r) { less.insert(r); });
    rests = std::move(less);
    return !rests.empty();
  }
  // The greatest weight of tasks of kinds k, k+1, ... on a node.
  [[nodiscard]] std::uint64_t best_on_node(std::size_t k, const node_room& room) {
    while (k < weights_.size() && weights_[k] == 0) ++k;
    if (k == weights_.size()) return 0;
    const std::pair<std::size_t, node_room> asked{k, room};
    if (const auto known = borne_.find(asked); known != borne_.end()) return known->second;
    std::uint64_t best = best_on_node(k + 1, room);
    std::set<node_room> rests{room};
    for (std::uint32_t n = 1; n <= allowed(k, node_level_) && put_one_more(k, rests); ++n) {
      if (n % together(k, node_level_) != 0) continue;
      for (const node_room& rest : rests)
        best = std::max(best, std::uint64_t{n} * weights_[k] + best_on_node(k + 1, rest));
    }
    return borne_[asked] = best;
  }

  // The greatest counts that a cell can hold.
  [[nodiscard]] std::set<vector> greatest(level_t l, std::uint32_t c) {
    if (l == node_level_) {
      const auto [known, is_new] = on_node_.try_emplace(nodes_.of(c));
      if (is_new) {
        vector counts(kinds_.size());
        fill_node(known->second, counts, 0, known->first);
      }
      return known->second;
    }
    std::set<vector> sums{vector(kinds_.size())};
    std::set<vector> useless;
    for (const std::uint32_t i : parts(l, c)) {
      const std::set<vector> part = greatest(l - 1, i);
      if (part == useless) continue;
      std::set<vector> next;
      for (const vector& a : sums) {
        for (const vector& b : part) {
          vector sum(kinds_.size());
          for (std::size_t k = 0; k < sum.size(); ++k) {
            const std::uint64_t both = std::uint64_t{a[k]} + b[k];
            sum[k] = static_cast<std::uint32_t>(std::min<std::uint64_t>(both, allowed(k, l)));
          }
          insert(next, sum);
        }
      }
      if (next == sums) useless = part;  // and no other part that is equal adds anything
      sums = std::move(next);
    }
    std::set<vector> whole;
    for (vector v : sums) {
      for (std::size_t k = 0; k < v.size(); ++k) v[k] -= v[k] % together(k, l);
      insert(whole, v);
    }
    return whole;
  }
  void fill_node(std::set<vector>& found, vector& counts, std::size_t k, const node_room& room) {
    if (k == kinds_.size()) return insert(found, counts);
    fill_node(found, counts, k + 1, room);
    std::set<node_room> rests{room};
    for (std::uint32_t n = 1; n <= allowed(k, node_level_) && put_one_more(k, rests); ++n) {
      if (n % together(k, node_level_) != 0) continue;
      counts[k] = n;
      for (const node_room& rest : rests) fill_node(found, counts, k + 1, rest);
    }
    counts[k] = 0;
  }
  static bool is_at_least(const vector& a, const vector& b) {
    for (std::size_t k = 0; k < a.size(); ++k)
      if (a[k] < b[k]) return false;
    return true;
  }
  static void insert(std::set<vector>& greatest, const vector& v) {
    for (const vector& other : greatest)
      if (is_at_least(other, v)) return;
    std::erase_if(greatest, [&](const vector& other) { return is_at_least(v, other); });
    greatest.insert(v);
  }

  // The places of the children of a cell.
  [[nodiscard]] vector parts(level_t l, std::uint32_t c) const {
    vector places;
    const std::uint32_t first = tree_.cells(l - 1).first.value;
    if (l == tree_.num_levels()) {
      places.resize(tree_.cells(l - 1).size());
      std::iota(places.begin(), places.end(), 0U);
    } else {
      for (const cell_id child : tree_.children(tree_.cells(l)[c], l))
        places.push_back(child.value - first);
    }
    return places;
  }

  const Tree& tree_;
  level_t node_level_;
  Nodes nodes_;
  const topology_constraints& gang_;
  vector kinds_;                             // their first members
  vector counts_;                            // tasks of each kind
  std::vector<detail::checked_task> tasks_;  // what one of each kind needs
  vector allowed_;                           // by kind and level
  vector together_;
  vector weights_;
  std::map<std::pair<std::size_t, node_room>, std::uint64_t> borne_;  // by nodes, of these weights
  std::map<node_room, std::set<vector>> on_node_;
};

template <CellTree Tree>
proof_check(const Tree&, level_t, std::span<const std::uint32_t>, std::span<const resources>,
            const topology_constraints&) -> proof_check<Tree, detail::checked_leaves>;
template <CellTree Tree>
proof_check(const Tree&, level_t, const node_table&, const topology_constraints&)
    -> proof_check<Tree, detail::checked_shares>;

APIARY_NAMESPACE_END
