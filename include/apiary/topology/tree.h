// apiary/topology/tree.h - the concept of a tree of cells, and functions for all trees.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

APIARY_NAMESPACE_BEGIN

// A tree of cells that describes the topology of a cluster; strictly, a forest. A cell is a GPU, a
// PCIe switch, a socket, a node, a rack and so on. All leaves are at level 0 and all roots at the
// highest level. Cells are numbered in level order: the roots first, then each lower level from
// left to right.
//
// Model: HiveD (OSDI 2020) section 3: GPU, PCIe pair, socket, node, rack, ... are cells of
//        levels 0, 1, 2, ...
//
// (c: a cell, l: a level)
// | expression          | meaning                                         | cost      |
// |---------------------|-------------------------------------------------|-----------|
// | t.num_levels()      | number of levels, at least 1                    | O(1)      |
// | t.num_cells()       | number of cells; ids are 0, ..., num_cells()-1  | O(1)      |
// | t.cells(l)          | the cells of level l                            | O(1)      |
// | t.level(c)          | the level of c                                  | O(levels) |
// | t.parent(c, l)      | the cell above c of level l; a root: not valid  | O(1)      |
// | t.children(c, l)    | the children of c of level l; a leaf: empty     | O(1)      |
// | t.ancestor(c, l)    | the cell of level l >= level(c) that contains c | O(levels) |
// | t.descendants(c, l) | the cells of level l <= level(c) inside c       | O(levels) |
//
// parent and children take the level of c, because callers know it and to compute it costs more.
template <class T>
concept CellTree = std::copyable<T> && requires(const T& t, cell_id c, level_t l) {
  { t.num_levels() } -> std::same_as<level_t>;
  { t.num_cells() } -> std::same_as<std::uint32_t>;
  { t.cells(l) } -> std::same_as<id_range<cell_id>>;
  { t.level(c) } -> std::same_as<level_t>;
  { t.parent(c, l) } -> std::same_as<cell_id>;
  { t.children(c, l) } -> std::same_as<id_range<cell_id>>;
  { t.ancestor(c, l) } -> std::same_as<cell_id>;
  { t.descendants(c, l) } -> std::same_as<id_range<cell_id>>;
};

namespace detail {

// How many cells level l has; 1 for num_levels(), the level of one cell that contains everything.
template <CellTree Tree>
[[nodiscard]] constexpr std::uint32_t num_positions(const Tree& tree, level_t l) noexcept {
  return l == tree.num_levels() ? 1 : tree.cells(l).size();
}
// The cells of level `below` inside the c-th cell of level l, as positions 0, 1, ... in their
// level. Requires: below <= l <= num_levels().
template <CellTree Tree>
[[nodiscard]] constexpr id_range<cell_id> positions_inside(const Tree& tree, level_t l,
                                                           std::uint32_t c,
                                                           level_t below) noexcept {
  if (l == tree.num_levels()) return {cell_id(0), cell_id(num_positions(tree, below))};
  const std::uint32_t first = tree.cells(below).first.value;
  const id_range<cell_id> cells = tree.descendants(tree.cells(l)[c], below);
  return {cell_id(cells.first.value - first), cell_id(cells.last.value - first)};
}

// Calls f(cell, leaves inside) for each cell above some leaves, level by level. Requires: ascending
// leaves, at most 64. Cost: O(these cells).
template <CellTree Tree, class F>
void for_each_ancestor(const Tree& tree, std::span<const cell_id> leaves, F&& f) {
  if (leaves.empty()) return;
  if (cell_id above = tree.parent(leaves.front(), 0);
      above.valid() && tree.parent(leaves.back(), 0) == above) {  // often, whole nodes
    const auto all = static_cast<std::uint32_t>(leaves.size());
    for (level_t l = 1; above.valid(); above = tree.parent(above, l++)) f(above, all);
    return;
  }
  std::array<cell_id, 64> cells;
  std::array<std::uint32_t, 64> counts;
  APIARY_ASSERT(leaves.size() <= cells.size());
  std::size_t n = leaves.size();
  for (std::size_t i = 0; i < n; ++i) {
    cells[i] = leaves[i];
    counts[i] = 1;
  }
  for (level_t l = 0; n > 0; ++l) {
    const cell_id first = tree.parent(cells[0], l);
    if (first.valid() && (n == 1 || tree.parent(cells[n - 1], l) == first)) {  // one cell for all
      for (; n > 1; --n) counts[0] += counts[n - 1];
      cells[0] = first;
      f(cells[0], counts[0]);
      continue;
    }
    std::size_t merged = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const cell_id above = tree.parent(cells[i], l);
      if (!above.valid()) continue;
      if (merged > 0 && cells[merged - 1] == above) {
        counts[merged - 1] += counts[i];
      } else {
        cells[merged] = above;
        counts[merged++] = counts[i];
      }
    }
    n = merged;
    for (std::size_t i = 0; i < n; ++i) f(cells[i], counts[i]);
  }
}

// What all trees have whose cells are numbered in level order.
class level_order {
 public:
  // The most levels that a tree can have.
  static constexpr level_t max_levels = 10;
  // The number of levels.
  [[nodiscard]] level_t num_levels() const noexcept { return num_levels_; }
  // The number of cells of all levels.
  [[nodiscard]] std::uint32_t num_cells() const noexcept { return num_cells_; }
  // The number of cells of level 0.
  [[nodiscard]] std::uint32_t num_leaves() const noexcept { return num_cells_ - first_[0]; }

  // The cells of level l.
  [[nodiscard]] id_range<cell_id> cells(level_t l) const noexcept {
    APIARY_ASSERT(l < num_levels_);
    return {cell_id(first_[l]), cell_id(l == 0 ? num_cells_ : first_[l - 1])};
  }
  // The i-th cell of level l. Requires: level l has more than i cells.
  [[nodiscard]] cell_id at(level_t l, std::uint32_t i) const noexcept { return cells(l)[i]; }
  // The position of c in its level l: at(l, index(c, l)) == c.
  [[nodiscard]] std::uint32_t index(cell_id c, level_t l) const noexcept {
    APIARY_ASSERT(cells(l).contains(c));
    return c.value - first_[l];
  }
  // The level of c.
  [[nodiscard]] level_t level(cell_id c) const noexcept {
    APIARY_ASSERT(c.value < num_cells_);
    level_t l = 0;  // no early exit: a mispredicted branch costs more than the comparisons
    for (level_t k = 0; k + 1 < num_levels_; ++k) l += c.value < first_[k] ? 1U : 0U;
    return l;
  }

 protected:
  // Requires: 1 to max_levels levels.
  explicit level_order(std::size_t num_levels) : num_levels_(static_cast<level_t>(num_levels)) {
    APIARY_VERIFY(num_levels >= 1 && num_levels <= max_levels);
  }
  // Numbers the cells of the next level, from the top. Requires: fewer than 2^31 cells in all.
  void add_level(level_t l, std::uint64_t cells) noexcept {
    first_[l] = num_cells_;
    APIARY_VERIFY(cells < (std::uint64_t{1} << 31) - num_cells_);
    num_cells_ += static_cast<std::uint32_t>(cells);
  }

  level_t num_levels_;
  std::uint32_t num_cells_ = 0;
  std::array<std::uint32_t, max_levels> first_{};  // first cell of each level
};

}  // namespace detail
APIARY_NAMESPACE_END
