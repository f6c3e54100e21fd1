// apiary/tests/gang_scheduler/detail/gang_allocations_test.cpp - the list of what gangs give back, while gangs change.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gang_scheduler/detail/gang_allocations.h>
#include <apiary/preempt/victim_set.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary_test;

TEST_CASE(
    "gang_allocations: each gang has the entries that were listed last, and few are of none") {
  std::size_t most = 0;
  for (std::uint64_t seed = 0; seed < scaled(200U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::vector<gpus_on_node>> expected(10);
    const auto change = [&](std::uint32_t slot) {
      expected[slot].clear();
      for (std::uint32_t i = random.uniform(12); i > 0; --i)
        expected[slot].push_back({random.uniform(100), 1 + random.uniform(8)});
    };
    for (std::uint32_t slot = 0; slot < 10; ++slot) change(slot);
    detail::gang_allocations lists;
    lists.mark(3);
    CHECK(!lists.active());
    CHECK(!lists.is_marked(3));
    lists.begin(8);  // the others are marked later
    std::size_t used = 0;
    for (std::uint32_t round = 0; round < 40; ++round) {
      if (round > 0)
        for (std::uint32_t n = random.uniform(4); n > 0; --n) {
          const std::uint32_t slot = random.uniform(10);
          change(slot);
          lists.mark(slot);
          lists.mark(slot);
          REQUIRE(lists.is_marked(slot));
        }
      if (round == 0)
        for (const std::uint32_t slot : {8U, 9U}) lists.mark(slot);
      std::uint32_t asked = 0;
      lists.refresh([&](std::uint32_t slot, std::vector<gpus_on_node>& to) {
        to.insert(to.end(), expected[slot].begin(), expected[slot].end());
        ++asked;
      });
      REQUIRE((round > 0 ? asked <= 3 : asked == 10));
      used = 0;
      for (std::uint32_t slot = 0; slot < 10; ++slot) {
        REQUIRE(!lists.is_marked(slot));
        const auto [first, last] = lists.of(slot);
        REQUIRE(last - first == expected[slot].size());
        used += last - first;
        for (std::uint32_t i = first; i < last; ++i) {
          REQUIRE(lists.all()[i].node == expected[slot][i - first].node);
          REQUIRE(lists.all()[i].gpus == expected[slot][i - first].gpus);
        }
      }
      REQUIRE(lists.all().size() <= 2 * used + 64);
      most = lists.all().size() > used ? most + 1 : most;
    }
    const auto [first, last] = lists.of(77);
    CHECK(first == last);
  }
  CHECK(most > 0);
}
