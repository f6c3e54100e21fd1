// apiary/hived/detail/audit_cells.h - checks the counts that cells and nodes keep.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/hived/detail/audit_counts.h>
#include <apiary/hived/detail/audit_notes.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/quota_tree.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Checks the cells of a tenant in a chain; active: the number of their leaves in use, recounted.
// Cost: O(cells of the cluster).
// active  a virtual cell has the right count of its leaves in use
// free    a virtual node has exactly the leaves that can be used, and is indexed by their number
inline void audit_cluster(audit_notes& notes, vc_chain_id c,
                          const std::vector<std::uint32_t>& active) {
  const virtual_cluster& cluster = notes.cells.cluster(c);
  const physical_chain& chain = notes.cells.chain(cluster.chain());
  const quota_tree& tree = cluster.tree();
  for (level_t l = 0; l < tree.num_levels(); ++l) {
    for (const cell_id v : tree.cells(l)) {
      notes.expect(l == 0 || cluster.active(v) == active[v.value], "active", [&] {
        return notes.cell_of_tenant(c, v) + " counts " + audit_text(cluster.active(v)) +
               " leaves in use, " + audit_text(active[v.value]) + " are";
      });
    }
  }
  for (std::uint32_t n = 0; n < cluster.num_nodes(); ++n) {
    std::uint64_t mask = 0;
    for (std::uint32_t i = 0; i < cluster.range_of_node(n).leaves; ++i) {
      const cell_id v(cluster.first_leaf(n).value + i);
      const cell_id image = leaf_image(notes.cells, c, v);
      const bool bad = image.valid() && !chain.healthy().healthy(image);
      if (!bad && !leaf_taken(notes.cells, c, v)) mask |= std::uint64_t{1} << i;
    }
    const auto shown = cluster.free(n);
    const std::uint32_t in = cluster.free_nodes().class_of(node_id(n));
    notes.expect(shown == mask && in == static_cast<std::uint32_t>(std::popcount(mask)), "free",
                 [&] {
                   return "cluster " + audit_text(c.value) + " node " + audit_text(n) + ": free " +
                          audit_text(shown) + ", class " + audit_text(in) + "; by its leaves " +
                          audit_text(mask);
                 });
  }
}

// Checks a physical node.
// idle  a node has exactly its idle leaves, and is indexed by their number, by the number of leaves
//       with an opportunistic task and by whether it is granted
inline void audit_node(audit_notes& notes, std::uint32_t c, std::uint32_t node) {
  const physical_chain& chain = notes.cells.chain(c);
  std::uint64_t mask = 0;
  std::uint32_t opportunistic = 0;
  for (std::uint32_t i = 0; i < chain.node_leaves(); ++i) {
    const cell_id at(chain.first_leaf(node).value + i);
    const leaf_holders h = chain.holders(at);
    if (h.user.valid() && !h.taken()) ++opportunistic;
    if (h.idle() && chain.healthy().healthy(at)) mask |= std::uint64_t{1} << i;
  }
  const auto idle = static_cast<std::uint32_t>(std::popcount(mask));
  const level_t rack_level =
      (std::min<level_t>)(chain.node_level() + 1, chain.tree().num_levels() - 1);
  const cell_id rack = chain.tree().ancestor(chain.node_cell(node), rack_level);
  const bool granted = chain.rack_size() <= 64 && !chain.cells().cells().enclosing_free_level(rack);
  const auto should = mask == 0 ? node_index::none : chain.idle_class(granted, opportunistic, idle);
  const auto in = chain.idle_nodes().class_of(node_id(chain.from_end(node)));
  notes.expect(chain.idle(node) == mask && in == should, "idle", [&] {
    return "node " + notes.layout.chains[c].node_names[node] + ": idle " +
           audit_text(chain.idle(node)) + ", class " + audit_text(in) + "; by its leaves " +
           audit_text(mask) + ", " + audit_text(should);
  });
}

// Checks a chain; n: the leaves counted in it. Cost: O(cells of the chain * leaves of a node).
// usage          the counts of guaranteed and opportunistic leaves of a cell are right
// health         a cell has the right count of bad leaves, and is healthy if it is 0; any_bad
// opportunistic  few_opportunistic(n) has exactly the healthy cells with at most n such leaves
// buddies        the allocator's free cells are the largest without an allocated leaf, and counted
inline void audit_chain(audit_notes& notes, std::uint32_t c, const chain_counts& n) {
  const physical_chain& chain = notes.cells.chain(c);
  const uniform_tree& tree = chain.tree();
  for (level_t l = 0; l < tree.num_levels(); ++l) {
    for (const cell_id p : tree.cells(l)) {
      const cell_id above = tree.parent(p, l);
      const std::uint32_t bad = chain.healthy().bad_leaves(p);
      notes.expect(bad == n.bad[p.value] && chain.healthy().healthy(p) == (bad == 0), "health",
                   [&] {
                     return notes.cell_of_chain(c, p) + " counts " + audit_text(bad) +
                            " bad leaves of " + audit_text(n.bad[p.value]) + ", is " +
                            (chain.healthy().healthy(p) ? "healthy" : "unhealthy");
                   });
      const std::uint32_t opportunistic = chain.opportunistic_leaves(p);
      const std::uint32_t used = chain.use().used(p, physical_chain::guaranteed);
      notes.expect(opportunistic == n.opportunistic[p.value] && used == n.guaranteed[p.value],
                   "usage", [&] {
                     return notes.cell_of_chain(c, p) + " counts " + audit_text(opportunistic) +
                            " opportunistic and " + audit_text(used) + " guaranteed leaves of " +
                            audit_text(n.opportunistic[p.value]) + " and " +
                            audit_text(n.guaranteed[p.value]);
                   });
      for (std::uint32_t most = 0; most < chain.node_leaves(); ++most) {
        const bool few = n.bad[p.value] == 0 && n.opportunistic[p.value] <= most;
        notes.expect(chain.few_opportunistic(most).test(p.value) == few, "opportunistic", [&] {
          return notes.cell_of_chain(c, p) + (few ? " is listed" : " is not listed") +
                 " with at most " + audit_text(most) + " opportunistic leaves";
        });
      }
      const bool free =
          n.allocated[p.value] == 0 && (!above.valid() || n.allocated[above.value] != 0);
      notes.expect(chain.cells().cells().free_cells().test(p.value) == free, "buddies", [&] {
        return notes.cell_of_chain(c, p) + " is " + (free ? "" : "not ") +
               "free, the allocator differs";
      });
    }
  }
  const std::vector<std::uint32_t> free_cells = count_largest_free(tree, n.allocated);
  for (level_t l = 0; l < tree.num_levels(); ++l) {
    notes.expect(chain.cells().free_count(l) == free_cells[l], "buddies", [&] {
      return notes.layout.chains[c].name + " level " + audit_text(l) + ": the allocator counts " +
             audit_text(chain.cells().free_count(l)) + " free cells of " +
             audit_text(free_cells[l]);
    });
  }
  notes.expect(chain.any_bad() == (chain.healthy().usable().count() != tree.num_cells()), "health",
               [&] { return "chain " + notes.layout.chains[c].name + " has bad leaves, or none"; });
  for (std::uint32_t k = 0; k < chain.num_nodes(); ++k) audit_node(notes, c, k);
}

}  // namespace detail
APIARY_NAMESPACE_END
