// apiary/philly/detail/philly_jobs.h - the jobs of a Philly scheduler and their states.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/server_pool.h>
#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/philly/detail/locality_search.h>
#include <apiary/philly/detail/philly_queues.h>
#include <apiary/philly/options.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A job that waits or runs.
struct philly_job {
  job_request request{};
  time_ms key = 0;   // when it was submitted
  delays entered{};  // the clock of its queue when it entered
  bool running = false;
  job_locality locality = job_locality::packed;
  std::uint32_t tries = 0;  // of a running job: tries that failed at its locality
  std::uint32_t retries = 0;
  time_ms began = 0;           // when it began to run, or to wait
  time_ms relaxed = 0;         // when it began to wait at this locality
  time_ms timer = max_time;    // when it stops collecting, or relaxes
  job_placement where{};       // the GPUs that it holds
  std::vector<node_id> aim{};  // of a collector: the servers on which it collects
};

// The quota of a tenant, what it uses, and its collector.
struct philly_tenant {
  std::uint32_t quota = 0;
  std::uint32_t used = 0;
  job_id collector{};
  std::uint32_t wanted = 0;     // GPUs that the collector wants
  std::uint32_t collected = 0;  // GPUs that the collector holds, included in `used`
  // The GPUs of its running jobs.
  [[nodiscard]] std::uint32_t running_gpus() const noexcept { return used - collected; }
  weighted_tree running{};  // by -began; the weight is the GPUs
};

// The jobs, their queues, quotas and placements, kept consistent. philly decides which
// changes to make. Cost: O(log jobs + servers of the job) for each change.
class philly_jobs {
 public:
  // Requires: options.check() is OK.
  explicit philly_jobs(const philly_options& options)
      : max_tries_(options.max_tries),
        search_({options.servers.gpus, options.servers.servers_per_rack}),
        queues_({(std::min)(options.acquire_time, longest),
                 (std::min)(options.backoff_time, longest)}) {
    for (const std::uint32_t quota : options.quotas) tenants_.push_back({.quota = quota});
  }

  // The pool.
  [[nodiscard]] const server_pool& pool() const noexcept { return search_.pool(); }
  // The pool with locality. A caller that takes or gives GPUs here must undo that.
  [[nodiscard]] locality_search& search() noexcept { return search_; }
  // The queues, the tenants, and the number of jobs.
  [[nodiscard]] const philly_wait_queues& queues() const noexcept { return queues_; }
  [[nodiscard]] philly_wait_queues& queues() noexcept { return queues_; }
  [[nodiscard]] std::span<const philly_tenant> tenants() const noexcept { return tenants_; }
  [[nodiscard]] std::size_t size() const noexcept { return jobs_.size(); }
  // The job with this id; null if there is none.
  [[nodiscard]] philly_job* find(job_id job) {
    const auto found = jobs_.find(job.value);
    return found == jobs_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] const philly_job* find(job_id job) const {
    const auto found = jobs_.find(job.value);
    return found == jobs_.end() ? nullptr : &found->second;
  }
  // The job with this id, valid until it is erased. Requires: there is such a job.
  [[nodiscard]] philly_job& at(job_id job) { return jobs_.at(job.value); }

  // Whether the quota of the tenant allows a job of so many GPUs, besides the running jobs and the
  // GPUs that the collector wants. A job that wants as many GPUs as the collector may replace it.
  [[nodiscard]] bool within_quota(tenant_id t, std::uint32_t gpus) const noexcept {
    const philly_tenant& owner = tenants_[t.value];
    return allows(owner, gpus, owner.wanted == gpus ? 0 : owner.wanted);
  }
  // Whether the job is the collector of its tenant.
  [[nodiscard]] bool collects(const philly_job& r) const noexcept {
    return tenants_[r.request.tenant.value].collector == r.request.job;
  }

  // Adds a job that neither waits nor runs yet. Returns null if there is a job with this id.
  [[nodiscard]] philly_job* add(const job_request& r, job_locality locality, time_ms now) {
    const auto [at, is_new] = jobs_.try_emplace(r.job.value);
    if (!is_new) return nullptr;
    at->second.request = r;
    at->second.key = now;
    at->second.locality = locality;
    return &at->second;
  }
  // Removes a job. Requires: it neither waits nor runs.
  void erase(job_id job) { jobs_.erase(job.value); }

