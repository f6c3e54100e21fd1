// apiary/hived/detail/cell_choice.h - chooses physical cells with few guests for a tenant.
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

// Chooses a healthy cell of a level that can be granted to a tenant, if there is one: the first
// cell without guests (leaves with an opportunistic task), else the first with the fewest guests
// among those in the smallest free cells.
// Cost: as reserving_buddy_allocator::find with a bitset, for each number of guests below the
//       leaves of a node; above the nodes O(cells of the level) if all cells have many guests.
[[nodiscard]] inline std::optional<cell_id> find_quietest(const physical_chain& chain, level_t l) {
  const reserving_buddy_allocator& cells = chain.cells();
  if (const auto quiet = cells.find({.level = l, .usable = &chain.quiet()})) return quiet;
  const summary_bitset* const healthy = &chain.healthy().usable();
  const auto any = cells.find({.level = l, .usable = healthy});
  if (!any) return any;
  const level_t from = *cells.cells().enclosing_free_level(*any);
  for (std::uint32_t most = 1; most < chain.node_leaves(); ++most) {
    const summary_bitset* const few = &chain.few_guests(most);
    if (const auto c = cells.find({.level = l, .highest = from, .usable = few})) return c;
  }
  if (l <= chain.node_level()) return any;
  return cells.find({.level = l, .highest = from, .usable = healthy},
                    [&](cell_id c) { return chain.guests(c); });
}
// The first unbound cell with the fewest guests among the children (`parts`) of a bound cell.
// Requires: a child is unbound (APIARY_VERIFY). Cost: O(children).
[[nodiscard]] inline cell_id first_quietest(const physical_chain& chain,
                                            id_range<cell_id> parts) noexcept {
  cell_id best;
  std::uint32_t least = 0;
  for (const cell_id p : parts) {
    if (chain.owner(p).cell.valid()) continue;
    const std::uint32_t guests = chain.guests(p);
    if (best.valid() && guests >= least) continue;
    best = p;
    least = guests;
    if (least == 0) break;
  }
  APIARY_VERIFY(best.valid());
  return best;
}

}  // namespace detail
APIARY_NAMESPACE_END
