// apiary/tests/hived/detail/grant_ranking_test.cpp - which cells are granted first, sorted by hand.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/topology/health.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <support/scale.h>
#include <tuple>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

// Three racks of three nodes of four leaves: some cells are granted, some leaves are bad or
// opportunistic.
physical_chain part_granted(rng& random) {
  physical_chain chain(uniform_tree{3, 3, 4}, 1);
  REQUIRE(chain.cells().reserve(2, 1));
  REQUIRE(chain.cells().reserve(1, 3));
  REQUIRE(chain.cells().reserve(0, 2));
  for (std::uint32_t grants = random.uniform(3); grants > 0; --grants)
    chain.grant(chain.node_cell(random.uniform(9)));
  for (const cell_id leaf : chain.tree().cells(0)) {
    if (random.uniform(4) == 0) chain.mark(leaf, false);
    if (random.uniform(6) == 0) chain.hold(leaf, {gang_slot(0), gang_slot(), false});
  }
  return chain;
}

// The level of the free cell that holds this one, or is it.
level_t free_level_of(const physical_chain& chain, cell_id cell) {
  return *chain.cells().cells().enclosing_free_level(cell);
}

}  // namespace

TEST_CASE(
    "cells are ranked by tasks, leaves, opportunistic leaves, size of the free cell, and id") {
  rng random(83);
  for (int round = 0; round < apiary_test::scaled(500); ++round) {
    const physical_chain chain = part_granted(random);
    const uniform_tree& tree = chain.tree();
    const health<uniform_tree>& usable = chain.healthy();
    const std::uint32_t task_gpus = 1 + random.uniform(4);
    for (level_t l = 0; l < tree.num_levels(); ++l) {
      using key = std::tuple<std::int64_t, std::uint32_t, std::uint32_t, level_t, std::uint32_t>;
      std::vector<key> expected;
      for (const cell_id cell : tree.cells(l)) {
        if (!chain.cells().can_allocate_at(cell)) continue;
        std::int64_t tasks = 0;
        for (const cell_id node : tree.descendants(cell, std::min<level_t>(l, 1))) {
          std::uint32_t good = 0;
          for (const cell_id leaf : tree.descendants(node, 0))
            good += usable.healthy(leaf) ? 1U : 0U;
          tasks += good / task_gpus;
        }
        expected.push_back({-tasks, usable.bad_leaves(cell), chain.opportunistic_leaves(cell),
                            free_level_of(chain, cell), cell.value});
      }
      std::sort(expected.begin(), expected.end());
      grant_ranking ranking;
      const auto ranked = ranking(chain, l, usable, task_gpus);
      REQUIRE(ranked.size() == expected.size());
      for (std::size_t i = 0; i < ranked.size(); ++i) {
        REQUIRE(ranked[i].cell.value == std::get<4>(expected[i]));
        REQUIRE(-std::int64_t{ranked[i].tasks} == std::get<0>(expected[i]));
      }
    }
  }
}

TEST_CASE("the next cell passes over skipped ones, and of equal ones over all but one") {
  rng random(89);
  int last = 0;
  for (int round = 0; round < apiary_test::scaled(500); ++round) {
    const physical_chain chain = part_granted(random);
    const health<uniform_tree>& usable = chain.healthy();
    const level_t l = static_cast<level_t>(random.uniform(3));
    grant_ranking ranking;
    const auto ranked = ranking(chain, l, usable, 1);
    std::vector<cell_id> distinct;
    std::vector<bool> seen(chain.tree().num_levels(), false);
    for (const grant_candidate& g : ranked) {
      const level_t from = free_level_of(chain, g.cell);
      const bool whole = usable.healthy(chain.tree().ancestor(g.cell, from));
      if (!whole || !seen[from]) distinct.push_back(g.cell);
      seen[from] = seen[from] || whole;
    }
    for (std::uint32_t skip = 0; skip <= distinct.size(); ++skip) {
      ranking.restart();
      REQUIRE(ranking.visited() == 0);
      const cell_id next = ranking.next(chain, usable, skip);
      REQUIRE(next == (skip < distinct.size() ? distinct[skip] : cell_id()));
      if (!next.valid()) ++last;
      REQUIRE(ranking.visited() <= ranked.size());
    }
    // Without skips all are had, one after another.
    ranking.restart();
    for (const grant_candidate& g : ranked) REQUIRE(ranking.next(chain, usable, 0) == g.cell);
    REQUIRE(!ranking.next(chain, usable, 0).valid());
  }
  CHECK(last > 0);
}
