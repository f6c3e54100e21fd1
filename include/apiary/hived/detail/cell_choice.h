// apiary/hived/detail/cell_choice.h - chooses physical cells for the cells of a tenant, and ranks those that can be granted.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Chooses the physical cell for a whole cell of a tenant: a healthy cell of the level that can be
// granted, if there is one. The first cell without opportunistic leaves comes first, then the cells
// with the fewest of them among those in the smallest free cells.
// Cost: as reserving_buddy_allocator::find with a bitset, for each number of opportunistic leaves
//       below the leaves of a node; above the nodes O(cells of the level) if all cells have many.
[[nodiscard]] inline std::optional<cell_id> choose_whole_cell(const physical_chain& chain,
                                                              level_t l) {
  const reserving_buddy_allocator& cells = chain.cells();
  if (const auto c = cells.find({.level = l, .usable = &chain.without_opportunistic()})) return c;
  const summary_bitset* const healthy = &chain.healthy().usable();
  const auto any = cells.find({.level = l, .usable = healthy});
  if (!any) return any;
  const level_t from = *cells.cells().enclosing_free_level(*any);
  for (std::uint32_t most = 1; most < chain.node_leaves(); ++most) {
    const summary_bitset* const few = &chain.few_opportunistic(most);
    if (const auto c = cells.find({.level = l, .highest = from, .usable = few})) return c;
  }
  if (l <= chain.node_level()) return any;
  return cells.find({.level = l, .highest = from, .usable = healthy},
                    [&](cell_id c) { return chain.opportunistic_leaves(c); });
}
// Chooses the physical cell for a child of a bound cell: the first unbound cell with the fewest
// opportunistic leaves among the physical cell's children. Requires: a child is unbound
// (APIARY_VERIFY). Cost: O(children).
[[nodiscard]] inline cell_id choose_child_cell(const physical_chain& chain,
                                               id_range<cell_id> children) noexcept {
  cell_id best;
  std::uint32_t least = 0;
  for (const cell_id p : children) {
    if (chain.owner(p).cell.valid()) continue;
    const std::uint32_t opportunistic = chain.opportunistic_leaves(p);
    if (best.valid() && opportunistic >= least) continue;
    best = p;
    least = opportunistic;
    if (least == 0) break;
  }
  APIARY_VERIFY(best.valid());
  return best;
}

// A cell that can be granted.
struct grant_candidate {
  std::uint32_t tasks = 0;     // usable leaves / task_gpus, rounded down, summed over its nodes
  std::uint32_t unusable = 0;  // leaves
  std::uint32_t opportunistic = 0;  // leaves with an opportunistic task
  cell_id cell{};
};

// Ranks the cells of a level that can be granted (reserving_buddy_allocator): first the cell that
// can hold the most tasks of `task_gpus` leaves. Ties: most usable leaves, then fewest
// opportunistic leaves, then the smallest enclosing free cell, then the lowest id.
// Cost: O(n log n) for n cells of the level, and O(nodes in them); next O(levels) for each cell.
class grant_ranking {
 public:
  // The cells, best first; the span is valid until the next call. Requires: task_gpus > 0.
  std::span<const grant_candidate> operator()(const physical_chain& chain, level_t level,
                                              const health<uniform_tree>& usable,
                                              std::uint32_t task_gpus) {
    const uniform_tree& tree = chain.tree();
    const summary_bitset& free = chain.cells().cells().free_cells();
    const level_t at = (std::min)(level, chain.node_level());
    const std::uint32_t size = tree.leaves_per_cell(at);
    ranked_.clear();
    next_ = 0;
    for (level_t from = level; from <= chain.cells().highest_safe(level); ++from) {
      const id_range<cell_id> all = tree.cells(from);
      for (std::uint32_t f = free.find_next(all.first.value); f < all.last.value;
           f = free.find_next(f + 1)) {
        for (const cell_id cell : tree.descendants(cell_id(f), level)) {
          std::uint32_t tasks = 0;
          for (const cell_id node : tree.descendants(cell, at))
            tasks += (size - usable.bad_leaves(node)) / task_gpus;
          ranked_.push_back(
              {tasks, usable.bad_leaves(cell), chain.opportunistic_leaves(cell), cell});
        }
      }
    }
    merge_sort(ranked_, [](const grant_candidate& a, const grant_candidate& b) {
      return std::tie(b.tasks, a.unusable, a.opportunistic) <
             std::tie(a.tasks, b.unusable, b.opportunistic);
    });
    return ranked_;
  }
  // Starts again with the best cell. Requires: a rollback has made the ranked cells free again.
  void restart() noexcept { next_ = 0; }
  // How many cells of the ranking next() has looked at.
  [[nodiscard]] std::size_t visited() const noexcept { return next_; }
  // The next cell that can still be granted, after `skip` such cells; not valid: none is left.
  // Cells in completely usable free cells of one level are equal: all of them count as one skip.
  cell_id next(const physical_chain& chain, const health<uniform_tree>& usable,
               std::uint32_t skip) noexcept {
    const reserving_buddy_allocator& cells = chain.cells();
    std::uint64_t passed = 0;  // bit l: a cell in a usable free cell of level l was skipped
    for (; next_ < ranked_.size(); ++next_) {
      const cell_id cell = ranked_[next_].cell;
      if (!cells.can_allocate_at(cell)) continue;
      const level_t from = *cells.cells().enclosing_free_level(cell);
      const bool whole = usable.healthy(chain.tree().ancestor(cell, from));
      if (whole && (passed >> from & 1U) != 0) continue;
      if (skip == 0) return ranked_[next_++].cell;
      --skip;
      if (whole) passed |= std::uint64_t{1} << from;
    }
    return cell_id();
  }

 private:
  lean_vector<grant_candidate> ranked_;
  std::size_t next_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
