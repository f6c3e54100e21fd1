// apiary/hived/detail/audit_inl.h - bodies of hived/audit.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/detail/audit_cells.h>
#include <apiary/hived/detail/audit_gangs.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/violation.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

inline void audit_virtual_cells(audit_notes& notes, vc_chain_id c) {
  const std::vector<std::uint32_t> active = count_active(notes.cells, c);
  audit_images(notes, c, active);
  audit_cluster(notes, c, active);
}
inline void audit_physical_cells(audit_notes& notes, std::uint32_t c) {
  const chain_counts n = count_leaves(notes.cells.chain(c));
  audit_owners(notes, c, n);
  audit_chain(notes, c, n);
  audit_reservations(notes, c);
}

}  // namespace detail

APIARY_INLINE std::vector<violation> audit(const hived_layout& layout,
                                           const detail::hived_cells& cells,
                                           const gang_table& gangs) {
  detail::audit_notes notes(layout, cells, gangs);
  detail::audit_gangs(notes);
  for (std::uint32_t i = 0; i < cells.num_clusters(); ++i)
    detail::audit_virtual_cells(notes, vc_chain_id(i));
  for (std::uint32_t c = 0; c < cells.num_chains(); ++c) detail::audit_physical_cells(notes, c);
  return std::move(notes.found);
}

APIARY_INLINE std::vector<violation> audit(const hived& scheduler, tenant_id tenant) {
  const detail::hived_cells& cells = scheduler.cells();
  detail::audit_notes notes(scheduler.layout(), cells, scheduler.gangs());
  for (const gang_slot s : notes.all)
    if (notes.gangs[s].request.tenant == tenant) detail::audit_gang(notes, s);
  for (std::uint32_t i = 0; i < cells.num_clusters(); ++i) {
    if (cells.cluster(vc_chain_id(i)).tenant() == tenant)
      detail::audit_virtual_cells(notes, vc_chain_id(i));
  }
  return std::move(notes.found);
}

APIARY_INLINE std::vector<violation> audit(const hived& scheduler, chain_id chain) {
  detail::audit_notes notes(scheduler.layout(), scheduler.cells(), scheduler.gangs());
  detail::audit_physical_cells(notes, chain.value);
  return std::move(notes.found);
}

APIARY_INLINE std::vector<violation> audit(const hived& scheduler) {
  const hived_layout& layout = scheduler.layout();
  const detail::hived_cells& cells = scheduler.cells();
  std::vector<violation> found = audit(layout, cells, scheduler.gangs());
  for (std::uint32_t c = 0; c < cells.num_chains(); ++c) {
    const std::vector<std::uint32_t> healthy = detail::count_healthy_free(cells.chain(c));
    for (std::uint32_t t = 0; t < layout.tenants.size(); ++t) {
      const vc_chain_id of = cells.cluster_of(tenant_id(t), c);
      for (level_t l = 0; of.valid() && l < cells.chain(c).tree().num_levels(); ++l) {
        const detail::virtual_cluster& cluster = cells.cluster(of);
        const std::uint32_t unbound =
            cluster.tree().roots(l).size() - detail::bound_roots(cluster, l);
        const std::uint32_t doomed = unbound > healthy[l] ? unbound - healthy[l] : 0;
        const std::uint32_t counted = *scheduler.doomed(tenant_id(t), chain_id(c), l);
        if (counted == doomed) continue;
        found.push_back({"doomed", layout.tenants[t].name + " in " + layout.chains[c].name +
                                       " level " + std::to_string(l) + ": " +
                                       std::to_string(counted) + ", recounted " +
                                       std::to_string(doomed)});
      }
    }
  }
  return found;
}

APIARY_NAMESPACE_END
