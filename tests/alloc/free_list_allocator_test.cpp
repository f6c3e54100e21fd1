// apiary/tests/alloc/free_list_allocator_test.cpp - free lists against plain definitions.
// SPDX-License-Identifier: MIT
#include "../../benchmarks/free_list_allocator.h"

#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <support/cell_allocator_suite.h>
#include <support/naive_allocator.h>

using namespace apiary;
using apiary_bench::free_list_allocator;

TEST_CASE("the free lists behave as a cell allocator") {
  rng random(31);
  apiary_test::check_on_several_trees([](const auto& tree) { return free_list_allocator(tree); },
                                      random);
}

// The definition: a cell of the smallest free size that suffices.
TEST_CASE("the free lists keep the state of the definition and split the smallest free cell") {
  rng random(32);
  const auto check = [&](const auto& tree, int steps) {
    free_list_allocator lists(tree);
    apiary_test::naive_allocator slow(tree);
    apiary_test::check_against_definition(lists, slow, random, steps,
                                          [&](level_t level, cell_id c) {
                                            for (level_t l = level; l < tree.num_levels(); ++l)
                                              if (slow.free_count(l) > 0)
                                                return slow.enclosing_free_level(c) == l;
                                            return false;
                                          });
  };
  apiary_test::for_trees_of_every_form(check, random);
}

TEST_CASE("the free lists lose no leaf in ten million operations") {
  rng random(33);
  apiary_test::check_many_operations<free_list_allocator<uniform_tree>>(random);
}

TEST_CASE("while nothing is merged, the cell that became free last is allocated first") {
  const uniform_tree tree({2, 2, 2});  // cells 0-1, 2-5, 6-13
  free_list_allocator a(tree);
  CHECK(a.allocate(0) == cell_id(6));
  CHECK(a.allocate(0) == cell_id(7));
  CHECK(a.allocate(0) == cell_id(8));
  CHECK(a.allocate(0) == cell_id(9));
  a.release(cell_id(6));
  a.release(cell_id(8));
  CHECK(a.allocate(0) == cell_id(8));
  CHECK(a.allocate(0) == cell_id(6));
  CHECK(a.allocate(2) == cell_id(1));
  CHECK_FALSE(a.allocate(0).has_value());
}

TEST_CASE(
    "the free lists: the last cell of a list fills the gap of one that is merged or granted") {
  const uniform_tree tree({2, 2, 2});  // cells 0-1, 2-5, 6-13
  free_list_allocator a(tree);
  for (std::uint32_t leaf = 6; leaf < 14; ++leaf) REQUIRE(a.allocate_at(cell_id(leaf)));
  for (const std::uint32_t leaf : {6U, 8U, 10U, 12U}) a.release(cell_id(leaf));
  free_list_allocator merged = a;
  merged.release(cell_id(7));  // with 6, the first of the list; 12, the last, comes first
  for (const std::uint32_t leaf : {10U, 8U, 12U, 6U}) CHECK(merged.allocate(0) == cell_id(leaf));
  REQUIRE(a.allocate_at(cell_id(8)));  // the second of the list: 12 comes second
  for (const std::uint32_t leaf : {10U, 12U, 6U}) CHECK(a.allocate(0) == cell_id(leaf));
  CHECK_FALSE(a.allocate(0).has_value());
}

TEST_CASE("the free lists: a live cell equals neither a free one nor its live children") {
  apiary_test::check_equality<free_list_allocator<uniform_tree>>();
}
