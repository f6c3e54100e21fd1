// apiary/tests/topology/ragged_tree_test.cpp - the tree of arbitrary fan-out.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <support/tree_suite.h>
#include <type_traits>
#include <utility>
#include <vector>

using namespace apiary;

TEST_CASE("what a tree was moved from stays a tree") {
  ragged_tree from({{2}, {1, 2}});
  {
    const ragged_tree to = std::move(from);
    CHECK(to.parent(cell_id(4), 0) == cell_id(1));
  }
  // NOLINTNEXTLINE(bugprone-use-after-move,hicpp-invalid-access-moved)
  CHECK(from.parent(cell_id(4), 0) == cell_id(1));
}

TEST_CASE("a ragged tree behaves as a tree") {
  using apiary_test::fan_out_table;
  for (const fan_out_table& table : {fan_out_table{{1}},
                                     {{5}},
                                     {{2}, {1, 3}, {4, 2, 2, 2}},
                                     {{1}, {1}, {1}},
                                     {{3}, {64, 1, 65}}}) {
    apiary_test::check_tree(ragged_tree(table), table);
  }
  rng random(3);
  for (std::uint32_t round = 0; round < 100; ++round) {
    const fan_out_table table = apiary_test::random_table(random, 6, 120);
    CAPTURE(round);
    apiary_test::check_tree(ragged_tree(table), table);
  }
}

TEST_CASE("a ragged tree of equal fan-outs numbers its cells as the uniform tree") {
  const std::vector<std::uint32_t> fan_outs{3, 2, 4, 2};
  apiary_test::check_tree(ragged_tree(apiary_test::written_out(fan_outs)),
                          apiary_test::written_out(fan_outs));
  const uniform_tree uniform(fan_outs);
  const ragged_tree ragged(apiary_test::written_out(fan_outs));
  for (level_t l = 0; l < 4; ++l) {
    CHECK(ragged.cells(l) == uniform.cells(l));
    for (const cell_id c : ragged.cells(l)) CHECK(ragged.index(c, l) == uniform.index(c, l));
  }
  CHECK(ragged.num_leaves() == uniform.num_leaves());
}

TEST_CASE("copies share the storage and outlive the original") {
  static_assert(std::is_nothrow_copy_constructible_v<ragged_tree>);
  static_assert(std::is_nothrow_move_constructible_v<ragged_tree>);
  const apiary_test::fan_out_table table{{2}, {1, 3}, {4, 2, 2, 2}};
  std::vector<ragged_tree> copies;
  {
    const ragged_tree original(table);
    copies.assign(3, original);
    copies[1] = copies[2];
    const ragged_tree& same = copies[0];
    copies[0] = same;
  }
  const ragged_tree moved = std::move(copies[2]);
  copies.pop_back();
  for (const ragged_tree& copy : copies) apiary_test::check_tree(copy, table);
  apiary_test::check_tree(moved, table);
}
