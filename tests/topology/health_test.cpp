// apiary/tests/topology/health_test.cpp - bad leaves lifted to all cells.
// SPDX-License-Identifier: MIT
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/health.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <support/archetypes.h>
#include <support/scale.h>
#include <support/tree_suite.h>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

// Random marks on cells of all levels; after each, every cell is judged by its leaves.
template <CellTree Tree>
void check_against_leaves(const Tree& tree, rng& random, int steps) {
  health<Tree> state(tree);
  const std::uint32_t first_leaf = tree.cells(0).first.value;
  std::vector<char> bad(tree.num_cells() - first_leaf, 0);
  for (int step = 0; step < steps; ++step) {
    const cell_id c(random.uniform(tree.num_cells()));
    const bool make_bad = random.uniform(2) == 0;
    std::uint32_t changed = 0;
    for (const cell_id leaf : tree.descendants(c, 0)) {
      char& is_bad = bad[leaf.value - first_leaf];
      changed += is_bad != static_cast<char>(make_bad) ? 1 : 0;
      is_bad = static_cast<char>(make_bad);
    }
    REQUIRE((make_bad ? state.mark_bad(c) : state.mark_healthy(c)) == changed);
    for (std::uint32_t i = 0; i < tree.num_cells(); ++i) {
      std::uint32_t count = 0;
      for (const cell_id leaf : tree.descendants(cell_id(i), 0))
        count += bad[leaf.value - first_leaf] != 0 ? 1U : 0U;
      REQUIRE(state.bad_leaves(cell_id(i)) == count);
      REQUIRE(state.healthy(cell_id(i)) == (count == 0));
      REQUIRE(state.usable().test(i) == (count == 0));
      std::vector<cell_id> listed;
      state.for_each_bad_leaf(cell_id(i), [&](cell_id leaf) { listed.push_back(leaf); });
      REQUIRE(listed.size() == count);
      REQUIRE(std::is_sorted(listed.begin(), listed.end()));
      for (const cell_id leaf : listed) REQUIRE(bad[leaf.value - first_leaf] != 0);
    }
  }
}

}  // namespace

TEST_CASE("counts of bad leaves follow random marks on cells of any level") {
  rng random(21);
  check_against_leaves(uniform_tree({2, 4, 4, 2}), random, 200);
  check_against_leaves(uniform_tree({70}), random, 100);
  check_against_leaves(apiary_test::tree_archetype::make(), random, 50);
  for (int round = 0; round < apiary_test::scaled(60); ++round) {
    CAPTURE(round);
    check_against_leaves(ragged_tree(apiary_test::random_table(random, 5, 80)), random, 40);
  }
}

TEST_CASE("a filter begins with nothing and admits what the host suggests") {
  const uniform_tree tree({2, 2, 4});
  health suggested(tree, false);
  CHECK(suggested.usable().none());
  CHECK(suggested.bad_leaves(cell_id(1)) == 8);
  CHECK(suggested.mark_healthy(tree.at(1, 3)) == 4);
  CHECK(suggested.mark_healthy(tree.at(1, 3)) == 0);
  CHECK(suggested.usable().count() == 5);
  CHECK_FALSE(suggested.healthy(cell_id(1)));
  suggested.mark_healthy(tree.at(1, 2));
  CHECK(suggested.healthy(cell_id(1)));
}

TEST_CASE("health and filter combine word by word to the cells that both allow") {
  rng random(8);
  const uniform_tree tree({3, 4, 5, 2});
  for (int round = 0; round < 50; ++round) {
    health good(tree);
    health suggested(tree, false);
    health both(tree, false);
    for (const cell_id leaf : tree.cells(0)) {
      const bool is_good = random.uniform(20) != 0;
      const bool is_suggested = random.uniform(20) != 0;
      if (!is_good) good.mark_bad(leaf);
      if (is_suggested) suggested.mark_healthy(leaf);
      if (is_good && is_suggested) both.mark_healthy(leaf);
    }
    summary_bitset usable = good.usable();
    usable &= suggested.usable();
    REQUIRE(usable == both.usable());
    REQUIRE(usable.count() == both.usable().count());
  }
}

TEST_CASE("equal sets of bad leaves are equal states, whatever the order") {
  const uniform_tree tree({2, 2, 4});
  health a(tree);
  health b(tree);
  a.mark_bad(tree.at(0, 3));
  CHECK_FALSE(a == b);
  b.mark_bad(tree.at(1, 0));
  for (const std::uint32_t i : {0U, 1U, 2U}) b.mark_healthy(tree.at(0, i));
  CHECK(a == b);
}
