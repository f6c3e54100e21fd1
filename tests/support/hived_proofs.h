// apiary/tests/support/hived_proofs.h - counts the proofs of waiting gangs again.
// SPDX-License-Identifier: MIT
#pragma once

#include "support/hived_constraints.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/explain/proof_check.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/hived/detail/capacity.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/queries.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace apiary_test {

// The same with one number wrong, or one missing.
[[nodiscard]] inline apiary::infeasibility_proof forge(apiary::infeasibility_proof why,
                                                       apiary::rng& random) {
  apiary::infeasibility_proof::refusal& r =
      why.cells[random.uniform(static_cast<std::uint32_t>(why.cells.size()))];
  switch (random.uniform(8)) {
    case 0:
      ++why.level;
      break;
    case 1:
      ++why.groups[random.uniform(static_cast<std::uint32_t>(why.groups.size()))];
      break;
    case 2:
      ++r.cell;
      break;
    case 3:
      why.cells.pop_back();
      break;
    case 4:
      why.groups.pop_back();
      break;
    case 5:
      if (r.weighing == apiary::infeasibility_proof::listed) {
        ++r.counts[random.uniform(static_cast<std::uint32_t>(r.counts.size()))];
      } else {
        ++why.weighings[r.weighing].needed;
      }
      break;
    case 6:
      if (r.weighing == apiary::infeasibility_proof::listed) {
        r.counts.resize(r.counts.size() - why.groups.size());
      } else {
        ++why.weighings[r.weighing]
              .weights[random.uniform(static_cast<std::uint32_t>(why.groups.size()))];
      }
      break;
    default:
      ++r.most;
  }
  return why;
}

// Requires of the proof of a gang that waits what it promises, forged ones included. Whether there
// is one.
inline bool check_proof(const apiary::hived& scheduler, const apiary::gang_request& request,
                        const apiary::gang_wait& wait, apiary::rng& random) {
  if (wait.reason != apiary::wait_reason::busy && wait.reason != apiary::wait_reason::never)
    REQUIRE(wait.proof.empty());
  if (wait.proof.empty()) {
    REQUIRE(wait.why() == nullptr);
    return false;
  }
  REQUIRE(wait.why() != nullptr);
  const apiary::topology_constraints gang = apiary::constraints_of(request);
  std::vector<std::uint32_t> chains;
  for (const apiary::gang_wait::chain_refusal& r : wait.proof) {
    chains.push_back(r.chain);
    const apiary::detail::gang_capacity capacities =
        *apiary::hived_queries::refused_capacity(scheduler, request, wait.reason, r.chain);
    apiary::proof_check check(capacities.tree, capacities.node_level, capacities.free, {}, gang);
    REQUIRE(check(r.why));
    for (int i = 0; i < 3; ++i) REQUIRE(!check(forge(r.why, random)));
  }
  // The chains that it may use, all of them.
  std::vector<std::uint32_t> usable;
  for (std::uint32_t c = 0; c < scheduler.cells().num_chains(); ++c) {
    const std::string& type = scheduler.layout().chains[c].level_types[0];
    if (request.leaf_type.valid() && scheduler.find_leaf_type(type) != request.leaf_type) continue;
    if (request.pinned && scheduler.layout().pinned[*request.pinned].chain.value != c) continue;
    if (request.priority >= 0 && !request.pinned &&
        !scheduler.cells().cluster_of(request.tenant, c).valid())
      continue;
    const apiary::chain_layout& in = scheduler.layout().chains[c];
    if (!gang.valid(in.node_level, in.tree.num_levels())) continue;
    if (request.priority >= 0) {
      const apiary::detail::hived_cells& cells = scheduler.cells();
      const apiary::vc_chain_id own = request.pinned ? cells.cluster_of_pinned(*request.pinned)
                                                     : cells.cluster_of(request.tenant, c);
      if (depends_on_bindings(request, cells.cluster(own))) continue;
    }
    usable.push_back(c);
  }
  REQUIRE(chains == usable);
  return true;
}

}  // namespace apiary_test
