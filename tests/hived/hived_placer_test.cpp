// apiary/tests/hived/hived_placer_test.cpp - jobs on the cells of tenants, under any queue.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/hived_placer.h>
#include <apiary/model/job.h>
#include <apiary/model/plan.h>
#include <apiary/queue/job_queue.h>
#include <apiary/queue/orders.h>
#include <apiary/queue/reservations.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

// Four servers of four GPUs; tenants 0 and 1 own one server each.
hived_placer placer_of_four() {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}};
  for (int n = 0; n < 4; ++n)
    config.physical_cells.push_back({.type = "NODE", .address = "n" + std::to_string(n)});
  config.virtual_clusters = {{.name = "a", .cells = {{"NODE", 1}}},
                             {.name = "b", .cells = {{"NODE", 1}}}};
  return hived_placer::create(config).value();
}

job_request job_on_cells(std::uint32_t job, std::uint32_t tenant, std::int32_t priority,
                         std::uint32_t gpus) {
  return {.job = job_id(job), .tenant = tenant_id(tenant), .priority = priority, .gpus = gpus};
}

}  // namespace

TEST_CASE("hived_placer: what fits, what must stop, and idle GPUs") {
  hived_placer placer = placer_of_four();
  CHECK(placer.check(job_on_cells(1, 0, 0, 4)).ok());
  CHECK(placer.check(job_on_cells(1, 0, 0, 5)).code() == absl::StatusCode::kInvalidArgument);
  CHECK(placer.check(job_on_cells(1, 0, -1, 16)).ok());
  const job_request wide = job_on_cells(1, 0, -1, 16);
  const job_placement everywhere = placer.propose(wide).value().value();
  CHECK(everywhere.size() == 4);
  REQUIRE(placer.commit(wide, everywhere).ok());
  CHECK(placer.idle_gpus() == 0);
  CHECK(placer.jobs_on(node_id(2)) == std::vector{job_id(1)});

  // A guaranteed job of the other tenant stops it, and runs after it has ended.
  const job_request owned = job_on_cells(2, 1, 0, 3);
  CHECK(!placer.propose(owned).value());
  const auto answer = placer.propose_preempting(owned).value();
  CHECK(answer.result == plan_result::preempt);
  CHECK(answer.victims == std::vector{job_id(1)});
  REQUIRE(placer.finish(job_id(1)).ok());
  CHECK(placer.finish(job_id(1)).code() == absl::StatusCode::kNotFound);
  const job_placement there = placer.propose(owned).value().value();
  REQUIRE(placer.commit(owned, there).ok());
  CHECK(placer.idle_gpus() == 13);

  // On a bad node it goes on, and another job may not come back there.
  REQUIRE(placer.mark_bad(there[0].node).ok());
  CHECK(placer.idle_gpus() == 12);
  REQUIRE(placer.finish(job_id(2)).ok());
  CHECK(placer.idle_gpus() == 12);
  CHECK(placer.commit(owned, there).code() == absl::StatusCode::kAborted);
  REQUIRE(placer.mark_healthy(there[0].node).ok());
  CHECK(placer.idle_gpus() == 16);
  CHECK(placer.commit(owned, there).ok());
  CHECK(placer.commit(job_on_cells(3, 0, -1, 3), there).code() == absl::StatusCode::kAborted);
  CHECK(placer.mark_bad(node_id(9)).code() == absl::StatusCode::kNotFound);
  CHECK(placer.jobs_on(node_id(9)).empty());
}

TEST_CASE("hived_gang_placer: a gang for which others must stop cannot be committed before") {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}};
  config.physical_cells = {{.type = "NODE", .address = "n"}};
  config.virtual_clusters = {{.name = "a", .cells = {{"NODE", 1}}}};
  hived_gang_placer placer(hived::create(config).value());
  const gang_request guest{
      .job = job_id(1), .tenant = tenant_id(0), .priority = -1, .groups = {{1, 4}}};
  const auto everywhere = placer.propose(guest).value().value();
  REQUIRE(placer.commit(guest, everywhere).ok());
  const gang_request owner{.job = job_id(2), .tenant = tenant_id(0), .groups = {{1, 4}}};
  CHECK(placer.propose_preempting(owner).value().result == plan_result::preempt);
  CHECK(placer.commit(owner, everywhere).code() == absl::StatusCode::kAborted);
  CHECK(placer.idle_gpus() == 0);
  REQUIRE(placer.finish(job_id(1)).ok());
  CHECK(placer.idle_gpus() == 4);
}

TEST_CASE("hived_placer: jobs that stopped come back to where they ran, in reverse order") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(100U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    hived_placer placer = placer_of_four();
    std::vector<std::pair<job_request, job_placement>> running;
    for (std::uint32_t job = 0; job < 30; ++job) {
      const std::uint32_t tenant = random.uniform(2);
      const std::int32_t priority = random.uniform(2) == 0 ? -1 : 0;
      const job_request r = job_on_cells(job, tenant, priority, 1 + random.uniform(4));
      const auto where = placer.propose(r).value();
      if (!where) continue;
      REQUIRE(placer.commit(r, *where).ok());
      running.emplace_back(r, *where);
    }
    const std::uint32_t idle = placer.idle_gpus();
    const std::size_t stops = 1 + random.uniform(static_cast<std::uint32_t>(running.size()));
    for (std::size_t i = 0; i < stops; ++i)
      REQUIRE(placer.finish(running[running.size() - 1 - i].first.job).ok());
    for (std::size_t i = running.size() - stops; i < running.size(); ++i)
      REQUIRE(placer.commit(running[i].first, running[i].second).ok());
    CHECK(placer.idle_gpus() == idle);
  }
}

