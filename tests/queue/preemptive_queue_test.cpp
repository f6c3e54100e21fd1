// apiary/tests/queue/preemptive_queue_test.cpp - which jobs run in each tick, against sorting them all.
// SPDX-License-Identifier: MIT
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
#include <cstdlib>
#include <tuple>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

server_placer any_gpus(std::uint32_t n) {
  return server_placer::create({.gpus = std::vector<std::uint32_t>(n, 1)}).value();
}

std::vector<timed_job> jobs_of(
    const std::vector<std::tuple<time_ms, std::uint32_t, time_ms>>& list) {
  std::vector<timed_job> jobs;
  for (const auto& [arrival, gpus, duration] : list) {
    jobs.push_back({{.gpus = gpus, .estimate = duration}, arrival, duration});
  }
  job_list::number_by_arrival(jobs);
  return jobs;
}

// When each job ends: every tick all jobs are sorted anew. `quantum` 0: the least remaining by the
// estimates, else the least attained, chosen at its multiples.
std::vector<time_ms> naive_ends(const std::vector<timed_job>& jobs, std::uint32_t gpus,
                                time_ms quantum, const std::vector<std::int64_t>& thresholds = {}) {
  std::vector<time_ms> end(jobs.size(), max_time);
  std::vector<time_ms> had(jobs.size(), 0);
  std::vector<bool> runs(jobs.size(), false);
  bool event = false;  // for the least remaining: at events only
  for (time_ms now = 0; std::count(end.begin(), end.end(), max_time) > 0; ++now) {
    std::vector<std::size_t> order;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      event = event || jobs[j].arrival == now;
      if (jobs[j].arrival <= now && end[j] == max_time) order.push_back(j);
    }
    const auto key = [&](std::size_t j) {
      const time_ms left = std::max<time_ms>(0, jobs[j].request.estimate - had[j]);
      const std::int64_t exact = (quantum == 0 ? left : had[j]) * jobs[j].request.gpus;
      std::int64_t reached = thresholds.empty() ? exact : 0;
      for (const std::int64_t t : thresholds) reached = t <= exact ? t : reached;
      return reached;
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
    const bool choose = quantum == 0 ? event : now % quantum == 0;
    event = false;
    std::uint32_t left = gpus;
    for (const std::size_t j : order) {
      if (choose) runs[j] = false;
      if (runs[j]) left -= jobs[j].request.gpus;
    }
    for (const std::size_t j : order) {
      if (runs[j] || jobs[j].request.gpus > left) continue;
      runs[j] = true;
      left -= jobs[j].request.gpus;
    }
    for (const std::size_t j : order) {
      if (!runs[j] || ++had[j] < jobs[j].duration) continue;
      end[j] = now + 1;
      runs[j] = false;
      event = true;
    }
  }
  return end;
}

}  // namespace

TEST_CASE("preemptive_queue: three jobs on two GPUs, by attained and by remaining service") {
  const std::vector<timed_job> jobs = jobs_of({{0, 2, 2}, {0, 1, 8}, {0, 2, 6}});
  preemptive_queue attained(any_gpus(2), {.rule = preemptive_options::rules::least_attained});
  const simulation_result by_attained = simulate(attained, jobs).value();
  CHECK(by_attained.jobs[0].ended == 5);
  CHECK(by_attained.jobs[1].ended == 14);
  CHECK(by_attained.jobs[2].ended == 16);
  CHECK(metrics_of(by_attained, jobs).completion.mean == doctest::Approx(35.0 / 3));  // 11.67
  preemptive_queue remaining(any_gpus(2), {.rule = preemptive_options::rules::shortest_remaining});
  const simulation_result by_remaining = simulate(remaining, jobs).value();
  CHECK(metrics_of(by_remaining, jobs).completion.mean == doctest::Approx(28.0 / 3));  // 9.33
  CHECK(by_remaining.jobs[1].suspended == 0);
}

