// apiary/tests/support/hived_proofs.h - counts the certificates of waiting gangs again.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/policy/certificate.h>
#include <apiary/policy/certificate_check.h>
#include <apiary/policy/gang_rules.h>
#include <apiary/sched/gang_plan.h>
#include <apiary/sched/hived.h>
#include <apiary/sched/hived_queries.h>
#include <apiary/sched/hived_rooms.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace apiary_test {

// The same with one number wrong, or one missing.
[[nodiscard]] inline apiary::certificate forge(apiary::certificate why, apiary::rng& random) {
  apiary::certificate::refusal& r =
      why.cells[random.uniform(static_cast<std::uint32_t>(why.cells.size()))];
  switch (random.uniform(8)) {
    case 0:
      ++why.level;
      break;
    case 1:
      ++why.kinds[random.uniform(static_cast<std::uint32_t>(why.kinds.size()))];
      break;
    case 2:
      ++r.cell;
      break;
    case 3:
      why.cells.pop_back();
      break;
    case 4:
      why.kinds.pop_back();
      break;
    case 5:
      if (r.weighing == apiary::certificate::listed) {
        ++r.counts[random.uniform(static_cast<std::uint32_t>(r.counts.size()))];
      } else {
        ++why.weighings[r.weighing].needed;
      }
      break;
    case 6:
      if (r.weighing == apiary::certificate::listed) {
        r.counts.resize(r.counts.size() - why.kinds.size());
      } else {
        ++why.weighings[r.weighing]
              .weights[random.uniform(static_cast<std::uint32_t>(why.kinds.size()))];
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
  const apiary::gang_rules gang = apiary::rules_of(request);
  std::vector<std::uint32_t> chains;
  for (const apiary::chain_refusal& r : wait.proof) {
    chains.push_back(r.chain);
    const apiary::gang_rooms rooms =
        *apiary::refused_rooms(scheduler, request, wait.reason, r.chain);
    apiary::certificate_check check(rooms.tree, rooms.node_level, rooms.free, {}, gang);
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
    if (!apiary::valid(gang, in.node_level, in.tree.num_levels())) continue;
    usable.push_back(c);
  }
  REQUIRE(chains == usable);
  return true;
}

}  // namespace apiary_test
