// apiary/tests/trace/workload_test.cpp - orders of arrival and kinds of tasks.
// SPDX-License-Identifier: MIT
#include <apiary/metric/task_mix.h>
#include <apiary/trace/workload.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

using namespace apiary;

TEST_CASE("orders of arrival have every task once") {
  const std::vector<named_task> tasks(100);
  const std::vector<std::uint32_t> order = workload::in_order(tasks);
  REQUIRE(order.size() == 100);
  for (std::uint32_t i = 0; i < 100; ++i) CHECK(order[i] == i);
  std::vector<std::uint32_t> random = workload::in_random_order(tasks, 1);
  CHECK(random != order);
  CHECK(random == workload::in_random_order(tasks, 1));
  CHECK(random != workload::in_random_order(tasks, 2));
  std::sort(random.begin(), random.end());
  CHECK(random == order);
  CHECK(workload::in_order({}).empty());
}

TEST_CASE("the kind of a task is all but its name and memory") {
  named_task task;
  task.request = {.cpu_milli = 5, .memory_mib = 6, .gpus = 2, .gpu_milli = 1000, .models = 9};
  task.spec = 3;
  const std::vector<task_kind> kinds = workload::kinds(std::vector<named_task>{task});
  REQUIRE(kinds.size() == 1);
  CHECK(kinds[0] ==
        task_kind{.cpu_milli = 5, .gpus = 2, .gpu_milli = 1000, .models = 9, .spec = 3});
}