TEST_CASE("preemptive_queue: a shorter job suspends a longer one, which goes on where it was") {
  const std::vector<timed_job> jobs = jobs_of({{0, 1, 10}, {4, 1, 2}});
  preemptive_queue queue(any_gpus(1), {.rule = preemptive_options::rules::shortest_remaining});
  const simulation_result run = simulate(queue, jobs).value();
  CHECK(run.jobs[1].ended == 6);
  CHECK(run.jobs[0].ended == 12);
  CHECK(run.jobs[0].suspended == 1);
  CHECK(run.jobs[0].waited.total() == 2);
}

// The header says that waits have no bound, and that bounded_wait_queue is the remedy.
TEST_CASE("preemptive_queue: a wide job starves for as long as narrow ones arrive") {
  for (const std::uint32_t narrow : {100U, 1000U}) {
    CAPTURE(narrow);
    std::vector<std::tuple<time_ms, std::uint32_t, time_ms>> list{{0, 4, 20}};
    for (std::uint32_t j = 0; j < narrow; ++j) list.emplace_back(1 + j, 1, 2);
    const std::vector<timed_job> jobs = jobs_of(list);
    const auto wide = [&](auto queue) { return simulate(queue, jobs).value().jobs[0]; };
    using rules = preemptive_options::rules;
    for (const preemptive_options& options :
         {preemptive_options{.rule = rules::shortest_remaining},
          preemptive_options{.rule = rules::least_attained},
          preemptive_options{.rule = rules::least_attained, .thresholds = {3}}}) {
      const auto r = wide(preemptive_queue(any_gpus(4), options));
      CHECK(r.suspended == 1);
      CHECK(r.waited.total() >= narrow);
    }
    for (const auto order :
         {bounded_wait_options::orders::remaining, bounded_wait_options::orders::attained}) {
      const auto r = wide(bounded_wait_queue(
          any_gpus(4), {.order = order, .quantum = 1, .patience = 10, .slice = 2}));
      CHECK(r.waited.total() <= 200);  // ten slices, each after a wait of at most 20
    }
  }
}

TEST_CASE("preemptive_queue: estimates that cannot be weighed are refused in words") {
  for (const preemptive_options::rules rule :
       {preemptive_options::rules::least_attained, preemptive_options::rules::shortest_remaining}) {
    preemptive_queue queue(any_gpus(8), {.rule = rule});
    const absl::Status negative = queue.submit({.job = job_id(3), .estimate = -1}, 0);
    CHECK(negative.code() == absl::StatusCode::kInvalidArgument);
    CHECK(negative.message() == "job 3: an estimate of -1, which is not at least 0");
    CHECK(queue.num_waiting() == 0);
    constexpr time_ms large = time_ms{1} << 62;
    const bool counts = rule == preemptive_options::rules::shortest_remaining;
    CHECK(queue.submit({.job = job_id(4), .gpus = 4, .estimate = large}, 0).ok() == !counts);
    CHECK(queue.submit({.job = job_id(5), .gpus = 4, .estimate = large / 4}, 0).ok() == !counts);
    CHECK(queue.submit({.job = job_id(6), .gpus = 4, .estimate = large / 4 - 1}, 0).ok());
    CHECK(queue.submit({.job = job_id(7), .gpus = 1, .estimate = large - 1}, 0).ok());
    CHECK(queue.submit({.job = job_id(8), .gpus = 0, .estimate = large}, 0).code() ==
          absl::StatusCode::kInvalidArgument);
    if (counts) {
      CHECK(queue.submit({.job = job_id(4), .gpus = 4, .estimate = large}, 0).message() ==
            "job 4: an estimate of 4611686018427387904 on 4 GPUs is not below 2^62 of GPU-time");
    }
    std::vector<job_action> actions;
    for (time_ms now = 0; now < 10; ++now) CHECK(queue.decide(now, actions).ok());
    CHECK(queue.num_running() > 0);
  }
}

