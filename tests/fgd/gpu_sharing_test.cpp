// apiary/tests/fgd/gpu_sharing_test.cpp - what a host may send, and what comes back.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/published_fragmentation.h"
#include "support/naive_sharing.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/fgd/baseline_scores.h>
#include <apiary/fgd/fgd.h>
#include <apiary/fgd/gang_sharing.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/fgd/price_score.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace apiary;
using namespace example;

gpu_sharing_scheduler<best_fit> two_nodes() {
  node_table nodes;
  nodes.add({{8000, 8000}, 2, 0});
  nodes.add({{8000, 8000}, 4, 1});
  return gpu_sharing_scheduler<best_fit>::create(std::move(nodes), best_fit{}).value();
}

TEST_CASE("a task is proposed, committed and finished") {
  gpu_sharing_scheduler<best_fit> scheduler = two_nodes();
  const node_table before = scheduler.nodes();
  const task_request task{.job = job_id(1), .cpu_milli = 1000, .gpus = 1, .gpu_milli = 1000};
  const absl::StatusOr<task_plan> plan = scheduler.propose(task);
  REQUIRE(plan.ok());
  CHECK(plan->result == plan_result::bind);
  CHECK(plan->where == placement{node_id(0), 1});
  CHECK(scheduler.nodes() == before);  // a proposal takes nothing
  REQUIRE(scheduler.commit(task, *plan).ok());
  CHECK(scheduler.num_running() == 1);
  CHECK(scheduler.find(job_id(1)) == plan->where);
  CHECK(scheduler.nodes()[node_id(0)].free_gpus() == 1);
  REQUIRE(scheduler.finish(job_id(1)).ok());
  CHECK(scheduler.nodes() == before);
  CHECK_FALSE(scheduler.find(job_id(1)));
}

TEST_CASE("a task that does not fit waits, with the reason") {
  gpu_sharing_scheduler<best_fit> scheduler = two_nodes();
  const auto reason = [&](const task_request& task) {
    const task_plan plan = scheduler.propose(task).value();
    CHECK(plan.result == plan_result::wait);
    CHECK(scheduler.commit(task, plan).code() == absl::StatusCode::kInvalidArgument);
    return plan.reason;
  };
  CHECK(reason({.gpus = 5, .gpu_milli = 1000}) == wait_reason::never);
  CHECK(reason({.gpus = 3, .gpu_milli = 1000, .models = 1}) == wait_reason::never);
  CHECK(reason({.gpus = 1, .gpu_milli = 500, .models = 4}) == wait_reason::never);
  CHECK(reason({.cpu_milli = 8001}) == wait_reason::never);
  CHECK(reason({.memory_mib = 8001}) == wait_reason::never);
  const task_request four{.job = job_id(1), .gpus = 4, .gpu_milli = 1000};
  REQUIRE(scheduler.mark_bad(node_id(1)).ok());
  CHECK(reason(four) == wait_reason::unhealthy);
  REQUIRE(scheduler.mark_healthy(node_id(1)).ok());
  summary_bitset suggested(2);
  suggested.set(0);
  CHECK(scheduler.propose(four, suggested).value().reason == wait_reason::not_suggested);
  REQUIRE(scheduler.commit(four, scheduler.propose(four).value()).ok());
  CHECK(reason(four) == wait_reason::busy);
  CHECK(scheduler.propose(four, suggested).value().reason == wait_reason::busy);
  REQUIRE(scheduler.mark_bad(node_id(1)).ok());
  CHECK(reason(four) == wait_reason::busy);
}

TEST_CASE("a node that is bad from the start is known to be bad") {
  node_table nodes;
  nodes.add({{8000, 8000}, 2, 0});
  nodes[node_id(0)].healthy = false;
  auto scheduler = gpu_sharing_scheduler<best_fit>::create(std::move(nodes), best_fit{}).value();
  const task_request task{.gpus = 2, .gpu_milli = 1000};
  CHECK(scheduler.propose(task).value().reason == wait_reason::unhealthy);
  REQUIRE(scheduler.mark_healthy(node_id(0)).ok());
  CHECK(scheduler.propose(task).value().result == plan_result::bind);
}

