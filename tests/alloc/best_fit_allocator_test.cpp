// apiary/tests/alloc/best_fit_allocator_test.cpp - best fit, level by level, against its definition.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/best_fit_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <optional>
#include <support/cell_allocator_suite.h>
#include <support/naive_allocator.h>

using namespace apiary;

namespace {

// The level of the largest free cell inside c.
template <CellTree Tree>
std::optional<level_t> largest_free(const apiary_test::naive_allocator<Tree>& slow,
                                    const Tree& tree, cell_id c) {
  for (level_t l = tree.level(c) + 1; l-- > 0;)
    for (const cell_id inside : tree.descendants(c, l))
      if (slow.is_empty(inside)) return l;
  return std::nullopt;
}

// The cell that the definition chooses.
template <CellTree Tree>
std::optional<cell_id> choose(const apiary_test::naive_allocator<Tree>& slow, const Tree& tree,
                              level_t level) {
  id_range<cell_id> cells = tree.cells(tree.num_levels() - 1);
  for (level_t l = tree.num_levels(); l-- > level;) {
    std::optional<cell_id> best;
    std::optional<level_t> least;
    for (const cell_id c : cells) {
      const std::optional<level_t> size = largest_free(slow, tree, c);
      if (!size || *size < level || (best && *size >= *least)) continue;
      best = c;
      least = size;
    }
    if (!best || l == level) return best;
    cells = tree.children(*best, l);
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("best fit behaves as a cell allocator") {
  rng random(41);
  apiary_test::check_on_several_trees([](const auto& tree) { return best_fit_allocator(tree); },
                                      random);
}

TEST_CASE("best fit picks, splits and merges as defined") {
  rng random(42);
  const auto check = [&](const auto& tree, int steps) {
    best_fit_allocator fast(tree);
    apiary_test::naive_allocator slow(tree);
    apiary_test::check_against_definition(fast, slow, random, steps, [&](level_t level, cell_id c) {
      return choose(slow, tree, level) == c;
    });
  };
  apiary_test::for_trees_of_every_form(check, random);
}

TEST_CASE("best fit loses no leaf in ten million operations") {
  rng random(43);
  apiary_test::check_many_operations<best_fit_allocator<uniform_tree>>(random);
}

TEST_CASE("best fit leaves a rack alone that is almost free") {
  const uniform_tree tree({2, 2, 2});  // racks 0-1, nodes 2-5, GPUs 6-13
  best_fit_allocator a(tree);
  REQUIRE(a.allocate_at(cell_id(6)));   // GPU 7 is free in rack 0, and node 3
  REQUIRE(a.allocate_at(cell_id(4)));   // rack 1: node 4 is in use ...
  REQUIRE(a.allocate_at(cell_id(12)));  // ... and GPU 12; GPU 13 is its largest free cell
  CHECK(a.find(0) == cell_id(13));
  CHECK(a.allocate(0) == cell_id(13));
  CHECK(a.allocate(0) == cell_id(7));
  CHECK(a.allocate(0) == cell_id(8));
}

TEST_CASE("best fit: a live cell equals neither a free one nor its live children") {
  apiary_test::check_equality<best_fit_allocator<uniform_tree>>();
}
