// apiary/tests/support/naive_philly.h - Philly's state machine with a timer a job, everyone walked over.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/server_pool.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>
#include <apiary/philly/detail/locality_search.h>
#include <apiary/philly/options.h>
#include <apiary/philly/philly.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace apiary_test {

// The rules of philly/philly.h step by step: each job moves from one state to the next at a moment of
// its own, at which the host is to call, and whoever is next is looked for among all of them.
// Requires: calls that philly takes, decide() exactly at wake().
class naive_philly {
 public:
  using phase = apiary::philly::phase;
  using standing = apiary::philly::standing;
  using failure = apiary::philly::failure;
  using time_ms = apiary::time_ms;

  explicit naive_philly(const apiary::philly_options& options)
      : options_(options),
        places_({options.servers.gpus, options.servers.servers_per_rack}),
        used_(options.quotas.size()),
        collector_(options.quotas.size()) {}

  absl::Status submit(const apiary::job_request& r, time_ms now) {
    record& added = jobs_[r.job.value];
    added.request = r;
    added.key = now;
    added.locality = options_.first_locality;
    queue(added, now);
    return absl::OkStatus();
  }
  absl::Status finish(apiary::job_id job, time_ms /*now*/) {
    release(jobs_.at(job.value));
    jobs_.erase(job.value);
    return absl::OkStatus();
  }
  absl::StatusOr<bool> fail(apiary::job_id job, failure why, time_ms now) {
    record& r = jobs_.at(job.value);
    release(r);
    if (why == failure::permanent ||
        (why == failure::unknown && r.retries++ >= options_.max_retries)) {
      jobs_.erase(job.value);
      return false;
    }
    queue(r, now);
    return true;
  }
  absl::StatusOr<std::vector<apiary::job_id>> mark_bad(apiary::node_id n, time_ms now) {
    std::vector<apiary::job_id> stopped;
    const std::vector<apiary::job_id> there = places_.set_health(n, false).value();
    for (const apiary::job_id job : there) {
      record& r = jobs_.at(job.value);
      release(r);
      if (r.at != phase::run) continue;
      queue(r, now);
      stopped.push_back(job);
    }
    return stopped;
  }
  absl::Status mark_healthy(apiary::node_id n, time_ms /*now*/) {
    return places_.set_health(n, true).status();
  }

  absl::Status decide(time_ms now, std::vector<apiary::job_action>& actions) {
    while (wake() <= now) time_out(now);
    for (const apiary::job_id job : std::vector(collector_)) {
      if (job.valid() && collect(jobs_.at(job.value))) start(jobs_.at(job.value), {}, now, actions);
    }
    start_all(false, now, actions);
    for (const apiary::job_id job : std::exchange(begun_, {})) preempt_for(job, now, actions);
    begun_.clear();
    start_all(true, now, actions);
    for (std::uint32_t t = 0; t < collector_.size(); ++t) {
      if (collector_[t].valid()) continue;
      record* const first = first_that(
          [&](const record& r) { return r.request.tenant.value == t && within_quota(r.request); });
      if (first == nullptr) continue;
      collector_[t] = first->request.job;
      first->aim = places_.aim(first->request.gpus, first->locality);
      (void)collect(*first);
    }
    for (auto& [id, r] : jobs_) {
      if (r.at == phase::run) continue;
      const std::uint32_t idle = places_.pool().idle() + collected(r.request.tenant.value);
      const std::uint32_t t = r.request.tenant.value;
      r.clock.set(running(t) >= options_.quotas[t] ? apiary::delay_cause::quota
                  : r.request.gpus > idle          ? apiary::delay_cause::capacity
                                                   : apiary::delay_cause::fragmentation,
                  now);
    }
    return absl::OkStatus();
  }
  [[nodiscard]] time_ms wake() const {
    const record* const next = next_timer();
    return next == nullptr ? apiary::max_time : next->timer;
  }
  [[nodiscard]] std::uint32_t total_gpus() const { return places_.pool().total(); }

