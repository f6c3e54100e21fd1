// apiary/tests/topology/locality_test.cpp - spread against looking at every pair.
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
void check_against_pairs(const Tree& tree, rng& random) {
  const level_t level = random.uniform(tree.num_levels());
  std::vector<cell_id> gang;
  for (std::uint32_t i = 1 + random.uniform(8); i > 0; --i) {
    const id_range<cell_id> all = tree.cells(level);
    gang.push_back(all[random.uniform(all.size())]);
  }
  std::sort(gang.begin(), gang.end());
  std::vector<double> cost;
  for (level_t l = 0; l <= tree.num_levels(); ++l) cost.push_back(random.uniform(100));

  level_t spread = level;
  double sum = 0;
  for (std::size_t i = 0; i < gang.size(); ++i) {
    for (std::size_t j = i + 1; j < gang.size(); ++j) {
      const cell_id above = lowest_common_ancestor(tree, gang[i], gang[j]);
      const level_t l = above.valid() ? tree.level(above) : tree.num_levels();
      spread = std::max(spread, l);
      sum += cost[l];
    }
  }
  REQUIRE(spread_level(tree, gang) == spread);
  REQUIRE(pairwise_cost(tree, gang, cost) == doctest::Approx(sum));
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
  CHECK(pairwise_cost(tree, gang, std::vector<double>{0, 1, 10, 100}) == doctest::Approx(21));
}

TEST_CASE("a gang under two roots spreads above the tree; one cell spreads nowhere") {
  const uniform_tree tree({2, 4, 8});
  const std::vector<cell_id> wide{tree.at(1, 0), tree.at(1, 4)};
  CHECK(spread_level(tree, wide) == 3);
  CHECK(pairwise_cost(tree, wide, std::vector<double>{0, 1, 10, 100}) == doctest::Approx(100));
  const std::vector<cell_id> one{tree.at(1, 3)};
  CHECK(spread_level(tree, one) == 1);
  CHECK(pairwise_cost(tree, one, std::vector<double>{0, 1, 10, 100}) == 0);
  CHECK(pairwise_cost(tree, std::vector<cell_id>{}, std::vector<double>{0, 1, 10, 100}) == 0);
}

TEST_CASE("spread, spanned cells and pairwise cost are what every pair says") {
  rng random(71);
  const uniform_tree uniform({3, 4, 2, 2});
  for (int i = 0; i < 2000; ++i) check_against_pairs(uniform, random);
  for (int i = 0; i < 500; ++i) {
    check_against_pairs(ragged_tree(apiary_test::random_table(random, 5, 60)), random);
    check_against_pairs(apiary_test::tree_archetype::make(), random);
  }
}
