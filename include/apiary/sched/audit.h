// apiary/sched/audit.h - everything that must be true of a HiveD scheduler, recomputed.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/model/uniform_tree.h>
#include <apiary/sched/gang_plan.h>
#include <apiary/sched/gang_table.h>
#include <apiary/sched/hived.h>
#include <apiary/sched/hived_cells.h>
#include <apiary/sched/hived_layout.h>
#include <apiary/sched/physical_chain.h>
#include <apiary/sched/virtual_cluster.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A rule that does not hold, and where: ids, names, counts.
struct violation {
  std::string rule{};
  std::string witness{};
};

namespace detail {

// One audit. The rules, in the order of checking:
//
//   table       a gang is found by its job, and stands once in the list of its cluster only
//   once        no leaf is used, or claimed, by two gangs, nor twice by one
//   holders     each leaf has the user and the claimer that the gangs say, and no other
//   tasks       a gang has leaves for all its tasks; a task has all its leaves, on one node, or
//               none any more (less only if the gang was recovered); a gang has a leaf
//   class       a gang has no cluster if and only if it is opportunistic or downgraded
//   own cells   a guaranteed gang has the cluster of its tenant, or of its pinned cell, and all its
//               leaves are bound there
//   preempting  a preempting gang is guaranteed; only such a gang remembers whom it downgraded
//   claims      a claimer has a higher priority than the user, and the tenant of a guaranteed one
//   bijection   a virtual cell is bound to the physical cell that is bound to it, of its level
//   shape       the cell above a bound cell is bound to the cell above its image
//   roots       the cells allocated are those that roots are bound to
//   needless    a bound cell has something in use, or is a pinned root, or is an unhealthy part of
//               a bound cell
//   hidden      every unhealthy part of a bound cell is bound
//   active      a virtual cell counts its leaves in use
//   free        a virtual node shows the leaves that can be used, and is indexed by their number
//   usage       a physical cell counts its guaranteed and its opportunistic leaves
//   health      a physical cell counts its bad leaves, and is healthy without one
//   quiet       the quiet cells are the healthy ones without guests
//   idle        a physical node shows its idle leaves, and is indexed by guests and idle leaves
//   buddies     the free cells are the largest without an allocated leaf
//   promises    promised are the unbound roots that are not pinned, and all can be kept
//   ledger      quotas are those of the layout, and in use are the bound roots
class hived_audit {
 public:
  std::vector<violation> found{};

  hived_audit(const hived_layout& layout, const hived_cells& cells, const gang_table& gangs)
      : layout_(layout), cells_(cells), gangs_(gangs), all_(gangs.by_job()) {
    check_table();
    check_holders();
    for (const gang_slot s : all_) check_gang(s);
    for (std::uint32_t c = 0; c < cells.num_clusters(); ++c) check_cluster(cluster_id(c));
    for (std::uint32_t c = 0; c < cells.num_chains(); ++c) check_chain(c);
  }

  // How many healthy cells of each level of a chain are free, parts of larger ones included.
  [[nodiscard]] static std::vector<std::uint32_t> healthy_free_cells(const physical_chain& chain) {
    const uniform_tree& tree = chain.tree();
    const cell_counts at = count(chain);
    std::vector<std::uint32_t> counts(tree.num_levels(), 0);
    for (level_t l = 0; l < tree.num_levels(); ++l) {
      for (const cell_id c : tree.cells(l))
        counts[l] += at.allocated[c.value] == 0 && at.bad[c.value] == 0 ? 1U : 0U;
    }
    return counts;
  }

 private:
  // By the value of the cell's id.
  struct cell_counts {
    std::vector<std::uint32_t> bad, opportunistic, guaranteed, allocated;  // leaves
  };