TEST_CASE("preemptive_queue: a job is not suspended for one that does not fit even then") {
  preemptive_queue queue(server_placer::create({.gpus = {4, 4}}).value(),
                         {.rule = preemptive_options::rules::shortest_remaining});
  const auto decide = [&](time_ms now) {
    std::vector<job_action> actions;
    REQUIRE(queue.decide(now, actions).ok());
    return actions;
  };
  // Jobs 0 and 1 on the first server, 2 and 3 on the other; 1 and 3 have longest.
  const time_ms estimates[] = {100, 1000, 120, 1010};
  for (std::uint32_t job = 0; job < 4; ++job) {
    REQUIRE(queue.submit({.job = job_id(job), .gpus = 2, .estimate = estimates[job]}, 0).ok());
    REQUIRE(decide(0).size() == 1);
  }
  const auto server = [&](std::uint32_t n) { return queue.placer().jobs_on(node_id(n)); };
  REQUIRE(server(0) == std::vector{job_id(0), job_id(1)});
  REQUIRE(queue.submit({.job = job_id(4), .gpus = 4, .estimate = 90}, 1).ok());
  for (time_ms now = 1; now < 5; ++now) CHECK(decide(now).empty());
  CHECK(server(0) == std::vector{job_id(0), job_id(1)});
  CHECK(server(1) == std::vector{job_id(2), job_id(3)});
  // Two more GPUs idle on the second server: now job 3, the last, gives way there.
  REQUIRE(queue.finish(job_id(2), 5).ok());
  const std::vector<job_action> actions = decide(5);
  REQUIRE(actions.size() == 2);
  CHECK(actions[0].what == job_action::verb::suspend);
  CHECK(actions[0].job == job_id(3));
  CHECK(actions[1].what == job_action::verb::start);
  CHECK(actions[1].job == job_id(4));
  CHECK(actions[1].waited.total() == 4);
  REQUIRE(queue.finish(job_id(4), 10).ok());
  REQUIRE(decide(10).size() == 1);
  CHECK(server(1) == std::vector{job_id(3)});
}

// A job of ten hours loses its server after nine, for a second; meanwhile a job of two hours arrives.
TEST_CASE("preemptive_queue, bounded_wait_queue: work that a breakdown undid is not done") {
  constexpr time_ms hour = 3'600'000;
  const std::vector<timed_job> jobs = jobs_of({{0, 1, 10 * hour}, {9 * hour + 500, 1, 2 * hour}});
  const std::vector<outage> outages{{node_id(0), 9 * hour, 9 * hour + 1000}};
  const auto first_end = [&](auto queue, time_ms interval) {
    const auto run = simulate(
        queue, jobs, outages, {.checkpoint_interval = interval},
        [](const timed_job&, const job_placement&) { return full_speed; },
        [](const simulation_event&) {});
    REQUIRE_MESSAGE(run.ok(), run.status().ToString());
    return run->jobs[0].ended;
  };
  for (const time_ms interval : {time_ms{0}, hour, 4 * hour, 20 * hour}) {
    CAPTURE(interval);
    // What is left: ten hours, one hour, two hours (the lower id is first), ten hours.
    const bool is_first = interval == hour || interval == 4 * hour;
    const time_ms kept = interval == hour ? 9 * hour : interval == 4 * hour ? 8 * hour : 0;
    const time_ms end = 9 * hour + 1000 + (is_first ? 0 : 2 * hour) + 10 * hour - kept;
    CHECK(first_end(
              preemptive_queue(any_gpus(1), {.rule = preemptive_options::rules::shortest_remaining,
                                             .checkpoint_interval = interval}),
              interval) == end);
    CHECK(
        first_end(bounded_wait_queue(any_gpus(1), {.order = bounded_wait_options::orders::remaining,
                                                   .patience = 100 * hour,
                                                   .checkpoint_interval = interval}),
                  interval) == end);
  }
  // What it has attained it keeps: the other job has attained less, and comes first.
  const time_ms last = 9 * hour + 1000 + 2 * hour + 10 * hour;
  CHECK(first_end(preemptive_queue(any_gpus(1), {.quantum = hour}), 0) == last);
}

