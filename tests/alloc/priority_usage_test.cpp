// apiary/tests/alloc/priority_usage_test.cpp - counts of used leaves against counting the leaves.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/buddy_allocator.h>
#include <apiary/alloc/priority_usage.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <support/archetypes.h>
#include <support/scale.h>
#include <support/tree_suite.h>
#include <vector>

using namespace apiary;

namespace {

template <CellTree Tree>
void check_against_counting(const Tree& tree, std::uint8_t classes, rng& random, int steps) {
  using use = priority_usage<Tree>;
  use counts(tree, classes);
  const std::uint32_t first_leaf = tree.cells(0).first.value;
  std::vector<std::uint8_t> owner(tree.num_cells() - first_leaf, use::unused);
  for (int step = 0; step < steps; ++step) {
    const cell_id leaf(first_leaf + random.uniform(tree.num_cells() - first_leaf));
    const std::uint32_t dice = random.uniform(classes + 1U);
    const std::uint8_t to = dice == classes ? use::unused : static_cast<std::uint8_t>(dice);
    std::uint8_t& at = owner[leaf.value - first_leaf];
    REQUIRE(counts.class_of(leaf) == at);
    REQUIRE(counts.assign(leaf, to) == at);
    at = to;
    for (std::uint32_t i = 0; i < tree.num_cells(); ++i) {
      const cell_id c(i);
      for (std::uint8_t k = 0; k < classes; ++k) {
        std::uint32_t used = 0;
        std::uint32_t free = 0;
        for (const cell_id l : tree.descendants(c, 0)) {
          const std::uint8_t by = owner[l.value - first_leaf];
          used += by == k ? 1U : 0U;
          free += by == use::unused || by < k ? 1U : 0U;
        }
        REQUIRE(counts.used(c, k) == used);
        REQUIRE(counts.free_at(c, k) == free);
        REQUIRE(counts.used_at_least(c, k) == tree.descendants(c, 0).size() - free);
      }
    }
  }
  for (const cell_id leaf : tree.cells(0)) counts.assign(leaf, use::unused);
  REQUIRE(counts == use(tree, classes));
}

}  // namespace

TEST_CASE("used and free leaves of every cell and class follow random assignments") {
  rng random(6);
  check_against_counting(uniform_tree({2, 4, 4, 2}), 4, random, apiary_test::scaled(500));
  check_against_counting(uniform_tree({3}), 1, random, 100);
  check_against_counting(uniform_tree({2, 2}), 255, random, 100);
  check_against_counting(apiary_test::tree_archetype::make(), 2, random, 100);
  for (int round = 0; round < apiary_test::scaled(60); ++round) {
    CAPTURE(round);
    const auto classes = static_cast<std::uint8_t>(1 + random.uniform(8));
    check_against_counting(ragged_tree(apiary_test::random_table(random, 5, 60)), classes, random,
                           50);
  }
}

TEST_CASE("several leaves that change alike count as one after another") {
  rng random(7);
  for (int round = 0; round < apiary_test::scaled(400); ++round) {
    const ragged_tree tree(apiary_test::random_table(random, 5, 60));
    priority_usage<ragged_tree> together(tree, 3);
    priority_usage<ragged_tree> alone(tree, 3);
    for (int step = 0; step < 20; ++step) {
      const auto from = static_cast<std::uint8_t>(random.uniform(3));
      const auto to = static_cast<std::uint8_t>(random.uniform(3));
      std::vector<cell_id> leaves;
      for (const cell_id leaf : tree.cells(0)) {
        const std::uint8_t of = alone.class_of(leaf);
        const bool same = of == from || (from == 0 && of == alone.unused && leaves.empty());
        if (!same || leaves.size() == 64 || random.uniform(2) == 0) continue;
        if (!leaves.empty() && alone.class_of(leaves.front()) != of) continue;
        leaves.push_back(leaf);
      }
      const std::uint8_t now = random.uniform(4) == 0 ? alone.unused : to;
      together.assign_all(leaves, now);
      for (const cell_id leaf : leaves) alone.assign(leaf, now);
      REQUIRE(together == alone);
    }
  }
}

TEST_CASE("a million leaves of four classes need at most 40 bytes a leaf") {
  const uniform_tree tree({8192, 16, 2, 2, 2});
  const buddy_allocator cells(tree);
  const priority_usage counts(tree, 4);
  const std::size_t bytes =
      sizeof(tree) + sizeof(cells) + cells.memory_bytes() + sizeof(counts) + counts.memory_bytes();
  REQUIRE(tree.num_leaves() == 1'048'576);
  CHECK(bytes <= std::size_t{40} * tree.num_leaves());
  const double per_leaf = static_cast<double>(bytes) / tree.num_leaves();
  MESSAGE(per_leaf, " bytes a leaf");
}
