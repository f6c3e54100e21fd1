// apiary/alloc/detail/enclosing_free_level.h - the free cell that contains a cell.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/topology/tree.h>

#include <optional>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The level of the lowest cell that is c or contains c and for which is_free holds; nullopt if
// there is none. Cost: O(levels).
template <CellTree Tree, class IsFree>
[[nodiscard]] std::optional<level_t> enclosing_free_level(const Tree& tree, cell_id c,
                                                          const IsFree& is_free) noexcept {
  level_t l = tree.level(c);
  while (!is_free(c)) {
    c = tree.parent(c, l);
    if (!c.valid()) return std::nullopt;
    ++l;
  }
  return l;
}

}  // namespace detail
APIARY_NAMESPACE_END
