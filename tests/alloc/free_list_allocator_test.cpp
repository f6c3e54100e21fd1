// apiary/tests/alloc/free_list_allocator_test.cpp - free lists against plain definitions.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/free_list_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <support/archetypes.h>
#include <support/cell_allocator_suite.h>
#include <support/naive_allocator.h>
#include <support/scale.h>
#include <support/tree_suite.h>

using namespace apiary;

TEST_CASE("the free lists behave as a cell allocator") {
  rng random(31);
  const uniform_tree uniform({2, 3, 4, 2});
  apiary_test::check_cell_allocator(free_list_allocator(uniform), uniform, random,
                                    apiary_test::scaled(5000));
  for (int round = 0; round < apiary_test::scaled(50); ++round) {
    CAPTURE(round);
    const ragged_tree ragged(apiary_test::random_table(random, 5, 90));
    apiary_test::check_cell_allocator(free_list_allocator(ragged), ragged, random, 200);
  }
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
  check(uniform_tree({2, 4, 4, 2}), apiary_test::scaled(3000));
  check(uniform_tree({1}), 50);
  check(uniform_tree({70, 1, 3}), apiary_test::scaled(1000));
  check(apiary_test::tree_archetype::make(), 500);
  for (int round = 0; round < apiary_test::scaled(100); ++round)
    check(ragged_tree(apiary_test::random_table(random, 5, 90)), 150);
}

TEST_CASE("the free lists lose no leaf in ten million operations") {
  rng random(33);
  apiary_test::check_many_operations<free_list_allocator<uniform_tree>>(random);
}

TEST_CASE("the cell that became free last is allocated first") {
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
