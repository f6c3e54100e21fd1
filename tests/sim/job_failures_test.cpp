// apiary/tests/sim/job_failures_test.cpp - jobs that fail, and are retried or not, by their classes.
// SPDX-License-Identifier: MIT
#include "support/forwarding_scheduler.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gandiva/gandiva.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/hived_queue.h>
#include <apiary/philly/philly.h>
#include <apiary/queue/conservative_queue.h>
#include <apiary/queue/policies.h>
#include <apiary/queue/server_placer.h>
#include <apiary/sim/simulate.h>
#include <apiary/sim/simulation_result.h>
#include <apiary/trace/job_list.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace job_failures_tests {
namespace {

using namespace apiary;
using job_failure = simulation_options::job_failure;

template <class Scheduler>
simulation_result run(Scheduler scheduler, const std::vector<timed_job>& jobs,
                      const simulation_options& options) {
  std::vector<std::uint32_t> retries(jobs.size());
  std::vector<std::uint32_t> last(jobs.size());
  auto done = simulate(
      scheduler, jobs, {}, options,
      [](const timed_job&, const job_placement&) { return full_speed; },
      [&](const simulation_event& e) {
        if (e.what == simulation_event::kind::job_failure)
          ++(e.retried ? retries : last)[e.job.value];
      });
  REQUIRE_MESSAGE(done.ok(), done.status().ToString());
  // The events say which failure is the last one of a job.
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    REQUIRE(last[j] == (done->jobs[j].given_up ? 1U : 0U));
    REQUIRE(retries[j] + last[j] == done->jobs[j].failed);
  }
  return *std::move(done);
}
batch_queue<server_placer> fifo(std::uint32_t gpus) {
  return batch_queue(server_placer::create({.gpus = std::vector<std::uint32_t>(gpus, 1)}).value(),
                     {.rule = batch_options::rules::fifo});
}

// Jobs of one GPU in order of arrival, millisecond by millisecond.
std::vector<simulation_result::job_record> naive(const std::vector<timed_job>& jobs,
                                                 std::uint32_t gpus,
                                                 const simulation_options& options) {
  std::vector<simulation_result::job_record> out(jobs.size());
  std::vector<std::vector<job_failure>> to_come(jobs.size());
  for (const job_failure& f : options.failures) to_come[f.job.value].push_back(f);
  std::vector<time_ms> kept(jobs.size());
  std::vector<time_ms> began(jobs.size(), -1);
  std::vector<std::uint32_t> unknown(jobs.size());
  std::set<std::pair<time_ms, std::size_t>> waiting;  // since when, which job
  std::size_t ended = 0;
  for (time_ms now = 0; ended < jobs.size(); ++now) {
    for (std::size_t j = 0; j < jobs.size(); ++j)
      if (jobs[j].arrival == now) waiting.emplace(now, j);
    for (bool changes = true; changes;) {
      changes = false;
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        if (began[j] < 0 || now < began[j] + options.start_cost) continue;
        const time_ms done = kept[j] + now - began[j] - options.start_cost;
        const bool may_fail = !to_come[j].empty() && to_come[j][0].at < jobs[j].duration;
        if (done < (may_fail ? to_come[j][0].at : jobs[j].duration)) continue;
        changes = true;
        began[j] = -1;
        ++gpus;
        if (may_fail) {
          const job_failure::kind why = to_come[j][0].why;
          to_come[j].erase(to_come[j].begin());
          ++out[j].failed;
          if (why == job_failure::kind::transient ||
              (why == job_failure::kind::unknown && ++unknown[j] <= options.max_retries)) {
            kept[j] =
                options.checkpoint_interval == 0 ? 0 : done - done % options.checkpoint_interval;
            out[j].lost += done - kept[j];
            waiting.emplace(now, j);
            continue;
          }
          out[j].given_up = true;
        }
        out[j].ended = now;
        ++ended;
      }
      while (gpus > 0 && !waiting.empty()) {
        const std::size_t j = waiting.begin()->second;
        out[j].waited[delay_cause::capacity] += now - waiting.begin()->first;
        waiting.erase(waiting.begin());
        began[j] = now;
        out[j].started = std::min(out[j].started, now);
        --gpus;
        changes = true;
      }
    }
  }
  return out;
}

