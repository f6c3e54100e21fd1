// apiary/hived/detail/tenant_queues.h - the waiting jobs of hived_queue, by tenant and size.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/hived/request.h>
#include <apiary/model/job.h>
#include <apiary/model/request.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The waiting jobs of all tenants: a queue for each tenant, number of GPUs and priority, by
// arrival, then id. It keeps what is known of a whole queue: that its jobs do not fit, or that they
// fit but must not overtake the tenant's first job. A queue without jobs is erased.
// Requires: times in [0, 2^52).
// Cost:     enter, leave O(log jobs + log queues), the rest O(queues of the tenant).
class tenant_queues {
 public:
  static constexpr int time_bits = 52;

  // The waiting jobs of a tenant with the same number of GPUs and the same priority.
  struct queue {
    weighted_tree jobs{};  // weighted by their estimates
    delay_clock clock{};
    bool fits_cells = false;           // its jobs fit into the tenant's cells if these are empty
    bool full = false;                 // its jobs did not fit, and nothing has changed since
    bool done = false;                 // its jobs have been tried in this round
    std::optional<time_ms> ends_by{};  // jobs that end later must not overtake in this round
  };
  // Tenant, whether the jobs are opportunistic, GPUs, -priority.
  using queue_key = std::tuple<std::uint32_t, bool, std::uint32_t, std::int32_t>;

  // The queue of jobs like this one. Requires: such a job waits.
  [[nodiscard]] queue& of(const job_request& r) { return queues_.at(key_of(r)); }
  // The number of queues.
  [[nodiscard]] std::size_t size() const noexcept { return queues_.size(); }

