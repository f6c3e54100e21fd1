// apiary/tests/hived/detail/idle_waits_test.cpp - which job starves first, against looking at all of them.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/hived/config.h>
#include <apiary/hived/detail/idle_waits.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_jobs.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

using namespace apiary;
using namespace apiary::detail;

TEST_CASE("idle_waits: when enough running jobs have ended") {
  idle_waits waits(0, 1);
  const auto run = [&](std::uint32_t id, std::uint32_t gpus, time_ms estimate) {
    waits.begin_run({.job = job_id(id), .gpus = gpus, .estimate = estimate}, 10);
  };
  CHECK(waits.longest_beside(1, 0, 10) == -1);
  run(0, 2, 30);
  run(1, 3, 5);
  run(2, 4, max_time);
  CHECK(waits.longest_beside(3, 2, 10) == 5);
  CHECK(waits.longest_beside(5, 2, 10) == 5);
  CHECK(waits.longest_beside(5, 2, 20) == -1);  // job 1 runs longer than estimated
  CHECK(waits.longest_beside(2, 2, 10) == -1);
  CHECK(waits.longest_beside(6, 2, 20) == 20);
  CHECK(waits.longest_beside(7, 2, 20) == 20);
  CHECK(waits.longest_beside(8, 2, 20) == -1);  // job 2 has no estimate
  waits.end_run(job_id(1));
  CHECK(waits.longest_beside(3, 2, 20) == 20);
}

TEST_CASE("idle_waits: random waits, against looking at all of them") {
  hived_config nodes;  // two nodes of two GPUs
  nodes.cell_types = {{"NODE", "GPU", 2, true}, {"RACK", "NODE", 2}};
  nodes.physical_cells = {{.type = "RACK", .children = {{.address = "n0"}, {.address = "n1"}}}};
  nodes.virtual_clusters = {{.name = "a", .cells = {{"RACK", 1}}}};
  const hived_jobs gangs = hived_jobs::create(hived::create(nodes).value()).value();
  std::uint32_t starved = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(200U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const time_ms patience = seed % 8 == 0 ? max_time : random.uniform(20);
    idle_waits waits(patience, 2);
    struct job {
      std::uint32_t gpus = 1;
      time_ms arrival = 0;
      time_ms since = 0;
    };
    std::map<std::uint32_t, job> jobs;
    bool bad = false;
    for (time_ms now = 0; now < 60; now += random.uniform(3)) {
      const std::uint32_t id = random.uniform(12);
      if (random.uniform(10) == 0) {
        bad = !bad;
        waits.set_health(node_id(1), !bad);
        CHECK(waits.is_bad(node_id(1)) == bad);
      } else if (jobs.erase(id) > 0) {
        waits.leave(job_id(id));
        waits.leave(job_id(id));
      } else {
        const job j{1 + random.uniform(4), random.uniform(static_cast<std::uint32_t>(now) + 1),
                    now};
        jobs[id] = j;
        waits.enter({.job = job_id(id), .tenant = tenant_id(0), .priority = -1, .gpus = j.gpus},
                    j.arrival, now);
      }
      std::optional<std::pair<time_ms, std::uint32_t>> first;
      for (const auto& [number, j] : jobs) {
        if (now - j.since < patience || (bad && j.gpus > 2)) continue;
        const std::pair at(j.arrival, number);
        if (!first || at < *first) first = at;
      }
      REQUIRE(waits.first_starving(now, gangs) == first);
      starved += first ? 1U : 0U;
    }
  }
  CHECK(starved > 0);
}