std::vector<job_failure> draw_failures(rng& random, std::size_t jobs) {
  std::vector<job_failure> failures;
  for (std::uint32_t j = 0; j < jobs; ++j) {
    while (random.uniform(2) == 0)
      failures.push_back({job_id(j), random.uniform(25),
                          static_cast<job_failure::kind>(random.uniform(8) == 0   ? 1
                                                         : random.uniform(2) == 0 ? 0
                                                                                  : 2)});
  }
  return failures;
}

TEST_CASE("job failures: as millisecond by millisecond") {
  std::uint64_t given_up = 0;
  std::uint64_t retried = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(600U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<timed_job> jobs(1 + random.uniform(8));
    for (timed_job& j : jobs) {
      j.arrival = random.uniform(30);
      j.duration = j.request.estimate = random.uniform(20);
    }
    job_list::number_by_arrival(jobs);
    const std::uint32_t gpus = 1 + random.uniform(3);
    const simulation_options options{.start_cost = random.uniform(3),
                                     .checkpoint_interval = random.uniform(6),
                                     .failures = draw_failures(random, jobs.size()),
                                     .max_retries = random.uniform(3)};
    const simulation_result got = run(fifo(gpus), jobs, options);
    const auto expected = naive(jobs, gpus, options);
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      CAPTURE(j);
      REQUIRE(got.jobs[j].ended == expected[j].ended);
      REQUIRE(got.jobs[j].started == expected[j].started);
      REQUIRE(got.jobs[j].failed == expected[j].failed);
      REQUIRE(got.jobs[j].given_up == expected[j].given_up);
      REQUIRE(got.jobs[j].lost == expected[j].lost);
      REQUIRE(got.jobs[j].waited.total() == expected[j].waited.total());
    }
    const job_metrics m = metrics_of(got, jobs);
    REQUIRE(m.ended + m.given_up == jobs.size());
    given_up += m.given_up;
    retried += m.failures;
  }
  CHECK(given_up > 0);
  CHECK(retried > 0);
}

TEST_CASE(
    "job failures: under queues, Philly, Gandiva and HiveD each job ends or is given up, by its "
    "class") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(40U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<timed_job> jobs(20);
    for (timed_job& j : jobs) {
      j.request.gpus = 1 + random.uniform(4);
      j.request.tenant = tenant_id(0);
      j.arrival = random.uniform(60);
      j.duration = j.request.estimate = 1 + random.uniform(20);
    }
    job_list::number_by_arrival(jobs);
    const simulation_options options{.failures = draw_failures(random, jobs.size())};
    const auto check = [&](auto scheduler) {
      const simulation_result got = run(std::move(scheduler), jobs, options);
      std::uint32_t next = 0;
      for (std::uint32_t j = 0; j < jobs.size(); ++j) {
        CAPTURE(j);
        std::uint32_t failed = 0;
        std::uint32_t unknown = 0;
        bool given_up = false;
        bool happens = true;  // after one that does not happen, no other does
        for (; next < options.failures.size() && options.failures[next].job.value == j; ++next) {
          const job_failure& f = options.failures[next];
          happens = happens && !given_up && f.at < jobs[j].duration;
          if (!happens) continue;
          ++failed;
          unknown += f.why == job_failure::kind::unknown ? 1U : 0U;
          given_up = f.why == job_failure::kind::permanent || unknown > options.max_retries;
        }
        REQUIRE(got.jobs[j].ended != max_time);
        REQUIRE(got.jobs[j].failed == failed);
        REQUIRE(got.jobs[j].given_up == given_up);
      }
    };
    const server_spec spec{.gpus = {4, 4}};
    const hived_config cells{
        .cell_types = {{"NODE", "GPU", 4, true}, {"RACK", "NODE", 2}},
        .physical_cells = {{.type = "RACK", .children = {{.address = "a"}, {.address = "b"}}}},
        .virtual_clusters = {{.name = "t", .cells = {{"RACK.NODE", 2}}}}};
    const server_placer placer = server_placer::create(spec).value();
    check(batch_queue(placer));
    check(preemptive_queue(placer, {.rule = preemptive_options::rules::shortest_remaining}));
    check(conservative_queue(placer));
    check(bounded_wait_queue(placer, {.quantum = 10, .slice = 10}));
    check(hived_queue::create(cells).value());
    check(philly::create({.servers = spec, .quotas = {8}}).value());
    check(gandiva::create({.servers = spec, .quantum = 10}).value());
  }
}

