// apiary/gang_scheduler/gang_placer.h - places the jobs of a queue by the gang scheduler.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gang_scheduler/detail/job_division.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>
#include <apiary/model/placer.h>
#include <apiary/model/plan.h>
#include <apiary/model/resources.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// What a job needs besides its number of GPUs.
struct gang_job_demand {
  resources per_gpu{};                // CPU and memory beside each GPU
  std::vector<std::string> models{};  // one of these GPU models; empty: any
};

// Options of a gang_placer.
struct gang_placer_options {
  // By job_request::demand; jobs from its end on need only GPUs.
  std::vector<gang_job_demand> demands{};
  // Whether jobs suspend running jobs of lower priority, at least cost. If not, priorities do not
  // count.
  bool preempts = false;
};

// A placer of jobs that need CPU, memory or GPU models, or that suspend others: a job of n GPUs is
// a gang of tasks that each fill a node of the largest size among the nodes of its GPU models, and
// one task with the remaining GPUs; of smaller tasks if these do not fit even in the idle cluster.
// No job runs on a node with taints.
// Cost:    propose, commit, finish as those of gang_scheduler; a commit to GPUs that were not
//          proposed just before as gang_scheduler::recover; check: a look-up, and for the first job
//          of a size and demand one proposal for each size of tasks until one may fit.
// Example: examples/own_queue.cpp
class gang_placer {
 public:
  using request = job_request;           // see Placer
  using placement_type = job_placement;  // see Placer
  // See Placer. Without preemption, the priority and the tenant are 0.
  struct kind {
    std::int32_t priority = 0;
    tenant_id tenant{};  // it may have a disruption budget
    std::uint32_t gpus = 0;
    std::uint32_t demand = 0;
    friend auto operator<=>(const kind&, const kind&) noexcept = default;
  };

  // A placer for an idle cluster. kInvalidArgument: as gang_scheduler::create.
  [[nodiscard]] static absl::StatusOr<gang_placer> create(const gang_cluster& cluster,
                                                          gang_placer_options options = {}) {
    APIARY_ASSIGN_OR_RETURN(gang_scheduler scheduler, gang_scheduler::create(cluster));
    return gang_placer(std::move(scheduler), std::move(options));
  }
  // The same for a scheduler. Requires: no gang runs. Its nodes stay as they are.
  explicit gang_placer(gang_scheduler scheduler, gang_placer_options options = {})
      : scheduler_(std::move(scheduler)), options_(std::move(options)) {
    APIARY_VERIFY(scheduler_.num_gangs() == 0);
    const auto nodes = scheduler_.free_capacity(0);
    for (const gang_scheduler::cell_capacity& n : *nodes) {
      const node_id id = *scheduler_.find_node(n.name);
      const gang_cluster::node& node = *scheduler_.node(id);
      free_.resize((std::max)(free_.size(), id.value + std::size_t{1}));
      free_[id.value] = node.host;
      total_ += node.gpus;
      if (node.taints.empty()) division_.add(node.model, node.gpus);
      if (!node.taints.empty()) tainted_free_ += n.free_gpus;
    }
  }

