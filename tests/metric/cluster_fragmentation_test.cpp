// apiary/tests/metric/cluster_fragmentation_test.cpp - the incremental sum against the recomputed
// one.
// SPDX-License-Identifier: MIT
#include "support/naive_sharing.h"
#include "support/scale.h"
#include <apiary/alloc/journal.h>
#include <apiary/core/rng.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/model/node_table.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace {

using namespace apiary;

struct taken {
  task_request task;
  placement where;
};

placement place_on(const node_table& nodes, node_id n, const task_request& task) {
  if (task.wants_whole_gpus()) return {n, nodes[n].first_free_gpus(task.gpus)};
  if (task.wants_part_of_gpu()) return {n, nodes[n].tightest_gpu(task.gpu_milli)};
  return {n, 0};
}

void refresh(cluster_fragmentation& sum, const node_table* nodes, node_id n) {
  sum.update(*nodes, n);
}

TEST_CASE("the sum stays exact over a million commits and rollbacks") {
  const std::uint32_t steps = apiary_test::scaled(1000000U);
  rng random(11);
  const task_mix mix = apiary_test::random_mix(random);
  node_table nodes = apiary_test::random_nodes(random, 12);
  const node_table nodes_at_first = nodes;
  cluster_fragmentation sum{fragmentation(mix), nodes};
  const std::uint64_t at_first = sum.weighted_total();
  std::vector<taken> running;
  journal log;
  std::uint32_t changes = 0;
  const auto changed = [&] {
    ++changes;
    REQUIRE(sum.weighted_total() == cluster_fragmentation(sum.metric(), nodes).weighted_total());
  };
  // A few changes at a time, of which a third are taken back.
  for (std::uint32_t job = 0; changes < steps;) {
    const node_table nodes_before = nodes;
    const std::uint64_t sum_before = sum.weighted_total();
    const std::vector<taken> running_before = running;
    transaction tx(log);
    std::uint32_t made = 0;
    const std::uint32_t tries = 1 + random.uniform(8);
    for (std::uint32_t i = 0; i < tries; ++i) {
      const task_request task = apiary_test::random_task(random, job++);
      const node_id n(random.uniform(nodes.size()));
      if (nodes[n].fits(task) && running.size() < 40) {
        running.push_back({task, place_on(nodes, n, task)});
        tx.on_rollback<&refresh>(sum, static_cast<const node_table*>(&nodes), n);
        tx.place(nodes, task, running.back().where);
        sum.update(nodes, n);
      } else if (!running.empty()) {
        std::swap(running.back(),
                  running[random.uniform(static_cast<std::uint32_t>(running.size()))]);
        const taken gone = running.back();
        running.pop_back();
        tx.on_rollback<&refresh>(sum, static_cast<const node_table*>(&nodes), gone.where.node);
        tx.remove(nodes, gone.task, gone.where);
        sum.update(nodes, gone.where.node);
      } else {
        continue;
      }
      ++made;
      changed();
    }
    if (random.uniform(3) != 0) {
      tx.commit();
      continue;
    }
    tx.rollback();
    changes += made;
    running = running_before;
    REQUIRE(nodes == nodes_before);
    REQUIRE(sum.weighted_total() == sum_before);
    REQUIRE(sum.weighted_total() == cluster_fragmentation(sum.metric(), nodes).weighted_total());
  }
  std::uint64_t by_definition = 0;
  for (const node_id n : nodes.ids())
    by_definition += apiary_test::weighted_fragmentation(mix, nodes[n]);
  CHECK(sum.weighted_total() == by_definition);
  for (const taken& t : running) {
    nodes.remove(t.task, t.where);
    sum.update(nodes, t.where.node);
  }
  CHECK(nodes == nodes_at_first);
  CHECK(sum.weighted_total() == at_first);
}

TEST_CASE("the total is in thousandths of GPUs") {
  node_table nodes;
  nodes.add({{1000, 0}, 2, 0});
  nodes.add({{4000, 0}, 1, 0});
  const cluster_fragmentation sum(
      fragmentation(task_mix({{{.cpu_milli = 4000, .gpus = 1, .gpu_milli = 500}, 7}})), nodes);
  CHECK(sum.total() == 2000);
  CHECK(sum.weighted_total() == 14000);
  CHECK(cluster_fragmentation(fragmentation(task_mix()), nodes).total() == 0);
}

}  // namespace
