// apiary/tests/gang/detail/mixed_radix_test.cpp - vectors of counts and their numbers.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/cost_tables.h>
#include <apiary/gang/topology_constraints.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary::detail;

// Groups of these numbers of tasks, which differ in their GPUs.
colocated_groups kinds_of(const std::vector<std::uint32_t>& tasks) {
  topology_constraints gang;
  for (const std::uint32_t t : tasks) {
    const auto leaves = static_cast<std::uint32_t>(gang.groups.size()) + 1;
    gang.groups.push_back({.tasks = t, .gpus = leaves});
  }
  colocated_groups groups;
  groups.assign(gang, 0, 1);
  REQUIRE(groups.size() == tasks.size());
  return groups;
}
std::vector<std::uint32_t> counts_of(const mixed_radix& numbers, std::uint32_t v) {
  return {numbers[v].begin(), numbers[v].end()};
}

TEST_CASE("mixed_radix: every vector has a number of its own, sums have the sums") {
  for (std::uint64_t run = 0; run < apiary_test::scaled(std::uint64_t{300}); ++run) {
    CAPTURE(run);
    rng random(run);
    std::vector<std::uint32_t> tasks(1 + random.uniform(3));
    std::uint32_t vectors = 1;
    for (std::uint32_t& t : tasks) {
      t = 1 + random.uniform(4);
      vectors *= t + 1;
    }
    mixed_radix numbers;
    REQUIRE(numbers.assign(kinds_of(tasks), vectors));
    REQUIRE(numbers.size() == vectors);
    REQUIRE(counts_of(numbers, 0) == std::vector<std::uint32_t>(tasks.size(), 0));
    REQUIRE(counts_of(numbers, vectors - 1) == tasks);
    std::set<std::vector<std::uint32_t>> seen;
    for (std::uint32_t v = 0; v < vectors; ++v) {
      const std::vector<std::uint32_t> counts = counts_of(numbers, v);
      REQUIRE(seen.insert(counts).second);
      std::uint32_t sum = 0;
      for (std::size_t u = 0; u < tasks.size(); ++u) {
        REQUIRE(counts[u] <= tasks[u]);
        sum += counts[u] * numbers.of_one(u);
      }
      REQUIRE(sum == v);
      for (std::uint32_t w = 0; w < vectors; ++w) {
        bool both = true;
        for (std::size_t u = 0; u < tasks.size(); ++u)
          both = both && counts[u] + numbers[w][u] <= tasks[u];
        REQUIRE(numbers.have_sum(v, w) == both);
      }
    }
  }
}

TEST_CASE("mixed_radix: no more vectors than one wants, or than there are numbers for") {
  mixed_radix numbers;
  CHECK(numbers.assign(kinds_of({4, 1}), 10));
  CHECK(!numbers.assign(kinds_of({4, 1}), 9));
  CHECK(!numbers.assign(kinds_of({1'000'000, 1'000'000}), ~std::uint64_t{0}));
  REQUIRE(numbers.assign(kinds_of({}), 1));
  CHECK(numbers.size() == 1);
  CHECK(numbers.have_sum(0, 0));
}

}  // namespace
