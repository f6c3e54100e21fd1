// apiary/alloc/feasibility.h - whether all reserved cells can be allocated from the free ones.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/buddy_allocator.h>
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

APIARY_NAMESPACE_BEGIN

// Whether reserved[l] cells of every level l fit disjointly into the free cells of a uniform tree.
// The tree has free[l] free cells of each level l, none inside another. The test is exact: all
// cells of a level split the same way, so placing the largest cells first is optimal. If some
// leaves are bad or pinned, pass the counts of the maximal cells without such leaves.
//
// Model:    HiveD (OSDI 2020) section 4: with S[top] = free[top] - reserved[top] and
//           S[l] = free[l] - reserved[l] + S[l+1] * fan-out, all S[l] >= 0.
// Requires: num_levels() entries in each span; disjoint free cells that the tree can have.
// Cost:     O(levels).
// Example:  examples/quota_feasibility.cpp
[[nodiscard]] inline bool can_grant_all(const uniform_tree& tree,
                                        std::span<const std::uint32_t> free,
                                        std::span<const std::uint64_t> reserved) noexcept {
  APIARY_ASSERT(free.size() == tree.num_levels() && reserved.size() == tree.num_levels());
  std::uint64_t left = 0;  // cells of the level above that no reservation there or higher needs
  for (level_t l = tree.num_levels(); l-- > 0;) {
    const std::uint64_t parts = l + 1 < tree.num_levels() ? left * tree.fan_out(l + 1) : 0;
    const std::uint64_t present = parts + free[l];
    if (present < reserved[l]) return false;
    APIARY_ASSERT(present <= tree.cells(l).size());
    left = present - reserved[l];
  }
  return true;
}

// Whether reserved[l] usable cells of every level l can be allocated from the free cells of any
// tree. The function tries it on `scratch`, the largest cells first. Each cell comes from the
// smallest free cell that contains one; ties go to the cell with the fewest leaves. The answer true
// is always right. The answer false is right on a uniform tree. On a ragged tree the exact problem
// is bin packing, and false may be wrong. Mark pinned cells as live cells of `scratch`.
//
// Requires: num_levels() entries in `reserved`.
// Cost:     O(cells) for each level with reserved cells, and O(reserved cells * cells); on a
//           uniform tree the second term is nearly O(reserved cells * levels).
template <CellTree Tree>
[[nodiscard]] bool can_grant_all(buddy_allocator<Tree> scratch, const summary_bitset& usable,
                                 std::span<const std::uint64_t> reserved) {
  APIARY_ASSERT(reserved.size() == scratch.tree().num_levels());
  for (level_t l = scratch.tree().num_levels(); l-- > 0;) {
    if (reserved[l] == 0) continue;
    // Each leaf above the minimum costs 1. If all cells are equal, the first one costs 0.
    std::uint32_t fewest = ~std::uint32_t{0};
    for (const cell_id c : scratch.tree().cells(l)) {
      const std::uint32_t n = scratch.tree().descendants(c, 0).size();
      if (n < fewest) fewest = n;
    }
    for (std::uint64_t i = 0; i < reserved[l]; ++i) {
      const auto more_than_fewest = [&](cell_id c) {
        return scratch.tree().descendants(c, 0).size() - fewest;
      };
      if (!scratch.allocate({.level = l, .usable = &usable}, more_than_fewest)) return false;
    }
  }
  return true;
}

APIARY_NAMESPACE_END
