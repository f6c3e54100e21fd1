// apiary/policy/least_cost_fit.h - the placement of a gang that costs least, by the caller's cost.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/tree.h>
#include <apiary/policy/certificate.h>
#include <apiary/policy/count_front.h>
#include <apiary/policy/count_numbers.h>
#include <apiary/policy/gang_portions.h>
#include <apiary/policy/gang_rules.h>
#include <apiary/policy/gang_search.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Places a gang under its rules where the sum over the nodes of a caller's cost is least: how much
// more of the GPUs is fragmented, whole cells that are broken, watts. What a node has room for is
// the caller's, too.
//
// For each cell, bottom up, the least cost of every vector (units of each kind, gang_units) that it
// can hold: sums over its parts, without the vectors that the rules of its level forbid. Nothing is
// left out, so that the least is the least, and a vector that is not there cannot be had. Cells that
// have not room for all units of one kind, counted alone, are passed over.
//
// From the preferred level up to the required one the first level with a cell that can hold the
// gang; there the cell of least cost, of equals the first.
//
// Model:    dynamic programming over counts, multiple-choice knapsack (Pisinger, "A minimal
//           algorithm for the multiple-choice knapsack problem", EJOR 1995) along a tree.
// Requires: valid(gang) for the tree.
// Cost:     vectors are the product over the kinds of (units + 1), which must be within the budget;
//           for each class of nodes and each node or cell that adds something at most vectors *
//           what it can hold. A step of the budget is one such sum, of about 2 nanoseconds.
template <CellTree Tree>
class least_cost_fit {
 public:
  using counts = std::span<const std::uint32_t>;  // units of each kind
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

  explicit least_cost_fit(std::uint64_t budget = 10'000'000) noexcept : budget_(budget) {}

  // classes: of each node its class, 0, 1, ...; nodes of a class are equal.
  // cost(class, counts) -> std::optional<std::int64_t>: of so many units on such a node, nullopt if
  // it has no room for them. It is asked for vectors that are not 0 and that the rules allow on a
  // node, or are less; what has room for one has room for less. The costs of a gang must sum up to less than 2^62.
  template <class Cost>
  fit_verdict operator()(const Tree& tree, level_t node_level, const gang_rules& gang,
                         std::span<const std::uint32_t> classes, const Cost& cost) {
    begin(tree, node_level, gang, classes);
    fit_verdict verdict = units_.size() == 0 ? fit_verdict::fits : fit_verdict::does_not_fit;
    if (!numbers_.assign(units_, budget_) || !ask(cost)) return fit_verdict::budget_ended;
    const level_t last = std::min(gang.required, top());
    level_ = std::min(gang.preferred, last);
    if (units_.size() == 0) return verdict;
    for (level_t l = level_; l <= last; ++l) {
      level_ = l;
      verdict = try_level(l, l == last);
      if (verdict == fit_verdict::fits) {
        portions_of_members(gang, units_, portions_, scratch_);
        return verdict;
      }
      lowest_ = lowest_ && verdict != fit_verdict::budget_ended;
    }
    return verdict;
  }

