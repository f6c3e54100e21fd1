// apiary/alloc/reserving_buddy_allocator.h - buddy allocation with reservations that cannot fail.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/buddy_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/topology/uniform_tree.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

APIARY_NAMESPACE_BEGIN

// A buddy allocator with reservations: reserve cells of a level first, then allocate them when they
// are needed. An allocation uses up one reservation of its level; a release restores it.
//
// Guarantee: if reserved(l) > 0, allocate(l) without a filter succeeds.
//
// Model:    HiveD (OSDI 2020) section 4. For every level, splittable = free - reserved +
//           fan-out * (splittable of the level above) >= 0 means that all reservations can be met.
//           An allocation of level l may split free cells below the first level above l where
//           splittable is 0. Differs: the published search is greedy and can miss a safe cell.
// Cost:     as buddy_allocator, and O(levels) more for each call.
// Invalid:  release of a cell that is not live, or cancelling more than is reserved, aborts.
// Example:  examples/buddy_allocation.cpp
class reserving_buddy_allocator {
 public:
  // At first all cells are free and none is reserved.
  explicit reserving_buddy_allocator(const uniform_tree& tree) : cells_(tree) {
    splittable_[top()] = cells_.free_count(top());
    for (level_t l = top(); l-- > 0;) splittable_[l] = splittable_[l + 1] * tree.fan_out(l + 1);
  }

  // Whether reserved[l] cells of every level l fit disjointly into the free cells of a tree that
  // has free[l] free cells of each level l, none inside another. The test is exact. If some leaves
  // are bad or pinned, pass the counts of the maximal cells without such leaves.
  // Requires: num_levels() entries in each span; free cells that the tree can have.
  // Cost: O(levels). Example: examples/quota_feasibility.cpp
  [[nodiscard]] static bool can_reserve(const uniform_tree& tree,
                                        std::span<const std::uint32_t> free,
                                        std::span<const std::uint64_t> reserved) noexcept {
    APIARY_ASSERT(free.size() == tree.num_levels() && reserved.size() == tree.num_levels());
    std::uint64_t left = 0;  // cells of the level above that no reservation there or higher needs
    for (level_t l = tree.num_levels(); l-- > 0;) {
      const std::uint64_t inside = l + 1 < tree.num_levels() ? left * tree.fan_out(l + 1) : 0;
      const std::uint64_t present = inside + free[l];
      if (present < reserved[l]) return false;
      APIARY_ASSERT(present <= tree.cells(l).size());
      left = present - reserved[l];
    }
    return true;
  }

  // Reserves `count` more cells of a level, and returns true, if all reservations can then be met.
  bool reserve(level_t level, std::uint32_t count) noexcept {
    APIARY_ASSERT(level <= top());
    std::uint64_t fewer = count;  // by how much splittable decreases at each level
    for (level_t l = level;; fewer *= tree().fan_out(l), --l) {
      if (fewer > splittable_[l]) return false;
      if (l == 0) break;
    }
    change_reserved(level, count);
    return true;
  }
  // Cancels `count` reservations of a level. Requires: at least as many are reserved.
  void cancel_reservation(level_t level, std::uint32_t count) noexcept {
    APIARY_ASSERT(level <= top());
    APIARY_VERIFY(count <= reserved_[level]);
    change_reserved(level, 0U - count);
  }

  // The level of the largest free cells that may be split for a cell of this level.
  [[nodiscard]] level_t highest_safe(level_t level) const noexcept {
    while (level < top() && splittable_[level + 1] > 0) ++level;
    return level;
  }
  // The cell that allocate would return; nullopt if there is none.
  [[nodiscard]] std::optional<cell_id> find(cell_request request) const noexcept {
    if (reserved(request.level) == 0) return std::nullopt;
    return cells_.find(safe(request));
  }
  // The same with a cost for each candidate.
  template <std::invocable<cell_id> Cost>
  [[nodiscard]] std::optional<cell_id> find(cell_request request, const Cost& cost) const {
    if (reserved(request.level) == 0) return std::nullopt;
    return cells_.find(safe(request), cost);
  }