  // A sum over the leaves of every cell of a tree.
  template <class Tree, class F>
  [[nodiscard]] static std::vector<std::uint32_t> sum(const Tree& tree, F&& of_leaf) {
    std::vector<std::uint32_t> n(tree.num_cells(), 0);
    for (level_t l = 0; l < tree.num_levels(); ++l) {
      for (const cell_id c : tree.cells(l)) {
        if (l == 0) n[c.value] = of_leaf(c);
        if (const cell_id above = tree.parent(c, l); above.valid()) n[above.value] += n[c.value];
      }
    }
    return n;
  }
  [[nodiscard]] static cell_counts count(const physical_chain& chain) {
    const uniform_tree& tree = chain.tree();
    cell_counts n;
    n.bad = sum(tree, [&](cell_id c) { return chain.healthy().healthy(c) ? 0U : 1U; });
    n.opportunistic = sum(tree, [&](cell_id c) {
      return chain.holders(c).user.valid() && !chain.holders(c).taken() ? 1U : 0U;
    });
    n.guaranteed = sum(tree, [&](cell_id c) { return chain.holders(c).taken() ? 1U : 0U; });
    n.allocated.assign(tree.num_cells(), 0);
    for (level_t l = tree.num_levels(); l-- > 0;) {  // downwards: what lies in a live cell
      for (const cell_id c : tree.cells(l)) {
        const cell_id above = tree.parent(c, l);
        const bool inside = above.valid() && n.allocated[above.value] != 0;
        n.allocated[c.value] = inside || chain.cells().cells().is_live(c) ? 1U : 0U;
      }
    }
    n.allocated = sum(tree, [&](cell_id c) { return n.allocated[c.value]; });
    return n;
  }

  void report(const char* rule, std::string witness) {
    found.push_back({rule, std::move(witness)});
  }
  void expect(bool holds, const char* rule, const auto& witness) {
    if (!holds) report(rule, witness());
  }
  [[nodiscard]] static std::string text(std::uint64_t n) { return std::to_string(n); }
  [[nodiscard]] static std::string text(cell_id c) {
    return c.valid() ? text(c.value) : std::string("none");
  }
  [[nodiscard]] std::string gang(gang_slot s) const {
    if (!s.valid()) return "no gang";
    return exists(s) ? "gang " + text(gangs_[s].request.job.value)
                     : "unknown slot " + text(s.value);
  }
  [[nodiscard]] std::string leaf(std::uint32_t c, cell_id at) const {
    const physical_chain& chain = cells_.chain(c);
    const std::uint32_t node = chain.node_of(at);
    const chain_layout& in = layout_.chains[c];
    return "leaf " + text(at.value - chain.first_leaf(node).value) + " of node " +
           in.node_names[node];
  }
  [[nodiscard]] std::string cell_of_chain(std::uint32_t c, cell_id at) const {
    return layout_.chains[c].name + " cell " + text(at);
  }
  [[nodiscard]] std::string cell_of_tenant(cluster_id c, cell_id at) const {
    const std::uint32_t tenant = cells_.cluster(c).tenant().value;
    return layout_.tenants[tenant].name + " (cluster " + text(c.value) + ") cell " + text(at);
  }
  [[nodiscard]] bool exists(gang_slot s) const noexcept {
    return s.value < known_.size() && known_[s.value];
  }

  void check_table() {
    for (const gang_slot s : all_) {
      if (s.value >= known_.size()) known_.resize(std::size_t{s.value} + 1, false);
      expect(!known_[s.value], "table", [&] { return "two jobs have slot " + text(s.value); });
      known_[s.value] = true;
      expect(gangs_.find(gangs_[s].request.job) == s, "table",
             [&] { return gang(s) + " is not found by its job"; });
    }
    std::vector<std::uint32_t> listed(known_.size(), 0);
    for (std::uint32_t c = 0; c < cells_.num_clusters(); ++c) {
      for (const gang_slot s : gangs_.of_cluster(cluster_id(c))) {
        const bool right =
            exists(s) && gangs_[s].cluster == cluster_id(c) && listed[s.value]++ == 0;
        expect(right, "table", [&] { return gang(s) + " is listed in cluster " + text(c); });
      }
    }
    for (const gang_slot s : all_) {
      expect(!gangs_[s].guaranteed() || listed[s.value] == 1, "table", [&] {
        return gang(s) + " is not listed in cluster " + text(gangs_[s].cluster.value);
      });
    }
  }

