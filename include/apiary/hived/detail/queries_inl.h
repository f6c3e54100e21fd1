// apiary/hived/detail/queries_inl.h - bodies of hived/queries.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/core/status.h>
#include <apiary/hived/detail/capacity.h>
#include <apiary/hived/detail/catalog.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/queries.h>
#include <apiary/model/request.h>
#include <apiary/topology/tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN

APIARY_INLINE absl::StatusOr<hived_queries::tenant_usage> hived_queries::usage_of(
    const hived& scheduler, tenant_id tenant) {
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

APIARY_INLINE absl::StatusOr<hived_queries::cell_state> hived_queries::state_of(
    const hived& scheduler, chain_id chain, cell_id cell) {
  APIARY_RETURN_IF_ERROR(scheduler.catalog().exists(chain));
  const detail::physical_chain& in = scheduler.cells().chain(chain.value);
  if (!cell.valid()) return absl::NotFoundError("no cell is given");
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
  for (const cell_id leaf : in.tree().descendants(cell, 0)) {
    const detail::leaf_holders holders = in.holders(leaf);
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

APIARY_INLINE absl::StatusOr<detail::gang_capacity> hived_queries::refused_capacity(
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

APIARY_INLINE std::vector<level_t> hived_queries::whole_cell_levels(const hived& h,
                                                                    const gang_record& gang) {
  std::vector<level_t> levels;
  if (!gang.guaranteed()) return levels;
  std::vector<chain_leaf> there;  // the leaves of a task that exist
  gang.for_each_task([&](const task_group&, std::uint32_t first, std::uint32_t last) {
    there.clear();
    for (std::uint32_t i = first; i < last; ++i)
      if (gang.leaves[i].leaf.valid()) there.push_back(gang.leaves[i]);
    detail::merge_sort(there);
    for (const chain_leaf& l : there) levels.push_back(h.cells().whole_cell_level(l.chain, l.leaf));
  });
  return levels;
}

APIARY_INLINE std::uint64_t hived_queries::broken_leaves(const hived& scheduler) {
  std::uint64_t sum = 0;
  for (std::uint32_t c = 0; c < scheduler.cells().num_chains(); ++c) {
    const detail::physical_chain& in = scheduler.cells().chain(c);
    for (level_t l = 1; l < in.tree().num_levels(); ++l) {
      for (const cell_id cell : in.tree().cells(l)) {
        const std::uint32_t unused = in.unused(cell, l);
        if (unused < in.tree().leaves_per_cell(l)) sum += unused;
      }
    }
  }
  return sum;
}

APIARY_NAMESPACE_END
