// apiary/examples/programs/simulate_placer.h - where jobs run under the queues of queue/, also jobs that need CPU,
// memory or GPU models.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gang_scheduler/detail/job_demand.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_queue.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>
#include <apiary/model/placer.h>
#include <apiary/model/plan.h>
#include <apiary/model/resources.h>
#include <apiary/queue/server_placer.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace example {

// What a job needs beside each of its GPUs, and the GPU models that it accepts.
using job_demand = apiary::gang_queue_options::demand;

// Places jobs that need CPU, memory or GPU models by the gang scheduler, as gang_queue does: a job of n
// GPUs is a gang of tasks that each fill a server, and one task with the remaining GPUs; of smaller tasks
// if these do not fit even into the idle cluster.
class demand_placer : public apiary::job_placer_types {
 public:
  // For a cluster in which all servers have equally many GPUs. demands[d]: of the jobs with
  // job_request::demand d. kInvalidArgument: as gang_scheduler::create.
  static absl::StatusOr<demand_placer> create(const apiary::gang_cluster& cluster,
                                              std::vector<job_demand> demands) {
    APIARY_ASSIGN_OR_RETURN(auto scheduler, apiary::gang_scheduler::create(cluster));
    demand_placer made(std::move(scheduler));
    for (const apiary::gang_cluster::node& n : cluster.nodes) made.free_.push_back(n.host);
    made.gpus_per_node_ = cluster.nodes.empty() ? 1 : std::max(cluster.nodes.front().gpus, 1U);
    made.demands_ = std::move(demands);
    return made;
  }

  // kInvalidArgument: the job does not fit into the idle cluster.
  absl::Status check(const apiary::job_request& r) const {
    if (task_gpus(r) > 0) return absl::OkStatus();
    const job_demand& d = demands_[r.demand];
    return absl::InvalidArgumentError("job " + std::to_string(r.job.value) + " asks for " +
                                      apiary::detail::text_of_demand(r.gpus, d.per_gpu, d.models) +
                                      ", which " + (r.gpus == 1 ? "does" : "do") +
                                      " not fit even in the idle cluster");
  }
  absl::StatusOr<std::optional<apiary::job_placement>> propose(const apiary::job_request& r) {
    APIARY_ASSIGN_OR_RETURN(const auto plan, scheduler_.propose(gang_of(r)));
    if (plan.result != apiary::plan_result::bind) return std::nullopt;
    std::map<apiary::node_id, std::uint32_t> masks;
    for (const apiary::placement& task : plan.tasks) masks[task.node] |= task.gpu_mask;
    apiary::job_placement where;
    for (const auto& [node, mask] : masks) where.push_back({node, mask});
    return where;
  }
  // kAborted: GPUs, CPU or memory are not free. Requires: a placement proposed for such a job.
  absl::Status commit(const apiary::job_request& r, const apiary::job_placement& where) {
    const running_job job{where, demands_[r.demand].per_gpu};
    for (const apiary::placement& p : where) {
      if (job.host_on(p).fits_in(free_[p.node.value])) continue;
      return absl::AbortedError("server " + std::to_string(p.node.value) +
                                " has too little free CPU or memory");
    }
    const absl::Status status = scheduler_.recover(gang_of(r), tasks_of(where, task_gpus(r)));
    if (absl::IsFailedPrecondition(status)) return absl::AbortedError(status.message());
    APIARY_RETURN_IF_ERROR(status);
    for (const apiary::placement& p : where) free_[p.node.value] -= job.host_on(p);
    running_.emplace(r.job, job);
    return absl::OkStatus();
  }
  absl::Status finish(apiary::job_id job) {
    APIARY_RETURN_IF_ERROR(scheduler_.finish(job.value));
    const auto ended = running_.find(job);
    for (const apiary::placement& p : ended->second.where)
      free_[p.node.value] += ended->second.host_on(p);
    running_.erase(ended);
    return absl::OkStatus();
  }
  absl::Status mark_bad(apiary::node_id n) { return scheduler_.mark_bad(n); }
  absl::Status mark_healthy(apiary::node_id n) { return scheduler_.mark_healthy(n); }
  std::vector<apiary::job_id> jobs_on(apiary::node_id n) const {
    std::vector<apiary::job_id> jobs;
    for (const apiary::job_key& job : scheduler_.jobs_on(n))
      jobs.emplace_back(static_cast<std::uint32_t>(job.number()));
    return jobs;
  }
  std::uint32_t idle_gpus() const { return static_cast<std::uint32_t>(scheduler_.free_gpus()); }
  std::uint32_t total_gpus() const {
    return static_cast<std::uint32_t>(free_.size()) * gpus_per_node_;
  }

 private:
  struct running_job {
    apiary::job_placement where{};
    apiary::resources per_gpu{};
    // The CPU and memory that it has on one of its servers.
    apiary::resources host_on(const apiary::placement& p) const {
      return {p.num_gpus() * per_gpu.cpu_milli, p.num_gpus() * per_gpu.memory_mib};
    }
  };
  explicit demand_placer(apiary::gang_scheduler scheduler)
      : scheduler_(std::move(scheduler)),
        idle_(std::make_shared<apiary::gang_scheduler>(scheduler_)),
        sizes_(std::make_shared<decltype(sizes_)::element_type>()) {}

