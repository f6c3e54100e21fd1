// apiary/gandiva/gandiva_fgd.h - Gandiva's time slices and migration for jobs that a placer places.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gpu_sharing_placer.h>
#include <apiary/gandiva/backend.h>
#include <apiary/gandiva/time_sharing_queue.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/model/job.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/placer.h>
#include <apiary/model/request.h>
#include <apiary/queue/server_placer.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Runs jobs of whole GPUs where a JobPlacer places them, when they start and when they migrate. All
// jobs run in time slices; a job's tenant and priority do not count.
//
// A tick tries to migrate `trials` jobs, round robin: it stops a job and asks the placer again. The
// job migrates if it then runs on fewer servers, or on as many servers with the cluster's
// fragmentation lower by more than time_sharing_options::migration_limits::cost.
// Model: "Gandiva" (OSDI 2018), §3.2, with the measure of "Beware of Fragmentation" (ATC 2023), §3.
// Cost:  start, stop, restart: one propose, commit or finish of the placer. A trial: all of these,
//        and fragmentation::weighted() of each old and new server of the job.
template <JobPlacer Placer>
class placer_backend {
 public:
  using request = job_request;           // a job
  using placement_type = job_placement;  // servers and GPUs of a job
  // servers: the placer's. metric: the measure that migrations lower; its tasks are whole GPUs
  // without CPU. Requires: nothing runs on the placer's servers, and no server is marked bad.
  placer_backend(Placer placer, const server_spec& servers, fragmentation metric,
                 std::uint32_t trials = 4)
      : placer_(std::move(placer)), metric_(std::move(metric)), trials_(trials) {
    for (const std::uint32_t gpus : servers.gpus) nodes_.add({.gpus = gpus});
  }
  // The placer.
  [[nodiscard]] const Placer& placer() const noexcept { return placer_; }
  // The idle GPUs of each server, bad servers included.
  [[nodiscard]] const node_table& nodes() const noexcept { return nodes_; }
  // See JobBackend.
  [[nodiscard]] absl::Status check(const job_request& r) const { return placer_.check(r); }
  // See JobBackend.
  [[nodiscard]] const job_placement& job_placement_of(const job_placement& w) const noexcept {
    return w;
  }
  // 0: no tenant is entitled to anything.
  [[nodiscard]] std::uint32_t entitled_gpus(tenant_id /*t*/) const noexcept { return 0; }
  // GPUs of a server.
  [[nodiscard]] std::uint32_t gpus(node_id n) const noexcept { return nodes_.shape(n).gpus; }
  // GPUs of all servers, bad ones included.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return placer_.total_gpus(); }
  // -1: every job runs in time slices.
  [[nodiscard]] std::int32_t priority(const job_request& /*r*/) const noexcept { return -1; }
  // See TimeSharingBackend.
  [[nodiscard]] bool may_start(const job_request& r) {
    if (!r.job.valid()) return false;
    const absl::StatusOr<std::optional<job_placement>> where = placer_.propose(r);
    return where.ok() && where->has_value();
  }
  // kInvalidArgument: no job id. Other errors are those of the placer's propose().
  absl::StatusOr<bool> start(const job_request& r, std::vector<job_id>& /*stopped*/) {
    if (!r.job.valid()) return absl::InvalidArgumentError("a job needs an id");
    APIARY_ASSIGN_OR_RETURN(const std::optional<job_placement> where, placer_.propose(r));
    if (!where) return false;
    APIARY_VERIFY(restart(r, *where));
    return true;
  }
  // See TimeSharingBackend.
  job_placement stop(job_id job) {
    const auto found = running_.find(job.value);
    APIARY_VERIFY(found != running_.end() && placer_.finish(job).ok());
    job_placement was = std::move(found->second.where);
    running_.erase(found);
    for (const placement& p : was) nodes_[p.node] = with(p, false);
    return was;
  }
  // See TimeSharingBackend.
  bool restart(const job_request& r, const job_placement& where) {
    // A job that ran on a server that is bad now may run on there.
    const auto mark_bad_ones = [&](bool healthy) {
      for (const placement& p : where) {
        if (!nodes_[p.node].healthy) APIARY_VERIFY(mark_placer(p.node, healthy).ok());
      }
    };
    mark_bad_ones(true);
    const bool runs = placer_.commit(r, where).ok();
    mark_bad_ones(false);
    if (!runs) return false;
    for (const placement& p : where) nodes_[p.node] = with(p, true);
    running_.try_emplace(r.job.value, running{r, where});
    return true;
  }
  // See TimeSharingBackend.
  [[nodiscard]] job_placement placement_of(job_id j) const { return running_.at(j.value).where; }
  // See TimeSharingBackend.
  void improve(std::span<const job_id> movable,
               const time_sharing_options::migration_limits& limits, std::vector<job_id>& moved) {
    detail::migrate_round_robin(movable, trials_, limits.jobs, next_, moved,
                                [&](job_id job) { return try_migration(job, limits.cost); });
  }
  // See TimeSharingBackend.
  absl::Status mark(node_id n, bool healthy) {
    APIARY_RETURN_IF_ERROR(mark_placer(n, healthy));
    nodes_[n].healthy = healthy;
    return absl::OkStatus();
  }
  // Whether no job runs.
  [[nodiscard]] bool empty() const noexcept { return placer_.idle_gpus() == placer_.total_gpus(); }