TEST_CASE("hived_placer: jobs that come back have the guarantees that they had") {
  hived_config config;  // the tenant owns a rack and a node
  config.cell_types = {{"NODE", "GPU", 4, true}, {"RACK", "NODE", 2}};
  config.physical_cells = {{.type = "RACK", .children = {{.address = "n0"}, {.address = "n1"}}},
                           {.type = "RACK", .children = {{.address = "n2"}, {.address = "n3"}}}};
  config.virtual_clusters = {{.name = "a", .cells = {{"RACK", 1}, {"RACK.NODE", 1}}}};
  hived_placer placer = hived_placer::create(config).value();
  const job_request wide = job_on_cells(1, 0, 0, 8);
  const job_request narrow = job_on_cells(2, 0, 0, 4);
  const job_placement in_rack = placer.propose(wide).value().value();
  REQUIRE(placer.commit(wide, in_rack).ok());
  const job_placement on_node = placer.propose(narrow).value().value();
  REQUIRE(placer.commit(narrow, on_node).ok());
  const auto stop_and_put_back = [&] {
    for (const std::uint32_t job : {1U, 2U}) REQUIRE(placer.finish(job_id(job)).ok());
    REQUIRE(placer.commit(narrow, on_node).ok());
    REQUIRE(placer.commit(wide, in_rack).ok());
    for (const std::uint32_t job : {1U, 2U})
      REQUIRE(placer.scheduler().find(job_id(job))->guaranteed());
  };
  for (int times = 0; times < 5; ++times) stop_and_put_back();
  // Also after an attempt that failed, since another one ran there.
  for (const std::uint32_t job : {1U, 2U}) REQUIRE(placer.finish(job_id(job)).ok());
  const job_request guest = job_on_cells(4, 0, -1, 16);
  REQUIRE(placer.commit(guest, placer.propose(guest).value().value()).ok());
  CHECK(placer.commit(narrow, on_node).code() == absl::StatusCode::kAborted);
  CHECK(placer.commit(wide, in_rack).code() == absl::StatusCode::kAborted);
  REQUIRE(placer.finish(job_id(4)).ok());
  REQUIRE(placer.commit(narrow, on_node).ok());
  REQUIRE(placer.commit(wide, in_rack).ok());
  for (const std::uint32_t job : {1U, 2U})
    REQUIRE(placer.scheduler().find(job_id(job))->guaranteed());
  // Also if another one starts and stops meanwhile.
  for (const std::uint32_t job : {1U, 2U}) REQUIRE(placer.finish(job_id(job)).ok());
  const job_request other = job_on_cells(3, 0, 0, 8);
  REQUIRE(placer.commit(other, placer.propose(other).value().value()).ok());
  REQUIRE(placer.finish(job_id(3)).ok());
  REQUIRE(placer.commit(narrow, on_node).ok());
  REQUIRE(placer.commit(wide, in_rack).ok());
  for (const std::uint32_t job : {1U, 2U})
    REQUIRE(placer.scheduler().find(job_id(job))->guaranteed());
}

TEST_CASE("hived_placer: under a job_queue guaranteed jobs suspend opportunistic ones") {
  job_queue queue(placer_of_four(), arrival_order(), first_fit());
  std::vector<job_action> actions;
  REQUIRE(queue.submit(job_on_cells(1, 0, -1, 16), 0).ok());
  REQUIRE(queue.decide(0, actions).ok());
  REQUIRE(queue.submit(job_on_cells(2, 1, 0, 4), 5).ok());
  REQUIRE(queue.decide(5, actions).ok());
  REQUIRE(actions.size() == 3);
  CHECK(actions[1].what == job_action::verb::suspend);
  CHECK(actions[1].job == job_id(1));
  CHECK(actions[2].what == job_action::verb::start);
  CHECK(actions[2].job == job_id(2));
  REQUIRE(queue.finish(job_id(2), 9).ok());
  REQUIRE(queue.decide(9, actions).ok());
  REQUIRE(actions.size() == 4);
  CHECK(actions[3].job == job_id(1));
  CHECK(actions[3].waited.total() == 4);
}

TEST_CASE("hived_placer: a job that starts and gives way in one decision has not started") {
  job_queue queue(placer_of_four(), arrival_order(), first_fit());
  std::vector<job_action> actions;
  REQUIRE(queue.submit(job_on_cells(1, 0, -1, 16), 0).ok());
  REQUIRE(queue.submit(job_on_cells(2, 1, 0, 4), 1).ok());
  REQUIRE(queue.decide(3, actions).ok());
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].what == job_action::verb::start);
  CHECK(actions[0].job == job_id(2));
  CHECK(actions[0].waited.total() == 2);
  CHECK(queue.num_running() == 1);
  CHECK(queue.num_waiting() == 1);
  // Its wait goes on from when it was submitted.
  REQUIRE(queue.finish(job_id(2), 9).ok());
  REQUIRE(queue.decide(9, actions).ok());
  REQUIRE(actions.size() == 2);
  CHECK(actions[1].what == job_action::verb::start);
  CHECK(actions[1].job == job_id(1));
  CHECK(actions[1].waited.total() == 9);
}
