// apiary/tests/hived/snapshot_test.cpp - a scheduler that is written as text and restored.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include "support/hived_play.h"
#include "support/hived_state_text.h"
#include "support/scale.h"
#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/detail/snapshot_text.h>
#include <apiary/hived/detail/state.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>

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
  hived_config config = apiary_test::random_cluster(random);
  if (seed % 4 == 3) apiary_test::share_hosts(config, random);
  hived_play host(config, random(), habits);
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
    .gangs = 54, .ends = 7, .tasks = 9, .pursued = 25, .marks = 25, .misuses = 1};
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

// Three nodes of four GPUs: two are a's, one is b's.
struct three_nodes {
  hived_config config = of(0);
  hived scheduler = *hived::create(config);

  static hived_config of(std::uint32_t first_node) {
    hived_config config;
    config.cell_types = {{"NODE", "GPU", 4, true}};
    for (std::uint32_t n = 0; n < 3; ++n)
      config.physical_cells.push_back({.type = "NODE", .address = std::to_string(first_node + n)});
    config.virtual_clusters = {{.name = "a", .cells = {{"NODE", 2}}},
                               {.name = "b", .cells = {{"NODE", 1}}}};
    return config;
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

// The gang with id 3 preempts gang 2, which is opportunistic.
struct snapshot_scene : three_nodes {
  snapshot_scene() {
    ask(1, 0, 0, {{1, 4}});
    ask(2, 1, -1, {{2, 4}});
    ask(3, 0, 5, {{1, 4}});
    REQUIRE(scheduler.mark_bad(node_id(0), 2).ok());
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
  const hived_config other = three_nodes::of(1);
  const absl::Status foreign = try_restore(other, text);
  CHECK(foreign.code() == StatusCode::kFailedPrecondition);
  CHECK(std::string(foreign.message()).starts_with("the snapshot is of another configuration: "));
  CHECK(std::string(foreign.message())
            .ends_with("; restore with the configuration of the snapshot, then call reconfigure"));
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

// The body of a snapshot, with the first line that belongs to it: both hashes and the checksum are
// right, whatever the body says.
std::string with_first_line(const hived& of, const std::string& body) {
  detail::hived_state state(of.layout());
  const std::uint64_t layout = of.layout().hash();
  const auto text = [&](std::uint64_t hash) {
    return "hived-snapshot 1 " + std::to_string(layout) + ' ' + std::to_string(hash) + ' ' +
           std::to_string(detail::hived_snapshot::checksum(layout, hash, body)) + ' ' +
           std::to_string(body.size()) + '\n' + body;
  };
  // The reader compares the hash after it has read everything.
  REQUIRE(!detail::hived_snapshot_reader::read(text(0), of.catalog(), state).ok());
  return text(state.hash());
}

std::string body_of(const std::string& text) { return text.substr(text.find('\n') + 1); }

// Ends all gangs and repairs all nodes. Then nothing of the snapshot is left.
void end_all(hived& h) {
  std::vector<job_id> jobs;
  for (const gang_slot s : h.gangs().by_job()) jobs.push_back(h.gangs()[s].request.job);
  for (const job_id job : jobs) {
    if (job.value % 2 == 1) static_cast<void>(h.finish_task(job, 0));
    REQUIRE(apiary_test::faults_of(h) == "");
    if (h.find(job) != nullptr) REQUIRE(h.finish(job).ok());
    REQUIRE(apiary_test::faults_of(h) == "");
  }
  for (std::uint32_t n = 0; n < h.layout().num_nodes(); ++n)
    REQUIRE(h.mark_healthy(node_id(n)).ok());
}

TEST_CASE("a snapshot with wrong numbers and right hashes is an error or a state without faults") {
  rng random(5);
  std::uint64_t refused = 0;
  std::uint64_t changed = 0;
  const auto runs = apiary_test::scaled(std::uint64_t{200});
  for (std::uint64_t run = 0; run < runs; ++run) {
    hived_play host(apiary_test::random_cluster(random), random(), moving_habits);
    for (std::uint32_t i = random.uniform(100); i > 0; --i) host.step();
    const hived empty = *hived::create(host.config());
    const std::string text = host.scheduler.snapshot();
    const std::string body = body_of(text);
    REQUIRE(with_first_line(empty, body) == text);
    for (std::uint32_t k = 0; k < 50; ++k) {
      std::string wrong = body;
      for (std::uint32_t n = 0; n <= k % 3; ++n) {
        const std::size_t at = random.uniform(static_cast<std::uint32_t>(wrong.size()));
        constexpr char signs[] = "0123456789 99";
        if (random.uniform(4) == 0) {
          wrong.erase(at, 1 + random.uniform(3));
        } else {
          wrong[at] = signs[random.uniform(sizeof(signs) - 1)];
        }
        if (wrong.empty()) wrong = body;
      }
      CAPTURE(wrong);
      hived h = empty;
      const absl::Status status = h.restore(with_first_line(empty, wrong));
      if (!status.ok()) {
        ++refused;
        REQUIRE(h.hash() == empty.hash());
        REQUIRE(status.code() == absl::StatusCode::kDataLoss);
        continue;
      }
      changed += wrong != body ? 1U : 0U;
      REQUIRE(apiary_test::faults_of(h) == "");
      end_all(h);
      REQUIRE(h.hash() == empty.hash());
    }
  }
  MESSAGE(refused << " refused, " << changed << " accepted with another state");
  CHECK(refused > 30 * runs);
  CHECK(changed * 4 > runs);
}

// Gang 1 of a uses half of its first node; gang 3 of a preempts gang 2, which is opportunistic.
struct half_node_scene : three_nodes {
  half_node_scene() {
    ask(1, 0, 0, {{1, 2}});
    ask(2, 1, -1, {{2, 4}});
    ask(3, 0, 5, {{1, 4}});
  }
  std::vector<std::string> lines{
      "0",                                          // bad leaves
      "1 0 0 1 1 1 2 2 3 4 6 7 0",                  // bound cells of a: virtual, physical
      "0",                                          // of b
      "3 0",                                        // slots, vacant slots
      "2 1 1 0 32 0 1 1 1 2 2 0 4 0 0 0 0",         // gang 1
      "3 2 0 0 32 0 0 1 2 4 4 0 12 4 0 8 0 0 0 0",  // gang 2
      "4 1 6 0 34 0 1 1 1 4 4 0 8 0 0 0 0",         // gang 3
  };
  [[nodiscard]] std::string body() const {
    std::string all;
    for (const std::string& line : lines) all += line + '\n';
    return all;
  }
};

TEST_CASE("the text of version 1 stays readable") {
  const half_node_scene scene;
  CHECK(body_of(scene.scheduler.snapshot()) == scene.body());
  CHECK(try_restore(scene.config, with_first_line(scene.scheduler, scene.body())).ok());
}

TEST_CASE("a snapshot with right hashes that violates an invariant is refused") {
  struct wrong_line {
    std::size_t line;
    std::string text;
    std::string fault;
  };
  const wrong_line all[] = {
      {0, "1 99 0 0", "a bad leaf cell does not exist"},
      {0, "1 13 0 1 13 0 0", "its bad leaf cells do not ascend"},
      {0, "1 5 0 0", "hidden: NODE cell 5 is unhealthy and not bound, the cell above is"},
      {1, "1 0 0 1 0 0 1 1 1 2 2 3 4 6 7 0", "its bound cells do not ascend"},
      {1, "1 0 0 1 1 1 2 2 3 4 6 70 0", "a bound cell does not exist"},
      {1, "1 0 5 0", "cells of different levels are bound"},
      {1, "1 0 0 1 1 1 1 2 3 1 3 3 4 6 7 0", "a cell is bound twice"},
      {1, "1 0 0 1 1 1 2 2 7 0", "a cell is bound outside its tenant's cells"},
      {2, "1 0 2 0", "needless: b (cluster 1) cell 0 of level 1, bound to NODE cell 2"},
      {3, "5 2 1 1", "a slot is vacant twice"},
      {4, "2 1 1 0 32 0 1 0 0 0 0 0", "gang 1: no tasks"},
      {4, "0 1 1 0 32 0 1 1 1 2 2 0 4 0 0 0 0", "a gang without id: a gang needs a job id"},
      {4, "2 1 1 0 32 0 9 1 1 2 2 0 4 0 0 0 0", "gang 1: its virtual cluster does not exist"},
      {4, "2 1 1 0 32 0 1 1 1 2 2 0 99 0 0 0 0", "gang 1: a leaf cell does not exist"},
      {4, "2 1 1 0 32 0 1 1 1 2 2 0 6 0 0 0 0",
       "gang 1: a leaf cell is not bound to its tenant's cells"},
      {4, "2 1 1 0 32 0 1 1 1 2 3 0 4 0 0 0 0", "gang 1: more leaf cells than its tasks have"},
      {4, "2 1 1 0 32 0 1 1 1 2 1 0 4 0 0 0 0",
       "gang 1: fewer leaf cells or levels than its tasks have"},
      {4, "2 1 1 0 32 0 1 1 1000000 64 64000000 0 0 0 0 0 0",
       "gang 1: it has 64000000 leaf cells, ended tasks included; all gangs together may have "
       "4194304"},
      {4, "2 2 1 0 32 0 1 1 1 2 2 0 4 0 0 0 0",
       "own cells: gang 1 of tenant 1 has cells of cluster 0"},
      {4, "2 1 1 0 32 0 1 1 1 2 1 0 4 1 0 0 0 0 1 1 1 1 0 0",
       "missing: gang 1: missing leaf 1 is device 1 of node 0"},
      {4, "2 1 1 0 32 0 1 1 1 2 1 0 4 1 0 0 0 0 2 1 1 1 9 1 1 1 9 0",
       "missing: gang 1: missing leaf 1 is device 1 of node 9"},
      {5, "3 2 0 0 32 0 0 1 2 4 4 0 12 4 0 12 0 0 0 0",
       "once: leaf 0 of node 2: gang 2 and gang 2"},
      {5, "2 2 0 0 32 0 0 1 2 4 4 0 12 4 0 8 0 0 0 0", "gang 1: it occurs twice"},
      {5, "3 2 0 0 32 1 0 1 2 4 4 0 12 4 0 8 0 0 0 0", "ending: gang 2 must end for gang 1"},
      {5, "3 2 0 0 32 0 0 1 2 4 4 0 12 4 0 8 0 8 1 0 0 0 0",
       "levels: gang 2 has 8 lost levels and 8 leaves"},
      {5, "3 2 0 0 36 0 0 1 2 4 4 0 12 4 0 8 0 0 0 0",
       "class: gang 2 of priority -1, downgraded, has no cluster"},
      {6, "4 1 6 0 34 0 0 1 1 4 4 0 8 0 0 0 0",
       "gang 3: it is preempting without cells of its tenant"},
      {6, "4 1 6 0 34 0 1 1 1 4 4 0 8 0 0 0 2 9 8",
       "preempting: gang 3: its downgraded victims do not ascend"},
      {6, "4 1 6 0 34 0 1 1 1 4 4 0 8 0 0 0 0\n0", "text after the last gang"},
  };
  const hived empty = *hived::create(half_node_scene().config);
  for (const wrong_line& wrong : all) {
    CAPTURE(wrong.text);
    half_node_scene scene;
    scene.lines[wrong.line] = wrong.text;
    const absl::Status status = try_restore(scene.config, with_first_line(empty, scene.body()));
    CHECK(status.code() == absl::StatusCode::kDataLoss);
    CHECK(status.message() == "the snapshot is damaged: " + wrong.fault);
  }
}

TEST_CASE("gangs are restored that have more leaves together than one may have") {
  const hived_config config = three_nodes::of(0);
  hived h = *hived::create(config);
  for (std::uint32_t job = 1; job <= 2; ++job) {
    std::vector<hived_placement> tasks(16'000);  // all but one have ended
    tasks[job] = {node_id(0), std::uint64_t{1} << job};
    REQUIRE(h.recover({.job = job_id(job), .tenant = tenant_id(0), .groups = {{16'000, 4}}}, tasks)
                .ok());
  }
  CHECK(h.find(job_id(1))->leaves.size() + h.find(job_id(2))->leaves.size() >
        h.catalog().max_leaves());
  hived fresh = *hived::create(config);
  REQUIRE(fresh.restore(h.snapshot()).ok());
  CHECK(whole_state(fresh) == whole_state(h));
}

}  // namespace
