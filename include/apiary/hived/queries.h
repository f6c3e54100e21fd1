// apiary/hived/queries.h - what tenants and cells are used for, what a waiting gang may use.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/hived/chain_layout.h>
#include <apiary/hived/detail/capacity.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/request.h>
#include <apiary/model/request.h>
#include <apiary/topology/tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Leaves and gangs of a tenant, over all chains.
struct tenant_usage {
  std::uint64_t owned = 0;          // leaves of its cells, pinned ones included
  std::uint64_t guaranteed = 0;     // used as cells of its own
  std::uint64_t opportunistic = 0;  // used beside them
  std::uint64_t claimed = 0;        // of its cells, to be used once their users have ended
  std::uint32_t running = 0;        // gangs
  std::uint32_t preempting = 0;     // gangs
  std::uint32_t downgraded = 0;     // of those running: gangs that lost the tenant's cells
  friend bool operator==(const tenant_usage&, const tenant_usage&) = default;
};

// kNotFound: no such tenant. Cost: O(clusters, leaves of all gangs), and a sort of the gangs.
[[nodiscard]] inline absl::StatusOr<tenant_usage> usage_of(const hived& scheduler,
                                                           tenant_id tenant) {
  APIARY_RETURN_IF_ERROR(scheduler.catalog().exists(tenant));
  tenant_usage usage;
  const detail::hived_cells& cells = scheduler.cells();
  for (std::uint32_t c = 0; c < cells.num_clusters(); ++c) {
    const detail::virtual_cluster& cluster = cells.cluster(vc_chain_id(c));
    if (cluster.tenant() == tenant) usage.owned += cluster.tree().num_leaves();
  }
  for (const gang_slot s : scheduler.gangs().by_job()) {
    const gang_record& gang = scheduler.gangs()[s];
    if (gang.request.tenant != tenant) continue;
    const std::uint64_t leaves = gang.count_live(0, gang.leaves.size());
    if (gang.state == gang_state::preempting) {
      usage.claimed += leaves;
      ++usage.preempting;
      continue;
    }
    ++usage.running;
    usage.downgraded += gang.downgraded ? 1U : 0U;
    (gang.guaranteed() ? usage.guaranteed : usage.opportunistic) += leaves;
  }
  return usage;
}

// Leaves of a physical cell by what holds them.
struct cell_state {
  tenant_id bound_to{};  // whose cell it is, or lies in; not valid: nobody's now
  std::uint32_t leaves = 0;
  std::uint32_t idle = 0;           // healthy and nobody's
  std::uint32_t guaranteed = 0;     // used as a tenant's cell
  std::uint32_t opportunistic = 0;  // used beside that
  std::uint32_t claimed = 0;        // of all of them, reserved by a preempting gang
  std::uint32_t bad = 0;            // of all of them
  friend bool operator==(const cell_state&, const cell_state&) = default;
};

// kNotFound: no such chain, or no such cell of it. Cost: O(leaves of the cell + levels).
[[nodiscard]] inline absl::StatusOr<cell_state> state_of(const hived& scheduler, chain_id chain,
                                                         cell_id cell) {
  APIARY_RETURN_IF_ERROR(scheduler.catalog().exists(chain));
  const detail::physical_chain& in = scheduler.cells().chain(chain.value);
  if (cell.value >= in.tree().num_cells()) {
    return absl::NotFoundError("chain " + std::to_string(chain.value) + " has no cell " +
                               std::to_string(cell.value));
  }
  cell_state state;
  level_t level = in.tree().level(cell);
  for (cell_id c = cell; c.valid(); c = in.tree().parent(c, level++)) {
    const vc_chain_id owner = in.owner(c).cluster;
    if (owner.valid()) state.bound_to = scheduler.cells().cluster(owner).tenant();
  }
  for (const cell_id leaf : leaves(in.tree(), cell)) {
    const leaf_holders holders = in.holders(leaf);
    const bool healthy = in.healthy().healthy(leaf);
    ++state.leaves;
    state.idle += healthy && holders.idle() ? 1U : 0U;
    state.guaranteed += holders.user.valid() && holders.guaranteed ? 1U : 0U;
    state.opportunistic += holders.user.valid() && !holders.guaranteed ? 1U : 0U;
    state.claimed += holders.claimer.valid() ? 1U : 0U;
    state.bad += healthy ? 0U : 1U;
  }
  return state;
}

