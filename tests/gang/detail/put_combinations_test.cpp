// apiary/tests/gang/detail/put_combinations_test.cpp - equal nodes get their tasks, group after group.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gang/detail/bin_packing.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

struct putting_group {
  std::uint32_t gpus = 0;
  std::uint32_t tasks = 0;
};
// Nodes with the same tasks.
struct equal_nodes {
  std::uint32_t nodes = 0;
  std::vector<std::uint32_t> tasks{};  // of each group
};

}  // namespace

TEST_CASE(
    "put_combinations: each node gets its tasks of a size while groups of the size have some") {
  std::uint32_t short_of_tasks = 0;
  std::uint32_t of_several = 0;  // nodes with tasks of two groups of a size
  for (std::uint64_t seed = 0; seed < scaled(5'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<putting_group> sizes;
    std::vector<std::int64_t> each;
    for (std::uint32_t size = 1; size <= 1 + random.uniform(3); ++size) {
      sizes.push_back({size, 0});
      each.push_back(std::int64_t{random.uniform(4)});
    }
    std::vector<putting_group> groups;
    for (std::uint32_t m = 1 + random.uniform(5); m > 0; --m)
      groups.push_back({1 + random.uniform(4), random.uniform(9)});
    const std::vector<putting_group> before = groups;
    const std::uint32_t nodes = 1 + random.uniform(5);
    std::vector<equal_nodes> sets{{7, {}}, {nodes, std::vector<std::uint32_t>(groups.size(), 0)}};
    const auto give = [&](std::size_t p, std::uint32_t n, const putting_group& group,
                          std::uint32_t tasks) {
      REQUIRE(p > 0);
      REQUIRE(n <= sets[p].nodes);
      sets[p].nodes -= n;
      equal_nodes more{n, sets[p].tasks};
      more.tasks[static_cast<std::size_t>(&group - groups.data())] += tasks;
      sets.push_back(more);
      return sets.size() - 1;
    };
    detail::put_combinations(1, nodes, std::span<const putting_group>(sizes),
                             std::span<const std::int64_t>(each), groups, give);

    std::vector<std::uint32_t> put(groups.size(), 0);
    std::uint32_t present = 0;
    for (std::size_t p = 1; p < sets.size(); ++p) {
      present += sets[p].nodes;
      for (std::size_t m = 0; m < groups.size(); ++m) put[m] += sets[p].nodes * sets[p].tasks[m];
    }
    REQUIRE(present == nodes);
    REQUIRE(sets[0].nodes == 7);
    for (std::size_t m = 0; m < groups.size(); ++m)
      REQUIRE(groups[m].tasks + put[m] == before[m].tasks);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto wanted = static_cast<std::uint32_t>(each[i]);
      std::uint32_t available = 0;
      std::uint32_t taken = 0;
      for (std::size_t m = 0; m < groups.size(); ++m) {
        if (groups[m].gpus != sizes[i].gpus) continue;
        available += before[m].tasks;
        taken += put[m];
      }
      REQUIRE(taken == std::min(available, nodes * wanted));
      short_of_tasks += taken < nodes * wanted ? 1U : 0U;
      for (std::size_t p = 1; p < sets.size(); ++p) {
        if (sets[p].nodes == 0) continue;
        std::uint32_t here = 0;
        std::uint32_t of_groups = 0;
        for (std::size_t m = 0; m < groups.size(); ++m) {
          if (groups[m].gpus != sizes[i].gpus) continue;
          here += sets[p].tasks[m];
          of_groups += sets[p].tasks[m] > 0 ? 1U : 0U;
        }
        REQUIRE(here <= wanted);
        of_several += of_groups > 1 ? 1U : 0U;
      }
    }
  }
  CHECK(short_of_tasks > 0);
  CHECK(of_several > 0);
}
