// apiary/tests/support/cell_allocator_suite.h - what every allocator of cells must do.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
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

}  // namespace apiary_test
