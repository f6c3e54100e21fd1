// apiary/hived/detail/audit_bindings.h - what must be true of virtual cells and what they are bound to.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/hived/detail/audit_counts.h>
#include <apiary/hived/detail/audit_notes.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/topology/uniform_tree.h>

#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A virtual cell that is bound; active: some leaf of it is taken.
//
// bijection  a virtual cell is bound to the physical cell that is bound to it, of its level
// shape      the cell above a bound cell is bound to the cell above its image
// roots      the cells allocated are those that roots are bound to
// needless   a bound cell has something in use, or is a pinned root, or is an unhealthy part of a
//            bound cell
inline void audit_binding(audit_notes& notes, vc_chain_id c, cell_id v, level_t l, bool active) {
  const virtual_cluster& cluster = notes.cells.cluster(c);
  const physical_chain& chain = notes.cells.chain(cluster.chain());
  const cell_id p = cluster.image(v);
  const auto witness = [&] {
    return notes.cell_of_tenant(c, v) + " of level " + audit_text(l) + ", bound to " +
           notes.cell_of_chain(cluster.chain(), p);
  };
  const bool both = p.value < chain.tree().num_cells() && chain.tree().level(p) == l &&
                    chain.owner(p) == virtual_cell{c, v};
  notes.expect(both, "bijection", witness);
  if (!both) return;
  const cell_id above = cluster.tree().parent(v, l);
  if (above.valid()) {
    notes.expect(cluster.image(above).valid() && cluster.image(above) == chain.tree().parent(p, l),
                 "shape", witness);
  } else {
    notes.expect(chain.cells().cells().is_live(p), "roots",
                 [&] { return witness() + ", which is not allocated"; });
  }
  const bool needed =
      active || (above.valid() ? !chain.healthy().healthy(p) : notes.cells.is_pinned(c));
  notes.expect(needed, "needless", witness);
}

// A physical cell; n: the leaves counted in its chain.
//
// bijection, roots  as above
// own cells         a leaf that is taken is bound
// hidden            every unhealthy part of a bound cell is bound
inline void audit_owner(audit_notes& notes, std::uint32_t c, cell_id p, level_t l,
                        const chain_counts& n) {
  const physical_chain& chain = notes.cells.chain(c);
  const virtual_cell owner = chain.owner(p);
  const cell_id above = chain.tree().parent(p, l);
  if (owner.cell.valid()) {
    const bool both = owner.cluster.value < notes.cells.num_clusters() &&
                      notes.cells.cluster(owner.cluster).chain() == c &&
                      owner.cell.value < notes.cells.cluster(owner.cluster).tree().num_cells() &&
                      notes.cells.cluster(owner.cluster).image(owner.cell) == p;
    notes.expect(both, "bijection", [&] {
      return notes.cell_of_chain(c, p) + " names cluster " + audit_text(owner.cluster.value) +
             " cell " + audit_text(owner.cell) + ", which is not bound to it";
    });
    if (both && chain.cells().cells().is_live(p)) {
      notes.expect(!notes.cells.cluster(owner.cluster).tree().parent(owner.cell, l).valid(),
                   "roots", [&] { return notes.cell_of_chain(c, p) + " is allocated for a part"; });
    }
    return;
  }
  notes.expect(!chain.cells().cells().is_live(p), "roots",
               [&] { return notes.cell_of_chain(c, p) + " is allocated and bound to nothing"; });
  notes.expect(l != 0 || !chain.holders(p).taken(), "own cells",
               [&] { return notes.leaf(c, p) + " is taken and bound to nothing"; });
  notes.expect(
      !above.valid() || !chain.owner(above).cell.valid() || n.bad[p.value] == 0, "hidden",
      [&] { return notes.cell_of_chain(c, p) + " is unhealthy and not bound, the cell above is"; });
}

// All bound cells of a cluster; active: their leaves in use, by the value of the cell's id.
//
// Cost: O(cells of the cluster).
inline void audit_images(audit_notes& notes, vc_chain_id c,
                         const std::vector<std::uint32_t>& active) {
  const virtual_cluster& cluster = notes.cells.cluster(c);
  for (level_t l = 0; l < cluster.tree().num_levels(); ++l) {
    for (const cell_id v : cluster.tree().cells(l)) {
      if (cluster.image(v).valid()) audit_binding(notes, c, v, l, active[v.value] > 0);
    }
  }
}

// All cells of a chain.
//
// Cost: O(cells of the chain).
inline void audit_owners(audit_notes& notes, std::uint32_t c, const chain_counts& n) {
  const uniform_tree& tree = notes.cells.chain(c).tree();
  for (level_t l = 0; l < tree.num_levels(); ++l) {
    for (const cell_id p : tree.cells(l)) audit_owner(notes, c, p, l, n);
  }
}

}  // namespace detail
APIARY_NAMESPACE_END
