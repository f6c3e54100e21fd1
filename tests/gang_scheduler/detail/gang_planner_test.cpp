// apiary/tests/gang_scheduler/detail/gang_planner_test.cpp - all searches of a propose() share one budget of steps.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <support/scale.h>
#include <utility>
#include <vector>

namespace gang_planner_tests {
namespace {

using namespace apiary;

constexpr level_t rack = 1;

// Racks of eight nodes of eight GPUs, two racks a block.
gang_scheduler racks(std::uint32_t n, std::uint32_t nodes_of_a_rack = 8) {
  gang_cluster cluster{.levels = {"rack", "block"}};
  for (std::uint32_t i = 0; i < nodes_of_a_rack * n; ++i) {
    const std::uint32_t r = i / nodes_of_a_rack;
    cluster.nodes.push_back({.name = "n" + std::to_string(i),
                             .cells = {"r" + std::to_string(r), "b" + std::to_string(r / 2)},
                             .gpus = 8,
                             .host = {64'000, 0}});
  }
  return gang_scheduler::create(cluster).value();
}
// Fills the nodes from the first on with gangs of one task; gang i has priority first + i * step.
void fill(gang_scheduler& s, std::uint32_t nodes, std::uint32_t gpus, std::int32_t first = 0,
          std::int32_t step = 0) {
  gang_scheduler::request r;
  r.gang.groups = {{.tasks = 1, .gpus = gpus}};
  std::uint32_t job = 0;
  for (std::uint32_t n = 0; n < nodes; ++n)
    for (std::uint32_t g = 0; g + gpus <= 8; g += gpus) {
      r.priority = first + step * static_cast<std::int32_t>(job);
      r.job = job++;
      const placement at{node_id(n), ((1U << gpus) - 1) << g};
      REQUIRE(s.recover(r, {&at, 1}).ok());
    }
}
gang_scheduler::request asked(std::uint32_t tasks, std::uint32_t gpus, std::int32_t priority = 1) {
  gang_scheduler::request r{.job = "asked", .priority = priority};
  r.gang.groups = {{.tasks = tasks, .gpus = gpus}};
  return r;
}
gang_scheduler::plan propose(gang_scheduler& s, const gang_scheduler::request& r,
                             std::uint64_t budget) {
  s.set_step_budget(budget);
  const auto plan = s.propose(r, 100);
  REQUIRE(plan.ok());
  REQUIRE(plan->steps <= budget);
  if (plan->result == plan_result::wait) REQUIRE(plan->cost + plan->lower_bound == 0);
  return *plan;
}
bool undecided(const gang_scheduler::plan& p) {
  return p.result == plan_result::wait && p.reason == wait_reason::undecided;
}

// Starts gangs that fit: up to so many tasks of up to so many GPUs. A task has 0, 4, ... or
// 4 * (cpus - 1) CPUs.
void start_random(gang_scheduler& s, rng& random, std::uint32_t tasks, std::uint32_t gpus,
                  std::uint32_t cpus) {
  for (std::uint32_t job = 0; job < 80; ++job) {
    auto r = asked(1 + random.uniform(tasks), 1 + random.uniform(gpus), 0);
    r.job = job;
    if (cpus > 1) r.gang.groups[0].host.cpu_milli = 4'000 * random.uniform(cpus);
    const auto plan = s.propose(r);
    if (plan->result == plan_result::bind) REQUIRE(s.commit(*plan).ok());
  }
}
topology_constraints random_gang(rng& random) {
  topology_constraints gang;
  for (std::uint32_t m = 1 + random.uniform(3); m-- > 0;) {
    constrained_task_group group{.tasks = 2 * (1 + random.uniform(4)),
                                 .gpus = 1 + random.uniform(8)};
    if (random.uniform(2) == 0) group.host.cpu_milli = 4'000 * (1 + random.uniform(8));
    const std::uint32_t kind = random.uniform(6);
    if (kind == 0) group.slices = {{rack, 2}};
    if (kind == 1) group.spread = {{random.uniform(2), 1 + random.uniform(2)}};
    gang.groups.push_back(group);
  }
  if (random.uniform(2) == 0) gang.required = 1 + random.uniform(2);
  if (random.uniform(2) == 0) gang.preferred = random.uniform(2);
  return gang;
}

TEST_CASE("gang_planner: a plan takes at most the budget, and a wrong answer never") {
  std::uint32_t ended = 0;
  std::uint32_t decided = 0;
  std::uint32_t preempts = 0;
  for (std::uint64_t seed = 0; seed < std::max(8U, apiary_test::scaled(400U)); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    gang_scheduler s = racks(6);
    start_random(s, random, 3, 8, 4);
    if (random.uniform(4) == 0) REQUIRE(s.mark_bad(node_id(random.uniform(48))).ok());
    gang_scheduler::request r = asked(1, 1);
    r.gang = random_gang(random);
    if (random.uniform(4) == 0) {
      std::vector<std::string> names;
      for (std::uint32_t n = 0; n < 48; ++n)
        if (random.uniform(3) != 0) names.push_back("n" + std::to_string(n));
      r.filter.nodes = names;
    }
    const auto known = propose(s, r, 10'000'000);
    for (const std::uint64_t budget : {1U, 3U, 10U, 40U, 200U, 1'000U, 5'000U, 200'000U}) {
      CAPTURE(budget);
      const auto plan = propose(s, r, budget);
      if (undecided(plan)) {
        ++ended;
        continue;
      }
      ++decided;
      if (plan.result == plan_result::wait) {
        REQUIRE(known.result == plan_result::wait);
        REQUIRE(known.reason == plan.reason);
        continue;
      }
      REQUIRE(known.result != plan_result::wait);
      if (plan.result == plan_result::preempt) ++preempts;
      if (known.result == plan_result::preempt) REQUIRE(plan.lower_bound <= known.cost);
      // The plan is valid.
      s.what_if([&](gang_scheduler& trial) {
        REQUIRE(trial.commit(plan).ok());
        for (const job_key& v : plan.victims) REQUIRE(trial.finish(v).ok());
        if (plan.result == plan_result::preempt)
          REQUIRE(trial.propose(r)->result == plan_result::bind);
      });
    }
  }
  CHECK(ended > 0);
  CHECK(decided > 0);
  CHECK(preempts > 0);
}

TEST_CASE("gang_planner: bounds of cells are within the budget") {
  // One rack of 4,096 gangs: 100 steps do not pay for a look at each of them.
  gang_scheduler s = racks(2, 512);
  fill(s, 1'024, 1);
  std::uint64_t calls = 0;
  s.set_victim_cost([&](const gang_scheduler::running_gang&, time_ms) {
    ++calls;
    return std::uint64_t{1};
  });
  auto r = asked(2, 8);
  r.gang.required = rack;
  CHECK(undecided(propose(s, r, 100)));
  CHECK(calls <= 100 * 24);
  calls = 0;
  CHECK(propose(s, r, 200'000).result == plan_result::preempt);
  CHECK(calls >= 4'096);
  // The searches for lower levels have only what is left.
  r.gang.required = any_level;
  r.gang.preferred = rack;
  calls = 0;
  propose(s, r, 1'000);
  CHECK(calls <= 1'000 * 24);
}

TEST_CASE("gang_planner: reading many task groups takes steps") {
  gang_scheduler s = racks(2);
  gang_scheduler::request r = asked(1, 1);
  for (std::uint32_t m = 1; m < 4'000; ++m)
    r.gang.groups.push_back({.tasks = 1, .gpus = 1, .host = {1 + m, 0}});
  CHECK(undecided(propose(s, r, 100)));
  const auto never = propose(s, r, 200'000);
  CHECK(never.result == plan_result::wait);
  CHECK(never.reason == wait_reason::never);
  CHECK(never.steps >= 4'000 / 32);
}

TEST_CASE("gang_planner: writing the placements of many tasks takes steps") {
  gang_scheduler s = racks(64);  // 512 nodes, 4,096 GPUs
  const auto r = asked(4'096, 1);
  CHECK(undecided(propose(s, r, 100)));
  const auto plan = propose(s, r, 200'000);
  CHECK(plan.result == plan_result::bind);
  CHECK(plan.steps >= 4'096 / 32);
}

TEST_CASE("gang_planner: looking at many priorities takes steps") {
  gang_scheduler s = racks(64);
  fill(s, 512, 1, -10'000, 1);  // 4,096 priorities
  auto r = asked(1, 8, 1'000'000);
  r.gang.required = rack;
  CHECK(undecided(propose(s, r, 300)));
  const auto plan = propose(s, r, 200'000);
  CHECK(plan.result == plan_result::preempt);
  CHECK(plan.steps >= 4'096 / 12);
}

TEST_CASE("gang_planner: counting many bad nodes as healthy takes steps") {
  gang_scheduler s = racks(64);
  fill(s, 512, 8);
  for (std::uint32_t n = 0; n < 512; ++n) REQUIRE(s.mark_bad(node_id(n)).ok());
  const auto r = asked(1, 8, 0);
  CHECK(undecided(propose(s, r, 200)));
  const auto plan = propose(s, r, 2'000);
  CHECK(plan.result == plan_result::wait);
  CHECK(plan.reason == wait_reason::unhealthy);
  CHECK(plan.steps >= 256);
}

TEST_CASE("gang_planner: the search for victims leaves steps for the reason") {
  // Tasks that differ, in slices and with CPU: their victims are not known with so few steps. That the
  // gang never fits is known.
  gang_scheduler s = racks(16);
  fill(s, 128, 2);
  gang_scheduler::request r = asked(64, 8);
  r.gang.groups[0].slices = {{rack, 8}};
  r.gang.groups.push_back({.tasks = 65, .gpus = 8, .host = {1'000, 0}});
  for (const std::uint64_t budget : {400U, 1'000U, 4'000U, 20'000U}) {
    CAPTURE(budget);
    const auto plan = propose(s, r, budget);
    CHECK(plan.result == plan_result::wait);
    CHECK(plan.reason == wait_reason::never);
  }
}

TEST_CASE("gang_planner: a budget that is larger than one for the reason has the reason, too") {
  gang_scheduler s = racks(256);
  fill(s, 2'048, 2);
  gang_scheduler::request r = asked(1'024, 8);
  r.gang.groups[0].slices = {{rack, 8}};
  r.gang.groups.push_back({.tasks = 1'025, .gpus = 8, .host = {1'000, 0}});
  bool is_known = false;
  for (std::uint64_t budget = 100; budget < 60'000; budget += budget / 20) {
    CAPTURE(budget);
    const auto plan = propose(s, r, budget);
    REQUIRE(plan.result == plan_result::wait);
    if (is_known) REQUIRE(plan.reason == wait_reason::never);
    is_known = plan.reason == wait_reason::never;
  }
  CHECK(is_known);
}

TEST_CASE("gang_planner: a preferred level takes no steps from the answer without it") {
  std::uint32_t lower = 0;
  std::uint32_t same = 0;
  std::uint32_t ended = 0;
  for (std::uint64_t seed = 0; seed < std::max(20U, apiary_test::scaled(600U)); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    gang_scheduler s = racks(6);
    start_random(s, random, 3, 8, 4);
    gang_scheduler::request plain = asked(1, 1);
    plain.gang = random_gang(random);
    plain.gang.preferred = any_level;
    gang_scheduler::request r = plain;
    r.gang.preferred = random.uniform(plain.gang.required == any_level ? 3 : plain.gang.required);
    for (const std::uint64_t budget : {0U, 1U, 3U, 10U, 40U, 100U, 200U, 400U, 1'000U, 5'000U}) {
      CAPTURE(budget);
      const auto without = propose(s, plain, std::max<std::uint64_t>(budget, 1));
      const auto plan = propose(s, r, std::max<std::uint64_t>(budget, 1));
      if (undecided(without)) {
        ++ended;
        continue;
      }
      REQUIRE(!undecided(plan));
      if (without.result == plan_result::wait) {
        REQUIRE(plan.result == plan_result::wait);
        REQUIRE(plan.reason == without.reason);
        continue;
      }
      REQUIRE((plan.result == without.result || plan.result == plan_result::bind));
      REQUIRE(plan.cost <= without.cost);
      REQUIRE(plan.level <= without.level);
      ++(plan.level < without.level ? lower : same);
    }
  }
  CHECK(lower > 0);
  CHECK(same > 0);
  CHECK(ended > 0);
}

TEST_CASE("gang_planner: a gang that reads many nodes is decided with a preferred level, too") {
  // Two tasks fit on one node but for their CPU, so that all 2,048 nodes are read: for each level.
  gang_scheduler s = racks(256);
  gang_scheduler::request plain = asked(2, 1);
  plain.gang.groups[0].host.cpu_milli = 64'000;
  gang_scheduler::request r = plain;
  r.gang.preferred = 0;
  bool was_undecided = false;
  bool was_decided = false;
  for (std::uint64_t budget = 1; budget < 2'000; budget += 1 + budget / 30) {
    CAPTURE(budget);
    const bool is_undecided = undecided(propose(s, plain, budget));
    REQUIRE(undecided(propose(s, r, budget)) <= is_undecided);
    (is_undecided ? was_undecided : was_decided) = true;
  }
  CHECK(was_undecided);
  CHECK(was_decided);
}

TEST_CASE(
    "gang_planner: a gang that costs nothing does not end if the steps for the proof are few") {
  // Seven nodes are idle, one in each rack but the last; anywhere, one victim is enough. A rack needs
  // seven or eight victims, which cost as little.
  gang_scheduler s = racks(8);
  gang_scheduler::request small = asked(1, 8, 0);
  for (std::uint32_t n = 0; n < 64; ++n) {
    const placement at{node_id(n), 255};
    small.job = n;
    if (n % 8 != 3 || n > 56) REQUIRE(s.recover(small, {&at, 1}).ok());
  }
  s.set_victim_cost([](const gang_scheduler::running_gang&, time_ms) { return std::uint64_t{0}; });
  auto r = asked(8, 8);
  r.gang.preferred = rack;
  std::uint32_t preempts = 0;
  for (std::uint64_t budget = 1; budget < 4'000; budget += 1 + budget / 50) {
    CAPTURE(budget);
    const auto plan = propose(s, r, budget);
    if (plan.result != plan_result::preempt) continue;
    ++preempts;
    REQUIRE(plan.victims.size() == 1);
  }
  CHECK(preempts > 0);
}

TEST_CASE("gang_planner: with too few steps for a lower level, no gang ends that need not") {
  std::uint32_t at_lower = 0;
  std::uint32_t not_lowest = 0;
  for (std::uint64_t seed = 0; seed < std::max(20U, apiary_test::scaled(400U)); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    gang_scheduler s = racks(4);
    start_random(s, random, 2, 4, 1);
    auto r = asked(2 + random.uniform(5), 4 + random.uniform(5));
    r.gang.groups[0].host.cpu_milli = 8'000;
    r.gang.preferred = rack;
    for (const std::uint64_t budget : {50U, 200U, 1'000U, 200'000U}) {
      CAPTURE(budget);
      const auto plan = propose(s, r, budget);
      if (plan.result != plan_result::preempt) continue;
      (plan.level == rack ? at_lower : not_lowest) += 1;
      for (const job_key& spared : plan.victims) {
        bool needed = true;
        s.what_if([&](gang_scheduler& trial) {
          trial.set_step_budget(10'000'000);
          for (const job_key& v : plan.victims)
            if (v != spared) REQUIRE(trial.finish(v).ok());
          auto same = r;
          same.priority = -1'000;
          needed = trial.propose(same)->result != plan_result::bind;
        });
        REQUIRE(needed);
      }
    }
  }
  CHECK(at_lower > 0);
  CHECK(not_lowest > 0);
}

}  // namespace
}  // namespace gang_planner_tests
