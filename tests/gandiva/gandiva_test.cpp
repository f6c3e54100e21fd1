// apiary/tests/gandiva/gandiva_test.cpp - where jobs go, which run, which migrate.
// SPDX-License-Identifier: MIT
#include "support/forwarding_scheduler.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gandiva/gandiva.h>
#include <apiary/sim/simulate.h>
#include <apiary/trace/job_list.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

struct turning_host {
  gandiva scheduler;
  std::vector<job_action> actions{};

  explicit turning_host(std::vector<std::uint32_t> gpus)
      : scheduler(gandiva::create({.servers = {.gpus = std::move(gpus)}, .quantum = 60}).value()) {}

  void submit(std::uint32_t job, std::uint32_t gpus, time_ms now, std::int32_t priority = 0) {
    REQUIRE(scheduler.submit({.job = job_id(job), .priority = priority, .gpus = gpus}, now).ok());
    decide(now);
  }
  void finish(std::uint32_t job, time_ms now) {
    REQUIRE(scheduler.finish(job_id(job), now).ok());
    decide(now);
  }
  void decide(time_ms now) {
    actions.clear();
    REQUIRE(scheduler.decide(now, actions).ok());
    std::set<job_id> seen;
    for (const job_action& a : actions) REQUIRE(seen.insert(a.job).second);  // one action a job
    REQUIRE(scheduler.wake() > now);
  }
  [[nodiscard]] gandiva::standing at(std::uint32_t job) const {
    return scheduler.find(job_id(job)).value();
  }
};

gandiva::standing runs(std::uint32_t server) { return {gandiva_phase::run, node_id(server)}; }
gandiva::standing waits(std::uint32_t server) {
  return {gandiva_phase::suspended, node_id(server)};
}

}  // namespace

TEST_CASE("gandiva: what is no cluster and no job") {
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  CHECK(gandiva::create({}).status().code() == invalid);
  CHECK(gandiva::create({.servers = {.gpus = {4}}, .quantum = 0}).status().code() == invalid);
  gandiva g = gandiva::create({.servers = {.gpus = {4}}}).value();
  CHECK(g.submit({}, 0).code() == invalid);
  CHECK(g.submit({.job = job_id(1), .gpus = 0}, 0).code() == invalid);
  CHECK(g.submit({.job = job_id(1), .gpus = 5}, 0).code() == invalid);
  CHECK(g.submit({.job = job_id(1)}, 0).ok());
  CHECK(g.submit({.job = job_id(1)}, 0).code() == absl::StatusCode::kAlreadyExists);
  CHECK(g.finish(job_id(2), 0).code() == absl::StatusCode::kNotFound);
  CHECK(g.mark_bad(node_id(1), 0).status().code() == absl::StatusCode::kNotFound);
  CHECK(g.mark_healthy(node_id(1), 0).code() == absl::StatusCode::kNotFound);
}

TEST_CASE("gandiva: same affinity, empty, any with enough GPUs, over-subscribed, in this order") {
  turning_host m({4, 4, 4});
  m.submit(0, 1, 1);
  CHECK(m.at(0) == runs(0));  // empty
  m.submit(1, 2, 2);
  CHECK(m.at(1) == runs(1));  // the next empty one, not beside job 0
  m.submit(2, 1, 3);
  CHECK(m.at(2) == runs(0));  // affinity 1
  m.submit(3, 4, 4);
  CHECK(m.at(3) == runs(2));
  m.submit(4, 4, 5);
  CHECK(m.at(4) ==
        gandiva::standing{gandiva_phase::run, node_id()});  // over both servers with idle GPUs
  CHECK(m.scheduler.load(node_id(0)) == 4);
  CHECK(m.scheduler.affinity(node_id(0)) == 1);
  m.submit(5, 2, 6);
  CHECK(m.at(5) == waits(1));  // over-subscribed beside its like
  m.submit(6, 8, 7);
  CHECK(m.at(6).phase == gandiva_phase::queued);
  CHECK(m.scheduler.wake() == 60);
  m.finish(4, 8);
  CHECK(m.at(5) == runs(1));
}

TEST_CASE("gandiva: six jobs on four GPUs get four sixths each of any 15 minutes") {
  turning_host m({4});
  std::map<std::uint32_t, std::vector<time_ms>> minutes;  // in which each runs
  for (std::uint32_t job = 0; job < 6; ++job) m.submit(job, 1, 0);
  for (time_ms minute = 0; minute < 300; ++minute) {
    m.decide(60 * minute);
    for (std::uint32_t job = 0; job < 6; ++job) {
      if (m.at(job).phase == gandiva_phase::run) minutes[job].push_back(minute);
    }
  }
  for (const auto& [job, ran] : minutes) {
    for (time_ms from = 0; from + 15 <= 300; ++from) {
      REQUIRE(std::count_if(ran.begin(), ran.end(),
                            [&](time_ms t) { return t >= from && t < from + 15; }) == 10);
    }
  }
}

TEST_CASE("gandiva: a departure lets a suspended job of the fullest server move in") {
  turning_host m({2, 2});
  m.submit(0, 2, 1);
  m.submit(1, 2, 2);
  m.submit(2, 2, 3);
  m.submit(3, 2, 4);
  CHECK(m.at(2) == waits(0));
  CHECK(m.at(3) == waits(1));
  m.submit(4, 2, 5);
  CHECK(m.at(4) == waits(0));
  m.finish(1, 6);
  CHECK(m.at(3) == runs(1));
  m.finish(3, 7);
  CHECK(m.at(2) == runs(1));  // of server 0, which has three jobs
  CHECK(m.actions.size() == 1);
  CHECK(m.actions[0].where == job_placement{{node_id(1), 3}});
  CHECK(m.actions[0].waited.total() == 4);
}

