// apiary/tests/alloc/feasibility_test.cpp - the count test against trying all packings.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/buddy_allocator.h>
#include <apiary/alloc/feasibility.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/health.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <support/scale.h>
#include <support/tree_suite.h>
#include <vector>

using namespace apiary;

namespace {

// Whether the reserved cells fit disjointly into usable free cells, by trying every choice.
template <CellTree Tree>
bool packs(const Tree& tree, const summary_bitset& usable, std::vector<char>& taken,
           std::vector<std::uint64_t>& reserved, level_t l, cell_id from) {
  while (reserved[l] == 0) {
    if (l == 0) return true;
    from = tree.cells(--l).first;
  }
  for (cell_id c = from; c < tree.cells(l).last; c = cell_id(c.value + 1)) {
    bool fits = usable.test(c.value);
    for (const cell_id leaf : tree.descendants(c, 0)) fits = fits && taken[leaf.value] == 0;
    if (!fits) continue;
    for (const cell_id leaf : tree.descendants(c, 0)) taken[leaf.value] = 1;
    --reserved[l];
    const bool found = packs(tree, usable, taken, reserved, l, cell_id(c.value + 1));
    ++reserved[l];
    for (const cell_id leaf : tree.descendants(c, 0)) taken[leaf.value] = 0;
    if (found) return true;
  }
  return false;
}

template <CellTree Tree>
struct situation {
  buddy_allocator<Tree> cells;
  health<Tree> good;
  std::vector<std::uint64_t> reserved;

  situation(const Tree& tree, rng& random) : cells(tree), good(tree) {
    for (std::uint32_t i = random.uniform(4); i > 0; --i)
      cells.allocate_at(cell_id(random.uniform(tree.num_cells())));
    for (std::uint32_t i = random.uniform(3); i > 0; --i)
      good.mark_bad(cell_id(random.uniform(tree.num_cells())));
    for (level_t l = 0; l < tree.num_levels(); ++l) reserved.push_back(random.uniform(4));
  }

  [[nodiscard]] bool possible(const summary_bitset& usable) const {
    const Tree& tree = cells.tree();
    std::vector<char> taken(tree.num_cells(), 0);
    for (const cell_id leaf : tree.cells(0))
      taken[leaf.value] = static_cast<char>(!cells.enclosing_free_level(leaf).has_value());
    std::vector<std::uint64_t> left = reserved;
    const level_t top = tree.num_levels() - 1;
    return packs(tree, usable, taken, left, top, tree.cells(top).first);
  }
};

}  // namespace

TEST_CASE("on uniform trees both tests are exact, with pinned and bad cells too") {
  rng random(31);
  std::uint32_t yes = 0;
  std::uint32_t no = 0;
  for (int round = 0; round < apiary_test::scaled(20'000); ++round) {
    CAPTURE(round);
    std::vector<std::uint32_t> fan_outs{1 + random.uniform(3)};
    for (std::uint32_t i = random.uniform(3); i > 0; --i) fan_outs.push_back(1 + random.uniform(3));
    const uniform_tree tree(fan_outs);
    const situation<uniform_tree> s(tree, random);
    const summary_bitset everything(tree.num_cells(), true);

    std::vector<std::uint32_t> free;
    for (level_t l = 0; l < tree.num_levels(); ++l) free.push_back(s.cells.free_count(l));
    const bool without_health = s.possible(everything);
    REQUIRE(can_grant_all(tree, free, s.reserved) == without_health);
    REQUIRE(can_grant_all(s.cells, everything, s.reserved) == without_health);

    const bool with_health = s.possible(s.good.usable());
    REQUIRE(can_grant_all(s.cells, s.good.usable(), s.reserved) == with_health);
    (with_health ? yes : no) += 1;
  }
  CHECK(yes > 0);
  CHECK(no > 0);
}

TEST_CASE("on ragged trees the constructive test never accepts too much") {
  rng random(32);
  std::uint32_t both = 0;
  std::uint32_t missed = 0;
  for (int round = 0; round < apiary_test::scaled(5'000); ++round) {
    CAPTURE(round);
    const ragged_tree tree(apiary_test::random_table(random, 3, 14));
    const situation<ragged_tree> s(tree, random);
    const bool possible = s.possible(s.good.usable());
    const bool shown = can_grant_all(s.cells, s.good.usable(), s.reserved);
    REQUIRE((possible || !shown));
    both += shown ? 1U : 0U;
    missed += possible && !shown ? 1U : 0U;
  }
  MESSAGE(both, " shown, ", missed, " possible but not shown");
  CHECK(both > 50 * missed);
}

TEST_CASE("numbers near the limits do not overflow") {
  const uniform_tree tree({1'000'000, 2'000});
  const std::vector<std::uint32_t> free{0, 1'000'000};
  CHECK(can_grant_all(tree, free, std::vector<std::uint64_t>{2'000'000'000, 0}));
  CHECK_FALSE(can_grant_all(tree, free, std::vector<std::uint64_t>{2'000'000'000, 1}));
  CHECK_FALSE(can_grant_all(tree, free, std::vector<std::uint64_t>{0, 4'000'000'000}));
  CHECK_FALSE(can_grant_all(tree, free, std::vector<std::uint64_t>{std::uint64_t{1} << 32, 0}));
}
