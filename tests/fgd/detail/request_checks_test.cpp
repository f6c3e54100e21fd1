// apiary/tests/fgd/detail/request_checks_test.cpp - errors name the thing, the value and the limit.
// SPDX-License-Identifier: MIT
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/fgd/detail/request_checks.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

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
  CHECK(std::string(too_much.message()).starts_with("task group 3: 1 GPUs with 1001/1000"));
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
  const auto refused = [&](auto&& change) {
    node_table wrong = nodes;
    change(wrong[node_id(2)]);
    const absl::Status status = detail::check_nodes(wrong);
    return status.code() == absl::StatusCode::kInvalidArgument &&
           std::string(status.message()) == "node 2: its state does not match its shape";
  };
  CHECK(!refused([](node_state& n) { n.left.cpu_milli = 0; }));
  CHECK(!refused([](node_state& n) { n.gpu_left[1] = 0; }));
  CHECK(refused([](node_state& n) { n.left.cpu_milli = 101; }));
  CHECK(refused([](node_state& n) { n.left.memory_mib = 11; }));
  CHECK(refused([](node_state& n) { n.gpus = 1; }));
  CHECK(refused([](node_state& n) { n.model = 0; }));
  CHECK(refused([](node_state& n) { n.gpu_left[1] = 1001; }));
  CHECK(refused([](node_state& n) { n.gpu_left[2] = 1; }));
}

TEST_CASE("request_checks: what cannot be committed") {
  CHECK(detail::runs_already(job_id(4)) == absl::AlreadyExistsError("job 4 runs already"));
  CHECK(detail::does_not_run(job_id(4)) == absl::NotFoundError("job 4 does not run"));
  CHECK(detail::no_such_node(node_id(9)) == absl::NotFoundError("there is no node 9"));
  CHECK(detail::not_free(job_id(4), {node_id(9), 0b101}) ==
        absl::AbortedError("job 4: GPUs 5 (a bit mask) of node 9 are not free"));
}
