// apiary/philly/detail/jobs.h - who waits, collects and runs under Philly; every change in one place.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/philly/detail/wait_queues.h>
#include <apiary/philly/options.h>
#include <apiary/philly/server_pool_concept.h>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

struct philly_job {
  job_request request{};
  time_ms key = 0;   // when it came
  delays entered{};  // reading of its line's clock
  bool running = false;
  job_locality locality = job_locality::packed;
  std::uint32_t tries = 0;  // of one that runs
  std::uint32_t retries = 0;
  time_ms began = 0;           // to run, or to wait
  time_ms relaxed = 0;         // to wait at this locality
  time_ms timer = forever;     // when it ceases to collect or relaxes
  job_placement place{};       // held
  std::vector<node_id> aim{};  // of a collector: the servers that it collects on
};

struct philly_tenant {
  std::uint32_t quota = 0;
  std::uint32_t used = 0;
  job_id collector{};
  std::uint32_t wanted = 0;     // by the collector
  std::uint32_t collected = 0;  // of it, and of `used`

  // GPUs of its running jobs.
  [[nodiscard]] std::uint32_t running_gpus() const noexcept { return used - collected; }
  weighted_tree running{};  // by -began, weighed by GPUs
};

// The jobs, their lines, quotas and places, in step. Which change is right is decided above.
//
// Cost: a change O(log jobs + servers of the job).
template <ServerPool Pool>
class philly_jobs {
 public:
  // Requires: check_philly(options, pool.total()) is OK.
  philly_jobs(const philly_options& options, Pool pool)
      : max_tries_(options.max_tries),
        places_(std::move(pool)),
        queues_({(std::min)(options.acquire_time, longest),
                 (std::min)(options.backoff_time, longest)}) {
    for (const std::uint32_t quota : options.quotas) tenants_.push_back({.quota = quota});
  }

  [[nodiscard]] const Pool& pool() const noexcept { return places_.pool(); }
  // Whoever takes or gives GPUs here gives or takes them back.
  [[nodiscard]] locality_places<Pool>& places() noexcept { return places_; }
  // For who uses the pool beside the jobs.
  [[nodiscard]] Pool& changing_pool() {
    changed(true);
    return places_.changing_pool();
  }
  [[nodiscard]] const philly_wait_queues& queues() const noexcept { return queues_; }
  [[nodiscard]] philly_wait_queues& queues() noexcept { return queues_; }
  [[nodiscard]] std::span<const philly_tenant> tenants() const noexcept { return tenants_; }
  [[nodiscard]] std::size_t size() const noexcept { return jobs_.size(); }
  [[nodiscard]] philly_job* find(job_id job) {
    const auto found = jobs_.find(job.value);
    return found == jobs_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] const philly_job* find(job_id job) const {
    const auto found = jobs_.find(job.value);
    return found == jobs_.end() ? nullptr : &found->second;
  }
  // Requires: there is such a job. It stays where it is until another is added.
  [[nodiscard]] philly_job& at(job_id job) { return jobs_.at(job.value); }

  // Whether the tenant's quota has room for a job of so many GPUs, beside what runs and what its
  // collector wants; who wants as many as the collector may take its place.
  [[nodiscard]] bool within_quota(tenant_id t, std::uint32_t gpus) const noexcept {
    const philly_tenant& owner = tenants_[t.value];
    return has_room(owner, gpus, owner.wanted == gpus ? 0 : owner.wanted);
  }
  [[nodiscard]] bool collects(const philly_job& r) const noexcept {
    return tenants_[r.request.tenant.value].collector == r.request.job;
  }

  // A new job, that neither waits nor runs yet; null: one of this id is here.
  [[nodiscard]] philly_job* add(const job_request& r, job_locality locality, time_ms now) {
    const auto [at, is_new] = jobs_.try_emplace(r.job.value);
    if (!is_new) return nullptr;
    at->second.request = r;
    at->second.key = now;
    at->second.locality = locality;
    return &at->second;
  }
  // Requires: it neither waits nor runs.
  void erase(job_id job) { jobs_.erase(job.value); }

  // The job waits, and acquires from now on. Requires: it neither waits nor runs.
  void queue(philly_job& r, time_ms now) {
    r.running = false;
    r.began = r.relaxed = now;
    r.entered = queues_.enter(r.request, r.key, r.locality, now);
    set_timer(r, next_change(r, now));
  }
  // It neither waits nor runs any more, and holds nothing.
  void leave(philly_job& r) {
    if (r.running) {
      tenants_[r.request.tenant.value].running.erase(-r.began, r.request.job.value);
    } else {
      set_timer(r, forever);
      queues_.leave(r.request, r.began, r.locality);
    }
    release(r);
  }
  // It runs on what it holds, or on `more` instead; a collector whose place in the quota it took
  // collects no longer. Requires: it waits.
  void start(philly_job& r, const job_placement& more, time_ms now,
             std::vector<job_action>& actions) {
    philly_tenant& t = tenants_[r.request.tenant.value];
    const delays waited = queues_.waited(r.request, r.entered, now);
    const bool within = within_quota(r.request.tenant, r.request.gpus);
    set_timer(r, forever);
    queues_.leave(r.request, r.began, r.locality);
    if (!more.empty()) {
      release(r);
      places_.take(r.request.job, more);
      r.place = more;
      t.used += r.request.gpus;
    }
    stop_collecting(r);
    changed(false);
    r.running = true;
    r.tries = queues_.cycle().tries(r.relaxed, now);
    r.began = now;
    t.running.insert({-now, r.request.job.value, r.request.gpus});
    actions.push_back({job_action::verb::start, r.request.job, r.place, waited});
    if (within && t.collector.valid() && !has_room(t, t.wanted, 0)) dismiss(at(t.collector), now);
  }

