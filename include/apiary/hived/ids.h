// apiary/hived/ids.h - ids of gangs and virtual clusters, and the gangs that hold a leaf.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>

APIARY_NAMESPACE_BEGIN

using gang_slot = id<struct gang_slot_tag>;          // the slot of a gang in gang_table
using vc_chain_id = id<struct virtual_cluster_tag>;  // the cells of one tenant in one chain

namespace detail {

// The gangs that hold a leaf: one that runs on it, a preempting gang that has reserved it, or both.
struct leaf_holders {
  gang_slot user{};         // the gang that runs on it
  gang_slot claimer{};      // the preempting gang that has reserved it
  bool guaranteed = false;  // the running gang uses it as a cell of its tenant

  // Whether no gang runs on it or has reserved it.
  [[nodiscard]] constexpr bool idle() const noexcept { return !user.valid() && !claimer.valid(); }
  // Whether the leaf is in use as a cell of a tenant.
  [[nodiscard]] constexpr bool taken() const noexcept { return claimer.valid() || guaranteed; }
  // The gang for which the leaf is taken; a gang that has reserved it comes first.
  [[nodiscard]] constexpr gang_slot holder() const noexcept {
    return claimer.valid() ? claimer : guaranteed ? user : gang_slot();
  }
  friend constexpr bool operator==(leaf_holders, leaf_holders) noexcept = default;
};

}  // namespace detail
APIARY_NAMESPACE_END
