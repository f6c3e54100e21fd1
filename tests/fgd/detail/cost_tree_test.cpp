// apiary/tests/fgd/detail/cost_tree_test.cpp - walks by cost against a sort.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/container/bitset.h>
#include <apiary/core/rng.h>
#include <apiary/fgd/detail/cost_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

TEST_CASE("a walk visits the indices of a cost tree by cost, then by index") {
  using namespace apiary;
  using detail::cost_tree;
  rng random(5);
  for (std::uint32_t round = 0; round < apiary_test::scaled(200u); ++round) {
    std::vector<std::uint64_t> costs(random.uniform(round % 10 == 0 ? 700 : 30), cost_tree::never);
    cost_tree tree(static_cast<std::uint32_t>(costs.size()));
    cost_tree::walk walk;
    for (int step = 0; step < 20; ++step) {
      if (random.uniform(3) == 0) {
        costs.resize(costs.size() + random.uniform(9), cost_tree::never);
        tree.grow(static_cast<std::uint32_t>(costs.size()));
      }
      for (std::uint32_t i = 0; !costs.empty() && i < 5; ++i) {
        const std::uint32_t at = random.uniform(static_cast<std::uint32_t>(costs.size()));
        costs[at] = random.uniform(5) == 0 ? cost_tree::never : random.uniform(6);
        tree.set(at, costs[at]);
      }
      REQUIRE(tree.size() == costs.size());
      std::vector<std::pair<std::uint64_t, std::uint32_t>> expected;
      for (std::uint32_t i = 0; i < costs.size(); ++i) {
        REQUIRE(tree[i] == costs[i]);
        if (costs[i] != cost_tree::never) expected.emplace_back(costs[i], i);
      }
      std::sort(expected.begin(), expected.end());
      walk.start(tree);
      for (const auto& [cost, index] : expected) {
        const auto next = walk.next();
        REQUIRE(next.has_value());
        REQUIRE(next->cost == cost);
        REQUIRE(next->index == index);
        walk.drop(*next);
      }
      REQUIRE(!walk.next().has_value());
      walk.finish();
      for (std::uint32_t i = 0; i < costs.size(); ++i) REQUIRE(tree[i] == costs[i]);
      summary_bitset only(tree.size());
      for (std::uint32_t i = 0; i < tree.size(); ++i)
        if (random.uniform(4) == 0) only.set(i);
      walk.start(tree, only);
      for (const auto& [cost, index] : expected) {
        if (!only.test(index)) continue;
        const auto next = walk.next();
        REQUIRE(next.has_value());
        REQUIRE(next->cost == cost);
        REQUIRE(next->index == index);
        walk.drop(*next);
      }
      REQUIRE(!walk.next().has_value());
      walk.finish();
    }
  }
}

TEST_CASE("a walk comes to an index again at its new cost") {
  using apiary::detail::cost_tree;
  for (const bool part : {false, true}) {
    cost_tree tree(100);
    apiary::summary_bitset all(100);
    for (std::uint32_t i = 0; i < 100; ++i) {
      tree.set(i, i);
      all.set(i);
    }
    cost_tree::walk walk;
    if (part) {
      walk.start(tree, all);
    } else {
      walk.start(tree);
    }
    walk.drop(*walk.next());
    CHECK(walk.next()->index == 1);
    walk.change(*walk.next(), 20);
    CHECK(walk.next()->index == 2);
    walk.change(*walk.next(), cost_tree::never);
    std::uint32_t returned = 0;
    while (const auto next = walk.next()) {
      if (next->index == 1) break;
      walk.drop(*next);
      ++returned;
    }
    CHECK(returned == 17);  // 3, ..., 19, and 1 before 20
    walk.finish();
    CHECK(tree[0] == 0);
    CHECK(tree[1] == 20);
    CHECK(tree[2] == cost_tree::never);
    CHECK(tree[19] == 19);
    CHECK(tree.least()->index == 0);
  }
}
