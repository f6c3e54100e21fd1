// apiary/benchmarks/free_list_allocator.h - allocates the last cell of a list of free cells.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/buddy_allocator.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace apiary_bench {

using apiary::cell_id;
using apiary::CellTree;
using apiary::id_range;
using apiary::level_t;

// Allocates aligned blocks of GPUs as buddy_allocator does, but takes the last cell of a list, not
// the one with the lowest id. Each level has a list of its free cells. A cell that becomes free is
// added at the end. If a merge or allocate_at removes a cell from the middle, the last cell of the
// list moves there; so the last cell is not always the one that became free last. It breaks more
// racks (the page of alloc/ has the figures). If only speed counts, lazy_buddy_allocator is faster.
//
// Model:    Knuth, TAOCP volume 1, section 2.5, with a list for each level. Differs: arbitrary
//           fan-out; an index of the positions in the lists.
// Cost:     allocate, release O(levels * fan-out); no search. Memory: 4 bytes a cell; for each level
//           at most 8 times the most free cells that it ever had. It never shrinks.
// Invalid:  release of a cell that is not live aborts (APIARY_VERIFY).
// Example:  examples/measure_your_allocator.cpp
template <CellTree Tree>
class free_list_allocator {
 public:
  // At first all cells are free; the first one of the top level is the next to be allocated.
  explicit free_list_allocator(Tree tree)
      : tree_(std::move(tree)), position_(tree_.num_cells(), inside) {
    APIARY_VERIFY(tree_.num_levels() <= free_.size());
    const id_range<cell_id> roots = tree_.cells(top());
    for (std::uint32_t i = roots.size(); i-- > 0;) push(top(), roots[i]);
  }

  // Allocates a cell of the level; splits a larger one if there is none. nullopt if there is no
  // free cell of the level or above.
  std::optional<cell_id> allocate(level_t level) {
    APIARY_ASSERT(level <= top());
    level_t l = level;
    while (free_[l].empty())
      if (++l > top()) return std::nullopt;
    cell_id c = free_[l].back();
    free_[l].pop_back();
    while (l > level) {
      position_[c.value] = inside;
      const id_range<cell_id> parts = tree_.children(c, l--);
      for (std::uint32_t i = parts.size(); i-- > 1;) push(l, parts[i]);
      c = parts.first;
    }
    position_[c.value] = live;
    return c;
  }
  // Allocates c if it is free or inside a free cell. Returns whether it did.
  bool allocate_at(cell_id c) {
    const std::optional<level_t> from = enclosing_free_level(c);
    if (!from) return false;
    const level_t level = tree_.level(c);
    cell_id above = tree_.ancestor(c, *from);
    remove(*from, above);
    for (level_t l = *from; l > level; --l) {
      position_[above.value] = inside;
      const cell_id keep = tree_.ancestor(c, l - 1);
      const id_range<cell_id> parts = tree_.children(above, l);
      for (std::uint32_t i = parts.size(); i-- > 0;)
        if (parts[i] != keep) push(l - 1, parts[i]);
      above = keep;
    }
    position_[c.value] = live;
    return true;
  }
  // Releases the live cell c and merges it with its buddies as long as all of them are free.
  void release(cell_id c) {
    APIARY_VERIFY(c.value < tree_.num_cells() && is_live(c));
    level_t l = tree_.level(c);
    for (cell_id above = tree_.parent(c, l); above.valid(); above = tree_.parent(c, ++l)) {
      const id_range<cell_id> buddies = tree_.children(above, l + 1);
      if (!all_free_but(buddies, c)) break;
      for (const cell_id b : buddies) {
        if (b != c) remove(l, b);
        position_[b.value] = inside;
      }
      c = above;
    }
    push(l, c);
  }

  // Free cells of level l that are not inside a larger free cell.
  [[nodiscard]] std::uint32_t free_count(level_t l) const noexcept {
    APIARY_ASSERT(l <= top());
    return static_cast<std::uint32_t>(free_[l].size());
  }
  // The level of the free cell that is c or contains c; nullopt if a leaf of c is in a live cell.
  [[nodiscard]] std::optional<level_t> enclosing_free_level(cell_id c) const noexcept {
    return apiary::detail::enclosing_free_level(tree_, c,
                                                [this](cell_id above) { return is_free(above); });
  }
  // Whether c itself was allocated and not released.
  [[nodiscard]] bool is_live(cell_id c) const noexcept { return position_[c.value] == live; }
  // Whether c is free and not inside a larger free cell.
  [[nodiscard]] bool is_free(cell_id c) const noexcept { return position_[c.value] < live; }
  // The tree whose cells are allocated.
  [[nodiscard]] const Tree& tree() const noexcept { return tree_; }
  // Bytes on the heap, without the tree.
  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    std::size_t cells = position_.capacity();
    for (const std::vector<cell_id>& list : free_) cells += list.capacity();
    return cells * sizeof(std::uint32_t);
  }
  // Whether both have the same free and live cells; the order of the lists may differ.
  // Requires: allocators of the same tree.
  friend bool operator==(const free_list_allocator& a, const free_list_allocator& b) noexcept {
    return std::equal(a.position_.begin(), a.position_.end(), b.position_.begin(),
                      [](std::uint32_t x, std::uint32_t y) { return kind(x) == kind(y); });
  }

 private:
  // Values of position_ that are no position in a list.
  static constexpr std::uint32_t live = ~std::uint32_t{1};
  static constexpr std::uint32_t inside = ~std::uint32_t{0};  // of a larger cell, or split

  [[nodiscard]] level_t top() const noexcept { return tree_.num_levels() - 1; }
  [[nodiscard]] static std::uint32_t kind(std::uint32_t position) noexcept {
    return position < live ? 0 : position;
  }
  [[nodiscard]] bool all_free_but(id_range<cell_id> buddies, cell_id c) const noexcept {
    for (const cell_id b : buddies)
      if (b != c && !is_free(b)) return false;
    return true;
  }
  void push(level_t l, cell_id c) {
    position_[c.value] = static_cast<std::uint32_t>(free_[l].size());
    free_[l].push_back(c);
  }
  // Removes c from the list of level l; the last cell moves to its position, which is not updated.
  void remove(level_t l, cell_id c) noexcept {
    const cell_id last = free_[l].back();
    free_[l][position_[c.value]] = last;
    position_[last.value] = position_[c.value];
    free_[l].pop_back();
  }

  Tree tree_;
  std::vector<std::uint32_t> position_;          // of each cell in the list of its level
  std::array<std::vector<cell_id>, 32> free_{};  // of each level
};

}  // namespace apiary_bench
