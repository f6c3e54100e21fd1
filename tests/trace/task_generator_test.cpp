// apiary/tests/trace/task_generator_test.cpp - synthetic traces have the marginals that they should have.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/model/node_table.h>
#include <apiary/trace/workload.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace apiary;

TEST_CASE("1213 nodes have the shapes of the openb cluster") {
  const synthetic_trace trace = openb_like({});
  CHECK(trace.nodes.nodes.size() == 1213);
  CHECK(trace.nodes.nodes.total_gpus() == 6212);
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> by_cpu_and_gpus;
  for (const node_id n : trace.nodes.nodes.ids()) {
    const node_shape& shape = trace.nodes.nodes.shape(n);
    ++by_cpu_and_gpus[{shape.host.cpu_milli, shape.gpus}];
  }
  CHECK(by_cpu_and_gpus[{104000, 2}] == 387);
  CHECK(by_cpu_and_gpus[{96000, 8}] == 549 + 21);
  CHECK(by_cpu_and_gpus[{128000, 1}] == 2);
  CHECK(trace.nodes.names[node_id(0)] == "node-0000");
}

TEST_CASE("tasks ask for the load and are of the kinds in their frequency") {
  const synthetic_trace trace = openb_like({.seed = 9, .load_percent = 200});
  std::uint64_t asked = 0;
  double cpu = 0.0;
  std::size_t most_frequent = 0;
  std::size_t without_gpu = 0;
  for (const named_task& task : trace.work.tasks) {
    CHECK(task.request.valid());
    asked += task.request.total_gpu_milli();
    cpu += task.request.cpu_milli;
    without_gpu += task.request.gpus == 0 ? 1U : 0U;
    most_frequent += task.request.cpu_milli == 3152 && task.request.gpu_milli == 810 ? 1U : 0U;
  }
  const std::uint64_t wanted = std::uint64_t{6212} * 1000 * 2;
  CHECK(asked >= wanted);
  CHECK(asked < wanted + 8000);
  const auto n = static_cast<double>(trace.work.tasks.size());
  CHECK(static_cast<double>(most_frequent) / n == doctest::Approx(1047.0 / 7585).epsilon(0.05));
  CHECK(static_cast<double>(without_gpu) / n == doctest::Approx(1026.0 / 7585).epsilon(0.05));
  CHECK(cpu / static_cast<double>(asked) == doctest::Approx(13.96).epsilon(0.02));
  CHECK(trace.work.arrivals == workload::in_order(trace.work.tasks));
  CHECK(trace.work.tasks[0].name == "task-00000");
}

TEST_CASE("the last task is the first with which the tasks ask for the load") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    for (std::uint32_t load = 10; load < 40; ++load) {
      const synthetic_trace trace = openb_like({.seed = seed, .nodes = 2, .load_percent = load});
      std::uint64_t before = 0;
      for (const named_task& task : trace.work.tasks) before += task.request.total_gpu_milli();
      const std::uint64_t wanted = trace.nodes.nodes.total_gpus() * 10 * load;
      REQUIRE(before >= wanted);
      before -= trace.work.tasks.back().request.total_gpu_milli();
      REQUIRE(before < wanted);
    }
  }
}

TEST_CASE("any number of nodes keeps the proportions") {
  for (const std::uint32_t nodes : {1U, 2U, 10U, 5000U}) {
    const synthetic_trace trace = openb_like({.nodes = nodes});
    CHECK(trace.nodes.nodes.size() == nodes);
    CHECK(trace.nodes.names.size() == nodes);
  }
  const double per_node =
      static_cast<double>(openb_like({.nodes = 5000}).nodes.nodes.total_gpus()) / 5000;
  CHECK(per_node == doctest::Approx(6212.0 / 1213).epsilon(0.01));
}

TEST_CASE("the seed is all that matters") {
  const auto names_and_sizes = [](std::uint64_t seed) {
    const synthetic_trace trace = openb_like({.seed = seed, .nodes = 50});
    std::vector<std::uint32_t> all;
    for (const node_id n : trace.nodes.nodes.ids()) {
      all.push_back(trace.nodes.nodes.shape(n).host.memory_mib);
    }
    for (const named_task& task : trace.work.tasks) all.push_back(task.request.memory_mib);
    return all;
  };
  CHECK(names_and_sizes(1) == names_and_sizes(1));
  CHECK(names_and_sizes(1) != names_and_sizes(2));
}
