// apiary/tests/hived/snapshot_test.cpp - a scheduler that is written as text and restored.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include "support/hived_play.h"
#include "support/hived_state_text.h"
#include "support/scale.h"
#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/config.h>
#include <apiary/hived/detail/snapshot_writer.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/request.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace apiary;
using apiary_test::hived_play;

// All gangs with all their fields, what is bound to what, and what is bad.
std::vector<std::uint32_t> whole_state(const hived& h) {
  std::vector<gang_request> gangs;
  for (const gang_slot s : h.gangs().by_job()) gangs.push_back(h.gangs()[s].request);
  std::vector<std::uint32_t> text;
  apiary_test::add_state(h, gangs, text);
  for (const gang_request& r : gangs) {
    const gang_record& gang = *h.find(r.job);
    text.push_back((gang.recovered ? 1U : 0U) + (gang.moved ? 2U : 0U) + (r.lazy ? 4U : 0U));
    text.push_back(h.gangs().find(r.job)->value);
  }
  for (const gang_slot s : h.gangs().vacant()) text.push_back(s.value);
  return text;
}

// What the plans say, as a hash.
struct plan_log {
  digest all{};
  std::uint64_t plans = 0;

  void add(const gang_request& r, const gang_plan& plan) {
    ++plans;
    all.add(r.job.value).add(static_cast<std::uint64_t>(plan.result));
    for (const hived_placement& at : plan.tasks) all.add(at.node.value).add(at.leaves);
    for (const auto* jobs : {&plan.victims, &plan.downgraded, &plan.cancelled}) {
      all.add(jobs->size());
      for (const job_id job : *jobs) all.add(job.value);
    }
    all.add(static_cast<std::uint64_t>(plan.wait.reason)).add(plan.wait.proof.size());
  }
};

struct snapshot_counts {
  std::uint64_t plans = 0, preempting = 0, ending = 0, missing = 0, downgraded = 0, constrained = 0;
};

// A session that is cut at a random event, and that goes on for `events` events both with the
// scheduler as it is and with one that was restored.
void cut_session(std::uint64_t seed, const hived_play::habits& habits, std::uint32_t before,
                 std::uint64_t events, snapshot_counts& seen) {
  CAPTURE(seed);
  rng random(seed);
  hived_play host(apiary_test::random_cluster(random), random(), habits);
  for (std::uint32_t i = random.uniform(before); i > 0; --i) host.step();
  const hived& old = host.scheduler;
  const std::string text = old.snapshot();
  hived fresh = *hived::create(host.config());
  const absl::Status status = fresh.restore(text);
  INFO(status.message());
  REQUIRE(status.ok());
  REQUIRE(fresh.hash() == old.hash());
  REQUIRE(fresh.snapshot() == text);
  REQUIRE(whole_state(fresh) == whole_state(old));
  REQUIRE(apiary_test::faults_of(fresh) == "");
  for (const gang_slot s : old.gangs().by_job()) {
    const gang_record& gang = old.gangs()[s];
    REQUIRE(fresh.find(gang.request.job)->request.constraints == gang.request.constraints);
    seen.preempting += gang.state == gang_state::preempting ? 1U : 0U;
    seen.ending += gang.ends_for.valid() ? 1U : 0U;
    seen.missing += gang.missing.empty() ? 0U : 1U;
    seen.downgraded += gang.downgraded ? 1U : 0U;
    seen.constrained += gang.request.constraints.any() ? 1U : 0U;
  }
  host.forget_plan();
  hived_play again = host;
  again.scheduler = std::move(fresh);
  plan_log logs[2];
  host.observe = [&](const gang_request& r, const gang_plan& plan) { logs[0].add(r, plan); };
  again.observe = [&](const gang_request& r, const gang_plan& plan) { logs[1].add(r, plan); };
  for (std::uint64_t i = 0; i < events; ++i) {
    CAPTURE(i);
    host.step();
    again.step();
    REQUIRE(again.scheduler.hash() == host.scheduler.hash());
    REQUIRE(logs[0].all.value() == logs[1].all.value());
  }
  REQUIRE(logs[0].plans == logs[1].plans);
  seen.plans += logs[0].plans;
}

const hived_play::habits preempting_habits{
    .gangs = 50, .ends = 8, .tasks = 10, .pursued = 25, .marks = 25, .misuses = 1};
const hived_play::habits moving_habits{
    .gangs = 50, .ends = 14, .moves = 4, .restarts = 2, .constraints = 3};

