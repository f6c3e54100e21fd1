// apiary/topology/locality.h - how far apart the cells of a gang are.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/topology/tree.h>

#include <cstddef>
#include <cstdint>
#include <span>

APIARY_NAMESPACE_BEGIN

namespace detail {

template <CellTree Tree>
[[nodiscard]] bool ascend_on_one_level(const Tree& tree, std::span<const cell_id> cells) noexcept {
  for (std::size_t i = 1; i < cells.size(); ++i)
    if (cells[i] < cells[i - 1] || tree.level(cells[i]) != tree.level(cells[0])) return false;
  return true;
}

}  // namespace detail

// The level of the lowest cell that contains all of the cells; num_levels() if they are under
// several roots. Requires: at least one cell; all are of one level and in ascending order.
// Cost: O(levels) for any number of cells.
template <CellTree Tree>
[[nodiscard]] level_t spread_level(const Tree& tree, std::span<const cell_id> cells) noexcept {
  APIARY_ASSERT(!cells.empty() && detail::ascend_on_one_level(tree, cells));
  // Ids ascend from left to right, so a cell that contains the first and the last contains all.
  cell_id a = cells.front();
  cell_id b = cells.back();
  level_t l = tree.level(a);
  for (; a != b; ++l) {
    a = tree.parent(a, l);
    b = tree.parent(b, l);
  }
  return a.valid() ? l : tree.num_levels();
}

// How many cells of `level` contain one of the cells, for example how many racks a gang spans.
// Requires: all cells are of one level, not above `level`, and in ascending order.
// Cost: O(cells * levels).
template <CellTree Tree>
[[nodiscard]] std::uint32_t spanned_cells(const Tree& tree, std::span<const cell_id> cells,
                                          level_t level) noexcept {
  APIARY_ASSERT(detail::ascend_on_one_level(tree, cells));
  std::uint32_t n = 0;
  cell_id last;
  for (const cell_id c : cells) {
    const cell_id above = tree.ancestor(c, level);
    n += above != last ? 1U : 0U;
    last = above;
  }
  return n;
}

APIARY_NAMESPACE_END
