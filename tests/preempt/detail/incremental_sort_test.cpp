// apiary/tests/preempt/detail/incremental_sort_test.cpp - entries by price against sorting all of them.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/preempt/detail/incremental_sort.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

TEST_CASE("entries come in ascending order of price, equal ones by number") {
  incremental_sort order;
  const int rounds = scaled(300);
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    constexpr std::uint32_t sizes[] = {0, 1, 2, 127, 128, 129, 255, 256, 257, 1000, 5000};
    const std::uint32_t n = sizes[random.uniform(11)];
    const std::uint32_t prices = 1 + random.uniform(random.uniform(2) == 0 ? 3 : 100'000);
    std::vector<std::uint64_t> price(n);
    std::vector<std::pair<std::uint64_t, std::uint32_t>> all;
    for (std::uint32_t i = 0; i < n; ++i) {
      price[i] = std::uint64_t{random.uniform(prices)} << random.uniform(30);
      if (random.uniform(8) == 0) price[i] = incremental_sort::never;
      if (price[i] != incremental_sort::never) all.emplace_back(price[i], i);
    }
    std::sort(all.begin(), all.end());
    const auto price_of = [&](std::uint32_t i) { return price[i]; };
    order.begin(n);
    const std::size_t taken =
        random.uniform(3) == 0 ? all.size() : std::min<std::size_t>(all.size(), 70);
    for (std::size_t i = 0; i < taken; ++i) {
      const incremental_sort::entry* const top = order.top(price_of);
      REQUIRE(top != nullptr);
      REQUIRE(top->key == all[i].first);
      REQUIRE(top->number == all[i].second);
      order.pop();
    }
    REQUIRE((order.top(price_of) == nullptr) == (taken == all.size()));
  }
}
