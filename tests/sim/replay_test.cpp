// apiary/tests/sim/replay_test.cpp - a workload driven through schedulers.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/load_curves.h"
#include <apiary/fgd/baseline_scores.h>
#include <apiary/fgd/fgd.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>
#include <apiary/sim/replay.h>
#include <apiary/trace/workload.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace apiary;
using namespace example;
using namespace apiary::detail;

namespace {

// A scheduler of one node that answers in turn: placed, full, broken.
struct archetype {
  std::uint32_t asked = 0;
  std::vector<job_id> committed{};
  std::uint32_t broken_from = ~std::uint32_t{0};

  absl::StatusOr<task_plan> propose(const task_request& task) {
    const std::uint32_t now = asked++;
    CHECK(task.job == job_id(now));
    if (now >= broken_from) return absl::InternalError("broken");
    if (now % 2 == 1) return task_plan{};
    return task_plan{plan_result::bind, {node_id(now), 1}};
  }
  absl::Status commit(const task_request& task, const task_plan& plan) {
    CHECK(plan.where.node.value == task.job.value);
    committed.push_back(task.job);
    return absl::OkStatus();
  }
};

workload four_arrivals() {
  workload work;
  work.tasks.resize(2);
  work.arrivals = {1, 0, 1, 1};
  return work;
}

template <class Score>
decisions run(const synthetic_trace& trace, Score score) {
  auto scheduler = gpu_sharing_scheduler<Score>::create(trace.nodes.nodes, std::move(score));
  REQUIRE(scheduler.ok());
  auto answers = replay(*scheduler, trace.work);
  REQUIRE(answers.ok());
  return *std::move(answers);
}

}  // namespace

TEST_CASE("what fits is committed, what does not is dropped, the observer sees both") {
  archetype scheduler;
  std::size_t calls = 0;
  std::size_t placed = 0;
  const auto answers =
      replay(scheduler, four_arrivals(), [&](std::size_t done, const std::optional<placement>& p) {
        CHECK(done == ++calls);
        placed += p ? 1U : 0U;
      });
  REQUIRE(answers.ok());
  CHECK(*answers ==
        decisions{placement{node_id(0), 1}, std::nullopt, placement{node_id(2), 1}, std::nullopt});
  CHECK(scheduler.committed == std::vector<job_id>{job_id(0), job_id(2)});
  CHECK(calls == 4);
  CHECK(placed == 2);
}

TEST_CASE("another status of the scheduler ends the replay") {
  archetype scheduler;
  scheduler.broken_from = 2;
  CHECK(replay(scheduler, four_arrivals()).status().code() == absl::StatusCode::kInternal);
  CHECK(scheduler.asked == 3);
}

TEST_CASE("an arrival of no task is found before the first decision") {
  archetype scheduler;
  workload work = four_arrivals();
  work.arrivals[2] = 2;
  const absl::Status status = replay(scheduler, work).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(status.message() == "arrival 3 names task 2; there are 2, numbered from 0");
  CHECK(scheduler.asked == 0);
}

TEST_CASE("the same inputs twice give the same decisions and curves") {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    CAPTURE(seed);
    const synthetic_trace first = openb_like({.seed = seed, .nodes = 100});
    const synthetic_trace second = openb_like({.seed = seed, .nodes = 100});
    const task_mix mix = task_mix::from_history(workload::kinds(first.work.tasks));
    const auto fgd_of = [&](const synthetic_trace& t) {
      return run(t, fragmentation_gradient(fragmentation(mix)));
    };
    const decisions answers = fgd_of(first);
    CHECK(answers == fgd_of(second));
    CHECK(run(first, random_fit(seed)) == run(second, random_fit(seed)));
    CHECK(run(first, random_fit(seed)) != run(first, random_fit(seed + 1)));
    const auto curves = [&](const synthetic_trace& t) {
      const auto samples = trace_load(t.nodes.nodes, fragmentation(mix), t.work, answers);
      REQUIRE(samples.ok());
      return curves_of(*samples, t.nodes.nodes.total_gpus()).csv("fgd");
    };
    CHECK(curves(first) == curves(second));
  }
}

TEST_CASE("on the synthetic trace FGD allocates most and random placement least") {
  const synthetic_trace trace = openb_like({.seed = 5, .nodes = 400});
  const task_mix mix = task_mix::from_history(workload::kinds(trace.work.tasks));
  const auto allocated = [&](const decisions& answers) {
    const auto samples = trace_load(trace.nodes.nodes, fragmentation(mix), trace.work, answers);
    REQUIRE(samples.ok());
    return samples->back().used;
  };
  const std::uint64_t most = allocated(run(trace, fragmentation_gradient(fragmentation(mix))));
  const std::uint64_t least = allocated(run(trace, random_fit(1)));
  for (const std::uint64_t between :
       {allocated(run(trace, best_fit())), allocated(run(trace, dot_prod())),
        allocated(run(trace, gpu_packing())), allocated(run(trace, gpu_clustering()))}) {
    CHECK(between < most);
    CHECK(between > least);
  }
}
