// apiary/tests/gang_scheduler/gang_placer_test.cpp - jobs with CPU and priorities, under any queue.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_placer.h>
#include <apiary/model/job.h>
#include <apiary/queue/job_queue.h>
#include <apiary/queue/orders.h>
#include <apiary/queue/reservations.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

using namespace apiary;

namespace {

// Two nodes of four GPUs and eight cores; a third one has a taint.
gang_cluster placer_nodes() {
  gang_cluster cluster;
  for (const char* name : {"n0", "n1", "n2"})
    cluster.nodes.push_back({.name = name, .gpus = 4, .host = {8000, 1000}});
  cluster.nodes[2].taints = {"broken"};
  return cluster;
}

}  // namespace

TEST_CASE("gang_placer: the CPU of a job counts, and tasks are smaller if they must be") {
  gang_placer_options options;
  options.demands.resize(2);
  options.demands[1].per_gpu = {4000, 0};
  gang_placer placer = gang_placer::create(placer_nodes(), options).value();
  CHECK(placer.total_gpus() == 12);
  CHECK(placer.idle_gpus() == 8);
  CHECK(placer.check({.job = job_id(1), .gpus = 8}).ok());
  CHECK(placer.check({.job = job_id(1), .gpus = 0}).code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(placer.check({.job = job_id(1), .gpus = 5, .demand = 1}).message()) ==
        "job 1 asks for 5 GPUs with 4 cores each, which do not fit even in the idle cluster; each "
        "task, even of 1 GPU, must run on one node with its CPU and memory");
  const job_request four{.job = job_id(1), .gpus = 4, .demand = 1};  // two tasks of two GPUs
  const job_placement where = placer.propose(four).value().value();
  REQUIRE(where.size() == 2);
  REQUIRE(placer.commit(four, where).ok());
  CHECK(placer.idle_gpus() == 4);
  const job_request one{.job = job_id(2), .gpus = 1, .demand = 1};  // no core is left
  CHECK(!placer.propose(one).value());
  CHECK(placer.commit(one, {{where[0].node, 8}}).code() == absl::StatusCode::kAborted);
  REQUIRE(placer.finish(job_id(1)).ok());
  CHECK(placer.commit(one, {{where[0].node, 8}}).ok());
  REQUIRE(placer.mark_bad(node_id(2)).ok());
  CHECK(placer.idle_gpus() == 7);
  REQUIRE(placer.mark_healthy(node_id(2)).ok());
  CHECK(placer.idle_gpus() == 7);
  CHECK(placer.jobs_on(where[0].node) == std::vector{job_id(2)});
}

TEST_CASE("gang_placer: under a job_queue a job suspends jobs of lower priority, if it is to") {
  for (const bool preempts : {true, false}) {
    CAPTURE(preempts);
    job_queue queue(gang_placer::create(placer_nodes(), {.preempts = preempts}).value(),
                    priority_order(), no_backfill());
    std::vector<job_action> actions;
    REQUIRE(queue.submit({.job = job_id(1), .gpus = 8}, 0).ok());
    REQUIRE(queue.decide(0, actions).ok());
    REQUIRE(queue.submit({.job = job_id(2), .priority = 5, .gpus = 3}, 5).ok());
    REQUIRE(queue.submit({.job = job_id(3), .priority = 7, .gpus = 4}, 6).ok());
    REQUIRE(queue.decide(6, actions).ok());
    std::vector<std::uint32_t> jobs;
    for (const job_action& a : actions) jobs.push_back(a.job.value);
    CHECK(jobs ==
          (preempts ? std::vector<std::uint32_t>{1, 1, 3, 2} : std::vector<std::uint32_t>{1}));
    CHECK(queue.num_waiting() == (preempts ? 1U : 2U));
  }
}
