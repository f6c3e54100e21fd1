// apiary/alloc/healthy_free.h - how many healthy cells of each level are free.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/buddy_allocator.h>
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/topology/health.h>
#include <apiary/topology/tree.h>

#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Keeps, for every level, the number of healthy free cells, including those inside larger free
// cells. With quota_ledger::doomed it tells how many cells of a tenant must be on bad hardware.
//
// Requires: every change of the allocator or of the health is made by a call of update.
// Cost:     update O(levels + cells inside / 64), plus the free cells inside if the cell is neither
//           live nor completely free; count O(1).
// Example:  examples/quota_feasibility.cpp
template <CellTree Tree>
class healthy_free {
 public:
  // Counts the healthy free cells. Both arguments refer to the same tree.
  healthy_free(const buddy_allocator<Tree>& cells, const health<Tree>& state)
      : counts_(cells.tree().num_levels(), 0) {
    for (const cell_id root : cells.tree().cells(cells.tree().num_levels() - 1))
      account(cells, state, root, 1);
  }

  // Updates the counts after change(), which may allocate, release or mark only c and cells in it.
  template <class Change>
  void update(const buddy_allocator<Tree>& cells, const health<Tree>& state, cell_id c,
              Change&& change) {
    account(cells, state, c, ~std::uint32_t{0});
    change();
    account(cells, state, c, 1);
  }

  // Healthy free cells of level l.
  [[nodiscard]] std::uint32_t count(level_t l) const noexcept {
    APIARY_ASSERT(l < counts_.size());
    return counts_[l];
  }
  friend bool operator==(const healthy_free&, const healthy_free&) = default;

 private:
  // Adds `times` the number of healthy free cells inside and above c.
  void account(const buddy_allocator<Tree>& cells, const health<Tree>& state, cell_id c,
               std::uint32_t times) noexcept {
    const Tree& tree = cells.tree();
    level_t l = tree.level(c);
    if (const auto from = cells.enclosing_free_level(c)) {
      add_inside(tree, state, c, l, times);
      for (; l < *from; ++l) {
        c = tree.parent(c, l);
        if (state.healthy(c)) counts_[l + 1] += times;
      }
      return;
    }
    if (cells.is_live(c)) return;
    while (l-- > 0) {
      const id_range<cell_id> inside = tree.descendants(c, l);
      for (std::uint32_t f = cells.free_cells().find_next(inside.first.value);
           f < inside.last.value; f = cells.free_cells().find_next(f + 1)) {
        add_inside(tree, state, cell_id(f), l, times);
      }
    }
  }
  void add_inside(const Tree& tree, const health<Tree>& state, cell_id c, level_t level,
                  std::uint32_t times) noexcept {
    for (level_t l = 0; l <= level; ++l) {
      const id_range<cell_id> inside = tree.descendants(c, l);
      counts_[l] += times * state.usable().count_of(inside.first.value, inside.last.value);
    }
  }

  std::vector<std::uint32_t> counts_;
};

APIARY_NAMESPACE_END
