// apiary/gandiva/gandiva_hived.h - Gandiva's time slices and migration for jobs on a HiveD cluster.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gandiva/backend.h>
#include <apiary/gandiva/gandiva_gangs.h>
#include <apiary/gandiva/time_sharing.h>
#include <apiary/gandiva/time_sharing_queue.h>
#include <apiary/hived/config.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_jobs.h>
#include <apiary/model/job.h>
#include <apiary/model/job_scheduler.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// hived_backend for jobs of whole GPUs: each job is a gang, as hived_jobs makes it. A job of priority
// 0 or more is guaranteed; a job of priority -1 is opportunistic and runs in time slices.
class hived_job_backend : private hived_backend {
 public:
  using request = job_request;  // a job
  using hived_backend::place;

  // Requires: jobs.over_quota(), and `jobs` is of the same cluster.
  hived_job_backend(hived_backend gangs, hived_jobs jobs)
      : hived_backend(std::move(gangs)), jobs_(std::move(jobs)) {}

  using hived_backend::empty;
  using hived_backend::improve;
  using hived_backend::mark;
  using hived_backend::place_of;
  using hived_backend::scheduler;
  using hived_backend::stop;

  // The priority of the job.
  [[nodiscard]] std::int32_t priority(const job_request& r) const noexcept { return r.priority; }
  // See TimeSharingBackend.
  [[nodiscard]] bool may_start(const job_request& r) {
    return hived_backend::may_start(jobs_.gang_of(r));
  }
  // Errors as hived_backend::start.
  absl::StatusOr<bool> start(const job_request& r, std::vector<job_id>& stopped) {
    return hived_backend::start(jobs_.gang_of(r), stopped);
  }
  // Requires: an opportunistic job.
  bool restart(const job_request& r, const place& where) {
    return hived_backend::restart(jobs_.gang_of(r), where);
  }

  // Errors as hived_jobs::fits_cells.
  [[nodiscard]] absl::Status check(const job_request& r) { return jobs_.fits_cells(r).status(); }
  // See JobBackend.
  [[nodiscard]] job_placement job_placement_of(const place& w) const {
    return hived_jobs::place(w);
  }
  // GPUs of the tenant's cells.
  [[nodiscard]] std::uint32_t entitled_gpus(tenant_id t) const { return jobs_.owned(t); }
  // GPUs of a node.
  [[nodiscard]] std::uint32_t gpus(node_id n) const { return jobs_.gpus(n); }
  // GPUs of the cluster.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return jobs_.total_gpus(); }

 private:
  hived_jobs jobs_;
};

// Gandiva for jobs of whole GPUs on a HiveD cluster. A guaranteed job (priority 0 to 1000) starts on
// its tenant's cells as soon as it fits there; opportunistic jobs in its way are suspended. While it
// does not fit, it runs in time slices on idle GPUs, as the opportunistic jobs (priority -1) do, and
// may be migrated.
//
// Example: examples/simulate.cpp
using gandiva_hived = time_sharing_queue<hived_job_backend>;

static_assert(JobBackend<hived_job_backend> && JobScheduler<gandiva_hived>);

// Makes the scheduler. kInvalidArgument: a fault of the configuration, a node with more than 32 leaf
// cells, or a quantum that is not above 0.
[[nodiscard]] inline absl::StatusOr<gandiva_hived> create_gandiva_hived(
    const hived_config& config, const gang_moves& moves, const time_sharing_options& options) {
  APIARY_ASSIGN_OR_RETURN(hived scheduler, hived::create(config));
  APIARY_ASSIGN_OR_RETURN(hived_jobs jobs, hived_jobs::create(scheduler));
  return gandiva_hived::create(
      hived_job_backend(hived_backend(std::move(scheduler), moves), std::move(jobs)), options);
}

APIARY_NAMESPACE_END