  void check_holders() {
    std::vector<std::vector<leaf_holders>> expected;
    for (std::uint32_t c = 0; c < cells_.num_chains(); ++c)
      expected.emplace_back(cells_.chain(c).tree().num_leaves());
    for (const gang_slot s : all_) {
      for (const auto& [c, at] : gangs_[s].leaves) {
        if (!at.valid()) continue;
        leaf_holders& h = expected[c][cells_.chain(c).tree().index(at, 0)];
        gang_slot& holder = gangs_[s].state == gang_state::preempting ? h.claimer : h.user;
        expect(!holder.valid(), "once", [&, c = c, at = at] {
          return leaf(c, at) + ": " + gang(holder) + " and " + gang(s);
        });
        holder = s;
        if (gangs_[s].state == gang_state::allocated) h.guaranteed = gangs_[s].guaranteed();
      }
    }
    for (std::uint32_t c = 0; c < cells_.num_chains(); ++c) {
      const uniform_tree& tree = cells_.chain(c).tree();
      for (const cell_id at : tree.cells(0)) {
        const leaf_holders is = cells_.chain(c).holders(at);
        const leaf_holders should = expected[c][tree.index(at, 0)];
        expect(is == should, "holders", [&] {
          return leaf(c, at) + ": user " + gang(is.user) + (is.guaranteed ? " (guaranteed)" : "") +
                 ", claimer " + gang(is.claimer) + "; by the gangs user " + gang(should.user) +
                 (should.guaranteed ? " (guaranteed)" : "") + ", claimer " + gang(should.claimer);
        });
        check_claim(c, at, is);
      }
    }
  }
  void check_claim(std::uint32_t c, cell_id at, leaf_holders h) {
    if (!exists(h.user) || !exists(h.claimer)) return;
    const gang_record& user = gangs_[h.user];
    const gang_record& claimer = gangs_[h.claimer];
    expect(claimer.request.priority > user.effective_priority(), "claims", [&] {
      return leaf(c, at) + ": " + gang(h.claimer) + " of priority " +
             std::to_string(claimer.request.priority) + " claims it from " + gang(h.user) +
             " of priority " + std::to_string(user.effective_priority());
    });
    expect(!user.guaranteed() || user.request.tenant == claimer.request.tenant, "claims", [&] {
      return leaf(c, at) + ": " + gang(h.claimer) + " claims it from " + gang(h.user) +
             ", a guaranteed one of another tenant";
    });
  }

  void check_gang(gang_slot s) {
    const gang_record& g = gangs_[s];
    std::size_t asked = 0;
    for (const gang_member& m : g.request.members) asked += std::size_t{m.tasks} * m.leaves;
    if (g.leaves.size() != asked) {
      report("tasks",
             gang(s) + " has places for " + text(g.leaves.size()) + " leaves of " + text(asked));
      return;
    }
    bool any = g.recovered;
    std::uint32_t task = 0;
    g.for_each_task([&](const gang_member& m, std::uint32_t first, std::uint32_t last) {
      std::uint32_t n = 0;
      chain_leaf one;
      bool together = true;
      for (std::uint32_t i = first; i < last; ++i) {
        if (!g.leaves[i].leaf.valid()) continue;
        if (n++ == 0) one = g.leaves[i];
        together = together && g.leaves[i].chain == one.chain &&
                   cells_.chain(one.chain).node_of(g.leaves[i].leaf) ==
                       cells_.chain(one.chain).node_of(one.leaf);
      }
      any = any || n > 0;
      expect(together, "tasks", [&] { return gang(s) + ": task " + text(task) + " on two nodes"; });
      expect(n == 0 || n == m.leaves || g.recovered, "tasks", [&] {
        return gang(s) + ": task " + text(task) + " has " + text(n) + " leaves of " +
               text(m.leaves);
      });
      ++task;
    });
    expect(any, "tasks", [&] { return gang(s) + " has no leaf"; });
    expect(g.guaranteed() == (g.request.priority >= 0 && !g.downgraded), "class", [&] {
      return gang(s) + " of priority " + std::to_string(g.request.priority) +
             (g.downgraded ? ", downgraded, " : " ") + (g.guaranteed() ? "has" : "has no") +
             " cluster";
    });
    expect(g.state == gang_state::allocated ? g.downgraded_by.empty() : g.guaranteed(),
           "preempting", [&] { return gang(s); });
    if (g.guaranteed()) check_own_cells(s);
  }
  void check_own_cells(gang_slot s) {
    const gang_record& g = gangs_[s];
    const bool known = g.cluster.value < cells_.num_clusters();
    const std::uint32_t c = known ? cells_.cluster(g.cluster).chain() : 0;
    const bool own = known && cells_.cluster(g.cluster).tenant() == g.request.tenant &&
                     (g.request.pinned ? cells_.cluster_of_pinned(*g.request.pinned) == g.cluster
                                       : cells_.cluster_of(g.request.tenant, c) == g.cluster);
    if (!own) {
      report("own cells", gang(s) + " of tenant " + text(g.request.tenant.value) +
                              " has cells of cluster " + text(g.cluster.value));
      return;
    }
    for (const chain_leaf& l : g.leaves) {
      if (!l.leaf.valid()) continue;
      const cluster_id owner = cells_.chain(l.chain).owner(l.leaf).cluster;
      expect(l.chain == c && owner == g.cluster, "own cells", [&] {
        return gang(s) + " of cluster " + text(g.cluster.value) + ": " + leaf(l.chain, l.leaf) +
               " is bound to " + (owner.valid() ? "cluster " + text(owner.value) : "nothing");
      });
    }
  }

