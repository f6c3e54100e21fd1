// apiary/tests/philly/philly_pool_test.cpp - Philly over any pool: over equal ones the same decisions.
// SPDX-License-Identifier: MIT
#include "support/naive_pool.h"
#include "support/philly_loads.h"
#include "support/scale.h"
#include <apiary/alloc/server_pool.h>
#include <apiary/core/rng.h>
#include <apiary/philly/philly.h>
#include <apiary/sim/simulate.h>
#include <apiary/trace/job_list.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

using namespace apiary;

TEST_CASE("philly_over: equal pools, equal decisions, places and delays") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(100U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const philly_options options = apiary_test::random_philly(random);
    const server_spec& spec = options.servers;
    const std::vector<timed_job> jobs =
        apiary_test::philly_jobs(seed, 120, apiary_test::gpus_of(spec));
    const auto run = [&](auto scheduler) {
      return simulate(
                 scheduler, jobs, apiary_test::two_outages(), {},
                 [](const timed_job&, const job_placement&) { return full_speed; },
                 [](const simulation_event&) {})
          .value();
    };
    const server_pool own(spec.gpus, spec.servers_per_rack);
    const apiary_test::naive_pool naive(spec.gpus, spec.servers_per_rack);
    const simulation_result a = run(philly_scheduler<server_pool>::create(options, own).value());
    const simulation_result b =
        run(philly_scheduler<apiary_test::naive_pool>::create(options, naive).value());
    REQUIRE(a.log.value() == b.log.value());
    REQUIRE(a.decisions == b.decisions);
    for (std::size_t j = 0; j < jobs.size(); ++j) REQUIRE(a.jobs[j].waited == b.jobs[j].waited);
  }
}
