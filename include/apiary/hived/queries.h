// apiary/hived/queries.h - what tenants and cells are used for, what a waiting gang may use.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/layout.h>

#include <absl/status/statusor.h>

#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN

namespace detail {
struct gang_capacity;  // hived/detail/capacity.h
}  // namespace detail

// Answers questions about a scheduler that no decision depends on.
class hived_queries {
 public:
  // The leaves and gangs of a tenant, over all chains.
  struct tenant_usage {
    std::uint64_t owned = 0;          // leaves of its cells, pinned cells included
    std::uint64_t guaranteed = 0;     // leaves that its guaranteed gangs use
    std::uint64_t opportunistic = 0;  // leaves that its opportunistic gangs use
    std::uint64_t claimed = 0;        // leaves reserved by its preempting gangs
    std::uint32_t running = 0;        // gangs that run
    std::uint32_t preempting = 0;     // gangs that wait for victims
    std::uint32_t downgraded = 0;     // running gangs that lost their guaranteed cells
    friend bool operator==(const tenant_usage&, const tenant_usage&) = default;
  };

  // What a tenant owns and uses now. kNotFound: no such tenant.
  // Cost: O(virtual clusters + leaves of all gangs), and a sort of the gangs.
  [[nodiscard]] static absl::StatusOr<tenant_usage> usage_of(const hived& scheduler,
                                                             tenant_id tenant);

  // The leaves of a physical cell, by use.
  struct cell_state {
    tenant_id bound_to{};             // the tenant that owns it now; not valid: none
    std::uint32_t leaves = 0;         // how many leaves it has
    std::uint32_t idle = 0;           // healthy and unused
    std::uint32_t guaranteed = 0;     // used by guaranteed gangs
    std::uint32_t opportunistic = 0;  // used by opportunistic gangs
    std::uint32_t claimed = 0;        // of all leaves: reserved by preempting gangs
    std::uint32_t bad = 0;            // of all leaves: bad
    friend bool operator==(const cell_state&, const cell_state&) = default;
  };

  // The use of a physical cell now. kNotFound: no such chain or cell. Cost: O(leaves + levels).
  [[nodiscard]] static absl::StatusOr<cell_state> state_of(const hived& scheduler, chain_id chain,
                                                           cell_id cell);

  // The capacity that a chain_refusal of a plan counted. proof_check (explain/proof_check.h) needs
  // it to verify the proof, for the gang constraints_of(request).
  // Requires: the request, the reason and a chain of the proof of a plan; no change since then.
  // kNotFound: no such chain, tenant or pinned cell, or the tenant has no cells there.
  // Cost: O(cells of the tenant, or of the chain) and count_free.
  [[nodiscard]] static absl::StatusOr<detail::gang_capacity> refused_capacity(
      const hived& scheduler, const gang_request& request, wait_reason reason, std::uint32_t chain);

  // For each leaf of the tasks of a gang (in the order of hived::tasks(), then by position), the
  // level of the tenant's whole cell around it; empty: the gang is opportunistic. Persist it for
  // hived::recover(). Requires: a gang of h.
  // Cost: O(leaves of the gang * levels), and a sort of the leaves of each task.
  [[nodiscard]] static std::vector<level_t> whole_cell_levels(const hived& h,
                                                              const gang_record& gang);

  // A measure of fragmentation: the unused leaves, bad ones included, each counted once for every
  // level at which the cell around it is partly in use. Cost: O(cells).
  [[nodiscard]] static std::uint64_t broken_leaves(const hived& scheduler);
};

APIARY_NAMESPACE_END

#ifndef APIARY_COMPILED
#include <apiary/hived/detail/queries_inl.h>
#endif
