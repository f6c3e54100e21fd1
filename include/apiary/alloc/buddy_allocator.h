// apiary/alloc/buddy_allocator.h - buddy allocation of cells of a tree.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/topology/tree.h>

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The level of the lowest cell that is c or contains c and for which is_free holds; nullopt if
// there is none. Cost: O(levels).
template <CellTree Tree, class IsFree>
[[nodiscard]] std::optional<level_t> enclosing_free_level(const Tree& tree, cell_id c,
                                                          const IsFree& is_free) noexcept {
  level_t l = tree.level(c);
  while (!is_free(c)) {
    c = tree.parent(c, l);
    if (!c.valid()) return std::nullopt;
    ++l;
  }
  return l;
}

}  // namespace detail

// A request for one cell.
struct cell_request {
  level_t level = 0;              // level of the cell
  level_t highest = ~level_t{0};  // free cells above this level are not split
  // If not null, only cells whose bit is set may be allocated. Requires: one bit for each cell; all
  // cells inside a usable cell are usable (topology/health.h makes such sets).
  const summary_bitset* usable = nullptr;
};

// Allocates aligned blocks of GPUs (cells of a tree of at most 32 levels) by splitting and merging.
// It splits a free cell only if no smaller one contains a candidate. Among the candidates in free
// cells of that lowest level it takes the one with the lowest cost, if a cost is given, and then
// the lowest id. A release merges at once, so the live cells determine the free ones.
//
// Model:    Knuth, TAOCP volume 1, section 2.5; HiveD (OSDI 2020) section 4. Differs: arbitrary
//           fan-out, first fit by id (a bitset with summaries), choice by cost.
// Cost:     allocate, release O(levels * log64 cells). With `usable`, one more step for each run of
//           free cells without a usable one. With a cost, one call for each candidate until a cost
//           is 0. Memory: 2 bits a cell.
// Invalid:  release of a cell that is not live aborts (APIARY_VERIFY).
// Example:  examples/buddy_allocation.cpp
template <CellTree Tree>
class buddy_allocator {
 public:
  // At first all cells are free.
  explicit buddy_allocator(Tree tree)
      : tree_(std::move(tree)), free_(tree_.num_cells()), live_(tree_.num_cells() / 64 + 1) {
    APIARY_VERIFY(tree_.num_levels() <= free_count_.size());
    for (level_t l = 0; l <= top(); ++l) no_free_below_[l] = tree_.cells(l).last.value;
    const id_range<cell_id> roots = tree_.cells(top());
    insert_free(top(), roots.first.value, roots.last.value);
  }

  // The cell that allocate would return; nullopt if there is none.
  [[nodiscard]] std::optional<cell_id> find(cell_request request) const noexcept {
    return optional(first(request));
  }
  // The same with the cost of each candidate, a number from cost(cell).
  template <std::invocable<cell_id> Cost>
  [[nodiscard]] std::optional<cell_id> find(cell_request request, const Cost& cost) const {
    return optional(cheapest(request, cost));
  }

  // Allocates a cell of the level; nullopt if there is no free one.
  std::optional<cell_id> allocate(level_t level) { return optional(take_first(level)); }
  // Allocates the cell that find returns; nullopt if there is none.
  std::optional<cell_id> allocate(cell_request request) { return take(first(request)); }
  // The same with a cost for each candidate.
  template <std::invocable<cell_id> Cost>
  std::optional<cell_id> allocate(cell_request request, const Cost& cost) {
    return take(cheapest(request, cost));
  }
  // Allocates c if it is free or inside a free cell. Returns whether it did.
  bool allocate_at(cell_id c) {
    const std::optional<level_t> from = enclosing_free_level(c);
    if (!from) return false;
    take(c, *from);
    return true;
  }
  // Releases the live cell c and merges it with its buddies as long as all of them are free.
  void release(cell_id c) {
    APIARY_VERIFY(c.value < tree_.num_cells() && is_live(c));
    live_[c.value / 64] &= ~bit(c);
    level_t l = tree_.level(c);
    for (cell_id above = tree_.parent(c, l); above.valid(); above = tree_.parent(c, ++l)) {
      const id_range<cell_id> buddies = tree_.children(above, l + 1);
      if (!free_.all_but(c.value, buddies.first.value, buddies.last.value)) break;
      merge(buddies, l);
      c = above;
    }
    free_.set(c.value);
    free_added(l, c.value, 1);
  }

