// apiary/hived/detail/audit_counts.h - recounts the leaves in each cell of a HiveD scheduler.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/topology/uniform_tree.h>

#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The sum of of_leaf(leaf) over the leaves of every cell of a tree, by cell id. Cost: O(cells).
template <class Tree, class F>
[[nodiscard]] std::vector<std::uint32_t> sum_of_leaves(const Tree& tree, F&& of_leaf) {
  std::vector<std::uint32_t> n(tree.num_cells(), 0);
  for (level_t l = 0; l < tree.num_levels(); ++l) {
    for (const cell_id c : tree.cells(l)) {
      if (l == 0) n[c.value] = of_leaf(c);
      if (const cell_id above = tree.parent(c, l); above.valid()) n[above.value] += n[c.value];
    }
  }
  return n;
}

// For each physical cell of a chain, by id: its leaves that are bad, opportunistic, ...
struct chain_counts {
  std::vector<std::uint32_t> bad, opportunistic, guaranteed, allocated;
};

// For every cell, by id, the number of its leaves that lie in allocated cells. Cost: O(cells).
[[nodiscard]] inline std::vector<std::uint32_t> count_allocated(const physical_chain& chain) {
  const uniform_tree& tree = chain.tree();
  std::vector<std::uint32_t> inside(tree.num_cells(), 0);
  for (level_t l = tree.num_levels(); l-- > 0;) {
    for (const cell_id c : tree.cells(l)) {
      const cell_id above = tree.parent(c, l);
      const bool in_live = above.valid() && inside[above.value] != 0;
      inside[c.value] = in_live || chain.cells().cells().is_live(c) ? 1U : 0U;
    }
  }
  return sum_of_leaves(tree, [&](cell_id c) { return inside[c.value]; });
}

// For each level the number of cells without an allocated leaf that do not lie in a larger such
// cell; allocated: the result of count_allocated. Cost: O(cells).
[[nodiscard]] inline std::vector<std::uint32_t> count_largest_free(
    const uniform_tree& tree, const std::vector<std::uint32_t>& allocated) {
  std::vector<std::uint32_t> counts(tree.num_levels(), 0);
  for (level_t l = 0; l < tree.num_levels(); ++l) {
    for (const cell_id c : tree.cells(l)) {
      const cell_id above = tree.parent(c, l);
      const bool largest = !above.valid() || allocated[above.value] != 0;
      counts[l] += allocated[c.value] == 0 && largest ? 1U : 0U;
    }
  }
  return counts;
}

// Counts leaves by their holders, their health, and the allocated cells. Cost: O(cells).
[[nodiscard]] inline chain_counts count_leaves(const physical_chain& chain) {
  const uniform_tree& tree = chain.tree();
  chain_counts n;
  n.bad = sum_of_leaves(tree, [&](cell_id c) { return chain.healthy().healthy(c) ? 0U : 1U; });
  n.opportunistic = sum_of_leaves(tree, [&](cell_id c) {
    return chain.holders(c).user.valid() && !chain.holders(c).taken() ? 1U : 0U;
  });
  n.guaranteed = sum_of_leaves(tree, [&](cell_id c) { return chain.holders(c).taken() ? 1U : 0U; });
  n.allocated = count_allocated(chain);
  return n;
}

// For each level the number of healthy free cells, also those in larger free cells. Cost: O(cells).
[[nodiscard]] inline std::vector<std::uint32_t> count_healthy_free(const physical_chain& chain) {
  const uniform_tree& tree = chain.tree();
  const chain_counts n = count_leaves(chain);
  std::vector<std::uint32_t> counts(tree.num_levels(), 0);
  for (level_t l = 0; l < tree.num_levels(); ++l) {
    for (const cell_id c : tree.cells(l))
      counts[l] += n.allocated[c.value] == 0 && n.bad[c.value] == 0 ? 1U : 0U;
  }
  return counts;
}

// The physical leaf that a virtual leaf is bound to; not valid if there is none.
[[nodiscard]] inline cell_id leaf_image(const hived_cells& cells, vc_chain_id c, cell_id leaf) {
  const virtual_cluster& cluster = cells.cluster(c);
  const cell_id image = cluster.image(leaf);
  return cells.chain(cluster.chain()).tree().cells(0).contains(image) ? image : cell_id();
}

// Whether the physical leaf that a virtual leaf is bound to is taken.
[[nodiscard]] inline bool leaf_taken(const hived_cells& cells, vc_chain_id c, cell_id leaf) {
  const cell_id image = leaf_image(cells, c, leaf);
  return image.valid() && cells.chain(cells.cluster(c).chain()).holders(image).taken();
}

// For every cell of a virtual cluster, by id, the number of its taken leaves. Cost: O(cells).
[[nodiscard]] inline std::vector<std::uint32_t> count_active(const hived_cells& cells,
                                                             vc_chain_id c) {
  return sum_of_leaves(cells.cluster(c).tree(),
                       [&](cell_id leaf) { return leaf_taken(cells, c, leaf) ? 1U : 0U; });
}

}  // namespace detail
APIARY_NAMESPACE_END
