// apiary/tests/support/cell_allocator_suite.h - what every allocator of cells must do.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <support/archetypes.h>
#include <support/scale.h>
#include <support/tree_suite.h>
#include <vector>

namespace apiary_test {

// Random grants and releases. `empty` has no live cell. After every step: live cells are disjoint,
// and free cells make up the rest (no leaf is lost, none is counted twice; merging is complete).
template <class Allocator, apiary::CellTree Tree>
void check_cell_allocator(const Allocator& empty, const Tree& tree, apiary::rng& random,
                          int steps) {
  using apiary::cell_id;
  using apiary::level_t;
  Allocator allocator = empty;
  std::vector<cell_id> live;
  std::vector<char> taken(tree.num_cells(), 0);

  const auto mark = [&](cell_id c, bool value) {
    for (const cell_id leaf : tree.descendants(c, 0)) {
      REQUIRE((taken[leaf.value] != 0) != value);
      taken[leaf.value] = static_cast<char>(value);
    }
  };
  const auto is_empty = [&](cell_id c) {
    for (const cell_id leaf : tree.descendants(c, 0))
      if (taken[leaf.value] != 0) return false;
    return true;
  };
  const auto check_free_counts = [&] {
    for (level_t l = 0; l < tree.num_levels(); ++l) {
      std::uint32_t expected = 0;
      for (const cell_id c : tree.cells(l)) {
        const cell_id above = tree.parent(c, l);
        expected += is_empty(c) && (!above.valid() || !is_empty(above)) ? 1U : 0U;
      }
      REQUIRE(allocator.free_count(l) == expected);
    }
  };

  for (int step = 0; step < steps; ++step) {
    const std::uint32_t dice = random.uniform(5);
    if (dice < 2) {
      const level_t level = random.uniform(tree.num_levels());
      const Allocator before = allocator;
      const std::optional<cell_id> c = allocator.allocate(level);
      if (c) {
        REQUIRE(tree.level(*c) == level);
        mark(*c, true);
        live.push_back(*c);
      } else {
        REQUIRE(allocator == before);
      }
    } else if (dice == 2) {
      const cell_id c(random.uniform(tree.num_cells()));
      const Allocator before = allocator;
      if (allocator.allocate_at(c)) {
        mark(c, true);
        live.push_back(c);
        Allocator undone = allocator;
        undone.release(c);
        REQUIRE(undone == before);
      } else {
        REQUIRE(allocator == before);
      }
    } else if (!live.empty()) {
      const std::uint32_t i = random.uniform(static_cast<std::uint32_t>(live.size()));
      const Allocator before = allocator;
      const cell_id c = live[i];
      live[i] = live.back();
      live.pop_back();
      mark(c, false);
      allocator.release(c);
      Allocator undone = allocator;
      REQUIRE(undone.allocate_at(c));
      REQUIRE(undone == before);
    }
    check_free_counts();
  }

  // Whatever the order of the last releases, the empty state returns.
  random.shuffle(live);
  for (const cell_id c : live) allocator.release(c);
  REQUIRE(allocator == empty);
}

// A live cell equals neither a free one, nor its live children, nor another live cell.
template <class Allocator>
void check_equality() {
  using apiary::cell_id;
  const apiary::uniform_tree tree({2, 2});  // cells 0-1, 2-5
  const Allocator empty(tree);
  Allocator whole(tree);
  REQUIRE(whole.allocate_at(cell_id(0)));
  Allocator children(tree);
  REQUIRE(children.allocate_at(cell_id(2)));
  REQUIRE(children.allocate_at(cell_id(3)));
  Allocator other(tree);
  REQUIRE(other.allocate_at(cell_id(1)));
  CHECK_FALSE(whole == empty);
  CHECK_FALSE(whole == children);
  CHECK_FALSE(whole == other);
  whole.release(cell_id(0));
  CHECK(whole == empty);
}

// check_cell_allocator on a uniform tree and on random ragged ones. make(tree) returns an allocator
// without live cells.
template <class Make>
void check_on_several_trees(const Make& make, apiary::rng& random) {
  const apiary::uniform_tree uniform({2, 3, 4, 2});
  check_cell_allocator(make(uniform), uniform, random, scaled(5000));
  for (int round = 0; round < scaled(50); ++round) {
    CAPTURE(round);
    const apiary::ragged_tree ragged(random_table(random, 5, 90));
    check_cell_allocator(make(ragged), ragged, random, 200);
  }
}

// Calls check(tree, steps) with trees of every form: uniform, of one cell, wide, an archetype, and
// random ragged ones.
template <class Check>
void for_trees_of_every_form(const Check& check, apiary::rng& random) {
  check(apiary::uniform_tree({2, 4, 4, 2}), scaled(3000));
  check(apiary::uniform_tree({1}), 50);
  check(apiary::uniform_tree({70, 1, 3}), scaled(1000));
  check(tree_archetype::make(), 500);
  for (int round = 0; round < scaled(100); ++round)
    check(apiary::ragged_tree(random_table(random, 5, 90)), 150);
}

// Random grants and releases; `slow` does the same. may_grant(level, c), asked before each grant,
// says whether the definition allows cell c; the definition grants a cell whenever there is one.
template <class Allocator, class Naive, class MayGrant>
void check_against_definition(Allocator& fast, Naive& slow, apiary::rng& random, int steps,
                              const MayGrant& may_grant) {
  using apiary::cell_id;
  using apiary::level_t;
  const auto& tree = fast.tree();
  for (int step = 0; step < steps; ++step) {
    CAPTURE(step);
    const std::uint32_t dice = random.uniform(5);
    const level_t level = random.uniform(tree.num_levels());
    const cell_id any(random.uniform(tree.num_cells()));
    if (dice < 2) {
      bool possible = false;
      for (const cell_id c : tree.cells(level)) possible = possible || slow.is_empty(c);
      const std::optional<cell_id> c = fast.allocate(level);
      REQUIRE(c.has_value() == possible);
      if (c) {
        REQUIRE(may_grant(level, *c));
        REQUIRE(slow.allocate_at(*c));
      }
    } else if (dice == 2) {
      REQUIRE(fast.allocate_at(any) == slow.allocate_at(any));
    } else if (!slow.live().empty()) {
      const cell_id c = slow.live()[random.uniform(static_cast<std::uint32_t>(slow.live().size()))];
      fast.release(c);
      slow.release(c);
    }
    for (std::uint32_t i = 0; i < tree.num_cells(); ++i) {
      REQUIRE(fast.is_live(cell_id(i)) == slow.is_live(cell_id(i)));
      REQUIRE(fast.enclosing_free_level(cell_id(i)) == slow.enclosing_free_level(cell_id(i)));
    }
    for (level_t l = 0; l < tree.num_levels(); ++l)
      REQUIRE(fast.free_count(l) == slow.free_count(l));
  }
}

// Ten million random operations on trees of 8 to 1,000 leaves; every leaf is granted at most once,
// and the free cells and the live ones add up to all leaves after every thousandth operation.
template <class Allocator>
void check_many_operations(apiary::rng& random) {
  using apiary::cell_id;
  using apiary::level_t;
  const apiary::uniform_tree trees[] = {
      apiary::uniform_tree({2, 2, 2}), apiary::uniform_tree({5, 7, 3}),
      apiary::uniform_tree({2, 16, 2, 2, 2}), apiary::uniform_tree({2, 8, 8, 8}),
      apiary::uniform_tree({1, 2, 2, 2, 2, 2, 2, 2, 2, 2})};
  const auto target = scaled<std::uint64_t>(10'000'000);
  std::uint64_t grants = 0;
  for (std::uint64_t done = 0, round = 0; done < target; ++round) {
    const apiary::uniform_tree& tree = trees[round % 5];
    Allocator allocator(tree);
    const Allocator empty = allocator;
    std::vector<cell_id> live;
    std::vector<char> taken(tree.num_leaves(), 0);
    const auto mark = [&](cell_id c, char value) {
      for (const cell_id leaf : tree.descendants(c, 0)) {
        if (taken[tree.index(leaf, 0)] == value) FAIL("a leaf was granted twice");
        taken[tree.index(leaf, 0)] = value;
      }
    };
    const std::uint32_t use = 1 + random.uniform(4);  // grants for each four operations
    for (int step = 0; step < 100'000; ++step, ++done) {
      if (random.uniform(5) < use) {
        const std::optional<cell_id> c = allocator.allocate(random.uniform(tree.num_levels()));
        if (!c) continue;
        mark(*c, 1);
        live.push_back(*c);
        ++grants;
      } else if (!live.empty()) {
        const std::uint32_t i = random.uniform(static_cast<std::uint32_t>(live.size()));
        mark(live[i], 0);
        allocator.release(live[i]);
        live[i] = live.back();
        live.pop_back();
      }
      if (step % 1000 != 0) continue;
      std::uint64_t leaves = 0;
      for (level_t l = 0; l < tree.num_levels(); ++l)
        leaves += std::uint64_t{allocator.free_count(l)} * tree.leaves_per_cell(l);
      for (const char t : taken) leaves += t == 0 ? 0U : 1U;
      REQUIRE(leaves == tree.num_leaves());
    }
    for (const cell_id c : live) allocator.release(c);
    REQUIRE(allocator == empty);
  }
  CHECK(grants > target / 10);
}

}  // namespace apiary_test
