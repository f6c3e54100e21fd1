// apiary/philly/philly.h - the Philly scheduler: gangs that wait for locality, under tenant quotas.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/server_pool.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/philly/detail/locality_search.h>
#include <apiary/philly/detail/philly_jobs.h>
#include <apiary/philly/detail/philly_queues.h>
#include <apiary/philly/options.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The Philly scheduler. Each tenant has a quota of GPUs and a queue. A job is a gang: it gets all
// its GPUs at once. It first waits for good locality, and the locality relaxes after some tries.
//
// A waiting job acquires: it starts if it fits, or if it collects all its GPUs within acquire_time.
// Otherwise it releases what it has collected, backs off for backoff_time and acquires again. After
// max_tries + 1 tries its locality relaxes by one step. The page says when jobs are preempted.
//
// Collecting: the first job of each tenant that acquires within the quota holds the idle GPUs of
//             the servers that it chose. Only one job does, because two could block each other.
// Preemption: the job that started last stops first. A job that started at the present time, or
//             whose GPUs are not needed, does not stop. A tenant falls below its quota by at most
//             one job.
// Bound:      none: jobs of fewer GPUs may pass a job for as long as they arrive, and a job beyond
//             the quota of its tenant has no claim to GPUs. Use bounded_wait_queue to bound each
//             wait.
// Model:      "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads"
//             (USENIX ATC 2019), sections 2.3 and 3. The module's page names what we chose.
// Requires:   times >= 0 that never decrease; decide() at wake() and after each time at which a job
//             was submitted, ended or failed, or a server broke or was repaired.
// Cost:       submit, finish: O(log jobs). decide: O(tenants * distinct GPU counts) steps of O(log
//             jobs), and a search for each job that starts and each GPU count and locality that
//             does not fit: a fit() for one server, else O(racks), a fit() and O(log racks) for
//             each rack tried.
// Example:    examples/philly.cpp
class philly {
 public:
  // The state of a job.
  enum class phase : std::uint8_t { acquire, backoff, run };
  // The state of a job, with details.
  struct standing {
    philly::phase phase = phase::acquire;          // what it does
    job_locality locality = job_locality::packed;  // the locality that it requires now
    std::uint32_t tries = 0;                       // tries at this locality that have failed
    std::uint32_t held = 0;                        // GPUs that it has collected or runs on
    friend bool operator==(const standing&, const standing&) noexcept = default;
  };
  // Why a job failed; `unknown`: it waits again up to max_retries times.
  using failure = failure_class;

  // A scheduler for the idle cluster options.servers. kInvalidArgument: as options.check().
  [[nodiscard]] static absl::StatusOr<philly> create(const philly_options& options) {
    APIARY_RETURN_IF_ERROR(options.check());
    return philly(options);
  }

