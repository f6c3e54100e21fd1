// apiary/tests/explain/detail/checked_constraints_test.cpp - the limits of proof_check are those of the searches.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/explain/proof_check.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/topology_constraints.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <support/levels.h>
#include <support/naive_cells.h>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

TEST_CASE("checked_constraints: limits of each level, and replicas, as colocated_groups has them") {
  constexpr level_t top = block + 1;
  std::uint32_t limited = 0;
  std::uint32_t lowered = 0;
  for (std::uint64_t seed = 0; seed < scaled(5'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    topology_constraints gang = random_small_gang(random, 4);
    for (constrained_task_group& group : gang.groups)
      if (group.leader != no_task_group && random.uniform(2) == 0)
        group.leader_level = rack + random.uniform(2);
    REQUIRE(gang.valid(node, top));
    colocated_groups groups;
    groups.assign(gang, node, top);
    std::vector<std::uint32_t> first;
    std::vector<std::uint32_t> counts;
    for (std::size_t u = 0; u < groups.size(); ++u) {
      first.push_back(groups[u].first_group);
      counts.push_back(groups[u].tasks);
    }
    checked_constraints checked;
    checked.begin(gang, first, counts, top);
    for (level_t l = node; l <= top; ++l) {
      CAPTURE(l);
      std::vector<std::uint32_t> some;
      for (std::size_t u = 0; u < groups.size(); ++u) {
        const auto [step, most] = groups.at(u, l);
        REQUIRE(checked.together(u, l) == step);
        REQUIRE(checked.allowed(u, l) == most);
        limited += most < counts[u] ? 1U : 0U;
        some.push_back(groups.bound(u, l, random.uniform(counts[u] + 1)));
      }
      std::vector<std::uint32_t> kept = some;
      groups.keep_replicas(l, kept);
      const std::vector<std::uint32_t> before = some;
      const bool any = checked.lower_to_replicas(some, l);
      REQUIRE(any == (some != before));
      while (checked.lower_to_replicas(some, l)) {
      }
      REQUIRE(some == kept);
      lowered += any ? 1U : 0U;
    }
  }
  CHECK(limited > 0);
  CHECK(lowered > 0);
}
