// apiary/hived/detail/virtual_cluster.h - the cells of one tenant in one chain, and their use.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/container/fast_div.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/hived/detail/node_index.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The tree of the virtual cells of a tenant in one chain: quota[l] whole cells (roots) of every
// level l, and all cells inside them. In each level the roots come last, so that parents and
// children are computed as in a uniform tree.
// Model:    HiveD (OSDI 2020) section 3.2: a virtual private cluster, without its bindings.
// Requires: quota.size() == chain.num_levels(), and no level has more cells than in the chain.
// Cost:     as uniform_tree; it stores nothing per cell.
class quota_tree {
 public:
  quota_tree(const uniform_tree& chain, std::span<const std::uint32_t> quota)
      : num_levels_(chain.num_levels()) {
    APIARY_VERIFY(quota.size() == num_levels_);
    std::uint64_t cells = 0;
    std::uint64_t width = 0;
    for (level_t l = num_levels_; l-- > 0;) {
      if (l + 1 < num_levels_) width *= chain.fan_out(l + 1);
      roots_[l] = static_cast<std::uint32_t>(width);
      width += quota[l];
      APIARY_VERIFY(width <= chain.cells(l).size());
      first_[l] = static_cast<std::uint32_t>(cells);
      cells += width;
      if (l > 0) split_[l] = fast_div(chain.fan_out(l));
      size_[l] = chain.leaves_per_cell(l);
    }
    num_cells_ = static_cast<std::uint32_t>(cells);
  }

  [[nodiscard]] level_t num_levels() const noexcept { return num_levels_; }
  [[nodiscard]] std::uint32_t num_cells() const noexcept { return num_cells_; }
  [[nodiscard]] std::uint32_t num_leaves() const noexcept { return num_cells_ - first_[0]; }
  [[nodiscard]] std::uint32_t leaves_per_cell(level_t l) const noexcept {
    APIARY_ASSERT(l < num_levels_);
    return size_[l];
  }
  [[nodiscard]] id_range<cell_id> cells(level_t l) const noexcept {
    APIARY_ASSERT(l < num_levels_);
    return {cell_id(first_[l]), cell_id(end(l))};
  }
  // The quota[l] whole cells of level l.
  [[nodiscard]] id_range<cell_id> roots(level_t l) const noexcept {
    APIARY_ASSERT(l < num_levels_);
    return {cell_id(first_[l] + roots_[l]), cell_id(end(l))};
  }
  [[nodiscard]] level_t level(cell_id c) const noexcept {
    APIARY_ASSERT(c.value < num_cells_);
    level_t l = 0;
    for (level_t k = 0; k + 1 < num_levels_; ++k) l += c.value < first_[k] ? 1U : 0U;
    return l;
  }
  // The parent of c, a cell of level l; not valid: c is a root.
  [[nodiscard]] cell_id parent(cell_id c, level_t l) const noexcept {
    const std::uint32_t i = index(c, l);
    if (i >= roots_[l]) return cell_id();
    return cell_id(first_[l + 1] + split_[l + 1].quotient(i));
  }
  // The children of c, a cell of level l; none at level 0.
  [[nodiscard]] id_range<cell_id> children(cell_id c, level_t l) const noexcept {
    if (l == 0) return {};
    const std::uint32_t n = split_[l].divisor();
    const std::uint32_t from = first_[l - 1] + index(c, l) * n;
    return {cell_id(from), cell_id(from + n)};
  }
  // The cell of level l around c. Requires: there is one.
  [[nodiscard]] cell_id ancestor(cell_id c, level_t l) const noexcept {
    for (level_t from = level(c); from < l; ++from) c = parent(c, from);
    APIARY_ASSERT(c.valid());
    return c;
  }
  // The cells of level l inside c. Requires: l is not above the level of c.
  [[nodiscard]] id_range<cell_id> descendants(cell_id c, level_t l) const noexcept {
    const level_t from = level(c);
    APIARY_ASSERT(l <= from);
    const std::uint32_t n = size_[from] / size_[l];
    const std::uint32_t begin = first_[l] + index(c, from) * n;
    return {cell_id(begin), cell_id(begin + n)};
  }
  // The position of c among the cells of its level l.
  [[nodiscard]] std::uint32_t index(cell_id c, level_t l) const noexcept {
    APIARY_ASSERT(cells(l).contains(c));
    return c.value - first_[l];
  }

