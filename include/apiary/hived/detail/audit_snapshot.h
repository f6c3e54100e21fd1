// apiary/hived/detail/audit_snapshot.h - checks the state that was read from a snapshot.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/hived/detail/audit_bindings.h>
#include <apiary/hived/detail/audit_counts.h>
#include <apiary/hived/detail/audit_gangs.h>
#include <apiary/hived/detail/audit_notes.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/ids.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/violation.h>

#include <cstdint>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Checks the invariants of gangs and bindings. The other ones of audit() concern counts and quotas,
// which the scheduler computes from these; a text cannot make them wrong.
// Cost: O(cells * levels + leaves of all gangs * levels), and a sort of the gangs.
[[nodiscard]] inline std::vector<violation> audit_snapshot(const hived_layout& layout,
                                                           const hived_cells& cells,
                                                           const gang_table& gangs) {
  audit_notes notes(layout, cells, gangs);
  audit_gangs(notes);
  for (std::uint32_t i = 0; i < cells.num_clusters(); ++i) {
    const vc_chain_id c(i);
    audit_images(notes, c, count_active(cells, c));
  }
  for (std::uint32_t c = 0; c < cells.num_chains(); ++c)
    audit_owners(notes, c, count_leaves(cells.chain(c)));
  return std::move(notes.found);
}

}  // namespace detail
APIARY_NAMESPACE_END
