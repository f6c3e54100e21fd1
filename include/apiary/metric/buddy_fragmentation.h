// apiary/metric/buddy_fragmentation.h - external fragmentation of the free cells of a tree.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <array>
#include <cstdint>
#include <span>

APIARY_NAMESPACE_BEGIN

// The external fragmentation of a buddy allocator: how much of what is free cannot serve a request
// of a given size. It counts the free cells by level; no free cell is inside another.
//
// Model:   the unusable free space index of memory allocators (Gorman, Whitcroft, 2006).
// Example: examples/churn.cpp
struct buddy_fragmentation {
  // The most levels of a tree that it can measure.
  static constexpr level_t max_levels = 32;
  // Nothing is free.
  buddy_fragmentation() = default;
  // Measures a uniform tree with free[l] free cells of each level l. Cost: O(levels).
  buddy_fragmentation(const uniform_tree& tree, std::span<const std::uint32_t> free) noexcept {
    APIARY_ASSERT(free.size() == tree.num_levels());
    for (level_t l = 0; l < tree.num_levels(); ++l) add(l, free[l], tree.leaves_per_cell(l));
  }
  // Measures any tree of at most 32 levels. free: the free cells, as a set of the values of their
  // ids. Cost: O(levels * free cells).
  template <CellTree Tree>
  buddy_fragmentation(const Tree& tree, const summary_bitset& free) noexcept {
    APIARY_ASSERT(free.size() == tree.num_cells() && tree.num_levels() <= max_levels);
    for (level_t l = 0; l < tree.num_levels(); ++l) {
      const id_range<cell_id> level = tree.cells(l);
      for (std::uint32_t c = free.find_next(level.first.value); c < level.last.value;
           c = free.find_next(c + 1)) {
        add(l, 1, tree.descendants(cell_id(c), 0).size());
      }
    }
  }

  std::array<std::uint32_t, max_levels> free_cells{};   // of each level
  std::array<std::uint64_t, max_levels> free_leaves{};  // inside the free cells of each level

  // Leaves in free cells of this level and above.
  [[nodiscard]] std::uint64_t leaves_from(level_t l) const noexcept {
    std::uint64_t sum = 0;
    for (; l < max_levels; ++l) sum += free_leaves[l];
    return sum;
  }
  // The fraction of the free leaves that no request of level l can use: 0 if all free leaves are in
  // free cells of level l or above, 1 if none is. It is 0 if nothing is free.
  [[nodiscard]] double unusable(level_t l) const noexcept {
    const std::uint64_t all = leaves_from(0);
    if (all == 0) return 0;
    return 1 - static_cast<double>(leaves_from(l)) / static_cast<double>(all);
  }
  friend bool operator==(const buddy_fragmentation&, const buddy_fragmentation&) = default;

 private:
  // Adds `cells` free cells of level l with this many leaves each.
  void add(level_t l, std::uint32_t cells, std::uint32_t leaves) noexcept {
    free_cells[l] += cells;
    free_leaves[l] += std::uint64_t{cells} * leaves;
  }
};

APIARY_NAMESPACE_END
