// apiary/hived/detail/audit_quotas.h - checks the quotas of tenants and the reservations for them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/quota_ledger.h>
#include <apiary/core/ids.h>
#include <apiary/hived/detail/audit_counts.h>
#include <apiary/hived/detail/audit_notes.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/topology/uniform_tree.h>

#include <cstdint>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The number of roots of a level that are bound to a physical cell.
[[nodiscard]] inline std::uint32_t bound_roots(const virtual_cluster& cluster, level_t l) {
  std::uint32_t n = 0;
  for (const cell_id root : cluster.tree().roots(l)) n += cluster.image(root).valid() ? 1U : 0U;
  return n;
}

// Checks the quotas and the reservations of a chain. Cost: O(cells of the chain + roots in it).
// reservations  one cell is reserved for each unbound root that is not pinned, and all can be
//               granted: the number of cells of each level that can be split besides them is
//               recounted and at least 0
// ledger        the quotas are those of the layout, the quotas in use are the bound roots, and the
//               remaining total is the number of unbound roots
inline void audit_reservations(audit_notes& notes, std::uint32_t c) {
  const physical_chain& chain = notes.cells.chain(c);
  const level_t levels = chain.tree().num_levels();
  std::vector<std::uint32_t> unbound(levels, 0);
  for (std::uint32_t t = 0; t < notes.layout.tenants.size(); ++t) {
    const vc_chain_id of = notes.cells.cluster_of(tenant_id(t), c);
    for (level_t l = 0; l < levels; ++l) {
      const std::uint32_t quota = notes.layout.tenants[t].quota[c][l];
      const std::uint32_t bound = of.valid() ? bound_roots(notes.cells.cluster(of), l) : 0;
      unbound[l] += quota - bound;
      const quota_ledger& ledger = notes.cells.ledger(c);
      notes.expect(
          ledger.quota(tenant_id(t), l) == quota && ledger.allocated(tenant_id(t), l) == bound,
          "ledger", [&] {
            return notes.layout.tenants[t].name + " in " + notes.layout.chains[c].name + " level " +
                   audit_text(l) + ": " + audit_text(ledger.allocated(tenant_id(t), l)) + " of " +
                   audit_text(ledger.quota(tenant_id(t), l)) + " in use; bound are " +
                   audit_text(bound) + " of " + audit_text(quota);
          });
    }
  }
  for (level_t l = 0; l < levels; ++l) {
    notes.expect(chain.cells().reserved(l) == unbound[l], "reservations", [&] {
      return notes.layout.chains[c].name + " level " + audit_text(l) + ": " +
             audit_text(chain.cells().reserved(l)) + " are reserved, " + audit_text(unbound[l]) +
             " cells are unbound";
    });
    notes.expect(notes.cells.ledger(c).total_remaining()[l] == unbound[l], "ledger", [&] {
      return notes.layout.chains[c].name + " level " + audit_text(l) + ": the total is " +
             audit_text(notes.cells.ledger(c).total_remaining()[l]) + " for " +
             audit_text(unbound[l]);
    });
  }
  const std::vector<std::uint32_t> free = count_largest_free(chain.tree(), count_allocated(chain));
  std::int64_t splittable = 0;
  for (level_t l = levels; l-- > 0;) {
    if (l + 1 < levels) splittable *= chain.tree().fan_out(l + 1);
    splittable += std::int64_t{free[l]} - unbound[l];
    const std::string where = notes.layout.chains[c].name + " level " + audit_text(l) + ": ";
    notes.expect(splittable >= 0, "reservations", [&] { return where + "not all can be met"; });
    notes.expect(splittable == chain.cells().splittable(l), "reservations", [&] {
      return where + std::to_string(splittable) + " cells can be split, the allocator counts " +
             audit_text(chain.cells().splittable(l));
    });
  }
}

}  // namespace detail
APIARY_NAMESPACE_END
