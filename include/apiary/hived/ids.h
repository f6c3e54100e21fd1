// apiary/hived/ids.h - names of gangs and virtual clusters inside HiveD, and the holders of a leaf.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>

APIARY_NAMESPACE_BEGIN

using gang_slot = id<struct gang_slot_tag>;          // where a scheduler keeps a gang
using vc_chain_id = id<struct virtual_cluster_tag>;  // the cells of one tenant in one chain

// Who has a leaf: a gang that runs on it, a preempting gang that is to have it next, or both.
// `guaranteed`: the user holds it as a cell of its tenant, and not as an opportunistic gang.
struct leaf_holders {
  gang_slot user{};
  gang_slot claimer{};
  bool guaranteed = false;

  [[nodiscard]] constexpr bool idle() const noexcept { return !user.valid() && !claimer.valid(); }
  // Whether a tenant's cell is in use by it.
  [[nodiscard]] constexpr bool taken() const noexcept { return claimer.valid() || guaranteed; }
  // By which gang: the one that is to have it next comes first.
  [[nodiscard]] constexpr gang_slot holder() const noexcept {
    return claimer.valid() ? claimer : guaranteed ? user : gang_slot();
  }
  friend constexpr bool operator==(leaf_holders, leaf_holders) noexcept = default;
};

APIARY_NAMESPACE_END