TEST_CASE("preemptive_queue: a host that is late all the time chooses all the same") {
  for (const std::uint32_t max_late : {1U, 9U}) {
    preemptive_queue queue(any_gpus(2),
                           {.rule = preemptive_options::rules::least_attained, .quantum = 10});
    rng random(max_late);
    std::vector<time_ms> had(3, 0);
    std::vector<bool> runs(3, false);
    for (std::uint32_t job = 0; job < 3; ++job) REQUIRE(queue.submit({.job = job_id(job)}, 1).ok());
    time_ms now = 1;
    for (int round = 0; round < 300; ++round) {
      std::vector<job_action> actions;
      REQUIRE(queue.decide(now, actions).ok());
      for (const job_action& a : actions) runs[a.job.value] = a.what == job_action::verb::start;
      REQUIRE(queue.wake() == (now / 10 + 1) * 10);
      const time_ms next = queue.wake() + 1 + random.uniform(max_late);
      for (std::size_t job = 0; job < 3; ++job) had[job] += runs[job] ? next - now : 0;
      now = next;
    }
    for (const time_ms time : had) CHECK(std::abs(3 * time - 2 * now) < 3 * 2 * 20);
  }
}

TEST_CASE("preemptive_queue: shortest remaining wants estimates") {
  preemptive_queue queue(any_gpus(1), {.rule = preemptive_options::rules::shortest_remaining});
  CHECK(queue.submit({.job = job_id(0)}, 0).code() == absl::StatusCode::kInvalidArgument);
  CHECK(queue.submit({.job = job_id(0), .estimate = 4}, 0).ok());
  CHECK(queue.submit({.job = job_id(0), .estimate = 4}, 0).code() ==
        absl::StatusCode::kAlreadyExists);
  CHECK(queue.finish(job_id(1), 0).code() == absl::StatusCode::kNotFound);
}

TEST_CASE("preemptive_queue: each tick those run that sorting all jobs would choose") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(2000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t gpus = 1 + random.uniform(6);
    std::vector<std::tuple<time_ms, std::uint32_t, time_ms>> list(1 + random.uniform(10));
    for (auto& [arrival, wanted, duration] : list) {
      arrival = random.uniform(20);
      wanted = 1 + random.uniform(gpus);
      duration = 1 + random.uniform(9);
    }
    const std::vector<timed_job> jobs = jobs_of(list);
    for (const time_ms quantum : {time_ms{0}, time_ms{1}, time_ms{3}}) {
      CAPTURE(quantum);
      preemptive_queue queue(any_gpus(gpus),
                             {.rule = quantum == 0 ? preemptive_options::rules::shortest_remaining
                                                   : preemptive_options::rules::least_attained,
                              .quantum = std::max<time_ms>(1, quantum)});
      const simulation_result run = simulate(queue, jobs).value();
      const std::vector<time_ms> ends = naive_ends(jobs, gpus, quantum);
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        REQUIRE(run.jobs[j].ended == ends[j]);
        REQUIRE(run.jobs[j].waited.total() == ends[j] - jobs[j].arrival - jobs[j].duration);
      }
    }
  }
}

TEST_CASE("preemptive_queue: the same of many jobs that run longer or shorter than they should") {
  std::uint64_t suspended = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(300U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t gpus = 10 + random.uniform(30);
    const std::uint32_t most = 1 + random.uniform(gpus);
    std::vector<timed_job> jobs(100);
    for (timed_job& j : jobs) {
      j.arrival = random.uniform(100);
      j.duration = 1 + random.uniform(30);
      j.request.gpus = 1 + random.uniform(random.uniform(3) == 0 ? most : 2);
      j.request.estimate = random.uniform(40);
    }
    job_list::number_by_arrival(jobs);
    for (const time_ms quantum : {time_ms{0}, time_ms{4}}) {
      CAPTURE(quantum);
      preemptive_queue queue(any_gpus(gpus),
                             {.rule = quantum == 0 ? preemptive_options::rules::shortest_remaining
                                                   : preemptive_options::rules::least_attained,
                              .quantum = std::max<time_ms>(1, quantum)});
      const simulation_result run = simulate(queue, jobs).value();
      const std::vector<time_ms> ends = naive_ends(jobs, gpus, quantum);
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        REQUIRE(run.jobs[j].ended == ends[j]);
        suspended += run.jobs[j].suspended;
      }
    }
  }
  CHECK(suspended > 0);
}

