// apiary/alloc/cell_allocator.h - the concept of an allocator of cells.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>

#include <concepts>
#include <cstdint>
#include <optional>

APIARY_NAMESPACE_BEGIN

// So many cells of a level.
struct cell_count {
  level_t level = 0;
  std::uint32_t count = 0;
};

// Hands out disjoint cells of a tree.
//
// (a: an allocator, c: a cell, l: a level; a live cell is one granted and not yet released)
// | expression         | meaning                                                        |
// |--------------------|----------------------------------------------------------------|
// | a.allocate(l)      | grants a cell of level l that shares no leaf with a live cell; |
// |                    | nullopt: no capacity, and nothing has changed                  |
// | a.allocate_at(c)   | grants c itself if no leaf of it is in a live cell; whether it |
// |                    | did; nothing has changed if not                                |
// | a.release(c)       | takes the live cell c back; aborts if c is not live            |
// | a.free_count(l)    | how many cells of level l are free, and not part of a larger   |
// |                    | free cell                                                      |
//
// Two allocators of one tree with the same live cells are in the same state: release undoes
// allocate and allocate_at undoes release.
template <class A>
concept CellAllocator = std::copyable<A> &&
    requires(A& a, const A& constant, cell_id c, level_t l) {
  { a.allocate(l) } -> std::same_as<std::optional<cell_id>>;
  { a.allocate_at(c) } -> std::same_as<bool>;
  { a.release(c) } -> std::same_as<void>;
  { constant.free_count(l) } -> std::same_as<std::uint32_t>;
};

APIARY_NAMESPACE_END
