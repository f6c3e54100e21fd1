// apiary/gang/detail/constraint_levels.h - levels with constraints, and capacity summed up over them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/topology/tree.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Whether the constraints of group u at level l allow fewer tasks than the level above, or larger
// steps than the level below.
// Requires: l is above the nodes and at most the level of the roots.
[[nodiscard]] inline bool constraints_at(const colocated_groups& groups, std::size_t u,
                                         level_t l) noexcept {
  const auto here = groups.at(u, l);
  return here.most != groups.at(u, l + 1).most || here.step != groups.at(u, l - 1).step;
}

// The next level below l with constraints of group u, or the node level. Requires: l > node_level.
[[nodiscard]] inline level_t level_below(const colocated_groups& groups, std::size_t u, level_t l,
                                         level_t node_level) noexcept {
  level_t k = l - 1;
  while (k > node_level && !constraints_at(groups, u, k)) --k;
  return k;
}
// The same for the constraints of any group.
[[nodiscard]] inline level_t level_below(const colocated_groups& groups, level_t l,
                                         level_t node_level) noexcept {
  level_t below = node_level;
  for (std::size_t u = 0; u < groups.size(); ++u) {
    const level_t k = level_below(groups, u, l, node_level);
    below = k > below ? k : below;
  }
  for (const colocated_groups::link& k : groups.links())
    if (k.level < l && k.level > below) below = k.level;
  return below;
}

// The exact capacity of each cell of level l for tasks of group u alone, from the capacity of each
// node without constraints. Cost: O(nodes).
template <CellTree Tree>
[[nodiscard]] std::vector<std::uint32_t> capacity_above(const Tree& tree,
                                                        const colocated_groups& groups,
                                                        std::size_t u, level_t node_level,
                                                        level_t l,
                                                        std::vector<std::uint32_t> capacity) {
  for (std::uint32_t& n : capacity) n = groups.bound(u, node_level, n);
  for (level_t k = node_level; k < l;) {
    level_t above = k + 1;
    while (above < l && !constraints_at(groups, u, above)) ++above;
    std::vector<std::uint32_t> sums(num_positions(tree, above));
    for (std::uint32_t c = 0; c < sums.size(); ++c) {
      std::uint64_t sum = 0;
      for (const cell_id i : positions_inside(tree, above, c, k)) sum += capacity[i.value];
      sums[c] = groups.bound(u, above, sum);
    }
    capacity = std::move(sums);
    k = above;
  }
  return capacity;
}

}  // namespace detail
APIARY_NAMESPACE_END
