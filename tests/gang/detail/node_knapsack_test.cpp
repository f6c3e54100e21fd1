// apiary/tests/gang/detail/node_knapsack_test.cpp - the heaviest tasks on a node, against trying all combinations.
// SPDX-License-Identifier: MIT
#include <apiary/core/lean_vector.h>
#include <apiary/core/rng.h>
#include <apiary/gang/detail/weight_search.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary_test;
using apiary::detail::node_knapsack;

namespace {

using sizes_of_tasks = std::vector<node_knapsack::task_size>;

std::int64_t heaviest(const sizes_of_tasks& sizes, const std::vector<std::int64_t>& weights,
                      std::uint32_t free, std::size_t u = 0) {
  if (u == sizes.size()) return 0;
  std::int64_t best = 0;
  const std::uint32_t most = std::min(sizes[u].most, sizes[u].tasks);
  for (std::uint32_t n = 0; n <= most && n * sizes[u].gpus <= free; n += sizes[u].step)
    best =
        std::max(best, n * weights[u] + heaviest(sizes, weights, free - n * sizes[u].gpus, u + 1));
  return best;
}

}  // namespace

TEST_CASE("node_knapsack: the largest weight, and tasks that have it") {
  rng random(5);
  node_knapsack knapsack;
  std::uint32_t limited = 0;  // sizes of which a node holds fewer tasks than it has GPUs for
  for (std::uint32_t round = 0; round < scaled(20'000U); ++round) {
    CAPTURE(round);
    sizes_of_tasks sizes(1 + random.uniform(4));
    std::vector<std::int64_t> weights;
    const std::uint32_t max_free = random.uniform(17);
    for (auto& s : sizes) {
      s = {1 + random.uniform(8), 1 + random.uniform(12), 1 + random.uniform(3)};
      if (random.uniform(2) == 0) s.most = random.uniform(6);
      limited += std::min(s.most, s.tasks) < max_free / s.gpus ? 1U : 0U;
      weights.push_back(std::int64_t{random.uniform(8)});
    }
    knapsack.assign(sizes, weights, max_free);
    REQUIRE(knapsack.best().size() == max_free + 1U);
    for (std::uint32_t free = 0; free <= max_free; ++free) {
      CAPTURE(free);
      REQUIRE(knapsack.best()[free] == heaviest(sizes, weights, free));
      detail::lean_vector<std::int64_t> tasks{-1};  // is kept
      knapsack.append_tasks(free, tasks);
      REQUIRE(tasks.size() == sizes.size() + 1);
      REQUIRE(tasks[0] == -1);
      std::int64_t weight = 0;
      std::int64_t gpus = 0;
      for (std::size_t u = 0; u < sizes.size(); ++u) {
        const std::int64_t n = tasks[u + 1];
        REQUIRE(n >= 0);
        REQUIRE(n % sizes[u].step == 0);
        REQUIRE(n <= std::int64_t{std::min(sizes[u].most, sizes[u].tasks)});
        weight += n * weights[u];
        gpus += n * sizes[u].gpus;
      }
      REQUIRE(weight == knapsack.best()[free]);
      REQUIRE(gpus <= std::int64_t{free});
    }
  }
  CHECK(limited > 0);
}
