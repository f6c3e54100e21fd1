// apiary/tests/core/sort_test.cpp - sorting and sorted vectors against the standard library.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/core/sort.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

using namespace apiary;

TEST_CASE("merge_sort sorts as std::stable_sort, sort_unique as a set") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(500U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> values(random.uniform(100));
    for (std::uint32_t i = 0; i < values.size(); ++i) values[i] = {random.uniform(20), i};
    const auto by_first = [](const auto& a, const auto& b) { return a.first < b.first; };
    auto expected = values;
    std::stable_sort(expected.begin(), expected.end(), by_first);
    std::vector<std::uint32_t> numbers;
    for (const auto& [number, i] : values) numbers.push_back(number);
    detail::merge_sort(values, by_first);
    REQUIRE(values == expected);
    const std::set<std::uint32_t> distinct(numbers.begin(), numbers.end());
    detail::sort_unique(numbers);
    REQUIRE(numbers == std::vector<std::uint32_t>(distinct.begin(), distinct.end()));
  }
}

TEST_CASE("insert_sorted and erase_sorted keep a vector as a set") {
  rng random(1);
  std::vector<std::uint32_t> values;
  std::set<std::uint32_t> expected;
  for (int i = 0; i < 1000; ++i) {
    const std::uint32_t value = random.uniform(40);
    if (random.uniform(2) == 0) {
      REQUIRE(detail::erase_sorted(values, value) == (expected.erase(value) == 1));
    } else if (expected.insert(value).second) {
      detail::insert_sorted(values, value);
    }
    REQUIRE(values == std::vector<std::uint32_t>(expected.begin(), expected.end()));
  }
}
