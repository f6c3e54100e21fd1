// apiary/tests/gang_scheduler/gang_queue_test.cpp - the queue over a gang scheduler, alone and in the simulator.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gang_scheduler/gang_queue.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/model/job.h>
#include <apiary/queue/policies.h>
#include <apiary/queue/server_placer.h>
#include <apiary/sim/simulate.h>
#include <apiary/sim/simulation_result.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

gang_queue queue_of(std::uint32_t nodes, gang_queue_options options = {}) {
  gang_cluster cluster;
  for (std::uint32_t n = 0; n < nodes; ++n)
    cluster.nodes.push_back({.name = "n" + std::to_string(n), .gpus = 4});
  return gang_queue(gang_scheduler::create(cluster).value(), options);
}
job_request job(std::uint32_t id, std::uint32_t gpus, std::int32_t priority = 0) {
  return {.job = job_id(id), .priority = priority, .gpus = gpus};
}
// The GPUs that a job on GPUs of these models starts with on each node, or why it is refused.
std::string nodes_of_job(const gang_scheduler& scheduler, std::uint32_t gpus,
                         std::vector<std::string> models) {
  gang_queue_options options;
  options.demands.push_back({.models = std::move(models)});
  gang_queue q(scheduler, options);
  const absl::Status status = q.submit(job(0, gpus), 0);
  if (!status.ok()) return std::string(status.message());
  std::vector<job_action> actions;
  REQUIRE(q.decide(0, actions).ok());
  REQUIRE(actions.size() == 1);
  std::string text;
  for (const placement& p : actions[0].where)
    text += q.scheduler().node(p.node)->name + ":" + std::to_string(p.num_gpus()) + " ";
  return text;
}

}  // namespace

