// apiary/tests/gang_scheduler/gang_scheduler_test.cpp - the protocol, wrong calls, sentences, trials, recovery.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/explain/proof_check.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/model/plan.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <support/scale.h>
#include <support/scheduler_of_texts.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

constexpr level_t rack = 1;

// Two racks of two nodes of four GPUs: a, b in r1; c, d in r2.
gang_scheduler two_racks() {
  return apiary_test::scheduler_of("SwitchName=r1 Nodes=a,b\nSwitchName=r2 Nodes=c,d",
                                   "NodeName=a,b Gres=gpu:v100:4 CPUs=8\n"
                                   "NodeName=c,d Gres=gpu:h100:4 CPUs=8 Labels=zone=1");
}
gang_scheduler::request tasks(const job_key& job, std::uint32_t n, std::uint32_t gpus,
                              std::int32_t priority = 0) {
  return {.job = job, .priority = priority, .gang = {.groups = {{.tasks = n, .gpus = gpus}}}};
}
plan_result run(gang_scheduler& s, const gang_scheduler::request& r, time_ms now = 0) {
  const auto plan = s.propose(r, now);
  REQUIRE(plan.ok());
  if (plan->result != plan_result::wait) REQUIRE(s.commit(*plan).ok());
  return plan->result;
}
std::string sentence(gang_scheduler& s, const gang_scheduler::request& r) {
  const auto e = s.explain(r);
  return e.ok() ? e->text : std::string(e.status().message());
}
node_id at(const gang_scheduler& s, const char* name) { return s.find_node(name).value(); }

}  // namespace

TEST_CASE("a gang starts, and its GPUs are in use until it ends") {
  gang_scheduler s = two_racks();
  const auto plan = s.propose(tasks("x", 2, 3));
  REQUIRE(plan.ok());
  CHECK(plan->result == plan_result::bind);
  CHECK(plan->tasks == std::vector<placement>{{node_id(0), 7}, {node_id(1), 7}});
  CHECK(s.num_gangs() == 0);
  CHECK(s.commit(*plan).ok());
  CHECK(s.commit(*plan).code() == absl::StatusCode::kAborted);
  REQUIRE(s.find("x") != nullptr);
  CHECK(s.find("x")->gpus == 6);
  CHECK(s.find("y") == nullptr);
  CHECK(s.jobs_on(node_id(1)) == std::vector<job_key>{"x"});
  CHECK(s.jobs_on(node_id(9)).empty());
  using cells = std::vector<gang_scheduler::cell_capacity>;
  CHECK(s.free_capacity(rack).value() == cells{{"r1", 2, 0, 8, 2}, {"r2", 2, 2, 8, 8}});
  CHECK(s.finish("x").ok());
  CHECK(s.finish("x").code() == absl::StatusCode::kNotFound);
  CHECK(s.free_capacity(rack).value() == cells{{"r1", 2, 2, 8, 8}, {"r2", 2, 2, 8, 8}});
  CHECK(s.audit().empty());
}

TEST_CASE("victims end before a preempting gang runs") {
  gang_scheduler s = two_racks();
  CHECK(run(s, tasks(1, 4, 4), 100) == plan_result::bind);
  const auto urgent = tasks("urgent", 2, 4, 5);
  const auto plan = s.propose(urgent, 200);
  REQUIRE(plan.ok());
  CHECK(plan->result == plan_result::preempt);
  CHECK(plan->victims == std::vector<job_key>{1});
  CHECK(plan->cost == plan->lower_bound);
  REQUIRE(s.commit(*plan).ok());
  CHECK(s.find("urgent")->preempting);
  CHECK(s.find(1)->ends_for == job_key("urgent"));
  CHECK(s.audit().empty());
  // While the victim runs, the answer stays the same; the rest of its GPUs is not free.
  CHECK(s.propose(urgent)->result == plan_result::preempt);
  CHECK(s.propose(tasks(2, 1, 1))->reason == wait_reason::busy);
  CHECK(s.propose(tasks(3, 1, 1, 9))->reason == wait_reason::busy);  // nothing else can end
  REQUIRE(s.finish(1).ok());
  CHECK(s.propose(tasks(2, 3, 4))->reason == wait_reason::busy);  // two nodes are reserved
  CHECK(run(s, urgent, 300) == plan_result::bind);
  CHECK(!s.find("urgent")->preempting);
  CHECK(s.find("urgent")->started == 300);
  CHECK(s.propose(urgent).status().code() == absl::StatusCode::kAlreadyExists);
  CHECK(s.audit().empty());
}

TEST_CASE("a preempting gang can be cancelled, and its victims stay") {
  gang_scheduler s = two_racks();
  run(s, tasks(1, 4, 4));
  const std::uint64_t hash = s.hash();
  CHECK(run(s, tasks(2, 4, 4, 1)) == plan_result::preempt);
  REQUIRE(s.finish(2).ok());
  CHECK(s.hash() == hash);
  CHECK(!s.find(1)->ends_for);
  CHECK(s.audit().empty());
  // If a node fails that it has reserved, it has to be proposed as a new gang.
  CHECK(run(s, tasks(2, 2, 4, 1)) == plan_result::preempt);
  const node_id reserved = s.find(2)->tasks[0].node;
  REQUIRE(s.mark_bad(reserved, 1).ok());
  CHECK(s.propose(tasks(2, 2, 4, 1))->reason == wait_reason::unhealthy);
  REQUIRE(s.finish(2).ok());
  CHECK(s.propose(tasks(2, 2, 4, 1))->result == plan_result::preempt);
}

TEST_CASE("a preempting gang keeps its request until it is cancelled") {
  gang_scheduler s = two_racks();
  run(s, tasks(1, 4, 4));
  const gang_scheduler::request reserved = tasks(7, 2, 4, 1);
  CHECK(run(s, reserved) == plan_result::preempt);
  const std::uint64_t hash = s.hash();
  const auto changed = [&](const auto& change) {
    gang_scheduler::request other = reserved;
    change(other);
    for (const absl::Status& fault :
         {s.propose(other).status(), s.explain(other).status(), s.propose(other, 5).status()}) {
      CHECK(fault.code() == absl::StatusCode::kInvalidArgument);
      CHECK(fault.message() == "job 7 has reserved GPUs for another request; finish it first");
    }
    CHECK(s.hash() == hash);
  };
  changed([](auto& r) { r.gang.groups[0].tasks = 4; });
  changed([](auto& r) { r.gang.groups[0].gpus = 2; });
  changed([](auto& r) { r.gang.groups[0].host.cpu_milli = 1; });
  changed([](auto& r) { r.gang.groups[0].spread = {{rack, 1}}; });
  changed([](auto& r) { r.gang.required = rack; });
  changed([](auto& r) { r.gang.groups.clear(); });
  changed([](auto& r) { r.filter.nodes = {"no such node"}; });
  changed([](auto& r) { r.tenant = tenant_id(1); });
  changed([](auto& r) { r.priority = 2; });
  CHECK(s.propose(reserved)->result == plan_result::preempt);
  REQUIRE(s.finish(1).ok());
  CHECK(run(s, reserved) == plan_result::bind);
  // A listed node may leave in the meantime: the gang has its GPUs elsewhere.
  gang_scheduler::request listed = tasks(8, 1, 4, 2);
  listed.filter.nodes = {"a", "b", "d"};
  CHECK(run(s, tasks(9, 1, 4)) == plan_result::bind);
  CHECK(run(s, tasks(10, 1, 4)) == plan_result::bind);
  CHECK(run(s, listed) == plan_result::preempt);
  const node_id there = s.find(8)->tasks[0].node;
  for (const char* const name : {"a", "b", "d"}) {
    for (const job_key& job : s.jobs_on(at(s, name)))
      if (job != job_key(8)) REQUIRE(s.finish(job).ok());
    if (at(s, name) != there) REQUIRE(s.remove_node(at(s, name)).ok());
  }
  CHECK(run(s, listed) == plan_result::bind);
}

