// apiary/tests/preempt/detail/node_evictions_test.cpp - the gangs to evict on a node, against trying all sets.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/preempt/detail/node_evictions.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using apiary::detail::node_amounts;
using apiary::detail::node_evictions;

namespace {

std::uint64_t cost_of_set(const std::vector<node_evictions::gang>& gangs, std::uint64_t set,
                          node_amounts& free) {
  std::uint64_t cost = 0;
  for (std::size_t g = 0; g < gangs.size(); ++g) {
    if ((set >> g & 1) == 0) continue;
    cost += gangs[g].cost;
    free += gangs[g].frees;
  }
  return cost;
}

}  // namespace

TEST_CASE("node_evictions: each capacity of a node costs what the best set costs") {
  node_evictions node;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(4'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const bool hosted = random.uniform(2) == 0;
    node_amounts free{random.uniform(5), random.uniform(9), random.uniform(9)};
    std::vector<node_evictions::gang> gangs(random.uniform(8));
    for (node_evictions::gang& g : gangs)
      g = {random.uniform(20), {random.uniform(5), random.uniform(6), random.uniform(6)}};
    node_amounts task{random.uniform(4), 0, 0};
    if (hosted) {
      task.cpu_milli = random.uniform(4);
      task.memory_mib = random.uniform(4);
    }
    const std::uint32_t step = 1 + random.uniform(3);
    const std::uint32_t most = step * random.uniform(12);
    std::vector<std::uint64_t> least(most / step + 1, node_evictions::never);
    for (std::uint64_t set = 0; set < 1ULL << gangs.size(); ++set) {
      node_amounts left = free;
      const std::uint64_t cost = cost_of_set(gangs, set, left);
      for (std::uint32_t k = left.holds(task, most) / step + 1; k-- > 0;)
        least[k] = std::min(least[k], cost);
    }
    REQUIRE(node.solve(free, gangs, task, step, most, hosted));
    for (std::size_t k = 0; k < least.size(); ++k) {
      CAPTURE(k);
      REQUIRE((k < node.cost().size()) == (least[k] != node_evictions::never));
      if (k >= node.cost().size()) break;
      REQUIRE(node.cost()[k] == least[k]);
      node_amounts left = free;
      REQUIRE(cost_of_set(gangs, node.set(k), left) == least[k]);
      REQUIRE(left.holds(task, most) / step >= k);
    }
  }
}

TEST_CASE("node_evictions: it ends where it takes more work than allowed, without costs") {
  node_evictions node;
  rng random(5);
  std::vector<node_evictions::gang> gangs(40);
  for (node_evictions::gang& g : gangs)
    g = {1 + random.uniform(1'000), {1, 1 + random.uniform(500), 1 + random.uniform(500)}};
  const node_amounts task{4, 700, 700};
  REQUIRE(node.solve({}, gangs, task, 1, 6, true));
  const std::uint64_t needed = node.take_work();
  CHECK(needed > 40'000);
  CHECK(!node.solve({}, gangs, task, 1, 6, true, needed / 2));
  CHECK(node.cost().empty());
  CHECK(node.take_work() < needed / 2 + 10'000);  // and one gang more
}

TEST_CASE("node_evictions: with too many sets the costs are lower bounds") {
  node_evictions node;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(40U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<node_evictions::gang> gangs(14);
    for (node_evictions::gang& g : gangs) {
      const std::uint64_t cpu = random.uniform(500);
      g = {400 + random.uniform(300), {random.uniform(4), cpu, 500 - cpu}};
    }
    const node_amounts task{4, 700, 700};
    REQUIRE(node.solve({}, gangs, task, 1, 6, true));
    for (std::uint64_t set = 0; set < 1ULL << gangs.size(); ++set) {
      node_amounts left;
      const std::uint64_t cost = cost_of_set(gangs, set, left);
      const std::uint32_t k = left.holds(task, 6);
      REQUIRE(k < node.cost().size());
      REQUIRE(node.cost()[k] <= cost);
    }
  }
}
