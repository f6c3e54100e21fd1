// apiary/tests/queue/bounded_wait_queue_test.cpp - against sorting all jobs, and how long a job waits.
// SPDX-License-Identifier: MIT
#include "support/naive_bounded_wait.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/queue/policies.h>
#include <apiary/queue/server_placer.h>
#include <apiary/sim/simulate.h>
#include <apiary/sim/simulation_result.h>
#include <apiary/trace/job_list.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

using bounded_orders = bounded_wait_options::orders;

template <class Scheduler>
simulation_result run_bounded(Scheduler& scheduler, std::span<const timed_job> jobs,
                              std::span<const outage> outages = {}) {
  const auto run = simulate(
      scheduler, jobs, outages, {},
      [](const timed_job&, const job_placement&) { return full_speed; },
      [](const simulation_event&) {});
  REQUIRE_MESSAGE(run.ok(), run.status().ToString());
  return *run;
}

// The queue, and a check that no wait is longer than the bound allows it.
struct watched_waits {
  struct entry {
    time_ms since = max_time;  // it waits since then; max_time: it does not wait
    time_ms bound = 0;         // of that wait
    time_ms started = 0;
    time_ms owed = 0;  // what is left of its slice, as of its last start
  };
  bounded_wait_queue<server_placer> queue;
  bounded_wait_options options;
  std::vector<entry> jobs;
  std::size_t starved = 0;

  absl::Status submit(const job_request& r, time_ms now) {
    jobs[r.job.value].since = now;
    return queue.submit(r, now);
  }
  absl::Status finish(job_id job, time_ms now) {
    jobs[job.value].owed = 0;
    return queue.finish(job, now);
  }
  absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms now) {
    return queue.mark_bad(n, now);
  }
  absl::Status mark_healthy(node_id n, time_ms now) { return queue.mark_healthy(n, now); }
  absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    APIARY_RETURN_IF_ERROR(queue.decide(now, actions));
    for (const job_action& a : actions) {
      entry& e = jobs[a.job.value];
      if (a.what != job_action::verb::suspend) continue;
      e.owed -= now - e.started;
      e.since = now;
    }
    const auto ahead = std::count_if(jobs.begin(), jobs.end(), [&](const entry& e) {
      return e.since != max_time || (e.owed > 0 && now < e.started + e.owed + options.quantum);
    });
    for (std::size_t job = 0; job < jobs.size(); ++job) {
      entry& e = jobs[job];
      if (e.since == now)
        e.bound =
            options.patience + options.quantum + (ahead - 1) * (options.slice + options.quantum);
      CAPTURE(job);
      if (e.since != max_time) REQUIRE(now - e.since <= e.bound);
    }
    for (const job_action& a : actions) {
      if (a.what != job_action::verb::start) continue;
      entry& e = jobs[a.job.value];
      if (now - e.since >= options.patience && e.owed <= 0) {
        e.owed = options.slice;
        ++starved;
      }
      e.started = now;
      e.since = max_time;
    }
    return absl::OkStatus();
  }
  time_ms wake() const { return queue.wake(); }
  std::uint32_t total_gpus() const { return queue.total_gpus(); }
};

}  // namespace

