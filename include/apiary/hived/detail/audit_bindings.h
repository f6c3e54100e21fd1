// apiary/hived/detail/audit_bindings.h - checks the bindings between virtual and physical cells.
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

// Checks a bound virtual cell; active: one of its leaves is taken. Invariants:
// bijection  the physical cell has the same level, and is bound to this virtual cell
// shape      the parent of a bound cell is bound to the parent of its image
// roots      a physical cell is allocated if and only if a root is bound to it
// needless   a bound cell has a leaf in use, is a pinned root, or is unhealthy in a bound cell
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

// Checks a physical cell; n: the counts of its chain. Also checks bijection and roots, as above.
// own cells  a leaf that is taken is bound
// hidden     every unhealthy cell inside a bound cell is bound
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
                   "roots", [&] {
                     return notes.cell_of_chain(c, p) +
                            " is allocated; it is bound to a cell inside a whole cell";
                   });
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

// Checks all bound cells of a virtual cluster; active: the taken leaves of each cell, by cell id.
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

// Checks all cells of a chain; n: its counts. Cost: O(cells of the chain).
inline void audit_owners(audit_notes& notes, std::uint32_t c, const chain_counts& n) {
  const uniform_tree& tree = notes.cells.chain(c).tree();
  for (level_t l = 0; l < tree.num_levels(); ++l) {
    for (const cell_id p : tree.cells(l)) audit_owner(notes, c, p, l, n);
  }
}

}  // namespace detail
APIARY_NAMESPACE_END
