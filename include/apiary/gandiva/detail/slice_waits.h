// apiary/gandiva/detail/slice_waits.h - the waiting jobs of time_sharing_queue, and why they wait.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/weighted_tree.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gandiva/detail/time_slice.h>
#include <apiary/model/job.h>

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

APIARY_NAMESPACE_BEGIN
namespace detail {

// What decides in which queue a job waits, and at which position.
struct queued_job {
  job_request request{};
  time_ms arrival = 0;
  bool guaranteed = false;  // the backend gives it a priority of 0 or more
};

// The waiting jobs: a queue for each number of GPUs; guaranteed jobs also have a queue for each
// tenant. Each queue has one clock for the delays, because all its jobs wait for the same cause. A
// queue has failed if its first job could not start as guaranteed, and nothing has changed since.
// Cost: a call O(log jobs), or O(queues) where it looks at all queues.
class time_sharing_wait_queues {
 public:
  using key = std::tuple<bool, std::uint32_t, std::uint32_t>;  // guaranteed, tenant, GPUs

  void enter(const queued_job& r) {
    queue& q = queue_of(r);
    q.jobs.insert({order_of(r), r.request.job.value, 0});
    if (q.jobs.first()->id == r.request.job.value) q.failed = false;
  }
  void leave(const queued_job& r) {
    queue& q = queue_of(r);
    if (q.jobs.first()->id == r.request.job.value) q.failed = false;
    q.jobs.erase(order_of(r), r.request.job.value);
  }
  // What the clock of the job's queue reads.
  [[nodiscard]] delays clock(const queued_job& r, time_ms now) { return queue_of(r).clock.at(now); }
  // The first guaranteed job of the queues that have not failed.
  [[nodiscard]] std::optional<job_id> first_guaranteed() const {
    std::optional<weighted_tree::item> least;
    for (const auto& [of, q] : queues_) {
      const auto first = std::get<0>(of) && !q.failed ? q.jobs.first() : std::nullopt;
      if (first && (!least || std::pair(first->key, first->id) < std::pair(least->key, least->id)))
        least = first;
    }
    return least ? std::optional(job_id(least->id)) : std::nullopt;
  }
  void fail(const queued_job& r) { queue_of(r).failed = true; }
  // No queue of the tenant has failed any more; nullopt: no queue at all.
  void retry(std::optional<tenant_id> t) noexcept {
    for (auto& [of, q] : queues_) {
      if (!t || std::get<1>(of) == t->value) q.failed = false;
    }
  }
  // The jobs of each queue wait because of cause(key) from now on.
  template <class Cause>
  void set_causes(Cause&& cause, time_ms now) {
    for (auto& [of, q] : queues_) {
      if (!q.jobs.empty()) q.clock.set(cause(of), now);
    }
  }

 private:
  struct queue {
    weighted_tree jobs{};
    delay_clock clock{};
    bool failed = false;
  };
  [[nodiscard]] queue& queue_of(const queued_job& r) {
    return queues_[{r.guaranteed, r.guaranteed ? r.request.tenant.value : 0, r.request.gpus}];
  }
  // Guaranteed jobs: by priority, arrival and id; the others: by arrival and id.
  [[nodiscard]] static std::int64_t order_of(const queued_job& r) noexcept {
    return r.guaranteed ? r.arrival - r.request.priority * slice_end_of_time : r.arrival;
  }

  std::map<key, queue> queues_;
};

}  // namespace detail
APIARY_NAMESPACE_END
