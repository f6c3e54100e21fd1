// apiary/alloc/feasibility.h - whether promised cells can all be granted from free ones.
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

// Whether promised[l] cells of every level l fit disjointly into the free cells of a uniform tree,
// free[l] of each level l, none part of another. Exact: all cells of a level split alike, so the
// largest first never goes wrong. The same test serves where some leaves are bad or pinned, with
// the counts of the maximal cells that are left.
//
// Model:    HiveD (OSDI 2020) section 4: with S[top] = free[top] - promised[top] and
//           S[l] = free[l] - promised[l] + S[l+1] * fan-out, all S[l] >= 0.
// Requires: num_levels() entries in each span; free cells that the tree can have, those of all
//           levels disjoint.
// Cost:     O(levels).
// Example:  examples/quota_feasibility.cpp
[[nodiscard]] inline bool can_grant_all(const uniform_tree& tree,
                                        std::span<const std::uint32_t> free,
                                        std::span<const std::uint64_t> reserved) noexcept {
  APIARY_ASSERT(free.size() == tree.num_levels() && reserved.size() == tree.num_levels());
  std::uint64_t left = 0;  // cells of the level above that nothing of that level or higher needs
  for (level_t l = tree.num_levels(); l-- > 0;) {
    const std::uint64_t parts = l + 1 < tree.num_levels() ? left * tree.fan_out(l + 1) : 0;
    const std::uint64_t present = parts + free[l];
    if (present < reserved[l]) return false;
    APIARY_ASSERT(present <= tree.cells(l).size());
    left = present - reserved[l];
  }
  return true;
}

// Whether promised[l] usable cells of every level l can be taken from the free cells of any tree,
// shown by taking them: largest first, each from the smallest free cell that holds one, of those
// the one with the fewest leaves. true is always right. On a ragged tree cells of a level differ,
// finding out exactly is a packing problem, and false may be wrong; on a uniform tree false is
// right too. Pinned cells are live cells of `scratch`.
//
// Requires: num_levels() entries in promised.
// Cost:     O(cells) for each level with promised cells, and O(promised cells * cells); the latter
//           on a uniform tree nearly O(promised cells * levels).
template <CellTree Tree>
[[nodiscard]] bool can_grant_all(buddy_allocator<Tree> scratch, const summary_bitset& usable,
                                 std::span<const std::uint64_t> reserved) {
  APIARY_ASSERT(reserved.size() == scratch.tree().num_levels());
  for (level_t l = scratch.tree().num_levels(); l-- > 0;) {
    if (reserved[l] == 0) continue;
    // A single leaf more than needed costs 1: where all cells are alike, the first one is as good.
    std::uint32_t fewest = ~std::uint32_t{0};
    for (const cell_id c : scratch.tree().cells(l)) {
      const std::uint32_t n = leaves(scratch.tree(), c).size();
      if (n < fewest) fewest = n;
    }
    for (std::uint64_t i = 0; i < reserved[l]; ++i) {
      const auto more_than_fewest = [&](cell_id c) {
        return leaves(scratch.tree(), c).size() - fewest;
      };
      if (!scratch.allocate({.level = l, .usable = &usable}, more_than_fewest)) return false;
    }
  }
  return true;
}

APIARY_NAMESPACE_END