TEST_CASE("wrong jobs are refused") {
  gang_queue q = queue_of(2);
  CHECK(q.total_gpus() == 8);
  CHECK(q.submit(job(1, 0), 0).code() == absl::StatusCode::kInvalidArgument);
  CHECK(q.submit(job(1, 9), 0).code() == absl::StatusCode::kInvalidArgument);
  CHECK(q.submit({.job = job_id(1), .gpus = 1, .estimate = -1}, 0).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(q.submit({.gpus = 1}, 0) == absl::InvalidArgumentError("a job needs an id"));
  CHECK(q.submit(job(1, 8), 0).ok());
  CHECK(q.submit(job(1, 8), 0) == absl::AlreadyExistsError("job 1 exists already"));
  CHECK(q.finish(job_id(2), 0) == absl::NotFoundError("there is no job 2"));
  CHECK(q.finish(job_id(), 0).code() == absl::StatusCode::kNotFound);
  CHECK(!q.mark_bad(node_id(2), 0).ok());
  CHECK(!q.mark_healthy(node_id(2), 0).ok());
}

TEST_CASE(
    "gang_queue: a job that waits can be cancelled, and the others are as if it had not come") {
  for (const bool backfill : {false, true}) {
    CAPTURE(backfill);
    gang_queue q = queue_of(2, {.backfill = backfill});
    const auto decide = [&](time_ms now) {
      std::vector<job_action> actions;
      REQUIRE(q.decide(now, actions).ok());
      std::vector<job_id> started;
      for (const job_action& a : actions) started.push_back(a.job);
      return started;
    };
    const auto submit = [&](std::uint32_t id, std::uint32_t gpus, time_ms estimate) {
      REQUIRE(q.submit({.job = job_id(id), .gpus = gpus, .estimate = estimate}, 0).ok());
    };
    submit(0, 6, 100);
    CHECK(decide(0) == std::vector{job_id(0)});
    submit(1, 8, 50);
    submit(2, 2, 1000);  // it would delay job 1
    submit(3, 2, 1000);
    CHECK(decide(1).empty());
    REQUIRE(q.finish(job_id(1), 2).ok());
    CHECK(q.finish(job_id(1), 2) == absl::NotFoundError("there is no job 1"));
    CHECK(decide(2) == std::vector{job_id(2)});
    REQUIRE(q.finish(job_id(3), 3).ok());
    REQUIRE(q.submit({.job = job_id(1), .gpus = 8}, 3).ok());  // the id is free again
    CHECK(decide(3).empty());
    REQUIRE(q.finish(job_id(0), 4).ok());
    CHECK(decide(4).empty());
    REQUIRE(q.finish(job_id(2), 5).ok());
    CHECK(decide(5) == std::vector{job_id(1)});
    REQUIRE(q.finish(job_id(1), 6).ok());
    CHECK(decide(6).empty());
    CHECK(q.scheduler().num_gangs() == 0);
  }
}

TEST_CASE("gang_queue: CPU or memory of a task beyond 32 bits is refused, and nothing else") {
  gang_cluster cluster;
  cluster.nodes.push_back({.name = "n", .gpus = 8, .host = {~0U, ~0U}});
  const gang_scheduler scheduler = gang_scheduler::create(cluster).value();
  const auto submit = [&](std::uint32_t gpus, resources per_gpu) {
    gang_queue_options options;
    options.demands.push_back({.per_gpu = per_gpu});
    return gang_queue(scheduler, options).submit(job(0, gpus), 0);
  };
  CHECK(submit(8, {1'000'000'000, 1}) ==
        absl::InvalidArgumentError(
            "job 0 asks for 8 GPUs with 1000000 cores and 1 MiB each; a task of 8 GPUs needs "
            "8000000000 thousandths of a core, more than 4294967295"));
  CHECK(submit(7, {500, 1U << 30}) ==
        absl::InvalidArgumentError(
            "job 0 asks for 7 GPUs with 0.5 cores and 1048576 GiB each; a task of 7 GPUs needs "
            "7516192768 MiB, more than 4294967295"));
  CHECK(submit(5, {~0U / 5, ~0U / 5}).ok());  // 5 divides 2^32 - 1
  CHECK(!submit(5, {~0U / 5 + 1, 0}).ok());
  CHECK(!submit(5, {0, ~0U / 5 + 1}).ok());
  CHECK(submit(1, {~0U, ~0U}).ok());
}

TEST_CASE("gang_queue: the message about a job that never fits names what it needs") {
  const auto message = [](std::uint32_t gpus, const gang_queue_options::demand& needs) {
    gang_queue q = queue_of(2, {.demands = {needs}});
    return std::string(q.submit(job(0, gpus), 0).message());
  };
  CHECK(message(9, {}) ==
        "job 0 asks for 9 GPUs, which do not fit even in the idle cluster; it has 8 GPUs");
  CHECK(message(8, {{4000, 65536}, {"h100"}}) ==
        "job 0 asks for 8 GPUs with 4 cores and 64 GiB each, of model \"h100\", which do not fit "
        "even in the idle cluster; it has 0 such GPUs");
  const std::string by_host =
      ", which do not fit even in the idle cluster; each task, even of 1 GPU, must run on one node "
      "with its CPU and memory";
  CHECK(message(1, {{1000, 0}, {}}) ==
        "job 0 asks for 1 GPU with 1 core, which does not fit even in the idle cluster; each task, "
        "even of 1 GPU, must run on one node with its CPU and memory");
  CHECK(message(2, {{0, 1000}, {}}) == "job 0 asks for 2 GPUs with 1000 MiB each" + by_host);
  CHECK(message(2, {{2050, 0}, {}}) == "job 0 asks for 2 GPUs with 2.05 cores each" + by_host);
  CHECK(
      message(1, {{}, {"a", "b"}}) ==
      "job 0 asks for 1 GPU of model \"a\" or \"b\", which does not fit even in the idle cluster; "
      "it has 0 such GPUs");
}

TEST_CASE("gang_queue: a task fills the largest node of the models of its job") {
  gang_cluster cluster;
  cluster.nodes.push_back({.name = "a", .gpus = 8, .model = "a100"});
  for (std::uint32_t n = 0; n < 4; ++n)
    cluster.nodes.push_back({.name = "v" + std::to_string(n), .gpus = 4, .model = "v100"});
  const gang_scheduler scheduler = gang_scheduler::create(cluster).value();
  const auto run = [&](std::uint32_t gpus, std::vector<std::string> models) {
    return nodes_of_job(scheduler, gpus, std::move(models));
  };
  CHECK(run(8, {"v100"}) == "v0:4 v1:4 ");
  CHECK(run(6, {"v100"}) == "v0:4 v1:2 ");
  CHECK(run(16, {"v100", "v100"}) == "v0:4 v1:4 v2:4 v3:4 ");
  CHECK(run(8, {"a100"}) == "a:8 ");
  CHECK(run(12, {"v100", "a100"}) == "a:8 v0:4 ");
  CHECK(run(8, {}) == "a:8 ");
  CHECK(run(17, {"v100"}) ==
        "job 0 asks for 17 GPUs of model \"v100\", which do not fit even in the idle "
        "cluster; it has 16 such GPUs");
  // Two tasks of 8 GPUs never fit, so it has tasks of 4.
  CHECK(run(16, {"v100", "a100"}) == "v0:4 v1:4 v2:4 v3:4 ");
}

TEST_CASE("gang_queue: a job is divided into smaller tasks if those of a whole node never fit") {
  // Each node has CPU for three of its four GPUs.
  gang_cluster cluster;
  for (std::uint32_t n = 0; n < 2; ++n)
    cluster.nodes.push_back({.name = "n" + std::to_string(n), .gpus = 4, .host = {3'000, 1'024}});
  const gang_scheduler scheduler = gang_scheduler::create(cluster).value();
  gang_queue_options options;
  options.demands.push_back({.per_gpu = {1'000, 0}});
  gang_queue q(scheduler, options);
  CHECK(!q.submit(job(0, 7), 0).ok());
  REQUIRE(q.submit(job(1, 6), 0).ok());  // as 3 + 3; a task of 4 GPUs needs 4 CPUs
  REQUIRE(q.submit(job(2, 4), 0).ok());
  std::vector<job_action> actions;
  REQUIRE(q.decide(0, actions).ok());
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].where.size() == 2);
  REQUIRE(q.finish(job_id(1), 10).ok());
  REQUIRE(q.decide(10, actions).ok());
  REQUIRE(actions.size() == 2);
  CHECK(actions[1].where.size() == 2);
  CHECK(q.scheduler().audit().empty());
}

TEST_CASE("gang_queue: free GPUs of nodes with taints are no capacity for a job that waits") {
  gang_cluster cluster;
  cluster.nodes.push_back({.name = "t", .gpus = 8, .taints = {"maintenance"}});
  cluster.nodes.push_back({.name = "n", .gpus = 4});
  gang_queue q(gang_scheduler::create(cluster).value());
  std::vector<job_action> actions;
  REQUIRE(q.submit(job(1, 4), 0).ok());
  REQUIRE(q.submit(job(2, 4), 0).ok());
  REQUIRE(q.decide(0, actions).ok());
  REQUIRE(q.mark_bad(node_id(0), 10).ok());
  REQUIRE(q.decide(10, actions).ok());
  REQUIRE(q.mark_healthy(node_id(0), 20).ok());
  REQUIRE(q.decide(20, actions).ok());
  REQUIRE(q.finish(job_id(1), 30).ok());
  REQUIRE(q.decide(30, actions).ok());
  REQUIRE(actions.size() == 2);
  CHECK(actions[1].waited[delay_cause::capacity] == 30);
  CHECK(actions[1].waited[delay_cause::fragmentation] == 0);
}

TEST_CASE("gang_queue: a job is not divided for nodes with taints, for it cannot run there") {
  gang_cluster cluster;
  cluster.nodes.push_back({.name = "t", .gpus = 8, .model = "v100", .taints = {"maintenance"}});
  for (std::uint32_t n = 0; n < 2; ++n)
    cluster.nodes.push_back({.name = "v" + std::to_string(n), .gpus = 4, .model = "v100"});
  const gang_scheduler scheduler = gang_scheduler::create(cluster).value();
  CHECK(gang_queue(scheduler).total_gpus() == 16);
  for (const std::vector<std::string>& models :
       {std::vector<std::string>{}, std::vector<std::string>{"v100"}}) {
    CHECK(nodes_of_job(scheduler, 8, models) == "v0:4 v1:4 ");
    CHECK(nodes_of_job(scheduler, 6, models) == "v0:4 v1:2 ");
  }
  CHECK(nodes_of_job(scheduler, 9, {}) ==
        "job 0 asks for 9 GPUs, which do not fit even in the idle cluster; it has 8 GPUs on nodes "
        "without taints");
  CHECK(nodes_of_job(scheduler, 9, {"v100"}) ==
        "job 0 asks for 9 GPUs of model \"v100\", which do not fit even in the idle cluster; it "
        "has 8 such GPUs on nodes without taints");
}

TEST_CASE("the first job that does not fit holds up the others; a higher priority suspends") {
  gang_queue q = queue_of(2);
  std::vector<job_action> actions;
  REQUIRE(q.submit(job(1, 6), 0).ok());
  REQUIRE(q.submit(job(2, 3), 0).ok());
  REQUIRE(q.submit(job(3, 1), 0).ok());
  REQUIRE(q.decide(0, actions).ok());
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].job == job_id(1));
  CHECK(actions[0].where == job_placement{{node_id(0), 15}, {node_id(1), 3}});
  actions.clear();
  REQUIRE(q.submit(job(4, 8, 1), 10).ok());
  REQUIRE(q.decide(10, actions).ok());
  REQUIRE(actions.size() == 2);
  CHECK(actions[0].what == job_action::verb::suspend);
  CHECK(actions[0].job == job_id(1));
  CHECK(actions[1].job == job_id(4));
  CHECK(actions[1].waited.total() == 0);
  actions.clear();
  REQUIRE(q.finish(job_id(4), 30).ok());
  REQUIRE(q.decide(30, actions).ok());
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].job == job_id(1));
  CHECK(actions[0].waited.total() == 20);
  actions.clear();
  REQUIRE(q.finish(job_id(1), 50).ok());
  REQUIRE(q.decide(50, actions).ok());
  REQUIRE(actions.size() == 2);
  CHECK(actions[0].job == job_id(2));
  CHECK(actions[0].waited.total() == 50);
  CHECK(actions[0].waited[delay_cause::capacity] == 30);  // while job 1 was before it: order
  CHECK(actions[1].waited[delay_cause::order] == 50);
  CHECK(q.scheduler().audit().empty());
}

