// apiary/gang/detail/pareto_search.h - the largest combinations of tasks that cells can hold.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/capacity_count.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
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
namespace detail {

// A Pareto front: vectors of counts, none of which is at least another one in every component: the
// largest combinations of tasks that a cell can hold. Cost: covers and add O(size * counts).
class pareto_front {
 public:
  using counts = std::span<const std::uint32_t>;
  explicit pareto_front(std::size_t width) noexcept : width_(width) {}

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] counts operator[](std::size_t i) const noexcept {
    return {values_.data() + i * width_, width_};
  }
  [[nodiscard]] const std::vector<std::uint32_t>& values() const noexcept { return values_; }
  [[nodiscard]] static bool at_least(counts a, counts b) noexcept {
    for (std::size_t k = 0; k < a.size(); ++k)
      if (a[k] < b[k]) return false;
    return true;
  }
  [[nodiscard]] bool covers(counts v) const noexcept {
    for (std::size_t i = 0; i < size_; ++i)
      if (at_least((*this)[i], v)) return true;
    return false;
  }
  [[nodiscard]] bool covers(const pareto_front& other) const noexcept {
    for (std::size_t i = 0; i < other.size(); ++i)
      if (!covers(other[i])) return false;
    return true;
  }
  // Adds v and removes the vectors that are less. Requires: v does not point into this front.
  void add(counts v) {
    if (covers(v)) return;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < size_; ++i) {
      if (at_least(v, (*this)[i])) continue;
      if (kept != i) std::copy_n(values_.begin() + at(i), width_, values_.begin() + at(kept));
      ++kept;
    }
    values_.resize(kept * width_);
    values_.insert(values_.end(), v.begin(), v.end());
    size_ = kept + 1;
  }
  // Sorts the vectors, so that equal fronts compare equal.
  void sort() {
    lean_vector<std::size_t> order(size_);
    for (std::size_t i = 0; i < size_; ++i) order[i] = i;
    merge_sort(order, [&](std::size_t a, std::size_t b) {
      return std::lexicographical_compare((*this)[a].begin(), (*this)[a].end(), (*this)[b].begin(),
                                          (*this)[b].end());
    });
    std::vector<std::uint32_t> sorted;
    for (const std::size_t i : order) {
      const counts v = (*this)[i];
      sorted.insert(sorted.end(), v.begin(), v.end());
    }
    values_ = std::move(sorted);
  }

  friend bool operator==(const pareto_front& a, const pareto_front& b) noexcept {
    return a.values_ == b.values_;
  }

 private:
  [[nodiscard]] std::ptrdiff_t at(std::size_t i) const noexcept {
    return static_cast<std::ptrdiff_t>(i * width_);
  }

  std::size_t width_;
  std::size_t size_ = 0;
  std::vector<std::uint32_t> values_;
};