TEST_CASE("a restored scheduler has the same state and decides as the one before") {
  const auto runs = apiary_test::scaled(std::uint64_t{2000});
  snapshot_counts seen;
  for (std::uint64_t run = 0; run < runs; ++run) {
    cut_session(300'000 + run, preempting_habits, 200, 100, seen);
    cut_session(310'000 + run, moving_habits, 200, 100, seen);
  }
  MESSAGE(seen.plans << " plans; gangs restored: " << seen.preempting << " preempting, "
                     << seen.ending << " ending for cells, " << seen.downgraded << " downgraded, "
                     << seen.missing << " partly outside, " << seen.constrained
                     << " with constraints");
  CHECK(seen.preempting * 10 > runs);
  CHECK(seen.downgraded * 10 > runs);
  CHECK(seen.constrained * 10 > runs);
  if (runs < 1000) return;
  CHECK(seen.missing * 100 > runs);
  CHECK(seen.ending > 0);
}

TEST_CASE("a restored scheduler decides as the one before for a thousand events") {
  snapshot_counts seen;
  const auto runs = apiary_test::scaled(std::uint64_t{100});
  for (std::uint64_t run = 0; run < runs; ++run)
    cut_session(400'000 + run, preempting_habits, 1000, 3000, seen);
  CHECK(seen.plans >= runs * 1000);
}

// Three nodes of four GPUs. The gang with id 3 preempts gang 2, which is opportunistic.
struct snapshot_scene {
  hived_config config{};
  hived scheduler;

  static hived_config three_nodes(std::uint32_t first_node) {
    hived_config config;
    config.cell_types = {{"NODE", "GPU", 4, true}};
    for (std::uint32_t n = 0; n < 3; ++n)
      config.physical_cells.push_back({.type = "NODE", .address = std::to_string(first_node + n)});
    config.virtual_clusters = {{.name = "a", .cells = {{"NODE", 2}}},
                               {.name = "b", .cells = {{"NODE", 1}}}};
    return config;
  }
  snapshot_scene() : config(three_nodes(0)), scheduler(*hived::create(config)) {
    ask(1, 0, 0, {{1, 4}});
    ask(2, 1, -1, {{2, 4}});
    ask(3, 0, 5, {{1, 4}});
    REQUIRE(scheduler.mark_bad(node_id(0), 2).ok());
  }
  void ask(std::uint32_t job, std::uint32_t tenant, std::int32_t priority,
           std::vector<task_group> groups) {
    const auto plan = scheduler.propose({.job = job_id(job),
                                         .tenant = tenant_id(tenant),
                                         .priority = priority,
                                         .groups = std::move(groups)});
    REQUIRE(plan.ok());
    REQUIRE(scheduler.commit(*plan).ok());
  }
};

TEST_CASE("a preempting gang comes back with its claims and victims") {
  const snapshot_scene scene;
  hived fresh = *hived::create(scene.config);
  REQUIRE(fresh.restore(scene.scheduler.snapshot()).ok());
  REQUIRE(fresh.find(job_id(3)) != nullptr);
  CHECK(fresh.find(job_id(3))->state == gang_state::preempting);
  CHECK(fresh.being_preempted(*fresh.find(job_id(2))));
  REQUIRE(fresh.finish(job_id(2)).ok());
  const auto plan =
      fresh.propose({.job = job_id(3), .tenant = tenant_id(0), .priority = 5, .groups = {{1, 4}}});
  REQUIRE(plan.ok());
  CHECK(plan->result == plan_result::bind);
  CHECK(fresh.commit(*plan).ok());
  CHECK(apiary_test::faults_of(fresh) == "");
}

TEST_CASE("leaves that have ended and leaves that run are told apart in a run of numbers") {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}};
  config.physical_cells = {{.type = "NODE", .address = "n"}};
  config.virtual_clusters = {{.name = "a", .cells = {{"NODE", 1}}}};
  hived h = *hived::create(config);
  const std::vector<hived_placement> tasks{{node_id(0), 0b1100}, {node_id(0), 0b0011}};
  REQUIRE(h.recover({.job = job_id(0), .tenant = tenant_id(0), .groups = {{2, 2}}}, tasks).ok());
  REQUIRE(h.finish_task(job_id(0), 0).ok());
  hived fresh = *hived::create(config);
  REQUIRE(fresh.restore(h.snapshot()).ok());
  CHECK(whole_state(fresh) == whole_state(h));
}

TEST_CASE("a plan that was proposed before restore is stale") {
  snapshot_scene scene;
  const auto plan = scene.scheduler.propose(
      {.job = job_id(4), .tenant = tenant_id(1), .priority = -1, .groups = {{1, 1}}});
  REQUIRE(plan.ok());
  REQUIRE(scene.scheduler.restore(scene.scheduler.snapshot()).ok());
  CHECK(scene.scheduler.commit(*plan).code() == absl::StatusCode::kAborted);
}

// Restores a text into a scheduler with gang 9 and checks that an error changes nothing.
absl::Status try_restore(const hived_config& config, const std::string& text) {
  hived h = *hived::create(config);
  const auto plan = h.propose({.job = job_id(9), .tenant = tenant_id(0), .groups = {{1, 4}}});
  REQUIRE(plan.ok());
  REQUIRE(h.commit(*plan).ok());
  const std::uint64_t before = h.hash();
  const absl::Status status = h.restore(text);
  if (!status.ok()) {
    REQUIRE(h.hash() == before);
    REQUIRE(h.find(job_id(9)) != nullptr);
  }
  REQUIRE(apiary_test::faults_of(h) == "");
  return status;
}

TEST_CASE("a foreign or newer snapshot is refused") {
  using absl::StatusCode;
  const snapshot_scene scene;
  const std::string text = scene.scheduler.snapshot();
  REQUIRE(try_restore(scene.config, text).ok());
  const hived_config other = snapshot_scene::three_nodes(1);
  const absl::Status foreign = try_restore(other, text);
  CHECK(foreign.code() == StatusCode::kFailedPrecondition);
  CHECK(std::string(foreign.message()).starts_with("the snapshot is of another configuration: "));
  CHECK(try_restore(scene.config, "").code() == StatusCode::kInvalidArgument);
  CHECK(try_restore(scene.config, "apiVersion: v1").message() ==
        "this is no snapshot of a HiveD scheduler: it starts with \"apiVersion: v1\"");
  const absl::Status newer = try_restore(scene.config, "hived-snapshot 2 anything");
  CHECK(newer.code() == StatusCode::kUnimplemented);
  CHECK(newer.message() == "the snapshot has version 2; this library reads version 1");
}

TEST_CASE("a damaged snapshot is refused, whichever byte is wrong or missing") {
  const snapshot_scene scene;
  const std::string text = scene.scheduler.snapshot();
  for (std::size_t i = 0; i < text.size(); ++i) {
    CAPTURE(i);
    REQUIRE(!try_restore(scene.config, text.substr(0, i)).ok());
    std::string wrong = text;
    wrong[i] = wrong[i] == '7' ? '3' : '7';
    REQUIRE(!try_restore(scene.config, wrong).ok());
  }
  CHECK(try_restore(scene.config, text + " ").code() == absl::StatusCode::kDataLoss);
}

// A text with the checksum that belongs to it.
std::string sign(const std::string& text) {
  const std::size_t line = text.find('\n');
  const std::string body = text.substr(line + 1);
  std::vector<std::uint64_t> head;
  for (std::size_t i = text.find(' '); i < line; i = text.find_first_of(" \n", i + 1))
    head.push_back(std::stoull(text.substr(i + 1)));
  const std::uint64_t sum = detail::hived_snapshot::checksum(head[1], head[2], body);
  return "hived-snapshot 1 " + std::to_string(head[1]) + ' ' + std::to_string(head[2]) + ' ' +
         std::to_string(sum) + ' ' + std::to_string(body.size()) + '\n' + body;
}

TEST_CASE(
    "a snapshot with wrong numbers and a right checksum is an error or a state without faults") {
  rng random(5);
  std::uint64_t refused = 0;
  const auto runs = apiary_test::scaled(std::uint64_t{200});
  for (std::uint64_t run = 0; run < runs; ++run) {
    hived_play host(apiary_test::random_cluster(random), random(), moving_habits);
    for (std::uint32_t i = random.uniform(100); i > 0; --i) host.step();
    const std::string text = host.scheduler.snapshot();
    REQUIRE(sign(text) == text);
    for (std::uint32_t k = 0; k < 50; ++k) {
      std::string wrong = text;
      const auto body = static_cast<std::uint32_t>(text.find('\n') + 1);
      for (std::uint32_t n = 0; n <= k % 3; ++n) {
        const std::size_t at =
            body + random.uniform(static_cast<std::uint32_t>(wrong.size()) - body);
        constexpr char signs[] = "0123456789 99";
        if (random.uniform(4) == 0) {
          wrong.erase(at, 1 + random.uniform(3));
        } else {
          wrong[at] = signs[random.uniform(sizeof(signs) - 1)];
        }
        if (wrong.size() <= body) wrong = text;
      }
      hived h = *hived::create(host.config());
      const absl::Status status = h.restore(sign(wrong));
      refused += status.ok() ? 0U : 1U;
      if (status.ok()) REQUIRE(h.hash() == host.scheduler.hash());
      if (!status.ok()) REQUIRE(h.hash() == hived::create(host.config())->hash());
      if (!status.ok()) REQUIRE(status.code() == absl::StatusCode::kDataLoss);
    }
  }
  CHECK(refused > 30 * runs);
}

}  // namespace
