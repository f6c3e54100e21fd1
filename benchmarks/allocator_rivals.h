// apiary/benchmarks/allocator_rivals.h - other ways to allocate cells, for comparison.
// SPDX-License-Identifier: MIT
#pragma once

#include "allocator_loads.h"
#include <apiary/alloc/buddy_allocator.h>
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace apiary_bench {

// A binary tree with a byte for each block: the size of its largest free block, as spaskalev/buddy_alloc
// does (which packs these numbers). Allocate walks down the whole height; both walk up as far as
// the numbers change. For uniform trees with
// fan-outs that are powers of two; the first level may have any.
class buddy_tree {
 public:
  explicit buddy_tree(const apiary::uniform_tree& tree)
      : tree_(tree), width_(std::bit_ceil(tree.num_leaves())), largest_(2 * std::size_t{width_}) {
    for (apiary::level_t l = 0; l < tree.num_levels(); ++l)
      order_.push_back(static_cast<std::uint32_t>(std::countr_zero(tree.leaves_per_cell(l))));
    for (std::uint32_t i = 0; i < tree.num_leaves(); ++i) largest_[width_ + i] = 1;
    for (std::uint32_t i = width_; i-- > 1;) update(i, order_of(i));
  }
  std::optional<apiary::cell_id> allocate(apiary::level_t level) {
    const std::uint32_t wanted = order_[level];
    if (largest_[1] <= wanted) return std::nullopt;
    std::uint32_t i = 1;
    for (std::uint32_t order = order_of(1); order > wanted; --order) {
      // The child with the smaller free block that is large enough; of equal ones the left one.
      const std::uint8_t left = largest_[2 * i];
      const std::uint8_t right = largest_[2 * i + 1];
      i = 2 * i + (left > wanted && (right <= wanted || left <= right) ? 0 : 1);
    }
    const std::uint32_t position = i - (width_ >> wanted);
    largest_[i] = 0;
    std::uint32_t order = wanted;
    while (i > 1 && update(i /= 2, ++order)) continue;
    return tree_.at(level, position);
  }
  void release(apiary::cell_id c) {
    const apiary::level_t level = tree_.level(c);
    std::uint32_t order = order_[level];
    std::uint32_t i = (width_ >> order) + tree_.index(c, level);
    largest_[i] = static_cast<std::uint8_t>(order + 1);
    while (i > 1 && update(i /= 2, ++order)) continue;
  }

 private:
  [[nodiscard]] std::uint32_t order_of(std::uint32_t i) const {
    return static_cast<std::uint32_t>(std::bit_width(width_) - std::bit_width(i));
  }
  // Returns whether the number of block i is another one now.
  bool update(std::uint32_t i, std::uint32_t order) {
    const std::uint8_t left = largest_[2 * i];
    const std::uint8_t right = largest_[2 * i + 1];
    const std::uint8_t before = largest_[i];
    largest_[i] = left == order && right == order ? static_cast<std::uint8_t>(order + 1)
                                                  : std::max(left, right);
    return largest_[i] != before;
  }

  apiary::uniform_tree tree_;
  std::uint32_t width_;
  std::vector<std::uint8_t> largest_;  // 1 + log2 of the largest free block inside; 0: none
  std::vector<std::uint32_t> order_;   // of each level: log2 of its leaves
};

// A bit for each leaf. Takes the first cell of the level whose leaves are all free.
template <apiary::CellTree Tree>
class leaf_bitmap {
 public:
  explicit leaf_bitmap(const Tree& tree)
      : tree_(tree), free_(tree.cells(0).size(), true), first_(tree.num_levels()) {}
  std::optional<apiary::cell_id> allocate(apiary::level_t level) {
    const std::uint32_t base = tree_.cells(0).first.value;
    for (std::uint32_t leaf = free_.find_next(first_[level]); leaf < free_.size();
         leaf = free_.find_next(leaf)) {
      const apiary::cell_id c = tree_.ancestor(apiary::cell_id(base + leaf), level);
      const auto inside = tree_.descendants(c, 0);
      leaf = inside.last.value - base;
      first_[level] = leaf;  // nothing before it is free
      if (!free_.all_of(inside.first.value - base, leaf)) continue;
      free_.reset_range(inside.first.value - base, leaf);
      return c;
    }
    first_[level] = free_.size();
    return std::nullopt;
  }
  void release(apiary::cell_id c) {
    const std::uint32_t base = tree_.cells(0).first.value;
    const auto inside = tree_.descendants(c, 0);
    free_.set_range(inside.first.value - base, inside.last.value - base);
    for (apiary::level_t l = 0; l < tree_.num_levels(); ++l) {
      const apiary::cell_id above = l < tree_.level(c) ? c : tree_.ancestor(c, l);
      first_[l] = std::min(first_[l], tree_.descendants(above, 0).first.value - base);
    }
  }

 private:
  Tree tree_;
  apiary::summary_bitset free_;
  std::vector<std::uint32_t> first_;  // of each level: no cell that begins before this leaf is free
};

// A red-black tree of the free cells of each level. Chooses as buddy_allocator does.
template <apiary::CellTree Tree>
class free_sets {
 public:
  explicit free_sets(const Tree& tree) : tree_(tree), free_(tree.num_levels()) {
    for (const apiary::cell_id c : tree.cells(tree.num_levels() - 1)) free_.back().insert(c);
  }
  std::optional<apiary::cell_id> allocate(apiary::level_t level) {
    apiary::level_t l = level;
    while (free_[l].empty())
      if (++l == free_.size()) return std::nullopt;
    apiary::cell_id c = *free_[l].begin();
    free_[l].erase(free_[l].begin());
    while (l > level) {
      const auto parts = tree_.children(c, l--);
      c = parts.first;
      for (const apiary::cell_id p : parts)
        if (p != c) free_[l].insert(p);
    }
    return c;
  }
  void release(apiary::cell_id c) {
    apiary::level_t l = tree_.level(c);
    for (apiary::cell_id above = tree_.parent(c, l); above.valid(); above = tree_.parent(c, ++l)) {
      const auto buddies = tree_.children(above, l + 1);
      auto at = free_[l].lower_bound(buddies.first);
      const auto begin = at;
      std::uint32_t found = 0;
      for (; at != free_[l].end() && *at < buddies.last; ++at) ++found;
      if (found + 1 < buddies.size()) break;
      free_[l].erase(begin, at);
      c = above;
    }
    free_[l].insert(c);
  }

 private:
  Tree tree_;
  std::vector<std::set<apiary::cell_id>> free_;
};

// Of the smallest free cells that suffice, the one in the rack with the fewest free leaves. Looks at each
// of them: for its choices, not for its speed.
template <apiary::CellTree Tree>
class fullest_rack_scan {
 public:
  explicit fullest_rack_scan(const Tree& tree) : cells_(tree), free_leaves_(tree.num_cells()) {
    for (const apiary::cell_id r : tree.cells(tree.num_levels() - 1))
      free_leaves_[r.value] = tree.descendants(r, 0).size();
  }
  std::optional<apiary::cell_id> allocate(apiary::level_t level) {
    const auto c = cells_.allocate({.level = level},
                                   [&](apiary::cell_id f) { return free_leaves_[rack(f).value]; });
    if (c) free_leaves_[rack(*c).value] -= cells_.tree().descendants(*c, 0).size();
    return c;
  }
  void release(apiary::cell_id c) {
    free_leaves_[rack(c).value] += cells_.tree().descendants(c, 0).size();
    cells_.release(c);
  }

 private:
  [[nodiscard]] apiary::cell_id rack(apiary::cell_id c) const {
    return cells_.tree().ancestor(c, cells_.tree().num_levels() - 1);
  }
  apiary::buddy_allocator<Tree> cells_;
  std::vector<std::uint32_t> free_leaves_;  // of each rack
};

}  // namespace apiary_bench