  // Puts the job into its queue; it acquires from now on. Requires: it neither waits nor runs.
  void queue(philly_job& r, time_ms now) {
    r.running = false;
    r.began = r.relaxed = now;
    r.entered = queues_.enter(r.request, r.key, r.locality, now);
    set_timer(r, next_change(r, now));
  }
  // Removes the job from its queue or from the running jobs, and releases its GPUs.
  void leave(philly_job& r) {
    if (r.running) {
      tenants_[r.request.tenant.value].running.erase(-r.began, r.request.job.value);
    } else {
      set_timer(r, max_time);
      queues_.leave(r.request, r.began, r.locality);
    }
    release(r);
  }
  // Starts the waiting job on the GPUs that it holds or, if not empty, on `more` instead. A
  // collector whose quota the job uses stops collecting.
  void start(philly_job& r, const job_placement& more, time_ms now,
             std::vector<job_action>& actions) {
    philly_tenant& t = tenants_[r.request.tenant.value];
    const delays waited = queues_.waited(r.request, r.entered, now);
    const bool within = within_quota(r.request.tenant, r.request.gpus);
    set_timer(r, max_time);
    queues_.leave(r.request, r.began, r.locality);
    if (!more.empty()) {
      release(r);
      search_.take(r.request.job, more);
      r.where = more;
      t.used += r.request.gpus;
    }
    stop_collecting(r);
    changed(false);
    r.running = true;
    r.tries = queues_.cycle().tries(r.relaxed, now);
    r.began = now;
    t.running.insert({-now, r.request.job.value, r.request.gpus});
    actions.push_back({job_action::verb::start, r.request.job, r.where, waited});
    if (within && t.collector.valid() && !allows(t, t.wanted, 0)) dismiss(at(t.collector), now);
  }

  // The acquiring job becomes the collector of its tenant. Requires: the tenant has none.
  void appoint(philly_job& r, time_ms now) {
    tenants_[r.request.tenant.value].collector = r.request.job;
    tenants_[r.request.tenant.value].wanted = r.request.gpus;
    r.aim = search_.aim(r.request.gpus, r.locality);
    set_timer(r, next_change(r, now));
  }
  // Gives the collector the idle GPUs of the servers at which it aims. Returns whether it has all.
  [[nodiscard]] bool collect(philly_job& r) {
    philly_tenant& t = tenants_[r.request.tenant.value];
    for (const node_id n : r.aim) {
      const std::uint32_t more = (std::min)(r.request.gpus - t.collected, pool().idle(n));
      if (more == 0) continue;
      search_.add(r.request.job, n, more, r.where);
      changed(false);
      t.used += more;
      t.collected += more;
    }
    return t.collected == r.request.gpus;
  }
  // The job stops collecting, and releases its GPUs.
  void dismiss(philly_job& r, time_ms now) {
    release(r);
    set_timer(r, next_change(r, now));
  }

  // When the next job stops collecting or relaxes its locality; max_time if there is none.
  [[nodiscard]] time_ms next_time_out() const noexcept {
    const std::optional<weighted_tree::item> first = timers_.first();
    return first ? first->key : max_time;
  }
  // Every job whose time has come stops collecting or relaxes its locality.
  void time_out(time_ms now) {
    while (next_time_out() <= now) {
      philly_job& r = at(job_id(timers_.first()->id));
      const time_ms then = r.timer;
      if (collects(r)) {
        dismiss(r, then);
        continue;
      }
      const auto next = static_cast<job_locality>(static_cast<std::uint8_t>(r.locality) + 1);
      queues_.relax(r.request, r.began, r.key, r.locality, next);
      r.locality = next;
      r.relaxed = then;
      set_timer(r, next_change(r, then));
    }
  }