// Computes the front of a cell: the largest vectors (tasks of each group) that it can hold under
// all constraints at its level and below. A cell can hold a vector if and only if some vector of
// the front is at least as large, every count is a multiple of its step, and replicas are whole. So
// the front of a cell consists of sums of vectors of its children's fronts, limited by the
// constraints of its level. The children are the cells of the next lower level that has
// constraints, or nodes.
//
// The number of vectors can grow exponentially with the groups (vector packing, NP-hard).
// Cost:     at most `budget` steps: a step compares 64 counts of two vectors, or reads a node. In
//           addition O(log) for each node read and O(nodes of the cell * log). Memory: at most 64
//           bytes a step. With more than max_groups groups the budget ends at once.
template <CellTree Tree>
class pareto_search {
 public:
  using counts = pareto_front::counts;
  static constexpr std::size_t max_groups = 512;
  // Begins a search over these arguments, which must not change.
  void begin(const capacity_index<Tree>& capacities, const colocated_groups& groups,
             std::span<const resources> hosts) {
    capacities_ = &capacities;
    groups_ = &groups;
    hosts_ = hosts;
    cells_.clear();
    nodes_.clear();
    of_node_.clear();
    of_front_.clear();
    tasks_.clear();
    for (std::size_t u = 0; u < groups.size(); ++u) tasks_.push_back(groups[u].tasks);
  }
  // Computes the front of cell c of level l; returns false if the budget ended.
  bool make(level_t l, std::uint32_t c, std::uint64_t budget) {
    steps_ = step_budget(budget);
    cells_.clear();
    level_ = l;
    cell_ = c;
    if (groups_->size() > max_groups) return false;
    front_ = build(l, c);
    return !steps_.ended();
  }
  // After make: the front, and whether it holds the gang.
  [[nodiscard]] const pareto_front& front() const noexcept { return front_of(level_, front_); }
  [[nodiscard]] bool holds_gang() const noexcept { return front().covers(tasks_); }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_.steps(); }
  // After make, if the front holds the gang: appends its tasks to `to`.
  void place(lean_vector<tasks_on_node>& to) const {
    place_vector(front_, level_, cell_, tasks_, to);
  }

 private:
  struct child {
    std::size_t front = 0;
    std::uint32_t cell = 0;
  };
  struct made {
    pareto_front front;
    level_t level = 0;                   // of the children
    lean_vector<child> children{};       // those that added something
    std::vector<pareto_front> before{};  // the sum before each of them
  };
  using index_of_values = std::map<std::vector<std::uint32_t>, std::size_t>;
  [[nodiscard]] std::size_t width() const noexcept { return groups_->size(); }
  [[nodiscard]] const pareto_front& front_of(level_t l, std::size_t i) const noexcept {
    return l == capacities_->node_level() ? nodes_[i] : cells_[i].front;
  }
  // Pays for comparisons of two vectors.
  bool pay(std::uint64_t comparisons) noexcept {
    return steps_.pay(comparisons * (1 + width() / 64));
  }
  std::size_t build(level_t l, std::uint32_t c) {
    if (l == capacities_->node_level()) return build_node(c);
    const level_t below = level_below(*groups_, l, capacities_->node_level());
    if (!steps_.pay(capacities_->inside(l, c, below).size() / 16)) return 0;
    lean_vector<child> children;
    for (const cell_id i : capacities_->inside(l, c, below)) children.push_back({0, i.value});
    if (below == capacities_->node_level()) {
      for (child& p : children) {
        p.front = build_node(p.cell);
        if (steps_.ended()) return 0;
      }
      lean_vector<keyed_number> order;  // equal fronts together: if one adds nothing, none does
      for (const child& p : children) order.push_back({p.front, p.cell});
      keyed_number::sort(order);
      for (std::size_t i = 0; i < children.size(); ++i)
        children[i] = {static_cast<std::size_t>(order[i].key), order[i].number};
    }
    std::vector<std::uint32_t> most(width());
    for (std::size_t u = 0; u < width(); ++u) most[u] = groups_->at(u, l).most;
    made cell{pareto_front(width()), below, {}, {}};
    pareto_front sum(width());
    sum.add(std::vector<std::uint32_t>(width(), 0));
    std::size_t useless = ~std::size_t{0};
    for (child& p : children) {
      if (p.front == useless) continue;
      if (sum.covers(most)) break;
      if (below != capacities_->node_level()) p.front = build(below, p.cell);
      if (steps_.ended()) return 0;
      pareto_front next = add(sum, front_of(below, p.front), most);
      if (steps_.ended() || !pay(next.size() * sum.size())) return 0;
      if (sum.covers(next)) {
        if (below == capacities_->node_level()) useless = p.front;
        continue;
      }
      cell.children.push_back(p);
      cell.before.push_back(std::move(sum));
      sum = std::move(next);
    }
    std::vector<std::uint32_t> bounded(width());
    for (std::size_t i = 0; i < sum.size(); ++i) {
      for (std::size_t u = 0; u < width(); ++u) bounded[u] = groups_->bound(u, l, sum[i][u]);
      groups_->keep_replicas(l, bounded);
      if (!pay(cell.front.size() + 1)) return 0;
      cell.front.add(bounded);
    }
    cell.front.sort();
    cells_.push_back(std::move(cell));
    return cells_.size() - 1;
  }
  // All sums of a vector of each, no count greater than in `most`.
  pareto_front add(const pareto_front& a, const pareto_front& b, counts most) {
    pareto_front sums(width());
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::size_t j = 0; j < b.size(); ++j) {
        vector_.resize(width());
        for (std::size_t u = 0; u < width(); ++u) {
          const std::uint64_t both = std::uint64_t{a[i][u]} + b[j][u];
          vector_[u] = static_cast<std::uint32_t>((std::min<std::uint64_t>)(both, most[u]));
        }
        if (!pay(sums.size() + 1)) return sums;
        sums.add(vector_);
      }
    }
    return sums;
  }
  std::size_t build_node(std::uint32_t node) {
    if (!steps_.pay(1)) return 0;
    resources host;
    if (groups_->hosted() && !hosts_.empty()) host = hosts_[node];
    vector_.assign({capacities_->free(node), host.cpu_milli, host.memory_mib});
    const auto [known, is_new] = of_node_.try_emplace(vector_, 0);
    if (!is_new) return known->second;
    pareto_front front(width());
    vector_.assign(width(), 0);
    fill_node(front, 0, {*groups_, capacities_->free(node), hosts_, node});
    if (steps_.ended()) {
      of_node_.erase(known);
      return 0;
    }
    front.sort();
    known->second = of_front_.try_emplace(front.values(), nodes_.size()).first->second;
    if (known->second == nodes_.size()) nodes_.push_back(std::move(front));
    return known->second;
  }
  void fill_node(pareto_front& front, std::size_t u, const node_capacity_left& left) {
    if (u == width()) {
      if (pay(front.size() + 1)) front.add(vector_);
      return;
    }
    const level_t l = capacities_->node_level();
    for (std::uint32_t k = groups_->bound(u, l, left.capacity(u)); !steps_.ended();
         k -= groups_->at(u, l).step) {
      vector_[u] = k;
      node_capacity_left rest = left;
      rest.put(u, k);
      fill_node(front, u + 1, rest);
      if (k == 0 || u + 1 == width()) break;
    }
  }
  void place_vector(std::size_t front, level_t l, std::uint32_t c, std::vector<std::uint32_t> v,
                    lean_vector<tasks_on_node>& to) const {
    if (l == capacities_->node_level()) {
      for (std::uint32_t u = 0; u < width(); ++u)
        if (v[u] > 0) to.push_back({c, u, v[u]});
      return;
    }
    const made& cell = cells_[front];
    for (std::size_t i = cell.children.size(); i-- > 0;) {
      const child& p = cell.children[i];
      if (cell.before[i].covers(v)) continue;  // the child is not needed
      std::vector<std::uint32_t> here =
          tasks_of_child(cell.before[i], front_of(cell.level, p.front), v);
      for (std::size_t u = 0; u < width(); ++u) v[u] -= here[u];
      place_vector(p.front, cell.level, p.cell, std::move(here), to);
    }
  }
  // The tasks of v that the child takes, so that `before` covers the rest.
  [[nodiscard]] std::vector<std::uint32_t> tasks_of_child(const pareto_front& before,
                                                          const pareto_front& of_child,
                                                          counts v) const {
    std::vector<std::uint32_t> here(width());
    std::vector<std::uint32_t> rest(width());
    for (std::size_t j = 0; j < of_child.size(); ++j) {
      for (std::size_t u = 0; u < width(); ++u) {
        here[u] = (std::min)(v[u], of_child[j][u]);
        rest[u] = v[u] - here[u];
      }
      if (before.covers(rest)) return here;
    }
    APIARY_VERIFY(false);
    return here;
  }

  const capacity_index<Tree>* capacities_ = nullptr;
  const colocated_groups* groups_ = nullptr;
  std::span<const resources> hosts_;
  step_budget steps_;
  level_t level_ = 0;
  std::uint32_t cell_ = 0;
  std::size_t front_ = 0;
  std::vector<std::uint32_t> tasks_;  // of each group
  std::vector<made> cells_;           // fronts of cells
  std::vector<pareto_front> nodes_;   // fronts of nodes, all different
  index_of_values of_node_;           // by free GPUs, CPU and memory
  index_of_values of_front_;
  std::vector<std::uint32_t> vector_;
};

}  // namespace detail
APIARY_NAMESPACE_END