  // The job collects for its tenant until it ceases to acquire. Requires: it acquires, and nobody
  // collects for that tenant.
  void appoint(philly_job& r, time_ms now) {
    tenants_[r.request.tenant.value].collector = r.request.job;
    tenants_[r.request.tenant.value].wanted = r.request.gpus;
    r.aim = places_.aim(r.request.gpus, r.locality);
    set_timer(r, next_change(r, now));
  }
  // Gives the collector what is idle where it aims; whether it has all.
  [[nodiscard]] bool collect(philly_job& r) {
    philly_tenant& t = tenants_[r.request.tenant.value];
    for (const node_id n : r.aim) {
      const std::uint32_t more = (std::min)(r.request.gpus - t.collected, pool().idle(n));
      if (more == 0) continue;
      places_.add(r.request.job, n, more, r.place);
      changed(false);
      t.used += more;
      t.collected += more;
    }
    return t.collected == r.request.gpus;
  }
  // It collects no longer, and holds nothing.
  void dismiss(philly_job& r, time_ms now) {
    release(r);
    set_timer(r, next_change(r, now));
  }

  // When the next job ceases to collect or relaxes its locality; forever: none.
  [[nodiscard]] time_ms next_time_out() const noexcept {
    const std::optional<weighted_tree::item> first = timers_.first();
    return first ? first->key : forever;
  }
  // Lets those do so whose time has come.
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

  // Which jobs have GPUs of the server whose health is set, ascending; whoever else has some is the
  // host's affair. kNotFound: there is no such server.
  [[nodiscard]] absl::StatusOr<std::vector<job_id>> set_health(node_id n, bool healthy) {
    APIARY_ASSIGN_OR_RETURN(std::vector<job_id> there, places_.set_health(n, healthy));
    changed(healthy);
    std::erase_if(there, [&](job_id job) {
      const philly_job* const r = find(job);
      return r == nullptr || std::none_of(r->place.begin(), r->place.end(),
                                          [&](const placement& p) { return p.node == n; });
    });
    return there;
  }
  // Whether GPUs fell idle since the last clear_freed().
  [[nodiscard]] bool freed() const noexcept { return freed_; }
  void clear_freed() noexcept { freed_ = false; }
  // That preemption makes no place for so many GPUs: until anyone starts, ends or collects.
  void set_hopeless(std::uint32_t gpus, job_locality locality) {
    hopeless_.emplace_back(gpus, locality);
  }
  [[nodiscard]] bool hopeless(std::uint32_t gpus, job_locality locality) const noexcept {
    return std::find(hopeless_.begin(), hopeless_.end(), std::pair(gpus, locality)) !=
           hopeless_.end();
  }

 private:
  static constexpr time_ms longest = time_ms{1} << 60;

  [[nodiscard]] static bool has_room(const philly_tenant& t, std::uint32_t gpus,
                                     std::uint32_t claimed) noexcept {
    return std::uint64_t{t.running_gpus()} + claimed + gpus <= t.quota;
  }

  // When something happens to a job that waits, whatever others do: it ceases to collect, or relaxes.
  [[nodiscard]] time_ms next_change(const philly_job& r, time_ms now) const noexcept {
    if (collects(r)) return queues_.cycle().begun(r.began, now) + queues_.cycle().acquire;
    if (r.locality == job_locality::anywhere || max_tries_ == philly_options::no_limit)
      return forever;
    return queues_.cycle().after(r.relaxed, std::int64_t{max_tries_} + 1);
  }
  void set_timer(philly_job& r, time_ms at) {
    if (r.timer != forever) timers_.erase(r.timer, r.request.job.value);
    r.timer = at;
    if (at != forever) timers_.insert({at, r.request.job.value, 0});
  }
  void release(philly_job& r) {
    tenants_[r.request.tenant.value].used -= gpus_of(r.place);
    if (!r.place.empty()) {
      places_.give(r.place);
      changed(true);
    }
    r.place.clear();
    stop_collecting(r);
  }
  void stop_collecting(philly_job& r) {
    r.aim.clear();
    if (!collects(r)) return;
    philly_tenant& t = tenants_[r.request.tenant.value];
    t.collector = {};
    t.wanted = t.collected = 0;
  }
  void changed(bool freed) {
    hopeless_.clear();
    freed_ = freed_ || freed;
  }

  std::uint32_t max_tries_;
  locality_places<Pool> places_;
  std::vector<philly_tenant> tenants_;
  absl::flat_hash_map<std::uint32_t, philly_job> jobs_;
  philly_wait_queues queues_;
  weighted_tree timers_;  // of jobs that wait
  std::vector<std::pair<std::uint32_t, job_locality>> hopeless_;
  bool freed_ = false;
};

}  // namespace detail
APIARY_NAMESPACE_END
