// apiary/topology/tree.h - the concept of a tree of cells, and functions for all trees.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>

#include <concepts>
#include <cstdint>

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
// | t.parent(c, l)      | the cell above c; not valid for a root;          | O(1)      |
// |                     | l == level(c)                                   |           |
// | t.children(c, l)    | the children of c; empty for a leaf;          | O(1)      |
// |                     | l == level(c)                                   |           |
// | t.ancestor(c, l)    | the cell of level l >= level(c) that contains c | O(levels) |
// | t.descendants(c, l) | the cells of level l <= level(c) inside c: one  | O(levels) |
// |                     | contiguous range                                |           |
//
// parent and children take the level as an argument because callers know it, and computing it costs
// more than the step itself.
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

// How many cells level l has. The level above the roots, num_levels(), has one cell, which contains
// everything.
template <CellTree Tree>
[[nodiscard]] constexpr std::uint32_t num_positions(const Tree& tree, level_t l) noexcept {
  return l == tree.num_levels() ? 1 : tree.cells(l).size();
}
// The cells of level `below` inside the c-th cell of level l, as positions 0, 1, ... in their
// level.
// Requires: below <= l <= num_levels().
template <CellTree Tree>
[[nodiscard]] constexpr id_range<cell_id> positions_inside(const Tree& tree, level_t l,
                                                           std::uint32_t c,
                                                           level_t below) noexcept {
  if (l == tree.num_levels()) return {cell_id(0), cell_id(num_positions(tree, below))};
  const std::uint32_t first = tree.cells(below).first.value;
  const id_range<cell_id> cells = tree.descendants(tree.cells(l)[c], below);
  return {cell_id(cells.first.value - first), cell_id(cells.last.value - first)};
}

APIARY_NAMESPACE_END
