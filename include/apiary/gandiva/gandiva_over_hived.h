// apiary/gandiva/gandiva_over_hived.h - Gandiva's turns and moves for jobs over HiveD.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gandiva/detail/job_adapter.h>
#include <apiary/gandiva/detail/time_sharing_queue.h>
#include <apiary/gandiva/gandiva_hived.h>
#include <apiary/gandiva/time_sharing.h>
#include <apiary/hived/config.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_jobs.h>
#include <apiary/hived/request.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <utility>

APIARY_NAMESPACE_BEGIN

// A guaranteed job has a right to its tenant's cells, and is a guest that takes turns meanwhile.
class hived_job_adapter {
 public:
  // Requires: jobs that lends().
  explicit hived_job_adapter(hived_jobs jobs) : jobs_(std::move(jobs)) {}

  [[nodiscard]] absl::Status check(const hived_backend& /*g*/, const job_request& r) {
    return jobs_.fits_own(r).status();
  }
  [[nodiscard]] gang_request own(const job_request& r) const { return jobs_.own_gang(r); }
  [[nodiscard]] gang_request turn(const job_request& r) const { return jobs_.guest_gang(r); }
  [[nodiscard]] job_placement place(const hived_backend::place& w) const {
    return hived_jobs::place(w);
  }
  [[nodiscard]] std::uint32_t owned(const hived_backend& /*g*/, tenant_id t) const {
    return jobs_.owned(t);
  }
  [[nodiscard]] std::uint32_t gpus(const hived_backend& /*g*/, node_id n) const {
    return jobs_.gpus(n);
  }
  [[nodiscard]] std::uint32_t total_gpus(const hived_backend& /*g*/) const noexcept {
    return jobs_.total_gpus();
  }

 private:
  hived_jobs jobs_;
};

// Gandiva on HiveD for jobs over time: guaranteed jobs (priority 0 to 1000) start on their tenant's
// cells as soon as these have room, guests in the way being suspended; while they have none, such
// jobs take turns with the opportunistic ones (priority -1) on what is idle, and move.
//
// Example: examples/simulate.cpp
using gandiva_over_hived = detail::time_sharing_queue<hived_backend, hived_job_adapter>;

// kInvalidArgument: every fault of the configuration, a node with more than 32 leaf cells, or a
// quantum that is not above 0.
[[nodiscard]] inline absl::StatusOr<gandiva_over_hived> make_gandiva_over_hived(
    const hived_config& config, const gang_moves& moves, const time_sharing_options& options) {
  APIARY_ASSIGN_OR_RETURN(hived scheduler, hived::create(config));
  APIARY_ASSIGN_OR_RETURN(hived_jobs jobs, hived_jobs::create(scheduler));
  return gandiva_over_hived::create(hived_backend(std::move(scheduler), moves),
                                    hived_job_adapter(std::move(jobs)), options);
}

APIARY_NAMESPACE_END
