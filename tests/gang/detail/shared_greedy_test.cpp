// apiary/tests/gang/detail/shared_greedy_test.cpp - tasks that share GPUs, the largest first.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/gang/detail/shared_capacity.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>

#include <doctest/doctest.h>

#include <cstdint>

using namespace apiary;
using namespace apiary::detail;

TEST_CASE("shared_greedy: the largest tasks first, each on the first node that holds it") {
  node_table nodes;
  for (const milli_gpu used : {milli_gpu{400}, milli_gpu{600}}) {
    const node_id n = nodes.add({{1000, 1000}, 1, 0});
    nodes.place({.gpus = 1, .gpu_milli = used}, {n, 1});
  }
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 1, .gpu_milli = 400},
                 {.tasks = 1, .gpus = 1, .gpu_milli = 600}};
  shared_greedy greedy;
  step_budget steps(100);
  REQUIRE(greedy(nodes, 0, 2, gang, steps));
  REQUIRE(greedy.placed().size() == 2);
  CHECK(greedy.placed()[0].group == 1);
  CHECK(greedy.placed()[0].where == placement{node_id(0), 1});
  CHECK(greedy.placed()[1].where == placement{node_id(1), 1});
  const auto cost = [](const node_state& before, const node_state& after) {
    return std::int64_t{before.total_gpu_left()} - after.total_gpu_left();
  };
  CHECK(greedy.cost(nodes, cost) == 1000);
}
