// apiary/explain/proof_check.h - verifies a proof that a gang does not fit.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
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

// The needs of a task together with the tasks it leads. Requires: fewer than 2^32 tasks.
struct checked_task {
  std::uint64_t gpus = 0;
  std::uint64_t cpu = 0;
  std::uint64_t memory = 0;
  std::vector<milli_gpu> fractions{};  // of the GPUs that are needed in part, ascending
  model_set models = any_model;
  friend bool operator==(const checked_task&, const checked_task&) = default;

  void add(const constrained_task_group& m, std::uint64_t tasks) {
    // All needs that no node can meet count as the same.
    constexpr std::uint64_t limit = std::uint64_t{1} << 32;
    gpus = (std::min)(gpus + (std::min)(tasks * m.gpus, limit - 1), limit - 1);
    cpu = (std::min)(cpu + (std::min)(tasks * m.host.cpu_milli, limit), limit);
    memory = (std::min)(memory + (std::min)(tasks * m.host.memory_mib, limit), limit);
    if (tasks == 0 || m.gpus == 0) return;
    models &= m.models;
    if (m.gpu_milli == 0 || m.gpu_milli >= whole_gpu) return;  // whole GPUs
    constexpr std::uint64_t more_than_any_node = 1 + std::uint64_t{max_gpus_per_node} * whole_gpu;
    fractions.insert(fractions.end(),
                     static_cast<std::size_t>((std::min)(tasks, more_than_any_node)), m.gpu_milli);
    std::sort(fractions.begin(), fractions.end());
  }
};

// Nodes with whole GPUs: free GPUs of each, and free CPU and memory, or empty if they do not count.
struct checked_whole_gpus {
  std::span<const std::uint32_t> free;
  std::span<const resources> hosts;
  struct node_free {
    std::uint64_t gpus = 0;
    std::uint64_t cpu = 0;
    std::uint64_t memory = 0;
    friend auto operator<=>(const node_free&, const node_free&) = default;
  };
  [[nodiscard]] std::size_t size() const noexcept { return free.size(); }
  [[nodiscard]] node_free of(std::uint32_t node) const {
    if (hosts.empty()) return {free[node], 0, 0};
    return {free[node], hosts[node].cpu_milli, hosts[node].memory_mib};
  }
  static std::uint64_t free_gpus(const node_free& r) { return r.gpus; }
  // If several task groups have weight, CPU and memory do not count.
  static void ignore_host(node_free& r) { r.cpu = r.memory = ~std::uint64_t{0} >> 1; }
  // Calls sink with what is free besides the task, once for each way to place it on the node.
  template <class Sink>
  void place(const checked_task& t, const node_free& r, const Sink& sink) const {
    if (t.gpus > r.gpus) return;
    if (hosts.empty()) return sink(node_free{r.gpus - t.gpus, r.cpu, r.memory});
    if (t.cpu > r.cpu || t.memory > r.memory) return;
    sink(node_free{r.gpus - t.gpus, r.cpu - t.cpu, r.memory - t.memory});
  }
};

// Nodes with GPUs that tasks share.
struct checked_shared_gpus {
  const node_table* nodes = nullptr;
  struct node_free {
    std::array<milli_gpu, max_gpus_per_node> left{};  // of each GPU, ascending
    std::uint64_t cpu = 0;
    std::uint64_t memory = 0;
    std::uint32_t model = max_gpu_models;  // none
    bool healthy = false;
    friend auto operator<=>(const node_free&, const node_free&) = default;
  };
  [[nodiscard]] std::size_t size() const noexcept { return nodes->size(); }
  [[nodiscard]] node_free of(std::uint32_t n) const {
    const node_state& node = (*nodes)[node_id(n)];
    if (!node.healthy) return {};
    node_free r{node.gpu_left, node.left.cpu_milli, node.left.memory_mib,
                node.gpus == 0 ? std::uint32_t{max_gpu_models} : node.model, true};
    std::sort(r.left.begin(), r.left.end());
    return r;
  }
  static std::uint64_t free_gpus(const node_free& r) {
    return static_cast<std::uint64_t>(
        std::count_if(r.left.begin(), r.left.end(), [](milli_gpu left) { return left > 0; }));
  }
  static void ignore_host(node_free& /*r*/) {}
  template <class Sink>
  void place(const checked_task& t, node_free r, const Sink& sink) const {
    if (!r.healthy || t.cpu > r.cpu || t.memory > r.memory) return;
    if (t.gpus > 0 && (r.model == max_gpu_models || (t.models >> r.model & 1) == 0)) return;
    r.cpu -= t.cpu;
    r.memory -= t.memory;
    std::uint64_t needed = 0;
    for (const milli_gpu fraction : t.fractions) needed += fraction;
    std::uint64_t there = 0;
    for (const milli_gpu left : r.left) there += left;
    if (needed > there) return;
    // GPUs that are wholly free are last.
    for (std::uint64_t whole = t.gpus - t.fractions.size(); whole > 0; --whole) {
      if (r.left.back() != whole_gpu) return;
      std::copy_backward(r.left.begin(), r.left.end() - 1, r.left.end());
      r.left.front() = 0;
    }
    std::vector<std::array<milli_gpu, max_gpus_per_node>> ways{r.left};
    for (const milli_gpu fraction : t.fractions) {
      std::vector<std::array<milli_gpu, max_gpus_per_node>> next;
      for (const auto& way : ways) {
        for (std::size_t i = 0; i < way.size(); ++i) {
          if (way[i] < fraction) continue;
          auto left = way;
          left[i] = static_cast<milli_gpu>(left[i] - fraction);
          std::sort(left.begin(), left.end());
          next.push_back(left);
        }
      }
      sort_unique(next);
      ways.swap(next);
    }
    for (const auto& way : ways) {
      r.left = way;
      sink(r);
    }
  }
};

}  // namespace detail

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
