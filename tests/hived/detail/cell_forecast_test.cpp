// apiary/tests/hived/detail/cell_forecast_test.cpp - what fits when gangs end, against a scheduler.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/hived/detail/cell_forecast.h>
#include <apiary/hived/hived.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

TEST_CASE(
    "a gang fits into a forecast if and only if a scheduler without the ended gangs binds it") {
  std::uint64_t fits = 0;
  std::uint64_t fits_not = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(400U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    hived scheduler = hived::create(apiary_test::random_cluster(random)).value();
    std::uint32_t size = ~0U;
    for (const chain_layout& c : scheduler.layout().chains)
      size = std::min(size, c.tree.leaves_per_cell(c.node_level));
    const auto groups_of = [&](std::uint32_t gpus) {
      std::vector<task_group> groups;
      if (gpus >= size) groups.push_back({gpus / size, size});
      if (gpus % size != 0) groups.push_back({1, gpus % size});
      return groups;
    };
    const auto most = 1 + random.uniform(3 * size);
    std::vector<job_id> running;
    for (std::uint32_t j = 0; j < 30; ++j) {
      const gang_request r{
          .job = job_id(j), .tenant = tenant_id(0), .groups = groups_of(1 + random.uniform(most))};
      const auto plan = scheduler.propose(r);
      if (!plan.ok() || plan->result != plan_result::bind) continue;
      REQUIRE(scheduler.commit(*plan).ok());
      running.push_back(r.job);
    }
    for (int times = 0; times < 10; ++times) {
      const std::vector<task_group> groups = groups_of(1 + random.uniform(4 * size));
      cell_forecast forecast(scheduler.cells(), tenant_id(0), groups);
      hived then = scheduler;
      for (const job_id job : running) {
        const gang_nodes nodes = gang_nodes::of(scheduler.cells(), *scheduler.find(job));
        std::uint64_t leaves = 0;
        for (const gang_nodes::use& u : nodes.uses) leaves += u.leaves;
        REQUIRE(leaves == scheduler.find(job)->leaves.size());
        const std::uint32_t what = random.uniform(3);
        if (what == 0) continue;
        forecast.add(nodes);
        if (what == 1) REQUIRE(then.finish(job).ok());
        if (what == 2) forecast.remove(nodes);
      }
      const auto plan =
          then.propose({.job = job_id(100), .tenant = tenant_id(0), .groups = groups});
      const bool binds = plan.ok() && plan->result == plan_result::bind;
      REQUIRE(forecast.fits() == binds);
      ++(binds ? fits : fits_not);
    }
  }
  CHECK(fits > 0);
  CHECK(fits_not > 0);
}
