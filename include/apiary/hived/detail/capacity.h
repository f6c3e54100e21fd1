// apiary/hived/detail/capacity.h - the leaves of a chain that a gang may use.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/topology/health.h>
#include <apiary/topology/ragged_tree.h>

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Calls f(leaf) for each bad leaf of a chain.
template <class F>
void for_each_bad_leaf(const physical_chain& chain, const F& f) {
  if (!chain.any_bad()) return;
  for (const cell_id top : chain.tree().cells(chain.tree().num_levels() - 1))
    chain.healthy().for_each_bad_leaf(top, f);
}

// Counts for each node of a cluster the leaves, healthy or bad, that no gang of the same or a
// higher priority uses or has claimed. `restarted` is the gang itself; its claims count as free.
// Cost: O(nodes and gangs of the tenant + leaves of its gangs of lower priority + bad leaves).
inline void count_free(const hived_cells& cells, const gang_table& gangs,
                       const gang_request& request, vc_chain_id c,
                       std::optional<gang_slot> restarted, lean_vector<std::uint32_t>& free) {
  const virtual_cluster& cluster = cells.cluster(c);
  const physical_chain& chain = cells.chain(cluster.chain());
  const auto holder_of = [&](cell_id leaf) {
    leaf_holders h = chain.holders(leaf);
    if (h.claimer == restarted) h.claimer = gang_slot();
    return h.holder();
  };
  free.resize(cluster.num_nodes());
  for (std::uint32_t n = 0; n < free.size(); ++n)
    free[n] = static_cast<std::uint32_t>(std::popcount(cluster.free(n)));
  for_each_bad_leaf(chain, [&](cell_id leaf) {
    if (chain.owner(leaf).cluster != c) return;
    const gang_slot holder = holder_of(leaf);
    if (!holder.valid() || gangs[holder].request.priority < request.priority)
      ++free[cluster.node_of(chain.owner(leaf).cell)];
  });
  for (const auto& [g, slot] : gangs.of_cluster(c)) {
    if (g.runs && g.priority >= request.priority) break;
    if (slot != restarted && g.priority >= request.priority) continue;
    for (const chain_leaf l : gangs[slot].leaves) {
      if (!l.leaf.valid() || !chain.healthy().healthy(l.leaf)) continue;
      const gang_slot holder = holder_of(l.leaf);
      if (holder == slot || (slot == restarted && !holder.valid()))
        ++free[cluster.node_of(chain.owner(l.leaf).cell)];
    }
  }
}
// Counts for each node of a chain the leaves, healthy or bad, that no gang uses or has claimed: an
// opportunistic gang may get them. Cost: O(nodes + bad leaves).
inline void count_free(const physical_chain& chain, lean_vector<std::uint32_t>& free) {
  free.resize(chain.num_nodes());
  for (std::uint32_t n = 0; n < free.size(); ++n)
    free[n] = static_cast<std::uint32_t>(std::popcount(chain.idle(n)));
  for_each_bad_leaf(chain, [&](cell_id leaf) {
    if (chain.holders(leaf).idle()) ++free[chain.node_of(leaf)];
  });
}
// A chain in which a gang does not fit, and what counts there.
struct refused_chain {
  std::uint32_t chain = 0;
  vc_chain_id cluster{};                   // of the tenant; not valid: the gang is opportunistic
  wait_reason reason = wait_reason::busy;  // never: all leaves count; else those it may get
  std::optional<gang_slot> restarted{};    // the gang itself, if it is preempting
};
// Counts the leaves of each node by refused_chain::reason. Cost: as count_free; `never` O(nodes).
inline void count_leaves(const hived_cells& cells, const gang_table& gangs,
                         const gang_request& request, const refused_chain& at,
                         lean_vector<std::uint32_t>& free) {
  const physical_chain& chain = cells.chain(at.chain);
  if (at.reason != wait_reason::never) {
    if (at.cluster.valid())
      return count_free(cells, gangs, request, at.cluster, at.restarted, free);
    return count_free(chain, free);
  }
  free.clear();
  if (!at.cluster.valid()) return free.resize(chain.num_nodes(), chain.node_leaves());
  for (const virtual_cluster::node_range& r : cells.cluster(at.cluster).node_ranges())
    free.append(r.nodes, r.leaves);
}

// The capacity that an infeasibility proof counts: the cells of a chain that a gang may use, and
// the leaves of each node that are free for it.
struct gang_capacity {
  ragged_tree tree;
  level_t node_level = 0;
  std::vector<std::uint32_t> free{};
};

// The virtual cells of a tenant as a tree whose roots are all at the highest level: a smaller whole
// cell is alone in one tree cell at each higher level. Nodes are numbered as in the cluster.
[[nodiscard]] inline ragged_tree tree_of(const virtual_cluster& cluster) {
  const quota_tree& cells = cluster.tree();
  const level_t levels = cells.num_levels();
  std::vector<std::vector<std::uint32_t>> fan_outs(levels);
  std::uint32_t alone = 0;
  for (level_t l = 0; l + 1 < levels; ++l) {
    alone += cells.roots(l).size();
    std::vector<std::uint32_t>& of_level = fan_outs[levels - 1 - l];
    of_level.assign(cells.cells(l + 1).size(),
                    cells.leaves_per_cell(l + 1) / cells.leaves_per_cell(l));
    of_level.insert(of_level.end(), alone, 1);
  }
  fan_outs[0] = {cells.cells(levels - 1).size() + alone};
  return ragged_tree(fan_outs);
}
// The physical cells of a chain as a tree.
[[nodiscard]] inline ragged_tree tree_of(const physical_chain& chain) {
  const level_t levels = chain.tree().num_levels();
  std::vector<std::vector<std::uint32_t>> fan_outs(levels);
  fan_outs[0] = {chain.tree().cells(levels - 1).size()};
  for (level_t l = 1; l < levels; ++l)
    fan_outs[levels - l].assign(chain.tree().cells(l).size(), chain.tree().fan_out(l));
  return ragged_tree(fan_outs);
}

// The capacity for proof_check. Cost: O(cells of the tenant, or of the chain), and as count_leaves.
[[nodiscard]] inline gang_capacity capacity_of(const hived_cells& cells, const gang_table& gangs,
                                               const gang_request& request,
                                               const refused_chain& at) {
  const physical_chain& chain = cells.chain(at.chain);
  gang_capacity capacities{at.cluster.valid() ? tree_of(cells.cluster(at.cluster)) : tree_of(chain),
                           chain.node_level()};
  lean_vector<std::uint32_t> free;
  count_leaves(cells, gangs, request, at, free);
  capacities.free.assign(free.begin(), free.end());
  return capacities;
}

}  // namespace detail
APIARY_NAMESPACE_END
