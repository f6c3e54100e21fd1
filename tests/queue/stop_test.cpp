// apiary/tests/queue/stop_test.cpp - jobs stop until another one fits, and errors leave all where they were.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/model/job.h>
#include <apiary/queue/server_placer.h>
#include <apiary/queue/stop.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

// Jobs 1, 2, ... on servers of two GPUs, one GPU each; a job of two GPUs asks for a whole server.
struct stop_scene {
  server_placer placer = server_placer::create({.gpus = {2, 2}}).value();
  std::map<job_id, job_placement> where{};
  const job_request wide{.job = job_id(9), .gpus = 2};
  bool fails_to_propose = false;
  bool fails_to_start = false;
  job_id lost{};  // the placer does not put it back

  stop_scene() {
    for (std::uint32_t job = 1; job <= 4; ++job)
      run(job, {{node_id((job - 1) % 2), job < 3 ? 1U : 2U}});
  }
  void run(std::uint32_t job, job_placement at) {
    REQUIRE(placer.commit({.job = job_id(job), .gpus = 1}, at).ok());
    where[job_id(job)] = at;
  }
  // Stops these jobs, in this order, for the wide one.
  auto stop(std::vector<std::uint32_t> jobs) {
    std::size_t at = 0;
    return stop_until_fits([&] { return at < jobs.size() ? job_id(jobs[at++]) : job_id(); },
                           [&](job_id job) { return placer.finish(job); },
                           [&]() -> absl::StatusOr<std::optional<job_placement>> {
                             if (fails_to_propose && placer.idle_gpus() == 2)
                               return absl::InternalError("no answer");
                             return placer.propose(wide);
                           },
                           [&](const job_placement& w) {
                             if (fails_to_start) return absl::AbortedError("not now");
                             return placer.commit(wide, w);
                           },
                           [&](job_id job) {
                             if (job == lost) return absl::InternalError("lost");
                             return placer.commit({.job = job, .gpus = 1}, where.at(job));
                           });
  }
  [[nodiscard]] bool all_run() const {
    return placer.idle_gpus() == 0 &&
           placer.jobs_on(node_id(0)) == std::vector{job_id(1), job_id(3)} &&
           placer.jobs_on(node_id(1)) == std::vector{job_id(2), job_id(4)};
  }
};

}  // namespace

TEST_CASE("stop_until_fits: only the jobs that are in the way stay stopped") {
  stop_scene scene;
  const freed_place<job_placement> found = scene.stop({4, 1, 3, 2});
  CHECK(found.where.value() == job_placement{{node_id(0), 3}});
  CHECK(found.stopped == std::vector{job_id(3), job_id(1)});
  CHECK(scene.placer.jobs_on(node_id(0)) == std::vector{job_id(9)});
  CHECK(scene.placer.jobs_on(node_id(1)) == std::vector{job_id(2), job_id(4)});
}

TEST_CASE("stop_until_fits: if the job does not fit or a call fails, all run where they ran") {
  stop_scene scene;
  const auto stop = [&](std::vector<std::uint32_t> jobs) {
    const freed_place<job_placement> found = scene.stop(std::move(jobs));
    CHECK(found.stopped.empty());
    CHECK(scene.all_run());
    return found.where;
  };
  CHECK(!stop({4, 1}).value());
  CHECK(!stop({}).value());
  scene.fails_to_propose = true;
  CHECK(stop({4, 1, 3}).status().code() == absl::StatusCode::kInternal);
  scene.fails_to_propose = false;
  scene.fails_to_start = true;
  CHECK(stop({4, 1, 3}).status().code() == absl::StatusCode::kAborted);
  scene.fails_to_start = false;
  CHECK(stop({4, 7}).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("stop_until_fits: a job that was stopped in vain and does not come back is reported") {
  for (const bool error : {false, true}) {
    CAPTURE(error);
    stop_scene scene;
    scene.lost = job_id(1);
    scene.fails_to_start = error;
    const freed_place<job_placement> found = error ? scene.stop({4, 1, 3}) : scene.stop({4, 1});
    CHECK(found.where.status() ==
          (error ? absl::AbortedError("not now") : absl::InternalError("lost")));
    CHECK(found.stopped == std::vector{job_id(1)});
    CHECK(scene.placer.idle_gpus() == 1);
  }
}
