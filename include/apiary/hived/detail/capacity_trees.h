// apiary/hived/detail/capacity_trees.h - the cells that a gang may use, as a tree.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/hived/detail/capacity.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/quota_tree.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/request.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <cstdint>
#include <utility>
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
// The same tree, but whole cells bound inside one physical cell above the node level lie in one
// tree cell. Nodes are in the order of the hardware that they are bound to, unbound nodes last.
struct bound_tree {
  struct node {
    std::uint32_t number = 0;  // in the cluster
    level_t whole = 0;         // the level of its whole cell
    cell_id at{};              // the first physical leaf of its whole cell; not valid: unbound
  };
  ragged_tree tree;
  std::vector<node> nodes{};
};
// The tree as bound now. Cost: O(nodes of the tenant * levels), and a sort of its whole cells.
[[nodiscard]] inline bound_tree tree_as_bound(const virtual_cluster& cluster,
                                              const physical_chain& chain) {
  const quota_tree& cells = cluster.tree();
  const uniform_tree& hardware = chain.tree();
  const level_t levels = cells.num_levels();
  struct whole_cell {
    cell_id at{};
    cell_id root{};
    level_t level = 0;
  };
  std::vector<whole_cell> all;
  for (level_t l = 0; l < levels; ++l) {
    for (const cell_id root : cells.roots(l)) {
      const cell_id image = cluster.image(root);
      all.push_back({image.valid() ? hardware.descendants(image, 0).first : image, root, l});
    }
  }
  merge_sort(all, [](const whole_cell& a, const whole_cell& b) { return a.at < b.at; });
  std::vector<bound_tree::node> nodes;
  std::vector<std::vector<std::uint32_t>> fan_outs(levels);  // from the highest level down
  fan_outs[0] = {0};
  std::vector<cell_id> open(levels);  // by level: the physical cell of the last tree cell
  for (const whole_cell& w : all) {
    for (level_t l = levels; --l > w.level;) {
      const bool shares = w.at.valid() && l > chain.node_level();
      const cell_id above = shares ? hardware.ancestor(w.at, l) : cell_id();
      if (above.valid() && above == open[l]) continue;
      open[l] = above;
      ++fan_outs[levels - 1 - l].back();
      fan_outs[levels - l].push_back(0);
    }
    ++fan_outs[levels - 1 - w.level].back();
    for (level_t l = w.level; l-- > 0;) {
      std::vector<std::uint32_t>& of_level = fan_outs[levels - 1 - l];
      of_level.insert(of_level.end(), cells.leaves_per_cell(w.level) / cells.leaves_per_cell(l + 1),
                      hardware.fan_out(l + 1));
    }
    for (const cell_id node : cells.descendants(w.root, (std::min)(w.level, chain.node_level())))
      nodes.push_back({cluster.node_of(cells.descendants(node, 0).first), w.level, w.at});
  }
  return {ragged_tree(fan_outs), std::move(nodes)};
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
