// apiary/tests/philly/philly_decisions_test.cpp - Philly decides as if every job were walked over at each
// of its moments, and asks for no more calls than it needs.
// SPDX-License-Identifier: MIT
#include "support/naive_philly.h"
#include "support/philly_loads.h"
#include "support/philly_pair.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/model/job.h>
#include <apiary/philly/philly.h>
#include <apiary/sim/simulate.h>
#include <apiary/sim/simulation_result.h>
#include <apiary/trace/job_list.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

// Both schedulers, and the jobs that are there.
struct two_phillies : apiary_test::philly_pair<philly, apiary_test::naive_philly> {
  std::vector<job_id> jobs{};
  std::vector<bool> runs{};  // by id

  explicit two_phillies(const philly_options& options)
      : philly_pair{philly::create(options).value(), apiary_test::naive_philly(options)} {}

  void decide(time_ms now) {
    for (const job_action& action : philly_pair::decide(now))
      runs[action.job.value] = action.what == job_action::verb::start;
    for (const job_id job : jobs) REQUIRE(fast.find(job) == naive.find(job));
  }
  void go_on_until(time_ms end) {
    philly_pair::go_on_until(end, [&](time_ms now) { decide(now); });
  }
  void submit(const job_request& r, time_ms now) {
    philly_pair::submit(r, now);
    jobs.push_back(r.job);
    runs.resize(std::max<std::size_t>(runs.size(), r.job.value + std::size_t{1}), false);
  }
  void finish(std::size_t i, time_ms now) {
    philly_pair::finish(jobs[i], now);
    jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(i));
  }
  void fail(std::size_t i, failure_class why, time_ms now) {
    const bool again = philly_pair::fail(jobs[i], why, now);
    runs[jobs[i].value] = false;
    if (!again) jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(i));
  }
  void set_health(node_id n, bool good, time_ms now) {
    for (const job_id job : philly_pair::set_health(n, good, now)) runs[job.value] = false;
  }
};

}  // namespace

// A random history; the number of calls that only the naive scheduler wanted.
std::size_t compare_decisions(std::uint64_t seed) {
  CAPTURE(seed);
  rng random(seed);
  const philly_options options = apiary_test::random_philly(random);
  two_phillies both(options);
  const std::uint32_t total = both.fast.total_gpus();
  const std::uint32_t most = 5 + random.uniform(60);  // jobs at once
  const std::uint32_t pause = 1 + random.uniform(20);
  time_ms now = 0;
  std::uint32_t fresh = 0;
  for (int step = 0; step < 400; ++step) {
    CAPTURE(step);
    now += random.uniform(pause);
    both.go_on_until(now);
    const std::uint32_t event = random.uniform(20);
    if (both.jobs.size() < most && event < 12) {
      const std::uint32_t gpus =
          random.uniform(5) == 0 ? 1 + random.uniform(total) : 1U << random.uniform(4);
      both.submit({.job = job_id(fresh++),
                   .tenant = tenant_id(random.uniform(3)),
                   .gpus = std::min(gpus, total)},
                  now);
    } else if (event < 18 && !both.jobs.empty()) {
      const std::size_t i = random.uniform(static_cast<std::uint32_t>(both.jobs.size()));
      if (both.runs[both.jobs[i].value] && event % 2 == 0) {
        both.fail(i, static_cast<failure_class>(random.uniform(3)), now);
      } else if (both.runs[both.jobs[i].value] || event == 13) {
        both.finish(i, now);
      }
    } else if (event >= 18) {
      const node_id n(random.uniform(static_cast<std::uint32_t>(options.servers.gpus.size())));
      both.set_health(n, event == 18, now);
    }
    both.decide(now);
  }
  return both.alone;
}

TEST_CASE("philly: decisions as of a walk over all jobs, call by call") {
  std::size_t alone = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(300U); ++seed)
    alone += compare_decisions(seed);
  // In this one, a job uses up the quota on which the collector of its tenant waits.
  alone += compare_decisions(29);
  CHECK(alone > 0);
}

TEST_CASE(
    "philly: in a simulation with failures of servers and jobs, every placement and delay is that "
    "of "
    "the naive scheduler") {
  std::uint64_t failed = 0;
  std::uint64_t given_up = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(100U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const philly_options options = apiary_test::random_philly(random);
    const std::vector<timed_job> jobs =
        apiary_test::philly_jobs(seed, 150, apiary_test::gpus_of(options.servers));
    const simulation_options with_failures{.checkpoint_interval = 10,
                                           .failures = apiary_test::random_failures(random, jobs)};
    const auto run = [&](auto scheduler) {
      return simulate(
                 scheduler, jobs, apiary_test::two_outages(), with_failures,
                 [](const timed_job&, const job_placement&) { return full_speed; },
                 [](const simulation_event&) {})
          .value();
    };
    const simulation_result fast = run(philly::create(options).value());
    const simulation_result naive = run(apiary_test::naive_philly(options));
    REQUIRE(fast.log.value() == naive.log.value());
    REQUIRE(fast.events == naive.events);
    REQUIRE(fast.decisions <= naive.decisions);
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      REQUIRE(fast.jobs[j].waited == naive.jobs[j].waited);
      failed += fast.jobs[j].failed;
      given_up += fast.jobs[j].given_up ? 1U : 0U;
    }
  }
  CHECK(given_up > 0);
  CHECK(failed > 2 * given_up);
}

TEST_CASE("philly: a job that waits in vain wants no calls") {
  philly p = philly::create({.servers = {.gpus = {4, 4}, .servers_per_rack = 2},
                             .quotas = {4, 4},
                             .acquire_time = 150,
                             .backoff_time = 120,
                             .max_tries = 1})
                 .value();
  std::vector<job_action> actions;
  const auto submit = [&](std::uint32_t job, std::uint32_t tenant, std::uint32_t gpus,
                          time_ms now) {
    REQUIRE(p.submit({.job = job_id(job), .tenant = tenant_id(tenant), .gpus = gpus}, now).ok());
    REQUIRE(p.decide(now, actions).ok());
  };
  submit(0, 0, 4, 0);
  submit(1, 1, 4, 0);
  // Both tenants have their quotas: no job collects or preempts, localities relax twice each.
  for (std::uint32_t job = 2; job < 1000; ++job) submit(job, job % 2, 1 + job % 3, job);
  std::size_t calls = 0;
  for (time_ms now = p.wake(); now != max_time; now = p.wake()) {
    REQUIRE(p.decide(now, actions).ok());
    ++calls;
  }
  CHECK(calls == 1080);  // one a second, until the last has relaxed for the second time
  CHECK(actions.size() == 2);
  const auto stands = [](philly::phase at, std::uint32_t tries) {
    return philly::standing{at, job_locality::anywhere, tries, 0};
  };
  CHECK(p.find(job_id(2)) == stands(philly::phase::backoff, 4));
  // And yet they stand where the clock has them.
  const time_ms later = 3000;
  REQUIRE(p.decide(later, actions).ok());
  CHECK(p.find(job_id(2)) == stands(philly::phase::acquire, 7));
  CHECK(p.waited(job_id(2), later)->by_cause ==
        std::array<time_ms, delays::num_causes>{later - 2, 0, 0, 0});
  REQUIRE(p.finish(job_id(0), later).ok());
  REQUIRE(p.decide(later, actions).ok());
  CHECK(actions.size() > 2);
}