TEST_CASE("bounded_wait_queue: each event as if all jobs were sorted, on copies of the servers") {
  std::uint64_t suspended = 0;
  std::uint64_t migrated = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(400U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const server_placer servers = server_placer::create({.gpus = {4, 4, 2 + random.uniform(3)},
                                                         .anywhere = random.uniform(4) == 0})
                                      .value();
    std::vector<timed_job> jobs(5 + random.uniform(40));
    for (timed_job& j : jobs) {
      j.arrival = random.uniform(80);
      j.duration = 1 + random.uniform(random.uniform(3) == 0 ? 60 : 9);
      j.request.gpus = 1 + random.uniform(random.uniform(3) == 0 ? 10 : 3);
      j.request.estimate = random.uniform(3) == 0 ? random.uniform(60) : j.duration;
    }
    job_list::number_by_arrival(jobs);
    std::vector<outage> outages;
    if (random.uniform(3) == 0) outages = {{node_id(0), 13, 39}, {node_id(2), 31, 33}};
    for (const bounded_orders order : {bounded_orders::attained, bounded_orders::remaining}) {
      const bounded_wait_options options{.order = order,
                                         .quantum = 1 + random.uniform(6),
                                         .patience = random.uniform(60),
                                         .slice = 1 + random.uniform(12),
                                         .migrates = random.uniform(4) != 0,
                                         .checkpoint_interval = random.uniform(5)};
      bounded_wait_queue queue(servers, options);
      apiary_test::naive_bounded_wait naive(servers, options);
      const simulation_result fast = run_bounded(queue, jobs, outages);
      const simulation_result slow = run_bounded(naive, jobs, outages);
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        CAPTURE(j);
        REQUIRE(fast.jobs[j].ended == slow.jobs[j].ended);
        REQUIRE(fast.jobs[j].waited.total() == slow.jobs[j].waited.total());
        suspended += fast.jobs[j].suspended;
        migrated += fast.jobs[j].migrated;
      }
      REQUIRE(fast.log.value() == slow.log.value());
      REQUIRE(queue.num_running() + queue.num_waiting() == 0);
      REQUIRE(queue.wake() == max_time);
    }
  }
  CHECK(suspended > 0);
  CHECK(migrated > 0);
}

TEST_CASE("bounded_wait_queue: whatever arrives, a job waits no longer than the bound") {
  std::size_t starved = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(300U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const server_placer servers = server_placer::create({.gpus = {4, 4}}).value();
    // Wide and long jobs come first; then short ones arrive for ever, as far as the wide can tell.
    std::vector<timed_job> jobs;
    for (std::uint32_t wide = 1 + random.uniform(4); wide > 0; --wide) {
      jobs.push_back(
          {{.gpus = 1 + random.uniform(8)}, random.uniform(30), 20 + random.uniform(80)});
    }
    const std::uint32_t gap = 1 + random.uniform(4);
    const std::uint32_t most = 1 + random.uniform(4);
    for (time_ms t = 0; t < 600; t += gap) {
      jobs.push_back({{.gpus = 1 + random.uniform(most)}, t, 2 + random.uniform(5 * gap)});
    }
    // Estimates are a little too long, or of any length: the bound does not depend on them.
    for (timed_job& j : jobs)
      j.request.estimate = seed % 2 == 0 ? j.duration + 1 : random.uniform(500);
    job_list::number_by_arrival(jobs);
    for (const bounded_orders order : {bounded_orders::attained, bounded_orders::remaining}) {
      const bounded_wait_options options{.order = order,
                                         .quantum = 1 + random.uniform(9),
                                         .patience = random.uniform(100),
                                         .slice = 1 + random.uniform(20)};
      watched_waits watch{bounded_wait_queue(servers, options), options, {}};
      watch.jobs.resize(jobs.size());
      run_bounded(watch, jobs);
      starved += watch.starved;
    }
  }
  CHECK(starved > 0);
}

