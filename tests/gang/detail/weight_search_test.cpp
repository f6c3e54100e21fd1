// apiary/tests/gang/detail/weight_search_test.cpp - weights that prove a no, against other counts.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gang/detail/weight_search.h>
#include <apiary/gang/fit_verdict.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using apiary_test::scaled;

namespace {

using sizes_of_tasks = std::vector<node_knapsack::task_size>;

// The largest weight on a node, by trying all combinations.
std::int64_t heaviest(const sizes_of_tasks& sizes, std::span<const std::uint32_t> weights,
                      std::uint32_t free, std::size_t u = 0) {
  if (u == sizes.size()) return 0;
  std::int64_t most = 0;
  for (std::uint32_t n = 0;
       n <= std::min(sizes[u].most, sizes[u].tasks) && n * sizes[u].gpus <= free;
       n += sizes[u].step)
    most = std::max(most, std::int64_t{n} * weights[u] +
                              heaviest(sizes, weights, free - n * sizes[u].gpus, u + 1));
  return most;
}

// By how much the gang weighs more than the nodes can hold.
std::int64_t excess(const sizes_of_tasks& sizes, std::span<const std::uint32_t> nodes,
                    std::span<const std::uint32_t> weights) {
  std::int64_t more = 0;
  for (std::size_t u = 0; u < sizes.size(); ++u) more += std::int64_t{weights[u]} * sizes[u].tasks;
  for (std::uint32_t f = 0; f < nodes.size(); ++f)
    if (nodes[f] > 0) more -= nodes[f] * heaviest(sizes, weights, f);
  return more;
}

// Whether any weights up to `most` prove a no.
bool small_weights_prove(const sizes_of_tasks& sizes, std::span<const std::uint32_t> nodes,
                         std::uint32_t most) {
  std::vector<std::uint32_t> weights(sizes.size(), 0);
  const std::function<bool(std::size_t)> try_from = [&](std::size_t u) {
    if (u == sizes.size()) return excess(sizes, nodes, weights) > 0;
    for (weights[u] = 0; weights[u] <= most; ++weights[u])
      if (try_from(u + 1)) return true;
    return false;
  };
  return try_from(0);
}

// Whether the nodes hold the tasks, node after node.
bool fit_by_trying(const sizes_of_tasks& sizes, std::vector<std::uint32_t>& nodes,
                   std::vector<std::uint32_t>& left, std::size_t from = 0) {
  if (std::all_of(left.begin(), left.end(), [](auto n) { return n == 0; })) return true;
  if (from == nodes.size()) return false;
  const std::function<bool(std::size_t, std::uint32_t)> fill = [&](std::size_t u,
                                                                   std::uint32_t free) {
    if (u == sizes.size()) return fit_by_trying(sizes, nodes, left, from + 1);
    for (std::uint32_t n = 0; n <= std::min(left[u], sizes[u].most) && n * sizes[u].gpus <= free;
         n += sizes[u].step) {
      left[u] -= n;
      const bool fits = fill(u + 1, free - n * sizes[u].gpus);
      left[u] += n;
      if (fits) return true;
    }
    return false;
  };
  return fill(0, nodes[from]);
}

}  // namespace

