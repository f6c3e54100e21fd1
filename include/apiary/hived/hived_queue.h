// apiary/hived/hived_queue.h - the job scheduler of a HiveD cluster.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/core/status.h>
#include <apiary/hived/config.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_jobs.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/plan.h>
#include <apiary/hived/request.h>
#include <apiary/model/job.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>
#include <apiary/topology/tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The JobScheduler of a HiveD cluster: decides when jobs start, and when it suspends them for other
// jobs. Each job is a gang, as hived_jobs makes it.
//
// A guaranteed job (priority 0 to 1000) starts on its tenant's cells as soon as it fits there. It
// suspends jobs of lower priority of its tenant, and opportunistic jobs of all tenants. Idle GPUs
// then go to opportunistic jobs: jobs of priority -1 and, with over_quota, guaranteed jobs that
// wait. A suspended job waits again and keeps its arrival. A job that runs as opportunistic stays
// opportunistic, even if it fits into its tenant's cells later. Small jobs may overtake a large job
// again and again.
// Order:    on a tenant's cells, jobs start by priority, then arrival, then job id. On idle GPUs,
//           jobs start by arrival, then id. For each tenant and number of GPUs, it tries only the
//           first job by priority, arrival and id.
// Causes:   a guaranteed job waits for quota while its tenant has fewer free GPUs than the job asks
//           for, an opportunistic job for capacity while fewer are idle; else for fragmentation.
// Model:    "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees" (OSDI 2020), §3. The
//           order inside a tenant, and over_quota, are ours.
// Requires: times in [0, 2^52) that never decrease; decide() is called after each moment at which a
//           job was submitted or ended, or a node broke or was repaired.
// Cost:     submit, finish O(log jobs + queues of the tenant), one queue for each number of GPUs.
//           decide: a search of the queues, and one hived::propose for each job that starts and
//           each queue whose first job may fit again; on bad hardware, for every queue.
// Example:  examples/job_queues.cpp
class hived_queue {
 public:
  // What a job does.
  enum class phase : std::uint8_t {
    wait,           // it does not run
    guaranteed,     // it runs on its tenant's cells
    opportunistic,  // it runs on idle GPUs; a guaranteed job may suspend it
  };
  // kInvalidArgument: a fault of the configuration, or a node with over 32 leaves, the limit of
  // placements. With over_quota, guaranteed jobs may also run as opportunistic on idle GPUs.
  [[nodiscard]] static absl::StatusOr<hived_queue> create(const hived_config& config,
                                                          bool over_quota = true) {
    APIARY_ASSIGN_OR_RETURN(hived scheduler, hived::create(config));
    APIARY_ASSIGN_OR_RETURN(hived_jobs jobs, hived_jobs::create(scheduler, over_quota));
    return hived_queue(std::move(scheduler), std::move(jobs));
  }
  // Submits a job. kInvalidArgument: no job id, 0 GPUs, a time or priority out of range, or a job
  // that would not fit into the idle and healthy cluster. kNotFound: no such tenant.
  // kAlreadyExists: this job id exists. kFailedPrecondition: the tenant has no cells, and
  // over_quota is off.
  [[nodiscard]] absl::Status submit(const job_request& r, time_ms now) {
    if (!r.job.valid()) return absl::InvalidArgumentError("a job needs an id");
    if (now < 0 || now >= time_ms{1} << time_bits)
      return absl::InvalidArgumentError(name(r.job) + " is submitted at time " +
                                        std::to_string(now) + "; times are 0 to 2^52 - 1");
    if (jobs_.contains(r.job.value))
      return absl::AlreadyExistsError(name(r.job) + " exists already");
    APIARY_ASSIGN_OR_RETURN(const bool own, gangs_.fits_cells(r));
    queues_[key_of(r)].fits_cells = own;
    record& added = jobs_[r.job.value];
    added.request = r;
    added.key = std::int64_t{gang_request::max_priority - r.priority} << time_bits | now;
    enter(added, now);
    return absl::OkStatus();
  }
  // The job has ended or is cancelled. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, time_ms now) {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return absl::NotFoundError(detail::missing(job));
    if (found->second.phase == phase::wait) {
      leave(found->second, now);
    } else {
      APIARY_RETURN_IF_ERROR(stop(found->second));
    }
    jobs_.erase(found);
    return absl::OkStatus();
  }
  // The node is broken: its jobs, returned ascending, stop and wait again. kNotFound: no such node.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms now) {
    APIARY_RETURN_IF_ERROR(scheduler_.mark_bad(n));
    const chain_id c = scheduler_.layout().chain_of(n);
    const detail::physical_chain& chain = scheduler_.cells().chain(c.value);
    std::vector<job_id> stopped;
    for (const cell_id leaf : chain.tree().descendants(scheduler_.layout().node_cell(n), 0)) {
      const gang_slot user = chain.holders(leaf).user;
      if (user.valid()) stopped.push_back(scheduler_.gangs()[user].request.job);
    }
    detail::sort_unique(stopped);
    for (const job_id job : stopped) {
      record& r = jobs_.at(job.value);
      APIARY_RETURN_IF_ERROR(stop(r));
      enter(r, now);
    }
    set_health(n, false);
    return stopped;
  }
  // The node is repaired. kNotFound: there is no such node.
  [[nodiscard]] absl::Status mark_healthy(node_id n, time_ms /*now*/) {
    APIARY_RETURN_IF_ERROR(scheduler_.mark_healthy(n));
    set_health(n, true);
    return absl::OkStatus();
  }
  // Appends suspensions and starts, in the order in which the host must do them; the scheduler has
  // applied them already. Fails only if hived fails.
  [[nodiscard]] absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    for (bool again = true; again;) {
      again = false;  // a job suspended for another tenant may fit into its own tenant's cells
      for (std::uint32_t t = 0; t < used_by_.size(); ++t) {
        while (queue* next = first_queue(tenant_id(t))) {
          const job_id job(next->jobs.first()->id);
          APIARY_ASSIGN_OR_RETURN(next->failed, start(job, phase::guaranteed, now, actions));
          again = again || !next->failed;
        }
      }
    }
    while (const std::optional<job_id> next = first_opportunistic()) {
      const std::uint32_t gpus = jobs_.at(next->value).request.gpus;
      APIARY_ASSIGN_OR_RETURN(const bool failed, start(*next, phase::opportunistic, now, actions));
      if (failed) too_large_.push_back(gpus);
    }
    for (auto& [key, q] : queues_) {
      if (!q.jobs.empty()) q.clock.set(cause_of(key), now);
    }
    return absl::OkStatus();
  }
  // Returns max_time: decide() need not be called while nothing happens.
  [[nodiscard]] time_ms wake() const noexcept { return max_time; }
  // What the job does; nullopt: there is no such job.
  [[nodiscard]] std::optional<phase> find(job_id job) const {
    const auto found = jobs_.find(job.value);
    return found == jobs_.end() ? std::nullopt : std::optional(found->second.phase);
  }
  // Jobs that wait or run.
  [[nodiscard]] std::size_t num_jobs() const noexcept { return jobs_.size(); }
  // GPUs of the cluster, those of bad nodes included.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return gangs_.total_gpus(); }
  // Healthy GPUs that no job uses.
  [[nodiscard]] std::uint32_t idle_gpus() const noexcept {
    return total_gpus() - bad_gpus_ - used_;
  }
  // The scheduler that places the jobs.
  [[nodiscard]] const hived& scheduler() const noexcept { return scheduler_; }

 private:
  static constexpr int time_bits = 52;

  struct record {
    job_request request{};
    std::int64_t key = 0;
    delays entered{};  // reading of its queue's clock when it began to wait
    hived_queue::phase phase = phase::wait;
  };
  // The waiting jobs of a tenant with the same number of GPUs, either guaranteed or opportunistic.
  struct queue {
    weighted_tree jobs{};
    delay_clock clock{};
    bool fits_cells = false;  // its jobs fit into the tenant's cells if these are empty
    bool failed = false;      // the first job did not fit, and nothing has changed since
  };
  using queue_key = std::tuple<std::uint32_t, bool, std::uint32_t>;  // tenant, opportunistic, GPUs

  hived_queue(hived scheduler, hived_jobs gangs)
      : gangs_(std::move(gangs)), scheduler_(std::move(scheduler)) {
    bad_.assign(scheduler_.layout().num_nodes(), false);
    used_by_.resize(gangs_.num_tenants());
  }

  [[nodiscard]] static std::string name(job_id job) { return "job " + std::to_string(job.value); }
  [[nodiscard]] static queue_key key_of(const job_request& r) {
    return {r.tenant.value, r.priority < 0, r.gpus};
  }
  // The job waits from now on.
  void enter(record& r, time_ms now) {
    queue& q = queues_.at(key_of(r.request));
    q.jobs.insert({r.key, r.request.job.value, 0});
    if (q.jobs.first()->id == r.request.job.value) q.failed = false;
    r.phase = phase::wait;
    r.entered = q.clock.at(now);
  }
  // The job waits no longer. Returns how long it waited, by cause.
  delays leave(const record& r, time_ms now) {
    queue& q = queues_.at(key_of(r.request));
    q.jobs.erase(r.key, r.request.job.value);
    delays waited = q.clock.at(now);
    return waited -= r.entered;
  }
  // Stops the job; its GPUs are idle then.
  [[nodiscard]] absl::Status stop(const record& r) {
    APIARY_RETURN_IF_ERROR(scheduler_.finish(r.request.job));
    used_ -= r.request.gpus;
    if (r.phase == phase::guaranteed) used_by_[r.request.tenant.value] -= r.request.gpus;
    too_large_.clear();
    if (r.phase == phase::guaranteed || bad_gpus_ > 0) retry(r.request.tenant);
    return absl::OkStatus();
  }
  // Tries the tenant's jobs again, because they may fit into its cells now; if hardware is bad, the
  // jobs of all tenants.
  void retry(tenant_id t) {
    for (auto& [key, q] : queues_) {
      if (std::get<0>(key) == t.value || bad_gpus_ > 0) q.failed = false;
    }
  }
  void set_health(node_id n, bool good) {
    const std::uint32_t gpus = gangs_.gpus(n);
    if (bad_[n.value] == !good) return;
    bad_[n.value] = !good;
    bad_gpus_ = good ? bad_gpus_ - gpus : bad_gpus_ + gpus;
    too_large_.clear();
    for (auto& [key, q] : queues_) q.failed = false;
  }
  // Returns the tenant's queue whose first job comes first, among those whose first job may fit
  // into the tenant's cells; nullptr: there is none.
  [[nodiscard]] queue* first_queue(tenant_id t) {
    queue* best = nullptr;
    std::optional<weighted_tree::item> least;
    auto at = queues_.lower_bound({t.value, false, 0});
    for (; at != queues_.end() && std::get<0>(at->first) == t.value; ++at) {
      queue& q = at->second;
      if (!q.fits_cells || q.failed) continue;
      const std::optional<weighted_tree::item> first = q.jobs.first();
      if (!first || (least && std::pair(least->key, least->id) < std::pair(first->key, first->id)))
        continue;
      best = &q;
      least = first;
    }
    return best;
  }
  // The next job to try as opportunistic; nullopt: none.
  [[nodiscard]] std::optional<job_id> first_opportunistic() const {
    std::optional<std::pair<time_ms, std::uint32_t>> best;
    for (const auto& [key, q] : queues_) {
      const auto& [t, opportunistic, gpus] = key;
      if ((!opportunistic && !gangs_.over_quota()) || gpus > idle_gpus() ||
          std::find(too_large_.begin(), too_large_.end(), gpus) != too_large_.end())
        continue;
      const std::optional<weighted_tree::item> first = q.jobs.first();
      if (!first) continue;
      const std::pair at(first->key & ((std::int64_t{1} << time_bits) - 1), first->id);
      if (!best || at < *best) best = at;
    }
    return best ? std::optional(job_id(best->second)) : std::nullopt;
  }
  // Starts the job and suspends the jobs in its way. Returns true if the job does not fit.
  [[nodiscard]] absl::StatusOr<bool> start(job_id job, hived_queue::phase as, time_ms now,
                                           std::vector<job_action>& actions) {
    record& r = jobs_.at(job.value);
    const gang_request gang = as == phase::opportunistic ? gangs_.opportunistic_gang(r.request)
                                                         : gangs_.gang_of(r.request);
    APIARY_ASSIGN_OR_RETURN(gang_plan plan, scheduler_.propose(gang));
    if (plan.result == plan_result::wait) return true;
    APIARY_RETURN_IF_ERROR(scheduler_.commit(plan));
    if (plan.result == plan_result::preempt) {
      for (const job_id victim : plan.victims) {
        record& v = jobs_.at(victim.value);
        APIARY_RETURN_IF_ERROR(stop(v));
        enter(v, now);
        actions.push_back({job_action::verb::suspend, victim, {}, {}});
      }
      APIARY_ASSIGN_OR_RETURN(plan, scheduler_.propose(gang));
      APIARY_VERIFY(plan.result == plan_result::bind);
      APIARY_RETURN_IF_ERROR(scheduler_.commit(plan));
    }
    const delays waited = leave(r, now);
    r.phase = as;
    used_ += r.request.gpus;
    if (as == phase::guaranteed) used_by_[r.request.tenant.value] += r.request.gpus;
    actions.push_back({job_action::verb::start, job, hived_jobs::placement_of(plan.tasks), waited});
    return false;
  }

  [[nodiscard]] delay_cause cause_of(const queue_key& key) const {
    const auto& [t, opportunistic, gpus] = key;
    const std::uint32_t free =
        opportunistic ? idle_gpus() : gangs_.owned(tenant_id(t)) - used_by_[t];
    if (gpus <= free) return delay_cause::fragmentation;
    return opportunistic ? delay_cause::capacity : delay_cause::quota;
  }

  hived_jobs gangs_;
  hived scheduler_;
  std::uint32_t used_ = 0;  // GPUs
  std::uint32_t bad_gpus_ = 0;
  std::vector<bool> bad_;               // nodes
  std::vector<std::uint32_t> used_by_;  // GPUs of a tenant's cells that its jobs use
  std::map<queue_key, queue> queues_;
  std::vector<std::uint32_t> too_large_;  // numbers of GPUs that fit nowhere as opportunistic
  std::unordered_map<std::uint32_t, record> jobs_;
};

static_assert(JobScheduler<hived_queue>);

APIARY_NAMESPACE_END