  // See Placer.
  [[nodiscard]] kind kind_of(const job_request& r) const noexcept {
    if (!options_.preempts) return {0, {}, r.gpus, r.demand};
    return {r.priority, r.tenant, r.gpus, r.demand};
  }
  // kInvalidArgument: no GPU, or the job does not fit into the idle cluster.
  [[nodiscard]] absl::Status check(const job_request& r) {
    if (r.gpus == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(detail::name_of(r.job), " asks for 0 GPUs; the minimum is 1"));
    }
    if (task_gpus(r) > 0) return absl::OkStatus();
    const gang_job_demand& d = demand_of(r);
    APIARY_RETURN_IF_ERROR(division_.check_products(r, d.per_gpu, d.models));
    return division_.never_fits(r, d.per_gpu, d.models, total_);
  }
  // See Placer.
  [[nodiscard]] absl::StatusOr<std::optional<job_placement>> propose(const job_request& r) {
    APIARY_ASSIGN_OR_RETURN(placer_answer<job_placement> answer, propose_preempting(r));
    if (answer.result != plan_result::bind) return std::nullopt;
    return std::move(answer.where);
  }
  // See PreemptingPlacer.
  [[nodiscard]] absl::StatusOr<placer_answer<job_placement>> propose_preempting(
      const job_request& r) {
    const std::uint32_t size = task_gpus(r);
    if (size == 0) return check(r);
    if (!options_.preempts && r.gpus > idle_gpus()) return placer_answer<job_placement>();
    APIARY_ASSIGN_OR_RETURN(gang_scheduler::plan plan, scheduler_.propose(gang_of(r, size), now_));
    placer_answer<job_placement> answer{plan.result, {}, {}};
    answer.undecided = plan.reason == wait_reason::undecided;
    if (plan.result == plan_result::wait) return answer;
    if (plan.result == plan_result::bind) answer.where = detail::by_node(plan.tasks);
    for (const job_key& victim : plan.victims) answer.victims.push_back(id_of(victim));
    last_ = {r.job, answer.where, std::move(plan)};
    return answer;
  }
  // See PreemptingPlacer. kAborted: the state has changed since.
  [[nodiscard]] absl::Status reserve(job_id job) {
    if (last_.job == job) return scheduler_.commit(last_.plan);
    return absl::AbortedError(detail::name_of(job) + " was not proposed");
  }
  // See PreemptingPlacer. Jobs that have used the least GPU-time are suspended first.
  void set_time(time_ms now) noexcept { now_ = now; }
  // kAborted: GPUs, CPU or memory are not free. Requires: a placement proposed for such a job.
  [[nodiscard]] absl::Status commit(const job_request& r, const job_placement& where) {
    running_job job{where, demand_of(r).per_gpu};
    absl::Status done = absl::AbortedError("");
    if (last_.job == r.job && last_.where == where && !where.empty())
      done = scheduler_.commit(last_.plan);
    if (absl::IsAborted(done)) done = put_back(r, job);
    APIARY_RETURN_IF_ERROR(done);
    for (const placement& p : where) free_[p.node.value] -= job.host_on(p);
    running_.emplace(r.job.value, std::move(job));
    return absl::OkStatus();
  }
  // See Placer.
  [[nodiscard]] absl::Status finish(job_id job) {
    APIARY_RETURN_IF_ERROR(scheduler_.finish(job.value));
    const auto ended = running_.find(job.value);
    if (ended == running_.end()) return absl::OkStatus();  // its GPUs were only reserved
    for (const placement& p : ended->second.where) free_[p.node.value] += ended->second.host_on(p);
    running_.erase(ended);
    return absl::OkStatus();
  }
  // See Placer.
  [[nodiscard]] absl::Status mark_bad(node_id n) { return mark(n, false); }
  // See Placer.
  [[nodiscard]] absl::Status mark_healthy(node_id n) { return mark(n, true); }
  // See Placer.
  [[nodiscard]] std::vector<job_id> jobs_on(node_id n) const {
    std::vector<job_id> jobs;
    for (const job_key& job : scheduler_.jobs_on(n)) jobs.push_back(id_of(job));
    return jobs;
  }
  // Idle GPUs on healthy nodes without taints.
  [[nodiscard]] std::uint32_t idle_gpus() const {
    return static_cast<std::uint32_t>(scheduler_.free_gpus() - tainted_free_);
  }
  // All GPUs, including those on bad nodes and on nodes with taints.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return total_; }
  // The scheduler inside.
  [[nodiscard]] const gang_scheduler& scheduler() const noexcept { return scheduler_; }

 private:
  struct running_job {
    job_placement where{};
    resources per_gpu{};
    // The CPU and memory that it has on one of its nodes.
    [[nodiscard]] resources host_on(const placement& p) const {
      return {p.num_gpus() * per_gpu.cpu_milli, p.num_gpus() * per_gpu.memory_mib};
    }
  };
  struct proposal {
    job_id job{};
    job_placement where{};
    gang_scheduler::plan plan{};
  };

  // All keys are numbers below 2^32.
  [[nodiscard]] static job_id id_of(const job_key& job) {
    return job_id(static_cast<std::uint32_t>(job.number()));
  }
  [[nodiscard]] const gang_job_demand& demand_of(const job_request& r) const noexcept {
    return r.demand < options_.demands.size() ? options_.demands[r.demand] : only_gpus_;
  }
  // A gang of tasks with so many GPUs, and one with the rest.
  [[nodiscard]] gang_scheduler::request gang_of(const job_request& r, std::uint32_t size) const {
    const gang_job_demand& d = demand_of(r);
    gang_scheduler::request gang = detail::job_division::gang_of(r, size, d.per_gpu, d.models);
    if (!options_.preempts) gang.priority = 0;
    return gang;
  }
  // The GPUs of the largest tasks with which the job may fit into the idle cluster; 0: it never
  // fits.
  [[nodiscard]] std::uint32_t task_gpus(const job_request& r) {
    const auto [at, is_new] = task_gpus_.try_emplace({r.gpus, r.demand}, 0);
    if (!is_new) return at->second;
    const gang_job_demand& d = demand_of(r);
    if (!division_.has(r.gpus, d.models)) return 0;
    const std::uint64_t most = (std::max)(d.per_gpu.cpu_milli, d.per_gpu.memory_mib);
    for (std::uint32_t size = division_.task_gpus(r.gpus, d.models); size > 0; --size) {
      if (size * most > std::uint64_t{~0U}) continue;
      gang_scheduler::request gang = gang_of(r, size);
      gang.job = std::uint64_t{1} << 32;  // no job has this key
      const auto plan = scheduler_.propose(gang, now_);
      if (!plan.ok() || plan->reason == wait_reason::never) continue;
      at->second = size;
      break;
    }
    return at->second;
  }
  // The job runs where it was proposed before, or ran.
  [[nodiscard]] absl::Status put_back(const job_request& r, const running_job& job) {
    for (const placement& p : job.where) {
      if (job.host_on(p).fits_in(free_[p.node.value])) continue;
      return absl::AbortedError(
          absl::StrCat("server ", p.node.value, " has too little free CPU or memory"));
    }
    const std::uint32_t size = task_gpus(r);
    const absl::Status done = scheduler_.recover(gang_of(r, size), tasks_of(job.where, size), now_);
    return absl::IsFailedPrecondition(done) ? absl::AbortedError(done.message()) : done;
  }
  // The tasks of a job on these GPUs: those of `size` GPUs first, then the rest.
  [[nodiscard]] static std::vector<placement> tasks_of(const job_placement& where,
                                                       std::uint32_t size) {
    std::vector<placement> tasks;
    std::vector<placement> rest;
    for (const placement& p : where) {
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
  [[nodiscard]] absl::Status mark(node_id n, bool healthy) {
    const std::uint64_t free = scheduler_.free_gpus();
    APIARY_RETURN_IF_ERROR(healthy ? scheduler_.mark_healthy(n) : scheduler_.mark_bad(n));
    if (!scheduler_.node(n)->taints.empty()) tainted_free_ += scheduler_.free_gpus() - free;
    return absl::OkStatus();
  }

  gang_scheduler scheduler_;
  gang_placer_options options_;
  gang_job_demand only_gpus_{};  // of jobs without a demand
  detail::job_division division_;
  std::uint32_t total_ = 0;         // GPUs
  std::uint64_t tainted_free_ = 0;  // GPUs of nodes with taints; no job runs there
  std::vector<resources> free_;     // CPU and memory of each node
  std::unordered_map<std::uint32_t, running_job> running_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> task_gpus_;  // by GPUs, demand
  time_ms now_ = 0;
  proposal last_{};  // the last placement that was proposed
};

static_assert(JobPlacer<gang_placer> && PreemptingPlacer<gang_placer> &&
              !GuaranteeingPlacer<gang_placer>);

APIARY_NAMESPACE_END