TEST_CASE("every bad call names what is wrong and changes nothing") {
  gpu_sharing_scheduler<best_fit> scheduler = two_nodes();
  const task_request task{.job = job_id(1), .cpu_milli = 1000, .gpus = 1, .gpu_milli = 600};
  REQUIRE(scheduler.commit(task, {node_id(1), 0b10}).ok());
  const node_table before = scheduler.nodes();
  const auto refused = [&](const absl::Status& status, absl::StatusCode code,
                           const std::string& names) {
    CAPTURE(status.ToString());
    CHECK(status.code() == code);
    CHECK(std::string(status.message()).find(names) != std::string::npos);
    CHECK(scheduler.nodes() == before);
    CHECK(scheduler.num_running() == 1);
  };
  using enum absl::StatusCode;
  const task_request other{.job = job_id(2), .gpus = 1, .gpu_milli = 600};
  refused(scheduler.propose({.job = job_id(7), .gpus = 2, .gpu_milli = 600}).status(),
          kInvalidArgument, "job 7: 2 GPUs with 600");
  refused(scheduler.propose({.gpus = 1, .gpu_milli = 1001}).status(), kInvalidArgument, "1001");
  refused(scheduler.propose(other, summary_bitset(3)).status(), kInvalidArgument,
          "3 bits for 2 nodes");
  refused(scheduler.commit({.job = job_id(2), .gpus = 1}, {node_id(0), 1}), kInvalidArgument,
          "job 2");
  refused(scheduler.commit({.gpus = 1, .gpu_milli = 600}, {node_id(0), 1}), kInvalidArgument,
          "job id");
  refused(scheduler.commit(task, {node_id(0), 1}), kAlreadyExists, "job 1");
  refused(scheduler.commit(other, {node_id(2), 1}), kNotFound, "node 2");
  refused(scheduler.commit(other, {node_id(), 1}), kNotFound, "node");
  refused(scheduler.commit(other, {node_id(1), 0b10}), kAborted, "node 1");
  refused(scheduler.commit(other, {node_id(1), 0b11}), kAborted, "node 1");
  refused(scheduler.commit(other, {node_id(1), 0b10000}), kAborted, "node 1");
  refused(scheduler.finish(job_id(2)), kNotFound, "job 2");
  refused(scheduler.finish(job_id()), kNotFound, "no job id");
  refused(scheduler.propose({.gpus = 2, .gpu_milli = 600}).status(), kInvalidArgument,
          "a job without id: 2 GPUs with 600");
  refused(scheduler.mark_bad(node_id(2)), kNotFound, "node 2");
  refused(scheduler.mark_healthy(node_id()), kNotFound, "node");
  CHECK(gpu_sharing_scheduler<best_fit>::create(node_table(), best_fit{}).status().code() ==
        kInvalidArgument);
}

TEST_CASE("a task that never fits: the text names the request that is too large") {
  node_table nodes;
  nodes.add({{8000, 0}, 2, 0});  // no memory given
  nodes.add({{1000, 512}, 4, 1});
  nodes.add({{9000, 512}, 0, 2});  // without GPUs
  auto scheduler = gpu_sharing_scheduler<best_fit>::create(std::move(nodes), best_fit{}).value();
  const auto why = [&](const task_request& task) {
    const std::string text = scheduler.explain(task).value();
    CHECK((scheduler.propose(task).value().reason == wait_reason::never) == !text.empty());
    CHECK(text.starts_with("never: ") == !text.empty());
    return text.empty() ? text : text.substr(7);
  };
  CHECK(why({.memory_mib = 1024, .gpus = 1, .gpu_milli = 1000}) ==
        "it requests 1024 MiB of memory; a node has at most 512 MiB");
  CHECK(why({.cpu_milli = 9001}) == "it requests 9.001 cores; a node has at most 9 cores");
  CHECK(why({.gpus = 5, .gpu_milli = 1000}) == "it requests 5 GPUs; a node has at most 4");
  CHECK(why({.gpus = 3, .gpu_milli = 1000, .models = 0b101}) ==
        "it requests 3 GPUs of the models that it accepts; a node has at most 2");
  CHECK(why({.gpus = 1, .gpu_milli = 500, .models = 0b1100}) ==
        "no node has a GPU of the models that it accepts");
  CHECK(why({.cpu_milli = 8250, .gpus = 1, .gpu_milli = 500}) ==
        "it requests 8.25 cores; a node with 1 GPU has at most 8 cores");
  CHECK(why({.cpu_milli = 2000, .gpus = 4, .gpu_milli = 1000}) ==
        "it requests 2 cores; a node with 4 GPUs has at most 1 core");
  CHECK(why({.cpu_milli = 9000, .memory_mib = 1, .gpus = 2, .gpu_milli = 1000, .models = 1}) ==
        "it requests 1 MiB of memory; a node with 2 GPUs of the models that it accepts has at most "
        "0 MiB");
  CHECK(why({.cpu_milli = 8000, .memory_mib = 512, .gpus = 1, .gpu_milli = 500}) ==
        "no node has all the CPU, memory and GPUs that it requests");
  CHECK(why({.cpu_milli = 1000, .memory_mib = 512, .gpus = 4, .gpu_milli = 1000}).empty());
}

