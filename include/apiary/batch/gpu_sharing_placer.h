// apiary/batch/gpu_sharing_placer.h - jobs of whole GPUs where a score of nodes sends them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/batch/job_placer.h>
#include <apiary/batch/server_placer.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/fgd/node_score.h>
#include <apiary/fgd/request_checks.h>
#include <apiary/gang/shared_gpu_fit.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/job.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A job that some server could hold is one task; a larger one is a gang of tasks as large as the
// smallest server that has GPUs, and of one with the rest. They go where gpu_sharing_scheduler sends them, by
// fragmentation or by any other score.
//
// Cost: propose, commit, finish as gpu_sharing_scheduler; jobs_on O(jobs that run).
template <NodeScore Score>
class gpu_sharing_placer {
 public:
  // kInvalidArgument: as check_servers(spec), or no GPU at all. `anywhere` and the racks of it do
  // not count.
  [[nodiscard]] static absl::StatusOr<gpu_sharing_placer> create(const server_spec& spec,
                                                                 Score score) {
    APIARY_RETURN_IF_ERROR(check_servers(spec));
    node_table nodes;
    for (const std::uint32_t gpus : spec.gpus) nodes.add({.gpus = gpus});
    if (nodes.total_gpus() == 0) return absl::InvalidArgumentError("the servers have no GPUs");
    APIARY_ASSIGN_OR_RETURN(
        auto scheduler, gpu_sharing_scheduler<Score>::create(std::move(nodes), std::move(score)));
    return gpu_sharing_placer(std::move(scheduler));
  }

  [[nodiscard]] absl::Status check(const job_request& r) const {
    const std::uint32_t tasks = r.gpus / task_;
    const std::uint32_t rest = r.gpus % task_;
    const bool fits = r.gpus <= largest_ ||
                      (tasks + (rest > 0 ? 1 : 0) <= max_gang_tasks &&
                       (tasks < whole_tasks_ || (tasks == whole_tasks_ && rest <= largest_rest_)));
    if (r.gpus > 0 && fits) return absl::OkStatus();
    return absl::InvalidArgumentError(name(r.job) + " wants " + std::to_string(r.gpus) +
                                      " GPUs, which the servers cannot hold");
  }
  [[nodiscard]] absl::StatusOr<job_placement> propose(const job_request& r) {
    APIARY_RETURN_IF_ERROR(check(r));
    const absl::Status nowhere(absl::StatusCode::kResourceExhausted, "");
    if (r.gpus > idle_) return nowhere;
    if (r.gpus <= largest_) {
      APIARY_ASSIGN_OR_RETURN(const placement where, scheduler_.propose(task(r.job, r.gpus)));
      return job_placement{where};
    }
    topology_constraints gang;
    gang.members.push_back({.tasks = r.gpus / task_, .gpus = task_});
    if (r.gpus % task_ != 0) gang.members.push_back({.tasks = 1, .gpus = r.gpus % task_});
    APIARY_ASSIGN_OR_RETURN(const gang_answer answer, scheduler_.propose(gang));
    if (answer.verdict != fit_verdict::fits) return nowhere;
    std::map<node_id, std::uint32_t> masks;
    for (const member_placement& p : answer.places) masks[p.where.node] |= p.where.device_mask;
    job_placement place;
    for (const auto& [node, mask] : masks) place.push_back({node, mask});
    return place;
  }
  // kAlreadyExists: the job runs. kInvalidArgument: no job id, or not as many devices as it wants.
  // kNotFound: no such server. kAborted: they are not idle (any more).
  [[nodiscard]] absl::Status commit(const job_request& r, const job_placement& place) {
    std::uint32_t gpus = 0;
    for (const placement& p : place) gpus += p.num_devices();
    if (gpus != r.gpus || gpus == 0) {
      return absl::InvalidArgumentError(name(r.job) + " wants " + std::to_string(r.gpus) +
                                        " GPUs, the place has " + std::to_string(gpus));
    }
    if (place.size() == 1) {
      APIARY_RETURN_IF_ERROR(scheduler_.commit(task(r.job, gpus), place[0]));
    } else {
      topology_constraints gang;
      std::vector<member_placement> places;
      for (const placement& p : place) {
        places.push_back({static_cast<std::uint32_t>(gang.members.size()), p});
        gang.members.push_back({.tasks = 1, .gpus = p.num_devices()});
      }
      APIARY_RETURN_IF_ERROR(scheduler_.commit(r.job, gang, places));
    }
    running_.try_emplace(r.job.value, place);
    idle_ -= gpus;
    return absl::OkStatus();
  }
  [[nodiscard]] absl::Status finish(job_id job) {
    APIARY_RETURN_IF_ERROR(scheduler_.finish(job));
    const auto found = running_.find(job.value);
    for (const placement& p : found->second) {
      if (scheduler_.nodes()[p.node].healthy) idle_ += p.num_devices();
    }
    running_.erase(found);
    return absl::OkStatus();
  }

