// apiary/alloc/best_fit_allocator.h - allocates cells so that racks stay whole.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Allocates aligned blocks of GPUs (cells of a tree of at most 32 levels) where they disturb large
// free blocks least. It descends from the top level. At each level it takes the cell whose largest
// free cell is the smallest one that suffices; of equal cells it takes the one with the lowest id.
// Use it instead of buddy_allocator if racks and nodes should become free again: buddy_allocator
// takes the smallest free cell of the whole cluster, also if it is in a rack that is almost free.
//
// Model:    best fit, applied to the racks, then to the nodes of the rack, and so on; the largest
//           free block of each subtree is stored as in a binary buddy tree (spaskalev/buddy_alloc).
// Cost:     allocate, release O(levels * fan-out + log64 (levels * cells of the top level)).
//           Memory: 1 byte a cell, and `levels` bits for each cell of the top level.
// Invalid:  release of a cell that is not live aborts (APIARY_VERIFY).
// Example:  examples/measure_your_allocator.cpp
template <CellTree Tree>
class best_fit_allocator {
 public:
  // At first all cells are free.
  explicit best_fit_allocator(Tree tree)
      : tree_(std::move(tree)),
        largest_(tree_.num_cells()),
        roots_(tree_.num_levels() * tree_.cells(top()).size()) {
    APIARY_VERIFY(tree_.num_levels() <= free_count_.size());
    for (level_t l = 0; l <= top(); ++l)
      for (const cell_id c : tree_.cells(l)) largest_[c.value] = whole(l);
    const id_range<cell_id> roots = tree_.cells(top());
    roots_.set_range(position(roots.first), position(roots.first) + roots.size());
    free_count_[top()] = roots.size();
  }

  // The cell that allocate would return; nullopt if there is none.
  [[nodiscard]] std::optional<cell_id> find(level_t level) const noexcept {
    const cell_id c = best(level);
    return c.valid() ? std::optional(c) : std::nullopt;
  }
  // Allocates a cell of the level; nullopt if there is no free one.
  std::optional<cell_id> allocate(level_t level) {
    const cell_id c = best(level);
    if (!c.valid()) return std::nullopt;
    take(c, level);
    return c;
  }
  // Allocates c if it is free or inside a free cell. Returns whether it did.
  bool allocate_at(cell_id c) {
    if (!enclosing_free_level(c)) return false;
    take(c, tree_.level(c));
    return true;
  }
  // Releases the live cell c and merges it with its buddies as long as all of them are free.
  void release(cell_id c) {
    APIARY_VERIFY(c.value < tree_.num_cells() && is_live(c));
    level_t l = tree_.level(c);
    std::uint8_t size = whole(l);
    largest_[c.value] = size;
    ++free_count_[l];
    for (cell_id above = tree_.parent(c, l); above.valid(); above = tree_.parent(c, ++l)) {
      const id_range<cell_id> buddies = tree_.children(above, l + 1);
      if (size == whole(l) && all_whole(buddies, l)) {
        free_count_[l] -= buddies.size();
        ++free_count_[l + 1];
        size = whole(l + 1);
      }
      if (largest_[above.value] >= size) return;
      if (l + 1 == top() && largest_[above.value] != full) roots_.reset(position(above));
      largest_[above.value] = size;
      c = above;
    }
    roots_.set(position(c));
  }

