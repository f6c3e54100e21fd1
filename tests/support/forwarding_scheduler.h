// apiary/tests/support/forwarding_scheduler.h - a scheduler of jobs that passes all calls on.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <vector>

namespace apiary_test {

// Passes each call of a JobScheduler on to `scheduler`. A class that derives from it hides the calls that
// it watches or changes.
template <class Scheduler>
struct forwarding_scheduler {
  Scheduler scheduler;

  absl::Status submit(const apiary::job_request& r, apiary::time_ms now) {
    return scheduler.submit(r, now);
  }
  absl::Status finish(apiary::job_id job, apiary::time_ms now) {
    return scheduler.finish(job, now);
  }
  absl::StatusOr<std::vector<apiary::job_id>> mark_bad(apiary::node_id n, apiary::time_ms now) {
    return scheduler.mark_bad(n, now);
  }
  absl::Status mark_healthy(apiary::node_id n, apiary::time_ms now) {
    return scheduler.mark_healthy(n, now);
  }
  absl::Status decide(apiary::time_ms now, std::vector<apiary::job_action>& actions) {
    return scheduler.decide(now, actions);
  }
  [[nodiscard]] apiary::time_ms wake() const { return scheduler.wake(); }
  [[nodiscard]] std::uint32_t total_gpus() const { return scheduler.total_gpus(); }
};

}  // namespace apiary_test