  // After `fits`: as ruled_fit.
  [[nodiscard]] level_t level() const noexcept { return level_; }
  [[nodiscard]] std::uint32_t cell() const noexcept { return cell_; }
  [[nodiscard]] std::span<const gang_portion> portions() const noexcept { return portions_; }
  [[nodiscard]] bool is_lowest() const noexcept { return lowest_; }
  // What the placement costs, and whether it is certain that no other one at its level costs less;
  // false if the budget ended in another cell.
  [[nodiscard]] std::int64_t cost() const noexcept { return cost_; }
  [[nodiscard]] bool is_least() const noexcept { return least_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

  [[nodiscard]] const gang_units& units() const noexcept { return units_; }
  // Room for units of kind u alone in each cell of level l, exact. Cost: O(nodes).
  [[nodiscard]] std::vector<std::uint32_t> rooms(std::size_t u, level_t l) const {
    std::vector<std::uint32_t> here(classes_.size());
    for (std::size_t n = 0; n < here.size(); ++n)
      here[n] = units_.bound(u, node_level_, alone_[classes_[n] * units_.size() + u]);
    for (level_t k = node_level_ + 1; k <= l; ++k) {
      std::vector<std::uint32_t> above(num_cells(k));
      for (std::uint32_t c = 0; c < above.size(); ++c) {
        std::uint64_t sum = 0;
        for (const cell_id i : inside(k, c, k - 1)) sum += here[i.value];
        above[c] = units_.bound(u, k, sum);
      }
      here = std::move(above);
    }
    return here;
  }
  // The greatest vectors that a node of the class can hold, within the rules for nodes.
  [[nodiscard]] count_front greatest_of(std::uint32_t node_class) const {
    return greatest(of_class_[node_class]);
  }
  // After `does_not_fit`: the cells of the last level that have room for each kind alone, and what
  // they can hold.
  [[nodiscard]] std::span<const certificate::refusal> listed() const noexcept { return listed_; }

 private:
  // Of a vector, by its number.
  struct option {
    std::uint32_t vector = 0;
    std::int64_t cost = 0;
  };
  struct part {
    std::uint32_t cell = 0;
    std::size_t made = 0;                // which one, if it is not a node
    std::vector<std::uint32_t> taken{};  // of each vector, what the part takes
  };
  struct made_cell {
    level_t below = 0;
    std::vector<part> parts{};
  };
  struct table {
    std::vector<std::int64_t> costs;  // of each vector
    std::size_t made = 0;
  };

  [[nodiscard]] level_t top() const noexcept { return tree_->num_levels(); }
  [[nodiscard]] std::uint32_t num_cells(level_t l) const noexcept {
    return l == top() ? 1 : tree_->cells(l).size();
  }
  // The cells of level `below` in cell c of level l, by their places.
  [[nodiscard]] id_range<cell_id> inside(level_t l, std::uint32_t c, level_t below) const noexcept {
    if (l == top()) return {cell_id(0), cell_id(num_cells(below))};
    const std::uint32_t first = tree_->cells(below).first.value;
    const id_range<cell_id> cells = tree_->descendants(tree_->cells(l)[c], below);
    return {cell_id(cells.first.value - first), cell_id(cells.last.value - first)};
  }
  bool pay(std::uint64_t steps) noexcept {
    ended_ = ended_ || steps > budget_ - steps_;
    steps_ = ended_ ? budget_ : steps_ + steps;
    return !ended_;
  }

  void begin(const Tree& tree, level_t node_level, const gang_rules& gang,
             std::span<const std::uint32_t> classes) {
    tree_ = &tree;
    node_level_ = node_level;
    classes_ = classes;
    APIARY_ASSERT(classes.size() == num_cells(node_level));
    units_.assign(gang, node_level, top());
    portions_.clear();
    listed_.clear();
    of_class_.clear();
    alone_.clear();
    steps_ = 0;
    ended_ = false;
    lowest_ = true;
    least_ = true;
    cell_ = 0;
    cost_ = 0;
  }
  // What each class can hold at what cost.
  template <class Cost>
  bool ask(const Cost& cost) {
    std::uint32_t num_classes = 0;
    for (const std::uint32_t c : classes_) num_classes = std::max(num_classes, c + 1);
    of_class_.resize(num_classes);
    alone_.assign(std::size_t{num_classes} * units_.size(), 0);
    for (std::uint32_t c = 0; c < num_classes && !ended_; ++c) {
      asked_.assign(units_.size(), 0);
      ask(c, 0, 0, cost);
    }
    return !ended_;
  }
  // All vectors that are at least asked_, different only from kind u on.
  template <class Cost>
  void ask(std::uint32_t c, std::size_t u, std::uint32_t v, const Cost& cost) {
    if (u == units_.size()) return;
    ask(c, u + 1, v, cost);
    while (asked_[u] < units_.at(u, node_level_).most && pay(1)) {
      ++asked_[u];
      v += numbers_.of_one(u);
      const std::optional<std::int64_t> is = cost(c, counts(asked_));
      if (!is) break;
      if (v == asked_[u] * numbers_.of_one(u)) alone_[c * units_.size() + u] = asked_[u];
      if (allowed(v, node_level_)) of_class_[c].push_back({v, *is});
      ask(c, u + 1, v, cost);
    }
    asked_[u] = 0;
  }
  [[nodiscard]] bool allowed(std::uint32_t v, level_t l) const noexcept {
    const counts n = numbers_[v];
    for (std::size_t u = 0; u < n.size(); ++u)
      if (units_.bound(u, l, n[u]) != n[u]) return false;
    return true;
  }

  fit_verdict try_level(level_t l, bool last) {
    possible_.assign(num_cells(l), 1);
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const std::vector<std::uint32_t> room = rooms(u, l);
      for (std::size_t c = 0; c < room.size(); ++c)
        if (room[c] < units_[u].tasks) possible_[c] = 0;
    }
    listed_.clear();
    bool found = false;
    bool ended = false;
    for (std::uint32_t c = 0; c < possible_.size(); ++c) {
      if (possible_[c] == 0) continue;
      made_.clear();
      const std::optional<table> is = build(l, c);
      if (!is) {
        ended = true;
        continue;
      }
      const std::int64_t least = is->costs[numbers_.size() - 1];
      if (least == never) {
        if (last && !found) list(c, *is);
        continue;
      }
      if (found && least >= cost_) continue;
      found = true;
      cost_ = least;
      cell_ = c;
      portions_.clear();
      spread(*is, l, c, numbers_.size() - 1);
    }
    least_ = found && !ended;
    if (found) return fit_verdict::fits;
    return ended ? fit_verdict::budget_ended : fit_verdict::does_not_fit;
  }

