// apiary/topology/health.h - which leaves and cells are healthy.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/topology/tree.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Keeps which leaves of a tree are bad. A cell is healthy if all of its leaves are.
//
// It also represents a host's filter ("suggested nodes"): start with all leaves bad and mark the
// suggested nodes healthy. The two usable() sets, combined by &=, are healthy and suggested.
//
// Cost:    marking a cell O(levels + cells above the leaves inside it + leaves inside it / 64);
//          queries O(1). Memory: 4 bytes for each cell above the leaves, 1 bit for each cell.
// Example: examples/buddy_allocation.cpp
template <CellTree Tree>
class health {
 public:
  // All leaves are healthy, or all are bad if `healthy` is false.
  explicit health(Tree tree, bool healthy = true)
      : tree_(std::move(tree)),
        bad_leaves_(tree_.cells(0).first.value),
        usable_(tree_.num_cells(), true) {
    if (!healthy)
      for (const cell_id root : tree_.cells(tree_.num_levels() - 1)) mark_bad(root);
  }

  // Marks all leaves of c bad. Returns how many leaves changed.
  std::uint32_t mark_bad(cell_id c) noexcept { return mark(c, false); }
  // Marks all leaves of c healthy. Returns how many leaves changed.
  std::uint32_t mark_healthy(cell_id c) noexcept { return mark(c, true); }
  // Whether all leaves of c are healthy.
  [[nodiscard]] bool healthy(cell_id c) const noexcept { return usable_.test(c.value); }
  // How many leaves of c are bad.
  [[nodiscard]] std::uint32_t bad_leaves(cell_id c) const noexcept {
    APIARY_ASSERT(c.value < tree_.num_cells());
    if (c.value < bad_leaves_.size()) return bad_leaves_[c.value];
    return usable_.test(c.value) ? 0 : 1;
  }
  // Calls f(leaf) for the bad leaves in c, from left to right. Cost: O(levels * fan-out) for each.
  template <class F>
  void for_each_bad_leaf(cell_id c, const F& f) const {
    visit_bad(c, tree_.level(c), f);
  }
  // The healthy cells of all levels, by the values of their ids.
  [[nodiscard]] const summary_bitset& usable() const noexcept { return usable_; }
  // The tree of the cells.
  [[nodiscard]] const Tree& tree() const noexcept { return tree_; }

  // Bytes on the heap, without the tree.
  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    return bad_leaves_.capacity() * sizeof(std::uint32_t) + usable_.memory_bytes();
  }
  friend bool operator==(const health& a, const health& b) noexcept {
    return a.usable_ == b.usable_;  // the leaves' bits determine everything
  }

 private:
  template <class F>
  void visit_bad(cell_id c, level_t l, const F& f) const {
    if (usable_.test(c.value)) return;
    if (l == 0) return f(c);
    for (const cell_id part : tree_.children(c, l)) visit_bad(part, l - 1, f);
  }
  std::uint32_t mark(cell_id c, bool healthy) noexcept {
    const level_t level = tree_.level(c);
    const std::uint32_t before = bad_leaves(c);
    const std::uint32_t after = healthy ? 0 : tree_.descendants(c, 0).size();
    if (before == after) return 0;
    for (level_t l = 0; l <= level; ++l) {
      const id_range<cell_id> inside = tree_.descendants(c, l);
      if (healthy) {
        usable_.set_range(inside.first.value, inside.last.value);
      } else {
        usable_.reset_range(inside.first.value, inside.last.value);
      }
      if (l == 0) continue;
      for (const cell_id d : inside)
        bad_leaves_[d.value] = healthy ? 0 : tree_.descendants(d, 0).size();
    }
    cell_id above = tree_.parent(c, level);
    for (level_t l = level + 1; above.valid(); above = tree_.parent(above, l++)) {
      std::uint32_t& bad = bad_leaves_[above.value];
      bad = bad - before + after;
      usable_.assign(above.value, bad == 0);
    }
    return healthy ? before : after - before;
  }

  Tree tree_;
  std::vector<std::uint32_t> bad_leaves_;  // of each cell above the leaves, which have lower ids
  summary_bitset usable_;
};

APIARY_NAMESPACE_END
