// apiary/philly/philly.h - gangs whose locality relaxes, under quotas that are lent.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/server_pool.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/philly/detail/jobs.h>
#include <apiary/philly/detail/victims.h>
#include <apiary/philly/detail/wait_queues.h>
#include <apiary/philly/options.h>
#include <apiary/philly/server_pool_concept.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A queue a tenant, each with a quota of GPUs; whole GPUs, all of a job's or none.
//
//   ACQUIRE, locality as it is now
//     a place for all GPUs, or all collected in acquire_time  -> RUN
//     otherwise what it holds is released                     -> BACKOFF, tries + 1
//   BACKOFF, for backoff_time                                 -> ACQUIRE; if tries > max_tries,
//                                                                locality one step looser, tries 0
//
// Who starts:  tenants within their quota first, then, on what is idle, those beyond it (lending);
//              within each in order of arrival, whoever has a place.
// Collecting:  the first job of each tenant that acquires within quota holds the idle GPUs of the
//              servers that it aims at, and takes what falls idle there before all others. One a
//              tenant: jobs that hold what each other needs would only time out together. All that
//              it wants counts against its tenant's quota for the tenant's other jobs.
// Preemption:  before anything is lent, a job that begins to acquire within quota and has no place,
//              when at least preempt_percent of the GPUs of healthy servers are used or collected,
//              takes the place of jobs of tenants whose running jobs are beyond their quotas: the
//              last started first, but none of this moment, and none that is not needed; no tenant
//              falls below its quota by more than the job that crosses it.
// Delay:       cause quota while the tenant's quota has no room for the job, else capacity or
//              fragmentation; both are what is published as fragmentation delay.
//
// Model:       "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads"
//              (USENIX ATC 2019), §2.3 and §3. Not published, and chosen here: max_tries, that one
//              job a tenant collects, who is preempted; see philly/options.h for places.
// Requires:    times >= 0 that never go back; decide() at wake() and after each moment at which
//              something was submitted, ended, failed, broke or was repaired, or the pool was used.
// Cost:        submit, finish O(log jobs); decide O(tenants * numbers of GPUs that jobs ask for)
//              steps of O(log jobs), and a search for a place (O(racks log racks) for jobs over
//              servers) for each job that starts and each number of GPUs and locality without one.
//              Who waits in vain costs nothing: wake() is when somebody could get something.
// Over:        any ServerPool (philly/server_pool_concept.h): where the GPUs of a locality are, which of
//              them a gang takes and who else uses them is the pool's. What others use is in use
//              for preemption, but in nobody's quota, and nobody takes it back.
template <ServerPool Pool>
class philly_scheduler {
 public:
  enum class phase : std::uint8_t { acquire, backoff, run };
  // Where a job stands.
  struct standing {
    philly_scheduler::phase phase = phase::acquire;
    job_locality locality = job_locality::packed;
    std::uint32_t tries = 0;  // that ended in a backoff, at this locality
    std::uint32_t held = 0;   // GPUs that it has, collected or to run on
    friend bool operator==(const standing&, const standing&) noexcept = default;
  };
  enum class failure : std::uint8_t {
    transient,  // not the job's fault: again, always
    permanent,  // never again
    unknown,    // again, up to max_retries times
  };

  // A pool of options.servers. kInvalidArgument: as check_philly(options).
  [[nodiscard]] static absl::StatusOr<philly_scheduler> create(
      const philly_options& options) requires
      std::constructible_from<Pool, std::span<const std::uint32_t>, std::uint32_t> {
    APIARY_RETURN_IF_ERROR(check_philly(options));
    return philly_scheduler(options, Pool(options.servers.gpus, options.servers.servers_per_rack));
  }
  // Over that pool, in which no job has anything yet; options.servers does not count.
  // kInvalidArgument: no server; as check_philly(options, pool.total()).
  [[nodiscard]] static absl::StatusOr<philly_scheduler> create(const philly_options& options,
                                                               Pool pool) {
    if (pool.num_servers() == 0) return absl::InvalidArgumentError("the pool has no server");
    APIARY_RETURN_IF_ERROR(check_philly(options, pool.total()));
    return philly_scheduler(options, std::move(pool));
  }