TEST_CASE("a task that fits nowhere now: the text says what each GPU model lacks") {
  node_table nodes;
  for (int n = 0; n < 5; ++n) nodes.add({{8000, 8000}, 2, 0});
  for (int n = 0; n < 2; ++n) nodes.add({{8000, 8000}, 4, 3});
  nodes.add({{1000, 8000}, 4, 5});  // could not run it
  auto scheduler = gpu_sharing_scheduler<best_fit>::create(std::move(nodes), best_fit{}).value();
  const auto use = [&](std::uint32_t n, const task_request& task, std::uint32_t gpu_mask) {
    task_request other = task;
    other.job = job_id(100 + n);
    REQUIRE(scheduler.commit(other, {node_id(n), gpu_mask}).ok());
  };
  const task_request task{.cpu_milli = 2000, .memory_mib = 3000, .gpus = 2, .gpu_milli = 1000};
  CHECK(scheduler.explain(task).value().empty());
  use(0, {.gpus = 1, .gpu_milli = 1}, 1);
  use(1, {.gpus = 2, .gpu_milli = 1000}, 3);
  use(2, {.cpu_milli = 6001}, 0);
  use(3, {.memory_mib = 5001}, 0);
  REQUIRE(scheduler.mark_bad(node_id(4)).ok());
  CHECK(scheduler.explain(task).value().empty());
  use(5, {.gpus = 3, .gpu_milli = 1000}, 0b1101);
  use(6, {.memory_mib = 7000}, 0);
  CHECK(scheduler.propose(task)->reason == wait_reason::unhealthy);
  CHECK(
      scheduler.explain(task).value() ==
      "not now: GPU model 0: of 5 nodes that could run it, 2 lack free GPUs (the freest has 1; it "
      "needs 2), 1 lacks CPU (the freest has 1.999 cores; it needs 2 cores), 1 lacks memory (the "
      "freest has 2999 MiB; it needs 3000 MiB), 1 is bad; GPU model 3: of 2 nodes that could run "
      "it, 1 lacks free GPUs (the freest has 1; it needs 2), 1 lacks memory (the freest has 1000 "
      "MiB; it needs 3000 MiB)");
  for (const std::uint32_t n : {0U, 2U, 3U, 4U}) {
    (void)scheduler.finish(job_id(100 + n));
    REQUIRE(scheduler.remove_node(node_id(n)).ok());
  }
  REQUIRE(scheduler.finish(job_id(101)).ok());
  use(1, {.gpus = 1, .gpu_milli = 300}, 1);
  use(7, {.gpus = 1, .gpu_milli = 250}, 2);
  REQUIRE(scheduler.commit({.job = job_id(1), .gpus = 1, .gpu_milli = 600}, {node_id(1), 2}).ok());
  const task_request part{.gpus = 1, .gpu_milli = 750, .models = 1};
  CHECK(scheduler.explain(part).value() ==
        "not now: GPU model 0: of 1 node that could run it, 1 lacks a GPU with enough left (the "
        "freest has 700/1000; it needs 750/1000)");
  CHECK(scheduler.explain({.cpu_milli = 8000, .memory_mib = 4000})->empty());
  REQUIRE(scheduler.mark_bad(node_id(1)).ok());
  REQUIRE(scheduler.mark_bad(node_id(5)).ok());
  CHECK(scheduler.explain({.cpu_milli = 8000, .memory_mib = 4000}).value() ==
        "not now: of 3 nodes that could run it, 1 lacks memory (the freest has 1000 MiB; it "
        "needs 4000 MiB), 2 are bad");
  CHECK(scheduler.explain({.gpus = 2, .gpu_milli = 1}).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("why a task waits, in a cluster with GPUs of model 0 only or without GPUs") {
  node_table nodes;
  nodes.add({{128000, 0}, 1, 0});
  nodes.add({{1000, 0}, 0, 0});
  auto scheduler = gpu_sharing_scheduler<best_fit>::create(std::move(nodes), best_fit{}).value();
  REQUIRE(scheduler.commit({.job = job_id(1), .gpus = 1, .gpu_milli = 600}, {node_id(0), 1}).ok());
  CHECK(scheduler.explain({.gpus = 1, .gpu_milli = 600}).value() ==
        "not now: of 1 node that could run it, 1 lacks a GPU with enough left (the freest has "
        "400/1000; it needs 600/1000)");
  CHECK(scheduler.explain({.cpu_milli = 200000}).value() ==
        "never: it requests 200 cores; a node has at most 128 cores");
  REQUIRE(scheduler.finish(job_id(1)).ok());
  REQUIRE(scheduler.remove_node(node_id(0)).ok());
  CHECK(scheduler.explain({.gpus = 1, .gpu_milli = 600}).value() == "never: no node has a GPU");
}

TEST_CASE("a task that fits on no suggested node: the text counts the others") {
  node_table nodes;
  for (int n = 0; n < 4; ++n) nodes.add({{8000, 8000}, 2, 0});
  nodes.add({{8000, 8000}, 2, 3});
  nodes.add({{8000, 8000}, 1, 3});  // could not run it
  auto scheduler = gpu_sharing_scheduler<best_fit>::create(std::move(nodes), best_fit{}).value();
  const task_request task{.gpus = 2, .gpu_milli = 1000};
  summary_bitset suggested(6);
  for (const std::uint32_t n : {0U, 1U, 5U}) suggested.set(n);
  CHECK(scheduler.explain(task, suggested).value().empty());
  REQUIRE(scheduler.commit({.job = job_id(1), .gpus = 1, .gpu_milli = 1}, {node_id(0), 1}).ok());
  REQUIRE(scheduler.commit({.job = job_id(2), .gpus = 1, .gpu_milli = 1}, {node_id(2), 1}).ok());
  REQUIRE(scheduler.mark_bad(node_id(1)).ok());
  REQUIRE(scheduler.mark_bad(node_id(3)).ok());
  CHECK(scheduler.propose(task, suggested)->reason == wait_reason::unhealthy);
  CHECK(scheduler.explain(task).value().empty());  // node 4
  CHECK(scheduler.explain(task, suggested).value() ==
        "not now: GPU model 0: of 4 nodes that could run it, 1 lacks free GPUs (the freest has "
        "1; it needs 2), 1 is bad, 2 are not suggested (0 could run it now); GPU model 3: of 1 "
        "node that could run "
        "it, 1 is not suggested (1 could run it now)");
  CHECK(scheduler.explain({.gpus = 3, .gpu_milli = 1000}, suggested).value() ==
        "never: it requests 3 GPUs; a node has at most 2");
  CHECK(scheduler.explain(task, summary_bitset(5)).status() ==
        absl::InvalidArgumentError("suggested nodes: 5 bits for 6 nodes"));
  CHECK(scheduler.explain({.gpus = 2, .gpu_milli = 1}, suggested).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a host may ask what runs, and where") {
  gpu_sharing_scheduler<best_fit> scheduler = two_nodes();
  CHECK(scheduler.jobs().empty());
  const task_request task{
      .job = job_id(7), .cpu_milli = 5, .memory_mib = 6, .gpus = 1, .gpu_milli = 500, .models = 2};
  REQUIRE(scheduler.commit(task, {node_id(1), 0b100}).ok());
  REQUIRE(scheduler.commit({.job = job_id(3)}, {node_id(1), 0}).ok());
  REQUIRE(scheduler.commit({.job = job_id(5)}, {node_id(0), 0}).ok());
  CHECK(scheduler.jobs() == std::vector{job_id(3), job_id(5), job_id(7)});
  CHECK(scheduler.jobs_on(node_id(1)) == std::vector{job_id(3), job_id(7)});
  CHECK(scheduler.jobs_on(node_id(0)) == std::vector{job_id(5)});
  CHECK(scheduler.jobs_on(node_id(2)).empty());
  CHECK(scheduler.tasks_of(job_id(4)).empty());
  const auto tasks = scheduler.tasks_of(job_id(7));
  REQUIRE(tasks.size() == 1);
  CHECK(tasks[0].where == placement{node_id(1), 0b100});
  CHECK(tasks[0].request.job == job_id(7));
  CHECK(tasks[0].request.host() == resources{5, 6});
  CHECK(tasks[0].request.gpu_milli == 500);
  CHECK(tasks[0].request.models == 2);
}

TEST_CASE("a running task may be proposed again; only commit refuses it") {
  gpu_sharing_scheduler<best_fit> scheduler = two_nodes();
  const task_request task{.job = job_id(1), .gpus = 1, .gpu_milli = 1000};
  REQUIRE(scheduler.commit(task, scheduler.propose(task).value()).ok());
  CHECK(scheduler.propose(task).value().result == plan_result::bind);
  CHECK(scheduler.commit(task, scheduler.propose(task).value()).code() ==
        absl::StatusCode::kAlreadyExists);
}

TEST_CASE("the same commit again says that the job runs, even where its own place is taken by it") {
  gpu_sharing_scheduler<best_fit> scheduler = two_nodes();
  const task_request task{.job = job_id(1), .gpus = 2, .gpu_milli = 1000};
  const placement where = scheduler.propose(task).value().where;
  REQUIRE(scheduler.commit(task, where).ok());
  CHECK(scheduler.commit(task, where).code() == absl::StatusCode::kAlreadyExists);
}

TEST_CASE("nodes that hold more than their shape, or nonsense, are refused") {
  const auto refused = [](auto&& damage) {
    node_table nodes;
    nodes.add({{8000, 8000}, 2, 0});
    const node_id n = nodes.add({{8000, 8000}, 4, 1});
    damage(nodes[n]);
    const absl::Status status = gpu_sharing_scheduler<best_fit>::create(nodes, best_fit{}).status();
    return status.code() == absl::StatusCode::kInvalidArgument &&
           std::string(status.message()).find("node 1") != std::string::npos;
  };
  CHECK(refused([](node_state& s) { s.gpus = 200; }));
  CHECK(refused([](node_state& s) { s.gpus = 3; }));
  CHECK(refused([](node_state& s) { s.model = 2; }));
  CHECK(refused([](node_state& s) { s.left.cpu_milli = 8001; }));
  CHECK(refused([](node_state& s) { s.left.memory_mib = 8001; }));
  CHECK(refused([](node_state& s) { s.gpu_left[3] = 1001; }));
  CHECK(refused([](node_state& s) { s.gpu_left[4] = 1; }));
  CHECK_FALSE(refused([](node_state& s) { s.gpu_left[3] = 10; }));  // in use already
}

TEST_CASE("an inventory with impossible nodes is an error of create") {
  const auto refused = [](const node_shape& shape, const std::string& why) {
    node_table nodes;
    nodes.add({{8000, 8000}, 2, 0});
    const node_id n = nodes.add(shape);
    CHECK_FALSE(nodes.can_place({}, {n, 0}));
    CHECK(nodes.total_gpus() == 2);
    const absl::Status error = absl::InvalidArgumentError("node 1 has " + why);
    CHECK(gpu_sharing_scheduler<best_fit>::create(nodes, best_fit{}).status() == error);
    CHECK(gang_sharing_scheduler<best_fit>::create(nodes, best_fit{}).status() == error);
    CHECK(fgd::create(nodes, fragmentation_gradient(fragmentation(task_mix()))).status() == error);
    const task_mix mix({{{.gpus = 1, .gpu_milli = 500}, 1}});
    CHECK(price_score::create(nodes, mix).status() == error);
  };
  refused({{8000, 8000}, 17, 0}, "17 GPUs; a node can have at most 16");
  refused({{8000, 8000}, 256, 0}, "256 GPUs; a node can have at most 16");
  refused({{8000, 8000}, 4, 64}, "GPUs of model 64; a model is a number below 64");
  refused({{8000, 8000}, 0, 255}, "GPUs of model 255; a model is a number below 64");
  CHECK(node_shape{{8000, 8000}, 16, 63}.valid());
}

TEST_CASE("a score without typical tasks is an error of create") {
  const absl::Status error =
      absl::InvalidArgumentError("the task mix is empty; a score needs typical tasks");
  node_table nodes;
  nodes.add({{8000, 8000}, 2, 0});
  const fragmentation_gradient gradient{fragmentation(task_mix())};
  CHECK(fgd::create(nodes, gradient).status() == error);
  CHECK(gang_sharing_scheduler<fragmentation_gradient>::create(nodes, gradient).status() == error);
  using published = published_fragmentation_gradient;
  CHECK(gpu_sharing_scheduler<published>::create(nodes, published(task_mix())).status() == error);
  CHECK(gpu_sharing_scheduler<published>::create(nodes, published(task_mix({{{}, 1}}))).ok());
}

TEST_CASE("a proposal that went stale is refused, never double-booked") {
  gpu_sharing_scheduler<best_fit> scheduler = two_nodes();
  const task_request a{.job = job_id(1), .gpus = 2, .gpu_milli = 1000};
  const task_request b{.job = job_id(2), .gpus = 2, .gpu_milli = 1000};
  const task_plan where = scheduler.propose(a).value();
  CHECK(scheduler.propose(b).value() == where);
  REQUIRE(scheduler.commit(a, where).ok());
  CHECK(scheduler.commit(b, where).code() == absl::StatusCode::kAborted);
  REQUIRE(scheduler.commit(b, scheduler.propose(b).value()).ok());
}

TEST_CASE("a bad node gets nothing new, keeps what runs, and may be marked twice") {
  gpu_sharing_scheduler<best_fit> scheduler = two_nodes();
  const task_request task{.job = job_id(1), .gpus = 1, .gpu_milli = 1000};
  REQUIRE(scheduler.commit(task, scheduler.propose(task).value()).ok());
  REQUIRE(scheduler.mark_bad(node_id(0)).ok());
  REQUIRE(scheduler.mark_bad(node_id(0)).ok());
  CHECK(scheduler.propose({.gpus = 1, .gpu_milli = 1000}).value().where.node == node_id(1));
  CHECK(
      scheduler.commit({.job = job_id(2), .gpus = 1, .gpu_milli = 1000}, {node_id(0), 2}).code() ==
      absl::StatusCode::kAborted);
  CHECK(scheduler.find(job_id(1))->node == node_id(0));
  CHECK(scheduler.finish(job_id(1)).ok());
  REQUIRE(scheduler.mark_healthy(node_id(0)).ok());
  CHECK(scheduler.propose({.gpus = 1, .gpu_milli = 1000}).value().where.node == node_id(0));
}

TEST_CASE("after a restart running tasks are recovered, also on bad nodes") {
  gpu_sharing_scheduler<best_fit> scheduler = two_nodes();
  const node_table idle = scheduler.nodes();
  REQUIRE(scheduler.mark_bad(node_id(1)).ok());
  const task_request task{.job = job_id(1), .cpu_milli = 1000, .gpus = 3, .gpu_milli = 1000};
  const placement where{node_id(1), 0b1110};
  CHECK(scheduler.commit(task, where) == absl::AbortedError("job 1: node 1 is bad"));
  REQUIRE(scheduler.recover(task, where).ok());
  CHECK(scheduler.find(job_id(1)) == where);
  CHECK_FALSE(scheduler.nodes()[node_id(1)].healthy);
  CHECK(scheduler.recover(task, where).code() == absl::StatusCode::kAlreadyExists);
  const task_request other{.job = job_id(2), .gpus = 1, .gpu_milli = 1000};
  CHECK(scheduler.recover(other, where).code() == absl::StatusCode::kAborted);
  CHECK(scheduler.recover(other, {node_id(1), 0b1000}).code() == absl::StatusCode::kAborted);
  CHECK(scheduler.recover(other, {node_id(9), 1}).code() == absl::StatusCode::kNotFound);
  CHECK_FALSE(scheduler.nodes()[node_id(1)].healthy);
  REQUIRE(scheduler.mark_healthy(node_id(1)).ok());
  CHECK(scheduler.propose({.gpus = 2, .gpu_milli = 1000})->where.node == node_id(0));
  REQUIRE(scheduler.finish(job_id(1)).ok());
  CHECK(scheduler.nodes() == idle);
}

TEST_CASE("nodes join, leave and change while tasks run") {
  gpu_sharing_scheduler<best_fit> scheduler = two_nodes();
  const task_request six{.job = job_id(1), .gpus = 6, .gpu_milli = 1000};
  CHECK(scheduler.propose(six)->reason == wait_reason::never);
  CHECK(scheduler.add_node({{8000, 8000}, 8, 2}).value() == node_id(2));
  REQUIRE(scheduler.commit(six, scheduler.propose(six).value()).ok());
  CHECK(scheduler.find(job_id(1)) == placement{node_id(2), 0b111111});
  CHECK(scheduler.nodes().total_gpus() == 14);

  const absl::Status in_use = scheduler.remove_node(node_id(2));
  CHECK(in_use == absl::FailedPreconditionError("node 2: 1 job runs on it: 1"));
  CHECK(scheduler.jobs_on(node_id(2)) == std::vector<job_id>{job_id(1)});
  CHECK(scheduler.resize_node(node_id(2), 5, {8000, 8000}) ==
        absl::FailedPreconditionError(
            "node 2: GPU 5 is in use; it would have 5 GPUs, numbered from 0"));
  REQUIRE(scheduler.resize_node(node_id(2), 6, {9000, 0}).ok());
  CHECK(scheduler.propose({.cpu_milli = 9000})->where.node == node_id(2));
  CHECK(scheduler.propose({.gpus = 8, .gpu_milli = 1000})->reason == wait_reason::never);
  REQUIRE(scheduler.finish(job_id(1)).ok());
  REQUIRE(scheduler.resize_node(node_id(2), 16, {9000, 0}).ok());
  CHECK(scheduler.propose({.gpus = 16, .gpu_milli = 1000})->where.node == node_id(2));

  // The lowest id that is free is given first.
  REQUIRE(scheduler.mark_bad(node_id(0)).ok());
  for (const std::uint32_t n : {2U, 0U, 1U}) REQUIRE(scheduler.remove_node(node_id(n)).ok());
  CHECK(scheduler.propose({})->reason == wait_reason::never);
  CHECK(scheduler.explain({}).value() == "never: the cluster has no node");
  CHECK(scheduler.jobs_on(node_id(0)).empty());
  for (const std::uint32_t n : {0U, 1U, 2U, 3U})
    CHECK(scheduler.add_node({{1000, 1000}, n, 0}).value() == node_id(n));
  CHECK(scheduler.propose({.gpus = 1, .gpu_milli = 500})->where.node == node_id(1));
}

TEST_CASE("what was in use at create is forgotten with its node, what runs is not") {
  node_table nodes;
  const node_shape shape{{8000, 8000}, 2, 0};
  for (int n = 0; n < 2; ++n) {
    nodes.place({.cpu_milli = 3000, .memory_mib = 500, .gpus = 1, .gpu_milli = 400},
                {nodes.add(shape), 0b10});
  }
  auto scheduler = gpu_sharing_scheduler<best_fit>::create(nodes, best_fit{}).value();
  const task_request whole{.job = job_id(1), .cpu_milli = 5000, .gpus = 1, .gpu_milli = 1000};
  CHECK(scheduler.commit(whole, {node_id(1), 0b10}).code() == absl::StatusCode::kAborted);
  REQUIRE(scheduler.commit(whole, {node_id(1), 0b1}).ok());
  CHECK(scheduler.jobs_on(node_id(0)).empty());
  CHECK(scheduler.resize_node(node_id(0), 1, shape.host) ==
        absl::FailedPreconditionError(
            "node 0: GPU 1 is in use; it would have 1 GPUs, numbered from 0"));
  CHECK(scheduler.remove_node(node_id(0)).ok());
  CHECK(scheduler.remove_node(node_id(1)) ==
        absl::FailedPreconditionError("node 1: 1 job runs on it: 1"));
  REQUIRE(scheduler.finish(job_id(1)).ok());
  CHECK(scheduler.nodes() == [&] {
    node_table left = nodes;
    left.erase(node_id(0));
    return left;
  }());
  CHECK(scheduler.remove_node(node_id(1)).ok());
  // Nodes that get their ids are idle.
  node_table idle;
  for (int n = 0; n < 2; ++n) {
    CHECK(scheduler.add_node(shape).ok());
    idle.add(shape);
  }
  CHECK(scheduler.nodes() == idle);
  CHECK(scheduler.propose({.cpu_milli = 8000, .gpus = 2, .gpu_milli = 1000})->result ==
        plan_result::bind);
}

TEST_CASE("wrong calls about nodes are errors and change nothing") {
  gpu_sharing_scheduler<best_fit> scheduler = two_nodes();
  REQUIRE(scheduler.add_node({{1, 1}, 0, 0}).ok());
  REQUIRE(scheduler.remove_node(node_id(2)).ok());
  const node_table before = scheduler.nodes();
  using enum absl::StatusCode;
  const resources host{8000, 8000};
  for (const node_id none : {node_id(2), node_id(3), node_id()}) {
    CHECK(scheduler.remove_node(none).code() == kNotFound);
    CHECK(scheduler.resize_node(none, 1, host).code() == kNotFound);
    CHECK(scheduler.mark_bad(none).code() == kNotFound);
    CHECK(scheduler.mark_healthy(none).code() == kNotFound);
    CHECK(scheduler.commit({.job = job_id(1)}, {none, 0}).code() == kNotFound);
    CHECK(scheduler.recover({.job = job_id(1)}, {none, 0}).code() == kNotFound);
    CHECK(scheduler.jobs_on(none).empty());
  }
  CHECK(scheduler.add_node({host, 17, 0}).status() ==
        absl::InvalidArgumentError("a node that joins has 17 GPUs; a node can have at most 16"));
  CHECK(scheduler.add_node({host, 1, 64}).status().code() == kInvalidArgument);
  CHECK(scheduler.resize_node(node_id(0), 17, host).code() == kInvalidArgument);
  CHECK(scheduler.nodes() == before);
}

TEST_CASE("a score is replaced while tasks run") {
  node_table nodes;
  for (int n = 0; n < 2; ++n) nodes.add({{8000, 8000}, 4, 0});
  const auto gradient = [](std::uint32_t gpus) {
    return fragmentation_gradient(
        fragmentation(task_mix({{{.gpus = gpus, .gpu_milli = whole_gpu}, 1}})));
  };
  auto scheduler = fgd::create(nodes, gradient(1)).value();
  const task_request one{.job = job_id(1), .gpus = 1, .gpu_milli = 1000};
  REQUIRE(scheduler.commit(one, {node_id(1), 1}).ok());
  // With typical tasks of one GPU all nodes are alike; with those of four, node 0 is kept free.
  CHECK(scheduler.propose(one)->where.node == node_id(0));
  CHECK(scheduler.set_score(gradient(4)).ok());
  CHECK(scheduler.propose(one)->where == placement{node_id(1), 2});
  CHECK(scheduler.num_running() == 1);
  CHECK(scheduler.set_score(fragmentation_gradient(fragmentation(task_mix()))).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(scheduler.propose(one)->where.node == node_id(1));
}

TEST_CASE("suggested nodes limit a proposal") {
  gpu_sharing_scheduler<best_fit> scheduler = two_nodes();
  summary_bitset suggested(2);
  const task_request task{.gpus = 1, .gpu_milli = 1000};
  CHECK(scheduler.propose(task, suggested).value().reason == wait_reason::not_suggested);
  suggested.set(1);
  CHECK(scheduler.propose(task, suggested).value().where.node == node_id(1));
}

TEST_CASE("more kinds of request than are kept, one after the other") {
  node_table nodes;
  for (std::uint32_t i = 0; i < 20; ++i) nodes.add({{1000 * i, 8000}, 1, 0});
  auto scheduler = gpu_sharing_scheduler<best_fit>::create(std::move(nodes), best_fit{}).value();
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t cpu = 0; cpu < gpu_sharing_scheduler<best_fit>::max_kinds + 500; ++cpu) {
      const task_request task{.job = job_id(9), .cpu_milli = 10 * cpu};
      const absl::StatusOr<task_plan> plan = scheduler.propose(task);
      // The smallest node with so much CPU.
      REQUIRE(plan.ok());
      REQUIRE(plan->result == plan_result::bind);
      REQUIRE(plan->where.node.value == (10 * cpu + 999) / 1000);
      REQUIRE(scheduler.commit(task, *plan).ok());
      REQUIRE(scheduler.finish(job_id(9)).ok());
    }
  }
}

// Counts how often it scores a node.
struct counted_fit : best_fit {
  static inline int scored = 0;
  std::uint32_t score(const node_table& nodes, node_id n, const task_request& task) const noexcept {
    ++scored;
    return best_fit::score(nodes, n, task);
  }
};

TEST_CASE("the kind of request that was used longest ago makes way for a new one") {
  node_table nodes;
  nodes.add({{100'000, 8000}, 1, 0});
  using scheduler_type = gpu_sharing_scheduler<counted_fit>;
  auto scheduler = scheduler_type::create(std::move(nodes), counted_fit{}).value();
  const auto times_scored = [&](std::uint32_t cpu) {
    counted_fit::scored = 0;
    CHECK(scheduler.propose({.cpu_milli = cpu})->result == plan_result::bind);
    return counted_fit::scored;
  };
  for (std::uint32_t kind = 0; kind <= scheduler_type::max_kinds; ++kind)
    CHECK(times_scored(kind) == 1);
  CHECK(times_scored(scheduler_type::max_kinds - 1) == 0);
  CHECK(times_scored(1) == 0);
  CHECK(times_scored(0) == 1);  // the last new kind has its position
}

TEST_CASE("tasks that differ only in memory have the same cached scores, and memory still binds") {
  node_table nodes;
  for (std::uint32_t i = 0; i < 40; ++i) nodes.add({{100'000, 1000 * i}, 4, 0});
  auto scheduler =
      gpu_sharing_scheduler<counted_fit>::create(std::move(nodes), counted_fit{}).value();
  counted_fit::scored = 0;
  for (std::uint32_t memory = 0; memory < 39'000; memory += 7) {
    const task_plan plan = scheduler.propose({.cpu_milli = 10, .memory_mib = memory}).value();
    REQUIRE(plan.result == plan_result::bind);
    REQUIRE(plan.where.node.value == (memory + 999) / 1000);
  }
  CHECK(counted_fit::scored == 40);
  // The reason is that of the task's own memory.
  CHECK(scheduler.propose({.cpu_milli = 10, .memory_mib = 39'001})->reason == wait_reason::never);
  const task_request all{.job = job_id(1), .cpu_milli = 10, .memory_mib = 39'000};
  REQUIRE(scheduler.commit(all, scheduler.propose(all).value()).ok());
  CHECK(scheduler.propose(all)->reason == wait_reason::busy);
  CHECK(scheduler.propose({.cpu_milli = 10, .memory_mib = 38'000})->result == plan_result::bind);
  summary_bitset suggested(40);
  suggested.set(3);
  const task_request large{.cpu_milli = 10, .memory_mib = 20'000};
  CHECK(scheduler.propose(large, suggested)->reason == wait_reason::not_suggested);
}

TEST_CASE("a bad node that is not suggested is no reason to wait") {
  gpu_sharing_scheduler<best_fit> scheduler = two_nodes();
  REQUIRE(scheduler.mark_bad(node_id(1)).ok());
  const task_request task{.job = job_id(1), .gpus = 2, .gpu_milli = 1000};
  REQUIRE(scheduler.commit(task, scheduler.propose(task).value()).ok());
  summary_bitset suggested(2);
  suggested.set(0);
  CHECK(scheduler.propose(task, suggested).value().reason == wait_reason::busy);
  CHECK(scheduler.propose(task).value().reason == wait_reason::unhealthy);
}

TEST_CASE("random calls, good and bad, never lose or double-book anything") {
  const std::uint32_t steps = apiary_test::scaled(200000U);
  rng random(17);
  node_table nodes = apiary_test::random_nodes(random, 9);
  const node_table empty = nodes;
  auto scheduler =
      gpu_sharing_scheduler<gpu_packing>::create(std::move(nodes), gpu_packing{}).value();
  std::vector<std::uint32_t> jobs;
  for (std::uint32_t step = 0; step < steps; ++step) {
    const task_request task = apiary_test::random_task(random, random.uniform(60));
    switch (random.uniform(5)) {
      case 0:
        (void)scheduler.finish(task.job);
        break;
      case 1:
        (void)(random.uniform(3) == 0 ? scheduler.mark_bad(node_id(random.uniform(10)))
                                      : scheduler.mark_healthy(node_id(random.uniform(10))));
        break;
      case 2:
        (void)scheduler.commit(task, {node_id(random.uniform(10)), random.uniform(64)});
        break;
      default:
        if (const auto plan = scheduler.propose(task);
            plan.ok() && plan->result == plan_result::bind) {
          const bool runs = scheduler.find(task.job).has_value();
          REQUIRE(scheduler.commit(task, *plan).ok() == !runs);
        }
    }
  }
  for (std::uint32_t job = 0; job < 60; ++job) (void)scheduler.finish(job_id(job));
  for (std::uint32_t n = 0; n < 9; ++n) REQUIRE(scheduler.mark_healthy(node_id(n)).ok());
  CHECK(scheduler.num_running() == 0);
  CHECK(scheduler.nodes() == empty);
}

}  // namespace