  [[nodiscard]] absl::Status mark_bad(node_id n) { return set_health(n, false); }
  [[nodiscard]] absl::Status mark_healthy(node_id n) { return set_health(n, true); }
  [[nodiscard]] std::vector<job_id> jobs_on(node_id n) const {
    std::vector<job_id> jobs;
    for (const auto& [job, place] : running_) {
      if (std::any_of(place.begin(), place.end(), [&](placement p) { return p.node == n; }))
        jobs.emplace_back(job);
    }
    std::sort(jobs.begin(), jobs.end());
    return jobs;
  }
  [[nodiscard]] std::uint32_t idle_gpus() const noexcept { return idle_; }
  [[nodiscard]] std::uint32_t total_gpus() const noexcept {
    return static_cast<std::uint32_t>(scheduler_.nodes().total_gpus());
  }
  [[nodiscard]] const gpu_sharing_scheduler<Score>& scheduler() const noexcept {
    return scheduler_;
  }

 private:
  explicit gpu_sharing_placer(gpu_sharing_scheduler<Score> scheduler)
      : scheduler_(std::move(scheduler)), idle_(total_gpus()) {
    const node_table& nodes = scheduler_.nodes();
    for (const node_id n : nodes.ids()) {
      const std::uint32_t gpus = nodes.shape(n).gpus;
      largest_ = (std::max)(largest_, gpus);
      if (gpus > 0) task_ = (std::min)(task_, gpus);
    }
    for (const node_id n : nodes.ids()) {
      whole_tasks_ += nodes.shape(n).gpus / task_;
      largest_rest_ = (std::max)(largest_rest_, nodes.shape(n).gpus % task_);
    }
  }

  [[nodiscard]] static std::string name(job_id job) { return "job " + std::to_string(job.value); }
  [[nodiscard]] static task_request task(job_id job, std::uint32_t gpus) noexcept {
    return {.job = job, .gpus = gpus, .gpu_milli = whole_gpu};
  }
  [[nodiscard]] absl::Status set_health(node_id n, bool healthy) {
    const bool known = scheduler_.nodes().contains(n);
    const bool changes = known && scheduler_.nodes()[n].healthy != healthy;
    APIARY_RETURN_IF_ERROR(healthy ? scheduler_.mark_healthy(n) : scheduler_.mark_bad(n));
    if (!changes) return absl::OkStatus();
    const std::uint32_t free = scheduler_.nodes()[n].free_gpus();
    idle_ = healthy ? idle_ + free : idle_ - free;
    return absl::OkStatus();
  }

  gpu_sharing_scheduler<Score> scheduler_;
  absl::flat_hash_map<std::uint32_t, job_placement> running_;
  std::uint32_t largest_ = 0;               // GPUs of a server
  std::uint32_t task_ = max_gpus_per_node;  // of a task of a gang
  std::uint32_t whole_tasks_ = 0;           // as many there can be
  std::uint32_t largest_rest_ = 0;          // beside them
  std::uint32_t idle_ = 0;
};

static_assert(JobPlacer<gpu_sharing_placer<fragmentation_gradient>>);

APIARY_NAMESPACE_END
