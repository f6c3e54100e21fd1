// apiary/gang/detail/cell_parts.h - which parts of a cell take how many units of one kind.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/gang/topology_constraints.h>

#include <algorithm>
#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// So many equal parts of a cell: each has room for so many units, and so much free.
struct cell_part {
  std::uint32_t cell = 0;
  std::uint32_t room = 0;
  std::uint64_t free = 0;
  std::uint32_t copies = 1;
};

// Puts n units into parts, and calls sink(part, units there).
//
//   whole_cells   the parts with least free first, of equals those with most room, then the first.
//                 No other way leaves more of the parts with most free untouched. Proof: what the
//                 others have room for is used before, and then those with most room.
//   fewest_nodes  the parts with most room first, of equals those with least free; as soon as one
//                 part has room for the rest, of these the one with least room.
//
// All room may be in steps of some size if n is: so is then what each part takes.
// Requires: n is not more than the room of all; no part without room. The parts are used up.
// Cost:     O(parts + parts used * log parts).
template <class Sink>
void fill_parts(std::vector<cell_part>& parts, std::uint32_t n, gang_objective objective,
                const Sink& sink) {
  const bool few = objective == gang_objective::fewest_nodes;
  const auto later = [&](const cell_part& a, const cell_part& b) {
    if (few && a.room != b.room) return a.room < b.room;
    if (a.free != b.free) return a.free > b.free;
    return a.room != b.room ? a.room < b.room : a.cell > b.cell;
  };
  std::make_heap(parts.begin(), parts.end(), later);
  while (n > 0) {
    APIARY_ASSERT(!parts.empty());
    if (few && parts.front().room >= n) {
      const cell_part* best = &parts.front();
      for (const cell_part& p : parts) {
        const bool less = p.room != best->room ? p.room < best->room : later(*best, p);
        if (p.room >= n && less) best = &p;
      }
      return sink(*best, n);
    }
    cell_part& first = parts.front();
    const std::uint32_t here = std::min(n, first.room);
    sink(first, here);
    n -= here;
    if (--first.copies > 0) continue;
    std::pop_heap(parts.begin(), parts.end(), later);
    parts.pop_back();
  }
}

}  // namespace detail
APIARY_NAMESPACE_END