 private:
  struct running {
    job_request asked;
    job_placement where;
  };
  [[nodiscard]] absl::Status mark_placer(node_id n, bool healthy) {
    return healthy ? placer_.mark_healthy(n) : placer_.mark_bad(n);
  }
  // The server after these devices have been taken, or released.
  [[nodiscard]] node_state with(const placement& p, bool taken) const noexcept {
    node_state node = nodes_[p.node];
    for (std::uint32_t mask = p.gpu_mask; mask != 0; mask &= mask - 1)
      node.gpu_left[static_cast<std::size_t>(std::countr_zero(mask))] = taken ? 0 : whole_gpu;
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
  bool try_migration(job_id job, std::uint32_t cost) {
    const job_request r = running_.at(job.value).asked;
    const job_placement from = stop(job);
    const absl::StatusOr<std::optional<job_placement>> to = placer_.propose(r);
    const bool moves = to.ok() && to->has_value() && pays(from, **to, r.gpus, cost);
    APIARY_VERIFY(restart(r, moves ? **to : from));
    return moves;
  }
  [[nodiscard]] bool pays(const job_placement& from, const job_placement& to, std::uint32_t gpus,
                          std::uint32_t cost) const noexcept {
    if (to.size() != from.size()) return to.size() < from.size();
    const std::int64_t gain = added(from) - added(to);
    if (gain <= 0) return false;
    const std::uint64_t unit = metric_.total_weight() * gpus;  // above 0 if there is a gain
    const std::uint64_t paid = static_cast<std::uint64_t>(gain) / unit;
    return paid > cost || (paid == cost && static_cast<std::uint64_t>(gain) % unit > 0);
  }

  Placer placer_;
  node_table nodes_;
  fragmentation metric_;
  std::uint32_t trials_;
  std::unordered_map<std::uint32_t, running> running_;
  job_id next_{0};  // the next job to try
};

// Gandiva for jobs of whole GPUs over any JobPlacer, which decides where a job starts and migrates.
//
//   const fragmentation metric(mix);
//   gandiva_with_placer<server_placer>::create(
//       {server_placer::create(spec).value(), spec, metric}, {.migrations = {.jobs = 4, .cost = 100}})
//
// Example: examples/programs/simulate.cpp
template <JobPlacer Placer>
using gandiva_with_placer = time_sharing_queue<placer_backend<Placer>>;

// Gandiva with FGD as the placer, for jobs of whole GPUs. For tasks see gandiva_tasks.
using gandiva_fgd = gandiva_with_placer<gpu_sharing_placer<fragmentation_gradient>>;

static_assert(JobBackend<placer_backend<server_placer>>);
static_assert(JobScheduler<gandiva_with_placer<server_placer>> && JobScheduler<gandiva_fgd>);

APIARY_NAMESPACE_END