TEST_CASE(
    "preemptive_queue: with thresholds as sorting all jobs by the last one each has reached") {
  std::uint64_t suspended = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(600U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t gpus = 1 + random.uniform(12);
    std::vector<timed_job> jobs(40);
    for (timed_job& j : jobs) {
      j.arrival = random.uniform(60);
      j.duration = j.request.estimate = 1 + random.uniform(30);
      j.request.gpus = 1 + random.uniform(random.uniform(3) == 0 ? gpus : 1);
    }
    job_list::number_by_arrival(jobs);
    std::vector<std::int64_t> thresholds(1 + random.uniform(3));
    for (std::int64_t& t : thresholds) t = 1 + random.uniform(60);
    std::sort(thresholds.begin(), thresholds.end());
    const time_ms quantum = 1 + random.uniform(5);
    preemptive_queue queue(any_gpus(gpus), {.quantum = quantum, .thresholds = thresholds});
    const simulation_result run = simulate(queue, jobs).value();
    const std::vector<time_ms> ends = naive_ends(jobs, gpus, quantum, thresholds);
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      REQUIRE(run.jobs[j].ended == ends[j]);
      suspended += run.jobs[j].suspended;
    }
  }
  CHECK(suspended > 0);
}

TEST_CASE("preemptive_queue: on servers, some of them broken, every job ends") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(200U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::tuple<time_ms, std::uint32_t, time_ms>> list(1 + random.uniform(20));
    for (auto& [arrival, wanted, duration] : list) {
      arrival = random.uniform(30);
      wanted = 1 + random.uniform(8);
      duration = 1 + random.uniform(9);
    }
    const std::vector<timed_job> jobs = jobs_of(list);
    const std::vector<outage> outages{{node_id(0), 3, 9}, {node_id(1), 5, 6}, {node_id(0), 12, 30}};
    const server_placer servers = server_placer::create({.gpus = {4, 4, 4}}).value();
    for (const preemptive_options::rules rule : {preemptive_options::rules::shortest_remaining,
                                                 preemptive_options::rules::least_attained}) {
      preemptive_queue queue(servers, {.rule = rule, .quantum = 4});
      const auto run = simulate(
          queue, jobs, outages, {},
          [](const timed_job&, const job_placement&) { return full_speed; },
          [](const simulation_event&) {});
      REQUIRE_MESSAGE(run.ok(), run.status().ToString());
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        const simulation_result::job_record& r = run->jobs[j];
        REQUIRE(r.ended == jobs[j].arrival + r.waited.total() + jobs[j].duration + r.lost);
      }
    }
  }
}

TEST_CASE("while no job runs the queue need not be woken: the waiting ones wait for a server") {
  using rules = preemptive_options::rules;
  for (const bool bounded : {false, true}) {
    CAPTURE(bounded);
    const auto check = [](auto queue) {
      std::vector<job_action> actions;
      REQUIRE(queue.submit({.job = job_id(1), .gpus = 2}, 0).ok());
      REQUIRE(queue.submit({.job = job_id(2), .gpus = 2}, 0).ok());
      REQUIRE(queue.decide(0, actions).ok());
      CHECK(queue.wake() == 10);
      REQUIRE(queue.mark_bad(node_id(0), 3).ok());
      REQUIRE(queue.decide(3, actions).ok());
      CHECK(queue.num_waiting() == 2);
      CHECK(queue.wake() == max_time);
      REQUIRE(queue.mark_healthy(node_id(0), 35).ok());
      REQUIRE(queue.decide(35, actions).ok());
      CHECK(queue.num_running() == 1);
      CHECK(queue.wake() == 40);
    };
    const server_placer server = server_placer::create({.gpus = {2}}).value();
    if (bounded) {
      check(bounded_wait_queue(server, {.quantum = 10}));
    } else {
      check(preemptive_queue(server, {.rule = rules::least_attained, .quantum = 10}));
    }
  }
}