  void check_cluster(cluster_id c) {
    const virtual_cluster& cluster = cells_.cluster(c);
    const physical_chain& chain = cells_.chain(cluster.chain());
    const quota_tree& tree = cluster.tree();
    const auto image_of = [&](cell_id v) {  // of a leaf; whatever else it is bound to is wrong
      const cell_id image = cluster.image(v);
      return chain.tree().cells(0).contains(image) ? image : cell_id();
    };
    const auto taken = [&](cell_id v) {
      return image_of(v).valid() && chain.holders(image_of(v)).taken();
    };
    const std::vector<std::uint32_t> active =
        sum(tree, [&](cell_id v) { return taken(v) ? 1U : 0U; });
    for (level_t l = 0; l < tree.num_levels(); ++l) {
      for (const cell_id v : tree.cells(l)) {
        const cell_id image = cluster.image(v);
        expect(l == 0 || cluster.active(v) == active[v.value], "active", [&] {
          return cell_of_tenant(c, v) + " counts " + text(cluster.active(v)) + " leaves in use, " +
                 text(active[v.value]) + " are";
        });
        if (image.valid()) check_binding(c, v, l, active[v.value] > 0);
      }
    }
    for (std::uint32_t n = 0; n < cluster.num_nodes(); ++n) {
      std::uint64_t mask = 0;
      for (std::uint32_t i = 0; i < cluster.range_of_node(n).leaves; ++i) {
        const cell_id v(cluster.first_leaf(n).value + i);
        const bool bad = image_of(v).valid() && !chain.healthy().healthy(image_of(v));
        if (!taken(v) && !bad) mask |= std::uint64_t{1} << i;
      }
      const auto shown = cluster.free(n);
      const std::uint32_t in = cluster.free_nodes().class_of(node_id(n));
      expect(shown == mask && in == static_cast<std::uint32_t>(std::popcount(mask)), "free", [&] {
        return "cluster " + text(c.value) + " node " + text(n) + ": free " + text(shown) +
               ", class " + text(in) + "; by its leaves " + text(mask);
      });
    }
  }
  void check_binding(cluster_id c, cell_id v, level_t l, bool active) {
    const virtual_cluster& cluster = cells_.cluster(c);
    const physical_chain& chain = cells_.chain(cluster.chain());
    const cell_id p = cluster.image(v);
    const auto witness = [&] {
      return cell_of_tenant(c, v) + " of level " + text(l) + ", bound to " +
             cell_of_chain(cluster.chain(), p);
    };
    const bool both = p.value < chain.tree().num_cells() && chain.tree().level(p) == l &&
                      chain.owner(p) == virtual_cell{c, v};
    expect(both, "bijection", witness);
    if (!both) return;
    const cell_id above = cluster.tree().parent(v, l);
    if (above.valid()) {
      expect(cluster.image(above).valid() && cluster.image(above) == chain.tree().parent(p, l),
             "shape", witness);
    } else {
      expect(chain.cells().cells().is_live(p), "roots",
             [&] { return witness() + ", which is not allocated"; });
    }
    const bool needed =
        active || (above.valid() ? !chain.healthy().healthy(p) : cells_.is_pinned(c));
    expect(needed, "needless", witness);
  }