TEST_CASE("a preempting gang may ask again, whatever the cluster has become, in snapshots, too") {
  gang_scheduler s = two_racks();
  run(s, tasks(1, 2, 4));  // a, b
  run(s, tasks(2, 1, 4));  // c
  run(s, tasks(3, 1, 4));  // d
  gang_scheduler::request urgent = tasks("urgent", 5, 2, 7);
  urgent.gang.groups[0].slices = {{0, 2}};  // the last slice is shorter
  urgent.gang.preferred = rack;
  urgent.filter.nodes = {"a", "b", "c", "d", "e"};
  const node_id e = s.add_node({.name = "e", .cells = {"r3"}, .gpus = 1}).value();
  const gang_scheduler before = s;
  REQUIRE(run(s, urgent) == plan_result::preempt);
  const gang_scheduler::running_gang reserved = *s.find("urgent");
  // Another list of the same names is the same request.
  urgent.filter.nodes = std::vector<std::string>{"a", "b", "c", "d", "e"};
  const auto check = [&](gang_scheduler& asked) {
    const auto again = asked.propose(urgent, 100);
    REQUIRE(again.ok());
    CHECK(again->result == plan_result::preempt);
    CHECK(again->tasks == reserved.tasks);
    CHECK(again->level == reserved.level);
    CHECK(std::set<job_key>(again->victims.begin(), again->victims.end()) == reserved.victims);
    CHECK(asked.explain(urgent, 100).ok());
    CHECK(asked.commit(*again).ok());
    CHECK(asked.audit().empty());
  };
  const auto ends = [&](gang_scheduler& asked) {
    for (const job_key& victim : reserved.victims) REQUIRE(asked.finish(victim).ok());
    CHECK(run(asked, urgent, 200) == plan_result::bind);
    CHECK(asked.find("urgent")->tasks == reserved.tasks);
    CHECK(asked.audit().empty());
  };
  check(s);
  s.set_step_budget(1);
  s.set_victim_cost([](const gang_scheduler::running_gang&, time_ms) { return 9U; });
  s.set_disruption_budget(tenant_id(), {.gangs = 0});
  check(s);
  REQUIRE(s.remove_node(e).ok());  // the filter names it
  check(s);
  for (const char* const name : {"a0", "c0", "z"})
    REQUIRE(s.add_node({.name = name, .cells = {"r1"}, .gpus = 8}).ok());
  check(s);
  // A node that it has reserved gets more, and is bad for a while.
  const node_id there = reserved.tasks[0].node;
  REQUIRE(s.resize_node(there, 8, {16'000, 5}).ok());
  check(s);
  REQUIRE(s.mark_bad(there).ok());
  CHECK(s.propose(urgent)->reason == wait_reason::unhealthy);
  REQUIRE(s.mark_healthy(there).ok());
  REQUIRE(s.mark_bad(there, 7).ok());  // a GPU that it has not reserved
  check(s);
  // In a snapshot, in a trial, in a snapshot of a trial; then in the scheduler itself.
  gang_scheduler copy = s;
  check(copy);
  ends(copy);
  s.what_if([&](gang_scheduler& trial) {
    REQUIRE(trial.add_node({.name = "e", .cells = {"r3"}, .gpus = 1}).ok());
    check(trial);
    gang_scheduler of_trial = trial;
    ends(of_trial);
    ends(trial);
  });
  check(s);
  ends(s);
  // After a restart before the victims have ended it is a new gang, with the same answer.
  gang_scheduler restarted = before;
  const auto anew = restarted.propose(urgent);
  REQUIRE(anew.ok());
  CHECK(anew->tasks == reserved.tasks);
  CHECK(std::set<job_key>(anew->victims.begin(), anew->victims.end()) == reserved.victims);
}

TEST_CASE("wrong calls are refused, and change nothing") {
  gang_scheduler s = two_racks();
  REQUIRE(run(s, tasks("x", 1, 4)) == plan_result::bind);
  const std::uint64_t hash = s.hash();
  const auto fault = [&](const gang_scheduler::request& r) {
    return std::string(s.propose(r).status().message());
  };
  CHECK(fault(tasks("x", 1, 1)) == "job x runs already");
  const std::string no_id =
      "a gang needs a job id: a number that is not negative, or a text that is not empty";
  for (const job_key& key : {job_key(""), job_key(), job_key(-1), job_key(std::int64_t{-7})}) {
    CHECK(!key.valid());
    CHECK(fault(tasks(key, 1, 1)) == no_id);
    CHECK(s.recover(tasks(key, 1, 1), {}).message() == no_id);
    CHECK(s.finish(key).message() == "a gang without job id does not run");
  }
  CHECK(fault({}) == no_id);
  CHECK(job_key(0) == job_key(std::uint64_t{0}));
  CHECK(job_key(0) != job_key());
  CHECK(s.propose(tasks(0, 1, 1))->result == plan_result::bind);
  CHECK(s.propose(tasks(~std::uint64_t{0}, 1, 1))->result == plan_result::bind);
  CHECK(fault({.job = 7}) == "job 7: the gang has no tasks");
  CHECK(fault(tasks(7, 0, 1)) == "job 7: the gang has no tasks");
  CHECK(fault(tasks(7, 1, 0)) == "job 7: a task of task group 0 asks for no GPU, CPU or memory");
  CHECK(fault(tasks(7, 1, 33)) ==
        "job 7: a task of task group 0 asks for 33 GPUs; a node has at most 32");
  CHECK(fault(tasks(7, 1'000'001, 1)) == "job 7: the gang has 1000001 tasks; the limit is 1000000");
  gang_scheduler::request groups = tasks(7, 1, 1);
  groups.gang.groups.resize(1'000'001, {.tasks = 0, .gpus = 1});
  CHECK(fault(groups) == "job 7: the gang has 1000001 task groups; the limit is 1000000");
  auto r = tasks(7, 1, 1);
  r.gang.groups[0].gpu_milli = 500;
  CHECK(fault(r) ==
        "job 7: task group 0 asks for 500 thousandths of a GPU; only whole GPUs can be scheduled");
  r = tasks(7, 1, 1);
  r.gang.groups[0].models = 1;
  CHECK(fault(r) == "job 7: task group 0 has GPU models; name them in the filter");
  r = tasks(7, 1, 1);
  r.gang.required = 2;
  CHECK(fault(r).find("job 7: ") == 0);
  r = tasks(7, 1, 1);
  r.filter.nodes = {"z"};
  CHECK(fault(r) == "job 7: the filter names node \"z\", which does not exist");
  CHECK(s.propose(r).status().code() == absl::StatusCode::kNotFound);

  const node_id none(77);
  CHECK(s.mark_bad(none).code() == absl::StatusCode::kNotFound);
  CHECK(s.mark_bad(node_id(0), 4).code() == absl::StatusCode::kNotFound);
  CHECK(s.mark_healthy(node_id()).code() == absl::StatusCode::kNotFound);
  CHECK(s.remove_node(none).code() == absl::StatusCode::kNotFound);
  CHECK(s.remove_node(node_id(0)).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(s.resize_node(none, 1, {}).code() == absl::StatusCode::kNotFound);
  CHECK(s.resize_node(node_id(0), 3, {}).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(s.resize_node(node_id(0), 33, {}).code() == absl::StatusCode::kInvalidArgument);
  CHECK(s.add_node({.name = "a", .cells = {"r1"}}).status().code() ==
        absl::StatusCode::kAlreadyExists);
  CHECK(s.add_node({.name = "e"}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(!s.find_level("row").ok());
  CHECK(!s.find_node("row").ok());
  CHECK(!s.free_capacity(2).ok());
  CHECK(s.node(none) == nullptr);

  const std::vector<placement> two{{node_id(1), 3}, {node_id(1), 2}};
  CHECK(s.recover(tasks(7, 2, 2), {}).code() == absl::StatusCode::kInvalidArgument);
  CHECK(s.recover(tasks(7, 2, 2), two).code() == absl::StatusCode::kInvalidArgument);
  const std::vector<placement> overlap{{node_id(1), 3}, {node_id(1), 6}};
  CHECK(s.recover(tasks(7, 2, 2), overlap).code() == absl::StatusCode::kInvalidArgument);
  const std::vector<placement> many{{node_id(1), 3}, {node_id(1), 12}, {node_id(2), 3}};
  CHECK(s.recover(tasks(7, 2, 2), many).code() == absl::StatusCode::kInvalidArgument);
  const std::vector<placement> outside{{node_id(1), 48}, {node_id(9), 3}};
  CHECK(s.recover(tasks(7, 2, 2), outside).code() == absl::StatusCode::kInvalidArgument);
  const std::vector<placement> taken{{node_id(1), 3}, {node_id(0), 3}};
  CHECK(s.recover(tasks(7, 2, 2), taken).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(s.recover(tasks("x", 2, 2), taken).code() == absl::StatusCode::kAlreadyExists);
  CHECK(s.hash() == hash);
  CHECK(s.audit().empty());
}

TEST_CASE("a plan that was changed, is stale or says wait is not applied") {
  gang_scheduler s = two_racks();
  run(s, tasks(1, 1, 4));
  const auto plan = s.propose(tasks(2, 1, 4)).value();
  const auto refused = [&](auto change) {
    gang_scheduler::plan wrong = plan;
    change(wrong);
    return s.commit(wrong).code();
  };
  using codes = absl::StatusCode;
  CHECK(refused([](auto& p) { p.tasks.clear(); }) == codes::kInvalidArgument);
  CHECK(refused([](auto& p) { p.tasks[0] = {node_id(0), 15}; }) == codes::kInvalidArgument);
  CHECK(refused([](auto& p) { p.tasks[0] = {node_id(99), 15}; }) == codes::kInvalidArgument);
  CHECK(refused([](auto& p) { p.tasks[0].gpu_mask = 3; }) == codes::kInvalidArgument);
  CHECK(refused([](auto& p) { p.result = plan_result::wait; }) == codes::kFailedPrecondition);
  CHECK(refused([](auto& p) {
          p.result = plan_result::preempt;
          p.victims = {job_key("unknown")};
        }) == codes::kInvalidArgument);
  CHECK(refused([](auto& p) {
          p.result = plan_result::preempt;
          p.victims = {job_key(1), job_key(1)};
        }) == codes::kInvalidArgument);
  gang_scheduler::plan empty;
  empty.result = plan_result::bind;
  CHECK(s.commit(empty).code() == codes::kAborted);
  CHECK(apiary_test::scheduler_of("", "").commit(empty).code() == codes::kAborted);
  gang_scheduler copy = s;
  CHECK(copy.commit(plan).ok());
  REQUIRE(s.mark_bad(node_id(3)).ok());
  CHECK(s.commit(plan).code() == codes::kAborted);
  CHECK(s.audit().empty());
}

TEST_CASE("victims: priority classes first, then gangs, then GPU-time") {
  gang_scheduler s = two_racks();
  run(s, tasks("old", 1, 4), 0);
  run(s, tasks("new", 1, 4), 900);
  run(s, tasks("class", 1, 4, 1), 999);
  for (const char* half : {"h1", "h2"}) run(s, tasks(half, 1, 2), 999);
  const auto first = s.propose(tasks("u", 1, 4, 2), 1000);
  CHECK(first->victims == std::vector<job_key>{"new"});  // one gang, the least GPU-time
  s.set_victim_cost([](const gang_scheduler::running_gang& g, time_ms) {
    return g.what.job == job_key("class") ? 1U : 5U;
  });
  CHECK(s.propose(tasks("u", 1, 4, 2), 1000)->victims == std::vector<job_key>{"class"});
  s.set_victim_cost([](const gang_scheduler::running_gang&, time_ms) {
    return std::numeric_limits<std::uint64_t>::max();
  });
  CHECK(s.propose(tasks("u", 1, 4, 2), 1000)->result == plan_result::preempt);
  s.set_victim_cost(nullptr);
  s.set_disruption_budget(tenant_id(), {.gangs = 0});
  CHECK(s.propose(tasks("u", 1, 4, 2), 1000)->result == plan_result::wait);
  s.set_disruption_budget(tenant_id(), {.gpus = 4});
  CHECK(s.propose(tasks("u", 1, 4, 2), 1000)->result == plan_result::preempt);
}

TEST_CASE("what_if takes back everything, new racks included") {
  gang_scheduler s = two_racks();
  run(s, tasks(1, 2, 4));
  run(s, tasks(2, 2, 4, 3));
  const std::uint64_t hash = s.hash();
  const auto before = s.propose(tasks(9, 1, 1, 9));
  s.what_if([&](gang_scheduler& t) {
    REQUIRE(t.finish(1).ok());
    CHECK(t.propose(tasks(9, 2, 4))->result == plan_result::bind);
    for (int i = 0; i < 40; ++i)
      REQUIRE(
          t.add_node(
               {.name = "m" + std::to_string(i), .cells = {"s" + std::to_string(i / 3)}, .gpus = 8})
              .ok());
    CHECK(run(t, tasks(3, 40, 8)) == plan_result::bind);
    CHECK(t.audit().empty());
    t.what_if([&](gang_scheduler& inner) {
      REQUIRE(inner.finish(3).ok());
      REQUIRE(inner.remove_node(at(inner, "m7")).ok());
      CHECK(run(inner, tasks(4, 4, 4, 4)) == plan_result::bind);
    });
    CHECK(t.find(3) != nullptr);
    CHECK(t.find(4) == nullptr);
    REQUIRE(t.mark_bad(node_id(0)).ok());
    REQUIRE(t.resize_node(at(t, "m3"), 9, {}).ok());
    t.set_disruption_budget(tenant_id(), {.gangs = 0});
    const gang_scheduler copy = t;  // keeps what the trial has done
    CHECK(copy.find(3) != nullptr);
    CHECK(copy.audit().empty());
  });
  CHECK(s.hash() == hash);
  CHECK(s.audit().empty());
  CHECK(s.commit(*before).ok());
}

TEST_CASE("what_if puts removed nodes back to their places in the order of the cluster") {
  gang_scheduler s = apiary_test::scheduler_of("SwitchName=r1 Nodes=a,b,c\nSwitchName=r2 Nodes=d",
                                               "NodeName=a,b,c,d Gres=gpu:4");
  const auto before = s.free_capacity(0).value();
  const auto tasks_before = s.propose(tasks("x", 3, 2))->tasks;
  s.what_if([](gang_scheduler& t) {
    for (const char* const name : {"a", "b", "d"}) REQUIRE(t.remove_node(at(t, name)).ok());
  });
  CHECK(s.free_capacity(0).value() == before);
  CHECK(s.propose(tasks("x", 3, 2))->tasks == tasks_before);
  CHECK(s.audit().empty());
}

TEST_CASE("what_if takes disruption budgets back") {
  gang_scheduler s = two_racks();
  CHECK(run(s, tasks("low", 4, 4)) == plan_result::bind);
  const auto high = tasks("high", 1, 4, 1);
  s.what_if([&](gang_scheduler& t) {
    t.set_disruption_budget(tenant_id(), {.gangs = 0});
    CHECK(t.propose(high)->result == plan_result::wait);
  });
  CHECK(s.propose(high)->result == plan_result::preempt);
}

TEST_CASE("what_if takes back everything if the trial throws") {
  gang_scheduler s = two_racks();
  CHECK(run(s, tasks("low", 3, 4)) == plan_result::bind);
  s.set_disruption_budget(tenant_id(), {.gangs = 1});
  const auto high = tasks("high", 2, 4, 1);
  const auto plan = s.propose(high);
  REQUIRE(plan->result == plan_result::preempt);
  const std::uint64_t hash = s.hash();
  const auto throws = [&](gang_scheduler& t) {
    REQUIRE(t.finish("low").ok());
    REQUIRE(t.remove_node(at(t, "a")).ok());
    REQUIRE(t.mark_bad(at(t, "c")).ok());
    t.set_disruption_budget(tenant_id(), {.gangs = 0});
    t.set_disruption_budget(tenant_id(2), {.gangs = 0});
    t.set_victim_cost(
        [](const gang_scheduler::running_gang&, time_ms) { return std::uint64_t{5}; });
    t.set_step_budget(1);
    throw 7;
  };
  CHECK_THROWS_AS(s.what_if(throws), int);
  const auto in_a_trial = [&](gang_scheduler& t) {
    CHECK_THROWS_AS(t.what_if(throws), int);
    CHECK(t.hash() == hash);
    t.what_if(throws);
  };
  CHECK_THROWS_AS(s.what_if(in_a_trial), int);
  CHECK(s.hash() == hash);
  CHECK(s.audit().empty());
  const auto again = s.propose(high);
  CHECK(again->result == plan_result::preempt);
  CHECK(again->steps == plan->steps);
  CHECK(again->cost == plan->cost);
  // No trial is open: changes are not taken back, and the plan of before fits.
  CHECK(s.commit(*plan).ok());
  s.what_if([](gang_scheduler&) {});
  CHECK(s.find("high") != nullptr);
  CHECK(s.audit().empty());
}

TEST_CASE("a plan is out of date when budgets or costs of victims have changed since") {
  const auto is_aborted = [](gang_scheduler& s, const gang_scheduler::plan& plan) {
    return s.commit(plan).code() == absl::StatusCode::kAborted;
  };
  gang_scheduler s = two_racks();
  CHECK(run(s, tasks("low", 4, 4)) == plan_result::bind);
  const auto high = tasks("high", 1, 4, 1);
  const auto first = s.propose(high);
  REQUIRE(first->result == plan_result::preempt);
  s.set_disruption_budget(tenant_id(), {.gangs = 0});
  CHECK(s.propose(high)->result == plan_result::wait);
  CHECK(is_aborted(s, *first));
  s.set_disruption_budget(tenant_id(), {.gangs = 1});
  CHECK(is_aborted(s, *first));
  const auto second = s.propose(high);
  s.set_victim_cost([](const gang_scheduler::running_gang&, time_ms) { return std::uint64_t{5}; });
  CHECK(is_aborted(s, *second));

  // A trial leaves earlier plans as they are, and its own plans are never those of a later state.
  const auto third = s.propose(high);
  gang_scheduler::plan of_trial = *third;
  s.what_if([&](gang_scheduler& t) {
    t.set_disruption_budget(tenant_id(), {.gangs = 2});
    of_trial = t.propose(high).value();
    CHECK(is_aborted(t, *third));
  });
  CHECK(is_aborted(s, of_trial));
  gang_scheduler same = s;
  CHECK(same.commit(*third).ok());
  s.set_disruption_budget(tenant_id(), {.gangs = 0});
  CHECK(is_aborted(s, of_trial));
  CHECK(is_aborted(s, *third));
  // A plan that took few steps is as good as any other.
  s.set_disruption_budget(tenant_id(), {.gangs = 1});
  const auto last = s.propose(high);
  s.set_step_budget(1);
  CHECK(s.commit(*last).ok());
}

TEST_CASE("what_if copies neither costs nor disruption budgets, and takes back what it changed") {
  gang_scheduler s = two_racks();
  CHECK(run(s, tasks("low", 2, 4)) == plan_result::bind);
  CHECK(run(s, tasks("other", 2, 4)) == plan_result::bind);
  struct counted_cost {
    std::uint64_t* copies;
    std::uint64_t cost;
    counted_cost(std::uint64_t* count, std::uint64_t each) : copies(count), cost(each) {}
    counted_cost(const counted_cost& other) : copies(other.copies), cost(other.cost) { ++*copies; }
    std::uint64_t operator()(const gang_scheduler::running_gang&, time_ms) const { return cost; }
  };
  std::uint64_t copies = 0;
  s.set_victim_cost(counted_cost(&copies, 7));
  s.set_disruption_budget(tenant_id(), {.gangs = 1});
  copies = 0;
  const auto high = tasks("high", 1, 4, 1);
  const auto cost = [&](gang_scheduler& t) { return t.propose(high)->cost; };
  s.what_if([&](gang_scheduler& t) { CHECK(cost(t) == 7); });
  CHECK(copies == 0);
  s.what_if([&](gang_scheduler& t) {
    t.set_victim_cost(counted_cost(&copies, 8));
    t.what_if([&](gang_scheduler& inner) {
      CHECK(cost(inner) == 8);
      inner.set_victim_cost(nullptr);
      inner.set_disruption_budget(tenant_id(), {.gangs = 0});
      inner.set_disruption_budget(tenant_id(3), {.gangs = 0});
      inner.set_disruption_budget(tenant_id(), {.gangs = 9});
      inner.set_disruption_budget(tenant_id(), {.gangs = 0});
      CHECK(inner.propose(high)->result == plan_result::wait);
      gang_scheduler copy = inner;  // keeps what the trials have set
      CHECK(copy.propose(high)->result == plan_result::wait);
    });
    CHECK(cost(t) == 8);
    t.set_disruption_budget(tenant_id(), {.gangs = 0});
    gang_scheduler copy = t;
    copy.what_if([&](gang_scheduler& c) { c.set_disruption_budget(tenant_id(), {.gangs = 1}); });
    CHECK(copy.propose(high)->result == plan_result::wait);
  });
  CHECK(cost(s) == 7);
  CHECK(s.propose(tasks("high", 4, 4, 1))->result == plan_result::wait);  // at most one gang
}

TEST_CASE("the hash tells requests of running gangs apart") {
  const std::vector<placement> where{{node_id(2), 3}, {node_id(3), 3}};
  gang_scheduler::request r = tasks("x", 2, 2);
  const auto hash = [&] {
    gang_scheduler s = two_racks();
    const auto recovered = s.recover(r, where);
    CAPTURE(recovered.ToString());
    REQUIRE(recovered.ok());
    return s.hash();
  };
  std::set<std::uint64_t> seen{hash()};
  const auto changed = [&](const auto& change) {
    change(r);
    CHECK(seen.insert(hash()).second);
    CHECK(!seen.insert(hash()).second);
  };
  changed([](auto& q) { q.gang.required = rack; });
  changed([](auto& q) { q.gang.required = any_level, q.gang.preferred = rack; });
  changed([](auto& q) { q.gang.groups[0].slices = {{rack, 2}}; });
  changed([](auto& q) { q.gang.groups[0].slices = {{rack, 1}}; });
  changed([](auto& q) { q.gang.groups[0].slices = {}, q.gang.groups[0].spread = {{rack, 1}}; });
  changed([](auto& q) { q.gang.groups[0].spread = {{0, 1}}; });
  changed([](auto& q) { q.filter.labels = {"zone"}; });
  changed([](auto& q) { q.filter.labels = {}, q.filter.models = {"zone"}; });
  changed([](auto& q) { q.filter.models = {}, q.filter.tolerations = {"zone"}; });
  changed([](auto& q) { q.filter.nodes = {"c", "d"}; });
  changed([](auto& q) { q.filter.nodes = {"d", "c"}; });
  changed([](auto& q) { q.gang.groups.assign(2, {.tasks = 1, .gpus = 2}); });
  changed([](auto& q) { q.gang.groups[1].leader = 0; });
  changed([](auto& q) { q.gang.groups[1].leader_level = rack; });
}

TEST_CASE(
    "a reason that is known stays when the steps end before the rest of the cluster is searched") {
  // Two tasks of 4 GPUs and four of 3 on two nodes of 10 GPUs are hard; the list of nodes allows a node
  // where they do not fit, and the label the same one.
  gang_cluster cluster;
  cluster.nodes = {{.name = "a", .gpus = 10, .labels = {"zone=a"}}};
  for (std::uint32_t n = 0; n < 40; ++n)
    cluster.nodes.push_back({.name = "n" + std::to_string(n), .gpus = 10});
  gang_scheduler s = gang_scheduler::create(cluster).value();
  std::vector<gang_scheduler::request> both(
      2, {.job = "x", .gang = {.groups = {{.tasks = 41, .gpus = 4}, {.tasks = 82, .gpus = 3}}}});
  both[0].filter.labels = {"zone=a"};
  both[1].filter.nodes = {"a"};
  std::uint64_t known = 0;
  for (std::uint64_t steps = 1; steps < 200; ++steps) {
    s.set_step_budget(steps);
    const wait_reason by_label = s.propose(both[0])->reason;
    const wait_reason by_list = s.propose(both[1])->reason;
    CAPTURE(steps);
    if (by_label == wait_reason::undecided) continue;
    ++known;
    CHECK(by_label == wait_reason::never);
    CHECK((by_list == by_label || by_list == wait_reason::not_suggested));
  }
  MESSAGE(known << " budgets are enough");
  CHECK(known > 0);
}

TEST_CASE("a node without GPUs is no free node") {
  gang_cluster cluster;
  cluster.nodes = {{.name = "cpu", .host = {8000, 0}}, {.name = "gpu", .gpus = 4}};
  const gang_scheduler s = gang_scheduler::create(cluster).value();
  using cells = std::vector<gang_scheduler::cell_capacity>;
  CHECK(s.free_capacity(0).value() == cells{{"cpu", 1, 0, 0, 0}, {"gpu", 1, 1, 4, 4}});
}

TEST_CASE("what the steps do not decide on the idle cluster is undecided, not busy") {
  // Two tasks of 4 GPUs and four of 3 fill both nodes, but not in the order of their sizes.
  gang_cluster cluster;
  cluster.nodes = {{.name = "a", .gpus = 10}, {.name = "b", .gpus = 10}};
  gang_scheduler s = gang_scheduler::create(cluster).value();
  CHECK(run(s, tasks("x", 1, 10)) == plan_result::bind);
  const gang_scheduler::request hard{
      .job = "y", .gang = {.groups = {{.tasks = 2, .gpus = 4}, {.tasks = 4, .gpus = 3}}}};
  CHECK(s.propose(hard)->reason == wait_reason::busy);
  s.set_step_budget(1);
  CHECK(s.propose(hard)->reason == wait_reason::undecided);
}

TEST_CASE("what few steps do not decide about victims is undecided, not busy") {
  std::uint32_t undecided = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    gang_cluster cluster{.levels = {"rack"}};
    for (std::uint32_t n = 0; n < 16; ++n)
      cluster.nodes.push_back({.name = "n" + std::to_string(n),
                               .cells = {"r" + std::to_string(n / 4)},
                               .gpus = 8,
                               .host = {64'000, 0}});
    gang_scheduler idle = gang_scheduler::create(cluster).value();
    gang_scheduler s = idle;
    for (std::uint32_t j = 0; j < 60; ++j)
      run(s, tasks(j, 1 + random.uniform(4), 1 + random.uniform(4)));
    auto gang = tasks("asked", 1 + random.uniform(6), 3 + random.uniform(3), 1);
    gang.gang.groups.push_back({.tasks = 1 + random.uniform(6),
                                .gpus = 1 + random.uniform(3),
                                .host = {8'000 * (1 + random.uniform(3)), 0},
                                .spread = {{0, 1 + random.uniform(2)}}});
    if (random.uniform(2) == 0) gang.gang.required = rack;
    const auto known = s.propose(gang);
    REQUIRE(known.ok());
    for (const std::uint64_t steps : {1U, 30U, 100U, 300U, 1000U}) {
      CAPTURE(steps);
      s.set_step_budget(steps);
      idle.set_step_budget(steps);
      const auto plan = s.propose(gang);
      REQUIRE(plan.ok());
      if (plan->result != plan_result::wait) continue;
      if (plan->reason != wait_reason::undecided) {
        REQUIRE(known->result == plan_result::wait);
        REQUIRE(known->reason == plan->reason);
      } else if (idle.propose(gang)->result == plan_result::bind) {
        ++undecided;  // only the victims are not known
      }
    }
  }
  CHECK(undecided > 0);
}

TEST_CASE("a task group without tasks does not make a gang impossible") {
  gang_scheduler s = two_racks();
  for (const char* const name : {"a", "c"}) {
    gang_scheduler::request one = tasks(name, 1, 1);
    one.filter.nodes = std::vector<std::string>{name};
    REQUIRE(run(s, one) == plan_result::bind);
  }
  gang_scheduler::request r = tasks("x", 2, 4);
  r.gang.groups.push_back({.tasks = 0, .gpus = 16});
  r.gang.required = rack;
  CHECK(s.propose(r)->reason == wait_reason::busy);
}

TEST_CASE("a leader that does not exist is refused, beside a shorter last slice, too") {
  gang_scheduler s = two_racks();
  gang_scheduler::request r{.job = "x"};
  r.gang.groups = {{.tasks = 1, .gpus = 1, .leader = 2},
                   {.tasks = 3, .gpus = 1, .slices = {{0, 2}}}};
  CHECK(s.propose(r).status().code() == absl::StatusCode::kInvalidArgument);
  // A fault is reported with the index of the group in the request.
  r.gang.groups = {{.tasks = 5, .gpus = 1, .slices = {{0, 2}}},
                   {.tasks = 1, .gpus = 1, .spread = {{9, 1}}}};
  CHECK(s.propose(r).status().message().find("task group 1 ") != std::string::npos);
}

TEST_CASE("where more CPU is in use than there is, the lower bound of a preemption is 0") {
  gang_cluster cluster;
  cluster.nodes = {{.name = "a", .gpus = 4, .host = {8000, 0}}};
  for (const bool overcommitted : {false, true}) {
    CAPTURE(overcommitted);
    gang_scheduler s = gang_scheduler::create(cluster).value();
    auto one = tasks("one", 1, 2);
    auto two = tasks("two", 1, 2);
    one.gang.groups[0].host.cpu_milli = two.gang.groups[0].host.cpu_milli =
        overcommitted ? 6000 : 4000;
    REQUIRE(s.recover(one, std::vector<placement>{{node_id(0), 3}}, 0).ok());
    REQUIRE(s.recover(two, std::vector<placement>{{node_id(0), 12}}, 0).ok());
    auto without_gpus = tasks("cpu", 1, 0);  // no CPU is left for it
    without_gpus.gang.groups[0].host.cpu_milli = 1;
    CHECK(s.propose(without_gpus)->result == plan_result::wait);
    auto high = tasks("high", 1, 2, 1);
    high.gang.groups[0].host.cpu_milli = 1000;
    const auto plan = s.propose(high, 100);
    REQUIRE(plan->result == plan_result::preempt);
    CHECK(plan->cost > 0);
    CHECK((plan->lower_bound == 0) == overcommitted);
    CHECK((sentence(s, high).find("no other choice") == std::string::npos) == overcommitted);
    // Once its GPUs are reserved, other choices are not searched any more.
    REQUIRE(s.commit(*plan).ok());
    CHECK(sentence(s, high).find("no other choice") == std::string::npos);
  }
}

TEST_CASE("while a rack is not decided, the lower bound of a preemption in another one is 0") {
  // Two tasks of 4 GPUs and four of 3 fill both nodes of r1, but not in the order of their sizes.
  gang_cluster cluster{.levels = {"rack"}};
  cluster.nodes = {{.name = "a", .cells = {"r1"}, .gpus = 10},
                   {.name = "b", .cells = {"r1"}, .gpus = 10},
                   {.name = "c", .cells = {"r2"}, .gpus = 20}};
  gang_scheduler s = gang_scheduler::create(cluster).value();
  gang_scheduler::request low = tasks("low", 1, 20);
  REQUIRE(run(s, low) == plan_result::bind);
  gang_scheduler::request hard{
      .job = "hard",
      .priority = 1,
      .gang = {.groups = {{.tasks = 2, .gpus = 4}, {.tasks = 4, .gpus = 3}}, .required = rack}};
  CHECK(s.propose(hard)->result == plan_result::bind);
  s.set_step_budget(16);  // half of it is for the search whether it fits now
  const auto plan = s.propose(hard, 100);
  REQUIRE(plan->result == plan_result::preempt);
  CHECK(plan->cost > 0);
  CHECK(plan->lower_bound == 0);
}

TEST_CASE("of racks whose victims cost as much, the first is chosen, however many are searched") {
  gang_cluster cluster{.levels = {"rack"}};
  for (const char* const name : {"a", "b", "c"})
    cluster.nodes.push_back(
        {.name = name, .cells = {std::string("rack-") + name}, .gpus = 4, .host = {8000, 0}});
  gang_scheduler s = gang_scheduler::create(cluster).value();
  for (const char* const name : {"a", "b", "c"}) {
    gang_scheduler::request low = tasks(name, 1, 1);
    low.gang.groups[0].host.cpu_milli = 8000;
    low.filter.nodes = std::vector<std::string>{name};
    REQUIRE(run(s, low) == plan_result::bind);
  }
  s.set_victim_cost([](const gang_scheduler::running_gang&, time_ms) { return std::uint64_t{5}; });
  // GPUs are free, so no bound is above 0, and all racks are searched: two, then the third.
  gang_scheduler::request high = tasks("high", 1, 1, 1);
  high.gang.groups[0].host.cpu_milli = 8000;
  high.gang.required = rack;
  const auto plan = s.propose(high);
  REQUIRE(plan->result == plan_result::preempt);
  CHECK(plan->victims == std::vector<job_key>{"a"});
}

TEST_CASE("one gang that is enough alone is the victim if no other set can cost less") {
  // Two gangs have four nodes each; every other node has a gang of its own.
  gang_cluster cluster{.levels = {"rack"}};
  for (std::uint32_t n = 0; n < 16; ++n)
    cluster.nodes.push_back(
        {.name = "n" + std::to_string(n), .cells = {"r" + std::to_string(n / 4)}, .gpus = 4});
  using jobs = std::vector<job_key>;
  for (const bool equal : {false, true}) {
    CAPTURE(equal);
    gang_scheduler s = gang_scheduler::create(cluster).value();
    gang_scheduler::request wide = tasks("wide-b", 4, 4);
    wide.tenant = tenant_id(1);
    REQUIRE(run(s, wide, 20) == plan_result::bind);
    wide = tasks("wide-a", 4, 4);
    wide.tenant = tenant_id(2);
    REQUIRE(run(s, wide, equal ? 20 : 10) == plan_result::bind);
    for (std::uint64_t job = 0; job < 8; ++job)
      REQUIRE(run(s, tasks(job, 1, 4), 50) == plan_result::bind);
    const auto victims = [&](std::uint32_t n, std::int32_t priority) {
      const auto plan = s.propose(tasks("asked", n, 4, priority), 100);
      REQUIRE(plan->result == plan_result::preempt);
      CHECK(plan->cost == plan->lower_bound);
      return plan->victims;
    };
    // The gang that loses the least GPU-time; of equals the first job.
    CHECK(victims(4, 1) == jobs{equal ? "wide-a" : "wide-b"});
    CHECK(victims(3, 1) == jobs{equal ? "wide-a" : "wide-b"});
    CHECK(victims(1, 1) == jobs{0});
    CHECK(victims(5, 1).size() == 2);
    // What a tenant may not lose is no victim, even if more gangs have to end.
    s.set_disruption_budget(tenant_id(equal ? 2 : 1), {.gangs = 0});
    CHECK(victims(4, 1) == jobs{equal ? "wide-b" : "wide-a"});
    s.set_disruption_budget(tenant_id(equal ? 1 : 2), {.gpus = 15});
    CHECK(victims(4, 1).size() == 4);
  }
  // Two gangs of a low priority cost less than one of a higher priority.
  gang_scheduler s = gang_scheduler::create(cluster).value();
  REQUIRE(run(s, tasks("high", 14, 4, 1)) == plan_result::bind);
  for (std::uint64_t job = 0; job < 2; ++job)
    REQUIRE(run(s, tasks(job, 1, 4)) == plan_result::bind);
  CHECK(s.propose(tasks("asked", 2, 4, 2))->victims == jobs{0, 1});
  CHECK(s.propose(tasks("asked", 3, 4, 2))->victims == jobs{"high"});
}

TEST_CASE("one gang among many is found with few steps") {
  // 64 nodes of four gangs each, and one gang on eight nodes; the search as a whole needs more steps
  // to know that no set costs less.
  gang_cluster cluster{.levels = {"rack"}};
  for (std::uint32_t n = 0; n < 72; ++n)
    cluster.nodes.push_back(
        {.name = "n" + std::to_string(n), .cells = {"r" + std::to_string(n / 8)}, .gpus = 8});
  gang_scheduler s = gang_scheduler::create(cluster).value();
  REQUIRE(run(s, tasks("wide", 8, 8), 50) == plan_result::bind);
  rng random(1);
  for (std::uint64_t job = 0; job < 256; ++job)
    REQUIRE(run(s, tasks(job, 2, 1), random.uniform(90)) == plan_result::bind);
  s.set_step_budget(2'000);
  const auto plan = s.propose(tasks("asked", 8, 8, 1), 100);
  REQUIRE(plan->result == plan_result::preempt);
  CHECK(plan->victims == std::vector<job_key>{"wide"});
  CHECK(plan->cost == plan->lower_bound);
}

TEST_CASE("a bad node gives back no CPU") {
  gang_cluster cluster;
  cluster.nodes = {{.name = "a", .gpus = 4, .host = {8000, 0}}};
  gang_scheduler s = gang_scheduler::create(cluster).value();
  gang_scheduler::request low = tasks("low", 1, 0);
  low.gang.groups[0].host.cpu_milli = 8000;
  REQUIRE(run(s, low) == plan_result::bind);
  REQUIRE(s.mark_bad(node_id(0)).ok());
  gang_scheduler::request high = tasks("high", 1, 0, 1);
  high.gang.groups[0].host.cpu_milli = 8000;
  const auto plan = s.propose(high);
  CHECK(plan->result == plan_result::wait);
  CHECK(plan->reason == wait_reason::unhealthy);
}

TEST_CASE("for a preferred rack no gang ends that need not, even if it costs nothing") {
  gang_scheduler s = two_racks();
  for (const char* const name : {"b", "c", "d"}) {
    gang_scheduler::request r = tasks(name, 1, 4);
    r.filter.nodes = std::vector<std::string>{name};
    REQUIRE(run(s, r) == plan_result::bind);
  }
  s.set_victim_cost([](const gang_scheduler::running_gang& g, time_ms) {
    return std::uint64_t{g.what.job == job_key("b") ? 5U : 0U};
  });
  gang_scheduler::request r = tasks("x", 2, 4, 1);
  r.gang.preferred = rack;
  const auto plan = s.propose(r);
  REQUIRE(plan->result == plan_result::preempt);
  CHECK(plan->cost == 0);
  CHECK(plan->victims.size() == 1);  // with node a; c and d would be a rack
}

TEST_CASE("gangs recover in any order") {
  gang_cluster cluster{.levels = {"rack"}};
  for (int n = 0; n < 12; ++n)
    cluster.nodes.push_back({.name = "n" + std::to_string(n),
                             .cells = {"r" + std::to_string(n / 4)},
                             .gpus = 8,
                             .host = {64'000, 1'000}});
  rng random(5);
  for (std::uint32_t round = 0; round < scaled(50U); ++round) {
    gang_scheduler s = gang_scheduler::create(cluster).value();
    std::vector<job_key> jobs;
    for (std::uint64_t j = 0; j < 30; ++j) {
      auto r =
          tasks(j % 2 == 0 ? job_key(j) : job_key("j" + std::to_string(j)), 1 + random.uniform(3),
                1 + random.uniform(4), static_cast<std::int32_t>(random.uniform(3)));
      r.gang.groups[0].host.cpu_milli = 1000;
      if (run(s, r, static_cast<time_ms>(j)) == plan_result::preempt)
        REQUIRE(s.finish(r.job).ok());
      else if (s.find(r.job) != nullptr)
        jobs.push_back(r.job);
      if (!jobs.empty() && random.uniform(3) == 0) {
        std::swap(jobs[random.uniform(static_cast<std::uint32_t>(jobs.size()))], jobs.back());
        REQUIRE(s.finish(jobs.back()).ok());
        jobs.pop_back();
      }
    }
    random.shuffle(jobs);
    gang_scheduler again = gang_scheduler::create(cluster).value();
    for (const job_key& j : jobs) {
      const auto* const g = s.find(j);
      REQUIRE(again.recover(g->what, g->tasks, g->started).ok());
    }
    CHECK(again.hash() == s.hash());
    CHECK(again.audit().empty());
    for (std::uint32_t n = 1; n < 12; ++n) {
      const auto a = s.propose(tasks("u", n, 8, 9), 100);
      const auto b = again.propose(tasks("u", n, 8, 9), 100);
      CHECK(a->result == b->result);
      CHECK(a->tasks == b->tasks);
      CHECK(a->victims == b->victims);
    }
  }
}

TEST_CASE("more filters than are kept") {
  gang_scheduler s = two_racks();
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 50; ++i) {
      auto r = tasks(i, 1, 1);
      r.filter.labels = {"zone=" + std::to_string(i)};
      CHECK(s.propose(r)->result == (i == 1 ? plan_result::bind : plan_result::wait));
      r.filter = {.models = {"h100", std::to_string(i)}};
      CHECK(s.propose(r)->tasks[0].node.value == 2);
    }
    CHECK(s.audit().empty());
    if (round == 0) run(s, tasks("x", 1, 4));
    if (round == 1) REQUIRE(s.add_node({.name = "e", .cells = {"r3"}, .gpus = 4}).ok());
  }
}

TEST_CASE("nodes and racks may be named like a level and a number") {
  const gang_cluster named{.levels = {"rack"},
                           .nodes = {{.name = "rack-1", .cells = {"node-7"}, .gpus = 8},
                                     {.name = "node-0", .cells = {"node-7"}, .gpus = 8},
                                     {.name = "gpu-3", .cells = {"rack-1"}, .gpus = 8}}};
  CHECK(named.check().ok());
  const auto texts = example::write_slurm(named);
  REQUIRE(texts.ok());
  CHECK(example::read_slurm(texts->topology, texts->nodes).value().nodes == named.nodes);
  gang_scheduler s = gang_scheduler::create(named).value();
  CHECK(s.find_node("gpu-3").value() == node_id(2));
  const auto found = s.propose({.job = 1,
                                .gang = {.groups = {{.tasks = 2, .gpus = 8}}, .required = 1},
                                .filter = {.nodes = {"rack-1", "node-0", "gpu-3"}}});
  REQUIRE(found.ok());
  CHECK(found->result == plan_result::bind);
}

TEST_CASE("GPU models hold under constraints, too") {
  gang_scheduler s = two_racks();  // a, b: v100; c, d: h100
  auto r = tasks("x", 2, 2);
  r.gang.groups[0].spread = {{0, 1}};
  r.gang.groups.push_back({.tasks = 2, .gpus = 1, .slices = {{rack, 2}}});
  for (const level_t required : {rack, any_level}) {
    r.gang.required = required;
    for (const bool h100 : {false, true}) {
      r.filter.models = {h100 ? "h100" : "v100"};
      const auto plan = s.propose(r);
      REQUIRE(plan->result == plan_result::bind);
      for (const placement& p : plan->tasks) CHECK((p.node.value >= 2) == h100);
    }
  }
  r.gang.groups[0].tasks = 3;  // three nodes have none of the two models
  CHECK(s.propose(r)->reason == wait_reason::never);
}

TEST_CASE("a taint keeps gangs away that do not tolerate it") {
  gang_scheduler s =
      apiary_test::scheduler_of("", "NodeName=a Gres=gpu:4 Taints=x,y\nNodeName=b Gres=gpu:2");
  auto r = tasks(1, 1, 3);
  CHECK(s.propose(r)->reason == wait_reason::never);
  r.filter.tolerations = {"x"};
  CHECK(s.propose(r)->reason == wait_reason::never);
  r.filter.tolerations = {"y", "x"};
  CHECK(s.propose(r)->result == plan_result::bind);
}

TEST_CASE("CPU decides where the GPUs do not") {
  gang_scheduler s = two_racks();
  auto r = tasks(1, 1, 1);
  r.gang.groups[0].host.cpu_milli = 8000;
  CHECK(run(s, r) == plan_result::bind);
  r = tasks(2, 3, 2);
  r.gang.groups[0].host.cpu_milli = 8000;
  CHECK(run(s, r) == plan_result::bind);
  CHECK(s.jobs_on(node_id(0)).size() == 1);
  r = tasks(3, 1, 1);
  r.gang.groups[0].host.cpu_milli = 1;
  CHECK(s.propose(r)->reason == wait_reason::busy);
  r.priority = 1;
  CHECK(s.propose(r, 10)->victims == std::vector<job_key>{1});  // it has used the least GPU-time
  r.gang.groups[0].host.cpu_milli = 8001;
  CHECK(s.propose(r)->reason == wait_reason::never);
  CHECK(s.propose(tasks(3, 1, 1))->result == plan_result::bind);
}

TEST_CASE("sentences for people") {
  gang_scheduler s = two_racks();
  auto gang = tasks("train", 2, 4);
  gang.gang.required = rack;
  CHECK(sentence(s, gang) == "job train can start now on nodes a and b in rack r1");
  CHECK(sentence(s, tasks("train", 4, 4)) == "job train can start now on nodes a, b, c and d");
  run(s, tasks("x", 1, 1));
  REQUIRE(s.mark_bad(at(s, "c")).ok());
  CHECK(sentence(s, gang) ==
        "job train waits: the gang needs 2 free nodes of 4 GPUs in one rack; rack r1 has the most: "
        "1; it would fit if node a were free (1 more GPU)");
  gang.filter.labels = {"zone=1"};
  CHECK(sentence(s, gang) ==
        "job train waits: too many nodes or GPUs are bad: in rack r2, 1 of 2 nodes is bad; it "
        "would fit if "
        "node c were healthy and free (4 more GPUs)");
  gang.filter.labels = {"zone=2"};
  CHECK(sentence(s, gang) ==
        "job train can never start in this cluster, even if it is idle: no node has label "
        "\"zone=2\"");
  gang.filter = {};
  gang.priority = 1;
  CHECK(sentence(s, gang) ==
        "job train can start on nodes a and b in rack r1 when job x has been "
        "preempted; no other choice costs less");
  gang.gang.groups[0].tasks = 3;
  CHECK(sentence(s, gang) ==
        "job train can never start in this cluster, even if it is idle: the gang needs 3 free "
        "nodes of 4 GPUs in one rack; rack r1 has the most: 2");
  gang.gang.required = any_level;
  gang.priority = 0;
  CHECK(sentence(s, gang) ==
        "job train waits: the gang needs 3 free nodes of 4 GPUs; the cluster has 2; it would fit "
        "if node a were free (1 more GPU)");
  auto cpu = tasks("cpu", 2, 2);
  cpu.gang.groups[0].host.cpu_milli = 8000;
  cpu.gang.required = 0;
  CHECK(sentence(s, cpu) ==
        "job cpu can never start in this cluster, even if it is idle: the gang needs capacity for "
        "2 tasks of 2 GPUs with 8 CPUs on one node; node a has the most: 1; without its CPU "
        "request it would fit");
  gang_scheduler without = apiary_test::scheduler_of("", "NodeName=a,b CPUs=64");
  CHECK(sentence(without, tasks("x", 2, 8)) ==
        "job x can never start in this cluster, even if it is idle: the cluster has no GPUs");
  s.set_step_budget(1);
  auto odd = tasks("odd", 1, 3);
  odd.gang.groups.push_back({.tasks = 4, .gpus = 2});
  odd.gang.groups[0].spread = odd.gang.groups[1].spread = {{rack, 2}};
  CHECK(sentence(s, odd).find("job odd ") == 0);
}

TEST_CASE("a filter that accepts no node is the whole reason") {
  const auto node = [](const char* name, const char* model, const char* label, const char* taint) {
    gang_cluster::node n{.name = name, .cells = {"r"}, .gpus = 4, .host = {8000, 0}};
    n.model = model;
    if (*label != 0) n.labels = {label};
    if (*taint != 0) n.taints = {taint};
    return n;
  };
  const gang_cluster two{
      .levels = {"rack"},
      .nodes = {node("a", "h100", "zone=1", ""), node("b", "a100", "zone=2", "")}};
  gang_scheduler s = gang_scheduler::create(two).value();
  const auto why = [&](const node_filter& filter) {
    auto gang = tasks("x", 2, 4);
    gang.gang.groups[0].host.cpu_milli = 4000;
    gang.gang.required = rack;
    gang.filter = filter;
    const std::string text = sentence(s, gang);
    const std::string start = "job x can never start in this cluster, even if it is idle: ";
    REQUIRE(text.find(start) == 0);
    return text.substr(start.size());
  };
  CHECK(why({.models = {"b200"}}) == "no node has GPU model \"b200\"");
  CHECK(why({.models = {"b200", "b300"}}) == "no node has GPU model \"b200\" or \"b300\"");
  CHECK(why({.labels = {"zone", "row"}}) == "no node has label \"row\"");
  CHECK(why({.labels = {"zone=1", "zone=3"}}) == "no node has label \"zone=3\"");
  CHECK(why({.labels = {"zone=1"}, .models = {"a100"}}) ==
        "it may run only on nodes with label \"zone=1\" and GPU model \"a100\"; there are none");
  // A filter that accepts a node is a part of the reason.
  const std::string part = why({.models = {"h100"}});
  CHECK(part.find("the gang needs ") == 0);
  CHECK(part.find("; it may run only on nodes with GPU model \"h100\"") != std::string::npos);

  const gang_cluster tainted{.levels = {"rack"}, .nodes = {node("a", "h100", "", "dedicated=a")}};
  s = gang_scheduler::create(tainted).value();
  const std::string other =
      "; there are none: 1 idle node of 4 GPUs has the taint \"dedicated=a\", which it does not "
      "tolerate";
  CHECK(why({}) == "it may run only on nodes without taints" + other);
  CHECK(why({.tolerations = {"other"}}) ==
        "it may run only on nodes (taint \"other\" is tolerated) without other taints" + other);
  CHECK(why({.tolerations = {"dedicated=a"}}).find("the gang needs ") == 0);
  REQUIRE(s.remove_node(at(s, "a")).ok());
  CHECK(why({.models = {"b200"}}) == "the cluster has no nodes");
}

TEST_CASE("an empty cluster gets its nodes later") {
  gang_scheduler flat = apiary_test::scheduler_of("", "");
  CHECK(sentence(flat, tasks("x", 1, 4)) ==
        "job x can never start in this cluster, even if it is idle: the cluster has no nodes");
  REQUIRE(flat.add_node({.name = "a", .gpus = 4}).ok());
  CHECK(flat.propose(tasks("x", 1, 4))->result == plan_result::bind);
  gang_scheduler racks = gang_scheduler::create(gang_cluster{.levels = {"rack"}}).value();
  auto gang = tasks("x", 1, 4);
  gang.gang.required = rack;
  CHECK(racks.propose(gang)->reason == wait_reason::never);
  REQUIRE(racks.add_node({.name = "a", .cells = {"r1"}, .gpus = 4}).ok());
  CHECK(racks.propose(gang)->result == plan_result::bind);
}

TEST_CASE("racks and nodes that have left are in no count of a sentence") {
  gang_scheduler s = apiary_test::scheduler_of(
      "SwitchName=r1 Nodes=a\nSwitchName=r2 Nodes=b,c\nSwitchName=r3 Nodes=d,e\n"
      "SwitchName=r4 Nodes=f,g\nSwitchName=r0 Nodes=h",
      "NodeName=a Gres=gpu:8 CPUs=1\nNodeName=b,c,d,e,f,g,h Gres=gpu:3 CPUs=8");
  for (const char* const name : {"f", "g", "h"}) REQUIRE(s.remove_node(at(s, name)).ok());
  auto gang = tasks("x", 1, 4);
  gang.gang.groups.push_back({.tasks = 1, .gpus = 1, .host = {2000, 0}});
  gang.gang.required = rack;
  CHECK(sentence(s, gang) ==
        "job x can never start in this cluster, even if it is idle: the gang needs capacity for 1 "
        "task of 4 GPUs in one rack; no rack has any (in 2 of 3 racks; the others lack something "
        "else); without its CPU request it would fit");
  const auto e = s.explain(gang);
  REQUIRE(e->proof);
  REQUIRE(e->proof->cells.size() == 3);
  for (std::uint32_t c = 0; c < 3; ++c) CHECK(e->proof->cells[c].cell == c);  // r1, r2, r3
  CHECK(e->proof->cells[1].weighing == e->proof->cells[2].weighing);
  CHECK(e->proof->cells[0].weighing != e->proof->cells[1].weighing);
  gang.gang.required = 0;
  CHECK(sentence(s, gang) ==
        "job x can never start in this cluster, even if it is idle: the gang needs capacity for 1 "
        "task of 4 GPUs on one node; no node has any (in 4 of 5 nodes; the others lack something "
        "else); without its CPU request it would fit");
}

TEST_CASE("a proof of an explanation can be checked") {
  gang_scheduler s = two_racks();
  run(s, tasks("x", 1, 1));
  const auto e = s.explain(tasks("y", 4, 4));
  REQUIRE(e.ok());
  REQUIRE(e->proof);
  CHECK(e->nodes_to_free == std::vector<node_id>{node_id(0)});
  CHECK(e->gpus_to_free == 1);
  const std::vector<std::uint32_t> free{3, 4, 4, 4};  // by node; the proof is of the whole cluster
  infeasibility_proof why = *e->proof;
  why.level = 1;
  const uniform_tree tree{4};
  const topology_constraints gang = tasks("y", 4, 4).gang;
  CHECK(proof_check(tree, 0, free, {}, gang)(why));
  why.cells[0].most = 4;
  CHECK(!proof_check(tree, 0, free, {}, gang)(why));
}

TEST_CASE("victims in one rack are the cheapest of all racks") {
  // 3 whole nodes of a rack with 4: each choice of nodes ends the gangs on them, so the optimum is
  // the best of 4 choices in each rack.
  using loss = std::pair<std::vector<std::uint32_t>, std::uint64_t>;
  std::uint64_t preempting = 0;
  for (std::uint64_t seed = 0; seed < scaled(60U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    gang_cluster cluster{.levels = {"rack", "block"}};
    constexpr std::uint32_t racks = 40;
    for (std::uint32_t n = 0; n < 4 * racks; ++n)
      cluster.nodes.push_back({.name = "n" + std::to_string(n),
                               .cells = {"r" + std::to_string(n / 4), "b" + std::to_string(n / 20)},
                               .gpus = 4});
    gang_scheduler scheduler = gang_scheduler::create(cluster).value();
    const auto fill = [&](std::uint64_t first_job) {
      for (std::uint64_t job = first_job; job < first_job + 400; ++job) {
        gang_scheduler::request r{.job = job,
                                  .priority = static_cast<std::int32_t>(random.uniform(4))};
        r.gang.groups = {{.tasks = 1 + random.uniform(4), .gpus = 1 + random.uniform(4)}};
        const auto plan = scheduler.propose(r, random.uniform(90));
        if (plan.ok() && plan->result == plan_result::bind) REQUIRE(scheduler.commit(*plan).ok());
      }
    };
    fill(0);
    for (std::uint32_t round = 0; round < 8; ++round) {
      for (std::uint32_t i = 0; i < 20; ++i)
        scheduler.finish(random.uniform(400 * (round + 1))).IgnoreError();
      fill(400 * (round + std::uint64_t{1}));
      gang_scheduler::request r{.job = "asked", .priority = 3};
      r.gang.groups = {{.tasks = 3, .gpus = 4}};
      r.gang.required = rack;
      const time_ms now = 50 + random.uniform(100);
      const auto loss_of = [&](const std::vector<job_key>& victims) {
        loss sum{{0, 0, 0}, 0};
        for (const job_key& v : victims) {
          const gang_scheduler::running_gang& g = *scheduler.find(v);
          ++sum.first[static_cast<std::size_t>(2 - g.what.priority)];
          sum.second += g.gpus * static_cast<std::uint64_t>(std::max<time_ms>(now - g.started, 0));
        }
        return sum;
      };
      std::optional<loss> best;
      for (std::uint32_t c = 0; c < racks; ++c)
        for (std::uint32_t without = 0; without < 4; ++without) {
          std::vector<job_key> victims;
          for (std::uint32_t n = 0; n < 4; ++n)
            for (const job_key& job : scheduler.jobs_on(node_id(4 * c + n)))
              if (n != without) victims.push_back(job);
          std::sort(victims.begin(), victims.end());
          victims.erase(std::unique(victims.begin(), victims.end()), victims.end());
          if (std::any_of(victims.begin(), victims.end(),
                          [&](const job_key& v) { return scheduler.find(v)->what.priority >= 3; }))
            continue;
          if (!best || loss_of(victims) < *best) best = loss_of(victims);
        }
      const auto plan = scheduler.propose(r, now);
      REQUIRE(plan.ok());
      REQUIRE(scheduler.audit().empty());
      REQUIRE(best.has_value() == (plan->result != plan_result::wait));
      if (!best) continue;
      REQUIRE(loss_of(plan->victims) == *best);
      CHECK(plan->cost == plan->lower_bound);
      preempting += plan->victims.empty() ? 0U : 1U;
    }
  }
  CHECK(preempting > 0);
}

TEST_CASE("a list of nodes is the reason if the gang would fit on others") {
  gang_scheduler s = two_racks();
  REQUIRE(run(s, tasks("x", 1, 4)) == plan_result::bind);  // on a
  gang_scheduler::request r = tasks("y", 1, 4);
  const auto reason = [&] {
    const auto plan = s.propose(r);
    REQUIRE(plan.ok());
    REQUIRE(plan->result == plan_result::wait);
    return plan->reason;
  };
  r.filter.nodes = {"a"};
  CHECK(reason() == wait_reason::not_suggested);
  CHECK(
      sentence(s, r) ==
      "job y waits: the gang needs 1 free node of 4 GPUs; the cluster has none; it may run only on "
      "nodes \"a\"; it would fit if node a were free (4 more GPUs); without the list of nodes it "
      "would start now");
  r.gang.groups[0].tasks = 2;  // a alone can never hold it
  CHECK(reason() == wait_reason::not_suggested);
  r.filter.nodes = {"a", "b"};
  CHECK(reason() == wait_reason::not_suggested);
  r.gang.groups[0].tasks = 4;
  CHECK(reason() == wait_reason::never);
  r.filter.nodes = {"a", "b", "c", "d"};
  CHECK(reason() == wait_reason::busy);
  // A gang of lower priority is preempted on the list, although others would fit elsewhere.
  r = tasks("z", 1, 4, 1);
  r.filter.nodes = {"a"};
  CHECK(s.propose(r).value().result == plan_result::preempt);
  // A list is shared by its copies; a removed node makes it wrong.
  const node_names list{"c", "d"};
  r.filter.nodes = list;
  CHECK(r.filter.nodes == node_names(std::vector<std::string>{"c", "d"}));
  CHECK(r.filter.nodes != node_names{"d", "c"});
  CHECK(run(s, r) == plan_result::bind);
  REQUIRE(s.remove_node(at(s, "d")).ok());
  r.job = "w";
  const auto wrong = s.propose(r);
  CHECK(wrong.status().code() == absl::StatusCode::kNotFound);
  CHECK(wrong.status().message() == "job w: the filter names node \"d\", which does not exist");
}

TEST_CASE("racks grow, one after the other and one far beyond the others") {
  gang_cluster cluster{.levels = {"rack"}};
  for (std::uint32_t n = 0; n < 64; ++n)
    cluster.nodes.push_back(
        {.name = "n" + std::to_string(n), .cells = {"r" + std::to_string(n / 4)}, .gpus = 4});
  gang_scheduler s = gang_scheduler::create(cluster).value();
  REQUIRE(run(s, tasks("x", 3, 4)) == plan_result::bind);
  for (std::uint32_t n = 64; n < 320; ++n) {
    const std::uint32_t rack_of = n < 192 ? (n - 64) / 8 : 3;
    REQUIRE(
        s.add_node(
             {.name = "n" + std::to_string(n), .cells = {"r" + std::to_string(rack_of)}, .gpus = 4})
            .ok());
    if (n % 16 != 0) continue;
    REQUIRE(s.audit().empty());
    gang_scheduler::request r = tasks(n, 2, 4, 1);  // victims are listed by cell
    r.gang.required = rack;
    REQUIRE(s.propose(r).ok());
  }
  gang_scheduler::request r = tasks("y", 141, 4);  // the rack has 4 + 8 + 128 nodes
  r.gang.required = rack;
  CHECK(run(s, r) == plan_result::wait);
  r.gang.groups[0].tasks = 140;
  CHECK(run(s, r) == plan_result::bind);
  CHECK(s.audit().empty());
}
