// apiary/tests/support/gandiva_scene.h - Gandiva's jobs on a few servers, set up in a few words.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/gandiva/detail/gandiva_jobs.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>

#include <cstdint>
#include <vector>

namespace apiary_test {

// Two servers of four GPUs, or others; jobs of any may grow to four.
struct gandiva_scene {
  apiary::detail::gandiva_jobs jobs;
  std::vector<apiary::job_action> actions{};  // of the last decision

  explicit gandiva_scene(const std::vector<std::uint32_t>& gpus = {4, 4}) : jobs(gpus, 2) {}

  // A job that runs in time slices on the server.
  apiary::detail::gandiva_job& settled(std::uint32_t job, std::uint32_t gpus, apiary::node_id n) {
    apiary::detail::gandiva_job& r =
        jobs.add({.job = apiary::job_id(job), .gpus = gpus, .max_gpus = 4}, 0);
    jobs.settle(r, n);
    return r;
  }
  // One that has run since 0.
  void running(std::uint32_t job, std::uint32_t gpus, apiary::node_id n) {
    settled(job, gpus, n);
    decide(0, [&] { jobs.start(at(job), {jobs.pool().pick_idle(n, gpus)}); });
  }
  template <class Decision>
  void decide(apiary::time_ms now, const Decision& decision) {
    actions.clear();
    jobs.begin(now, actions);
    decision();
    jobs.end();
  }
  [[nodiscard]] apiary::detail::gandiva_job& at(std::uint32_t job) {
    return jobs.at(apiary::job_id(job));
  }
  [[nodiscard]] std::uint32_t owned_by(std::uint32_t job) const {
    std::uint32_t gpus = 0;
    for (const apiary::node_id n : jobs.pool().servers())
      for (std::uint32_t d = 0; d < jobs.pool().gpus(n); ++d)
        gpus += jobs.pool().owner(n, d) == apiary::job_id(job) ? 1U : 0U;
    return gpus;
  }
};

}  // namespace apiary_test