  // The job waits. `fits_cells`: it fits into its tenant's cells if these are empty. Returns
  // whether it may start on its tenant's cells, or come before jobs that wait.
  bool enter(const job_request& r, time_ms arrival, bool fits_cells) {
    queue& q = queues_[key_of(r)];
    q.fits_cells = fits_cells;
    q.jobs.insert({order(r, arrival), r.job.value, r.estimate});
    if (fits_cells && r.tenant == tenant_ && std::pair(order(r, arrival), r.job.value) < last_)
      passed_over_ = true;
    return !q.full || q.jobs.first()->id == r.job.value;
  }
  // The job does not wait any more. Returns the reading of its queue's clock.
  delays leave(const job_request& r, time_ms arrival, time_ms now) {
    const auto at = queues_.find(key_of(r));
    const delays reading = at->second.clock.at(now);
    at->second.jobs.erase(order(r, arrival), r.job.value);
    if (at->second.jobs.empty()) queues_.erase(at);
    return reading;
  }
  // Whether this job may be why others wait: it did not fit into its tenant's cells, and in the
  // last round a job of its tenant and priority must not overtake. Requires: it waits.
  [[nodiscard]] bool holds_back(const job_request& r) {
    bool any = false;
    if (!of(r).full) return any;
    each_of(r.tenant, [&](const queue_key& k, const queue& q) {
      any = any || (std::get<3>(k) == -r.priority && q.ends_by && !q.full);
    });
    return any;
  }
  // Jobs of the tenant, or of all tenants, may fit again.
  void retry(tenant_id t) {
    each_of(t, [](const queue_key&, queue& q) { q.full = false; });
  }
  void retry() {
    for (auto& [key, q] : queues_) q.full = false;
  }
  // Jobs like this one do not fit into their tenant's cells now. With `larger`, neither do larger
  // jobs of at most this priority.
  void set_full(const job_request& r, bool larger) {
    of(r).full = true;
    if (!larger) return;
    each_of(r.tenant, [&](const queue_key& k, queue& q) {
      if (std::get<2>(k) >= r.gpus && std::get<3>(k) >= -r.priority) q.full = true;
    });
  }
  // A new round: the tenant's jobs are tried from the first on.
  void begin_round(tenant_id t) {
    tenant_ = t;
    last_ = {};
    passed_over_ = false;
    each_of(t, [](const queue_key&, queue& q) {
      q.done = false;
      q.ends_by.reset();
    });
  }
  // Whether, in this round, a job has come to wait that precedes the last one of next_on_cells().
  [[nodiscard]] bool passed_over() const noexcept { return passed_over_; }
  // The tenant's next guaranteed job of this round, by priority, arrival and id.
  [[nodiscard]] std::optional<job_id> next_on_cells(tenant_id t, time_ms now) {
    std::optional<weighted_tree::item> least;
    each_of(t, [&](const queue_key&, const queue& q) {
      if (!q.fits_cells || q.done) return;
      const std::optional<weighted_tree::item> first =
          q.ends_by ? q.jobs.first_at_most(longest_until(*q.ends_by, now)) : q.jobs.first();
      if (first && (!least || std::pair(first->key, first->id) < std::pair(least->key, least->id)))
        least = first;
    });
    if (!least) return std::nullopt;
    last_ = {least->key, least->id};
    return job_id(least->id);
  }
  // The first job by arrival and id of at most so many GPUs, of the first jobs by priority of each
  // tenant and number of GPUs; with `guaranteed` also guaranteed jobs. Only jobs before `end`, and
  // with estimates of at most `longest`.
  [[nodiscard]] std::optional<job_id> next_on_idle(
      std::uint32_t max_gpus, bool guaranteed,
      const std::optional<std::pair<time_ms, std::uint32_t>>& end = {},
      time_ms longest = max_time) const {
    std::optional<std::pair<time_ms, std::uint32_t>> best = end;
    std::optional<std::tuple<std::uint32_t, bool, std::uint32_t>> passed;
    for (const auto& [key, q] : queues_) {
      const auto& [t, opportunistic, gpus, rank] = key;
      const std::optional<weighted_tree::item> first = q.jobs.first_at_most(longest);
      if (!first || std::exchange(passed, std::tuple(t, opportunistic, gpus)) ==
                        std::tuple(t, opportunistic, gpus))
        continue;
      if ((!opportunistic && !guaranteed) || gpus > max_gpus) continue;
      const std::pair at(arrival_of(*first), first->id);
      if (!best || at < *best) best = at;
    }
    return best != end ? std::optional(job_id(best->second)) : std::nullopt;
  }
  // The arrival of a job of a queue.
  [[nodiscard]] static time_ms arrival_of(const weighted_tree::item& job) noexcept {
    return job.key & ((std::int64_t{1} << time_bits) - 1);
  }
  // Sets what the jobs of each queue wait for to cause(tenant, opportunistic, GPUs, queue).
  template <class Cause>
  void set_causes(time_ms now, const Cause& cause) {
    for (auto& [key, q] : queues_) {
      const auto& [t, opportunistic, gpus, rank] = key;
      q.clock.set(cause(tenant_id(t), opportunistic, gpus, q), now);
    }
  }
  // Whether a job that starts now ends by this time; without an estimate it never does.
  [[nodiscard]] static bool ends_by(const job_request& r, time_ms at, time_ms now) noexcept {
    return r.estimate <= longest_until(at, now);
  }

 private:
  [[nodiscard]] static queue_key key_of(const job_request& r) {
    return {r.tenant.value, r.priority < 0, r.gpus, -r.priority};
  }
  [[nodiscard]] static std::int64_t order(const job_request& r, time_ms arrival) noexcept {
    return std::int64_t{gang_request::max_priority - r.priority} << time_bits | arrival;
  }
  [[nodiscard]] static time_ms longest_until(time_ms at, time_ms now) noexcept {
    return at == max_time ? max_time - 1 : at - now;
  }
  // Calls f(key, queue) for the guaranteed jobs of a tenant.
  template <class F>
  void each_of(tenant_id t, const F& f) {
    auto at = queues_.lower_bound({t.value, false, 0, (std::numeric_limits<std::int32_t>::min)()});
    for (; at != queues_.end() && std::get<0>(at->first) == t.value; ++at) {
      if (!std::get<1>(at->first)) f(at->first, at->second);
    }
  }

  std::map<queue_key, queue> queues_;
  tenant_id tenant_{};                             // of the round
  std::pair<std::int64_t, std::uint32_t> last_{};  // order and id of the job that was tried last
  bool passed_over_ = false;
};

}  // namespace detail
APIARY_NAMESPACE_END
