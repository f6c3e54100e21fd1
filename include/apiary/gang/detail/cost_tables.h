// apiary/gang/detail/cost_tables.h - the least cost of tasks by class of nodes and by cell.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/capacity_count.h>
#include <apiary/gang/detail/pareto_search.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The vectors (tasks of each group) that a node of each class can hold within the constraints of
// the node level, and what they cost: the function `cost` of min_cost_fit says both. A node that
// holds a vector must hold every smaller one. ask_alone calls it O(classes * groups * log tasks)
// times, ask_all once for each vector that a node can hold or that is just too large. A call reads
// all groups and costs price() steps. If `cost` has a function `most`, ask_alone calls it instead,
// and once is enough for a class and a group:
//   cost.most(class, counts, u, limit): how many tasks of group u, at most `limit`, such a node
//   holds beside the tasks of the other groups in `counts` (no groups: none).
class class_vectors {
 public:
  using counts = std::span<const std::uint32_t>;
  // Whether a cost says how many tasks of a group a node holds.
  template <class Cost>
  static constexpr bool counts_tasks = requires(const Cost& cost) {
    cost.most(std::uint32_t{}, counts(), std::size_t{}, std::uint32_t{});
  };
  // Asks how many tasks of each group alone a node holds. Returns false if the budget ended.
  template <class Cost>
  bool ask_alone(const colocated_groups& groups, level_t node_level, std::uint32_t classes,
                 const Cost& cost, step_budget& steps) {
    groups_ = groups;
    node_level_ = node_level;
    if (!steps.pay(std::uint64_t{classes} * width() / alone_of_a_step)) return false;
    alone_.assign(std::size_t{classes} * width(), 0);
    held_.resize(classes);
    asked_.assign(width(), 0);
    for (std::uint32_t c = 0; c < classes; ++c) {
      for (std::size_t u = 0; u < width(); ++u) {
        std::uint32_t& capacity = alone_[c * width() + u];
        std::uint32_t more = groups.at(u, node_level).most;
        if constexpr (counts_tasks<Cost>) {
          capacity = cost.most(c, counts(), u, more);
          continue;
        }
        while (capacity < more) {
          if (!steps.pay(price())) return false;
          asked_[u] = capacity + (more - capacity + 1) / 2;
          if (cost(c, counts(asked_))) {
            capacity = asked_[u];
          } else {
            more = asked_[u] - 1;
          }
        }
        asked_[u] = 0;
      }
    }
    return true;
  }
  // After ask_alone: asks for all other vectors. Returns false if the budget ended.
  template <class Cost>
  bool ask_all(const Cost& cost, step_budget& steps) {
    for (std::uint32_t c = 0; c < held_.size() && !steps.ended(); ++c) {
      held_[c] = {};
      ask(c, 0, cost, steps);
    }
    return !steps.ended();
  }
  // The steps of a call of `cost` for so many groups.
  [[nodiscard]] static std::uint64_t price(std::uint64_t groups) noexcept {
    return 1 + groups / groups_of_a_step;
  }
  [[nodiscard]] std::uint64_t price() const noexcept { return price(width()); }
  [[nodiscard]] std::uint32_t alone(std::uint32_t node_class, std::size_t u) const noexcept {
    return alone_[node_class * width() + u];
  }
  // The vectors of a class other than 0, and their costs.
  [[nodiscard]] std::size_t size(std::uint32_t node_class) const noexcept {
    return held_[node_class].costs.size();
  }
  [[nodiscard]] counts vector(std::uint32_t node_class, std::size_t i) const noexcept {
    return {held_[node_class].counts.data() + i * width(), width()};
  }
  [[nodiscard]] std::int64_t cost(std::uint32_t node_class, std::size_t i) const noexcept {
    return held_[node_class].costs[i];
  }
  // The largest weight of a vector of the class.
  [[nodiscard]] std::uint64_t max_weight(std::uint32_t node_class, counts weights) const noexcept {
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < size(node_class); ++i) {
      std::uint64_t sum = 0;
      for (std::size_t u = 0; u < width(); ++u)
        sum += std::uint64_t{vector(node_class, i)[u]} * weights[u];
      most = (std::max)(most, sum);
    }
    return most;
  }

 private:
  struct held {
    std::vector<std::uint32_t> counts{};  // vector after vector
    lean_vector<std::int64_t> costs{};
  };
  static constexpr std::size_t alone_of_a_step = 4;
  static constexpr std::size_t groups_of_a_step = 8;  // that a call of `cost` reads

  [[nodiscard]] std::size_t width() const noexcept { return groups_.size(); }
  // Asks for all vectors that differ from asked_ only from group u on, smaller ones first.
  template <class Cost>
  void ask(std::uint32_t c, std::size_t u, const Cost& cost, step_budget& steps) {
    if (u == width()) return;
    ask(c, u + 1, cost, steps);
    while (asked_[u] < alone(c, u) && steps.pay(price())) {
      ++asked_[u];
      const std::optional<std::int64_t> is = cost(c, counts(asked_));
      if (!is) break;
      if (allowed()) {
        held_[c].counts.insert(held_[c].counts.end(), asked_.begin(), asked_.end());
        held_[c].costs.push_back(*is);
      }
      ask(c, u + 1, cost, steps);
    }
    asked_[u] = 0;
  }
  [[nodiscard]] bool allowed() const noexcept {
    for (std::size_t u = 0; u < width(); ++u)
      if (groups_.bound(u, node_level_, asked_[u]) != asked_[u]) return false;
    return true;
  }

  colocated_groups groups_;
  level_t node_level_ = 0;
  std::vector<std::uint32_t> alone_;  // by class and group
  std::vector<held> held_;            // by class
  std::vector<std::uint32_t> asked_;
};