TEST_CASE("bounded_wait_queue: narrow jobs that arrive for ever do not keep a wide one waiting") {
  const server_placer servers = server_placer::create({.gpus = {4}}).value();
  // A job of one GPU takes five minutes, and one arrives every minute; the wide one arrives second. They
  // ask for more than there is, so that in the end the narrow ones starve, too, and have their turns.
  std::vector<timed_job> jobs{{{.gpus = 4, .estimate = 3'600'000}, 1000, 3'600'000}};
  for (time_ms minute = 0; minute < 1440; ++minute)
    jobs.push_back({{.gpus = 1, .estimate = 300'000}, minute * 60'000, 300'000});
  job_list::number_by_arrival(jobs);
  // By attained service it starts at once.
  bounded_wait_options options{.patience = 3'600'000};
  bounded_wait_queue attained(servers, options);
  const simulation_result first = run_bounded(attained, jobs);
  CHECK(first.jobs[1].started == 1000);
  CHECK(first.jobs[1].ended <= 12 * 3'600'000);
  // By remaining time all others come before it, until it starves.
  options.order = bounded_orders::remaining;
  bounded_wait_queue remaining(servers, options);
  const simulation_result second = run_bounded(remaining, jobs);
  CHECK(second.jobs[1].started == 4'200'000);
  CHECK(second.jobs[1].ended <= 12 * 3'600'000);
}

TEST_CASE("bounded_wait_queue: small jobs move, so that a job fits on one server") {
  for (const bool migrates : {true, false}) {
    bounded_wait_queue queue(server_placer::create({.gpus = {2, 2}}).value(),
                             {.order = bounded_orders::remaining, .migrates = migrates});
    const auto decide = [&](time_ms now) {
      std::vector<job_action> actions;
      REQUIRE(queue.decide(now, actions).ok());
      return actions;
    };
    // Jobs 1 and 2 of one GPU are left, on different servers.
    for (std::uint32_t job = 0; job < 4; ++job)
      REQUIRE(queue.submit({.job = job_id(job), .gpus = 1, .estimate = 1000}, 0).ok());
    REQUIRE(decide(0).size() == 4);
    REQUIRE(queue.finish(job_id(0), 1).ok());
    REQUIRE(queue.finish(job_id(3), 1).ok());
    REQUIRE(decide(1).empty());
    // The job of two GPUs comes after both, so it may not stop them.
    REQUIRE(queue.submit({.job = job_id(4), .gpus = 2, .estimate = 5000}, 2).ok());
    CHECK(decide(2).empty());
    CHECK(queue.wake() == 600'000);
    const std::vector<job_action> actions = decide(600'000);
    CHECK(queue.num_waiting() == (migrates ? 0 : 1));
    if (!migrates) continue;
    REQUIRE(actions.size() == 2);
    CHECK(actions[0].what == job_action::verb::migrate);
    CHECK(actions[1].what == job_action::verb::start);
    CHECK(actions[1].job == job_id(4));
    CHECK(actions[1].waited[delay_cause::fragmentation] == 599'998);
    CHECK(queue.placer().jobs_on(actions[0].where[0].node) == std::vector{job_id(1), job_id(2)});
  }
}

TEST_CASE("bounded_wait_queue: the cost of a start counts as time that the job has run") {
  // The first job has 110 s to run, its start included. The second one stops it when it has run for 60.
  std::vector<timed_job> jobs{{{.estimate = 100'000}, 0, 100'000},
                              {{.estimate = 5'000}, 60'000, 5'000},
                              {{.estimate = 40'000}, 80'000, 40'000}};
  job_list::number_by_arrival(jobs);
  bounded_wait_queue queue(server_placer::create({.gpus = {1}}).value(),
                           {.order = bounded_orders::remaining});
  const auto run = simulate(
      queue, jobs, {}, {.start_cost = 10'000},
      [](const timed_job&, const job_placement&) { return full_speed; },
      [](const simulation_event&) {});
  REQUIRE_MESSAGE(run.ok(), run.status().ToString());
  CHECK(run->jobs[1].ended == 75'000);
  // At 80 s it has 45 s left by the queue's count, less than the 50 of the third job, and in fact 55.
  CHECK(run->jobs[0].suspended == 1);
  CHECK(run->jobs[0].ended == 135'000);
  CHECK(run->jobs[2].started == 135'000);
}

TEST_CASE("bounded_wait_queue: what it refuses") {
  bounded_wait_queue queue(server_placer::create({.gpus = {2, 2}}).value(),
                           {.order = bounded_orders::remaining});
  const time_ms large = time_ms{1} << 62;
  CHECK(queue.submit({.job = job_id(0), .gpus = 2, .estimate = large}, 0).message() ==
        "job 0: an estimate of 4611686018427387904 on 2 GPUs is not below 2^62 of GPU-time");
  CHECK(queue.submit({.job = job_id(0)}, 0).code() == absl::StatusCode::kInvalidArgument);
  CHECK(queue.submit({.job = job_id(0), .gpus = 5, .estimate = 1}, 0).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(queue.submit({.job = job_id(0), .estimate = 1}, 0).ok());
  CHECK(queue.submit({.job = job_id(0), .estimate = 1}, 0).code() ==
        absl::StatusCode::kAlreadyExists);
  CHECK(queue.finish(job_id(1), 0).code() == absl::StatusCode::kNotFound);
  CHECK(queue.mark_bad(node_id(2), 0).status().code() == absl::StatusCode::kNotFound);
  CHECK(queue.finish(job_id(0), 0).ok());
  CHECK(queue.num_waiting() == 0);
}
