// apiary/gandiva/gandiva_fgd.h - Gandiva on FGD: tasks that share GPUs move where they fragment less.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/fgd/node_score.h>
#include <apiary/gandiva/backend.h>
#include <apiary/gandiva/detail/fragmentation_moves.h>
#include <apiary/gandiva/time_sharing.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Tasks with shares of GPUs, for introspection: all take turns (a quantum of `forever`: they wait for
// room), and move one after another where that lowers the cluster's fragmentation most for each GPU
// moved (gandiva/detail/fragmentation_moves.h), until nothing is gained or the moves of the tick are used up.
//
// Model: "Gandiva" (OSDI 2018), §3.2; "Beware of Fragmentation" (USENIX ATC 2023).
// Cost:  start, stop, restart as gpu_sharing_scheduler; a move, and to know that there is none, as
//        fragmentation_moves::best.
template <NodeScore Score>
class gpu_sharing_backend {
 public:
  using request = task_request;
  using place = placement;

  // metric: what the moves lower.
  gpu_sharing_backend(gpu_sharing_scheduler<Score> scheduler, fragmentation metric)
      : scheduler_(std::move(scheduler)), moves_(std::move(metric)) {}

  [[nodiscard]] const gpu_sharing_scheduler<Score>& scheduler() const noexcept {
    return scheduler_;
  }

  [[nodiscard]] std::int32_t priority(const task_request& /*r*/) const noexcept { return -1; }
  [[nodiscard]] bool may_start(const task_request& r) {
    return r.job.valid() && scheduler_.propose(r).ok();
  }
  // kInvalidArgument: not a valid task, or no job id.
  absl::StatusOr<bool> start(const task_request& r, std::vector<job_id>& /*stopped*/) {
    if (!r.job.valid()) return absl::InvalidArgumentError("a task needs a job id");
    const absl::StatusOr<placement> where = scheduler_.propose(r);
    if (absl::IsResourceExhausted(where.status())) return false;
    APIARY_RETURN_IF_ERROR(where.status());
    APIARY_VERIFY(restart(r, *where));
    return true;
  }
  placement stop(job_id job) {
    const placement was = place_of(job);
    APIARY_VERIFY(scheduler_.finish(job).ok());
    running_.erase(job.value);
    moves_.update(was.node);
    return was;
  }
  bool restart(const task_request& r, placement where) {
    // A task that ran on a node gone bad since may run on there.
    const bool bad = !scheduler_.nodes()[where.node].healthy;
    if (bad) APIARY_VERIFY(scheduler_.mark_healthy(where.node).ok());
    const bool runs = scheduler_.commit(r, where).ok();
    if (bad) APIARY_VERIFY(scheduler_.mark_bad(where.node).ok());
    if (!runs) return false;
    running_.try_emplace(r.job.value, r);
    moves_.update(where.node);
    return true;
  }
  [[nodiscard]] placement place_of(job_id job) const {
    const std::optional<placement> where = scheduler_.find(job);
    APIARY_VERIFY(where);
    return *where;
  }
  void improve(std::span<const job_id> movable, const move_limits& limits,
               std::vector<job_id>& moved) {
    std::vector<detail::placed_task> tasks;
    for (const job_id job : movable) tasks.push_back({running_.at(job.value), place_of(job)});
    while (moved.size() < limits.moves) {
      const auto move = moves_.best(scheduler_.nodes(), tasks, limits.cost);
      if (!move) return;
      const auto at = tasks.begin() + static_cast<std::ptrdiff_t>(move->task);
      const task_request task = at->task;
      tasks.erase(at);
      stop(task.job);
      APIARY_VERIFY(restart(task, move->to));
      moved.push_back(task.job);
    }
  }
  absl::Status mark(node_id n, bool healthy) {
    APIARY_RETURN_IF_ERROR(healthy ? scheduler_.mark_healthy(n) : scheduler_.mark_bad(n));
    moves_.update(n);
    return absl::OkStatus();
  }
  [[nodiscard]] bool empty() const noexcept { return scheduler_.num_running() == 0; }

 private:
  gpu_sharing_scheduler<Score> scheduler_;
  detail::fragmentation_moves moves_;
  absl::flat_hash_map<std::uint32_t, task_request> running_;
};

// Gandiva on FGD.
//
//   const fragmentation metric(mix);
//   gandiva_fgd::create({fgd::create(nodes, fragmentation_gradient(metric)).value(), metric},
//                       {.quantum = forever, .moves = {.moves = 8, .cost = 100}})
//
// Example: examples/gandiva_fgd.cpp
using gandiva_fgd = time_sharing<gpu_sharing_backend<fragmentation_gradient>>;
static_assert(TimeSharingBackend<gpu_sharing_backend<fragmentation_gradient>>);

APIARY_NAMESPACE_END
