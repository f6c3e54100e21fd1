// apiary/tests/alloc/healthy_free_test.cpp - the incremental counts against counting.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/buddy_allocator.h>
#include <apiary/alloc/healthy_free.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/health.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <support/archetypes.h>
#include <support/scale.h>
#include <support/tree_suite.h>
#include <vector>

using namespace apiary;

namespace {

template <CellTree Tree>
void check_against_counting(const Tree& tree, rng& random, int steps) {
  buddy_allocator<Tree> cells(tree);
  health<Tree> good(tree);
  healthy_free<Tree> counts(cells, good);
  for (int step = 0; step < steps; ++step) {
    const cell_id any(random.uniform(tree.num_cells()));
    switch (random.uniform(4)) {
      case 0:
        counts.update(cells, good, any, [&] { good.mark_bad(any); });
        break;
      case 1:
        counts.update(cells, good, any, [&] { good.mark_healthy(any); });
        break;
      case 2:
        counts.update(cells, good, any, [&] { cells.allocate_at(any); });
        break;
      default:
        for (cell_id c = any; c.value < tree.num_cells(); c = cell_id(c.value + 1)) {
          if (!cells.is_live(c)) continue;
          counts.update(cells, good, c, [&] { cells.release(c); });
          break;
        }
    }
    for (level_t l = 0; l < tree.num_levels(); ++l) {
      std::uint32_t expected = 0;
      for (const cell_id c : tree.cells(l))
        expected += good.healthy(c) && cells.enclosing_free_level(c) ? 1U : 0U;
      REQUIRE(counts.count(l) == expected);
    }
    REQUIRE(counts == healthy_free<Tree>(cells, good));
  }
}

}  // namespace

TEST_CASE("healthy free cells are counted through grants, releases, faults and repairs") {
  rng random(41);
  check_against_counting(uniform_tree({2, 4, 4, 2}), random, apiary_test::scaled(3000));
  check_against_counting(uniform_tree({130}), random, 200);
  check_against_counting(apiary_test::tree_archetype::make(), random, 300);
  for (int round = 0; round < apiary_test::scaled(100); ++round) {
    CAPTURE(round);
    check_against_counting(ragged_tree(apiary_test::random_table(random, 5, 80)), random, 100);
  }
}