  // Sets the health of a server. Returns the jobs with GPUs there, ascending. kNotFound: no server.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> set_health(node_id n, bool healthy) {
    APIARY_ASSIGN_OR_RETURN(std::vector<job_id> there, search_.set_health(n, healthy));
    changed(healthy);
    return there;
  }
  // Whether GPUs became idle since the last clear_freed().
  [[nodiscard]] bool freed() const noexcept { return freed_; }
  void clear_freed() noexcept { freed_ = false; }
  // The running jobs of tenants beyond their quotas that may be preempted now, the last started
  // first; and whether there may be more later (a job that started at the present time is not
  // preempted).
  [[nodiscard]] std::pair<std::vector<philly_candidate>, bool> preemption_candidates(time_ms now) {
    std::vector<philly_candidate> found;
    bool more_later = false;
    for (const philly_tenant& t : tenants_) {
      std::uint32_t left = t.running_gpus();
      auto job = t.running.first();
      for (; job && left > t.quota; job = t.running.next(job->key, job->id)) {
        more_later = more_later || -job->key == now;
        if (-job->key == now) continue;
        found.push_back({job_id(job->id), -job->key, at(job_id(job->id)).where});
        left -= static_cast<std::uint32_t>(job->weight);
      }
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      return a.started != b.started ? a.started > b.started : a.job > b.job;
    });
    return {std::move(found), more_later};
  }
  // Records, until the pool changes, that preemption cannot free so many GPUs at this locality.
  void set_hopeless(std::uint32_t gpus, job_locality locality) {
    hopeless_.emplace_back(gpus, locality);
  }
  // Whether that is recorded.
  [[nodiscard]] bool hopeless(std::uint32_t gpus, job_locality locality) const noexcept {
    return std::find(hopeless_.begin(), hopeless_.end(), std::pair(gpus, locality)) !=
           hopeless_.end();
  }

 private:
  static constexpr time_ms longest = time_ms{1} << 60;

  // Whether the quota allows `gpus` GPUs besides the running jobs and `claimed` GPUs.
  [[nodiscard]] static bool allows(const philly_tenant& t, std::uint32_t gpus,
                                   std::uint32_t claimed) noexcept {
    return std::uint64_t{t.running_gpus()} + claimed + gpus <= t.quota;
  }
  // When a waiting job stops collecting or relaxes its locality; max_time: never.
  [[nodiscard]] time_ms next_change(const philly_job& r, time_ms now) const noexcept {
    if (collects(r)) return queues_.cycle().begun(r.began, now) + queues_.cycle().acquire;
    if (r.locality == job_locality::anywhere || max_tries_ == philly_options::no_limit)
      return max_time;
    return queues_.cycle().after(r.relaxed, std::int64_t{max_tries_} + 1);
  }
  // Sets the time at which time_out() handles the job; max_time: never.
  void set_timer(philly_job& r, time_ms at) {
    if (r.timer != max_time) timers_.erase(r.timer, r.request.job.value);
    r.timer = at;
    if (at != max_time) timers_.insert({at, r.request.job.value, 0});
  }
  // Releases all GPUs of the job; it stops collecting.
  void release(philly_job& r) {
    tenants_[r.request.tenant.value].used -= gpus_of(r.where);
    if (!r.where.empty()) {
      search_.give(r.where);
      changed(true);
    }
    r.where.clear();
    stop_collecting(r);
  }
  // If the job is a collector, its tenant has none from now on.
  void stop_collecting(philly_job& r) {
    r.aim.clear();
    if (!collects(r)) return;
    philly_tenant& t = tenants_[r.request.tenant.value];
    t.collector = {};
    t.wanted = t.collected = 0;
  }
  // Call after a change of the pool; freed: GPUs may have become idle.
  void changed(bool freed) {
    hopeless_.clear();
    freed_ = freed_ || freed;
  }

  std::uint32_t max_tries_;
  locality_search search_;
  std::vector<philly_tenant> tenants_;
  std::unordered_map<std::uint32_t, philly_job> jobs_;
  philly_wait_queues queues_;
  weighted_tree timers_;  // of waiting jobs, by time
  std::vector<std::pair<std::uint32_t, job_locality>> hopeless_;
  bool freed_ = false;
};

}  // namespace detail
APIARY_NAMESPACE_END
