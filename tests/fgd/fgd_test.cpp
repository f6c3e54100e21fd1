// apiary/tests/fgd/fgd_test.cpp - FGD against its definition, decision by decision.
// SPDX-License-Identifier: MIT
#include "support/naive_sharing.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/fgd/fgd.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace {

using namespace apiary;

TEST_CASE("every decision is that of scoring every node from scratch") {
  const std::uint32_t rounds = apiary_test::scaled(100U);
  for (std::uint32_t seed = 0; seed < rounds; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const task_mix mix = apiary_test::random_mix(random);
    node_table nodes = apiary_test::random_nodes(random, 1 + random.uniform(40));
    fgd scheduler = fgd::create(nodes, fragmentation_gradient(fragmentation(mix))).value();
    std::vector<task_request> kinds;
    for (std::uint32_t i = 0; i < 15; ++i) kinds.push_back(apiary_test::random_task(random, 0));
    std::vector<std::pair<task_request, placement>> running;
    for (std::uint32_t job = 0; job < 300; ++job) {
      CAPTURE(job);
      task_request task = kinds[random.uniform(15)];
      task.job = job_id(job);
      const std::optional<placement> expected = apiary_test::naive_fgd(mix, nodes, task);
      const absl::StatusOr<task_plan> plan = scheduler.propose(task);
      REQUIRE(plan.ok());
      REQUIRE((plan->result == plan_result::bind) == expected.has_value());
      if (expected) {
        REQUIRE(plan->where == *expected);
        REQUIRE(scheduler.commit(task, *plan).ok());
        nodes.place(task, plan->where);
        running.push_back({task, plan->where});
      }
      if (random.uniform(4) == 0 && !running.empty()) {
        const std::uint32_t i = random.uniform(static_cast<std::uint32_t>(running.size()));
        REQUIRE(scheduler.finish(running[i].first.job).ok());
        nodes.remove(running[i].first, running[i].second);
        running[i] = running.back();
        running.pop_back();
      }
      REQUIRE(scheduler.nodes() == nodes);
    }
  }
}

TEST_CASE("half devices are put together, whole ones are kept for whole tasks") {
  node_table nodes;
  for (int i = 0; i < 2; ++i) nodes.add({{96000, 4096}, 2, 0});
  const task_mix mix({{{.cpu_milli = 4000, .gpus = 1, .gpu_milli = 500}, 6},
                      {{.cpu_milli = 8000, .gpus = 1, .gpu_milli = 1000}, 4}});
  fgd scheduler = fgd::create(std::move(nodes), fragmentation_gradient(fragmentation(mix))).value();
  const auto place = [&](std::uint32_t job, milli_gpu milli) {
    const task_request task{.job = job_id(job), .cpu_milli = 4000, .gpus = 1, .gpu_milli = milli};
    const task_plan plan = scheduler.propose(task).value();
    REQUIRE(scheduler.commit(task, plan).ok());
    return plan.where;
  };
  CHECK(place(0, 500) == placement{node_id(0), 1});
  CHECK(place(1, 1000) == placement{node_id(0), 2});
  CHECK(place(2, 500) == placement{node_id(0), 1});
  CHECK(place(3, 1000).node == node_id(1));
}

}  // namespace