TEST_CASE("a job waits for fragmentation where as many GPUs are free as it asks for") {
  gang_queue q = queue_of(2);
  std::vector<job_action> actions;
  for (const std::uint32_t id : {1U, 2U}) REQUIRE(q.submit(job(id, 3), 0).ok());
  REQUIRE(q.submit(job(3, 2), 0).ok());  // one GPU is free on each node
  REQUIRE(q.decide(0, actions).ok());
  REQUIRE(actions.size() == 2);
  actions.clear();
  REQUIRE(q.finish(job_id(1), 20).ok());
  REQUIRE(q.decide(20, actions).ok());
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].waited[delay_cause::fragmentation] == 20);
  CHECK(actions[0].waited[delay_cause::capacity] == 0);
}

TEST_CASE("jobs of random histories start in order, and only if they have to") {
  for (std::uint64_t h = 0; h < scaled(std::uint64_t{200}); ++h) {
    CAPTURE(h);
    rng random(h);
    gang_queue q = queue_of(4);
    std::map<std::uint32_t, job_request> waiting;
    std::map<std::uint32_t, std::int32_t> running;
    std::map<std::uint32_t, time_ms> since;
    std::vector<job_action> actions;
    const auto first = [&] {
      auto at = waiting.begin();
      for (auto i = waiting.begin(); i != waiting.end(); ++i)
        if (i->second.priority > at->second.priority) at = i;
      return at;
    };
    std::map<std::uint32_t, job_request> all;
    for (std::uint32_t e = 0; e < 60; ++e) {
      const time_ms now = e * 10;
      const std::uint32_t kind = random.uniform(6);
      if (kind < 3) {
        const job_request r =
            job(e, 1 + random.uniform(9), static_cast<std::int32_t>(random.uniform(3)));
        REQUIRE(q.submit(r, now).ok());
        waiting[e] = all[e] = r;
        since[e] = now;
      } else if (kind == 3 && !running.empty()) {
        const auto at =
            std::next(running.begin(), random.uniform(static_cast<std::uint32_t>(running.size())));
        REQUIRE(q.finish(job_id(at->first), now).ok());
        running.erase(at);
      } else if (kind == 4) {
        const node_id n(random.uniform(4));
        if (random.uniform(2) == 0) {
          const auto stopped = q.mark_bad(n, now);
          REQUIRE(stopped.ok());
          for (const job_id j : *stopped) {
            REQUIRE(running.erase(j.value) == 1);
            waiting[j.value] = all[j.value];
            since[j.value] = now;
          }
        } else {
          REQUIRE(q.mark_healthy(n, now).ok());
        }
      }
      actions.clear();
      REQUIRE(q.decide(now, actions).ok());
      for (const job_action& a : actions) {
        const std::uint32_t id = a.job.value;
        if (a.what == job_action::verb::suspend) {
          REQUIRE(running.erase(id) == 1);
          waiting[id] = all[id];
          since[id] = now;
          continue;
        }
        REQUIRE(a.what == job_action::verb::start);
        // A victim waits behind the job that has suspended it, so it cannot be before.
        REQUIRE(first()->first == id);
        REQUIRE(a.waited.total() == now - since[id]);
        std::uint32_t gpus = 0;
        for (const placement& p : a.where) gpus += p.num_gpus();
        REQUIRE(gpus == all[id].gpus);
        waiting.erase(id);
        running[id] = all[id].priority;
      }
      REQUIRE(q.scheduler().num_gangs() == running.size());
      REQUIRE(q.scheduler().audit().empty());
      if (waiting.empty()) continue;
      // The first waiting job does not fit, not even with victims.
      gang_scheduler copy = q.scheduler();
      const job_request& r = first()->second;
      gang_scheduler::request gang{.job = "copy", .priority = r.priority};
      if (r.gpus >= 4) gang.gang.groups.push_back({.tasks = r.gpus / 4, .gpus = 4});
      if (r.gpus % 4 > 0) gang.gang.groups.push_back({.tasks = 1, .gpus = r.gpus % 4});
      REQUIRE(copy.propose(gang)->result == plan_result::wait);
    }
  }
}

