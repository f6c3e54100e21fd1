// apiary/tests/preempt/detail/gang_count_bound_test.cpp - bounds from the number of gangs, against all sets of gangs.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/preempt/detail/slot_bounds.h>
#include <apiary/preempt/victim_set.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <support/scale.h>
#include <vector>

namespace gang_count_bound_tests {
namespace {

using namespace apiary;
using detail::gang_count_bound;

std::vector<eviction_candidate> with_costs(const std::vector<std::uint64_t>& costs) {
  std::vector<eviction_candidate> candidates;
  for (const std::uint64_t cost : costs) candidates.push_back({.cost = cost});
  return candidates;
}
// As the comment of the class says, from sorted lists.
std::uint64_t naive_bound(std::vector<std::uint64_t> costs, std::uint64_t bound) {
  std::sort(costs.begin(), costs.end(), std::greater<>());
  std::size_t gangs = 0;
  for (std::uint64_t sum = 0; sum < bound && gangs < costs.size(); ++gangs) sum += costs[gangs];
  return std::max(bound, std::accumulate(costs.end() - static_cast<std::ptrdiff_t>(gangs),
                                         costs.end(), std::uint64_t{0}));
}

TEST_CASE("gang_count_bound: no set that costs as much as the bound costs less than the new one") {
  CHECK(naive_bound({9, 5, 4, 4}, 10) == 10);  // 9 + 5; the two cheapest cost 8
  CHECK(naive_bound({9, 9, 8, 8}, 10) == 16);
  gang_count_bound raised;
  std::size_t higher = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(1'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::uint64_t> costs(random.uniform(8));
    const std::uint32_t least = random.uniform(2) * 10;
    for (std::uint64_t& cost : costs) cost = least + random.uniform(8);
    const std::vector<eviction_candidate> candidates = with_costs(costs);
    std::vector<std::uint64_t> sums{0};
    for (const std::uint64_t cost : costs)
      for (std::size_t i = sums.size(); i > 0; --i) sums.push_back(sums[i - 1] + cost);
    std::sort(sums.begin(), sums.end());
    raised.begin(candidates);
    for (int i = 0; i < 10; ++i) {
      const std::uint64_t bound = random.uniform(static_cast<std::uint32_t>(sums.back()) + 1);
      CAPTURE(bound);
      const std::uint64_t now = raised(bound);
      REQUIRE(now == naive_bound(costs, bound));
      REQUIRE(now <= *std::lower_bound(sums.begin(), sums.end(), bound));
      higher += now > bound ? 1U : 0U;
    }
    REQUIRE(raised(~std::uint64_t{0}) == ~std::uint64_t{0});
  }
  CHECK(higher > 0);
}

TEST_CASE("gang_count_bound: the same for many gangs, which are sorted in batches") {
  gang_count_bound raised;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(20U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::uint64_t> costs(1'000 + random.uniform(2'000));
    for (std::uint64_t& cost : costs) cost = 1 + random.uniform(seed % 2 == 0 ? 3 : 1'000'000);
    const std::vector<eviction_candidate> candidates = with_costs(costs);
    const std::uint64_t total = std::accumulate(costs.begin(), costs.end(), std::uint64_t{0});
    raised.begin(candidates);
    for (const std::uint64_t part : {3U, 100U, 1U, 50U, 2U})
      REQUIRE(raised(total / part) == naive_bound(costs, total / part));
  }
}

}  // namespace
}  // namespace gang_count_bound_tests