// Numbers the vectors of tasks of each group, up to the gang, in a mixed radix: the number of a sum
// is the sum of the numbers, vector 0 has number 0, and the whole gang has the last number.
// Cost: assign O(vectors * groups), have_sum O(groups), others O(1); 4 bytes per vector and group.
class mixed_radix {
 public:
  using counts = std::span<const std::uint32_t>;
  // Returns false if there are more vectors than `most`; the object is unusable then.
  bool assign(const colocated_groups& groups, std::uint64_t most) {
    num_groups_ = groups.size();
    strides_.clear();
    std::uint64_t size = 1;
    for (std::size_t u = 0; u < num_groups_; ++u) {
      strides_.push_back(static_cast<std::uint32_t>(size));
      size *= std::uint64_t{groups[u].tasks} + 1;
      if (size > most || size >> 31 != 0) return false;
    }
    size_ = static_cast<std::uint32_t>(size);
    digits_.assign(static_cast<std::size_t>(size) * num_groups_, 0);
    for (std::uint32_t v = 1; v < size_; ++v)
      for (std::size_t u = 0; u < num_groups_; ++u)
        digits_[v * num_groups_ + u] = v / strides_[u] % (groups[u].tasks + 1);
    return true;
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  // The number of one task of group u.
  [[nodiscard]] std::uint32_t of_one(std::size_t u) const noexcept { return strides_[u]; }
  [[nodiscard]] counts operator[](std::uint32_t v) const noexcept {
    return {digits_.data() + std::size_t{v} * num_groups_, num_groups_};
  }
  // Whether the sum of v and w is within the gang; its number is v + w then.
  [[nodiscard]] bool have_sum(std::uint32_t v, std::uint32_t w) const noexcept {
    if (w >= size_ - v) return false;
    const counts sum = (*this)[v + w];
    const counts summand = (*this)[v];
    for (std::size_t u = 0; u + 1 < num_groups_; ++u)
      if (sum[u] < summand[u]) return false;
    return true;
  }

 private:
  std::size_t num_groups_ = 0;
  std::uint32_t size_ = 1;
  std::vector<std::uint32_t> strides_;  // of each group
  std::vector<std::uint32_t> digits_;   // of each vector
};

// Computes for a cell, bottom up, the least cost of every vector (tasks of each group) that it can
// hold. The costs are exact, and a vector without a cost does not fit.
// Model:    dynamic programming over counts, multiple-choice knapsack (Pisinger, "A minimal
//           algorithm for the multiple-choice knapsack problem", EJOR 1995) along a tree.
// Cost:     for each child that adds something: V times the number of vectors that the child can
//           hold, where V is the product of (tasks + 1) over the groups. A step of the budget is
//           one such sum and takes about 2 nanoseconds.
template <CellTree Tree>
class cost_tables {
 public:
  static constexpr std::int64_t never = (std::numeric_limits<std::int64_t>::max)();
  // Begins a search over these arguments, which must not change; `classes` has the class of each
  // node. Returns false if there are more vectors than steps.
  bool begin(const Tree& tree, level_t node_level, const colocated_groups& groups,
             std::span<const std::uint32_t> classes, const class_vectors& vectors,
             step_budget& steps) {
    tree_ = &tree;
    node_level_ = node_level;
    groups_ = &groups;
    classes_ = classes;
    if (!numbers_.assign(groups, steps.left())) return false;
    steps.pay(numbers_.size());
    of_class_.clear();
    for (const std::uint32_t c : classes) {
      while (of_class_.size() <= c) {
        const auto next = static_cast<std::uint32_t>(of_class_.size());
        of_class_.emplace_back();
        for (std::size_t i = 0; i < vectors.size(next); ++i)
          of_class_.back().push_back({number(vectors.vector(next, i)), vectors.cost(next, i)});
      }
    }
    return true;
  }
  // The least cost of the gang in cell c of level l; `never` if it does not fit; nullopt if the
  // budget ended.
  std::optional<std::int64_t> make(level_t l, std::uint32_t c, step_budget& steps) {
    made_.clear();
    level_ = l;
    cell_ = c;
    last_ = build(l, c, steps);
    return last_ ? std::optional(last_->costs.back()) : std::nullopt;
  }
  // After make, if the gang fits: appends its tasks to `to`.
  void place(lean_vector<tasks_on_node>& to) const {
    const std::uint32_t gang = numbers_.size() - 1;
    if (level_ == node_level_) return put(cell_, gang, to);
    place_vector(last_->made, gang, to);
  }
  // After make: the largest vectors that the cell can hold.
  [[nodiscard]] pareto_front greatest() const {
    pareto_front front(groups_->size());
    for (std::uint32_t v = numbers_.size(); v-- > 0;)
      if (v == 0 || last_->costs[v] != never) front.add(numbers_[v]);
    front.sort();
    return front;
  }

