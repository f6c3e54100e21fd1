// apiary/hived/audit.h - recomputes every invariant of a HiveD scheduler and reports violations.
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

// Reports the invariants that do not hold for the cells and gangs of a scheduler; empty if all hold. Every
// invariant is recomputed from leaves, bindings and gangs:
//
//   hived/detail/audit_gangs.h     table, once, holders, claims, tasks, missing, type, class, preempting,
//                     ending, own cells
//   hived/detail/audit_bindings.h  bijection, shape, roots, needless, hidden, own cells
//   hived/detail/audit_cells.h     active, free, usage, health, opportunistic, buddies, idle
//   hived/detail/audit_quotas.h    reservations, ledger
//
// Cost: O(cells * (levels + leaves of a node) + leaves of the gangs * levels), and a sort of the
//       gangs.
[[nodiscard]] std::vector<violation> audit(const hived_layout& layout,
                                           const detail::hived_cells& cells,
                                           const gang_table& gangs);

// The same for a scheduler, and one invariant more:
//
//   doomed  the unbound cells of a tenant that outnumber the healthy free cells of a level
//
// Cost: as above, and O(tenants * cells).
[[nodiscard]] std::vector<violation> audit(const hived& scheduler);

APIARY_NAMESPACE_END

#ifndef APIARY_COMPILED
#include <apiary/hived/detail/audit_inl.h>
#endif