// What a chain_refusal of a plan to wait has counted: the cells and free leaves with which
// proof_check, for the gang constraints_of(request), comes to the same.
// Requires:  the request that was proposed, the reason of its plan and a chain of its proof; nothing
//            has changed since.
// kNotFound: no such chain, tenant or pinned cell, or the gang's tenant has nothing there.
// Cost:      O(cells of the tenant, or of the chain) and count_free.
[[nodiscard]] inline absl::StatusOr<detail::gang_capacity> refused_capacity(
    const hived& scheduler, const gang_request& request, wait_reason reason, std::uint32_t chain) {
  APIARY_RETURN_IF_ERROR(scheduler.catalog().exists(chain_id(chain)));
  APIARY_RETURN_IF_ERROR(scheduler.catalog().exists(request.tenant));
  const hived_layout& layout = scheduler.layout();
  if (request.pinned && *request.pinned >= layout.pinned.size())
    return absl::NotFoundError("there is no pinned cell " + std::to_string(*request.pinned));
  const detail::hived_cells& cells = scheduler.cells();
  detail::refused_chain at{chain, vc_chain_id(), reason, scheduler.gangs().find(request.job)};
  if (request.priority >= 0) {
    at.cluster = request.pinned ? cells.cluster_of_pinned(*request.pinned)
                                : cells.cluster_of(request.tenant, chain);
    if (!at.cluster.valid() || cells.cluster(at.cluster).chain() != chain) {
      return absl::NotFoundError("tenant " + std::to_string(request.tenant.value) +
                                 " has no such cells in chain " + std::to_string(chain));
    }
  }
  return detail::capacity_of(cells, scheduler.gangs(), request, at);
}

// Of each leaf of a gang's tasks, as hived::tasks tells them, in each from the left, the level of
// its tenant's whole cell that it lies in, to be kept for hived::recover. A task that was placed has
// all its leaves in one such cell; one that came back, or to another configuration, may have them in
// several. Empty: the gang has no cells of its tenant.
// Requires: a gang of h. Cost: O(leaves of the gang * levels), and a sort of each task's.
[[nodiscard]] inline std::vector<level_t> whole_cell_levels(const hived& h,
                                                            const gang_record& gang) {
  std::vector<level_t> levels;
  if (!gang.guaranteed() || gang.state != gang_state::allocated) return levels;
  std::vector<chain_leaf> there;  // of a task
  gang.for_each_task([&](const task_group&, std::uint32_t first, std::uint32_t last) {
    there.clear();
    for (std::uint32_t i = first; i < last; ++i)
      if (gang.leaves[i].leaf.valid()) there.push_back(gang.leaves[i]);
    std::sort(there.begin(), there.end());
    for (const chain_leaf& l : there) levels.push_back(h.cells().whole_cell_level(l.chain, l.leaf));
  });
  return levels;
}

// The leaves of a cell that no gang uses or claims. Bad leaves count as the others. Cost: O(1).
[[nodiscard]] inline std::uint32_t unused_leaves(const hived& scheduler, std::uint32_t chain,
                                                 cell_id c, level_t level) noexcept {
  const detail::physical_chain& in = scheduler.cells().chain(chain);
  return in.tree().leaves_per_cell(level) -
         in.use().used(c, detail::physical_chain::opportunistic) -
         in.use().used(c, detail::physical_chain::guaranteed);
}

// The leaves that nobody has, each counted once for every level above the leaves at which its cell is
// in part in use: of a chain, the sum over these levels of buddy_fragmentation::unusable() times the
// unused leaves. Bad leaves count as the others. Cost: O(cells).
[[nodiscard]] inline std::uint64_t broken_leaves(const hived& scheduler) {
  std::uint64_t sum = 0;
  for (std::uint32_t c = 0; c < scheduler.cells().num_chains(); ++c) {
    const detail::physical_chain& in = scheduler.cells().chain(c);
    for (level_t l = 1; l < in.tree().num_levels(); ++l) {
      for (const cell_id cell : in.tree().cells(l)) {
        const std::uint32_t unused = unused_leaves(scheduler, c, cell, l);
        if (unused < in.tree().leaves_per_cell(l)) sum += unused;
      }
    }
  }
  return sum;
}

APIARY_NAMESPACE_END
