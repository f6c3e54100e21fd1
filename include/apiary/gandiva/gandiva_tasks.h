// apiary/gandiva/gandiva_tasks.h - time slices and migration for tasks that share GPUs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/fgd/node_score.h>
#include <apiary/gandiva/backend.h>
#include <apiary/gandiva/detail/fragmentation_migrations.h>
#include <apiary/gandiva/time_sharing.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The backend of time sharing for tasks that may use fractions of a GPU, placed by a
// gpu_sharing_scheduler. All tasks run in time slices; with a quantum of `max_time` no task stops
// for another. A tick makes the migrations that lower the cluster's fragmentation most for each GPU
// of the task, until no migration gains enough or the limit
// time_sharing_options::migration_limits::jobs is reached.
// Model: "Gandiva" (OSDI 2018), §3.2; "Beware of Fragmentation" (USENIX ATC 2023).
// Cost:  start, stop, restart as gpu_sharing_scheduler; to find a migration or that there is none
//        O((tasks + kinds * changed nodes) * GPUs of a node + kinds * nodes).
template <NodeScore Score>
class gpu_sharing_backend {
 public:
  using request = task_request;      // a task
  using placement_type = placement;  // node and GPUs of a task
  // metric: the measure that migrations lower. Requires: nothing runs on the scheduler's nodes.
  gpu_sharing_backend(gpu_sharing_scheduler<Score> scheduler, fragmentation metric)
      : scheduler_(std::move(scheduler)), migrations_(std::move(metric)) {}
  // The scheduler that places the tasks.
  [[nodiscard]] const gpu_sharing_scheduler<Score>& scheduler() const noexcept {
    return scheduler_;
  }
  // -1: every task runs in time slices.
  [[nodiscard]] std::int32_t priority(const task_request& /*r*/) const noexcept { return -1; }
  // See TimeSharingBackend.
  [[nodiscard]] bool may_start(const task_request& r) {
    if (!r.job.valid()) return false;
    const absl::StatusOr<task_plan> plan = scheduler_.propose(r);
    return plan.ok() && plan->result == plan_result::bind;
  }
  // kInvalidArgument: a task that is not valid, or has no job id.
  absl::StatusOr<bool> start(const task_request& r, std::vector<job_id>& /*stopped*/) {
    if (!r.job.valid()) return absl::InvalidArgumentError("a task needs a job id");
    APIARY_ASSIGN_OR_RETURN(const task_plan plan, scheduler_.propose(r));
    if (plan.result == plan_result::wait) return false;
    APIARY_VERIFY(restart(r, plan.where));
    return true;
  }
  // See TimeSharingBackend.
  placement stop(job_id job) {
    const placement was = placement_of(job);
    APIARY_VERIFY(scheduler_.finish(job).ok());
    running_.erase(job.value);
    migrations_.update(was.node);
    return was;
  }
  // See TimeSharingBackend.
  bool restart(const task_request& r, placement where) {
    // A task of a node that is bad now may run on there.
    const bool bad = !scheduler_.nodes()[where.node].healthy;
    if (bad) APIARY_VERIFY(scheduler_.mark_healthy(where.node).ok());
    const bool runs = scheduler_.commit(r, where).ok();
    if (bad) APIARY_VERIFY(scheduler_.mark_bad(where.node).ok());
    if (!runs) return false;
    running_.try_emplace(r.job.value, r);
    migrations_.update(where.node);
    return true;
  }
  // See TimeSharingBackend.
  [[nodiscard]] placement placement_of(job_id job) const {
    const std::optional<placement> where = scheduler_.find(job);
    APIARY_VERIFY(where);
    return *where;
  }
  // See TimeSharingBackend.
  void improve(std::span<const job_id> movable,
               const time_sharing_options::migration_limits& limits, std::vector<job_id>& moved) {
    std::vector<detail::placed_task> tasks;
    for (const job_id job : movable) tasks.push_back({running_.at(job.value), placement_of(job)});
    while (moved.size() < limits.jobs) {
      const auto migration = migrations_.best(scheduler_.nodes(), tasks, limits.cost);
      if (!migration) return;
      const auto at = tasks.begin() + static_cast<std::ptrdiff_t>(migration->task);
      const task_request task = at->task;
      tasks.erase(at);
      stop(task.job);
      APIARY_VERIFY(restart(task, migration->to));
      moved.push_back(task.job);
    }
  }
  // See TimeSharingBackend.
  absl::Status mark(node_id n, bool healthy) {
    APIARY_RETURN_IF_ERROR(healthy ? scheduler_.mark_healthy(n) : scheduler_.mark_bad(n));
    migrations_.update(n);
    return absl::OkStatus();
  }
  // Whether no task runs.
  [[nodiscard]] bool empty() const noexcept { return scheduler_.num_running() == 0; }

 private:
  gpu_sharing_scheduler<Score> scheduler_;
  detail::fragmentation_migrations migrations_;
  std::unordered_map<std::uint32_t, task_request> running_;
};

// Gandiva for tasks that share GPUs, placed by FGD. For jobs of whole GPUs see gandiva_fgd.
//
//   const fragmentation metric(mix);
//   gandiva_tasks::create({fgd::create(nodes, fragmentation_gradient(metric)).value(), metric},
//                       {.quantum = max_time, .migrations = {.jobs = 8, .cost = 100}})
//
// Example: examples/gandiva_tasks.cpp
using gandiva_tasks = time_sharing<gpu_sharing_backend<fragmentation_gradient>>;
static_assert(TimeSharingBackend<gpu_sharing_backend<fragmentation_gradient>>);

APIARY_NAMESPACE_END
