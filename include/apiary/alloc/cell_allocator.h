// apiary/alloc/cell_allocator.h - the concept of an allocator of cells.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>

#include <concepts>
#include <cstdint>
#include <optional>

APIARY_NAMESPACE_BEGIN

// A number of cells of one level.
struct cell_count {
  level_t level = 0;        // level of the cells
  std::uint32_t count = 0;  // how many cells
};

// An allocator of disjoint cells of a tree. A live cell is one that was allocated and not released.
//
// (a: an allocator, c: a cell, l: a level)
// | expression         | meaning                                                        |
// |--------------------|----------------------------------------------------------------|
// | a.allocate(l)      | allocates a cell of level l that has no leaf in common with a  |
// |                    | live cell; nullopt, and no change, if there is none            |
// | a.allocate_at(c)   | allocates c itself if no leaf of it is in a live cell; returns |
// |                    | whether it did; no change if not                               |
// | a.release(c)       | releases the live cell c; aborts if c is not live              |
// | a.free_count(l)    | how many cells of level l are free and not inside a larger     |
// |                    | free cell                                                      |
//
// Two allocators of one tree with the same live cells are in the same state. So release undoes
// allocate, and allocate_at undoes release.
template <class A>
concept CellAllocator = std::copyable<A> &&
    requires(A& a, const A& constant, cell_id c, level_t l) {
  { a.allocate(l) } -> std::same_as<std::optional<cell_id>>;
  { a.allocate_at(c) } -> std::same_as<bool>;
  { a.release(c) } -> std::same_as<void>;
  { constant.free_count(l) } -> std::same_as<std::uint32_t>;
};

APIARY_NAMESPACE_END
