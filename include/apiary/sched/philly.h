// apiary/sched/philly.h - gangs whose locality relaxes, under quotas that are lent.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/server_pool.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/core/timer_queue.h>
#include <apiary/core/weighted_tree.h>
#include <apiary/model/job_request.h>
#include <apiary/sched/philly_lines.h>
#include <apiary/sched/philly_options.h>
#include <apiary/sched/philly_places.h>
#include <apiary/sched/philly_victims.h>

#include <absl/container/flat_hash_map.h>
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

// A queue a tenant, each with a quota of GPUs; whole GPUs, all of a job's or none.
//
//   ACQUIRE, locality as it is now
//     a place for all GPUs, or all collected in acquire_time  -> RUN
//     otherwise what it holds is released                     -> BACKOFF, tries + 1
//   BACKOFF, for backoff_time                                 -> ACQUIRE; if tries > most_tries,
//                                                                locality one step looser, tries 0
//
// Who starts:  tenants within their quota first, then, on what is idle, those beyond it (lending);
//              within each in order of arrival, whoever has a place.
// Collecting:  the first job of each tenant that acquires within quota holds the idle GPUs of the
//              servers that it aims at, and takes what falls idle there before all others. One a
//              tenant: jobs that hold what each other needs would only time out together.
// Preemption:  a job that begins to acquire within quota and has no place, when at least
//              preempt_percent of all GPUs are used, takes the place of jobs of tenants beyond their
//              quotas, the last started first and none that is not needed; no tenant falls below its
//              quota by more than the job that crosses it.
// Delay:       cause quota while the tenant's quota has no room for the job, else capacity or
//              fragmentation; both are what is published as fragmentation delay.
//
// Model:       "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads"
//              (USENIX ATC 2019), §2.3 and §3. Not published, and chosen here: most_tries, that one
//              job a tenant collects, who is preempted; see sched/philly_options.h for places.
// Requires:    times >= 0 that never go back; decide() at wake() and after each moment at which
//              something was submitted, ended, failed, broke or was repaired.
// Cost:        submit, finish O(log jobs); decide O(tenants * numbers of GPUs that jobs ask for) and
//              a search for a place (O(racks log racks) for jobs over servers) for each job that
//              starts and each number of GPUs and locality without one.
// Example:     examples/job_queues.cpp
class philly {
 public:
  enum class phase : std::uint8_t { acquire, backoff, run };
  // Where a job stands.
  struct standing {
    philly::phase phase = phase::acquire;
    job_locality locality = job_locality::packed;
    std::uint32_t tries = 0;  // that ended in a backoff, at this locality
    std::uint32_t held = 0;   // GPUs that it has, collected or to run on
    friend bool operator==(const standing&, const standing&) noexcept = default;
  };
  enum class failure : std::uint8_t {
    transient,  // not the job's fault: again, always
    permanent,  // never again
    unknown,    // again, up to most_retries times
  };

  // kInvalidArgument: as check_philly(options).
  [[nodiscard]] static absl::StatusOr<philly> create(const philly_options& options) {
    APIARY_RETURN_IF_ERROR(check_philly(options));
    return philly(options);
  }

  // kInvalidArgument: no job id, no such tenant, no GPUs or more than there are. kAlreadyExists: a
  // job of this id is here.
  [[nodiscard]] absl::Status submit(const job_request& r, tick_t now) {
    const std::string job = name(r.job);
    if (!r.job.valid()) return absl::InvalidArgumentError("a job needs an id");
    if (r.tenant.value >= tenants_.size()) {
      return absl::InvalidArgumentError(job + ": there is no tenant " +
                                        std::to_string(r.tenant.value));
    }
    if (r.gpus == 0 || r.gpus > places_.pool().total()) {
      return absl::InvalidArgumentError(job + " wants " + std::to_string(r.gpus) + " GPUs of " +
                                        std::to_string(places_.pool().total()));
    }
    const auto [at, is_new] = jobs_.try_emplace(r.job.value);
    if (!is_new) return absl::AlreadyExistsError(job + " is here already");
    at->second.request = r;
    at->second.key = now;
    at->second.locality = options_.first_locality;
    queue(at->second, now);
    return absl::OkStatus();
  }

