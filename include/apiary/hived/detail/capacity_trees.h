// apiary/hived/detail/capacity_trees.h - the cells that a gang may use, as a tree.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/hived/detail/capacity.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/quota_tree.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/request.h>
#include <apiary/topology/ragged_tree.h>

#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The capacity that an infeasibility proof counts: the cells of a chain that a gang may use, and
// the leaves of each node that are free for it.
struct gang_capacity {
  ragged_tree tree;
  level_t node_level = 0;
  std::vector<std::uint32_t> free{};
};

// The virtual cells of a tenant as a tree whose roots are all at the highest level: a smaller whole
// cell is alone in one tree cell at each higher level. Nodes are numbered as in the cluster.
[[nodiscard]] inline ragged_tree tree_of(const virtual_cluster& cluster) {
  const quota_tree& cells = cluster.tree();
  const level_t levels = cells.num_levels();
  std::vector<std::vector<std::uint32_t>> fan_outs(levels);
  std::uint32_t alone = 0;
  for (level_t l = 0; l + 1 < levels; ++l) {
    alone += cells.roots(l).size();
    std::vector<std::uint32_t>& of_level = fan_outs[levels - 1 - l];
    of_level.assign(cells.cells(l + 1).size(),
                    cells.leaves_per_cell(l + 1) / cells.leaves_per_cell(l));
    of_level.insert(of_level.end(), alone, 1);
  }
  fan_outs[0] = {cells.cells(levels - 1).size() + alone};
  return ragged_tree(fan_outs);
}
// The physical cells of a chain as a tree.
[[nodiscard]] inline ragged_tree tree_of(const physical_chain& chain) {
  const level_t levels = chain.tree().num_levels();
  std::vector<std::vector<std::uint32_t>> fan_outs(levels);
  fan_outs[0] = {chain.tree().cells(levels - 1).size()};
  for (level_t l = 1; l < levels; ++l)
    fan_outs[levels - l].assign(chain.tree().cells(l).size(), chain.tree().fan_out(l));
  return ragged_tree(fan_outs);
}

// The capacity for proof_check. Cost: O(cells of the tenant, or of the chain), and as count_leaves.
[[nodiscard]] inline gang_capacity capacity_of(const hived_cells& cells, const gang_table& gangs,
                                               const gang_request& request,
                                               const refused_chain& at) {
  const physical_chain& chain = cells.chain(at.chain);
  gang_capacity capacities{at.cluster.valid() ? tree_of(cells.cluster(at.cluster)) : tree_of(chain),
                           chain.node_level()};
  lean_vector<std::uint32_t> free;
  count_leaves(cells, gangs, request, at, free);
  capacities.free.assign(free.begin(), free.end());
  return capacities;
}

}  // namespace detail
APIARY_NAMESPACE_END