  void check_chain(std::uint32_t c) {
    const physical_chain& chain = cells_.chain(c);
    const uniform_tree& tree = chain.tree();
    const cell_counts n = count(chain);
    for (level_t l = 0; l < tree.num_levels(); ++l) {
      for (const cell_id p : tree.cells(l)) {
        const cell_id above = tree.parent(p, l);
        check_owner(c, p, l, n);
        const std::uint32_t bad = chain.healthy().bad_leaves(p);
        expect(bad == n.bad[p.value] && chain.healthy().healthy(p) == (bad == 0), "health", [&] {
          return cell_of_chain(c, p) + " counts " + text(bad) + " bad leaves of " +
                 text(n.bad[p.value]) + ", is " +
                 (chain.healthy().healthy(p) ? "healthy" : "unhealthy");
        });
        const std::uint32_t guests = chain.guests(p);
        const std::uint32_t used = chain.use().used(p, physical_chain::guaranteed);
        expect(guests == n.opportunistic[p.value] && used == n.guaranteed[p.value], "usage", [&] {
          return cell_of_chain(c, p) + " counts " + text(guests) + " opportunistic and " +
                 text(used) + " guaranteed leaves of " + text(n.opportunistic[p.value]) + " and " +
                 text(n.guaranteed[p.value]);
        });
        const bool quiet = n.bad[p.value] == 0 && n.opportunistic[p.value] == 0;
        expect(chain.quiet().test(p.value) == quiet, "quiet",
               [&] { return cell_of_chain(c, p) + (quiet ? " is quiet" : " is not quiet"); });
        const bool free =
            n.allocated[p.value] == 0 && (!above.valid() || n.allocated[above.value] != 0);
        expect(chain.cells().cells().free_cells().test(p.value) == free, "buddies", [&] {
          return cell_of_chain(c, p) + " is " + (free ? "" : "not ") +
                 "free, the allocator differs";
        });
      }
    }
    expect(chain.any_bad() == (chain.healthy().usable().count() != tree.num_cells()), "health",
           [&] { return "chain " + layout_.chains[c].name + " has bad leaves, or none"; });
    for (std::uint32_t k = 0; k < chain.num_nodes(); ++k) check_node(c, k);
    check_promises(c);
  }
  void check_owner(std::uint32_t c, cell_id p, level_t l, const cell_counts& n) {
    const physical_chain& chain = cells_.chain(c);
    const virtual_cell owner = chain.owner(p);
    const cell_id above = chain.tree().parent(p, l);
    if (owner.cell.valid()) {
      const bool both = owner.cluster.value < cells_.num_clusters() &&
                        cells_.cluster(owner.cluster).chain() == c &&
                        owner.cell.value < cells_.cluster(owner.cluster).tree().num_cells() &&
                        cells_.cluster(owner.cluster).image(owner.cell) == p;
      expect(both, "bijection", [&] {
        return cell_of_chain(c, p) + " names cluster " + text(owner.cluster.value) + " cell " +
               text(owner.cell) + ", which is not bound to it";
      });
      if (both && chain.cells().cells().is_live(p)) {
        expect(!cells_.cluster(owner.cluster).tree().parent(owner.cell, l).valid(), "roots",
               [&] { return cell_of_chain(c, p) + " is allocated for a part"; });
      }
      return;
    }
    expect(!chain.cells().cells().is_live(p), "roots",
           [&] { return cell_of_chain(c, p) + " is allocated and bound to nothing"; });
    expect(l != 0 || !chain.holders(p).taken(), "own cells",
           [&] { return leaf(c, p) + " is taken and bound to nothing"; });
    expect(!above.valid() || !chain.owner(above).cell.valid() || n.bad[p.value] == 0, "hidden",
           [&] { return cell_of_chain(c, p) + " is unhealthy and not bound, the cell above is"; });
  }
  void check_node(std::uint32_t c, std::uint32_t node) {
    const physical_chain& chain = cells_.chain(c);
    std::uint64_t mask = 0;
    std::uint32_t guests = 0;
    for (std::uint32_t i = 0; i < chain.node_leaves(); ++i) {
      const cell_id at(chain.first_leaf(node).value + i);
      const leaf_holders h = chain.holders(at);
      if (h.user.valid() && !h.taken()) ++guests;
      if (h.idle() && chain.healthy().healthy(at)) mask |= std::uint64_t{1} << i;
    }
    const auto idle = static_cast<std::uint32_t>(std::popcount(mask));
    const auto should = mask == 0 ? node_index::none : chain.guest_class(guests, idle);
    const auto in = chain.guest_nodes().class_of(node_id(chain.from_end(node)));
    expect(chain.idle(node) == mask && in == should, "idle", [&] {
      return "node " + layout_.chains[c].node_names[node] + ": idle " + text(chain.idle(node)) +
             ", class " + text(in) + "; by its leaves " + text(mask) + ", " + text(should);
    });
  }
  void check_promises(std::uint32_t c) {
    const physical_chain& chain = cells_.chain(c);
    const level_t levels = chain.tree().num_levels();
    std::vector<std::uint32_t> unbound(levels, 0);
    for (std::uint32_t t = 0; t < layout_.tenants.size(); ++t) {
      const cluster_id of = cells_.cluster_of(tenant_id(t), c);
      for (level_t l = 0; l < levels; ++l) {
        const std::uint32_t quota = layout_.tenants[t].quota[c][l];
        std::uint32_t bound = 0;
        if (of.valid()) {
          for (const cell_id root : cells_.cluster(of).tree().roots(l))
            bound += cells_.cluster(of).image(root).valid() ? 1U : 0U;
        }
        unbound[l] += quota - bound;
        const quota_ledger& ledger = cells_.ledger(c);
        expect(ledger.quota(tenant_id(t), l) == quota && ledger.allocated(tenant_id(t), l) == bound,
               "ledger", [&] {
                 return layout_.tenants[t].name + " in " + layout_.chains[c].name + " level " +
                        text(l) + ": " + text(ledger.allocated(tenant_id(t), l)) + " of " +
                        text(ledger.quota(tenant_id(t), l)) + " in use; bound are " + text(bound) +
                        " of " + text(quota);
               });
      }
    }
    for (level_t l = 0; l < levels; ++l) {
      expect(chain.cells().promised(l) == unbound[l], "promises", [&] {
        return layout_.chains[c].name + " level " + text(l) + ": " +
               text(chain.cells().promised(l)) + " are promised, " + text(unbound[l]) +
               " cells are unbound";
      });
      expect(cells_.ledger(c).total_remaining()[l] == unbound[l], "ledger", [&] {
        return layout_.chains[c].name + " level " + text(l) + ": the total is " +
               text(cells_.ledger(c).total_remaining()[l]) + " for " + text(unbound[l]);
      });
    }
    expect(chain.cells().invariant_holds(), "promises",
           [&] { return layout_.chains[c].name + ": not all can be kept"; });
  }

