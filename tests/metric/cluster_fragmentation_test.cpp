// apiary/tests/metric/cluster_fragmentation_test.cpp - the incremental sum against the recomputed
// one.
// SPDX-License-Identifier: MIT
#include "support/naive_sharing.h"
#include "support/scale.h"
#include <apiary/alloc/fraction_pool.h>
#include <apiary/core/rng.h>
#include <apiary/metric/cluster_fragmentation.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace {

using namespace apiary;

TEST_CASE("the sum stays exact over a million commits and rollbacks") {
  struct taken {
    share task;
    placement where;
  };
  const std::uint32_t steps = apiary_test::scaled(1000000U);
  rng random(11);
  const task_mix mix = apiary_test::random_mix(random);
  node_table nodes = apiary_test::random_nodes(random, 12);
  const std::uint64_t at_first = cluster_fragmentation(fragmentation(mix), nodes).weighted_total();
  cluster_fragmentation sum{fragmentation(mix), nodes};
  std::vector<taken> running;
  std::uint32_t changes = 0;
  for (std::uint32_t job = 0; changes < steps; ++job) {
    const share task = apiary_test::random_task(random, job);
    const node_id n(random.uniform(nodes.size()));
    if (fits(task, nodes[n])) {
      std::uint32_t devices = 0;
      if (task.wants_whole_gpus()) devices = first_free_devices(nodes[n], task.devices);
      if (task.wants_part_of_gpu()) devices = tightest_device(nodes[n], task.gpu_milli);
      running.push_back({task, {n, devices}});
      take(nodes, task, running.back().where);
      sum.update(nodes, n);
      ++changes;
      REQUIRE(sum.weighted_total() == sum.recompute(nodes));
    }
    // Sometimes the last few are rolled back in reverse order, sometimes an old one departs.
    std::uint32_t undo = random.uniform(6) == 0 ? random.uniform(8) : 0;
    if (running.size() > 40) undo = 20;
    for (; undo > 0 && !running.empty(); --undo) {
      if (random.uniform(10) == 0) {
        std::swap(running.back(),
                  running[random.uniform(static_cast<std::uint32_t>(running.size()))]);
      }
      give(nodes, running.back().task, running.back().where);
      sum.update(nodes, running.back().where.node);
      running.pop_back();
      ++changes;
      REQUIRE(sum.weighted_total() == sum.recompute(nodes));
    }
  }
  std::uint64_t by_definition = 0;
  for (const node_id n : nodes.ids())
    by_definition += apiary_test::weighted_fragmentation(mix, nodes[n]);
  CHECK(sum.weighted_total() == by_definition);
  while (!running.empty()) {
    give(nodes, running.back().task, running.back().where);
    sum.update(nodes, running.back().where.node);
    running.pop_back();
  }
  CHECK(sum.weighted_total() == at_first);
}

TEST_CASE("the total is in thousandths of GPUs") {
  node_table nodes;
  nodes.add({{1000, 0}, 2, 0});
  nodes.add({{4000, 0}, 1, 0});
  const cluster_fragmentation sum(
      fragmentation(task_mix({{{.cpu_milli = 4000, .gpu_milli = 500, .devices = 1}, 7}})), nodes);
  CHECK(sum.total() == 2000);
  CHECK(sum.weighted_total() == 14000);
  CHECK(cluster_fragmentation(fragmentation(task_mix()), nodes).total() == 0);
}

}  // namespace