TEST_CASE("jobs are backfilled if the first one does not start later") {
  gang_queue q = queue_of(3, {.backfill = true});
  std::vector<job_action> actions;
  const auto submit = [&](std::uint32_t id, std::uint32_t gpus, time_ms estimate) {
    job_request r = job(id, gpus);
    r.estimate = estimate;
    REQUIRE(q.submit(r, 0).ok());
  };
  const auto started = [&](time_ms now) {
    actions.clear();
    REQUIRE(q.decide(now, actions).ok());
    std::vector<std::uint32_t> jobs;
    for (const job_action& a : actions) jobs.push_back(a.job.value);
    return jobs;
  };
  submit(1, 4, 100);
  submit(2, 3, 200);
  submit(3, 10, 50);       // the first that waits: two whole nodes and 2 GPUs are free at 200
  submit(4, 1, 1000);      // fits beside job 2
  submit(5, 1, max_time);  // would need one of the whole nodes
  submit(6, 1, 200);       // the same, but ends in time
  submit(7, 1, 201);       // does not
  CHECK(started(0) == std::vector<std::uint32_t>{1, 2, 4, 6});
  REQUIRE(q.finish(job_id(1), 100).ok());
  CHECK(started(100).empty());
  REQUIRE(q.finish(job_id(2), 200).ok());
  REQUIRE(q.finish(job_id(6), 200).ok());
  CHECK(started(200) == std::vector<std::uint32_t>{3, 5});
  CHECK(q.scheduler().audit().empty());
}

