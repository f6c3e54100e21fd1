// apiary/alloc/reserving_buddy_allocator.h - buddy allocation that keeps every promise.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/buddy_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/topology/uniform_tree.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

APIARY_NAMESPACE_BEGIN

// Cells of each level are promised beforehand; a grant uses up a promise of its level, a release
// gives it back, and no grant makes another promise impossible to keep.
//
// Safety: with promises of a level left, allocate of that level without a filter never fails,
// whatever was granted and released before, and in whatever cells.
//
// Model:    HiveD (OSDI 2020) section 4. For every level, splittable = free - promised +
//           fan-out * (splittable of the level above) >= 0 says that all promises can be kept.
//           Granting a part of a free cell of level m instead of a whole free cell of its own level
//           l lowers splittable by 1 at the levels l+1, ..., m, and nowhere else. So exactly the
//           free cells below the first level above l where nothing is splittable are safe to use;
//           differs from the published search, which is greedy and can miss one.
//           Uniform trees only: where cells of a level differ, no count per level tells whether
//           promises can be kept together.
// Cost:     as buddy_allocator, and O(levels) a call.
// Invalid:  release of a cell that is not live, withdrawing more than is promised: abort.
// Example:  examples/reserved_rack.cpp
class reserving_buddy_allocator {
 public:
  explicit reserving_buddy_allocator(const uniform_tree& tree) : cells_(tree) {
    splittable_[top()] = cells_.free_count(top());
    for (level_t l = top(); l-- > 0;) splittable_[l] = splittable_[l + 1] * tree.fan_out(l + 1);
  }

  // Promises more cells of a level if all promises can be kept then; whether it did.
  bool reserve(cell_count more) noexcept {
    APIARY_ASSERT(more.level <= top());
    std::uint64_t fewer = more.count;  // at each level, what it takes away from splittable
    for (level_t l = more.level;; fewer *= tree().fan_out(l), --l) {
      if (fewer > splittable_[l]) return false;
      if (l == 0) break;
    }
    reserved_[more.level] += more.count;
    std::uint32_t n = more.count;
    for (level_t l = more.level;; n *= tree().fan_out(l), --l) {
      splittable_[l] -= n;
      if (l == 0) return true;
    }
  }
  // Takes promises of a level back. Requires: as many are promised.
  void cancel_reservation(cell_count reservations) noexcept {
    APIARY_ASSERT(reservations.level <= top());
    APIARY_VERIFY(reservations.count <= reserved_[reservations.level]);
    reserved_[reservations.level] -= reservations.count;
    std::uint32_t n = reservations.count;
    for (level_t l = reservations.level;; n *= tree().fan_out(l), --l) {
      splittable_[l] += n;
      if (l == 0) return;
    }
  }

  // The level of the largest free cells that may be split for a cell of this level.
  [[nodiscard]] level_t highest_safe(level_t level) const noexcept {
    while (level < top() && splittable_[level + 1] > 0) ++level;
    return level;
  }
  // The cell that allocate would grant; nullopt when there is none.
  [[nodiscard]] std::optional<cell_id> find(cell_request request) const noexcept {
    if (reserved(request.level) == 0) return std::nullopt;
    return cells_.find(safe(request));
  }
  template <CellCost Cost>
  [[nodiscard]] std::optional<cell_id> find(cell_request request, const Cost& cost) const {
    if (reserved(request.level) == 0) return std::nullopt;
    return cells_.find(safe(request), cost);
  }

  // Grants a promised cell; nullopt when none of the level is promised or, with a filter, when
  // every usable free cell of the level is needed for other promises.
  std::optional<cell_id> allocate(level_t level) {
    const std::optional<cell_id> c = find({.level = level});
    APIARY_VERIFY(c.has_value() == (reserved_[level] > 0));
    return take(c);
  }
  std::optional<cell_id> allocate(cell_request request) { return take(find(request)); }
  template <CellCost Cost>
  std::optional<cell_id> allocate(cell_request request, const Cost& cost) {
    return take(find(request, cost));
  }
  // Whether c could be granted: a cell of its level is promised, c is free or part of a free cell,
  // and all other promises can be kept.
  [[nodiscard]] bool can_allocate_at(cell_id c) const noexcept {
    const level_t level = tree().level(c);
    const std::optional<level_t> from = cells_.enclosing_free_level(c);
    return reserved_[level] > 0 && from && *from <= highest_safe(level);
  }
  // Grants c if it can be granted; whether it did.
  bool allocate_at(cell_id c) {
    if (!can_allocate_at(c)) return false;
    take(c);
    return true;
  }

  // Takes the live cell c back; a cell of its level is promised again.
  void release(cell_id c) {
    cells_.release(c);
    const level_t level = tree().level(c);
    ++reserved_[level];
    for (level_t l = *cells_.enclosing_free_level(c); l > level; --l) ++splittable_[l];
    APIARY_ASSERT(invariant_holds());
  }

  [[nodiscard]] std::uint32_t free_count(level_t l) const noexcept { return cells_.free_count(l); }
  // Promises of level l not used up by grants.
  [[nodiscard]] std::uint32_t reserved(level_t l) const noexcept {
    APIARY_ASSERT(l <= top());
    return reserved_[l];
  }
  // Free cells of level l, parts of larger ones included, beyond all promises from this level up.
  [[nodiscard]] std::uint32_t splittable(level_t l) const noexcept {
    APIARY_ASSERT(l <= top());
    return splittable_[l];
  }
  [[nodiscard]] const buddy_allocator<uniform_tree>& cells() const noexcept { return cells_; }
  [[nodiscard]] const uniform_tree& tree() const noexcept { return cells_.tree(); }

  // Recomputes splittable from its definition.
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
  [[nodiscard]] cell_request safe(cell_request request) const noexcept {
    const level_t highest = highest_safe(request.level);
    if (highest < request.highest) request.highest = highest;
    return request;
  }
  std::optional<cell_id> take(std::optional<cell_id> c) {
    if (c) take(*c);
    return c;
  }
  // Requires: c lies in a free cell.
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
  std::array<std::uint32_t, uniform_tree::max_levels> reserved_{};    // r - a of each level
  std::array<std::uint32_t, uniform_tree::max_levels> splittable_{};  // of each level
};

static_assert(CellAllocator<reserving_buddy_allocator>);

APIARY_NAMESPACE_END