 private:
  [[nodiscard]] std::uint32_t end(level_t l) const noexcept {
    return l == 0 ? num_cells_ : first_[l - 1];
  }

  level_t num_levels_ = 0;
  std::uint32_t num_cells_ = 0;
  std::array<std::uint32_t, uniform_tree::max_levels> first_{};  // first cell of each level
  std::array<std::uint32_t, uniform_tree::max_levels>
      roots_{};  // index of the first root of each level
  std::array<std::uint32_t, uniform_tree::max_levels> size_{};  // leaves of a cell of each level
  std::array<fast_div, uniform_tree::max_levels> split_{};      // children of a cell of each level
};

static_assert(CellTree<quota_tree>);

// The cells of one tenant in one chain (or in one pinned cell): the physical cell that each is
// bound to (its image), and the free leaves of each node. A node, on which a task runs, is a cell
// of the node level or a whole cell below it; nodes are numbered largest first.
// Model: HiveD (OSDI 2020) sections 3.2 and 4.
// Cost:  set_active, set_usable O(levels). Memory: 4 bytes a cell, 4 more above the leaves, about
//        30 a node.
class virtual_cluster {
 public:
  // The nodes of one level.
  struct node_range {
    level_t level = 0;
    std::uint32_t first_node = 0;
    std::uint32_t first_leaf = 0;  // index of the leaf
    std::uint32_t leaves = 0;      // of each node
    std::uint32_t nodes = 0;
  };
  // The cells of `tenant` in a chain, unbound and free; quota: its whole cells of each level.
  virtual_cluster(tenant_id tenant, std::uint32_t chain, const uniform_tree& physical,
                  level_t node_level, std::span<const std::uint32_t> quota)
      : tenant_(tenant),
        chain_(chain),
        node_level_(node_level),
        tree_(physical, quota),
        image_(tree_.num_cells()),
        unbound_roots_(tree_.num_cells(), true),
        rack_size_((std::min)(node_level + 1 < physical.num_levels()
                                  ? physical.fan_out(node_level + 1)
                                  : physical.cells(node_level).size(),
                              (std::max)(1U, count_nodes(tree_, node_level)))),
        active_(tree_.cells(0).first.value, 0),
        index_(count_nodes(tree_, node_level),
               static_cast<node_index::class_t>(physical.leaves_per_cell(node_level) + 1),
               rack_size_) {
    for (level_t l = node_level + 1; l-- > 0;) {
      const std::uint32_t n = l == node_level ? tree_.cells(l).size() : tree_.roots(l).size();
      if (n == 0) continue;
      const std::uint32_t size = tree_.leaves_per_cell(l);
      ranges_.push_back({l, num_nodes(), num_leaves_, size, n});
      free_.resize(free_.size() + n, ~std::uint64_t{0} >> (64 - size));
      num_leaves_ += n * size;
    }
    for (const node_range& r : ranges_) {
      for (std::uint32_t n = 0; n < r.nodes; ++n)
        index_.assign(node_id(r.first_node + n), static_cast<node_index::class_t>(r.leaves));
    }
  }