  [[nodiscard]] std::optional<standing> find(apiary::job_id job) const {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return std::nullopt;
    const record& r = found->second;
    return standing{r.at, r.locality, r.tries, apiary::detail::gpus_of(r.where)};
  }

 private:
  struct record {
    apiary::job_request request{};
    time_ms key = 0;
    apiary::delay_clock clock{};
    apiary::delays entered{};  // reading of the clock when it began to wait
    phase at = phase::acquire;
    apiary::job_locality locality = apiary::job_locality::packed;
    std::uint32_t tries = 0;
    std::uint32_t retries = 0;
    time_ms timer = apiary::max_time;
    time_ms started = 0;
    apiary::job_placement where{};
    std::vector<apiary::node_id> aim{};
  };

  [[nodiscard]] const record* next_timer() const {
    const record* next = nullptr;
    for (const auto& [id, r] : jobs_) {
      if (r.timer != apiary::max_time && (next == nullptr || r.timer < next->timer)) next = &r;
    }
    return next;
  }
  [[nodiscard]] std::uint32_t collected(std::uint32_t tenant) const {
    const apiary::job_id job = collector_[tenant];
    return job.valid() ? apiary::detail::gpus_of(jobs_.at(job.value).where) : 0;
  }
  [[nodiscard]] std::uint32_t running(std::uint32_t tenant) const {
    return used_[tenant] - collected(tenant);
  }
  [[nodiscard]] std::uint32_t wanted(std::uint32_t tenant) const {
    const apiary::job_id job = collector_[tenant];
    return job.valid() ? jobs_.at(job.value).request.gpus : 0;
  }
  // Whoever wants as many GPUs as the collector may take its place.
  [[nodiscard]] bool within_quota(const apiary::job_request& r) const {
    const std::uint32_t t = r.tenant.value;
    const std::uint32_t claimed = wanted(t) == r.gpus ? 0 : wanted(t);
    return running(t) + claimed + r.gpus <= options_.quotas[t];
  }
  // The first by key and id of those that acquire and may.
  template <class May>
  [[nodiscard]] record* first_that(May&& may) {
    record* first = nullptr;
    for (auto& [id, r] : jobs_) {
      if (r.at != phase::acquire || !may(r)) continue;
      if (first == nullptr || r.key < first->key) first = &r;
    }
    return first;
  }