  // Free cells of level l that are not inside a larger free cell.
  [[nodiscard]] std::uint32_t free_count(level_t l) const noexcept {
    APIARY_ASSERT(l <= top());
    return free_count_[l];
  }
  // The level of the free cell that is c or contains c; nullopt if a leaf of c is in a live cell.
  [[nodiscard]] std::optional<level_t> enclosing_free_level(cell_id c) const noexcept {
    level_t l = tree_.level(c);
    if (largest_[c.value] != whole(l)) return std::nullopt;
    level_t free = l;
    for (c = tree_.parent(c, l); c.valid(); c = tree_.parent(c, l)) {
      if (is_live(c)) return std::nullopt;
      if (largest_[c.value] == whole(++l)) free = l;
    }
    return free;
  }
  // Whether c itself was allocated and not released.
  [[nodiscard]] bool is_live(cell_id c) const noexcept {
    APIARY_ASSERT(c.value < tree_.num_cells());
    return largest_[c.value] == live;
  }
  // The tree whose cells are allocated.
  [[nodiscard]] const Tree& tree() const noexcept { return tree_; }
  // Bytes on the heap, without the tree.
  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    return largest_.capacity() + roots_.memory_bytes();
  }
  // Whether both have the same free and live cells. Requires: allocators of the same tree.
  friend bool operator==(const best_fit_allocator& a, const best_fit_allocator& b) noexcept {
    return a.largest_ == b.largest_;
  }

 private:
  // Values of largest_: the cell is live, nothing in it is free, or 2 + the level of the largest
  // free cell in it. Below a cell that is live or free, all cells have the value of a free cell.
  static constexpr std::uint8_t live = 0;
  static constexpr std::uint8_t full = 1;
  [[nodiscard]] static std::uint8_t whole(level_t l) noexcept {
    return static_cast<std::uint8_t>(l + 2);
  }
  [[nodiscard]] level_t top() const noexcept { return tree_.num_levels() - 1; }
  // Of a cell of the top level in roots_. Requires: something in it is free.
  [[nodiscard]] std::uint32_t position(cell_id root) const noexcept {
    const id_range<cell_id> roots = tree_.cells(top());
    return (largest_[root.value] - whole(0)) * roots.size() + (root.value - roots.first.value);
  }
  [[nodiscard]] bool all_whole(id_range<cell_id> cells, level_t l) const noexcept {
    for (const cell_id c : cells)
      if (largest_[c.value] != whole(l)) return false;
    return true;
  }

  // The cell to allocate; not valid if there is none.
  [[nodiscard]] cell_id best(level_t level) const noexcept {
    APIARY_ASSERT(level <= top());
    const id_range<cell_id> roots = tree_.cells(top());
    std::uint32_t at = roots_.find_next(level * roots.size());
    if (at == summary_bitset::npos) return cell_id();
    while (at >= roots.size()) at -= roots.size();  // at most one subtraction for each level
    cell_id c = roots[at];
    for (level_t l = top(); l > level; --l) {
      // The least pair (largest free cell, id); no branch, it would be mispredicted.
      std::uint64_t least = ~std::uint64_t{0};
      for (const cell_id inside : tree_.children(c, l)) {
        const std::uint64_t size = largest_[inside.value];
        const std::uint64_t pair = size << 32 | inside.value;
        least = size >= whole(level) && pair < least ? pair : least;
      }
      c = cell_id(static_cast<std::uint32_t>(least));
    }
    return c;
  }
  // Marks c of the level as live. Requires: it is free or inside a free cell.
  void take(cell_id c, level_t level) noexcept {
    std::uint8_t before = largest_[c.value];
    std::uint8_t size = full;  // the largest free cell that is left in c
    --free_count_[level];
    if (level == top()) roots_.reset(position(c));
    largest_[c.value] = live;
    for (level_t l = level; l < top(); ++l) {
      const cell_id above = tree_.parent(c, l);
      const id_range<cell_id> buddies = tree_.children(above, l + 1);
      const std::uint8_t was = largest_[above.value];
      if (was == whole(l + 1)) {
        free_count_[l] += buddies.size();
        --free_count_[l + 1];
      } else if (was > before) {
        return;
      }
      for (const cell_id b : buddies) size = (std::max)(size, largest_[b.value]);
      if (size == was) return;
      if (l + 1 == top()) roots_.reset(position(above));
      largest_[above.value] = size;
      if (l + 1 == top() && size != full) roots_.set(position(above));
      before = was;
      c = above;
    }
  }

  Tree tree_;
  std::vector<std::uint8_t> largest_;           // of each cell
  summary_bitset roots_;                        // pairs (largest free level, cell of the top level)
  std::array<std::uint32_t, 32> free_count_{};  // of each level
};

APIARY_NAMESPACE_END
