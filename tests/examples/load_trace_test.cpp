// apiary/tests/examples/load_trace_test.cpp - decisions carried out, and those that cannot be.
// SPDX-License-Identifier: MIT
#include "../../examples/programs/load_curves.h"
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/sim/replay.h>
#include <apiary/trace/workload.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

using namespace apiary;
using example::load_sample;
using example::trace_load;

namespace {

workload three_halves() {
  workload work;
  work.tasks.push_back({.name = "half", .request = {.cpu_milli = 1, .gpus = 1, .gpu_milli = 500}});
  work.tasks.push_back({.name = "cpu", .request = {.cpu_milli = 1}});
  work.arrivals = {0, 1, 0, 0};
  return work;
}

node_table two_nodes() {
  node_table nodes;
  nodes.add({.host = {10, 10}, .gpus = 1});
  nodes.add({.host = {10, 10}, .gpus = 1});
  return nodes;
}

const task_mix whole_gpus({{{.cpu_milli = 1, .gpus = 1, .gpu_milli = 1000}, 1}});

}  // namespace

TEST_CASE("used is what was placed, arrived is what was asked") {
  const decisions answers{placement{node_id(0), 1}, placement{node_id(0), 0}, std::nullopt,
                          placement{node_id(1), 1}};
  const auto samples = trace_load(two_nodes(), fragmentation(whole_gpus), three_halves(), answers);
  REQUIRE(samples.ok());
  // A device of which half is taken is of no use to tasks that want it whole.
  const std::vector<load_sample> expected{
      {500, 500, 500.0}, {500, 500, 500.0}, {1000, 500, 500.0}, {1500, 1000, 1000.0}};
  CHECK(*samples == expected);
}

TEST_CASE("an arrival of no task is named") {
  workload work = three_halves();
  work.arrivals[3] = 4294967295U;
  const decisions answers(4);
  const auto samples = trace_load(two_nodes(), fragmentation(whole_gpus), work, answers);
  CHECK(samples.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(samples.status().message() ==
        "arrival 4 names task 4294967295; there are 2, numbered from 0");
}

TEST_CASE("a decision that cannot be carried out is named") {
  for (const placement wrong : {placement{node_id(0), 1}, placement{node_id(0), 2},
                                placement{node_id(2), 1}, placement{node_id(), 1}}) {
    const decisions answers{placement{node_id(0), 1}, std::nullopt, placement{node_id(0), 1},
                            wrong};
    const auto samples =
        trace_load(two_nodes(), fragmentation(whole_gpus), three_halves(), answers);
    CHECK(samples.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(std::string(samples.status().message()).starts_with("arrival 4, task half: node "));
  }
}

TEST_CASE("more answers than arrivals are refused") {
  const auto samples =
      trace_load(two_nodes(), fragmentation(whole_gpus), three_halves(), decisions(5));
  CHECK(samples.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(samples.status().message() == "5 answers for 4 arrivals");
}
