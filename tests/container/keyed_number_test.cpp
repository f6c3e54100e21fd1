// apiary/tests/container/keyed_number_test.cpp - numbers with a key against a sorted list of pairs.
// SPDX-License-Identifier: MIT
#include <apiary/container/keyed_number.h>
#include <apiary/core/rng.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary_test;

TEST_CASE("keyed_number: sorted and taken from a heap in ascending order of key, then number") {
  for (std::uint64_t seed = 0; seed < scaled(500U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<keyed_number> all;
    std::vector<keyed_number> heap;
    std::vector<std::pair<std::uint64_t, std::uint32_t>> expected;
    const std::uint32_t size = random.uniform(100);
    for (std::uint32_t i = 0; i < size; ++i) {
      const keyed_number one{std::uint64_t{random.uniform(10)} << 40, random.uniform(20)};
      all.push_back(one);
      heap.push_back(one);
      if (i == size / 2) keyed_number::make_heap(heap);
      if (i > size / 2) {
        heap.pop_back();
        keyed_number::push(heap, one);
      }
      expected.emplace_back(one.key, one.number);
    }
    std::sort(expected.begin(), expected.end());
    keyed_number::sort(all);
    REQUIRE(all.size() == expected.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const keyed_number wanted{expected[i].first, expected[i].second};
      REQUIRE(all[i] == wanted);
      REQUIRE(keyed_number::pop(heap) == wanted);
    }
    REQUIRE(heap.empty());
  }
}
