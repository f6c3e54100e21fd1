// apiary/hived/detail/device_choice.h - chooses the GPUs of a node for a task.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The cells of one node as ranges of bits; a cell of level l has sizes[l] GPUs.
struct node_cells {
  std::span<const std::uint32_t> sizes;

  struct cell {
    std::size_t level;
    std::uint32_t first;  // GPU
  };

  static std::uint32_t count(std::uint64_t gpus) noexcept {
    return static_cast<std::uint32_t>(std::popcount(gpus));
  }
  [[nodiscard]] std::uint64_t mask(cell c) const noexcept {
    return ~std::uint64_t{0} >> (64 - sizes[c.level]) << c.first;
  }
  // Step 2 of choose_gpus. Requires: 0 < n <= count(pool).
  [[nodiscard]] cell lowest_cell(std::uint64_t pool, std::uint64_t preferred,
                                 std::uint32_t n) const noexcept {
    for (cell c{0, 0};; ++c.level) {
      if (sizes[c.level] < n) continue;
      std::uint64_t ties = 0;
      std::uint32_t best = 0;
      for (c.first = 0; c.first < sizes.back(); c.first += sizes[c.level]) {
        const std::uint32_t there = count(pool & mask(c));
        if (there < n) continue;
        const std::uint32_t good = count(preferred & mask(c));
        const std::uint32_t rank = (good < n ? good : n) * 128 + (128 - there);
        if (rank > best) ties = 0;
        if (rank >= best) {
          best = rank;
          ties |= mask(c);
        }
      }
      if (ties == 0) continue;
      // Among equals, those in the emptiest parent, then in the emptiest grandparent, ...
      for (cell above{c.level + 1, 0}; above.level + 1 < sizes.size(); ++above.level) {
        std::uint64_t left = 0;
        std::uint32_t fewest = 65;
        for (above.first = 0; above.first < sizes.back(); above.first += sizes[above.level]) {
          if ((ties & mask(above)) == 0) continue;
          const std::uint32_t there = count(pool & mask(above));
          if (there < fewest) left = 0;
          if (there <= fewest) {
            fewest = there;
            left |= ties & mask(above);
          }
        }
        ties = left;
      }
      c.first = static_cast<std::uint32_t>(std::countr_zero(ties));
      return c;
    }
  }
  // Step 3 of choose_gpus. Requires: k <= count(pool & mask(c)).
  [[nodiscard]] std::uint64_t fill(cell c, std::uint64_t pool, std::uint32_t k) const noexcept {
    std::uint64_t chosen = 0;
    pool &= mask(c);
    while (k > 0 && c.level > 1) {
      // Whole children, those with the most GPUs first.
      const cell end{c.level, c.first + sizes[c.level]};
      std::uint32_t next = 0;
      for (std::uint32_t size = k; size > 0; size = next < k ? next : k) {
        next = 0;
        for (cell child{c.level - 1, c.first}; child.first < end.first;
             child.first += sizes[child.level]) {
          const std::uint64_t gpus = pool & mask(child);
          const std::uint32_t there = count(gpus);
          if (there == size && there <= k) {
            chosen |= gpus;
            pool ^= gpus;
            k -= there;
          } else if (there < size && there > next) {
            next = there;
          }
        }
      }
      if (k == 0) return chosen;
      c = lowest_cell(pool, 0, k);
      pool &= mask(c);
    }
    for (; k > 0; --k, pool &= pool - 1) chosen |= pool & -pool;
    return chosen;
  }
};

// Chooses n GPUs of a node for a task, close together, and keeps the other GPUs in whole cells. Bit
// i of `available` is GPU i. `preferred` GPUs are idle; the others need a preemption.
// 1. If n GPUs are preferred, the pool is the preferred GPUs, otherwise all available ones.
// 2. The cell: on the lowest level where a cell has n GPUs of the pool, the cell with the most
//    preferred GPUs (at most n count), then with the fewest GPUs of the pool, then with the fewest
//    of them in its parent, in its grandparent, ..., then the first one.
// 3. In the cell: its preferred GPUs, if there are fewer than n. The missing k come from its other
//    GPUs of the pool: whole children with at most k of them, the largest first, then the first; if
//    there is none, k GPUs in the cell that step 2 gives for the rest; single GPUs in order.
// The lowest common cell is as low as possible, with the fewest preemptions at that level.
// Model:    HiveD (OSDI 2020), section 3: affinity inside a node; HiveD's search tries subsets.
// Requires: n <= number of available GPUs; `preferred` is a subset of `available`; cell_sizes are
//           the GPUs of a cell of each level: 1 first, each divides the next, at most 64 in the
//           last, the node, which contains all of `available`.
// Cost:     O(GPUs of the node) for each level that step 3 goes down.
[[nodiscard]] inline std::uint64_t choose_gpus(std::uint64_t available, std::uint64_t preferred,
                                               std::uint32_t n,
                                               std::span<const std::uint32_t> cell_sizes) noexcept {
  APIARY_ASSERT(!cell_sizes.empty() && cell_sizes.front() == 1 && cell_sizes.back() <= 64);
  APIARY_ASSERT((preferred & ~available) == 0);
  const node_cells cells{cell_sizes};
  APIARY_ASSERT((available & ~cells.mask({cell_sizes.size() - 1, 0})) == 0);
  APIARY_ASSERT(n <= cells.count(available));
  if (n == 0) return 0;
  if (cells.count(preferred) >= n) {
    const auto cell = cells.lowest_cell(preferred, preferred, n);
    return cells.fill(cell, preferred, n);
  }
  const auto cell = cells.lowest_cell(available, preferred, n);
  const std::uint64_t idle = preferred & cells.mask(cell);
  return idle | cells.fill(cell, available & ~preferred, n - cells.count(idle));
}

}  // namespace detail
APIARY_NAMESPACE_END
