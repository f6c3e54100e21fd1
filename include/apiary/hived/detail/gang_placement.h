// apiary/hived/detail/gang_placement.h - the placement of a gang, and what other gangs lose for it.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/hived/ids.h>
#include <apiary/topology/uniform_tree.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A leaf of a virtual cluster and the physical leaf it is bound to.
struct bound_leaf {
  cell_id leaf{};   // not valid: an opportunistic gang has no virtual leaves
  cell_id image{};  // the physical leaf
  friend constexpr bool operator==(bound_leaf, bound_leaf) noexcept = default;
};

// A placement of a gang, and the gangs that lose leaves or cells for it.
struct gang_placement {
  vc_chain_id cluster{};  // not valid: the gang is opportunistic
  std::uint32_t chain = 0;
  lean_vector<bound_leaf> leaves{};     // of all tasks, in the order of the task groups
  lean_vector<gang_slot> cancelled{};   // preempting gangs of lower priority that lose their claims
  lean_vector<gang_slot> downgraded{};  // lose their tenant's cells; those not lazy must end
};

// The number of leaves of a cell for each level of a tree.
class level_sizes {
 public:
  void assign(const uniform_tree& tree) noexcept {
    for (level_t l = 0; l < tree.num_levels(); ++l) sizes_[l] = tree.leaves_per_cell(l);
  }
  // For the levels 0, ..., level.
  [[nodiscard]] std::span<const std::uint32_t> up_to(level_t level) const noexcept {
    return {sizes_.data(), std::size_t{level} + 1};
  }

 private:
  std::array<std::uint32_t, uniform_tree::max_levels> sizes_{};
};

}  // namespace detail
APIARY_NAMESPACE_END