  // A job arrives. kInvalidArgument: no job id, no such tenant, no GPUs, or more than the cluster
  // has. kAlreadyExists: a job with this id waits or runs.
  [[nodiscard]] absl::Status submit(const job_request& r, time_ms now) {
    const std::string job = detail::name_of(r.job);
    if (!r.job.valid()) return absl::InvalidArgumentError("a job needs an id");
    if (r.tenant.value >= jobs_.tenants().size()) {
      return absl::InvalidArgumentError(job + ": " + detail::missing(r.tenant));
    }
    if (r.gpus == 0 || r.gpus > total_gpus()) {
      return absl::InvalidArgumentError(job + " requests " + std::to_string(r.gpus) +
                                        " GPUs; the cluster has " + std::to_string(total_gpus()));
    }
    detail::philly_job* const added = jobs_.add(r, options_.first_locality, now);
    if (added == nullptr) return absl::AlreadyExistsError(job + " exists already");
    queue(*added, now);
    return absl::OkStatus();
  }
  // The job has ended, or its owner cancels it. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, time_ms /*now*/) {
    detail::philly_job* const r = jobs_.find(job);
    if (r == nullptr) return absl::NotFoundError(detail::missing(job));
    jobs_.leave(*r);
    jobs_.erase(job);
    return absl::OkStatus();
  }
  // The running job has failed. Returns whether it waits again; if so, with its old position in the
  // order and its locality. kNotFound: it does not run.
  [[nodiscard]] absl::StatusOr<bool> fail(job_id job, failure why, time_ms now) {
    detail::philly_job* const r = jobs_.find(job);
    if (!job.valid()) return absl::NotFoundError(detail::missing(job));
    if (r == nullptr || !r->running)
      return absl::NotFoundError(detail::name_of(job) + " does not run");
    jobs_.leave(*r);
    const bool again = why == failure::transient ||
                       (why == failure::unknown && r->retries++ < options_.max_retries);
    if (again) {
      queue(*r, now);
    } else {
      jobs_.erase(job);
    }
    return again;
  }

  // The server is broken. Its jobs stop and wait again; jobs that collect there release all their
  // GPUs. Returns the jobs that stopped, ascending. kNotFound: there is no such server.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms now) {
    APIARY_ASSIGN_OR_RETURN(const std::vector<job_id> there, jobs_.set_health(n, false));
    std::vector<job_id> stopped;
    for (const job_id job : there) {
      detail::philly_job& r = jobs_.at(job);
      if (r.running) {
        jobs_.leave(r);
        queue(r, now);
        stopped.push_back(job);
      } else {
        jobs_.dismiss(r, now);
      }
    }
    return stopped;
  }
  // The server is repaired. kNotFound: there is no such server.
  [[nodiscard]] absl::Status mark_healthy(node_id n, time_ms /*now*/) {
    return jobs_.set_health(n, true).status();
  }

  // Starts and suspends jobs: applies and appends the actions, which the host carries out in order.
  [[nodiscard]] absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    const time_ms from = (std::min)(wake(), now);
    now_ = now;
    jobs_.time_out(now);
    if (jobs_.freed()) collect_all(now, actions);
    start_all(false, now, actions);
    preempt_all(from, now, actions);
    start_all(true, now, actions);
    for (std::uint32_t t = 0; t < jobs_.tenants().size(); ++t) choose_collector(tenant_id(t), now);
    jobs_.queues().set_causes(
        [&](tenant_id t, std::uint32_t gpus) {
          const detail::philly_tenant& owner = jobs_.tenants()[t.value];
          if (owner.running_gpus() >= owner.quota) return delay_cause::quota;
          const std::uint32_t idle = pool().idle() + owner.collected;
          return gpus > idle ? delay_cause::capacity : delay_cause::fragmentation;
        },
        now);
    decided_ = now;
    next_ = next_chance();
    return absl::OkStatus();
  }
  // When decide() must be called: when a job stops collecting or relaxes its locality, or begins to
  // acquire and could start, preempt or collect.
  [[nodiscard]] time_ms wake() const noexcept { return (std::min)(next_, jobs_.next_time_out()); }

  // The state of a job after the last decide(), submit(), fail() or mark_bad(); nullopt: there is
  // no such job.
  [[nodiscard]] std::optional<standing> find(job_id job) const {
    const detail::philly_job* const r = jobs_.find(job);
    if (r == nullptr) return std::nullopt;
    const std::uint32_t held = detail::gpus_of(r->where);
    if (r->running) return standing{phase::run, r->locality, r->tries, held};
    const detail::philly_cycle& cycle = jobs_.queues().cycle();
    return standing{cycle.acquires(r->relaxed, now_) ? phase::acquire : phase::backoff, r->locality,
                    cycle.tries(r->relaxed, now_), held};
  }
  // How long a job has waited since it arrived or last stopped, by cause; nullopt if it does not.
  [[nodiscard]] std::optional<delays> waited(job_id job, time_ms now) const {
    const detail::philly_job* const r = jobs_.find(job);
    if (r == nullptr || r->running) return std::nullopt;
    return jobs_.queues().waited(r->request, r->entered, now);
  }
  // The GPUs of a tenant's jobs, including collected ones. Requires: there is such a tenant.
  [[nodiscard]] std::uint32_t used(tenant_id t) const noexcept {
    return jobs_.tenants()[t.value].used;
  }
  // All GPUs, including those on bad servers.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return pool().total(); }
  // The pool.
  [[nodiscard]] const server_pool& pool() const noexcept { return jobs_.pool(); }
  // The number of jobs that wait or run.
  [[nodiscard]] std::size_t num_jobs() const noexcept { return jobs_.size(); }

 private:
  explicit philly(const philly_options& options) : options_(options), jobs_(options) {}
  void queue(detail::philly_job& r, time_ms now) {
    jobs_.queue(r, now);
    now_ = now;
    begun_.push_back(r.request.job);
  }

  void collect_all(time_ms now, std::vector<job_action>& actions) {
    jobs_.clear_freed();
    for (const detail::philly_tenant& t : jobs_.tenants()) {
      if (!t.collector.valid()) continue;
      detail::philly_job& r = jobs_.at(t.collector);
      if (jobs_.collect(r)) jobs_.start(r, {}, now, actions);
    }
  }
  // If no job of the tenant collects, the first one that acquires within the quota begins to.
  void choose_collector(tenant_id t, time_ms now) {
    if (jobs_.tenants()[t.value].collector.valid()) return;
    const auto may = [&](tenant_id, std::uint32_t gpus, job_locality) {
      return jobs_.within_quota(t, gpus);
    };
    const std::optional<detail::philly_wait_queues::entry> first =
        jobs_.queues().first_that(t, now, may);
    if (!first) return;
    detail::philly_job& r = jobs_.at(first->job);
    jobs_.appoint(r, now);
    APIARY_VERIFY(!jobs_.collect(r));  // a job that fits already was started before
  }
  // Starts every job that fits: jobs within their quota, then, if `beyond_quota`, the others.
  void start_all(bool beyond_quota, time_ms now, std::vector<job_action>& actions) {
    detail::locality_search& search = jobs_.search();
    for (bool again = true; again;) {
      again = false;
      search.begin_round();
      for (const bool any_quota : {false, true}) {
        if (any_quota && !beyond_quota) break;
        const auto may = [&](tenant_id t, std::uint32_t gpus, job_locality locality) {
          return gpus <= pool().idle() && !search.failed(gpus, locality) &&
                 (any_quota || jobs_.within_quota(t, gpus));
        };
        while (const std::optional<detail::philly_wait_queues::entry> next =
                   jobs_.queues().first_that(now, may)) {
          const job_placement where = search.find(next->gpus, next->locality);
          if (where.empty()) continue;
          detail::philly_job& r = jobs_.at(next->job);
          const detail::philly_tenant& owner = jobs_.tenants()[r.request.tenant.value];
          const std::uint32_t collected = owner.collected;
          jobs_.start(r, where, now, actions);
          again = again || owner.collected < collected;  // collected GPUs are idle again
        }
      }
    }
  }

  // Whether a job that begins to acquire may preempt. GPUs of bad servers do not count.
  [[nodiscard]] bool may_preempt(tenant_id t, std::uint32_t gpus, job_locality locality) const {
    const std::uint64_t all = pool().usable();
    const std::uint64_t in_use = all - pool().idle();
    return options_.preempt_percent && in_use * 100 >= all * *options_.preempt_percent &&
           jobs_.within_quota(t, gpus) && !jobs_.hopeless(gpus, locality);
  }
  // Every job that began to acquire at `from` or later, unless preempted itself, tries to preempt.
  void preempt_all(time_ms from, time_ms now, std::vector<job_action>& actions) {
    for (const job_id job : std::exchange(begun_, {})) preempt_for(job, now, actions);
    const auto may = [&](tenant_id t, std::uint32_t gpus, job_locality locality) {
      return may_preempt(t, gpus, locality);
    };
    const time_ms last_cycle = now - jobs_.queues().cycle().length();
    detail::philly_wait_queues::beginning at{(std::max)({from - 1, last_cycle, time_ms{0}}), {}};
    while (decided_ < now && (at = jobs_.queues().next(at, may)).at <= now) {
      if (jobs_.at(at.job).began <= decided_) preempt_for(at.job, now, actions);
    }
    begun_.clear();
  }
  // Suspends jobs of tenants beyond their quotas and starts the job, if it then fits.
  void preempt_for(job_id job, time_ms now, std::vector<job_action>& actions) {
    const detail::philly_job* const r = jobs_.find(job);
    if (r == nullptr || r->running || !jobs_.queues().cycle().acquires(r->began, now)) return;
    const std::uint32_t gpus = r->request.gpus;
    const job_locality locality = r->locality;
    if (!may_preempt(r->request.tenant, gpus, locality)) return;
    const auto [candidates, more_later] = jobs_.preemption_candidates(now);
    const std::vector<std::size_t> victims =
        detail::choose_victims(jobs_.search(), candidates, gpus, locality);
    if (victims.empty()) {
      if (!more_later) jobs_.set_hopeless(gpus, locality);
      return;
    }
    for (const std::size_t i : victims) {
      detail::philly_job& v = jobs_.at(candidates[i].job);
      jobs_.leave(v);
      queue(v, now);
      actions.push_back({job_action::verb::suspend, v.request.job, {}, {}});
    }
    jobs_.start(jobs_.at(job), jobs_.search().look(gpus, locality), now, actions);
  }

  // The next time at which a job begins to acquire that could start, preempt or collect now.
  [[nodiscard]] time_ms next_chance() {
    detail::locality_search& search = jobs_.search();
    search.begin_round();
    const auto may = [&](tenant_id t, std::uint32_t gpus, job_locality locality) {
      return (!jobs_.tenants()[t.value].collector.valid() && jobs_.within_quota(t, gpus)) ||
             may_preempt(t, gpus, locality) ||
             (gpus <= pool().idle() && !search.failed(gpus, locality) &&
              !search.find(gpus, locality).empty());
    };
    const time_ms chance = jobs_.queues().next({now_, {}}, may).at;
    // GPUs that became idle since the last collection are collected at the next event.
    return jobs_.freed() ? (std::min)(chance, jobs_.queues().next_change(now_)) : chance;
  }

  philly_options options_;
  detail::philly_jobs jobs_;
  std::vector<job_id> begun_;  // began to wait since the last decide()
  time_ms now_ = 0;            // the latest time seen
  time_ms decided_ = -1;       // time of the last decide()
  time_ms next_ = max_time;    // next_chance() at that time
};

static_assert(JobScheduler<philly>);

APIARY_NAMESPACE_END
