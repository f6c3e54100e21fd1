// apiary/tests/fgd/gang_victims_test.cpp - gangs whose victims are not those of single tasks.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/fgd/baseline_scores.h>
#include <apiary/fgd/preemption_plan.h>
#include <apiary/fgd/preemptive_sharing.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace {

using namespace apiary;
using preempting_best_fit = preemptive_sharing_scheduler<best_fit>;

// A cluster of so many nodes with one GPU each, CPU as listed and then one core, and a job with these
// costs on each node that has one.
preempting_best_fit one_gpu_each(std::uint32_t count, const std::vector<std::uint32_t>& cpu,
                                 const std::vector<std::uint64_t>& costs) {
  node_table nodes;
  for (std::uint32_t n = 0; n < count; ++n)
    nodes.add({.host = {.cpu_milli = n < cpu.size() ? cpu[n] : 1000}, .gpus = n < cpu.size()});
  auto scheduler = *preempting_best_fit::create(std::move(nodes), best_fit{});
  for (std::uint32_t n = 0; n < costs.size(); ++n) {
    const task_request runs{.job = job_id(n), .gpus = 1, .gpu_milli = whole_gpu};
    REQUIRE(scheduler.recover(runs, {node_id(n), 1}, {.cost = costs[n]}).ok());
  }
  return scheduler;
}

TEST_CASE("on a small cluster the victims of a gang cost least, also where single tasks mislead") {
  // The first task would evict job 0, the second one job 1. Without job 1 both run on node 1.
  node_table nodes;
  nodes.add({.host = {.cpu_milli = 2000}, .gpus = 1});
  nodes.add({.host = {.cpu_milli = 9000}, .gpus = 2});
  auto scheduler = *preempting_best_fit::create(std::move(nodes), best_fit{});
  const task_request one{.job = job_id(0), .gpus = 1, .gpu_milli = whole_gpu};
  const task_request two{.job = job_id(1), .gpus = 2, .gpu_milli = whole_gpu};
  REQUIRE(scheduler.recover(one, {node_id(0), 1}, {.cost = 5}).ok());
  REQUIRE(scheduler.recover(two, {node_id(1), 3}, {.cost = 6}).ok());
  topology_constraints gang;
  gang.groups = {{.tasks = 2, .gpus = 1, .host = {.cpu_milli = 2000}}};
  const node_table before = scheduler.nodes();
  const preemption_plan plan = *scheduler.propose(job_id(9), gang, 1);
  CHECK(scheduler.nodes() == before);
  CHECK(plan.victims == std::vector<job_id>{job_id(1)});
  CHECK(plan.cost == 6);
  CHECK(plan.lower_bound == 6);
  for (const task_placement& p : plan.placements) CHECK(p.where.node == node_id(1));
}

TEST_CASE(
    "if the tasks of a gang one by one find none, all jobs are tried, on small clusters only") {
  // The first task would take node 1, the only one with enough CPU for the second one.
  for (const std::uint32_t count : {2U, 254U, 255U}) {
    CAPTURE(count);
    auto scheduler = one_gpu_each(count, {2000, 9000}, {5, 1});
    topology_constraints gang;
    gang.groups = {{.tasks = 1, .gpus = 1, .host = {.cpu_milli = 2000}},
                   {.tasks = 1, .gpus = 1, .host = {.cpu_milli = 9000}}};
    const node_table before = scheduler.nodes();
    const preemption_plan plan = *scheduler.propose(job_id(9), gang, 1);
    CHECK(scheduler.nodes() == before);
    if (count > 254) {  // with the two tasks of the gang more than 256
      CHECK(plan.result == plan_result::wait);
      CHECK(plan.reason == wait_reason::busy);
      continue;
    }
    REQUIRE(plan.result == plan_result::preempt);
    CHECK(plan.victims == std::vector<job_id>{job_id(0), job_id(1)});
    CHECK(plan.cost == 6);
    CHECK(plan.lower_bound == 6);
    CHECK(plan.placements[0].where.node == node_id(0));
    CHECK(scheduler.commit(job_id(9), gang, plan, {.priority = 1}).ok());
    // Without enough priority, or if no evictions are enough, it waits.
    CHECK(scheduler.propose(job_id(8), gang, 0)->result == plan_result::wait);
    CHECK(scheduler.propose(job_id(8), gang, 9)->result == plan_result::wait);
  }
}

