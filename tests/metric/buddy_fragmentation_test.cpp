// apiary/tests/metric/buddy_fragmentation_test.cpp - histograms and indices of free space.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/buddy_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/metric/buddy_fragmentation.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <support/archetypes.h>
#include <support/tree_suite.h>
#include <vector>

using namespace apiary;

TEST_CASE("by hand: 2 racks of 4 nodes of 8 devices") {
  const uniform_tree tree({2, 4, 8});
  buddy_allocator cells(tree);
  const auto now = [&] { return buddy_fragmentation(tree, cells.free_cells()); };
  CHECK(now().unusable(2) == doctest::Approx(0));
  cells.allocate_at(tree.at(0, 0));
  // One rack of 32; three nodes of 8; seven single devices.
  CHECK(now().free_cells[0] == 7);
  CHECK(now().free_cells[1] == 3);
  CHECK(now().free_cells[2] == 1);
  CHECK(now().leaves_from(0) == 63);
  CHECK(now().leaves_from(1) == 56);
  CHECK(now().unusable(0) == doctest::Approx(0));
  CHECK(now().unusable(1) == doctest::Approx(7.0 / 63));
  CHECK(now().unusable(2) == doctest::Approx(31.0 / 63));
  cells.allocate_at(tree.at(0, 32));
  CHECK(now().free_cells[2] == 0);
  CHECK(now().unusable(2) == doctest::Approx(1));
}

TEST_CASE("where nothing is free, nothing is fragmented") {
  const uniform_tree tree({1, 4});
  buddy_allocator cells(tree);
  cells.allocate(1);
  const buddy_fragmentation none = buddy_fragmentation(tree, cells.free_cells());
  CHECK(none.unusable(1) == 0);
}

TEST_CASE("counts and sets of free cells agree, and no free leaf is lost") {
  rng random(61);
  const uniform_tree tree({3, 4, 2, 2});
  buddy_allocator cells(tree);
  for (int step = 0; step < 2000; ++step) {
    const cell_id any(random.uniform(tree.num_cells()));
    if (random.uniform(2) == 0) {
      cells.allocate_at(any);
    } else if (cells.is_live(any)) {
      cells.release(any);
    }
    std::vector<std::uint32_t> counts;
    for (level_t l = 0; l < tree.num_levels(); ++l) counts.push_back(cells.free_count(l));
    const buddy_fragmentation by_set = buddy_fragmentation(tree, cells.free_cells());
    REQUIRE(buddy_fragmentation(tree, counts) == by_set);
    std::uint64_t free_leaves = 0;
    for (const cell_id leaf : tree.cells(0))
      free_leaves += cells.enclosing_free_level(leaf) ? 1U : 0U;
    REQUIRE(by_set.leaves_from(0) == free_leaves);
    for (level_t l = 0; l + 1 < tree.num_levels(); ++l)
      REQUIRE(by_set.unusable(l) <= by_set.unusable(l + 1));
  }
}

TEST_CASE("cells of a level that differ in size are measured by their leaves") {
  const ragged_tree tree({{2}, {1, 3}, {4, 2, 2, 2}});
  buddy_allocator cells(tree);
  buddy_fragmentation now = buddy_fragmentation(tree, cells.free_cells());
  CHECK(now.leaves_from(0) == 10);
  cells.allocate_at(tree.at(0, 4));
  now = buddy_fragmentation(tree, cells.free_cells());
  CHECK(now.free_cells[2] == 1);
  CHECK(now.free_cells[1] == 2);
  CHECK(now.free_cells[0] == 1);
  const auto archetype = apiary_test::tree_archetype::make();
  CHECK(buddy_fragmentation(archetype, buddy_allocator(archetype).free_cells()).leaves_from(1) ==
        4);
}