  // kInvalidArgument: no job id, no such tenant, no GPUs or more than there are. kAlreadyExists: a
  // job of this id is here.
  [[nodiscard]] absl::Status submit(const job_request& r, time_ms now) {
    const std::string job = name(r.job);
    if (!r.job.valid()) return absl::InvalidArgumentError("a job needs an id");
    if (r.tenant.value >= jobs_.tenants().size()) {
      return absl::InvalidArgumentError(job + ": there is no tenant " +
                                        std::to_string(r.tenant.value));
    }
    if (r.gpus == 0 || r.gpus > total_gpus()) {
      return absl::InvalidArgumentError(job + " wants " + std::to_string(r.gpus) + " GPUs of " +
                                        std::to_string(total_gpus()));
    }
    detail::philly_job* const added = jobs_.add(r, options_.first_locality, now);
    if (added == nullptr) return absl::AlreadyExistsError(job + " is here already");
    queue(*added, now);
    return absl::OkStatus();
  }

  // The job has ended, or is withdrawn. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, time_ms /*now*/) {
    detail::philly_job* const r = jobs_.find(job);
    if (r == nullptr) return absl::NotFoundError("there is no " + name(job));
    jobs_.leave(*r);
    jobs_.erase(job);
    return absl::OkStatus();
  }
  // The running job failed; whether it waits again. kNotFound: it does not run.
  [[nodiscard]] absl::StatusOr<bool> fail(job_id job, failure why, time_ms now) {
    detail::philly_job* const r = jobs_.find(job);
    if (r == nullptr || !r->running) return absl::NotFoundError(name(job) + " does not run");
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

  // The server is broken: what runs there stops and waits again, what is collected there is
  // released. The jobs that stopped, ascending. kNotFound: no such server.
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
  // kNotFound: no such server.
  [[nodiscard]] absl::Status mark_healthy(node_id n, time_ms /*now*/) {
    return jobs_.set_health(n, true).status();
  }

  // What use(pool) returns. So the host uses the pool beside the jobs, for tasks that share GPUs:
  // it may take what is idle and give back what it took. decide() is to be called after.
  template <class Use>
  decltype(auto) use_pool(Use&& use) {
    return std::forward<Use>(use)(jobs_.changing_pool());
  }

  // Moves every job on that can be: appends to `actions`, which the host carries out in order; all
  // are taken here already.
  [[nodiscard]] absl::Status decide(time_ms now, std::vector<job_action>& actions) {
    const time_ms from = (std::min)(wake(), now);
    now_ = now;
    jobs_.time_out(now);
    if (jobs_.freed()) collect_all(now, actions);
    start_all(false, now, actions);
    preempt_all(from, now, actions);
    start_all(true, now, actions);
    for (std::uint32_t t = 0; t < jobs_.tenants().size(); ++t) choose_collector(tenant_id(t), now);
    jobs_.lines().set_causes(
        [&](tenant_id t, std::uint32_t gpus) {
          if (!jobs_.within_quota(t, gpus)) return delay_cause::quota;
          const std::uint32_t idle = pool().idle() + jobs_.tenants()[t.value].collected;
          return gpus > idle ? delay_cause::capacity : delay_cause::fragmentation;
        },
        now);
    decided_ = now;
    next_ = next_chance();
    return absl::OkStatus();
  }
  // When decide() wants to be called although nothing happens: when a job ceases to collect or
  // relaxes its locality, or begins to acquire and could start, preempt or collect.
  [[nodiscard]] time_ms wake() const noexcept { return (std::min)(next_, jobs_.next_time_out()); }

  // As of the last decide(), or since then submit(), fail() or mark_bad(). nullopt: there is no such
  // job.
  [[nodiscard]] std::optional<standing> find(job_id job) const {
    const detail::philly_job* const r = jobs_.find(job);
    if (r == nullptr) return std::nullopt;
    const std::uint32_t held = gpus_of(r->place);
    if (r->running) return standing{phase::run, r->locality, r->tries, held};
    const detail::philly_cycle& cycle = jobs_.lines().cycle();
    return standing{cycle.acquires(r->relaxed, now_) ? phase::acquire : phase::backoff, r->locality,
                    cycle.tries(r->relaxed, now_), held};
  }
  // How long a job has waited since it was submitted or last stopped, by cause; nullopt: it does not.
  [[nodiscard]] std::optional<delays> waited(job_id job, time_ms now) const {
    const detail::philly_job* const r = jobs_.find(job);
    if (r == nullptr || r->running) return std::nullopt;
    return jobs_.lines().waited(r->request, r->entered, now);
  }
  // GPUs that a tenant's jobs have, collected ones included. Requires: there is such a tenant.
  [[nodiscard]] std::uint32_t used(tenant_id t) const noexcept {
    return jobs_.tenants()[t.value].used;
  }
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return pool().total(); }
  [[nodiscard]] const Pool& pool() const noexcept { return jobs_.pool(); }
  [[nodiscard]] std::size_t num_jobs() const noexcept { return jobs_.size(); }

 private:
  philly_scheduler(const philly_options& options, Pool pool)
      : options_(options), jobs_(options, std::move(pool)) {}

  [[nodiscard]] static std::string name(job_id job) { return "job " + std::to_string(job.value); }
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
  // Whoever acquires first within quota collects, if nobody does.
  void choose_collector(tenant_id t, time_ms now) {
    if (jobs_.tenants()[t.value].collector.valid()) return;
    const auto may = [&](tenant_id, std::uint32_t gpus, job_locality) {
      return jobs_.within_quota(t, gpus);
    };
    const std::optional<detail::philly_wait_queues::entry> first =
        jobs_.lines().first_that(t, now, may);
    if (!first) return;
    detail::philly_job& r = jobs_.at(first->job);
    jobs_.appoint(r, now);
    APIARY_VERIFY(!jobs_.collect(r));  // a place that is idle already was found before
  }
  // Starts whoever has a place, those within quota first, and if `lends` the others, too.
  void start_all(bool lends, time_ms now, std::vector<job_action>& actions) {
    locality_places<Pool>& places = jobs_.places();
    for (bool again = true; again;) {
      again = false;
      places.begin_round();
      for (const bool lend : {false, true}) {
        if (lend && !lends) break;
        const auto may = [&](tenant_id t, std::uint32_t gpus, job_locality locality) {
          return gpus <= pool().idle() && !places.failed(gpus, locality) &&
                 (lend || jobs_.within_quota(t, gpus));
        };
        while (const std::optional<detail::philly_wait_queues::entry> next =
                   jobs_.lines().first_that(now, may)) {
          const job_placement place = places.find(next->gpus, next->locality);
          if (place.empty()) continue;
          detail::philly_job& r = jobs_.at(next->job);
          const detail::philly_tenant& owner = jobs_.tenants()[r.request.tenant.value];
          const std::uint32_t collected = owner.collected;
          jobs_.start(r, place, now, actions);
          again = again || owner.collected < collected;  // that is idle again
        }
      }
    }
  }

  // Whether a job that begins to acquire may take what others have beyond their quotas. GPUs of bad
  // servers are nobody's to use: they count neither as used nor among all.
  [[nodiscard]] bool may_preempt(tenant_id t, std::uint32_t gpus, job_locality locality) const {
    const std::uint64_t all = pool().usable();
    const std::uint64_t in_use = all - pool().idle();
    return in_use * 100 >= all * options_.preempt_percent && jobs_.within_quota(t, gpus) &&
           !jobs_.hopeless(gpus, locality);
  }
  // Lets everyone try to preempt who began to acquire at `from` or since. Who is suspended for one
  // preempts nobody in turn.
  void preempt_all(time_ms from, time_ms now, std::vector<job_action>& actions) {
    for (const job_id job : std::exchange(begun_, {})) preempt_for(job, now, actions);
    const auto may = [&](tenant_id t, std::uint32_t gpus, job_locality locality) {
      return may_preempt(t, gpus, locality);
    };
    const time_ms last_cycle = now - jobs_.lines().cycle().length();
    detail::philly_wait_queues::beginning at{(std::max)({from - 1, last_cycle, time_ms{0}}), {}};
    while (decided_ < now && (at = jobs_.lines().next(at, may)).at <= now) {
      if (jobs_.at(at.job).began <= decided_) preempt_for(at.job, now, actions);
    }
    begun_.clear();
  }
  // Suspends jobs of tenants beyond their quotas and starts the job, if that makes a place for it.
  void preempt_for(job_id job, time_ms now, std::vector<job_action>& actions) {
    const detail::philly_job* const r = jobs_.find(job);
    if (r == nullptr || r->running || !jobs_.lines().cycle().acquires(r->began, now)) return;
    const std::uint32_t gpus = r->request.gpus;
    const job_locality locality = r->locality;
    if (!may_preempt(r->request.tenant, gpus, locality)) return;
    std::vector<detail::philly_candidate> candidates;
    bool fresh = false;  // somebody started just now, who may go another time
    for (const detail::philly_tenant& t : jobs_.tenants()) {
      std::uint32_t left = t.running_gpus();
      auto at = t.running.first();
      for (; at && left > t.quota; at = t.running.next(at->key, at->id)) {
        if (-at->key == now) {
          fresh = true;
          continue;
        }
        candidates.push_back({job_id(at->id), -at->key, jobs_.at(job_id(at->id)).place});
        left -= static_cast<std::uint32_t>(at->weight);
      }
    }
    std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
      return a.started != b.started ? a.started > b.started : a.job > b.job;
    });
    const std::vector<std::size_t> victims =
        detail::choose_victims(jobs_.places(), candidates, gpus, locality);
    if (victims.empty()) {
      if (!fresh) jobs_.set_hopeless(gpus, locality);
      return;
    }
    for (const std::size_t i : victims) {
      detail::philly_job& v = jobs_.at(candidates[i].job);
      jobs_.leave(v);
      queue(v, now);
      actions.push_back({job_action::verb::suspend, v.request.job, {}, {}});
    }
    jobs_.start(jobs_.at(job), jobs_.places().look(gpus, locality), now, actions);
  }

  // When a job begins to acquire next that could start, preempt or collect as things are now.
  [[nodiscard]] time_ms next_chance() {
    locality_places<Pool>& places = jobs_.places();
    places.begin_round();
    const auto may = [&](tenant_id t, std::uint32_t gpus, job_locality locality) {
      return (!jobs_.tenants()[t.value].collector.valid() && jobs_.within_quota(t, gpus)) ||
             may_preempt(t, gpus, locality) ||
             (gpus <= pool().idle() && !places.failed(gpus, locality) &&
              !places.find(gpus, locality).empty());
    };
    const time_ms chance = jobs_.lines().next({now_, {}}, may).at;
    // What fell idle since anyone collected is collected when anything happens.
    return jobs_.freed() ? (std::min)(chance, jobs_.lines().next_change(now_)) : chance;
  }

  philly_options options_;
  detail::philly_jobs<Pool> jobs_;
  std::vector<job_id> begun_;  // began to wait since the last decide()
  time_ms now_ = 0;            // the last moment heard of
  time_ms decided_ = -1;       // of the last decide()
  time_ms next_ = forever;     // next_chance() at that time
};

// Over servers of its own: best fit (alloc/server_pool.h).
//
// Example: examples/job_queues.cpp
using philly = philly_scheduler<server_pool>;

APIARY_NAMESPACE_END