TEST_CASE("the lower bound for a gang is that of what runs now, and of the nodes that are there") {
  // So many nodes that no sets are tried. The gang needs the GPUs of the three jobs.
  auto scheduler = one_gpu_each(300, {1000, 1000, 1000}, {5, 7});
  topology_constraints runs;
  runs.groups = {{.tasks = 1, .gpus = 1}, {.tasks = 1, .host = {.cpu_milli = 1000}}};
  const std::vector<task_placement> where{{0, {node_id(2), 1}}, {1, {node_id(100), 0}}};
  REQUIRE(scheduler.recover(job_id(2), runs, where, {.cost = 9}).ok());
  topology_constraints gang;
  gang.groups = {{.tasks = 3, .gpus = 1}};
  const auto bound = [&] {
    const preemption_plan plan = *scheduler.propose(job_id(9), gang, 1);
    CHECK(plan.cost == 21);
    return plan.lower_bound;
  };
  // Job 2 could be on two of the nodes, so their costs do not add up.
  CHECK(bound() == 5);
  REQUIRE(scheduler.finish(job_id(2), where[1]).ok());
  CHECK(bound() == 21);
  REQUIRE(scheduler.commit(job_id(2), runs.groups[1].task(), where[1]).ok());
  CHECK(bound() == 5);
  REQUIRE(scheduler.finish(job_id(2), where[1]).ok());
  CHECK(bound() == 21);
  // One node could run three of the tasks, until it has left or has only one GPU.
  const node_id large = *scheduler.add_node({.host = {.cpu_milli = 1000}, .gpus = 3});
  REQUIRE(scheduler.mark_bad(large).ok());
  CHECK(bound() == 5);
  REQUIRE(scheduler.resize_node(large, 1, {.cpu_milli = 1000}).ok());
  CHECK(bound() == 21);
  REQUIRE(scheduler.resize_node(large, 3, {.cpu_milli = 1000}).ok());
  CHECK(bound() == 5);
  REQUIRE(scheduler.remove_node(large).ok());
  CHECK(bound() == 21);
}

TEST_CASE("of sets of victims for a gang that cost the same, one with the fewest jobs is taken") {
  // As above, and two jobs on node 2 that each use a half of both GPUs.
  node_table nodes;
  nodes.add({.host = {.cpu_milli = 2000}, .gpus = 1});
  for (int n = 0; n < 2; ++n) nodes.add({.host = {.cpu_milli = 9000}, .gpus = 2});
  auto scheduler = *preempting_best_fit::create(std::move(nodes), best_fit{});
  const task_request one{.job = job_id(0), .gpus = 1, .gpu_milli = whole_gpu};
  const task_request two{.job = job_id(1), .gpus = 2, .gpu_milli = whole_gpu};
  REQUIRE(scheduler.recover(one, {node_id(0), 1}, {.cost = 5}).ok());
  REQUIRE(scheduler.recover(two, {node_id(1), 3}, {.cost = 6}).ok());
  topology_constraints halves;
  halves.groups = {{.tasks = 2, .gpus = 1, .gpu_milli = 500}};
  const std::vector<task_placement> where{{0, {node_id(2), 1}}, {0, {node_id(2), 2}}};
  for (const std::uint32_t job : {2U, 3U})
    REQUIRE(scheduler.recover(job_id(job), halves, where, {.cost = 3}).ok());
  topology_constraints gang;
  gang.groups = {{.tasks = 2, .gpus = 1, .host = {.cpu_milli = 2000}}};
  const preemption_plan plan = *scheduler.propose(job_id(9), gang, 1);
  CHECK(plan.victims == std::vector<job_id>{job_id(1)});
  CHECK(plan.cost == 6);
  CHECK(plan.lower_bound == 6);
}

TEST_CASE("a victim that has ended and runs again can be a victim again") {
  auto scheduler = one_gpu_each(1, {1000}, {5});
  const auto task = [](std::uint32_t job) {
    return task_request{.job = job_id(job), .gpus = 1, .gpu_milli = whole_gpu};
  };
  const preemption_plan first = *scheduler.propose(task(1), 1);
  REQUIRE(scheduler.commit(task(1), first, {.priority = 1}).ok());
  REQUIRE(scheduler.finish(job_id(0)).ok());
  REQUIRE(scheduler.finish(job_id(1)).ok());
  REQUIRE(scheduler.recover(task(0), {node_id(0), 1}, {}).ok());
  const preemption_plan second = *scheduler.propose(task(2), 1);
  CHECK(second.victims == std::vector<job_id>{job_id(0)});
  CHECK(scheduler.commit(task(2), second, {.priority = 1}).ok());
}