  // A gang of tasks with so many GPUs, and one with the rest.
  apiary::gang_scheduler::request gang_of(const apiary::job_request& r, std::uint32_t size) const {
    const job_demand& d = demands_[r.demand];
    apiary::gang_scheduler::request gang{.job = r.job.value, .tenant = r.tenant};
    gang.gang.groups.push_back({.tasks = r.gpus / size, .gpus = size});
    if (r.gpus % size != 0) gang.gang.groups.push_back({.tasks = 1, .gpus = r.gpus % size});
    for (auto& group : gang.gang.groups)
      group.host = {group.gpus * d.per_gpu.cpu_milli, group.gpus * d.per_gpu.memory_mib};
    gang.filter.models = d.models;
    return gang;
  }
  apiary::gang_scheduler::request gang_of(const apiary::job_request& r) const {
    return gang_of(r, task_gpus(r));
  }
  // The GPUs of the largest tasks with which the job fits into the idle cluster; 0: it never fits.
  std::uint32_t task_gpus(const apiary::job_request& r) const {
    const auto [at, is_new] = sizes_->try_emplace({r.gpus, r.demand}, 0);
    if (!is_new) return at->second;
    const apiary::resources per_gpu = demands_[r.demand].per_gpu;
    const std::uint64_t most = std::max(per_gpu.cpu_milli, per_gpu.memory_mib);
    for (std::uint32_t size = std::min(r.gpus, gpus_per_node_); size > 0; --size) {
      if (size * most > std::uint64_t{~0U}) continue;
      const auto plan = idle_->propose(gang_of(r, size));
      if (!plan.ok() || plan->result != apiary::plan_result::bind) continue;
      at->second = size;
      break;
    }
    return at->second;
  }
  // The tasks of a job on these GPUs: those of `size` GPUs first, then the rest.
  static std::vector<apiary::placement> tasks_of(const apiary::job_placement& where,
                                                 std::uint32_t size) {
    std::vector<apiary::placement> tasks;
    std::vector<apiary::placement> rest;
    for (const apiary::placement& p : where) {
      std::uint32_t task = 0;
      for (std::uint32_t left = p.gpu_mask; left != 0; left &= left - 1) {
        task |= left & (~left + 1);  // the lowest of the GPUs that are left
        if (static_cast<std::uint32_t>(std::popcount(task)) < size) continue;
        tasks.push_back({p.node, task});
        task = 0;
      }
      if (task != 0) rest.push_back({p.node, task});
    }
    tasks.insert(tasks.end(), rest.begin(), rest.end());
    return tasks;
  }

  apiary::gang_scheduler scheduler_;
  // Shared by all copies: the scheduler as in the beginning, and task_gpus() by GPUs and demand.
  std::shared_ptr<apiary::gang_scheduler> idle_;
  std::shared_ptr<std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t>> sizes_;
  std::uint32_t gpus_per_node_ = 1;
  std::vector<job_demand> demands_{};
  std::vector<apiary::resources> free_{};  // CPU and memory of each server
  std::map<apiary::job_id, running_job> running_{};
};

// One of two placers: server_placer for jobs that need only GPUs, demand_placer for others. A queue is
// compiled once for both.
class cluster_placer : public apiary::job_placer_types {
 public:
  template <class Placer>
  explicit cluster_placer(Placer placer) : placer_(std::move(placer)) {}

  absl::Status check(const apiary::job_request& r) const {
    return std::visit([&](const auto& p) { return p.check(r); }, placer_);
  }
  absl::StatusOr<std::optional<apiary::job_placement>> propose(const apiary::job_request& r) {
    return std::visit([&](auto& p) { return p.propose(r); }, placer_);
  }
  absl::Status commit(const apiary::job_request& r, const apiary::job_placement& where) {
    return std::visit([&](auto& p) { return p.commit(r, where); }, placer_);
  }
  absl::Status finish(apiary::job_id job) {
    return std::visit([&](auto& p) { return p.finish(job); }, placer_);
  }
  absl::Status mark_bad(apiary::node_id n) {
    return std::visit([&](auto& p) { return p.mark_bad(n); }, placer_);
  }
  absl::Status mark_healthy(apiary::node_id n) {
    return std::visit([&](auto& p) { return p.mark_healthy(n); }, placer_);
  }
  std::vector<apiary::job_id> jobs_on(apiary::node_id n) const {
    return std::visit([&](const auto& p) { return p.jobs_on(n); }, placer_);
  }
  std::uint32_t idle_gpus() const {
    return std::visit([](const auto& p) { return p.idle_gpus(); }, placer_);
  }
  std::uint32_t total_gpus() const {
    return std::visit([](const auto& p) { return p.total_gpus(); }, placer_);
  }

 private:
  std::variant<apiary::server_placer, demand_placer> placer_;
};
static_assert(apiary::JobPlacer<demand_placer> && apiary::JobPlacer<cluster_placer>);

}  // namespace example
