// apiary/gandiva/gandiva_fgd.h - time slices and migration for jobs that a placer places.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gpu_sharing_placer.h>
#include <apiary/gandiva/time_sharing.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/model/job.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/placer.h>
#include <apiary/model/request.h>
#include <apiary/model/server_spec.h>
#include <apiary/queue/server_placer.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A JobPlacer that also says what a migration gains: a job should run on fewer servers, or on as
// many servers with less fragmentation of the cluster. All jobs run in time slices, unless the
// placer below is a GuaranteeingPlacer. What a placer below measures itself does not count.
// Model: "Gandiva" (OSDI 2018), §3.2, with that of "Beware of Fragmentation" (ATC 2023), §3.
// Cost:  commit, finish as those of the placer; gain: fragmentation::weighted() of each old and new
//        server of the job.
template <JobPlacer Below>
class measured_placer : public Below {
 public:
  // servers: the placer's. metric: the measure that migrations lower; its tasks are whole GPUs
  // without CPU. Requires: nothing runs on the placer's servers.
  measured_placer(Below below, const server_spec& servers, fragmentation metric)
      : Below(std::move(below)), metric_(std::move(metric)) {
    for (const std::uint32_t gpus : servers.gpus) nodes_.add({.gpus = gpus});
  }
  // The placer below.
  [[nodiscard]] const Below& below() const noexcept { return *this; }
  // The idle GPUs of each server, bad servers included.
  [[nodiscard]] const node_table& nodes() const noexcept { return nodes_; }

  // See Placer.
  [[nodiscard]] absl::Status commit(const job_request& r, const job_placement& where) {
    APIARY_RETURN_IF_ERROR(Below::commit(r, where));
    for (const placement& p : where) nodes_[p.node] = with(p, true);
    running_.try_emplace(r.job.value, where);
    return absl::OkStatus();
  }
  // See Placer.
  [[nodiscard]] absl::Status finish(job_id job) {
    APIARY_RETURN_IF_ERROR(Below::finish(job));
    const auto found = running_.find(job.value);
    if (found == running_.end()) return absl::OkStatus();  // its GPUs were only reserved
    for (const placement& p : found->second) nodes_[p.node] = with(p, false);
    running_.erase(found);
    return absl::OkStatus();
  }

  // See MeasuredPlacer. Any migration to fewer servers gains more than all others.
  [[nodiscard]] std::int64_t gain(const job_request& r, const job_placement& from,
                                  const job_placement& to) const noexcept {
    if (to.size() != from.size()) return to.size() < from.size() ? INT64_MAX : 0;
    const std::int64_t gain = added(from) - added(to);
    if (gain <= 0) return 0;
    const auto unit = static_cast<std::int64_t>(metric_.total_weight()) * r.gpus;
    return (gain - 1) / unit + 1;
  }
  // See MeasuredPlacer.
  [[nodiscard]] bool may_migrate(job_id /*j*/) const noexcept { return true; }

 private:
  // The server after these devices have been taken, or released.
  [[nodiscard]] node_state with(const placement& p, bool taken) const noexcept {
    node_state node = nodes_[p.node];
    node.change({.gpus = p.num_gpus(), .gpu_milli = whole_gpu}, p.gpu_mask, taken);
    return node;
  }
  // By how much W * F of the cluster would grow if a job that does not run ran at `where`.
  [[nodiscard]] std::int64_t added(const job_placement& where) const noexcept {
    std::int64_t sum = 0;
    for (const placement& p : where) {
      sum += static_cast<std::int64_t>(metric_.weighted(with(p, true)));
      sum -= static_cast<std::int64_t>(metric_.weighted(nodes_[p.node]));
    }
    return sum;
  }

  node_table nodes_;
  fragmentation metric_;
  std::unordered_map<std::uint32_t, job_placement> running_;
};

// Gandiva for jobs of whole GPUs over any JobPlacer, which decides where a job starts and migrates.
//
//   const fragmentation metric(mix);
//   gandiva_with_placer<server_placer>::create(
//       {server_placer::create(spec).value(), spec, metric},
//       {.migrations = {.jobs = 4, .cost = 100}})
//
// Example: examples/programs/simulate.cpp
template <JobPlacer Placer>
using gandiva_with_placer = time_sharing<measured_placer<Placer>>;

// Gandiva with FGD as the placer, for jobs of whole GPUs. For tasks see gandiva_tasks.
using gandiva_fgd = gandiva_with_placer<gpu_sharing_placer<fragmentation_gradient>>;

static_assert(MeasuredPlacer<measured_placer<server_placer>>);
static_assert(JobScheduler<gandiva_with_placer<server_placer>> && JobScheduler<gandiva_fgd>);

APIARY_NAMESPACE_END
