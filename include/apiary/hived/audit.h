// apiary/hived/audit.h - checks the whole state of a HiveD scheduler.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN

class gang_table;
class hived;
namespace detail {
class hived_catalog;
class hived_cells;
}  // namespace detail

// What audit() reports: what is wrong, and where.
struct violation {
  std::string invariant{};  // the name of the invariant or of the count, see the module page
  std::string witness{};    // gangs, chains, cells, the value and the value that it should have
};

// Restores the snapshot of a scheduler into a new one, which checks gangs and bindings and counts
// everything else again; compares both. Returns the first gang or binding that violates an
// invariant, or else the first difference of each kind; empty if all is well.
// Cost: as hived::snapshot and hived::restore, and O(cells * leaves of a node).
[[nodiscard]] std::vector<violation> audit(const hived& scheduler);

namespace detail {
// The same for cells and gangs, without the hash.
[[nodiscard]] std::vector<violation> audit(const hived_catalog& catalog, const hived_cells& cells,
                                           const gang_table& gangs);
}  // namespace detail

APIARY_NAMESPACE_END

#ifndef APIARY_COMPILED
#include <apiary/hived/detail/audit_inl.h>
#endif
