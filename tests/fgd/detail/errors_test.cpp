// apiary/tests/fgd/detail/errors_test.cpp - errors name the thing, the value and the limit.
// SPDX-License-Identifier: MIT
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/fgd/detail/errors.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <string>

using namespace apiary;

TEST_CASE("request_checks: a task is a fraction of one GPU, or whole GPUs") {
  CHECK(detail::check_task({.gpus = 1, .gpu_milli = 1}).ok());
  CHECK(detail::check_task({.gpus = 1, .gpu_milli = 1000}).ok());
  CHECK(detail::check_task({.gpus = 16, .gpu_milli = 1000}).ok());
  const absl::Status two_halves =
      detail::check_task({.job = job_id(7), .gpus = 2, .gpu_milli = 500});
  CHECK(two_halves.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(two_halves.message()).starts_with("job 7: 2 GPUs with 500/1000 of each; "));
  const absl::Status too_much = detail::check_task("task group 3", {.gpus = 1, .gpu_milli = 1001});
  CHECK(std::string(too_much.message()).starts_with("task group 3: 1 GPU with 1001/1000"));
}

TEST_CASE("request_checks: one bit for each node") {
  CHECK(detail::check_suggested(summary_bitset(4), 4).ok());
  const absl::Status status = detail::check_suggested(summary_bitset(5), 4);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(status.message()) == "suggested nodes: 5 bits for 4 nodes");
}

TEST_CASE("request_checks: the state of a node is within its shape") {
  node_table nodes;
  CHECK(detail::check_nodes(nodes).code() == absl::StatusCode::kInvalidArgument);
  for (int i = 0; i < 3; ++i)
    nodes.add({.host = {.cpu_milli = 100, .memory_mib = 10}, .gpus = 2, .model = 1});
  CHECK(detail::check_nodes(nodes).ok());
  const auto fault = [&](auto&& change) {
    node_table wrong = nodes;
    change(wrong[node_id(2)]);
    const absl::Status status = detail::check_nodes(wrong);
    CHECK((status.ok() || status.code() == absl::StatusCode::kInvalidArgument));
    return std::string(status.message());
  };
  CHECK(fault([](node_state& n) { n.left.cpu_milli = 0; }) == "");
  CHECK(fault([](node_state& n) { n.gpu_left[1] = 0; }) == "");
  CHECK(fault([](node_state& n) { n.left.cpu_milli = 101; }) ==
        "node 2: 101 thousandths of a core are left; the shape has 100");
  CHECK(fault([](node_state& n) { n.left.memory_mib = 11; }) ==
        "node 2: 11 MiB of memory are left; the shape has 10");
  CHECK(fault([](node_state& n) { n.gpus = 1; }) ==
        "node 2: the state has 1 GPUs; the shape has 2");
  CHECK(fault([](node_state& n) { n.model = 0; }) ==
        "node 2: the state has GPU model 0; the shape has 1");
  CHECK(fault([](node_state& n) { n.gpu_left[1] = 1001; }) ==
        "node 2: 1001/1000 of GPU 1 are left; a GPU has at most 1000/1000");
  CHECK(fault([](node_state& n) { n.gpu_left[2] = 1; }) ==
        "node 2: 1/1000 of GPU 2 are left; the shape has 2 GPUs, numbered from 0");
}

TEST_CASE("request_checks: what cannot be committed") {
  CHECK(detail::runs_already(job_id(4)) == absl::AlreadyExistsError("job 4 runs already"));
  CHECK(detail::does_not_run(job_id(4)) == absl::NotFoundError("job 4 does not run"));
  CHECK(detail::no_such_node(node_id(9)) == absl::NotFoundError("there is no node 9"));
  CHECK(detail::no_such_node(node_id()) == absl::NotFoundError("no node id"));
  CHECK(detail::no_such_node(job_id(4), node_id(9)) ==
        absl::NotFoundError("job 4: there is no node 9"));
}

TEST_CASE("request_checks: what of a placement is not free") {
  node_table nodes;
  nodes.add({});
  const node_id n =
      nodes.add({.host = {.cpu_milli = 100, .memory_mib = 10}, .gpus = 3, .model = 2});
  nodes.place({.cpu_milli = 40, .memory_mib = 3, .gpus = 1, .gpu_milli = 700}, {n, 0b10});
  const auto fault = [&](task_request task, std::uint32_t gpu_mask) {
    task.job = job_id(4);
    REQUIRE(!nodes.is_free(task, {n, gpu_mask}));
    const absl::Status status = detail::not_free(nodes, task, {n, gpu_mask});
    CHECK(status.code() == absl::StatusCode::kAborted);
    return std::string(status.message());
  };
  const task_request two{.gpus = 2, .gpu_milli = 1000};
  CHECK(fault(two, 0b1) == "job 4: node 1: the placement has 1 GPUs; the task requests 2");
  CHECK(fault(two, 0b1001) == "job 4: node 1 has 3 GPUs, numbered from 0; the placement has GPU 3");
  CHECK(fault(two, 0b11) == "job 4: node 1 has 300/1000 of GPU 1 left; the task requests 1000");
  CHECK(fault({.gpus = 1, .gpu_milli = 301}, 0b10) ==
        "job 4: node 1 has 300/1000 of GPU 1 left; the task requests 301");
  CHECK(fault({.gpus = 1, .gpu_milli = 1, .models = 0b11}, 0b10) ==
        "job 4: node 1 has GPU model 2, which the task does not accept");
  CHECK(fault({.cpu_milli = 61}, 0) ==
        "job 4: node 1 has 60 thousandths of a core left; the task requests 61");
  CHECK(fault({.memory_mib = 8}, 0) ==
        "job 4: node 1 has 7 MiB of memory left; the task requests 8");
}

TEST_CASE("request_checks: a node that would be too small for what is in use") {
  node_table nodes;
  const node_id n = nodes.add({.host = {.cpu_milli = 100, .memory_mib = 10}, .gpus = 3});
  nodes.place({.cpu_milli = 40, .memory_mib = 3, .gpus = 1, .gpu_milli = 700}, {n, 0b10});
  const auto fault = [&](const node_shape& shape) {
    REQUIRE(!nodes.can_resize(n, shape));
    const absl::Status status = detail::uses_more(nodes, n, shape);
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  CHECK(fault({{39, 10}, 3}) == "node 0: 40 thousandths of a core are in use; it would have 39");
  CHECK(fault({{40, 2}, 3}) == "node 0: 3 MiB of memory are in use; it would have 2");
  CHECK(fault({{40, 3}, 1}) == "node 0: GPU 1 is in use; it would have 1 GPUs, numbered from 0");
}
