// apiary/tests/gang_scheduler/detail/id_set_test.cpp - a set of ids, against std::set.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gang_scheduler/detail/id_set.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <support/scale.h>

namespace id_set_tests {
namespace {

using apiary::rng;
using apiary::detail::id_set;

TEST_CASE("id_set: random ids, against std::set") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(100U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    id_set ids;
    std::set<std::uint32_t> expected;
    std::uint32_t below = 1;
    for (std::uint32_t step = 0; step < 200; ++step) {
      const std::uint32_t id = random.uniform(below);
      if (random.uniform(3) > 0) {
        ids.insert(id);
        expected.insert(id);
      } else {
        ids.erase(id);
        expected.erase(id);
      }
      if (random.uniform(8) == 0) below += random.uniform(below) + 1;
      below = std::min(below, 100'000U);
      REQUIRE(ids.size() == expected.size());
      REQUIRE(ids.empty() == expected.empty());
      REQUIRE(ids.contains(id) == expected.contains(id));
      REQUIRE(!ids.contains(below));
      if (!expected.empty()) REQUIRE(ids.front() == *expected.begin());
      REQUIRE(std::ranges::equal(ids, expected));
    }
  }
  const id_set two{7, 3, 7};
  CHECK(std::ranges::equal(two, std::set<std::uint32_t>{3, 7}));
}

}  // namespace
}  // namespace id_set_tests
