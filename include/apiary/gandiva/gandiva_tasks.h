// apiary/gandiva/gandiva_tasks.h - time slices and migration for tasks that share GPUs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/fgd/node_score.h>
#include <apiary/gandiva/detail/fragmentation_migrations.h>
#include <apiary/gandiva/time_sharing.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A placer of tasks that may use fractions of a GPU, by a node score. All tasks run in time slices;
// with a quantum of `max_time` no task stops for another. A decision makes the migrations that
// lower the cluster's fragmentation most for each GPU of the task, until no migration gains enough
// or the limit time_sharing_options::migration_limits::jobs is reached.
// Model: "Gandiva" (OSDI 2018), §3.2; "Beware of Fragmentation" (USENIX ATC 2023).
// Cost:  propose, commit, finish as gpu_sharing_scheduler; to find a migration or that there is none
//        O((tasks + kinds * changed nodes) * GPUs of a node + kinds * nodes).
template <NodeScore Score>
class gpu_sharing_task_placer {
 public:
  using request = task_request;                 // a task
  using placement_type = placement;             // node and GPUs of a task
  using running_request = detail::placed_task;  // see BestMigrationPlacer
  // See Placer. A task that ends may leave more whole GPUs than it had, so `gpus` is always 0.
  struct kind {
    std::uint32_t gpus = 0;
    std::uint32_t cpu_milli = 0;
    std::uint32_t memory_mib = 0;
    std::uint32_t num_gpus = 0;
    milli_gpu gpu_milli = 0;
    model_set models = any_model;
    friend auto operator<=>(const kind&, const kind&) noexcept = default;
  };
  // metric: the measure that migrations lower. Requires: nothing runs on the scheduler's nodes.
  gpu_sharing_task_placer(gpu_sharing_scheduler<Score> scheduler, fragmentation metric)
      : scheduler_(std::move(scheduler)), migrations_(std::move(metric)) {
    for (const node_id n : scheduler_.nodes().ids()) idle_ += idle_on(n);
  }
  // The scheduler that places the tasks.
  [[nodiscard]] const gpu_sharing_scheduler<Score>& scheduler() const noexcept {
    return scheduler_;
  }

  // See Placer.
  [[nodiscard]] static kind kind_of(const task_request& r) noexcept {
    if (!r.wants_gpu()) return {.cpu_milli = r.cpu_milli, .memory_mib = r.memory_mib};
    return {0, r.cpu_milli, r.memory_mib, r.gpus, r.gpu_milli, r.models};
  }
  // kInvalidArgument: a task that is not valid.
  [[nodiscard]] absl::Status check(const task_request& r) { return scheduler_.propose(r).status(); }
  // See Placer.
  [[nodiscard]] absl::StatusOr<std::optional<placement>> propose(const task_request& r) {
    APIARY_ASSIGN_OR_RETURN(const task_plan plan, scheduler_.propose(r));
    if (plan.result == plan_result::wait) return std::nullopt;
    return plan.where;
  }
  // See Placer. A task of a node that is bad now may run on there.
  [[nodiscard]] absl::Status commit(const task_request& r, placement where) {
    return change(where.node, [&] { return scheduler_.recover(r, where); });
  }
  // See Placer.
  [[nodiscard]] absl::Status finish(job_id job) {
    const std::optional<placement> where = scheduler_.find(job);
    if (!where) return scheduler_.finish(job);
    return change(where->node, [&] { return scheduler_.finish(job); });
  }
  // See Placer.
  [[nodiscard]] absl::Status mark_bad(node_id n) {
    return change(n, [&] { return scheduler_.mark_bad(n); });
  }
  // See Placer.
  [[nodiscard]] absl::Status mark_healthy(node_id n) {
    return change(n, [&] { return scheduler_.mark_healthy(n); });
  }
  // See Placer.
  [[nodiscard]] std::vector<job_id> jobs_on(node_id n) const { return scheduler_.jobs_on(n); }
  // GPUs of healthy nodes that no task uses.
  [[nodiscard]] std::uint32_t idle_gpus() const noexcept { return idle_; }
  // All GPUs, including those of bad nodes.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept {
    return static_cast<std::uint32_t>(scheduler_.nodes().total_gpus());
  }
  // See BestMigrationPlacer.
  [[nodiscard]] std::optional<detail::fragmentation_migration> best_migration(
      std::span<const detail::placed_task> tasks, std::uint32_t cost) {
    return migrations_.best(scheduler_.nodes(), tasks, cost);
  }

 private:
  [[nodiscard]] std::uint32_t idle_on(node_id n) const noexcept {
    const node_table& nodes = scheduler_.nodes();
    return nodes.contains(n) && nodes[n].healthy ? nodes[n].free_gpus() : 0;
  }
  // Calls apply(), which changes node n.
  template <class F>
  [[nodiscard]] absl::Status change(node_id n, F&& apply) {
    const std::uint32_t before = idle_on(n);
    APIARY_RETURN_IF_ERROR(apply());
    idle_ += idle_on(n) - before;
    migrations_.update(n);
    return absl::OkStatus();
  }

  gpu_sharing_scheduler<Score> scheduler_;
  detail::fragmentation_migrations migrations_;
  std::uint32_t idle_ = 0;
};

// Gandiva for tasks that share GPUs, placed by FGD. For jobs of whole GPUs see gandiva_fgd.
//
//   const fragmentation metric(mix);
//   gandiva_tasks::create({fgd::create(nodes, fragmentation_gradient(metric)).value(), metric},
//                       {.quantum = max_time, .migrations = {.jobs = 8, .cost = 100}})
//
// Example: examples/gandiva_tasks.cpp
using gandiva_tasks = time_sharing<gpu_sharing_task_placer<fragmentation_gradient>>;
static_assert(BestMigrationPlacer<gpu_sharing_task_placer<fragmentation_gradient>>);

APIARY_NAMESPACE_END
