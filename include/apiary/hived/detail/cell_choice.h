// apiary/hived/detail/cell_choice.h - chooses physical cells for the cells of a tenant.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/hived/detail/physical_chain.h>

#include <cstdint>
#include <optional>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Chooses the physical cell for a whole cell of a tenant: a healthy cell of the level that can be
// granted, if there is one. The first cell without opportunistic leaves comes first, then the cells
// with the fewest of them among those in the smallest free cells.
// Cost: as reserving_buddy_allocator::find with a bitset, for each number of opportunistic leaves
//       below the leaves of a node; above the nodes O(cells of the level) if all cells have many.
[[nodiscard]] inline std::optional<cell_id> choose_whole_cell(const physical_chain& chain,
                                                              level_t l) {
  const reserving_buddy_allocator& cells = chain.cells();
  if (const auto c = cells.find({.level = l, .usable = &chain.without_opportunistic()})) return c;
  const summary_bitset* const healthy = &chain.healthy().usable();
  const auto any = cells.find({.level = l, .usable = healthy});
  if (!any) return any;
  const level_t from = *cells.cells().enclosing_free_level(*any);
  for (std::uint32_t most = 1; most < chain.node_leaves(); ++most) {
    const summary_bitset* const few = &chain.few_opportunistic(most);
    if (const auto c = cells.find({.level = l, .highest = from, .usable = few})) return c;
  }
  if (l <= chain.node_level()) return any;
  return cells.find({.level = l, .highest = from, .usable = healthy},
                    [&](cell_id c) { return chain.opportunistic_leaves(c); });
}
// Chooses the physical cell for a child of a bound cell: the first unbound cell with the fewest
// opportunistic leaves among the physical cell's children. Requires: a child is unbound
// (APIARY_VERIFY). Cost: O(children).
[[nodiscard]] inline cell_id choose_child_cell(const physical_chain& chain,
                                               id_range<cell_id> children) noexcept {
  cell_id best;
  std::uint32_t least = 0;
  for (const cell_id p : children) {
    if (chain.owner(p).cell.valid()) continue;
    const std::uint32_t opportunistic = chain.opportunistic_leaves(p);
    if (best.valid() && opportunistic >= least) continue;
    best = p;
    least = opportunistic;
    if (least == 0) break;
  }
  APIARY_VERIFY(best.valid());
  return best;
}

}  // namespace detail
APIARY_NAMESPACE_END