  // The job has ended, or is withdrawn. kNotFound: there is no such job.
  [[nodiscard]] absl::Status finish(job_id job, tick_t /*now*/) {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return absl::NotFoundError("there is no " + name(job));
    leave(found->second);
    jobs_.erase(found);
    return absl::OkStatus();
  }
  // The running job failed; whether it waits again. kNotFound: it does not run.
  [[nodiscard]] absl::StatusOr<bool> fail(job_id job, failure why, tick_t now) {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end() || found->second.phase != phase::run) {
      return absl::NotFoundError(name(job) + " does not run");
    }
    record& r = found->second;
    leave(r);
    const bool again = why == failure::transient ||
                       (why == failure::unknown && r.retries++ < options_.most_retries);
    if (again) {
      queue(r, now);
    } else {
      jobs_.erase(found);
    }
    return again;
  }

  // The server is broken: what runs there stops and waits again, what is collected there is
  // released. The jobs that stopped, ascending. kNotFound: no such server.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, tick_t now) {
    APIARY_ASSIGN_OR_RETURN(const std::vector<job_id> there, places_.set_health(n, false));
    std::vector<job_id> stopped;
    for (const job_id job : there) {
      record& r = jobs_.at(job.value);
      if (r.phase == phase::run) {
        leave(r);
        queue(r, now);
        stopped.push_back(job);
      } else {
        release(r);
      }
    }
    return stopped;
  }
  // kNotFound: no such server.
  [[nodiscard]] absl::Status mark_healthy(node_id n, tick_t /*now*/) {
    return places_.set_health(n, true).status();
  }

  // Moves every job on that can be: appends to `actions`, which the host carries out in order; all
  // are taken here already.
  [[nodiscard]] absl::Status decide(tick_t now, std::vector<job_action>& actions) {
    while (!timers_.empty() && timers_.first().at <= now) time_out(timers_.pop().id, now);
    for (tenant& t : tenants_) {
      if (t.collector.valid() && collect(t.collector)) {
        start(jobs_.at(t.collector.value), {}, now, actions);
      }
    }
    start_all(now, actions);
    const std::vector<job_id> begun = std::exchange(begun_, {});
    for (const job_id job : begun) preempt_for(job, now, actions);
    begun_.clear();  // who was suspended preempts nobody in turn
    if (!begun.empty()) start_all(now, actions);
    for (std::uint32_t t = 0; t < tenants_.size(); ++t) choose_collector(tenant_id(t));
    lines_.set_causes(
        [&](tenant_id t, std::uint32_t gpus) {
          if (!within_quota(t, gpus)) return delay_cause::quota;
          const std::uint32_t idle = places_.pool().idle() + collected(t);
          return gpus > idle ? delay_cause::capacity : delay_cause::fragmentation;
        },
        now);
    return absl::OkStatus();
  }
  // When decide() wants to be called although nothing happens: for the next time-out.
  [[nodiscard]] tick_t wake() const noexcept {
    return timers_.empty() ? forever : timers_.first().at;
  }

  // nullopt: there is no such job.
  [[nodiscard]] std::optional<standing> find(job_id job) const {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return std::nullopt;
    const record& r = found->second;
    return standing{r.phase, r.locality, r.tries, gpus_of(r.place)};
  }
  // How long a job has waited since it was submitted or last stopped, by cause; nullopt: it does not.
  [[nodiscard]] std::optional<delays> waited(job_id job, tick_t now) const {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end() || found->second.phase == phase::run) return std::nullopt;
    const record& r = found->second;
    return lines_.waited(r.request, r.entered, now);
  }
  // GPUs that a tenant's jobs have, collected ones included. Requires: there is such a tenant.
  [[nodiscard]] std::uint32_t used(tenant_id t) const noexcept { return tenants_[t.value].used; }
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return places_.pool().total(); }
  [[nodiscard]] const server_pool& pool() const noexcept { return places_.pool(); }
  [[nodiscard]] std::size_t num_jobs() const noexcept { return jobs_.size(); }

 private:
  struct record {
    job_request request{};
    tick_t key = 0;
    delays entered{};  // reading of the line's clock
    philly::phase phase = phase::acquire;
    job_locality locality = job_locality::packed;
    std::uint32_t tries = 0;
    std::uint32_t retries = 0;
    tick_t started = 0;
    job_place place{};           // held
    std::vector<node_id> aim{};  // of the collector: the servers that it collects on
  };
  struct tenant {
    std::uint32_t quota = 0;
    std::uint32_t used = 0;
    job_id collector{};
    weighted_tree running{};  // the last started first, weighed by GPUs
  };

  explicit philly(const philly_options& options) : options_(options), places_(options.servers) {
    for (const std::uint32_t quota : options.quotas) tenants_.push_back({quota, 0, {}, {}});
  }

  [[nodiscard]] static std::string name(job_id job) { return "job " + std::to_string(job.value); }
  // GPUs that the tenant's collector holds: they do not stand in its tenant's own way.
  [[nodiscard]] std::uint32_t collected(tenant_id t) const {
    const job_id job = tenants_[t.value].collector;
    return job.valid() ? gpus_of(jobs_.at(job.value).place) : 0;
  }
  [[nodiscard]] bool within_quota(tenant_id t, std::uint32_t gpus) const {
    const tenant& owner = tenants_[t.value];
    return std::uint64_t{owner.used} - collected(t) + gpus <= owner.quota;
  }

  // The job waits, and acquires from now on.
  void queue(record& r, tick_t now) {
    r.entered = lines_.enter(r.request, now);
    r.tries = 0;
    begin(r, now);
  }
  void begin(record& r, tick_t now) {
    r.phase = phase::acquire;
    lines_.acquire(r.request, r.key, r.locality, true);
    timers_.set(r.request.job.value, later_by(now, options_.acquire_time));
    begun_.push_back(r.request.job);
  }
  void release(record& r) {
    tenant& t = tenants_[r.request.tenant.value];
    t.used -= gpus_of(r.place);
    if (!r.place.empty()) places_.give(r.place);
    r.place.clear();
    r.aim.clear();
    if (t.collector == r.request.job) t.collector = {};
  }
  // Takes the job out of whatever it is in.
  void leave(record& r) {
    tenant& t = tenants_[r.request.tenant.value];
    if (r.phase == phase::run) {
      t.running.erase(-r.started, r.request.job.value);
    } else {
      timers_.cancel(r.request.job.value);
      if (r.phase == phase::acquire) lines_.acquire(r.request, r.key, r.locality, false);
      lines_.leave(r.request);
    }
    release(r);
  }
  void time_out(std::uint32_t job, tick_t now) {
    record& r = jobs_.at(job);
    if (r.phase == phase::acquire) {
      lines_.acquire(r.request, r.key, r.locality, false);
      release(r);
      ++r.tries;
      r.phase = phase::backoff;
      timers_.set(job, later_by(now, options_.backoff_time));
      return;
    }
    if (r.tries > options_.most_tries && r.locality != job_locality::anywhere) {
      r.locality = static_cast<job_locality>(static_cast<std::uint8_t>(r.locality) + 1);
      r.tries = 0;
    }
    begin(r, now);
  }

  // Runs the job on what it holds and `more`.
  void start(record& r, const job_place& more, tick_t now, std::vector<job_action>& actions) {
    tenant& t = tenants_[r.request.tenant.value];
    const delays waited = lines_.waited(r.request, r.entered, now);
    if (!more.empty()) {
      release(r);
      places_.take(r.request.job, more);
      r.place = more;
      t.used += r.request.gpus;
    }
    timers_.cancel(r.request.job.value);
    lines_.acquire(r.request, r.key, r.locality, false);
    lines_.leave(r.request);
    if (t.collector == r.request.job) t.collector = {};
    r.aim.clear();
    r.phase = phase::run;
    r.started = now;
    t.running.insert({-now, r.request.job.value, r.request.gpus});
    actions.push_back({job_action::verb::start, r.request.job, r.place, waited});
  }
  // Starts whoever has a place, those within quota first.
  void start_all(tick_t now, std::vector<job_action>& actions) {
    for (bool again = true; again;) {
      again = false;
      places_.begin_round();
      for (const bool lend : {false, true}) {
        const auto may = [&](tenant_id t, std::uint32_t gpus, job_locality locality) {
          return gpus <= places_.pool().idle() && !places_.failed(gpus, locality) &&
                 (lend || within_quota(t, gpus));
        };
        while (const std::optional<philly_lines::entry> next = lines_.first_that(may)) {
          const job_place place = places_.find(next->gpus, next->locality);
          if (place.empty()) continue;
          record& r = jobs_.at(next->job.value);
          again = again || !r.place.empty();  // what it collected is idle again
          start(r, place, now, actions);
        }
      }
    }
  }

  // Gives the collector what is idle where it aims; whether it has all.
  [[nodiscard]] bool collect(job_id job) {
    record& r = jobs_.at(job.value);
    for (const node_id n : r.aim) {
      const std::uint32_t missing = r.request.gpus - gpus_of(r.place);
      const std::uint32_t more = std::min(missing, places_.pool().idle(n));
      if (more == 0) continue;
      places_.add(job, n, more, r.place);
      tenants_[r.request.tenant.value].used += more;
    }
    return gpus_of(r.place) == r.request.gpus;
  }
  void choose_collector(tenant_id t) {
    if (tenants_[t.value].collector.valid()) return;
    const auto may = [&](tenant_id, std::uint32_t gpus, job_locality) {
      return within_quota(t, gpus);
    };
    const std::optional<philly_lines::entry> first = lines_.first_that(t, may);
    if (!first) return;
    tenants_[t.value].collector = first->job;
    record& r = jobs_.at(first->job.value);
    r.aim = places_.aim(first->gpus, first->locality);
    APIARY_VERIFY(!collect(first->job));  // a place that is idle already was found before
  }

  // Suspends jobs of tenants beyond their quotas, if that makes a place for the job.
  void preempt_for(job_id job, tick_t now, std::vector<job_action>& actions) {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end() || found->second.phase != phase::acquire) return;
    const record& r = found->second;
    const std::uint64_t total = places_.pool().total();
    const std::uint64_t in_use = total - places_.pool().idle();
    if (in_use * 100 < total * options_.preempt_percent) return;
    const tenant& owner = tenants_[r.request.tenant.value];
    if (std::uint64_t{owner.used} - gpus_of(r.place) + r.request.gpus > owner.quota) return;
    std::vector<philly_candidate> candidates;
    for (const tenant& t : tenants_) {
      std::uint32_t left = t.used;
      auto at = t.running.first();
      for (; at && left > t.quota; at = t.running.next(at->key, at->id)) {
        candidates.push_back({job_id(at->id), -at->key, jobs_.at(at->id).place});
        left -= static_cast<std::uint32_t>(at->weight);
      }
    }
    std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
      return a.started != b.started ? a.started > b.started : a.job > b.job;
    });
    const std::vector<std::size_t> victims =
        choose_victims(places_, candidates, r.request.gpus, r.locality);
    if (victims.empty()) return;
    for (const std::size_t i : victims) {
      record& v = jobs_.at(candidates[i].job.value);
      leave(v);
      queue(v, now);
      actions.push_back({job_action::verb::suspend, v.request.job, {}, {}});
    }
    start(jobs_.at(job.value), places_.look(r.request.gpus, r.locality), now, actions);
  }

  philly_options options_;
  philly_places places_;
  std::vector<tenant> tenants_;
  absl::flat_hash_map<std::uint32_t, record> jobs_;
  philly_lines lines_;
  timer_queue timers_;         // of jobs that acquire or back off
  std::vector<job_id> begun_;  // began to acquire since the last decide()
};

APIARY_NAMESPACE_END