 private:
  struct option {
    std::uint32_t vector = 0;  // its number
    std::int64_t cost = 0;
  };
  struct child {
    std::uint32_t cell = 0;
    std::size_t made = 0;                // index of the cell, if it is not a node
    std::vector<std::uint32_t> taken{};  // of each vector, what the child takes
  };
  struct made_cell {
    level_t below = 0;
    std::vector<child> children{};
  };
  struct table {
    lean_vector<std::int64_t> costs;  // of each vector
    std::size_t made = 0;
  };

  [[nodiscard]] std::uint32_t number(class_vectors::counts v) const noexcept {
    std::uint32_t n = 0;
    for (std::size_t u = 0; u < v.size(); ++u) n += v[u] * numbers_.of_one(u);
    return n;
  }
  [[nodiscard]] bool allowed(std::uint32_t v, level_t l) const noexcept {
    for (std::size_t u = 0; u < groups_->size(); ++u)
      if (groups_->bound(u, l, numbers_[v][u]) != numbers_[v][u]) return false;
    return true;
  }
  std::optional<table> build(level_t l, std::uint32_t c, step_budget& steps) {
    lean_vector<std::int64_t> costs(numbers_.size(), never);
    costs[0] = 0;
    if (!steps.pay(numbers_.size())) return std::nullopt;
    if (l == node_level_) {
      for (const option& o : of_class_[classes_[c]]) costs[o.vector] = o.cost;
      return table{std::move(costs), 0};
    }
    made_cell cell{level_below(*groups_, l, node_level_), {}};
    std::vector<std::uint32_t> order;
    for (const cell_id i : positions_inside(*tree_, l, c, cell.below)) order.push_back(i.value);
    const bool of_nodes = cell.below == node_level_;
    if (of_nodes)
      merge_sort(order,
                 [&](std::uint32_t a, std::uint32_t b) { return classes_[a] < classes_[b]; });
    std::uint32_t useless = ~std::uint32_t{0};
    for (const std::uint32_t i : order) {
      if (of_nodes && classes_[i] == useless) continue;
      child p{i, 0, {}};
      bool adds = false;
      if (of_nodes) {
        adds = add(of_class_[classes_[i]], costs, p, steps);
        if (!adds) useless = classes_[i];
      } else {
        const std::optional<table> is = build(cell.below, i, steps);
        if (!is) return std::nullopt;
        p.made = is->made;
        adds = add(options_of(*is), costs, p, steps);
      }
      if (steps.ended()) return std::nullopt;
      if (adds) cell.children.push_back(std::move(p));
    }
    for (std::uint32_t v = 0; v < numbers_.size(); ++v)
      if (!allowed(v, l)) costs[v] = never;
    made_.push_back(std::move(cell));
    return table{std::move(costs), made_.size() - 1};
  }
  [[nodiscard]] lean_vector<option> options_of(const table& is) const {
    lean_vector<option> all;
    for (std::uint32_t v = 1; v < numbers_.size(); ++v)
      if (is.costs[v] != never) all.push_back({v, is.costs[v]});
    return all;
  }
  // Adds one more child: the least cost of each sum. Returns whether anything changed.
  bool add(const lean_vector<option>& options, lean_vector<std::int64_t>& costs, child& p,
           step_budget& steps) {
    if (options.empty() || !steps.pay(numbers_.size())) return false;
    before_ = costs;
    p.taken.assign(numbers_.size(), 0);
    bool adds = false;
    for (std::uint32_t v = 0; v < numbers_.size(); ++v) {
      if (before_[v] == never) continue;
      if (!steps.pay(options.size())) return false;
      for (const option& o : options) {
        if (!numbers_.have_sum(v, o.vector)) continue;
        const std::uint32_t sum = v + o.vector;
        const std::int64_t cost = before_[v] + o.cost;
        if (cost >= costs[sum]) continue;
        costs[sum] = cost;
        p.taken[sum] = o.vector;
        adds = true;
      }
    }
    return adds;
  }
  void place_vector(std::size_t made, std::uint32_t v, lean_vector<tasks_on_node>& to) const {
    const made_cell& cell = made_[made];
    for (std::size_t i = cell.children.size(); i-- > 0;) {
      const child& p = cell.children[i];
      const std::uint32_t here = p.taken[v];
      if (here == 0) continue;
      if (cell.below == node_level_) {
        put(p.cell, here, to);
      } else {
        place_vector(p.made, here, to);
      }
      v -= here;
    }
    APIARY_ASSERT(v == 0);
  }
  void put(std::uint32_t node, std::uint32_t v, lean_vector<tasks_on_node>& to) const {
    for (std::uint32_t u = 0; u < groups_->size(); ++u)
      if (numbers_[v][u] > 0) to.push_back({node, u, numbers_[v][u]});
  }

  const Tree* tree_ = nullptr;
  level_t node_level_ = 0;
  const colocated_groups* groups_ = nullptr;
  std::span<const std::uint32_t> classes_;
  mixed_radix numbers_;
  std::vector<lean_vector<option>> of_class_;  // what a node can hold
  std::vector<made_cell> made_;
  lean_vector<std::int64_t> before_;
  std::optional<table> last_;
  level_t level_ = 0;
  std::uint32_t cell_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
