// apiary/hived/audit.h - everything that must be true of a HiveD scheduler, recomputed.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/hived/hived.h>
#include <apiary/hived/violation.h>

#include <vector>

APIARY_NAMESPACE_BEGIN

class gang_table;
namespace detail {
class hived_cells;
}  // namespace detail

// Which rules do not hold of the cells and gangs of a scheduler; empty: all do. Each rule is
// recomputed from leaves, bindings and gangs, and stands where it is checked:
//
//   hived/detail/audit_gangs.h     table, once, holders, claims, tasks, missing, type, class, preempting,
//                     ending, own cells
//   hived/detail/audit_bindings.h  bijection, shape, roots, needless, hidden, own cells
//   hived/detail/audit_cells.h     active, free, usage, health, quiet, buddies, idle
//   hived/detail/audit_quotas.h    promises, ledger
//
// Cost: O(cells * (levels + leaves of a node) + leaves of the gangs * levels), and a sort of the
//       gangs.
[[nodiscard]] std::vector<violation> audit(const hived_layout& layout,
                                           const detail::hived_cells& cells,
                                           const gang_table& gangs);

// And of the scheduler itself:
//
//   doomed  as many of a tenant's unbound cells as outnumber the healthy free cells of a level
//
// Cost: as above, and O(tenants * cells).
[[nodiscard]] std::vector<violation> audit(const hived& scheduler);

APIARY_NAMESPACE_END

#ifndef APIARY_COMPILED
#include <apiary/hived/detail/audit_inl.h>
#endif
