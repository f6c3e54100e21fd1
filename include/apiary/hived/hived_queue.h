// apiary/hived/hived_queue.h - the job scheduler of a HiveD cluster.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/core/status.h>
#include <apiary/hived/config.h>
#include <apiary/hived/detail/cell_forecast.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/idle_waits.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/tenant_queues.h>
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
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The JobScheduler of a HiveD cluster: starts and suspends jobs, which are gangs made by
// hived_jobs.
//
// A guaranteed job (priority 0 to 1000) starts on its tenant's cells as soon as it fits there. It
// suspends jobs of lower priority of its tenant, and opportunistic jobs of all tenants. Idle GPUs
// then go to opportunistic jobs: jobs of priority -1 and, with over_quota, guaranteed jobs that
// wait; they stay opportunistic while they run. A suspended job waits again and keeps its arrival.
// Order:    on a tenant's cells, jobs start by priority, then arrival, then job id; a later job of
//           the same priority overtakes the first one that does not fit only if it does not delay
//           it, by the estimates (EASY); with rules::first_fit each job that fits overtakes. On
//           idle GPUs, jobs start by arrival, then id: of each tenant and number of GPUs only the
//           first job by priority. A job that can only run there (of priority -1, or larger than
//           its tenant's cells) starves when it has waited for `patience` without a break: then
//           jobs that came later start on idle GPUs only if they end, by the estimates, before it
//           can start.
// Bound:    a guaranteed job that fits into its tenant's cells waits at most (k + 1 + 2 s) * T at a
//           time. k jobs of its tenant wait before it when it begins to wait, s times one of those
//           before it is suspended on idle GPUs while it waits, and T is the tenant's longest
//           estimate. This holds while hardware is healthy, no job runs longer than its estimate,
//           no job of higher priority of its tenant waits or arrives, and under rules::easy. A job
//           that can only run on idle GPUs waits at most `patience`, and then until each job that
//           runs or came before it has ended, and should have ended by its estimate. This holds
//           while no tenant starts a job on its cells, hardware is healthy and no job runs longer
//           than its estimate.
// Causes:   a guaranteed job waits for order if it must not overtake; for quota while its tenant
//           has fewer free GPUs than the job asks for; an opportunistic job for order if it must
//           not overtake one that starves, for capacity while fewer are idle; else for
//           fragmentation.
// Model:    "HiveD" (OSDI 2020), §3. The order inside a tenant, over_quota and patience are ours.
// Limits:   bad hardware is not foreseen: a first job that has enough cells, but bad ones, is
//           overtaken. Jobs without estimates are taken to end in the order of their starts.
// Requires: times in [0, 2^52) that never decrease; decide() after each moment with another call.
// Cost:     submit, finish O(log jobs + queues of the tenant), one for each number of GPUs and
//           priority. decide: a walk over all queues; for each tenant with a change a propose for
//           each start and each queue that may fit again, and O(nodes whose jobs changed) steps of
//           O(log nodes), or O(nodes of the tenant) on bad hardware (detail/cell_forecast.h).
// Example:  examples/job_queues.cpp
class hived_queue {
 public:
  // What a job does.
  enum class phase : std::uint8_t {
    wait,           // it does not run
    guaranteed,     // it runs on its tenant's cells
    opportunistic,  // it runs on idle GPUs; a guaranteed job may suspend it
  };
  // Which jobs of a tenant may overtake its first waiting job.
  enum class rules : std::uint8_t {
    easy,       // those that do not delay it
    first_fit,  // all that fit
  };
  // kInvalidArgument: a fault of the configuration, a node with over 32 leaves, the limit of
  // placements, a host in two chains, or a negative patience. With over_quota, guaranteed jobs may
  // also run as opportunistic on idle GPUs. With a patience of max_time no job starves.
  [[nodiscard]] static absl::StatusOr<hived_queue> create(const hived_config& config,
                                                          bool over_quota = true,
                                                          rules rule = rules::easy,
                                                          time_ms patience = 86'400'000) {
    APIARY_RETURN_IF_ERROR(detail::idle_waits::check_patience(patience));
    APIARY_ASSIGN_OR_RETURN(hived scheduler, hived::create(config));
    APIARY_ASSIGN_OR_RETURN(hived_jobs jobs, hived_jobs::create(scheduler, over_quota));
    return hived_queue(std::move(scheduler), std::move(jobs), rule, patience);
  }
  // Submits a job. kInvalidArgument: no job id, 0 GPUs, a time, estimate or priority out of range,
  // or more GPUs than fit (see fits_cells). kNotFound: no such tenant. kAlreadyExists: this job id
  // exists. kFailedPrecondition: the tenant has no cells, and over_quota is off.
  [[nodiscard]] absl::Status submit(const job_request& r, time_ms now) {
    if (!r.job.valid()) return absl::InvalidArgumentError("a job needs an id");
    if (now < 0 || now >= time_ms{1} << detail::tenant_queues::time_bits)
      return absl::InvalidArgumentError(detail::name_of(r.job) + " is submitted at time " +
                                        std::to_string(now) + "; times are 0 to 2^52 - 1");
    if (r.estimate < 0)
      return absl::InvalidArgumentError(detail::name_of(r.job) + " has the estimate " +
                                        std::to_string(r.estimate) + "; the minimum is 0");
    if (jobs_.contains(r.job.value))
      return absl::AlreadyExistsError(detail::name_of(r.job) + " exists already");
    APIARY_ASSIGN_OR_RETURN(const bool own, gangs_.fits_cells(r));
    record& added = jobs_[r.job.value] = {.request = r, .arrival = now, .fits_cells = own};
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
  // Appends suspensions and starts, in order; it has applied them already. Fails only if hived
  // fails.
  [[nodiscard]] absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    for (bool again = true; again;) {
      again = false;  // a suspended job may fit into its own tenant's cells
      for (std::uint32_t t = 0; t < tenants_.size(); ++t) {
        if (!std::exchange(tenants_[t].changed, false)) continue;
        APIARY_ASSIGN_OR_RETURN(const bool started, fill_cells(tenant_id(t), now, actions));
        tenants_[t].changed = started;
        again = again || started;
      }
      while (!again) {
        const std::optional<job_id> next = next_on_idle(now);
        if (!next) break;
        const job_request& r = jobs_.at(next->value).request;
        APIARY_ASSIGN_OR_RETURN(const answer got, start(*next, phase::opportunistic, now, actions));
        if (got == answer::full) too_large_ = r.gpus;
        again = tenants_[r.tenant.value].changed;  // the job had held others back
      }
    }
    const bool starves = idle_waits_.first_starving(now, gangs_).has_value();
    waiting_.set_causes(now, [&](tenant_id t, bool opportunistic, std::uint32_t gpus,
                                 const detail::tenant_queues::queue& q) {
      if (q.ends_by && !q.full) return delay_cause::order;
      if (opportunistic && gpus <= most_on_idle() && starves) return delay_cause::order;
      if (gpus <= (opportunistic ? idle_gpus() : gangs_.owned(t) - tenants_[t.value].used))
        return delay_cause::fragmentation;
      return opportunistic ? delay_cause::capacity : delay_cause::quota;
    });
    return absl::OkStatus();
  }
  // Never: decide() need not be called while nothing happens.
  [[nodiscard]] time_ms wake() const noexcept { return max_time; }
  // What the job does; nullopt: there is no such job.
  [[nodiscard]] std::optional<phase> find(job_id job) const {
    const auto found = jobs_.find(job.value);
    return found == jobs_.end() ? std::nullopt : std::optional(found->second.phase);
  }
  // Whether the job fits into its tenant's empty cells, or only runs on idle GPUs. nullopt: no job.
  [[nodiscard]] std::optional<bool> fits_cells(job_id job) const {
    const auto found = jobs_.find(job.value);
    return found == jobs_.end() ? std::nullopt : std::optional(found->second.fits_cells);
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
  static constexpr std::uint32_t no_limit = (std::numeric_limits<std::uint32_t>::max)();
  struct record {
    job_request request{};
    time_ms arrival = 0;
    delays entered{};  // reading of its queue's clock when it began to wait
    hived_queue::phase phase = phase::wait;
    bool fits_cells = false;  // it fits into its tenant's cells if these are empty
    // Of a job that runs on its tenant's cells:
    detail::forecast_moment ends{};  // by its estimate; without estimates the oldest ends first
    detail::gang_nodes nodes{};
  };
  struct tenant_state {
    std::uint32_t used = 0;            // GPUs of its cells that its jobs use
    bool changed = true;               // a job may start on its cells
    bool measures = false;             // hardware has changed since the last forecast
    detail::cell_forecast forecast{};  // of the jobs on its cells
  };
  // The first job that waits on its tenant's cells, and when it will start by the estimates.
  struct reservation {
    detail::cell_forecast::gang gang;
    detail::forecast_moment then{};
  };
  enum class answer : std::uint8_t { started, full, delays_first };

  hived_queue(hived scheduler, hived_jobs gangs, rules rule, time_ms patience)
      : gangs_(std::move(gangs)),
        scheduler_(std::move(scheduler)),
        rule_(rule),
        idle_waits_(patience, scheduler_.layout().num_nodes()) {
    tenants_.resize(gangs_.num_tenants());
    for (std::uint32_t t = 0; t < tenants_.size(); ++t)
      tenants_[t].forecast = detail::cell_forecast(scheduler_.cells(), tenant_id(t));
  }

  [[nodiscard]] std::uint32_t most_on_idle() const noexcept {
    return (std::min)(idle_gpus(), too_large_ - 1);
  }
  // The next job that may start on idle GPUs; beside one that starves only jobs that end before it
  // starts.
  [[nodiscard]] std::optional<job_id> next_on_idle(time_ms now) {
    const auto end = idle_waits_.first_starving(now, gangs_);
    const auto next = waiting_.next_on_idle(most_on_idle(), gangs_.over_quota(), end);
    if (next || !end) return next;
    const std::uint32_t gpus = jobs_.at(end->second).request.gpus;
    if (gpus <= most_on_idle()) return job_id(end->second);
    const time_ms longest = idle_waits_.longest_beside(gpus, idle_gpus(), now);
    return waiting_.next_on_idle(most_on_idle(), gangs_.over_quota(), {}, longest);
  }
  // The job waits from now on.
  void enter(record& r, time_ms now) {
    if (waiting_.enter(r.request, r.arrival, r.fits_cells))
      tenants_[r.request.tenant.value].changed = true;
    r.phase = phase::wait;
    if (r.request.priority < 0 || !r.fits_cells) idle_waits_.enter(r.request, r.arrival, now);
    r.entered = waiting_.of(r.request).clock.at(now);
  }
  // The job waits no longer. Returns how long it waited, by cause.
  delays leave(const record& r, time_ms now) {
    if (waiting_.holds_back(r.request)) tenants_[r.request.tenant.value].changed = true;
    idle_waits_.leave(r.request.job);
    delays waited = waiting_.leave(r.request, r.arrival, now);
    return waited -= r.entered;
  }
  // Stops the job; its GPUs are idle then.
  [[nodiscard]] absl::Status stop(const record& r) {
    APIARY_RETURN_IF_ERROR(scheduler_.finish(r.request.job));
    idle_waits_.end_run(r.request.job);
    used_ -= r.request.gpus;
    too_large_ = no_limit;
    if (r.phase == phase::guaranteed) {
      tenant_state& t = tenants_[r.request.tenant.value];
      t.used -= r.request.gpus;
      t.forecast.stop(r.request.job, r.ends, r.nodes);
    }
    if (r.phase == phase::guaranteed || bad_gpus_ > 0) retry(r.request.tenant);
    return absl::OkStatus();
  }
  // The tenant's jobs may fit into its cells now; if hardware is bad, the jobs of all tenants.
  void retry(tenant_id t) {
    if (bad_gpus_ > 0) return retry_all();
    waiting_.retry(t);
    tenants_[t.value].changed = true;
  }
  void retry_all() {
    waiting_.retry();
    for (tenant_state& t : tenants_) t.changed = true;
  }
  void set_health(node_id n, bool good) {
    const std::uint32_t gpus = gangs_.gpus(n);
    if (idle_waits_.is_bad(n) == !good) return;
    idle_waits_.set_health(n, good);
    bad_gpus_ = good ? bad_gpus_ - gpus : bad_gpus_ + gpus;
    too_large_ = no_limit;
    for (tenant_state& t : tenants_) t.measures = true;
    retry_all();
  }
  // Starts the tenant's jobs that fit into its cells and may overtake. Returns whether any has
  // started.
  [[nodiscard]] absl::StatusOr<bool> fill_cells(tenant_id t, time_ms now,
                                                std::vector<job_action>& actions) {
    waiting_.begin_round(t);
    bool any = false;
    std::optional<reservation> first;  // of the first job that waits, of the current priority
    while (const std::optional<job_id> next = waiting_.next_on_cells(t, now)) {
      const job_request& r = jobs_.at(next->value).request;
      detail::tenant_queues::queue& q = waiting_.of(r);
      if (first && first->gang.priority != r.priority) first.reset();
      if (!q.full) {
        const bool late = first && !detail::tenant_queues::ends_by(r, first->then.at, now);
        APIARY_ASSIGN_OR_RETURN(const answer done, start(*next, phase::guaranteed, now, actions,
                                                         late ? &*first : nullptr));
        any = any || done == answer::started;
        if (waiting_.passed_over() && rule_ == rules::easy) {
          waiting_.begin_round(t);
          first.reset();
        }
        if (done == answer::delays_first) q.ends_by = first->then.at;
        if (done != answer::full) continue;
        waiting_.set_full(r, bad_gpus_ == 0);
      }
      q.done = true;
      if (!first) first = reserve(t, r);
    }
    return any;
  }
  // When the job will fit into the tenant's cells, by the estimates. nullopt: only hardware is bad.
  [[nodiscard]] std::optional<reservation> reserve(tenant_id t, const job_request& r) {
    if (rule_ == rules::first_fit) return std::nullopt;
    tenant_state& tenant = tenants_[t.value];
    if (std::exchange(tenant.measures, bad_gpus_ > 0)) tenant.forecast.measure(scheduler_.cells());
    const detail::cell_forecast::gang gang(r.priority, gangs_.gang_of(r).groups);
    const std::optional<detail::forecast_moment> then = tenant.forecast.first_fit(gang);
    if (!then || *then == detail::forecast_moment::now()) return std::nullopt;
    return reservation{gang, *then};
  }
  // Starts the job and suspends those in its way, if it fits and does not delay `first` (if not
  // null).
  [[nodiscard]] absl::StatusOr<answer> start(job_id job, hived_queue::phase as, time_ms now,
                                             std::vector<job_action>& actions,
                                             const reservation* first = nullptr) {
    record& r = jobs_.at(job.value);
    const gang_request gang = as == phase::opportunistic ? gangs_.opportunistic_gang(r.request)
                                                         : gangs_.gang_of(r.request);
    APIARY_ASSIGN_OR_RETURN(gang_plan plan, scheduler_.propose_unexplained(gang));
    if (plan.result == plan_result::wait) return answer::full;
    APIARY_RETURN_IF_ERROR(scheduler_.commit(plan));
    const bool preempts = plan.result == plan_result::preempt;
    if (as == phase::guaranteed)
      r.nodes = detail::gang_nodes::of(scheduler_.cells(), *scheduler_.find(job));
    if (first != nullptr &&
        !tenants_[r.request.tenant.value].forecast.fits_beside(first->gang, first->then, r.nodes)) {
      APIARY_RETURN_IF_ERROR(preempts ? scheduler_.cancel(job) : scheduler_.finish(job));
      return answer::delays_first;
    }
    if (preempts) {
      for (const job_id victim : plan.victims) {
        record& v = jobs_.at(victim.value);
        APIARY_RETURN_IF_ERROR(stop(v));
        enter(v, now);
        actions.push_back({job_action::verb::suspend, victim, {}, {}});
      }
      APIARY_ASSIGN_OR_RETURN(plan, scheduler_.propose_unexplained(gang));
      APIARY_VERIFY(plan.result == plan_result::bind);
      APIARY_RETURN_IF_ERROR(scheduler_.commit(plan));
    }
    const delays waited = leave(r, now);
    idle_waits_.begin_run(r.request, now);
    r.phase = as;
    used_ += r.request.gpus;
    if (as == phase::guaranteed) {
      r.ends = detail::forecast_moment::end_of(add_time(now, r.request.estimate), ++starts_);
      tenant_state& t = tenants_[r.request.tenant.value];
      t.used += r.request.gpus;
      t.forecast.start(job, r.request.priority, r.ends, r.nodes);
    }
    actions.push_back({job_action::verb::start, job, hived_jobs::placement_of(plan.tasks), waited});
    return answer::started;
  }

  hived_jobs gangs_;
  hived scheduler_;
  rules rule_;
  std::uint64_t starts_ = 0;
  std::uint32_t used_ = 0;  // GPUs
  std::uint32_t bad_gpus_ = 0;
  std::vector<tenant_state> tenants_;
  detail::tenant_queues waiting_;
  std::uint32_t too_large_ = no_limit;  // so many GPUs fit nowhere as opportunistic
  std::unordered_map<std::uint32_t, record> jobs_;
  detail::idle_waits idle_waits_;  // of jobs that can only run on idle GPUs
};

static_assert(JobScheduler<hived_queue>);

APIARY_NAMESPACE_END
