// apiary/tests/topology/locality_test.cpp - spread against the ancestors of every cell.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/locality.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <support/archetypes.h>
#include <support/tree_suite.h>
#include <vector>

using namespace apiary;

namespace {

template <CellTree Tree>
void check_against_ancestors(const Tree& tree, rng& random) {
  const level_t level = random.uniform(tree.num_levels());
  std::vector<cell_id> gang;
  for (std::uint32_t i = 1 + random.uniform(8); i > 0; --i) {
    const id_range<cell_id> all = tree.cells(level);
    gang.push_back(all[random.uniform(all.size())]);
  }
  std::sort(gang.begin(), gang.end());

  // The lowest level at which all cells have one ancestor.
  level_t spread = level;
  const auto together = [&](level_t l) {
    return std::all_of(gang.begin(), gang.end(),
                       [&](cell_id c) { return tree.ancestor(c, l) == tree.ancestor(gang[0], l); });
  };
  while (spread < tree.num_levels() && !together(spread)) ++spread;
  REQUIRE(spread_level(tree, gang) == spread);
  for (level_t l = level; l < tree.num_levels(); ++l) {
    std::set<cell_id> above;
    for (const cell_id c : gang) above.insert(tree.ancestor(c, l));
    REQUIRE(spanned_cells(tree, gang, l) == above.size());
  }
}

}  // namespace

TEST_CASE("by hand: three devices in two nodes of one rack") {
  const uniform_tree tree({2, 4, 8});
  const std::vector<cell_id> gang{tree.at(0, 0), tree.at(0, 1), tree.at(0, 9)};
  CHECK(spread_level(tree, gang) == 2);
  CHECK(spanned_cells(tree, gang, 0) == 3);
  CHECK(spanned_cells(tree, gang, 1) == 2);
  CHECK(spanned_cells(tree, gang, 2) == 1);
}

TEST_CASE("a gang under two roots spreads above the tree; one cell spreads nowhere") {
  const uniform_tree tree({2, 4, 8});
  const std::vector<cell_id> wide{tree.at(1, 0), tree.at(1, 4)};
  CHECK(spread_level(tree, wide) == 3);
  const std::vector<cell_id> one{tree.at(1, 3)};
  CHECK(spread_level(tree, one) == 1);
}

TEST_CASE("spread and spanned cells are what the ancestors say") {
  rng random(71);
  const uniform_tree uniform({3, 4, 2, 2});
  for (int i = 0; i < 2000; ++i) check_against_ancestors(uniform, random);
  for (int i = 0; i < 500; ++i) {
    check_against_ancestors(ragged_tree(apiary_test::random_table(random, 5, 60)), random);
    check_against_ancestors(apiary_test::tree_archetype::make(), random);
  }
}