  const hived_layout& layout_;
  const hived_cells& cells_;
  const gang_table& gangs_;
  std::vector<gang_slot> all_;
  std::vector<bool> known_{};  // slots that are a gang's
};

}  // namespace detail

// Which rules do not hold of the cells and gangs of a scheduler; empty: all do. The rules are those
// of detail::hived_audit, each recomputed from leaves, bindings and gangs.
//
// Cost: O(cells + leaves of the gangs), and O(gangs log gangs).
[[nodiscard]] inline std::vector<violation> audit(const hived_layout& layout,
                                                  const hived_cells& cells,
                                                  const gang_table& gangs) {
  return std::move(detail::hived_audit(layout, cells, gangs).found);
}

// And of the scheduler itself:
//
//   doomed      as many of a tenant's unbound cells as outnumber the healthy free cells of a level
//
// Cost: as above, and O(tenants * cells).
[[nodiscard]] inline std::vector<violation> audit(const hived& scheduler) {
  const hived_layout& layout = scheduler.layout();
  const hived_cells& cells = scheduler.cells();
  std::vector<violation> found = audit(layout, cells, scheduler.gangs());
  for (std::uint32_t c = 0; c < cells.num_chains(); ++c) {
    const std::vector<std::uint32_t> healthy =
        detail::hived_audit::healthy_free_cells(cells.chain(c));
    for (std::uint32_t t = 0; t < layout.tenants.size(); ++t) {
      const cluster_id of = cells.cluster_of(tenant_id(t), c);
      for (level_t l = 0; of.valid() && l < cells.chain(c).tree().num_levels(); ++l) {
        std::uint32_t unbound = 0;
        for (const cell_id root : cells.cluster(of).tree().roots(l))
          unbound += cells.cluster(of).image(root).valid() ? 0U : 1U;
        const std::uint32_t doomed = unbound > healthy[l] ? unbound - healthy[l] : 0;
        const std::uint32_t counted = scheduler.doomed(tenant_id(t), chain_id(c), l);
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