  // Allocates a reserved cell; nullopt if no cell of the level is reserved.
  std::optional<cell_id> allocate(level_t level) {
    const std::optional<cell_id> c = find({.level = level});
    APIARY_VERIFY(c.has_value() == (reserved_[level] > 0));
    return take(c);
  }
  // The same; nullopt also if the filter or other reservations exclude every candidate.
  std::optional<cell_id> allocate(cell_request request) { return take(find(request)); }
  // The same with a cost for each candidate.
  template <std::invocable<cell_id> Cost>
  std::optional<cell_id> allocate(cell_request request, const Cost& cost) {
    return take(find(request, cost));
  }
  // Whether c can be allocated: a cell of its level is reserved, c is free or inside a free cell,
  // and all other reservations can still be met.
  [[nodiscard]] bool can_allocate_at(cell_id c) const noexcept {
    const level_t level = tree().level(c);
    const std::optional<level_t> from = cells_.enclosing_free_level(c);
    return reserved_[level] > 0 && from && *from <= highest_safe(level);
  }
  // Allocates c if can_allocate_at(c). Returns whether it did.
  bool allocate_at(cell_id c) {
    if (!can_allocate_at(c)) return false;
    take(c);
    return true;
  }
  // Releases the live cell c; one more cell of its level is reserved again.
  void release(cell_id c) {
    cells_.release(c);
    const level_t level = tree().level(c);
    ++reserved_[level];
    for (level_t l = *cells_.enclosing_free_level(c); l > level; --l) ++splittable_[l];
    APIARY_ASSERT(invariant_holds());
  }

  // Free cells of level l that are not inside a larger free cell.
  [[nodiscard]] std::uint32_t free_count(level_t l) const noexcept { return cells_.free_count(l); }
  // Reservations of level l that no live cell has used up.
  [[nodiscard]] std::uint32_t reserved(level_t l) const noexcept {
    APIARY_ASSERT(l <= top());
    return reserved_[l];
  }
  // Free cells of level l, also inside larger ones, that no reservation of level l or above needs.
  [[nodiscard]] std::uint32_t splittable(level_t l) const noexcept {
    APIARY_ASSERT(l <= top());
    return splittable_[l];
  }
  // The allocator below: its free and live cells.
  [[nodiscard]] const buddy_allocator<uniform_tree>& cells() const noexcept { return cells_; }
  // The tree whose cells are allocated.
  [[nodiscard]] const uniform_tree& tree() const noexcept { return cells_.tree(); }

  // Recomputes splittable from its definition. Returns whether it is right and never negative.
  [[nodiscard]] bool invariant_holds() const noexcept {
    std::int64_t expected = 0;
    for (level_t l = top() + 1; l-- > 0;) {
      expected = std::int64_t{cells_.free_count(l)} - reserved_[l] +
                 (l < top() ? expected * tree().fan_out(l + 1) : 0);
      if (expected < 0 || expected != splittable_[l]) return false;
    }
    return true;
  }

  // Bytes on the heap.
  [[nodiscard]] std::size_t memory_bytes() const noexcept { return cells_.memory_bytes(); }
  // Requires: allocators of the same tree.
  friend bool operator==(const reserving_buddy_allocator& a,
                         const reserving_buddy_allocator& b) noexcept {
    return a.cells_ == b.cells_ && a.reserved_ == b.reserved_ && a.splittable_ == b.splittable_;
  }

 private:
  [[nodiscard]] level_t top() const noexcept { return tree().num_levels() - 1; }
  // Adds n reservations of a level; n may be negative, modulo 2^32.
  void change_reserved(level_t level, std::uint32_t n) noexcept {
    reserved_[level] += n;
    for (level_t l = level;; n *= tree().fan_out(l), --l) {
      splittable_[l] -= n;
      if (l == 0) return;
    }
  }
  [[nodiscard]] cell_request safe(cell_request request) const noexcept {
    const level_t highest = highest_safe(request.level);
    if (highest < request.highest) request.highest = highest;
    return request;
  }
  std::optional<cell_id> take(std::optional<cell_id> c) {
    if (c) take(*c);
    return c;
  }
  // Requires: c is free or inside a free cell.
  void take(cell_id c) {
    const level_t level = tree().level(c);
    const level_t from = *cells_.enclosing_free_level(c);
    cells_.allocate_at(c);
    --reserved_[level];
    for (level_t l = level + 1; l <= from; ++l) {
      APIARY_VERIFY(splittable_[l] > 0);
      --splittable_[l];
    }
    APIARY_ASSERT(invariant_holds());
  }

  buddy_allocator<uniform_tree> cells_;
  std::array<std::uint32_t, uniform_tree::max_levels> reserved_{};    // of each level
  std::array<std::uint32_t, uniform_tree::max_levels> splittable_{};  // of each level
};

APIARY_NAMESPACE_END
