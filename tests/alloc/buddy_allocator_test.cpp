// apiary/tests/alloc/buddy_allocator_test.cpp - splitting and merging against plain definitions.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/buddy_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/health.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <support/archetypes.h>
#include <support/cell_allocator_suite.h>
#include <support/naive_allocator.h>
#include <support/scale.h>
#include <support/tree_suite.h>
#include <type_traits>
#include <vector>

using namespace apiary;

namespace {

static_assert(std::is_nothrow_move_constructible_v<buddy_allocator<uniform_tree>>);

// Steps of all kinds; the allocator must pick exactly what the definition picks.
template <CellTree Tree>
void check_against_definition(const Tree& tree, rng& random, int steps) {
  buddy_allocator<Tree> fast(tree);
  apiary_test::naive_allocator<Tree> slow(tree);
  health<Tree> good(tree);
  std::vector<std::uint32_t> costs(tree.num_cells());
  for (std::uint32_t& n : costs) n = random.uniform(4);
  const auto cost = [&](cell_id c) { return costs[c.value]; };
  const auto no_cost = [](cell_id) { return 0U; };
  for (int step = 0; step < steps; ++step) {
    const level_t level = random.uniform(tree.num_levels());
    const level_t highest = level + random.uniform(tree.num_levels() - level);
    const cell_id any(random.uniform(tree.num_cells()));
    const summary_bitset* const usable = random.uniform(2) == 0 ? &good.usable() : nullptr;
    const cell_request request{.level = level, .highest = highest, .usable = usable};
    CAPTURE(step);
    switch (random.uniform(8)) {
      case 0:
        REQUIRE(fast.allocate(level) == slow.allocate(level));
        break;
      case 1:
      case 2: {
        const std::optional<cell_id> expected = slow.find(level, highest, usable, no_cost);
        REQUIRE(fast.find(request) == expected);
        REQUIRE(fast.find(request, no_cost) == expected);
        REQUIRE(fast.allocate(request) == expected);
        if (expected) slow.allocate_at(*expected);
        break;
      }
      case 3: {
        const std::optional<cell_id> expected = slow.find(level, highest, usable, cost);
        REQUIRE(fast.find(request, cost) == expected);
        REQUIRE(fast.allocate(request, cost) == expected);
        if (expected) slow.allocate_at(*expected);
        break;
      }
      case 4:
        REQUIRE(fast.allocate_at(any) == slow.allocate_at(any));
        break;
      case 5:
        random.uniform(3) == 0 ? good.mark_bad(any) : good.mark_healthy(any);
        break;
      default:
        if (slow.live().empty()) break;
        const auto n = static_cast<std::uint32_t>(slow.live().size());
        const cell_id c = slow.live()[random.uniform(n)];
        fast.release(c);
        slow.release(c);
    }
    for (std::uint32_t i = 0; i < tree.num_cells(); ++i) {
      const cell_id c(i);
      REQUIRE(fast.free_cells().test(i) == slow.is_free(c));
      REQUIRE(fast.is_live(c) == slow.is_live(c));
      REQUIRE(fast.enclosing_free_level(c) == slow.enclosing_free_level(c));
    }
    for (level_t l = 0; l < tree.num_levels(); ++l)
      REQUIRE(fast.free_count(l) == slow.free_count(l));
  }
}

}  // namespace

TEST_CASE("the buddy allocator picks, splits and merges as defined") {
  rng random(1);
  check_against_definition(uniform_tree({2, 4, 4, 2}), random, apiary_test::scaled(3000));
  check_against_definition(uniform_tree({1}), random, 50);
  check_against_definition(uniform_tree({70, 1, 3}), random, apiary_test::scaled(1000));
  check_against_definition(ragged_tree({{2}, {1, 3}, {4, 2, 2, 2}}), random,
                           apiary_test::scaled(3000));
  check_against_definition(apiary_test::tree_archetype::make(), random, 500);
  for (int round = 0; round < apiary_test::scaled(150); ++round) {
    CAPTURE(round);
    check_against_definition(ragged_tree(apiary_test::random_table(random, 5, 90)), random, 150);
  }
}

TEST_CASE("the buddy allocator behaves as a cell allocator") {
  rng random(2);
  apiary_test::check_on_several_trees([](const auto& tree) { return buddy_allocator(tree); },
                                      random);
}

TEST_CASE("the buddy allocator loses no leaf in ten million operations") {
  rng random(3);
  apiary_test::check_many_operations<buddy_allocator<uniform_tree>>(random);
}

TEST_CASE("first fit splits the lowest sufficient cell and keeps the rest whole") {
  const uniform_tree tree({2, 2, 2});  // cells 0-1, 2-5, 6-13
  buddy_allocator a(tree);
  CHECK(a.allocate(0) == cell_id(6));
  CHECK(a.free_count(0) == 1);
  CHECK(a.free_count(1) == 1);
  CHECK(a.free_count(2) == 1);
  CHECK(a.allocate(1) == cell_id(3));
  CHECK(a.allocate(0) == cell_id(7));
  CHECK(a.allocate(2) == cell_id(1));
  CHECK_FALSE(a.allocate(0).has_value());
  a.release(cell_id(6));
  a.release(cell_id(3));
  CHECK(a.free_count(1) == 1);
  a.release(cell_id(7));
  CHECK(a.free_count(2) == 1);
}

TEST_CASE("a particular cell is granted if no leaf of it is taken") {
  const uniform_tree tree({2, 2, 2});
  buddy_allocator a(tree);
  CHECK(a.allocate_at(tree.at(0, 5)));
  CHECK_FALSE(a.allocate_at(tree.at(0, 5)));
  CHECK_FALSE(a.allocate_at(tree.at(1, 2)));
  CHECK_FALSE(a.allocate_at(tree.at(2, 1)));
  CHECK(a.allocate_at(tree.at(2, 0)));
  CHECK_FALSE(a.allocate_at(tree.at(0, 0)));
  CHECK(a.enclosing_free_level(tree.at(0, 7)) == 1);
  CHECK_FALSE(a.enclosing_free_level(tree.at(0, 5)).has_value());
}

TEST_CASE("a granted cell is not the same as all its children, granted one by one") {
  const uniform_tree tree({2, 2});
  buddy_allocator whole(tree);
  buddy_allocator parts(tree);
  CHECK(whole == parts);
  REQUIRE(whole.allocate_at(tree.at(1, 0)));
  REQUIRE(parts.allocate_at(tree.at(0, 0)));
  REQUIRE(parts.allocate_at(tree.at(0, 1)));
  CHECK(whole.free_cells() == parts.free_cells());
  CHECK(!(whole == parts));
}
