// apiary/tests/preempt/detail/smallest_n_sum_test.cpp - the smallest of many numbers, against sorting them.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/preempt/detail/slot_bounds.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

TEST_CASE("smallest_n_sum: the n smallest, after each number that is added") {
  smallest_n_sum least;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::size_t n = random.uniform(8);
    least.clear(n);
    std::vector<std::uint64_t> numbers;
    for (std::uint32_t i = random.uniform(30); i-- > 0;) {
      numbers.push_back(random.uniform(20));
      least.add(numbers.back());
      std::sort(numbers.begin(), numbers.end());
      const auto last = numbers.begin() + static_cast<std::ptrdiff_t>(std::min(n, numbers.size()));
      REQUIRE(least.sum() == std::accumulate(numbers.begin(), last, std::uint64_t{0}));
    }
  }
}