  // Nullopt when the budget ended.
  std::optional<table> build(level_t l, std::uint32_t c) {
    std::vector<std::int64_t> costs(numbers_.size(), never);
    costs[0] = 0;
    if (!pay(numbers_.size())) return std::nullopt;
    if (l == node_level_) {
      for (const option& o : of_class_[classes_[c]]) costs[o.vector] = o.cost;
      return table{std::move(costs), 0};
    }
    made_cell cell{level_below(l), {}};
    std::vector<std::uint32_t> order;
    for (const cell_id i : inside(l, c, cell.below)) order.push_back(i.value);
    const bool of_nodes = cell.below == node_level_;
    if (of_nodes)
      std::stable_sort(order.begin(), order.end(),
                       [&](std::uint32_t a, std::uint32_t b) { return classes_[a] < classes_[b]; });
    std::uint32_t useless = ~std::uint32_t{0};
    for (const std::uint32_t i : order) {
      if (of_nodes && classes_[i] == useless) continue;
      part p{i, 0, {}};
      bool adds = false;
      if (of_nodes) {
        adds = add(of_class_[classes_[i]], costs, p);
        if (!adds) useless = classes_[i];
      } else {
        const std::optional<table> is = build(cell.below, i);
        if (!is) return std::nullopt;
        p.made = is->made;
        adds = add(options_of(*is), costs, p);
      }
      if (ended_) return std::nullopt;
      if (adds) cell.parts.push_back(std::move(p));
    }
    for (std::uint32_t v = 0; v < numbers_.size(); ++v)
      if (!allowed(v, l)) costs[v] = never;
    made_.push_back(std::move(cell));
    return table{std::move(costs), made_.size() - 1};
  }
  // The next lower level with rules of its own, or that of the nodes.
  [[nodiscard]] level_t level_below(level_t l) const noexcept {
    for (level_t k = l - 1; k > node_level_; --k) {
      for (std::size_t u = 0; u < units_.size(); ++u) {
        const auto here = units_.at(u, k);
        if (here.most < units_[u].tasks || here.step != units_.at(u, k - 1).step) return k;
      }
    }
    return node_level_;
  }
  [[nodiscard]] std::vector<option> options_of(const table& is) const {
    std::vector<option> all;
    for (std::uint32_t v = 1; v < numbers_.size(); ++v)
      if (is.costs[v] != never) all.push_back({v, is.costs[v]});
    return all;
  }
  // One more part: the least of what is there and each sum; whether any is new.
  bool add(const std::vector<option>& options, std::vector<std::int64_t>& costs, part& p) {
    if (options.empty() || !pay(numbers_.size())) return false;
    before_ = costs;
    p.taken.assign(numbers_.size(), 0);
    bool adds = false;
    for (std::uint32_t v = 0; v < numbers_.size(); ++v) {
      if (before_[v] == never) continue;
      if (!pay(options.size())) return false;
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
  void spread(const table& is, level_t l, std::uint32_t c, std::uint32_t v) {
    if (l == node_level_) {
      put(c, v);
    } else {
      spread(is.made, v);
    }
  }
  void spread(std::size_t made, std::uint32_t v) {
    const made_cell& cell = made_[made];
    for (std::size_t i = cell.parts.size(); i-- > 0;) {
      const part& p = cell.parts[i];
      const std::uint32_t here = p.taken[v];
      if (here == 0) continue;
      if (cell.below == node_level_) {
        put(p.cell, here);
      } else {
        spread(p.made, here);
      }
      v -= here;
    }
    APIARY_ASSERT(v == 0);
  }
  void put(std::uint32_t node, std::uint32_t v) {
    for (std::uint32_t u = 0; u < units_.size(); ++u)
      if (numbers_[v][u] > 0) portions_.push_back({node, u, numbers_[v][u]});
  }

  [[nodiscard]] count_front greatest(std::span<const option> options) const {
    count_front front(units_.size());
    front.add(numbers_[0]);
    for (std::size_t i = options.size(); i-- > 0;) front.add(numbers_[options[i].vector]);
    front.sort();
    return front;
  }
  void list(std::uint32_t c, const table& is) {
    listed_.push_back({c, certificate::listed, 0, greatest(options_of(is)).values()});
  }

  std::uint64_t budget_;
  const Tree* tree_ = nullptr;
  level_t node_level_ = 0;
  std::span<const std::uint32_t> classes_;
  gang_units units_;
  std::uint64_t steps_ = 0;
  bool ended_ = false;
  bool lowest_ = true;
  bool least_ = true;
  level_t level_ = 0;
  std::uint32_t cell_ = 0;
  std::int64_t cost_ = 0;
  std::vector<gang_portion> portions_;
  std::vector<gang_portion> scratch_;
  count_numbers numbers_;
  std::vector<std::vector<option>> of_class_;  // what a node can hold
  std::vector<std::uint32_t> alone_;           // units of one kind on a node, by class and kind
  std::vector<std::uint32_t> asked_;
  std::vector<unsigned char> possible_;
  std::vector<made_cell> made_;
  std::vector<std::int64_t> before_;
  std::vector<certificate::refusal> listed_;
};

APIARY_NAMESPACE_END
