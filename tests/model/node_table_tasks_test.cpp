// apiary/tests/model/node_table_tasks_test.cpp - taking and giving of devices and host resources.
// SPDX-License-Identifier: MIT
#include "support/naive_sharing.h"
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/model/node_table.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace {

using namespace apiary;

node_table one_node() {
  node_table nodes;
  nodes.add({{8000, 4096}, 4, 1});
  return nodes;
}

TEST_CASE("a task fits if everything it asks for is there") {
  node_table nodes = one_node();
  const node_id n(0);
  nodes[n].gpu_left = {400, 1000, 700, 1000};
  CHECK(nodes[n].fits(
      task_request{.cpu_milli = 8000, .memory_mib = 4096, .gpus = 2, .gpu_milli = 1000}));
  CHECK_FALSE(nodes[n].fits(task_request{.gpus = 3, .gpu_milli = 1000}));
  CHECK_FALSE(nodes[n].fits(task_request{.cpu_milli = 8001}));
  CHECK_FALSE(nodes[n].fits(task_request{.memory_mib = 4097}));
  CHECK_FALSE(nodes[n].fits(task_request{.gpus = 1, .gpu_milli = 100, .models = 1}));
  CHECK(nodes[n].fits(task_request{.gpus = 1, .gpu_milli = 100, .models = 3}));
  CHECK(nodes[n].fits(task_request{.models = 1}));  // no GPU asked for: any node
  nodes[n].gpu_left = {400, 300, 700, 0};
  CHECK(nodes[n].fits(task_request{.gpus = 1, .gpu_milli = 700}));
  CHECK_FALSE(nodes[n].fits(task_request{.gpus = 1, .gpu_milli = 701}));
  nodes[n].healthy = false;
  CHECK_FALSE(nodes[n].fits(task_request{}));
}

TEST_CASE("devices are chosen by the documented rules") {
  node_table nodes = one_node();
  node_state& node = nodes[node_id(0)];
  node.gpu_left = {400, 1000, 300, 1000};
  CHECK(node.first_free_gpus(0) == 0);
  CHECK(node.first_free_gpus(1) == 0b0010);
  CHECK(node.first_free_gpus(2) == 0b1010);
  CHECK(node.tightest_gpu(300) == 0b0100);
  CHECK(node.tightest_gpu(301) == 0b0001);
  CHECK(node.tightest_gpu(401) == 0b0010);
  node.gpu_left = {400, 400, 300, 1000};
  CHECK(node.tightest_gpu(350) == 0b0001);  // the lowest-numbered of equals
}

TEST_CASE("a placement that does not suit is refused, whatever it is") {
  const node_table nodes = one_node();
  const task_request two{.gpus = 2, .gpu_milli = 1000};
  CHECK(nodes.can_place(two, {node_id(0), 0b1001}));
  CHECK_FALSE(nodes.can_place(two, {node_id(0), 0b0001}));
  CHECK_FALSE(nodes.can_place(two, {node_id(0), 0b0111}));
  CHECK_FALSE(nodes.can_place(two, {node_id(0), 0b10001}));
  CHECK_FALSE(nodes.can_place(two, {node_id(0), 0x80000001}));
  CHECK_FALSE(nodes.can_place(two, {node_id(1), 0b0011}));
  CHECK_FALSE(nodes.can_place(two, {node_id(), 0b0011}));
  CHECK_FALSE(nodes.can_place(task_request{.cpu_milli = 1}, {node_id(0), 0b0001}));
  CHECK(nodes.can_place(task_request{.cpu_milli = 1}, {node_id(0), 0}));
  // A device that no node can have lies where the table keeps other things.
  node_table large;
  const node_id n = large.add({{8000, 4096}, 8, 3});
  for (std::uint32_t device = 0; device < 32; ++device) {
    CAPTURE(device);
    CHECK(large.can_place(task_request{.gpus = 1, .gpu_milli = 1}, {n, 1U << device}) ==
          (device < 8));
  }
  node_table used = nodes;
  used[node_id(0)].gpu_left[3] = 999;
  CHECK_FALSE(used.can_place(two, {node_id(0), 0b1001}));
}

TEST_CASE("what is given back in any order leaves the table as it was") {
  rng random(7);
  node_table nodes = apiary_test::random_nodes(random, 5);
  const node_table before = nodes;
  struct taken {
    task_request task;
    placement where;
  };
  std::vector<taken> running;
  const std::uint32_t steps = apiary_test::scaled(200000U);
  for (std::uint32_t step = 0; step < steps; ++step) {
    const task_request task = apiary_test::random_task(random, step);
    const node_id n(random.uniform(nodes.size()));
    if (nodes[n].fits(task) && random.uniform(4) != 0) {
      std::uint32_t devices = 0;
      if (task.wants_whole_gpus()) devices = nodes[n].first_free_gpus(task.gpus);
      if (task.wants_part_of_gpu()) devices = nodes[n].tightest_gpu(task.gpu_milli);
      REQUIRE(nodes.can_place(task, {n, devices}));
      const std::uint32_t gpu_left = nodes[n].total_gpu_left();
      nodes.place(task, {n, devices});
      REQUIRE(nodes[n].total_gpu_left() + task.total_gpu_milli() == gpu_left);
      running.push_back({task, {n, devices}});
    } else if (!running.empty()) {
      const std::uint32_t i = random.uniform(static_cast<std::uint32_t>(running.size()));
      nodes.remove(running[i].task, running[i].where);
      running[i] = running.back();
      running.pop_back();
    }
  }
  random.shuffle(running);
  for (const taken& t : running) nodes.remove(t.task, t.where);
  CHECK(nodes == before);
}

}  // namespace