  // Free cells of level l that are not inside a larger free cell.
  [[nodiscard]] std::uint32_t free_count(level_t l) const noexcept {
    APIARY_ASSERT(l < tree_.num_levels());
    return free_count_[l];
  }
  // The level of the free cell that is c or contains c; nullopt if a leaf of c is in a live cell.
  [[nodiscard]] std::optional<level_t> enclosing_free_level(cell_id c) const noexcept {
    return detail::enclosing_free_level(tree_, c,
                                        [this](cell_id above) { return free_.test(above.value); });
  }
  // Whether c itself was allocated and not released.
  [[nodiscard]] bool is_live(cell_id c) const noexcept {
    APIARY_ASSERT(c.value < tree_.num_cells());
    return (live_[c.value / 64] & bit(c)) != 0;
  }

  // The free cells by the value of their ids, without the cells inside a larger free cell.
  [[nodiscard]] const summary_bitset& free_cells() const noexcept { return free_; }
  // The tree whose cells are allocated.
  [[nodiscard]] const Tree& tree() const noexcept { return tree_; }
  // Bytes on the heap, without the tree.
  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    return free_.memory_bytes() + live_.capacity() * sizeof(std::uint64_t);
  }
  // Whether both have the same free and live cells. Requires: allocators of the same tree.
  friend bool operator==(const buddy_allocator& a, const buddy_allocator& b) noexcept {
    return a.free_ == b.free_ && a.live_ == b.live_ && a.free_count_ == b.free_count_;
  }

 private:
  // Private functions return a cell that may be not valid: an optional would go through memory.
  [[nodiscard]] static std::optional<cell_id> optional(cell_id c) noexcept {
    return c.valid() ? std::optional(c) : std::nullopt;
  }
  [[nodiscard]] static std::uint64_t bit(cell_id c) noexcept {
    return std::uint64_t{1} << (c.value % 64);
  }
  [[nodiscard]] level_t top() const noexcept { return tree_.num_levels() - 1; }
  [[nodiscard]] static level_t lowest(std::uint32_t levels) noexcept {
    return static_cast<level_t>(std::countr_zero(levels));
  }
  // The levels from request.level to request.highest that have free cells, as bits.
  [[nodiscard]] std::uint32_t levels_to_search(cell_request request) const noexcept {
    APIARY_ASSERT(request.level <= top());
    APIARY_ASSERT(request.usable == nullptr || request.usable->size() == tree_.num_cells());
    const std::uint32_t below_highest = request.highest < 31 ? (2U << request.highest) - 1 : ~0U;
    return levels_with_free_ & below_highest & (~0U << request.level);
  }

  // Adds the free cells first, ..., last-1 of level l.
  void insert_free(level_t l, std::uint32_t first, std::uint32_t last) noexcept {
    if (first == last) return;
    free_.set_range(first, last);
    free_added(l, first, last - first);
  }
  // Updates the counts after n > 0 cells of level l, the lowest `first`, were added to free_.
  void free_added(level_t l, std::uint32_t first, std::uint32_t n) noexcept {
    std::uint32_t& hint = no_free_below_[l];
    hint = first < hint ? first : hint;
    free_count_[l] += n;
    levels_with_free_ |= 1U << l;
  }
  // Updates the counts after n cells of level l were removed from free_.
  void free_removed(level_t l, std::uint32_t n) noexcept {
    free_count_[l] -= n;
    const std::uint32_t none = free_count_[l] == 0 ? 1U : 0U;
    levels_with_free_ &= ~(none << l);
  }

  // The first free cell of level l. Requires: there is one.
  [[nodiscard]] cell_id first_free(level_t l) const noexcept {
    return cell_id(free_.find_next(no_free_below_[l]));
  }
  // The first free cell of level l at or after c; not valid if there is none. c may be the end.
  [[nodiscard]] cell_id next_free(cell_id c, level_t l) const noexcept {
    const std::uint32_t i = free_.find_next(c.value);
    return i < tree_.cells(l).last.value ? cell_id(i) : cell_id();
  }

  [[nodiscard]] cell_id first(cell_request request) const noexcept {
    for (std::uint32_t levels = levels_to_search(request); levels != 0; levels &= levels - 1) {
      const level_t from = lowest(levels);
      const cell_id c = request.usable == nullptr
                            ? tree_.descendants(first_free(from), request.level).first
                            : first_usable(request, from);
      if (c.valid()) return c;
    }
    return cell_id();
  }
  template <std::invocable<cell_id> Cost>
  [[nodiscard]] cell_id cheapest(cell_request request, const Cost& cost) const {
    for (std::uint32_t levels = levels_to_search(request); levels != 0; levels &= levels - 1) {
      const cell_id c = cheapest(request, lowest(levels), cost);
      if (c.valid()) return c;
    }
    return cell_id();
  }
  // The first usable cell of the requested level inside the free cells of level `from`.
  [[nodiscard]] cell_id first_usable(cell_request request, level_t from) const noexcept {
    const summary_bitset& usable = *request.usable;
    const id_range<cell_id> level = tree_.cells(from);
    if (from == request.level)
      return cell_id(find_next_of_both(free_, usable, level.first.value, level.last.value));
    const std::uint32_t end = tree_.cells(request.level).last.value;
    cell_id f = first_free(from);
    while (f.valid()) {
      const id_range<cell_id> inside = tree_.descendants(f, request.level);
      const std::uint32_t u = usable.find_next(inside.first.value);
      if (u < inside.last.value) return cell_id(u);
      if (u >= end) break;
      f = next_free(tree_.ancestor(cell_id(u), from), from);
    }
    return cell_id();
  }
  // The cheapest (usable) cell of the requested level inside the free cells of level `from`.
  template <std::invocable<cell_id> Cost>
  [[nodiscard]] cell_id cheapest(cell_request request, level_t from, const Cost& cost) const {
    cell_id best;
    std::uint32_t least = 0;
    for (cell_id f = first_free(from); f.valid(); f = next_free(cell_id(f.value + 1), from)) {
      for (const cell_id c : tree_.descendants(f, request.level)) {
        if (request.usable != nullptr && !request.usable->test(c.value)) continue;
        const std::uint32_t price = cost(c);
        if (best.valid() && price >= least) continue;
        best = c;
        least = price;
        if (least == 0) return best;
      }
    }
    return best;
  }

  // Allocates the first free cell of the level; splits a larger one if there is none.
  cell_id take_first(level_t level) {
    const std::uint32_t levels = levels_to_search({.level = level});
    if (levels == 0) return cell_id();
    level_t l = lowest(levels);
    cell_id c = first_free(l);
    free_.reset(c.value);
    no_free_below_[l] = c.value + 1;
    free_removed(l, 1);
    if (l > level) c = split(c, l, level);
    live_[c.value / 64] |= bit(c);
    return c;
  }
  // Splits c of level l, no longer free, down to its first cell of `level`. Rare: not inlined.
  [[gnu::noinline]] cell_id split(cell_id c, level_t l, level_t level) noexcept {
    while (l > level) {
      const id_range<cell_id> parts = tree_.children(c, l);
      c = parts.first;
      insert_free(--l, c.value + 1, parts.last.value);
    }
    return c;
  }
  // Removes the buddies of level l, all but one of them free, because their parent becomes free.
  [[gnu::noinline]] void merge(id_range<cell_id> buddies, level_t l) noexcept {
    free_.reset_range(buddies.first.value, buddies.last.value);
    free_removed(l, buddies.size() - 1);
  }

  std::optional<cell_id> take(cell_id c) {
    if (c.valid()) take(c, *enclosing_free_level(c));
    return optional(c);
  }
  // Splits the free cell of level `from` that contains c until c is a free cell, and allocates c.
  void take(cell_id c, level_t from) {
    live_[c.value / 64] |= bit(c);
    for (level_t l = tree_.level(c); l < from; ++l) {
      const cell_id above = tree_.parent(c, l);
      const id_range<cell_id> buddies = tree_.children(above, l + 1);
      insert_free(l, buddies.first.value, c.value);
      insert_free(l, c.value + 1, buddies.last.value);
      c = above;
    }
    free_.reset(c.value);
    free_removed(from, 1);
  }

  Tree tree_;
  summary_bitset free_;
  std::vector<std::uint64_t> live_;                // one bit for each cell, by the value of its id
  std::array<std::uint32_t, 32> free_count_{};     // of each level
  std::array<std::uint32_t, 32> no_free_below_{};  // of each level, a hint where to start a search
  std::uint32_t levels_with_free_ = 0;             // bit l: free_count_[l] > 0
};
APIARY_NAMESPACE_END
