// apiary/preempt/detail/read_levels.h - the levels of a cluster, for the victims of one group of tasks.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/preempt/detail/eviction_levels.h>
#include <apiary/topology/tree.h>

#include <cstddef>
#include <cstdint>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Reads the levels from the nodes to level `top`, and the limits of group u.
template <CellTree Tree>
void read_levels(const capacity_index<Tree>& capacities, level_t top,
                 const colocated_groups& groups, std::size_t u, eviction_levels& to) {
  const level_t node_level = capacities.node_level();
  to.levels.resize(std::size_t{top - node_level} + 1);
  to.task = {groups[u].gpus, groups[u].cpu_milli, groups[u].memory_mib};
  to.tasks = groups[u].tasks;
  for (level_t l = node_level; l <= top; ++l) {
    eviction_levels::level& at = to.levels[l - node_level];
    at.step = groups.at(u, l).step;
    at.most = groups.at(u, l).most;
    at.above.resize(capacities.num_cells(l));
    at.first.clear();
    if (l == node_level) continue;
    eviction_levels::level& below = to.levels[l - node_level - 1];
    for (std::uint32_t c = 0; c < capacities.num_cells(l); ++c) {
      const id_range<cell_id> children = capacities.inside(l, c, l - 1);
      at.first.push_back(children.first.value);
      for (const cell_id i : children) below.above[i.value] = c;
    }
    at.first.push_back(capacities.num_cells(l - 1));
  }
}

}  // namespace detail
APIARY_NAMESPACE_END