  void queue(record& r, time_ms now) {
    r.clock.set(apiary::delay_cause::capacity, now);
    r.entered = r.clock.at(now);
    r.tries = 0;
    begin(r, now);
  }
  void begin(record& r, time_ms now) {
    r.at = phase::acquire;
    r.timer = now + options_.acquire_time;
    begun_.push_back(r.request.job);
  }
  void release(record& r) {
    used_[r.request.tenant.value] -= apiary::detail::gpus_of(r.where);
    if (!r.where.empty()) places_.give(r.where);
    r.where.clear();
    apiary::job_id& collector = collector_[r.request.tenant.value];
    if (collector == r.request.job) collector = {};
  }
  void time_out(time_ms now) {
    record& r = jobs_.at(next_timer()->request.job.value);
    if (r.at == phase::acquire) {
      release(r);
      ++r.tries;
      r.at = phase::backoff;
      r.timer = now + options_.backoff_time;
      return;
    }
    if (r.tries > options_.max_tries && r.locality != apiary::job_locality::anywhere) {
      r.locality = static_cast<apiary::job_locality>(static_cast<std::uint8_t>(r.locality) + 1);
      r.tries = 0;
    }
    begin(r, now);
  }
  [[nodiscard]] bool collect(record& r) {
    for (const apiary::node_id n : r.aim) {
      const std::uint32_t missing = r.request.gpus - apiary::detail::gpus_of(r.where);
      const std::uint32_t more = std::min(missing, places_.pool().idle(n));
      if (more == 0) continue;
      places_.add(r.request.job, n, more, r.where);
      used_[r.request.tenant.value] += more;
    }
    return apiary::detail::gpus_of(r.where) == r.request.gpus;
  }
  void start(record& r, const apiary::job_placement& more, time_ms now,
             std::vector<apiary::job_action>& actions) {
    const bool within = within_quota(r.request);
    if (!more.empty()) {
      release(r);
      places_.take(r.request.job, more);
      r.where = more;
      used_[r.request.tenant.value] += r.request.gpus;
    }
    apiary::job_id& collector = collector_[r.request.tenant.value];
    if (collector == r.request.job) collector = {};
    const std::uint32_t t = r.request.tenant.value;
    if (within && collector.valid() && running(t) + wanted(t) > options_.quotas[t])
      release(jobs_.at(collector.value));
    r.at = phase::run;
    r.timer = apiary::max_time;
    r.started = now;
    apiary::delays waited = r.clock.at(now);
    waited -= r.entered;
    actions.push_back({apiary::job_action::verb::start, r.request.job, r.where, waited});
  }
  void start_all(bool over_quota, time_ms now, std::vector<apiary::job_action>& actions) {
    for (bool again = true; again;) {
      again = false;
      std::vector<std::pair<std::uint32_t, apiary::job_locality>> failed;
      for (const bool lend : {false, true}) {
        const auto may = [&](const record& r) {
          return ((lend && over_quota) || within_quota(r.request)) &&
                 std::find(failed.begin(), failed.end(), std::pair(r.request.gpus, r.locality)) ==
                     failed.end();
        };
        while (record* const next = first_that(may)) {
          const apiary::job_placement where = places_.look(next->request.gpus, next->locality);
          if (where.empty()) {
            failed.emplace_back(next->request.gpus, next->locality);
            continue;
          }
          const std::uint32_t before = collected(next->request.tenant.value);
          start(*next, where, now, actions);
          again = again || collected(next->request.tenant.value) < before;
        }
      }
    }
  }
  void preempt_for(apiary::job_id job, time_ms now, std::vector<apiary::job_action>& actions) {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end() || found->second.at != phase::acquire) return;
    record& r = found->second;
    std::uint64_t all = 0;
    for (const apiary::node_id n : places_.pool().servers())
      all += places_.pool().healthy(n) ? places_.pool().gpus(n) : 0;
    const std::uint64_t in_use = all - places_.pool().idle();
    if (!options_.preempt_percent || in_use * 100 < all * *options_.preempt_percent) return;
    if (!within_quota(r.request)) return;
    // Of each tenant beyond its quota the last started, as long as it stays beyond it.
    std::vector<apiary::detail::philly_candidate> candidates;
    std::vector<std::uint32_t> left;
    for (std::uint32_t owner = 0; owner < used_.size(); ++owner) left.push_back(running(owner));
    std::vector<const record*> run;
    for (const auto& [id, other] : jobs_) {
      if (other.at == phase::run) run.push_back(&other);
    }
    const auto later = [](const record* a, const record* b) {
      if (a->started != b->started) return a->started > b->started;
      return a->request.job < b->request.job;
    };
    std::sort(run.begin(), run.end(), later);
    for (const record* const other : run) {
      const std::uint32_t owner = other->request.tenant.value;
      if (left[owner] <= options_.quotas[owner] || other->started == now) continue;
      left[owner] -= other->request.gpus;
      candidates.push_back({other->request.job, other->started, other->where});
    }
    std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
      return a.started != b.started ? a.started > b.started : a.job > b.job;
    });
    const std::vector<std::size_t> victims =
        apiary::detail::choose_victims(places_, candidates, r.request.gpus, r.locality);
    if (victims.empty()) return;
    for (const std::size_t i : victims) {
      record& v = jobs_.at(candidates[i].job.value);
      release(v);
      queue(v, now);
      actions.push_back({apiary::job_action::verb::suspend, v.request.job, {}, {}});
    }
    start(r, places_.look(r.request.gpus, r.locality), now, actions);
  }

  apiary::philly_options options_;
  apiary::detail::locality_search places_;
  std::vector<std::uint32_t> used_;        // by tenant
  std::vector<apiary::job_id> collector_;  // by tenant
  std::map<std::uint32_t, record> jobs_;
  std::vector<apiary::job_id> begun_;
};

}  // namespace apiary_test
