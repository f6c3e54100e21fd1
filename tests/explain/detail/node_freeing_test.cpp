// apiary/tests/explain/detail/node_freeing_test.cpp - what it costs to free nodes.
// SPDX-License-Identifier: MIT
#include "support/levels.h"
#include <apiary/core/rng.h>
#include <apiary/explain/detail/node_freeing.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/topology_constraints.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

TEST_CASE("freeing_cost: the most tasks of a group are those that it has a cost for") {
  std::uint32_t some = 0;
  for (std::uint64_t seed = 0; seed < scaled(2000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::vector<node_free> whole{{random.uniform(9), {random.uniform(9), random.uniform(9)}}};
    std::vector<node_free> now = whole;
    now[0].gpus = random.uniform(now[0].gpus + 1);
    topology_constraints gang;
    for (std::uint32_t i = 0; i < 3; ++i)
      gang.groups.push_back({.tasks = 6,
                             .gpus = random.uniform(3),
                             .host = {1 + 7 * i + random.uniform(3), random.uniform(3)}});
    colocated_groups groups;
    groups.assign(gang, node, block + 1);
    const std::vector<std::uint32_t> class_nodes{0};
    const freeing_cost cost(&groups, now, whole, class_nodes, random.uniform(2) == 0);
    std::vector<std::uint32_t> tasks(groups.size());
    for (std::uint32_t& n : tasks) n = random.uniform(2);
    for (std::size_t u = 0; u < groups.size(); ++u) {
      std::vector<std::uint32_t> all = tasks;
      all[u] = 0;
      if (!cost(0, all)) continue;
      std::uint32_t most = 0;
      while (most < 6) {
        all[u] = most + 1;
        if (!cost(0, all)) break;
        ++most;
      }
      REQUIRE(cost.most(0, tasks, u, 6) == most);
      some += most > 0 && most < 6 ? 1 : 0;
    }
  }
  CHECK(some > 0);
}