TEST_CASE("the search for victims of a gang reads nodes again only when they have changed") {
  // On every second node a job costs nothing, but the node has too little CPU for a task.
  const std::uint32_t count = 2'000;
  std::vector<std::uint32_t> cpu;
  std::vector<std::uint64_t> costs;
  for (std::uint32_t n = 0; n < count; ++n) {
    cpu.push_back(n % 2 == 0 ? 1000 : 2000);
    costs.push_back(n % 2 == 0 ? 0 : 1 + n);
  }
  auto scheduler = one_gpu_each(count, cpu, costs);
  const task_request one{.cpu_milli = 2000, .gpus = 1, .gpu_milli = whole_gpu};
  const preemption_plan alone = *scheduler.propose(one, 1);
  CHECK(alone.victims == std::vector<job_id>{job_id(1)});
  const std::uint64_t of_a_node = 4;  // steps of the searches on it
  CHECK(alone.steps >= count);
  CHECK(alone.steps <= count * of_a_node);

  topology_constraints gang;
  gang.groups = {{.tasks = count / 4, .gpus = 1, .host = {.cpu_milli = 2000}}};
  const node_table before = scheduler.nodes();
  const preemption_plan plan = *scheduler.propose(job_id(count), gang, 1);
  CHECK(scheduler.nodes() == before);
  REQUIRE(plan.result == plan_result::preempt);
  REQUIRE(plan.victims.size() == count / 4);
  for (std::uint32_t v = 0; v < count / 4; ++v) CHECK(plan.victims[v] == job_id(2 * v + 1));
  CHECK(plan.cost == plan.lower_bound);
  // Two searches, one of them for the lower bound; and for each task the node that it takes.
  CHECK(plan.steps <= 2 * count * of_a_node + count / 4 * 2 * of_a_node);
  // A node that did not have enough is read again when it has changed.
  REQUIRE(scheduler.resize_node(node_id(0), 1, {.cpu_milli = 2000}).ok());
  CHECK(scheduler.propose(job_id(count), gang, 1)->victims[0] == job_id(0));
  // If the gang fits, or may not evict, there is nothing to search, or no node.
  CHECK(scheduler.propose(job_id(count), gang, 0)->steps <= 2 * count);
  gang.groups = {{.tasks = 1, .host = {.cpu_milli = 500}}};
  CHECK(scheduler.propose(job_id(count), gang, 1)->steps == 0);
}

TEST_CASE(
    "a node that a task of a gang has taken costs the next task what is left to evict there") {
  // So many nodes that no sets are tried. Node 0 has jobs that cost 1 and 100, node 1 one of 50.
  node_table nodes;
  nodes.add({.host = {.cpu_milli = 2000}, .gpus = 2});
  nodes.add({.host = {.cpu_milli = 2000}, .gpus = 1});
  while (nodes.size() < 300) nodes.add({.host = {.cpu_milli = 2000}});
  auto scheduler = *preempting_best_fit::create(std::move(nodes), best_fit{});
  const auto runs = [&](std::uint32_t job, placement where, std::uint64_t cost) {
    const task_request task{.job = job_id(job), .gpus = 1, .gpu_milli = whole_gpu};
    REQUIRE(scheduler.recover(task, where, {.cost = cost}).ok());
  };
  runs(0, {node_id(0), 1}, 1);
  runs(1, {node_id(0), 2}, 100);
  runs(2, {node_id(1), 1}, 50);
  topology_constraints gang;
  gang.groups = {{.tasks = 2, .gpus = 1}};
  const preemption_plan two = *scheduler.propose(job_id(9), gang, 1);
  CHECK(two.victims == std::vector<job_id>{job_id(0), job_id(2)});
  CHECK(two.cost == 51);
  gang.groups[0].tasks = 3;
  CHECK(scheduler.propose(job_id(9), gang, 1)->cost == 151);
}

TEST_CASE("a gang of so many task groups that the search for victims ends too early is undecided") {
  const std::uint32_t count = 20'000;
  auto scheduler = one_gpu_each(count, std::vector<std::uint32_t>(count, 1000),
                                std::vector<std::uint64_t>(count, 1));
  topology_constraints gang;
  gang.groups.assign(200, {.tasks = 2, .gpus = 1, .host = {.cpu_milli = 1000}});
  const preemption_plan few = *scheduler.propose(job_id(count), gang, 1);
  CHECK(few.result == plan_result::preempt);
  CHECK(few.victims.size() == 400);
  gang.groups.assign(600, {.tasks = 2, .gpus = 1, .host = {.cpu_milli = 1000}});
  const node_table before = scheduler.nodes();
  const preemption_plan many = *scheduler.propose(job_id(count), gang, 1);
  CHECK(scheduler.nodes() == before);
  CHECK(many.result == plan_result::wait);
  CHECK(many.reason == wait_reason::undecided);
  CHECK(many.steps < 10'100'000);
  // One task group with as many tasks needs one search.
  gang.groups = {{.tasks = 1200, .gpus = 1, .host = {.cpu_milli = 1000}}};
  CHECK(scheduler.propose(job_id(count), gang, 1)->victims.size() == 1200);
}

}  // namespace