  [[nodiscard]] tenant_id tenant() const noexcept { return tenant_; }
  [[nodiscard]] std::uint32_t chain() const noexcept { return chain_; }
  [[nodiscard]] const quota_tree& tree() const noexcept { return tree_; }
  [[nodiscard]] level_t node_level() const noexcept { return node_level_; }
  [[nodiscard]] std::uint32_t num_nodes() const noexcept {
    return static_cast<std::uint32_t>(free_.size());
  }
  // The nodes in a cell of the level above the nodes; at most all nodes.
  [[nodiscard]] std::uint32_t rack_size() const noexcept { return rack_size_; }
  [[nodiscard]] std::span<const node_range> node_ranges() const noexcept { return ranges_; }
  [[nodiscard]] const node_range& range_of_node(std::uint32_t node) const noexcept {
    std::size_t i = ranges_.size() - 1;
    while (ranges_[i].first_node > node) --i;
    return ranges_[i];
  }
  // The first leaf of a node, and the node of a leaf.
  [[nodiscard]] cell_id first_leaf(std::uint32_t node) const noexcept {
    const node_range& r = range_of_node(node);
    return tree_.cells(0)[r.first_leaf + (node - r.first_node) * r.leaves];
  }
  [[nodiscard]] std::uint32_t node_of(cell_id leaf) const noexcept {
    const std::uint32_t i = tree_.index(leaf, 0);
    std::size_t r = ranges_.size() - 1;
    while (ranges_[r].first_leaf > i) --r;
    return ranges_[r].first_node + (i - ranges_[r].first_leaf) / ranges_[r].leaves;
  }
  // The physical cell that c is bound to; not valid if c is not bound.
  [[nodiscard]] cell_id image(cell_id c) const noexcept { return image_[c.value]; }
  void set_image(cell_id c, cell_id to) noexcept { image_[c.value] = to; }
  // Records whether a whole cell is bound.
  void set_root_bound(cell_id root, bool bound) noexcept {
    unbound_roots_.assign(root.value, !bound);
  }
  // The first whole cell of level l that is not bound; not valid: all are bound.
  [[nodiscard]] cell_id first_unbound_root(level_t l) const noexcept {
    const id_range<cell_id> roots = tree_.roots(l);
    if (roots.empty()) return cell_id();
    const cell_id first(unbound_roots_.find_next(roots.first.value));
    return roots.contains(first) ? first : cell_id();
  }
  // The first of these cells that is not bound; not valid: all are bound.
  [[nodiscard]] cell_id first_unbound(id_range<cell_id> cells) const noexcept {
    for (const cell_id c : cells)
      if (!image(c).valid()) return c;
    return cell_id();
  }
  // The number of leaves of c that are in use or claimed. Requires: c is not a leaf.
  [[nodiscard]] std::uint32_t active(cell_id c) const noexcept { return active_[c.value]; }
  // Records that a leaf comes into use (active) or is not in use any more.
  void set_active(cell_id leaf, bool active) noexcept {
    const std::uint32_t step = active ? 1U : ~0U;
    level_t l = 0;
    for (cell_id c = tree_.parent(leaf, l); c.valid(); c = tree_.parent(c, ++l))
      active_[c.value] += step;
  }
  // Records whether a leaf can be used. It cannot if it is taken or bound to a bad leaf.
  void set_usable(cell_id leaf, bool usable) noexcept {
    const std::uint32_t node = node_of(leaf);
    set_free(node, leaf, usable);
    index_node(node);
  }
  // The same in two steps: set_free for leaves of a node, then once index_node.
  void set_free(std::uint32_t node, cell_id leaf, bool usable) noexcept {
    const std::uint32_t bit = leaf.value - first_leaf(node).value;
    free_[node] = (free_[node] & ~(std::uint64_t{1} << bit)) | std::uint64_t{usable} << bit;
  }
  void index_node(std::uint32_t node) noexcept {
    const auto free = static_cast<node_index::class_t>(std::popcount(free_[node]));
    if (index_.class_of(node_id(node)) != free) index_.assign(node_id(node), free);
  }
  // The leaves of a node that can be used; bit i is its i-th leaf.
  [[nodiscard]] std::uint64_t free(std::uint32_t node) const noexcept { return free_[node]; }
  // The nodes by the number of their leaves that can be used.
  [[nodiscard]] const node_index& free_nodes() const noexcept { return index_; }
  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    return image_.capacity() * sizeof(cell_id) + active_.capacity() * sizeof(std::uint32_t) +
           free_.capacity() * sizeof(std::uint64_t) + index_.memory_bytes() +
           unbound_roots_.memory_bytes();
  }

 private:
  [[nodiscard]] static std::uint32_t count_nodes(const quota_tree& tree,
                                                 level_t node_level) noexcept {
    std::uint32_t n = tree.cells(node_level).size();
    for (level_t l = 0; l < node_level; ++l) n += tree.roots(l).size();
    return n;
  }
  tenant_id tenant_;
  std::uint32_t chain_;
  level_t node_level_;
  quota_tree tree_;
  lean_vector<cell_id> image_;    // by cell
  summary_bitset unbound_roots_;  // by cell; meaningful for whole cells
  std::uint32_t num_leaves_ = 0;
  std::uint32_t rack_size_;
  lean_vector<std::uint32_t> active_;  // by cell above the leaves
  lean_vector<node_range> ranges_;     // largest nodes first
  lean_vector<std::uint64_t> free_;    // by node
  node_index index_;
};

}  // namespace detail
APIARY_NAMESPACE_END
