// apiary/tests/alloc/can_reserve_test.cpp - the count test against trying all packings.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/buddy_allocator.h>
#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <support/scale.h>
#include <vector>

using namespace apiary;

namespace {

// Whether the reserved cells fit disjointly into the free leaves, by trying every choice.
bool packs(const uniform_tree& tree, std::vector<char>& taken, std::vector<std::uint64_t>& reserved,
           level_t l, cell_id from) {
  while (reserved[l] == 0) {
    if (l == 0) return true;
    from = tree.cells(--l).first;
  }
  for (cell_id c = from; c < tree.cells(l).last; c = cell_id(c.value + 1)) {
    bool fits = true;
    for (const cell_id leaf : tree.descendants(c, 0)) fits = fits && taken[leaf.value] == 0;
    if (!fits) continue;
    for (const cell_id leaf : tree.descendants(c, 0)) taken[leaf.value] = 1;
    --reserved[l];
    const bool found = packs(tree, taken, reserved, l, cell_id(c.value + 1));
    ++reserved[l];
    for (const cell_id leaf : tree.descendants(c, 0)) taken[leaf.value] = 0;
    if (found) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("the count test is exact, with live cells too") {
  rng random(31);
  std::uint32_t yes = 0;
  std::uint32_t no = 0;
  for (int round = 0; round < apiary_test::scaled(20'000); ++round) {
    CAPTURE(round);
    std::vector<std::uint32_t> fan_outs{1 + random.uniform(3)};
    for (std::uint32_t i = random.uniform(3); i > 0; --i) fan_outs.push_back(1 + random.uniform(3));
    const uniform_tree tree(fan_outs);
    buddy_allocator<uniform_tree> cells(tree);
    for (std::uint32_t i = random.uniform(4); i > 0; --i)
      cells.allocate_at(cell_id(random.uniform(tree.num_cells())));
    std::vector<std::uint32_t> free;
    std::vector<std::uint64_t> reserved;
    for (level_t l = 0; l < tree.num_levels(); ++l) {
      free.push_back(cells.free_count(l));
      reserved.push_back(random.uniform(4));
    }
    std::vector<char> taken(tree.num_cells(), 0);
    for (const cell_id leaf : tree.cells(0))
      taken[leaf.value] = static_cast<char>(!cells.enclosing_free_level(leaf).has_value());
    std::vector<std::uint64_t> left = reserved;
    const level_t top = tree.num_levels() - 1;
    const bool possible = packs(tree, taken, left, top, tree.cells(top).first);
    REQUIRE(reserving_buddy_allocator::can_reserve(tree, free, reserved) == possible);
    (possible ? yes : no) += 1;
  }
  CHECK(yes > 0);
  CHECK(no > 0);
}

TEST_CASE("numbers near the limits do not overflow") {
  const uniform_tree tree({1'000'000, 2'000});
  const std::vector<std::uint32_t> free{0, 1'000'000};
  CHECK(reserving_buddy_allocator::can_reserve(tree, free,
                                               std::vector<std::uint64_t>{2'000'000'000, 0}));
  CHECK_FALSE(reserving_buddy_allocator::can_reserve(tree, free,
                                                     std::vector<std::uint64_t>{2'000'000'000, 1}));
  CHECK_FALSE(reserving_buddy_allocator::can_reserve(tree, free,
                                                     std::vector<std::uint64_t>{0, 4'000'000'000}));
  CHECK_FALSE(reserving_buddy_allocator::can_reserve(
      tree, free, std::vector<std::uint64_t>{std::uint64_t{1} << 32, 0}));
}