TEST_CASE("gandiva: at a quantum higher priorities run, whatever they had") {
  turning_host m({1});
  m.submit(0, 1, 1);
  m.submit(1, 1, 2, 5);
  CHECK(m.at(1) == waits(0));  // until its time slice
  for (time_ms now = 60; now < 600; now += 60) {
    m.decide(now);
    CHECK(m.at(1) == runs(0));
    CHECK(m.at(0) == waits(0));
  }
}

TEST_CASE("gandiva: the jobs of a broken server look for another") {
  turning_host m({2, 2});
  m.submit(0, 2, 1);
  m.submit(1, 1, 2);
  m.submit(2, 2, 3);
  CHECK(m.at(2) == waits(0));
  CHECK(m.scheduler.mark_bad(node_id(0), 4).value() == std::vector{job_id(0)});
  m.decide(4);
  CHECK(m.at(0).phase == gandiva_phase::queued);
  CHECK(m.at(2).phase == gandiva_phase::queued);
  CHECK(m.scheduler.mark_healthy(node_id(0), 5).ok());
  m.decide(5);
  CHECK(m.at(0) == runs(0));
  CHECK(m.at(2) == waits(0));
}

TEST_CASE("gandiva: a server that is marked again as it is asks for no decision") {
  gandiva g =
      gandiva::create({.servers = {.gpus = {2, 2}}, .quantum = 60, .migrates = true}).value();
  std::vector<job_action> actions;
  REQUIRE(g.mark_bad(node_id(1), 0).ok());
  REQUIRE(g.submit({.job = job_id(0)}, 0).ok());
  for (const time_ms now : {0, 60, 120}) REQUIRE(g.decide(now, actions).ok());
  CHECK(g.wake() == max_time);  // the job cannot migrate
  CHECK(g.mark_bad(node_id(1), 121).value().empty());
  CHECK(g.mark_healthy(node_id(0), 121).ok());
  REQUIRE(g.decide(121, actions).ok());
  CHECK(g.wake() == max_time);
  REQUIRE(g.mark_healthy(node_id(1), 122).ok());
  REQUIRE(g.decide(122, actions).ok());
  CHECK(g.wake() == 180);
}

TEST_CASE("gandiva: random loads: no GPU twice, none idle that a job could use, every job ends") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(200U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::uint32_t> gpus(3 + random.uniform(4));
    for (std::uint32_t& g : gpus) g = 3 + random.uniform(5);
    const job_list list = generate_jobs({.seed = seed,
                                         .jobs = 80,
                                         .window = 300,
                                         .shortest = 10,
                                         .longest = 200,
                                         .sizes = {{1, 5}, {2, 3}, {4, 2}, {7, 1}}})
                              .value();
    std::vector<outage> outages;
    for (time_ms at = 20; at < 400; at += 40) {
      outages.push_back({node_id(random.uniform(2)), at, at + 30});
    }
    struct watched : apiary_test::forwarding_scheduler<gandiva> {
      std::vector<job_request> jobs{};
      absl::Status submit(const job_request& r, time_ms t) {
        if (r.gpus <= scheduler.total_gpus()) jobs.push_back(r);
        return scheduler.submit(r, t);
      }
      absl::Status decide(time_ms t, std::vector<job_action>& actions) {
        absl::Status status = scheduler.decide(t, actions);
        std::set<job_id> seen;
        for (const job_action& a : actions) REQUIRE(seen.insert(a.job).second);
        std::map<std::uint32_t, std::uint32_t> has;
        for (const node_id n : scheduler.pool().servers()) {
          for (std::uint32_t d = 0; d < scheduler.pool().gpus(n); ++d) {
            if (scheduler.pool().owner(n, d).valid()) ++has[scheduler.pool().owner(n, d).value];
          }
        }
        std::map<std::uint32_t, std::uint32_t> load;
        for (const job_request& r : jobs) {
          const std::optional<gandiva::standing> s = scheduler.find(r.job);
          if (!s) continue;
          REQUIRE(has[r.job.value] == (s->phase == gandiva_phase::run ? r.gpus : 0));
          if (s->server.valid()) load[s->server.value] += r.gpus;
          if (s->phase != gandiva_phase::suspended) continue;
          REQUIRE(r.gpus > scheduler.pool().idle(s->server));  // otherwise it would run
          // At a quantum, unless it was suspended just now, it would move.
          if (t % 20 != 0 || seen.contains(r.job)) continue;
          for (const node_id n : scheduler.pool().servers())
            REQUIRE((scheduler.load(n) + r.gpus > scheduler.pool().gpus(n) ||
                     !scheduler.pool().healthy(n)));
        }
        for (const auto& [n, sum] : load) REQUIRE(scheduler.load(node_id(n)) >= sum);
        return status;
      }
    };
    watched scheduler{{gandiva::create({.servers = {.gpus = gpus}, .quantum = 20}).value()}};
    const auto run = simulate(
        scheduler, list.jobs, outages, {.start_cost = 1},
        [](const timed_job&, const job_placement&) { return full_speed; },
        [](const simulation_event&) {});
    REQUIRE_MESSAGE(run.ok(), run.status().ToString());
    for (std::size_t j = 0; j < list.jobs.size(); ++j) {
      const simulation_result::job_record& r = run->jobs[j];
      REQUIRE(r.ended != max_time);
      REQUIRE(r.ended - list.jobs[j].arrival >=
              r.waited.total() + list.jobs[j].duration + r.lost + 1);
    }
    REQUIRE(scheduler.scheduler.num_jobs() == 0);
  }
}
