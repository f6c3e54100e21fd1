// apiary/hived/audit.h - recomputes every invariant of a HiveD scheduler and reports violations.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/violation.h>

#include <vector>

APIARY_NAMESPACE_BEGIN

class gang_table;
namespace detail {
class hived_cells;
}  // namespace detail

// Recomputes every invariant from leaves, bindings and gangs; returns those that do not hold. The
// module page lists their names, and hived/detail/audit_*.h says what each means.
// Cost: O(cells * (levels + leaves of a node) + leaves of the gangs * levels), a sort of the gangs.
[[nodiscard]] std::vector<violation> audit(const hived_layout& layout,
                                           const detail::hived_cells& cells,
                                           const gang_table& gangs);

// The same for a scheduler. It also checks "doomed": the unbound cells of a tenant that outnumber
// the healthy free cells of a level. Cost: as above, and O(tenants * cells).
[[nodiscard]] std::vector<violation> audit(const hived& scheduler);

// Checks only the gangs and the virtual cells of one tenant. Requires: the tenant exists.
// Cost: O(cells of the tenant * levels + leaves of its gangs * levels), and a sort of all gangs.
[[nodiscard]] std::vector<violation> audit(const hived& scheduler, tenant_id tenant);

// Checks only the physical cells and the quotas of one chain. Requires: the chain exists.
// Cost: O(cells of the chain * (levels + leaves of a node)), and a sort of all gangs.
[[nodiscard]] std::vector<violation> audit(const hived& scheduler, chain_id chain);

APIARY_NAMESPACE_END

#ifndef APIARY_COMPILED
#include <apiary/hived/detail/audit_inl.h>
#endif
