// apiary/tests/fgd/many_kinds_test.cpp - more kinds of request than have cached scores.
// SPDX-License-Identifier: MIT
#include "support/naive_sharing.h"
#include "support/scale.h"
#include <apiary/container/bitset.h>
#include <apiary/core/rng.h>
#include <apiary/fgd/fgd.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/model/node_table.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace {

using namespace apiary;

// Tasks that arrive in a random cluster and end. Decisions are compared with scoring every node.
struct random_play {
  rng random;
  task_mix mix = apiary_test::random_mix(random);
  fgd scheduler;
  std::vector<job_id> running{};

  random_play(std::uint32_t seed, std::uint32_t nodes)
      : random(seed),
        scheduler(fgd::create(apiary_test::random_nodes(random, nodes),
                              fragmentation_gradient(fragmentation(mix)))
                      .value()) {}
  // The plan for the task is that of scoring every node.
  task_plan expect_naive(const task_request& task) {
    const task_plan plan = scheduler.propose(task).value();
    const std::optional<placement> expected = apiary_test::naive_fgd(mix, scheduler.nodes(), task);
    REQUIRE((plan.result == plan_result::bind) == expected.has_value());
    if (expected) REQUIRE(plan.where == *expected);
    return plan;
  }
  void start(const task_request& task, const task_plan& plan) {
    if (plan.result != plan_result::bind) return;
    REQUIRE(scheduler.commit(task, plan).ok());
    running.push_back(task.job);
  }
  void end_one() {
    if (running.empty()) return;
    std::swap(running[random.uniform(static_cast<std::uint32_t>(running.size()))], running.back());
    REQUIRE(scheduler.finish(running.back()).ok());
    running.pop_back();
  }
};

TEST_CASE("with thousands of kinds every decision is that of scoring every node") {
  const std::uint32_t events = apiary_test::scaled(20'000U);
  for (std::uint32_t seed = 0; seed < 3; ++seed) {
    CAPTURE(seed);
    random_play play(seed, 70);
    rng& random = play.random;
    std::uint32_t suggested_only = 0;
    for (std::uint32_t i = 0; i < events + 600; ++i) {
      CAPTURE(i);
      task_request task = apiary_test::random_task(random, i);
      task.cpu_milli = random.uniform(12'000);
      if (task.gpus == 1 && task.gpu_milli < whole_gpu)
        task.gpu_milli = random.uniform(2) == 0 ? 250 : 600;
      const task_plan plan = play.expect_naive(task);
      if (plan.result == plan_result::bind) {
        // Without the best node the second best.
        summary_bitset others(play.scheduler.nodes().size(), true);
        others.reset(plan.where.node.value);
        node_table rest = play.scheduler.nodes();
        rest[plan.where.node].healthy = false;
        const task_plan second = play.scheduler.propose(task, others).value();
        const std::optional<placement> next = apiary_test::naive_fgd(play.mix, rest, task);
        REQUIRE((second.result == plan_result::bind) == next.has_value());
        if (next) REQUIRE(second.where == *next);
        if (!next) REQUIRE(second.reason == wait_reason::not_suggested);
        suggested_only += next ? 0U : 1U;
        // On a few nodes only.
        summary_bitset few(play.scheduler.nodes().size());
        for (std::uint32_t n = random.uniform(8); n > 0; --n) few.set(random.uniform(70));
        for (const node_id n : rest.ids())
          rest[n].healthy = play.scheduler.nodes()[n].healthy && few.test(n.value);
        const task_plan third = play.scheduler.propose(task, few).value();
        const std::optional<placement> best = apiary_test::naive_fgd(play.mix, rest, task);
        REQUIRE((third.result == plan_result::bind) == best.has_value());
        if (best) REQUIRE(third.where == *best);
        play.start(task, plan);
      }
      while (!play.running.empty() && random.uniform(9) < (play.running.size() > 200 ? 8 : 3))
        play.end_one();
    }
    if (apiary_test::scale() >= 1) CHECK(suggested_only > 0);
  }
}

TEST_CASE("on a full cluster decisions for new kinds are those of scoring every node") {
  const std::uint32_t events = apiary_test::scaled(3'000U);
  for (std::uint32_t seed = 0; seed < 2; ++seed) {
    CAPTURE(seed);
    random_play play(seed, 300);
    for (std::uint32_t i = 0; i < events + 900; ++i) {
      CAPTURE(i);
      task_request task = apiary_test::random_task(play.random, i);
      task.cpu_milli = play.random.uniform(40'000);
      task.memory_mib = seed == 0 ? 0 : 1'024 * play.random.uniform(48);
      if (seed == 0 && play.random.uniform(2) == 0)
        task = {.job = task.job, .cpu_milli = task.cpu_milli};
      play.start(task, i < 900 ? play.scheduler.propose(task).value() : play.expect_naive(task));
      if (i % 8 == 0) play.end_one();
    }
  }
}

}  // namespace
