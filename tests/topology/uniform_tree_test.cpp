// apiary/tests/topology/uniform_tree_test.cpp - the tree that is pure arithmetic.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <support/tree_suite.h>
#include <vector>

using namespace apiary;

TEST_CASE("a uniform tree behaves as a tree") {
  for (const std::vector<std::uint32_t>& fan_outs : {std::vector<std::uint32_t>{1},
                                                     {7},
                                                     {1, 1, 1},
                                                     {2, 4, 4, 2},
                                                     {3, 1, 5},
                                                     {1, 63},
                                                     {2, 65, 3}}) {
    const uniform_tree tree(fan_outs);
    apiary_test::check_tree(tree, apiary_test::written_out(fan_outs));
  }
  rng random(11);
  for (int round = 0; round < 30; ++round) {
    std::vector<std::uint32_t> fan_outs;
    for (std::uint32_t i = 1 + random.uniform(6); i > 0; --i)
      fan_outs.push_back(1 + random.uniform(4));
    CAPTURE(round);
    apiary_test::check_tree(uniform_tree(fan_outs), apiary_test::written_out(fan_outs));
  }
}

TEST_CASE("the documented example: 2 roots of 4 cells of 4 cells of 2 leaves") {
  const uniform_tree tree({2, 4, 4, 2});
  CHECK(tree.num_cells() == 2 + 8 + 32 + 64);
  CHECK(tree.num_leaves() == 64);
  CHECK(tree.fan_out(3) == 4);
  CHECK(tree.fan_out(0) == 0);
  CHECK(tree.leaves_per_cell(2) == 8);
  CHECK(tree.at(2, 5) == cell_id(7));
  CHECK(tree.index(cell_id(7), 2) == 5);
  CHECK(tree.parent(tree.at(0, 63), 0) == tree.at(1, 31));
}

TEST_CASE("ten levels and almost 2^31 cells keep exact arithmetic") {
  const uniform_tree deep({2, 2, 2, 2, 2, 2, 2, 2, 2, 2});
  CHECK(deep.num_levels() == uniform_tree::max_levels);
  CHECK(deep.ancestor(deep.at(0, 1023), 9) == cell_id(1));

  const uniform_tree wide({1'073'741'823, 1});
  const cell_id last = wide.at(0, wide.num_leaves() - 1);
  CHECK(last.value == wide.num_cells() - 1);
  CHECK(wide.parent(last, 0) == wide.at(1, wide.num_leaves() - 1));
  CHECK(wide.descendants(cell_id(1'073'741'822), 0).first == last);

  const uniform_tree odd({1'000'003, 3, 7, 11});
  rng random(5);
  for (int i = 0; i < 10'000; ++i) {
    const cell_id leaf = odd.at(0, random.uniform(odd.num_leaves()));
    CHECK(odd.index(odd.ancestor(leaf, 3), 3) == odd.index(leaf, 0) / 231);
    CHECK(odd.index(odd.ancestor(leaf, 2), 2) == odd.index(leaf, 0) / 77);
    CHECK(odd.index(odd.parent(leaf, 0), 1) == odd.index(leaf, 0) / 11);
  }
}
