// apiary/tests/support/hived_audit.h - recomputes every invariant of a HiveD scheduler, one by one.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/quota_ledger.h>
#include <apiary/core/ids.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/layout.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// The oracle for apiary::audit, which compares a scheduler with one that is restored from its
// snapshot: this one counts leaves, bindings and gangs again, by other code.
namespace apiary_test::afresh {

using namespace apiary;          // NOLINT(google-build-using-namespace)
using namespace apiary::detail;  // NOLINT(google-build-using-namespace)

// A number or an id as text.
[[nodiscard]] inline std::string audit_text(std::uint64_t n) { return std::to_string(n); }
[[nodiscard]] inline std::string audit_text(cell_id c) {
  return c.valid() ? audit_text(c.value) : std::string("none");
}

// The state that is audited, texts for its cells and gangs, and the violations found. Requires:
// layout, cells and gangs outlive it and do not change. Cost: O(gangs log gangs) to construct.
struct audit_notes {
  const hived_layout& layout;
  const hived_cells& cells;
  const gang_table& gangs;
  std::vector<gang_slot> all;  // by job
  std::vector<bool> known{};   // whether a slot has a gang
  std::vector<violation> found{};

  audit_notes(const hived_layout& in, const hived_cells& of, const gang_table& by)
      : layout(in), cells(of), gangs(by), all(by.by_job()) {
    for (const gang_slot s : all) {
      if (s.value >= known.size()) known.resize(std::size_t{s.value} + 1, false);
      known[s.value] = true;
    }
  }

  void report(const char* invariant, std::string witness) {
    found.push_back({invariant, std::move(witness)});
  }
  // Reports the invariant with the text of witness() (ids, names and counts), unless it holds.
  void expect(bool holds, const char* invariant, const auto& witness) {
    if (!holds) report(invariant, witness());
  }

