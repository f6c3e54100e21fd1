// apiary/tests/container/score_tree_test.cpp - the tournament over scores against a plain array.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/container/bitset.h>
#include <apiary/container/score_tree.h>
#include <apiary/core/rng.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace {

using namespace apiary;

// The first of the highest scores above 0, of those in `allowed` if there is one.
std::uint32_t best_of(const std::vector<std::uint8_t>& scores,
                      const summary_bitset* allowed = nullptr) {
  std::uint32_t best = score_tree::npos;
  std::uint8_t score = 0;
  for (std::uint32_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > score && (allowed == nullptr || allowed->test(i))) {
      best = i;
      score = scores[i];
    }
  }
  return best;
}

TEST_CASE("best is the first of the highest scores") {
  score_tree tree(200);
  CHECK(tree.best() == score_tree::npos);
  tree.set(150, 7);
  CHECK(tree.best() == 150);
  tree.set(70, 7);
  CHECK(tree.best() == 70);
  tree.set(199, 8);
  CHECK(tree.best() == 199);
  tree.set(199, 0);
  CHECK(tree.best() == 70);
  CHECK(tree.candidates() == 2);
  CHECK(tree[150] == 7);
}

TEST_CASE("an empty tree has no best") {
  rng random(1);
  CHECK(score_tree(0).best() == score_tree::npos);
  CHECK(score_tree(0).best_of(summary_bitset(0)) == score_tree::npos);
  CHECK(score_tree(9).random_candidate(random) == score_tree::npos);
}

TEST_CASE("the tree answers as a scan does") {
  for (const std::uint32_t size : {1U, 2U, 63U, 64U, 65U, 4095U, 4096U, 4097U, 70000U}) {
    CAPTURE(size);
    rng random(size);
    score_tree tree(size);
    std::vector<std::uint8_t> scores(size);
    summary_bitset allowed(size);
    const int steps = apiary_test::scaled(size > 5000 ? 1000 : 5000);
    for (int step = 0; step < steps; ++step) {
      CAPTURE(step);
      // Few scores and clustered indices: equal maxima in a block and across blocks.
      const std::uint32_t i = random.uniform(random.uniform(2) == 0 ? size : (size + 99) / 100);
      const auto score = static_cast<std::uint8_t>(random.uniform(3) == 0 ? 0 : random.uniform(5));
      tree.set(i, score);
      scores[i] = score;
      allowed.assign(random.uniform(size), random.uniform(3) != 0);
      REQUIRE(tree.best() == best_of(scores));
      REQUIRE(tree.best_of(allowed) == best_of(scores, &allowed));
    }
    std::uint32_t candidates = 0;
    for (const std::uint8_t s : scores) candidates += s != 0 ? 1 : 0;
    CHECK(tree.candidates() == candidates);
  }
}

TEST_CASE("a tree that grows answers as a scan does") {
  for (const std::uint32_t first : {0U, 1U, 63U, 64U, 65U, 4095U, 4096U, 60'000U}) {
    CAPTURE(first);
    rng random(first);
    score_tree tree(first);
    std::vector<std::uint8_t> scores(first);
    for (std::uint32_t i = 0; i < first; i += 1 + random.uniform(40)) {
      scores[i] = static_cast<std::uint8_t>(random.uniform(5));
      tree.set(i, scores[i]);
    }
    const int steps = apiary_test::scaled(300);
    for (int step = 0; step < steps; ++step) {
      const std::uint32_t more = random.uniform(random.uniform(20) == 0 ? 5'000 : 3);
      scores.resize(scores.size() + more);
      tree.grow(static_cast<std::uint32_t>(scores.size()));
      REQUIRE(tree.size() == scores.size());
      if (scores.empty()) continue;
      const std::uint32_t i = random.uniform(tree.size());
      scores[i] = static_cast<std::uint8_t>(random.uniform(5));
      tree.set(i, scores[i]);
      REQUIRE(tree.best() == best_of(scores));
      REQUIRE(tree[tree.size() - 1] == scores.back());
    }
    std::uint32_t candidates = 0;
    for (const std::uint8_t s : scores) candidates += s != 0 ? 1 : 0;
    CHECK(tree.candidates() == candidates);
  }
}

TEST_CASE("a random candidate is an allowed one, and none if there is none") {
  score_tree tree(5000);
  for (std::uint32_t i = 0; i < 5000; i += 2) tree.set(i, 1);
  summary_bitset allowed(5000);
  rng random(2);
  for (std::uint32_t i = 1; i < 5000; i += 2) allowed.set(i);
  CHECK(tree.random_candidate(random, &allowed) == score_tree::npos);
  allowed.set(4444);
  CHECK(tree.random_candidate(random, &allowed) == 4444);
}

TEST_CASE("a random candidate is any of them with equal chance, few or many") {
  for (const std::uint32_t stride : {1U, 7U, 900U}) {
    CAPTURE(stride);
    const std::uint32_t size = 4500;
    score_tree tree(size);
    for (std::uint32_t i = 3 % stride; i < size; i += stride) tree.set(i, 1);
    rng random(stride);
    const std::uint32_t draws = 40 * tree.candidates();
    std::vector<std::uint32_t> drawn(size);
    for (std::uint32_t d = 0; d < draws; ++d) ++drawn[tree.random_candidate(random)];
    double chi_squared = 0.0;
    for (std::uint32_t i = 0; i < size; ++i) {
      if (tree[i] == 0) {
        REQUIRE(drawn[i] == 0);
      } else {
        chi_squared += (drawn[i] - 40.0) * (drawn[i] - 40.0) / 40.0;
      }
    }
    const double freedom = tree.candidates() - 1.0;
    CHECK(chi_squared < freedom + 5 * std::sqrt(2 * freedom) + 5);
  }
}

TEST_CASE("a random candidate is found in a block behind empty ones, on the border of its block") {
  score_tree tree(64 * 64);
  for (const std::uint32_t lone : {0U, 64U, 5 * 64U, 63 * 64U, 63 * 64U + 63}) {
    CAPTURE(lone);
    tree.set(lone, 1);
    rng random(lone);
    CHECK(tree.random_candidate(random) == lone);
    tree.set(lone, 0);
  }
}

TEST_CASE("a move takes everything and leaves a tree over nothing") {
  for (const bool assigned : {false, true}) {
    score_tree from(5000);
    from.set(4321, 7);
    score_tree to(70);
    if (assigned) {
      to = std::move(from);
    } else {
      to = score_tree(std::move(from));
    }
    CHECK(to.size() == 5000);
    CHECK(to.candidates() == 1);
    CHECK(to.best() == 4321);
    // NOLINTBEGIN(bugprone-use-after-move,hicpp-invalid-access-moved)
    CHECK(from.size() == 0);
    CHECK(from.candidates() == 0);
    CHECK(from.best() == score_tree::npos);
    CHECK(from.best_of(summary_bitset()) == score_tree::npos);
    // NOLINTEND(bugprone-use-after-move,hicpp-invalid-access-moved)
  }
}

}  // namespace