// A queue that starts jobs anew after their failures would start job 1 at 5.
TEST_CASE(
    "job failures: Philly decides which jobs wait again, at their old position in the order") {
  std::vector<timed_job> jobs(2);
  for (timed_job& j : jobs) {
    j.request = {.tenant = tenant_id(0), .gpus = 4};
    j.duration = 20;
  }
  jobs[1].arrival = 1;
  job_list::number_by_arrival(jobs);
  const simulation_options options{.failures = {{job_id(0), 5}, {job_id(0), 10}, {job_id(1), 3}},
                                   .max_retries = 9};
  philly scheduler =
      philly::create({.servers = {.gpus = {4}}, .quotas = {4}, .max_retries = 1}).value();
  std::vector<std::pair<time_ms, bool>> failures;
  const absl::StatusOr<simulation_result> done = simulate(
      scheduler, jobs, {}, options,
      [](const timed_job&, const job_placement&) { return full_speed; },
      [&](const simulation_event& e, const job_placement& where) {
        if (e.what != simulation_event::kind::job_failure) return;
        failures.emplace_back(e.at, e.retried);
        CHECK(where == job_placement{{node_id(0), 0xf}});
      });
  REQUIRE_MESSAGE(done.ok(), done.status().ToString());
  // Job 0 runs until 5, then until 15 and is given up; job 1 until 18, then until 38.
  CHECK(failures == std::vector<std::pair<time_ms, bool>>{{5, true}, {15, false}, {18, true}});
  CHECK(done->jobs[0].ended == 15);
  CHECK(done->jobs[0].given_up);
  CHECK(done->jobs[0].failed == 2);
  CHECK(done->jobs[1].started == 15);
  CHECK(done->jobs[1].ended == 38);
  CHECK_FALSE(done->jobs[1].given_up);
  CHECK(scheduler.num_jobs() == 0);
}

TEST_CASE("job failures: the estimate of a retry is without the work that was kept") {
  struct listening : apiary_test::forwarding_scheduler<batch_queue<server_placer>> {
    std::vector<time_ms> estimates{};
    absl::Status submit(const job_request& r, time_ms t) {
      estimates.push_back(r.estimate);
      return scheduler.submit(r, t);
    }
  };
  std::vector<timed_job> jobs(3);
  for (timed_job& j : jobs) j.duration = 100;
  jobs[0].request.estimate = 120;
  jobs[1].request.estimate = 50;  // too short
  job_list::number_by_arrival(jobs);
  for (const time_ms interval : {time_ms{0}, time_ms{30}}) {
    CAPTURE(interval);
    listening queue{{fifo(1)}, {}};
    const auto done = simulate(
        queue, jobs, {},
        {.start_cost = 3,
         .checkpoint_interval = interval,
         .failures = {{job_id(0), 70}, {job_id(1), 80}, {job_id(2), 70}}},
        [](const timed_job&, const job_placement&) { return full_speed; },
        [](const simulation_event&) {});
    REQUIRE_MESSAGE(done.ok(), done.status().ToString());
    CHECK(queue.estimates == (interval == 0
                                  ? std::vector<time_ms>{123, 53, max_time, 123, 53, max_time}
                                  : std::vector<time_ms>{123, 53, max_time, 63, 3, max_time}));
  }
}

TEST_CASE("job failures: what is refused") {
  std::vector<timed_job> jobs(2);
  job_list::number_by_arrival(jobs);
  const auto refused = [&](std::vector<job_failure> failures) {
    batch_queue queue = fifo(1);
    return simulate(
               queue, jobs, {}, {.failures = std::move(failures)},
               [](const timed_job&, const job_placement&) { return full_speed; },
               [](const simulation_event&) {})
        .status();
  };
  CHECK(refused({{job_id(0), 1}, {job_id(1), 1}, {job_id(1), 0}}).ok());
  CHECK(refused({{job_id(1), 1}, {job_id(0), 1}}) ==
        absl::InvalidArgumentError("failure 1: of job 0 at 1; failures must be in order of jobs "
                                   "below 2, and at 0 or later"));
  CHECK(refused({{job_id(2), 1}}).code() == absl::StatusCode::kInvalidArgument);
  CHECK(refused({{job_id(0), -1}}).code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace job_failures_tests