TEST_CASE("gang_queue: only short jobs are backfilled before a first job that is undecided") {
  gang_cluster cluster;
  cluster.nodes = {{.name = "a", .gpus = 6, .host = {.cpu_milli = 7'000}},
                   {.name = "b", .gpus = 2, .host = {.cpu_milli = 5'000}},
                   {.name = "c", .gpus = 5, .host = {.cpu_milli = 6'000}}};
  for (const std::uint64_t steps : {8U, 200'000U}) {
    CAPTURE(steps);
    gang_scheduler scheduler = gang_scheduler::create(cluster).value();
    scheduler.set_step_budget(steps);
    gang_queue q(scheduler, {.backfill = true, .demands = {{}, {.per_gpu = {.cpu_milli = 500}}}});
    std::vector<job_action> actions;
    const auto started = [&](time_ms now) {
      actions.clear();
      REQUIRE(q.decide(now, actions).ok());
      std::vector<std::uint32_t> jobs;
      for (const job_action& a : actions) jobs.push_back(a.job.value);
      return jobs;
    };
    REQUIRE(q.submit({.job = job_id(0), .gpus = 7, .estimate = 100}, 0).ok());
    CHECK(started(0) == std::vector<std::uint32_t>{0});
    // With 8 steps, nothing is known of job 1: not even that it fits when job 0 has ended.
    REQUIRE(q.submit({.job = job_id(1), .gpus = 10, .estimate = 10, .demand = 1}, 1).ok());
    REQUIRE(q.submit({.job = job_id(2), .gpus = 3, .estimate = 1'000}, 2).ok());
    REQUIRE(q.submit({.job = job_id(3), .gpus = 3, .estimate = 50}, 3).ok());
    CHECK(started(4) == std::vector<std::uint32_t>{3});
    REQUIRE(q.finish(job_id(3), 54).ok());
    CHECK(started(54).empty());
    REQUIRE(q.finish(job_id(0), 100).ok());
    // Without steps it does not start on the idle cluster either. Then it delays no other job.
    CHECK(started(100) == std::vector<std::uint32_t>{steps == 8 ? 2U : 1U});
  }
}

TEST_CASE("a backfilled job that ends in time is not in the way of the next one") {
  gang_queue q = queue_of(4, {.backfill = true});
  const auto submit = [&](std::uint32_t id, std::uint32_t gpus, time_ms estimate) {
    job_request r = job(id, gpus);
    r.estimate = estimate;
    REQUIRE(q.submit(r, 0).ok());
  };
  submit(1, 4, 100);
  submit(2, 4, 200);
  submit(3, 11, 50);  // the first that waits: at 100 for three nodes but for one GPU
  submit(4, 3, 100);  // on one of them; ends in time
  submit(5, 1, 500);  // beside job 4: on the one GPU
  std::vector<job_action> actions;
  REQUIRE(q.decide(0, actions).ok());
  std::vector<std::uint32_t> started;
  for (const job_action& a : actions) started.push_back(a.job.value);
  CHECK(started == std::vector<std::uint32_t>{1, 2, 4, 5});
  REQUIRE(q.finish(job_id(1), 100).ok());
  REQUIRE(q.finish(job_id(4), 100).ok());
  actions.clear();
  REQUIRE(q.decide(100, actions).ok());
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].job == job_id(3));
}

TEST_CASE("gang_queue: the first job starts later if a job of higher priority has come") {
  gang_queue q = queue_of(3, {.backfill = true});
  const auto submit = [&](job_request r, time_ms estimate, time_ms now) {
    r.estimate = estimate;
    REQUIRE(q.submit(r, now).ok());
  };
  submit(job(1, 8), 100, 0);
  submit(job(2, 12), 50, 0);  // the first that waits: at 100
  std::vector<job_action> actions;
  REQUIRE(q.decide(0, actions).ok());
  REQUIRE(actions.size() == 1);
  submit(job(3, 3, 1), 290, 10);
  submit(job(4, 1), 150, 10);  // in time, because job 2 starts at 300 now
  actions.clear();
  REQUIRE(q.decide(10, actions).ok());
  REQUIRE(actions.size() == 2);
  CHECK(actions[0].job == job_id(3));
  CHECK(actions[1].job == job_id(4));
}

TEST_CASE("gang_queue: jobs without an estimate run beside a first job that waits for one") {
  gang_queue q = queue_of(3, {.backfill = true});
  for (const auto& [id, gpus] :
       std::map<std::uint32_t, std::uint32_t>{{1, 8}, {2, 9}, {3, 2}, {4, 2}}) {
    job_request r = job(id, gpus);
    r.estimate = max_time;
    REQUIRE(q.submit(r, 0).ok());
  }
  std::vector<job_action> actions;
  REQUIRE(q.decide(0, actions).ok());
  REQUIRE(actions.size() == 3);
  CHECK(actions[1].job == job_id(3));
  CHECK(actions[2].job == job_id(4));
}

TEST_CASE("a backfilled job never delays the first one") {
  std::uint64_t backfilled = 0;
  for (std::uint64_t seed = 0; seed < scaled(std::uint64_t{200}); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    gang_queue q = queue_of(3, {.backfill = true});
    std::map<std::uint32_t, job_request> waiting;
    std::map<std::uint32_t, time_ms> running;  // with their ends
    std::map<std::uint32_t, time_ms> latest;   // starts, of jobs that were the first ones
    for (time_ms now = 0; now < 120; ++now) {
      for (auto at = running.begin(); at != running.end();) {
        const auto it = at++;
        if (it->second > now) continue;
        REQUIRE(q.finish(job_id(it->first), now).ok());
        running.erase(it);
      }
      if (random.uniform(3) == 0) {
        job_request r = job(static_cast<std::uint32_t>(now), 1 + random.uniform(9));
        r.estimate = 1 + random.uniform(20);
        REQUIRE(q.submit(r, now).ok());
        waiting[r.job.value] = r;
      }
      // When the first job that has to wait starts if no job behind it does.
      gang_scheduler alone = q.scheduler();
      std::map<time_ms, std::vector<std::uint32_t>> ends;
      for (const auto& [id, end] : running) ends[end].push_back(id);
      for (const auto& [first, r] : waiting) {
        gang_scheduler::request gang{.job = first};
        if (r.gpus >= 4) gang.gang.groups.push_back({.tasks = r.gpus / 4, .gpus = 4});
        if (r.gpus % 4 > 0) gang.gang.groups.push_back({.tasks = 1, .gpus = r.gpus % 4});
        auto plan = alone.propose(gang);
        if (plan->result == plan_result::bind) {
          REQUIRE(alone.commit(*plan).ok());
          ends[now + r.estimate].push_back(first);
          continue;
        }
        if (latest.contains(first)) break;
        for (auto at = ends.begin(); plan->result != plan_result::bind; ++at) {
          REQUIRE(at != ends.end());
          for (const std::uint32_t id : at->second) REQUIRE(alone.finish(id).ok());
          plan = alone.propose(gang);
          latest[first] = at->first;
        }
        break;
      }
      std::vector<job_action> actions;
      REQUIRE(q.decide(now, actions).ok());
      for (const job_action& a : actions) {
        const std::uint32_t id = a.job.value;
        REQUIRE(a.what == job_action::verb::start);
        backfilled += id != waiting.begin()->first ? 1U : 0U;
        if (latest.contains(id)) REQUIRE(now <= latest[id]);
        running[id] = now + waiting[id].estimate;
        waiting.erase(id);
      }
      // A first job that is late is seen even if it never starts.
      if (!waiting.empty() && latest.contains(waiting.begin()->first))
        REQUIRE(now < latest[waiting.begin()->first]);
    }
  }
  CHECK(backfilled > 0);
}

namespace {

// Backfilling by its words: at each decision every waiting job is tried, on trials with all ends.
// Requires: nodes of 4 GPUs.
struct naive_gang_queue {
  struct entry {
    gang_scheduler::request gang{};
    time_ms estimate = 0, ends = 0;
  };
  using order = std::map<std::pair<std::int32_t, std::uint32_t>, entry>;  // by priority, submission
  gang_scheduler scheduler;
  order waiting{}, running{};
  std::uint32_t submitted = 0;
  std::uint64_t delayed = 0;  // jobs that would have delayed the first one

  void submit(const job_request& r, std::uint32_t cpu_of_gpu) {
    entry e{.gang = {.job = r.job.value, .tenant = r.tenant, .priority = r.priority},
            .estimate = r.estimate};
    if (r.gpus >= 4) e.gang.gang.groups.push_back({.tasks = r.gpus / 4, .gpus = 4});
    if (r.gpus % 4 > 0) e.gang.gang.groups.push_back({.tasks = 1, .gpus = r.gpus % 4});
    for (constrained_task_group& g : e.gang.gang.groups) g.host = {g.gpus * cpu_of_gpu, 0};
    waiting.emplace(std::pair(-r.priority, submitted++), e);
  }
  order::iterator find(const job_key& job) {
    return std::find_if(running.begin(), running.end(),
                        [&](const auto& r) { return r.second.gang.job == job; });
  }
  void finish(std::uint32_t job) {
    REQUIRE(scheduler.finish(job).ok());
    running.erase(find(job));
  }
  void stop(const job_key& job) {
    REQUIRE(scheduler.finish(job).ok());
    waiting.insert(running.extract(find(job)));
  }
  void mark_bad(node_id n) {
    REQUIRE(scheduler.mark_bad(n).ok());
    for (const job_key& job : scheduler.jobs_on(n)) stop(job);
  }
  // Whether the job can start at this time, beside `other`.
  static bool starts(gang_scheduler trial, const entry& first, time_ms at, time_ms now,
                     const order& jobs, const gang_scheduler::plan* other) {
    if (other != nullptr) REQUIRE(trial.commit(*other).ok());
    for (const auto& [key, r] : jobs)
      if (std::max(r.ends, now) <= at) REQUIRE(trial.finish(r.gang.job).ok());
    return trial.propose(first.gang, at)->result != plan_result::wait;
  }
  void start(order::iterator job, const gang_scheduler::plan& plan, time_ms now,
             std::vector<std::uint32_t>& started) {
    REQUIRE(scheduler.commit(plan).ok());
    job->second.ends = add_time(now, job->second.estimate);
    started.push_back(static_cast<std::uint32_t>(job->second.gang.job.number()));
    running.insert(waiting.extract(job));
  }
  std::vector<std::uint32_t> decide(time_ms now) {
    std::vector<std::uint32_t> started;
    while (!waiting.empty()) {
      const auto first = waiting.begin();
      gang_scheduler::plan plan = scheduler.propose(first->second.gang, now).value();
      if (plan.result == plan_result::wait) break;
      if (plan.result == plan_result::preempt) {
        REQUIRE(scheduler.commit(plan).ok());
        for (const job_key& victim : plan.victims) stop(victim);
        plan = scheduler.propose(first->second.gang, now).value();
      }
      start(first, plan, now, started);
    }
    if (waiting.empty()) return started;
    const entry first = waiting.begin()->second;
    std::set<time_ms> times;
    for (const auto& [key, r] : running) times.insert(std::max(r.ends, now));
    const auto at = std::find_if(times.begin(), times.end(), [&](time_ms t) {
      return starts(scheduler, first, t, now, running, nullptr);
    });
    for (auto next = std::next(waiting.begin()); next != waiting.end();) {
      const auto job = next++;
      const gang_scheduler::plan plan = scheduler.propose(job->second.gang, now).value();
      if (plan.result != plan_result::bind) continue;
      const time_ms end = add_time(now, job->second.estimate);
      if (at != times.end() && (end == max_time || end > *at) &&
          !starts(scheduler, first, *at, now, running, &plan)) {
        ++delayed;
        continue;
      }
      start(job, plan, now, started);
    }
    return started;
  }
};

}  // namespace

TEST_CASE("gang_queue: a job that the first one may suspend starts behind one that it may not") {
  gang_cluster cluster;
  for (const char* name : {"a", "b"}) cluster.nodes.push_back({.name = name, .gpus = 4});
  gang_scheduler scheduler = gang_scheduler::create(cluster).value();
  scheduler.set_disruption_budget(tenant_id(1), {.gangs = 0});
  gang_queue q(scheduler, {.backfill = true});
  const auto submit = [&](std::uint32_t id, std::uint32_t tenant, std::uint32_t gpus,
                          std::int32_t priority, time_ms estimate) {
    job_request r = job(id, gpus, priority);
    r.tenant = tenant_id(tenant);
    r.estimate = estimate;
    REQUIRE(q.submit(r, 0).ok());
  };
  submit(0, 0, 4, 1, 10);
  submit(1, 0, 8, 1, 10);   // waits for job 0
  submit(2, 1, 4, 0, 100);  // would run on when job 0 ends; job 1 may not suspend it
  submit(3, 2, 4, 0, 100);  // the same, but job 1 may suspend it
  std::vector<job_action> actions;
  REQUIRE(q.decide(0, actions).ok());
  REQUIRE(actions.size() == 2);
  CHECK(actions[0].job == job_id(0));
  CHECK(actions[1].job == job_id(3));
}

TEST_CASE("gang_queue: backfilling starts the jobs that a queue starts that tries every job") {
  std::uint64_t delayed = 0;
  std::uint64_t behind = 0;  // jobs that started although another one waited before them
  for (std::uint64_t seed = 0; seed < scaled(std::uint64_t{300}); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const bool priorities = seed % 3 == 1;
    const bool breaks = seed % 4 == 1;
    gang_cluster cluster;
    for (std::uint32_t n = 0; n < 2 + seed % 3; ++n)
      cluster.nodes.push_back({.name = "n" + std::to_string(n), .gpus = 4, .host = {8, 0}});
    gang_queue_options options{.backfill = true};
    for (std::uint32_t cpu = 0; cpu < 3; ++cpu) options.demands.push_back({.per_gpu = {cpu, 0}});
    std::vector<std::uint32_t> cpu_of_gpu;
    for (std::uint32_t id = 0; id < 100; ++id)
      cpu_of_gpu.push_back(seed % 2 == 0 ? 0 : random.uniform(3));
    gang_scheduler empty = gang_scheduler::create(cluster).value();
    for (std::uint32_t tenant = 0; tenant < 2 && seed % 6 == 1; ++tenant)
      empty.set_disruption_budget(tenant_id(tenant), {.gangs = random.uniform(2)});
    gang_queue fast(empty, options);
    naive_gang_queue slow{.scheduler = empty};
    std::map<std::uint32_t, time_ms> ends;
    std::vector<bool> good(cluster.nodes.size(), true);
    std::uint32_t next = 0;
    for (time_ms now = 0; now < 100; ++now) {
      CAPTURE(now);
      for (const auto& [id, end] : std::map(ends)) {
        if (end > now) continue;
        REQUIRE(fast.finish(job_id(id), now).ok());
        slow.finish(id);
        ends.erase(id);
      }
      while (next < 100 && random.uniform(2) == 0) {
        job_request r = job(next, 1 + random.uniform(4U * static_cast<std::uint32_t>(good.size())));
        if (random.uniform(2) == 0) r.gpus = 1 + random.uniform(3);
        if (priorities) r.priority = static_cast<std::int32_t>(random.uniform(2));
        if (seed % 6 == 1) r.tenant = tenant_id(random.uniform(3));
        r.estimate = random.uniform(12) == 0 ? max_time : random.uniform(25);
        r.demand = cpu_of_gpu[next];
        if (fast.submit(r, now).ok()) slow.submit(r, cpu_of_gpu[next]);
        ++next;
      }
      if (breaks && random.uniform(8) == 0) {
        const std::uint32_t n = random.uniform(static_cast<std::uint32_t>(good.size()));
        good[n] = !good[n];
        if (good[n]) {
          REQUIRE(fast.mark_healthy(node_id(n), now).ok());
          REQUIRE(slow.scheduler.mark_healthy(node_id(n)).ok());
        } else {
          const auto stopped = fast.mark_bad(node_id(n), now);
          REQUIRE(stopped.ok());
          for (const job_id id : *stopped) ends.erase(id.value);
          slow.mark_bad(node_id(n));
        }
      }
      std::vector<job_action> actions;
      REQUIRE(fast.decide(now, actions).ok());
      std::vector<std::uint32_t> started;
      for (const job_action& a : actions) {
        const std::uint32_t id = a.job.value;
        ends.erase(id);
        if (a.what == job_action::verb::suspend) continue;
        started.push_back(id);
        ends[id] = now + 1 + random.uniform(30);  // whatever its estimate
      }
      REQUIRE(started == slow.decide(now));
      REQUIRE(fast.scheduler().hash() == slow.scheduler.hash());
      for (const std::uint32_t id : started)
        behind +=
            !slow.waiting.empty() && slow.waiting.begin()->second.gang.job.number() < id ? 1U : 0U;
    }
    delayed += slow.delayed;
  }
  CHECK(delayed > 0);
  CHECK(behind > 0);
}

// Streams of jobs that ask for more than there is, with exact or too long estimates. Jobs of the higher
// priority are never suspended.
TEST_CASE("gang_queue: whatever arrives, a job waits no longer than the bound") {
  std::uint64_t late_first_fit = 0;
  std::uint64_t late_by_runs = 0;
  std::uint64_t suspended = 0;
  for (std::uint64_t seed = 0; seed < std::max(60U, scaled(150U)); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const bool backfill = seed % 2 == 0;
    const std::uint32_t gap = 1 + random.uniform(3);
    const std::uint32_t most = 1 + random.uniform(4);
    const std::uint32_t longest_run = 8 * gap + random.uniform(30);
    const std::uint32_t slack = seed / 2 % 2 == 0 ? 0 : random.uniform(1000);
    time_ms longest = longest_run;  // with backfilling: the longest estimate
    std::vector<timed_job> jobs;
    for (std::uint32_t i = 0; i < 120; ++i) {
      const bool wide = random.uniform(12) == 0;
      const std::uint32_t gpus = 1 + random.uniform(wide ? 12 : most);
      timed_job j{.request = job(i, gpus, random.uniform(4) > 0),
                  .arrival = i * gap,
                  .duration = 1 + random.uniform(longest_run)};
      j.request.estimate = j.duration + random.uniform(1 + slack);
      if (backfill) longest = std::max(longest, j.request.estimate);
      jobs.push_back(j);
    }
    const auto num_late = [&](auto queue, time_ms most_time) {
      const auto run = simulate(queue, jobs).value().jobs;
      std::uint64_t late = 0;
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        suspended += run[j].suspended;
        if (jobs[j].request.priority == 0) continue;
        time_ms before = 0;  // jobs of its priority that wait when it arrives
        for (std::size_t i = 0; i < j; ++i)
          before += jobs[i].request.priority > 0 && run[i].started > jobs[j].arrival;
        late += run[j].started > jobs[j].arrival + (before + 1) * most_time;
      }
      return late;
    };
    REQUIRE(num_late(queue_of(3, {.backfill = backfill}), longest) == 0);
    late_by_runs += num_late(queue_of(3, {.backfill = backfill}), longest_run);
    late_first_fit += num_late(batch_queue(server_placer::create({.gpus = {4, 4, 4}}).value(),
                                           {.rule = batch_options::rules::backfill}),
                               longest);
  }
  CHECK(late_first_fit > 0);
  CHECK(late_by_runs > 0);
  CHECK(suspended > 0);
}

TEST_CASE("the simulator runs the queue") {
  std::vector<timed_job> jobs;
  rng random(3);
  for (std::uint32_t i = 0; i < 60; ++i)
    jobs.push_back({.request = job(i, 1 + random.uniform(8), static_cast<std::int32_t>(i % 2)),
                    .arrival = i * 1000,
                    .duration = 1000 + random.uniform(9000)});
  gang_queue q = queue_of(3);
  const auto result = simulate(q, jobs);
  REQUIRE(result.ok());
  CHECK(q.scheduler().num_gangs() == 0);
  CHECK(q.scheduler().audit().empty());
}

// Each decision is held against the nodes: what starts is there, and the first job that waits does not
// fit anywhere.
TEST_CASE("gang_queue: CPU, memory and GPU models of jobs, in the simulator") {
  std::uint64_t waited_for_cpu = 0;
  std::uint64_t refused = 0;
  std::uint64_t smaller = 0;  // jobs of tasks that do not fill a node
  for (std::uint64_t seed = 0; seed < scaled(std::uint64_t{60}); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    struct machine {
      std::string model;
      std::uint32_t gpus, cpu, memory;
    };
    std::vector<machine> idle;
    gang_cluster cluster;
    for (std::uint32_t n = 0; n < 4; ++n) {
      idle.push_back({random.uniform(2) == 0 ? "a" : "b", 4, 4000 + random.uniform(5) * 1000,
                      8 + random.uniform(9)});
      cluster.nodes.push_back({.name = "n" + std::to_string(n),
                               .gpus = 4,
                               .host = {idle[n].cpu, idle[n].memory},
                               .model = idle[n].model});
    }
    gang_queue_options options;
    std::vector<timed_job> jobs;
    for (std::uint32_t j = 0; j < 30; ++j) {
      jobs.push_back({job(j, 1 + random.uniform(9)), j * 5, 1 + random.uniform(60)});
      jobs.back().request.demand = j;
      options.demands.push_back({{random.uniform(5) * 500, random.uniform(5)}, {}});
      if (random.uniform(3) == 0)
        options.demands.back().models = {random.uniform(2) == 0 ? "a" : "b"};
    }
    const auto task_fits = [&](const machine& m, std::uint32_t id, std::uint32_t gpus) {
      const gang_queue_options::demand& d = options.demands[id];
      return m.gpus >= gpus && m.cpu >= gpus * d.per_gpu.cpu_milli &&
             m.memory >= gpus * d.per_gpu.memory_mib &&
             (d.models.empty() || d.models[0] == m.model);
    };
    const auto take = [&](machine& m, std::uint32_t id, std::uint32_t gpus) {
      m.gpus -= gpus;
      m.cpu -= gpus * options.demands[id].per_gpu.cpu_milli;
      m.memory -= gpus * options.demands[id].per_gpu.memory_mib;
    };
    // As tasks of so many GPUs, and one with the rest.
    const auto fits = [&](std::uint32_t id, std::uint32_t size) {
      const std::uint32_t gpus = jobs[id].request.gpus;
      const std::uint32_t rest = gpus % size;
      return std::any_of(idle.begin(), idle.end(), [&](const machine& of_rest) {
        if (rest > 0 && !task_fits(of_rest, id, rest)) return false;
        std::uint32_t tasks = 0;
        for (const machine& at : idle) {
          machine m = at;
          if (rest > 0 && &at == &of_rest) take(m, id, rest);
          for (; task_fits(m, id, size); ++tasks) take(m, id, size);
        }
        return tasks >= gpus / size;
      });
    };
    std::map<std::uint32_t, std::uint32_t> sizes;  // of the tasks of each job
    const auto use = [&](std::uint32_t id, const job_placement& where, bool starts) {
      for (const placement& p : where) {
        const gang_queue_options::demand& d = options.demands[id];
        machine& m = idle[p.node.value];
        const std::uint32_t gpus = p.num_gpus();
        if (starts) REQUIRE(task_fits(m, id, gpus));
        m.gpus += starts ? 0 - gpus : gpus;
        m.cpu += starts ? 0 - gpus * d.per_gpu.cpu_milli : gpus * d.per_gpu.cpu_milli;
        m.memory += starts ? 0 - gpus * d.per_gpu.memory_mib : gpus * d.per_gpu.memory_mib;
      }
    };
    gang_queue q(gang_scheduler::create(cluster).value(), options);
    std::map<std::uint32_t, job_placement> running;
    std::vector<std::uint32_t> waiting;  // in order
    for (time_ms now = 0; now < 3000; ++now) {
      for (auto at = running.begin(); at != running.end();) {
        const auto job_at = at++;
        if (jobs[job_at->first].duration-- > 0) continue;
        use(job_at->first, job_at->second, false);
        REQUIRE(q.finish(job_id(job_at->first), now).ok());
        running.erase(job_at);
      }
      for (const timed_job& j : jobs) {
        if (j.arrival != now) continue;
        const std::vector<machine> before = idle;
        for (std::uint32_t n = 0; n < 4; ++n)
          idle[n] = {cluster.nodes[n].model, 4, cluster.nodes[n].host.cpu_milli,
                     cluster.nodes[n].host.memory_mib};
        std::uint32_t size = std::min(4U, j.request.gpus);
        while (size > 0 && !fits(j.request.job.value, size)) --size;
        sizes[j.request.job.value] = size;
        smaller += size > 0 && size < std::min(4U, j.request.gpus) ? 1U : 0U;
        const bool can_run = size > 0;
        idle = before;
        REQUIRE(q.submit(j.request, now).ok() == can_run);
        if (can_run) waiting.push_back(j.request.job.value);
        refused += can_run ? 0U : 1U;
      }
      std::vector<job_action> actions;
      REQUIRE(q.decide(now, actions).ok());
      for (const job_action& a : actions) {
        REQUIRE(!waiting.empty());
        REQUIRE(a.job.value == waiting.front());
        use(a.job.value, a.where, true);
        running[a.job.value] = a.where;
        waiting.erase(waiting.begin());
      }
      if (waiting.empty()) continue;
      REQUIRE(!fits(waiting.front(), sizes[waiting.front()]));
      std::uint32_t free = 0;
      for (const machine& m : idle) free += m.gpus;
      waited_for_cpu += free >= jobs[waiting.front()].request.gpus ? 1U : 0U;
    }
    REQUIRE(waiting.empty());
    REQUIRE(running.empty());
    REQUIRE(q.scheduler().audit().empty());
  }
  CHECK(waited_for_cpu > 0);
  CHECK(refused > 0);
  CHECK(smaller > 0);
}
