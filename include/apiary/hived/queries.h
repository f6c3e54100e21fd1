// apiary/hived/queries.h - what tenants and cells are used for, what a waiting gang may use.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/hived/chain_layout.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/request.h>

#include <absl/status/statusor.h>

#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN

namespace detail {
struct gang_capacity;  // hived/detail/capacity.h
}  // namespace detail

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
[[nodiscard]] absl::StatusOr<tenant_usage> usage_of(const hived& scheduler, tenant_id tenant);

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
[[nodiscard]] absl::StatusOr<cell_state> state_of(const hived& scheduler, chain_id chain,
                                                  cell_id cell);

// What a chain_refusal of a plan to wait has counted: the cells and free leaves with which
// proof_check, for the gang constraints_of(request), comes to the same.
// Requires:  the request that was proposed, the reason of its plan and a chain of its proof; nothing
//            has changed since.
// kNotFound: no such chain, tenant or pinned cell, or the gang's tenant has nothing there.
// Cost:      O(cells of the tenant, or of the chain) and count_free.
[[nodiscard]] absl::StatusOr<detail::gang_capacity> refused_capacity(const hived& scheduler,
                                                                     const gang_request& request,
                                                                     wait_reason reason,
                                                                     std::uint32_t chain);

// Of each leaf of a gang's tasks, as hived::tasks tells them, in each from the left, the level of
// its tenant's whole cell that it lies in, to be kept for hived::recover. A task that was placed has
// all its leaves in one such cell; one that came back, or to another configuration, may have them in
// several. Empty: the gang has no cells of its tenant.
// Requires: a gang of h. Cost: O(leaves of the gang * levels), and a sort of each task's.
[[nodiscard]] std::vector<level_t> whole_cell_levels(const hived& h, const gang_record& gang);

// The leaves of a cell that no gang uses or claims. Bad leaves count as the others. Cost: O(1).
[[nodiscard]] std::uint32_t unused_leaves(const hived& scheduler, std::uint32_t chain, cell_id c,
                                          level_t level) noexcept;

// The leaves that nobody has, each counted once for every level above the leaves at which its cell is
// in part in use: of a chain, the sum over these levels of buddy_fragmentation::unusable() times the
// unused leaves. Bad leaves count as the others. Cost: O(cells).
[[nodiscard]] std::uint64_t broken_leaves(const hived& scheduler);

APIARY_NAMESPACE_END

#ifndef APIARY_COMPILED
#include <apiary/hived/detail/queries_inl.h>
#endif