  [[nodiscard]] bool exists(gang_slot s) const noexcept {
    return s.value < known.size() && known[s.value];
  }
  // The text of a gang, of a leaf of a chain, and of a cell of a chain or of a virtual cluster.
  [[nodiscard]] std::string gang(gang_slot s) const {
    if (!s.valid()) return "no gang";
    return exists(s) ? "gang " + audit_text(gangs[s].request.job.value)
                     : "unknown slot " + audit_text(s.value);
  }
  [[nodiscard]] std::string leaf(std::uint32_t c, cell_id at) const {
    const physical_chain& chain = cells.chain(c);
    const std::uint32_t node = chain.node_of(at);
    return "leaf " + audit_text(at.value - chain.first_leaf(node).value) + " of node " +
           layout.chains[c].node_names[node];
  }
  [[nodiscard]] std::string cell_of_chain(std::uint32_t c, cell_id at) const {
    return layout.chains[c].name + " cell " + audit_text(at);
  }
  [[nodiscard]] std::string cell_of_tenant(vc_chain_id c, cell_id at) const {
    const std::uint32_t tenant = cells.cluster(c).tenant().value;
    return layout.tenants[tenant].name + " (cluster " + audit_text(c.value) + ") cell " +
           audit_text(at);
  }
};

// The sum of of_leaf(leaf) over the leaves of every cell of a tree, by cell id. Cost: O(cells).
template <class Tree, class F>
[[nodiscard]] std::vector<std::uint32_t> sum_of_leaves(const Tree& tree, F&& of_leaf) {
  std::vector<std::uint32_t> n(tree.num_cells(), 0);
  for (level_t l = 0; l < tree.num_levels(); ++l) {
    for (const cell_id c : tree.cells(l)) {
      if (l == 0) n[c.value] = of_leaf(c);
      if (const cell_id above = tree.parent(c, l); above.valid()) n[above.value] += n[c.value];
    }
  }
  return n;
}

// For each physical cell of a chain, by id: its leaves that are bad, opportunistic, ...
struct chain_counts {
  std::vector<std::uint32_t> bad, opportunistic, guaranteed, allocated;
};

// For every cell, by id, the number of its leaves that lie in allocated cells. Cost: O(cells).
[[nodiscard]] inline std::vector<std::uint32_t> count_allocated(const physical_chain& chain) {
  const uniform_tree& tree = chain.tree();
  std::vector<std::uint32_t> inside(tree.num_cells(), 0);
  for (level_t l = tree.num_levels(); l-- > 0;) {
    for (const cell_id c : tree.cells(l)) {
      const cell_id above = tree.parent(c, l);
      const bool in_live = above.valid() && inside[above.value] != 0;
      inside[c.value] = in_live || chain.cells().cells().is_live(c) ? 1U : 0U;
    }
  }
  return sum_of_leaves(tree, [&](cell_id c) { return inside[c.value]; });
}

// For each level the number of cells without an allocated leaf that do not lie in a larger such
// cell; allocated: the result of count_allocated. Cost: O(cells).
[[nodiscard]] inline std::vector<std::uint32_t> count_largest_free(
    const uniform_tree& tree, const std::vector<std::uint32_t>& allocated) {
  std::vector<std::uint32_t> counts(tree.num_levels(), 0);
  for (level_t l = 0; l < tree.num_levels(); ++l) {
    for (const cell_id c : tree.cells(l)) {
      const cell_id above = tree.parent(c, l);
      const bool largest = !above.valid() || allocated[above.value] != 0;
      counts[l] += allocated[c.value] == 0 && largest ? 1U : 0U;
    }
  }
  return counts;
}

// Counts leaves by their holders, their health, and the allocated cells. Cost: O(cells).
[[nodiscard]] inline chain_counts count_leaves(const physical_chain& chain) {
  const uniform_tree& tree = chain.tree();
  chain_counts n;
  n.bad = sum_of_leaves(tree, [&](cell_id c) { return chain.healthy().healthy(c) ? 0U : 1U; });
  n.opportunistic = sum_of_leaves(tree, [&](cell_id c) {
    return chain.holders(c).user.valid() && !chain.holders(c).taken() ? 1U : 0U;
  });
  n.guaranteed = sum_of_leaves(tree, [&](cell_id c) { return chain.holders(c).taken() ? 1U : 0U; });
  n.allocated = count_allocated(chain);
  return n;
}

// For each level the number of healthy free cells, also those in larger free cells. Cost: O(cells).
[[nodiscard]] inline std::vector<std::uint32_t> count_healthy_free(const physical_chain& chain) {
  const uniform_tree& tree = chain.tree();
  const chain_counts n = count_leaves(chain);
  std::vector<std::uint32_t> counts(tree.num_levels(), 0);
  for (level_t l = 0; l < tree.num_levels(); ++l) {
    for (const cell_id c : tree.cells(l))
      counts[l] += n.allocated[c.value] == 0 && n.bad[c.value] == 0 ? 1U : 0U;
  }
  return counts;
}

// The physical leaf that a virtual leaf is bound to; not valid if there is none.
[[nodiscard]] inline cell_id leaf_image(const hived_cells& cells, vc_chain_id c, cell_id leaf) {
  const virtual_cluster& cluster = cells.cluster(c);
  const cell_id image = cluster.image(leaf);
  return cells.chain(cluster.chain()).tree().cells(0).contains(image) ? image : cell_id();
}

// Whether the physical leaf that a virtual leaf is bound to is taken.
[[nodiscard]] inline bool leaf_taken(const hived_cells& cells, vc_chain_id c, cell_id leaf) {
  const cell_id image = leaf_image(cells, c, leaf);
  return image.valid() && cells.chain(cells.cluster(c).chain()).holders(image).taken();
}

// For every cell of a virtual cluster, by id, the number of its taken leaves. Cost: O(cells).
[[nodiscard]] inline std::vector<std::uint32_t> count_active(const hived_cells& cells,
                                                             vc_chain_id c) {
  return sum_of_leaves(cells.cluster(c).tree(),
                       [&](cell_id leaf) { return leaf_taken(cells, c, leaf) ? 1U : 0U; });
}

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

// table  a gang is found by its job, and only the list of its virtual cluster has it, once
inline void audit_table(audit_notes& notes) {
  std::vector<bool> seen(notes.known.size(), false);
  for (const gang_slot s : notes.all) {
    notes.expect(!seen[s.value], "table",
                 [&] { return "two jobs have slot " + audit_text(s.value); });
    seen[s.value] = true;
    notes.expect(notes.gangs.find(notes.gangs[s].request.job) == s, "table",
                 [&] { return notes.gang(s) + " is not found by its job"; });
  }
  std::vector<std::uint32_t> listed(notes.known.size(), 0);
  for (std::uint32_t c = 0; c < notes.cells.num_clusters(); ++c) {
    for (const auto& [rank, slot] : notes.gangs.of_cluster(vc_chain_id(c))) {
      const gang_slot s = slot;
      const bool right = notes.exists(s) && notes.gangs[s].cluster == vc_chain_id(c) &&
                         rank == gang_table::rank_of(notes.gangs[s]) && listed[s.value]++ == 0;
      notes.expect(right, "table",
                   [&] { return notes.gang(s) + " is listed in cluster " + audit_text(c); });
    }
  }
  for (const gang_slot s : notes.all) {
    notes.expect(!notes.gangs[s].guaranteed() || listed[s.value] == 1, "table", [&] {
      return notes.gang(s) + " is not listed in cluster " +
             audit_text(notes.gangs[s].cluster.value);
    });
  }
}

// claims  the claimer has a higher priority than the user; same tenant if the user is guaranteed
inline void audit_claim(audit_notes& notes, std::uint32_t c, cell_id at, leaf_holders h) {
  if (!notes.exists(h.user) || !notes.exists(h.claimer)) return;
  const gang_record& user = notes.gangs[h.user];
  const gang_record& claimer = notes.gangs[h.claimer];
  notes.expect(claimer.request.priority > user.effective_priority(), "claims", [&] {
    return notes.leaf(c, at) + ": " + notes.gang(h.claimer) + " of priority " +
           std::to_string(claimer.request.priority) + " claims it from " + notes.gang(h.user) +
           " of priority " + std::to_string(user.effective_priority());
  });
  notes.expect(!user.guaranteed() || user.request.tenant == claimer.request.tenant, "claims", [&] {
    return notes.leaf(c, at) + ": " + notes.gang(h.claimer) + " claims it from " +
           notes.gang(h.user) + ", a guaranteed one of another tenant";
  });
}

// once     no two gangs use the same leaf or claim the same leaf, and no gang has a leaf twice
// holders  each leaf has the user and the claimer that the gangs name, and no other
inline void audit_holders(audit_notes& notes) {
  std::vector<std::vector<leaf_holders>> expected;
  for (std::uint32_t c = 0; c < notes.cells.num_chains(); ++c)
    expected.emplace_back(notes.cells.chain(c).tree().num_leaves());
  for (const gang_slot s : notes.all) {
    for (const auto& [c, at] : notes.gangs[s].leaves) {
      if (!at.valid()) continue;
      leaf_holders& h = expected[c][notes.cells.chain(c).tree().index(at, 0)];
      gang_slot& holder = notes.gangs[s].state == gang_state::preempting ? h.claimer : h.user;
      notes.expect(!holder.valid(), "once", [&, c = c, at = at] {
        return notes.leaf(c, at) + ": " + notes.gang(holder) + " and " + notes.gang(s);
      });
      holder = s;
      if (notes.gangs[s].state == gang_state::allocated) h.guaranteed = notes.gangs[s].guaranteed();
    }
  }
  for (std::uint32_t c = 0; c < notes.cells.num_chains(); ++c) {
    const uniform_tree& tree = notes.cells.chain(c).tree();
    for (const cell_id at : tree.cells(0)) {
      const leaf_holders is = notes.cells.chain(c).holders(at);
      const leaf_holders should = expected[c][tree.index(at, 0)];
      notes.expect(is == should, "holders", [&] {
        return notes.leaf(c, at) + ": user " + notes.gang(is.user) +
               (is.guaranteed ? " (guaranteed)" : "") + ", claimer " + notes.gang(is.claimer) +
               "; by the gangs user " + notes.gang(should.user) +
               (should.guaranteed ? " (guaranteed)" : "") + ", claimer " +
               notes.gang(should.claimer);
      });
      audit_claim(notes, c, at, is);
    }
  }
}

// own cells  a guaranteed gang has only leaves in the virtual cluster of its tenant or pinned cell
inline void audit_own_cells(audit_notes& notes, gang_slot s) {
  const gang_record& g = notes.gangs[s];
  const bool known = g.cluster.value < notes.cells.num_clusters();
  const std::uint32_t c = known ? notes.cells.cluster(g.cluster).chain() : 0;
  const bool own = known && notes.cells.cluster(g.cluster).tenant() == g.request.tenant &&
                   (g.request.pinned ? notes.cells.cluster_of_pinned(*g.request.pinned) == g.cluster
                                     : notes.cells.cluster_of(g.request.tenant, c) == g.cluster);
  if (!own) {
    notes.report("own cells", notes.gang(s) + " of tenant " + audit_text(g.request.tenant.value) +
                                  " has cells of cluster " + audit_text(g.cluster.value));
    return;
  }
  for (const chain_leaf& l : g.leaves) {
    if (!l.leaf.valid()) continue;
    const vc_chain_id owner = notes.cells.chain(l.chain).owner(l.leaf).cluster;
    notes.expect(l.chain == c && owner == g.cluster, "own cells", [&] {
      return notes.gang(s) + " of cluster " + audit_text(g.cluster.value) + ": " +
             notes.leaf(l.chain, l.leaf) + " is bound to " +
             (owner.valid() ? "cluster " + audit_text(owner.value) : "nothing");
    });
  }
}

// Whether a gang that must end for another one runs downgraded, and the other gang is preempting
// and lists it in downgraded_victims.
[[nodiscard]] inline bool is_listed_by_preemptor(const audit_notes& notes, const gang_record& g) {
  if (g.state != gang_state::allocated || !g.downgraded || !notes.exists(g.ends_for)) return false;
  const gang_record& by = notes.gangs[g.ends_for];
  const std::vector<job_id>& jobs = by.downgraded_victims;
  return by.state == gang_state::preempting &&
         std::find(jobs.begin(), jobs.end(), g.request.job) != jobs.end();
}

// Whether the configuration has this leaf.
[[nodiscard]] inline bool has_device(const hived_layout& layout,
                                     const gang_record::missing_leaf& m) {
  const auto first = layout.find_node(m.node);
  if (!first) return false;
  node_id n = *first;
  do {
    if (layout.find_position(n, m.device)) return true;
    n = layout.next_of_host(n);
  } while (n != *first);
  return false;
}

// missing  a missing leaf is not in the configuration, and its index is that of a leaf that is not
//          valid; the indices ascend, each occurs once
inline void audit_missing(audit_notes& notes, gang_slot s) {
  const gang_record& g = notes.gangs[s];
  std::size_t next = 0;
  for (const gang_record::missing_leaf& m : g.missing) {
    const bool in_place =
        m.index >= next && m.index < g.leaves.size() && !g.leaves[m.index].leaf.valid();
    notes.expect(in_place && !has_device(notes.layout, m), "missing", [&] {
      return notes.gang(s) + ": missing leaf " + audit_text(m.index) + " is device " +
             audit_text(m.device) + " of node " + m.node;
    });
    next = std::size_t{m.index} + 1;
  }
}

// type  a gang that was neither recovered nor moved is on leaves of the type that it asks for
inline void audit_type(audit_notes& notes, gang_slot s) {
  const gang_record& g = notes.gangs[s];
  if (!g.request.leaf_type.valid() || g.recovered || g.moved) return;
  std::vector<std::string> types;  // by id: in the order of the chains
  std::vector<std::size_t> of_chain;
  for (const chain_layout& chain : notes.layout.chains) {
    const auto known = std::find(types.begin(), types.end(), chain.level_types[0]);
    of_chain.push_back(static_cast<std::size_t>(known - types.begin()));
    if (known == types.end()) types.push_back(chain.level_types[0]);
  }
  for (const chain_leaf& l : g.leaves) {
    notes.expect(!l.leaf.valid() || of_chain[l.chain] == g.request.leaf_type.value, "type", [&] {
      return notes.gang(s) + ": " + notes.leaf(l.chain, l.leaf) + " is of type " +
             types[of_chain[l.chain]];
    });
  }
}

// Checks one gang, with all checks above that concern one gang.
// tasks       a gang has a leaf. All leaves of a task are on one node. A task has all its leaves,
//             missing ones included, or none if it has ended; in a recovered gang it may have fewer
// class       a gang has no virtual cluster if and only if it is opportunistic or downgraded. No
//             gang is both
// levels      only a downgraded gang has lost levels: one for each leaf, or none
// preempting  a preempting gang is guaranteed; only a preempting gang has downgraded victims, by
//             ascending job
// ending      is_listed_by_preemptor holds for each gang that must end for another gang
inline void audit_gang(audit_notes& notes, gang_slot s) {
  const gang_record& g = notes.gangs[s];
  std::size_t asked = 0;
  for (const task_group& m : g.request.groups) asked += std::size_t{m.tasks} * m.gpus;
  if (g.leaves.size() != asked) {
    notes.report("tasks", notes.gang(s) + " lists " + audit_text(g.leaves.size()) +
                              " leaves; its tasks have " + audit_text(asked));
    return;
  }
  bool any = !g.missing.empty();
  std::vector<bool> named(g.leaves.size(), false);  // whether a missing leaf has this index
  for (const gang_record::missing_leaf& m : g.missing)
    if (m.index < named.size()) named[m.index] = true;
  std::uint32_t task = 0;
  g.for_each_task([&](const task_group& m, std::uint32_t first, std::uint32_t last) {
    std::uint32_t n = 0;
    chain_leaf one;
    bool together = true;
    for (std::uint32_t i = first; i < last; ++i) {
      if (!g.leaves[i].leaf.valid()) continue;
      if (n++ == 0) one = g.leaves[i];
      together = together && g.leaves[i].chain == one.chain &&
                 notes.cells.chain(one.chain).node_of(g.leaves[i].leaf) ==
                     notes.cells.chain(one.chain).node_of(one.leaf);
    }
    any = any || n > 0;
    for (std::uint32_t i = first; i < last; ++i) n += named[i] ? 1U : 0U;
    notes.expect(together, "tasks",
                 [&] { return notes.gang(s) + ": task " + audit_text(task) + " on two nodes"; });
    notes.expect(n == 0 || n == m.gpus || g.recovered, "tasks", [&] {
      return notes.gang(s) + ": task " + audit_text(task) + " has " + audit_text(n) +
             " leaves of " + audit_text(m.gpus);
    });
    ++task;
  });
  notes.expect(any, "tasks", [&] { return notes.gang(s) + " has no leaf"; });
  audit_missing(notes, s);
  audit_type(notes, s);
  const bool opportunistic = g.request.priority < 0;
  notes.expect(g.guaranteed() ? !opportunistic && !g.downgraded : opportunistic != g.downgraded,
               "class", [&] {
                 return notes.gang(s) + " of priority " + std::to_string(g.request.priority) +
                        (g.downgraded ? ", downgraded, " : " ") +
                        (g.guaranteed() ? "has" : "has no") + " cluster";
               });
  notes.expect(g.state == gang_state::allocated ? g.downgraded_victims.empty() : g.guaranteed(),
               "preempting", [&] { return notes.gang(s); });
  const std::vector<job_id>& jobs = g.downgraded_victims;
  const auto falling = [](job_id a, job_id b) { return a >= b; };
  notes.expect(std::adjacent_find(jobs.begin(), jobs.end(), falling) == jobs.end(), "preempting",
               [&] { return notes.gang(s) + ": its downgraded victims do not ascend"; });
  const std::size_t levels = g.lost_levels.size();
  notes.expect(levels == 0 || (g.downgraded && levels == asked), "levels", [&] {
    return notes.gang(s) + (g.downgraded ? ", downgraded, has " : " has ") + audit_text(levels) +
           " lost levels and " + audit_text(asked) + " leaves";
  });
  notes.expect(!g.ends_for.valid() || is_listed_by_preemptor(notes, g), "ending",
               [&] { return notes.gang(s) + " must end for " + notes.gang(g.ends_for); });
  if (g.guaranteed()) audit_own_cells(notes, s);
}

// Checks all gangs. Cost: O(leaves of the chains and of the gangs * levels).
inline void audit_gangs(audit_notes& notes) {
  audit_table(notes);
  audit_holders(notes);
  for (const gang_slot s : notes.all) audit_gang(notes, s);
}

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

// Checks every invariant of these cells and gangs; returns those that do not hold.
[[nodiscard]] inline std::vector<violation> audit_afresh(const hived_layout& layout,
                                                         const hived_cells& cells,
                                                         const gang_table& gangs) {
  audit_notes notes(layout, cells, gangs);
  audit_gangs(notes);
  for (std::uint32_t i = 0; i < cells.num_clusters(); ++i)
    audit_virtual_cells(notes, vc_chain_id(i));
  for (std::uint32_t c = 0; c < cells.num_chains(); ++c) audit_physical_cells(notes, c);
  return std::move(notes.found);
}

// The same for a scheduler; recounts the doomed cells, too.
[[nodiscard]] inline std::vector<violation> audit_afresh(const hived& scheduler) {
  const hived_layout& layout = scheduler.layout();
  const hived_cells& cells = scheduler.cells();
  std::vector<violation> found = audit_afresh(layout, cells, scheduler.gangs());
  for (std::uint32_t c = 0; c < cells.num_chains(); ++c) {
    const std::vector<std::uint32_t> healthy = count_healthy_free(cells.chain(c));
    for (std::uint32_t t = 0; t < layout.tenants.size(); ++t) {
      const vc_chain_id of = cells.cluster_of(tenant_id(t), c);
      for (level_t l = 0; of.valid() && l < cells.chain(c).tree().num_levels(); ++l) {
        const virtual_cluster& cluster = cells.cluster(of);
        const std::uint32_t unbound = cluster.tree().roots(l).size() - bound_roots(cluster, l);
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

}  // namespace apiary_test::afresh