TEST_CASE("weight_search: weights prove a no, and none are missed") {
  rng random(31);
  weight_search search;
  std::uint32_t proved = 0;
  std::uint32_t only_by_weights = 0;
  for (std::uint32_t round = 0; round < scaled(20'000U); ++round) {
    const std::uint32_t largest = 4 + random.uniform(13);
    sizes_of_tasks sizes;
    for (std::uint32_t gpus = 1; gpus <= largest && sizes.size() < 3; ++gpus) {
      if (random.uniform(3) > 0) continue;
      node_knapsack::task_size& s = sizes.emplace_back();
      s.gpus = gpus;
      if (random.uniform(6) == 0) s.step = 2;
      s.tasks = s.step * (1 + random.uniform(4));
      if (random.uniform(6) == 0) s.most = s.step * (1 + random.uniform(2));
    }
    if (sizes.empty()) continue;
    std::vector<std::uint32_t> nodes(largest + 1, 0);
    std::vector<std::uint32_t> each;
    for (std::uint32_t n = 1 + random.uniform(4); n > 0; --n) {
      each.push_back(random.uniform(largest + 1));
      ++nodes[each.back()];
    }
    step_budget steps(1'000'000);
    const fit_verdict verdict = search(sizes, nodes, steps);
    REQUIRE(verdict != fit_verdict::budget_ended);
    std::vector<std::uint32_t> left;
    for (const auto& s : sizes) left.push_back(s.tasks);
    if (verdict == fit_verdict::does_not_fit) {
      ++proved;
      REQUIRE(search.weights().size() == sizes.size());
      REQUIRE(excess(sizes, nodes, search.weights()) > 0);
      REQUIRE_FALSE(fit_by_trying(sizes, each, left));
      if (!small_weights_prove(sizes, nodes, 1)) ++only_by_weights;
    } else {
      REQUIRE_FALSE(small_weights_prove(sizes, nodes, 4));
      // Whole nodes of the solution are there, and hold their tasks.
      std::vector<std::uint32_t> unused = nodes;
      search.for_each_combination(
          [&](std::uint32_t free, std::uint32_t n, std::span<const std::int64_t> tasks) {
            REQUIRE(n <= unused[free]);
            unused[free] -= n;
            std::int64_t gpus = 0;
            for (std::size_t u = 0; u < sizes.size(); ++u) {
              gpus += tasks[u] * sizes[u].gpus;
              REQUIRE(tasks[u] % sizes[u].step == 0);
            }
            REQUIRE(gpus <= free);
          });
    }
  }
  if (apiary_test::scale() >= 1) {
    CHECK(proved > 5'000);
    CHECK(only_by_weights > 300);
  }
}

TEST_CASE("weight_search: large numbers, many sizes, a small budget") {
  weight_search search;
  step_budget steps(1'000);
  // 4 free GPUs hold 4, 6 hold 5 or 4, 8 hold 4 + 4 or 5: weights 1 and 2.
  std::vector<std::uint32_t> nodes(9, 0);
  nodes[4] = nodes[6] = nodes[8] = 1024;
  const sizes_of_tasks two{{.gpus = 4, .tasks = 2049}, {.gpus = 5, .tasks = 1536}};
  REQUIRE(search(two, nodes, steps) == fit_verdict::does_not_fit);
  CHECK(search.weights()[0] == 1);
  CHECK(search.weights()[1] == 2);
  CHECK(steps.steps() < 100);
  const sizes_of_tasks one_less{{.gpus = 4, .tasks = 2048}, {.gpus = 5, .tasks = 1536}};
  CHECK(search(one_less, nodes, steps) == fit_verdict::fits);
  // As many nodes and tasks as there can be.
  nodes[4] = nodes[6] = nodes[8] = ~std::uint32_t{0} / 4;
  const sizes_of_tasks many{{.gpus = 4, .tasks = ~std::uint32_t{0} / 2},
                            {.gpus = 5, .tasks = ~std::uint32_t{0} / 2}};
  CHECK(search(many, nodes, steps) == fit_verdict::does_not_fit);
  CHECK(excess(many, nodes, search.weights()) > 0);
  step_budget few(1);
  CHECK(search(two, nodes, few) == fit_verdict::budget_ended);
  // 64 sizes: whatever the answer, weights are right.
  rng random(32);
  std::uint32_t proved = 0;
  for (std::uint32_t round = 0; round < scaled(50U); ++round) {
    sizes_of_tasks all;
    for (std::uint32_t gpus = 1; gpus <= 64; ++gpus)
      if (random.uniform(4) == 0) all.push_back({.gpus = gpus, .tasks = 1 + random.uniform(1'000)});
    std::uint64_t needed = 0;
    for (const auto& s : all) needed += std::uint64_t{s.gpus} * s.tasks;
    std::vector<std::uint32_t> large(65, 0);
    for (std::uint64_t sum = 0; sum < needed;) {
      const std::uint32_t f = 8 + random.uniform(57);
      const std::uint32_t n = 1 + random.uniform(50);
      large[f] += n;
      sum += std::uint64_t{n} * f;
    }
    step_budget most(1'000'000);
    if (search(all, large, most) != fit_verdict::does_not_fit) continue;
    ++proved;
    std::vector<std::int64_t> weights(search.weights().begin(), search.weights().end());
    node_knapsack knapsack;
    knapsack.assign(all, weights, 64);
    std::int64_t more = 0;
    for (std::size_t u = 0; u < all.size(); ++u) more += weights[u] * all[u].tasks;
    for (std::size_t f = 0; f <= 64; ++f) more -= large[f] * knapsack.best()[f];
    REQUIRE(more > 0);
  }
  if (apiary_test::scale() >= 1) CHECK(proved > 0);
}
