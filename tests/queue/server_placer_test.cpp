// apiary/tests/queue/server_placer_test.cpp - what a placer of whole GPUs answers.
// SPDX-License-Identifier: MIT
#include <apiary/queue/server_placer.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

using namespace apiary;

namespace {

job_request wants(std::uint32_t job, std::uint32_t gpus) {
  return {.job = job_id(job), .gpus = gpus};
}

}  // namespace

TEST_CASE("server_placer: what is no cluster") {
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  CHECK(server_placer::create({}).status().code() == invalid);
  CHECK(server_placer::create({.gpus = {4, 17}}).status().code() == invalid);
  CHECK(server_placer::create({.gpus = {4}, .servers_per_rack = 0}).status().code() == invalid);
}

TEST_CASE("server_placer: no more servers than in an empty cluster, unless anywhere will do") {
  for (const bool anywhere : {false, true}) {
    server_placer placer = server_placer::create({.gpus = {4, 4, 4}, .anywhere = anywhere}).value();
    CHECK(placer.commit(wants(0, 1), {{node_id(0), 1}}).ok());
    CHECK(placer.commit(wants(1, 1), {{node_id(1), 1}}).ok());
    CHECK(placer.idle_gpus() == 10);
    CHECK(placer.propose(wants(2, 4)).value() == job_placement{{node_id(2), 15}});
    CHECK(placer.propose(wants(2, 7)).value() == job_placement{{node_id(0), 14}, {node_id(2), 15}});
    const auto eight = placer.propose(wants(2, 8));
    if (anywhere) {
      CHECK(eight.value() == job_placement{{node_id(0), 14}, {node_id(1), 2}, {node_id(2), 15}});
    } else {
      CHECK(eight.value() == std::nullopt);
    }
    CHECK(placer.propose(wants(2, 13)).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("server_placer: what cannot be committed or finished") {
  server_placer placer = server_placer::create({.gpus = {4, 4}}).value();
  CHECK(placer.commit(wants(0, 6), {{node_id(0), 15}, {node_id(1), 3}}).ok());
  CHECK(placer.jobs_on(node_id(1)) == std::vector{job_id(0)});
  CHECK(placer.jobs_on(node_id(2)).empty());
  CHECK(placer.commit(wants(0, 1), {{node_id(1), 4}}).code() == absl::StatusCode::kAlreadyExists);
  CHECK(placer.commit(wants(1, 1), {{node_id(1), 2}}).code() == absl::StatusCode::kAborted);
  CHECK(placer.commit(wants(1, 1), {{node_id(1), 16}}).code() == absl::StatusCode::kAborted);
  CHECK(placer.commit(wants(1, 1), {{node_id(2), 1}}).code() == absl::StatusCode::kAborted);
  CHECK(placer.commit(wants(1, 2), {{node_id(1), 4}}).code() == absl::StatusCode::kInvalidArgument);
  CHECK(placer.commit({.gpus = 1}, {{node_id(1), 4}}).code() == absl::StatusCode::kInvalidArgument);
  CHECK(placer.finish(job_id(1)).code() == absl::StatusCode::kNotFound);
  CHECK(placer.mark_bad(node_id(2)).code() == absl::StatusCode::kNotFound);
  CHECK(placer.mark_bad(node_id(1)).ok());
  CHECK(placer.commit(wants(1, 1), {{node_id(1), 4}}).code() == absl::StatusCode::kAborted);
  CHECK(placer.idle_gpus() == 0);
  CHECK(placer.finish(job_id(0)).ok());
  CHECK(placer.idle_gpus() == 4);
  CHECK(placer.mark_healthy(node_id(1)).ok());
  CHECK(placer.idle_gpus() == placer.total_gpus());
}
