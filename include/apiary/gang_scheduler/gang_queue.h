// apiary/gang_scheduler/gang_queue.h - a queue of jobs over a gang scheduler, for the simulator.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/gang_scheduler/gang_placer.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/model/job.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/queue/job_queue.h>
#include <apiary/queue/orders.h>
#include <apiary/queue/reservations.h>

#include <absl/status/status.h>

#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Options of a gang_queue.
struct gang_queue_options {
  using demand = gang_job_demand;  // what a job needs besides its number of GPUs
  // A job may start before the first waiting job if, by the estimates of the running jobs, this
  // does not delay the first one. If the first one waits for a bad node, every job that fits may
  // start. If it is undecided whether the first one can start when a job has ended, no job starts
  // that ends later.
  bool backfill = false;
  // By job_request::demand; jobs from its end on need only GPUs.
  std::vector<demand> demands{};
};

namespace detail {

// easy_beside, or no backfilling. Jobs behind the first one wait for it, whatever they need.
class gang_reservation : public easy_beside<gang_placer> {
 public:
  static constexpr bool only_first_waits_for_gpus = true;
  explicit gang_reservation(bool backfill) : backfill_(backfill) {}
  template <class Queue>
  [[nodiscard]] absl::Status fill(Queue& q, const typename Queue::entry& first, time_ms now) {
    return backfill_ ? easy_beside<gang_placer>::fill(q, first, now) : absl::OkStatus();
  }

 private:
  bool backfill_;
};

}  // namespace detail

// Queues jobs over a gang_scheduler: higher priorities first, then in the order of submission. The
// first job that does not fit delays all jobs after it, unless backfilling lets them start. A job
// may suspend running jobs of lower priority, at least cost; these then wait again, in the same
// order. It is a job_queue over a gang_placer, which divides jobs into tasks.
//
// The first job waits for capacity if fewer GPUs are free on nodes without taints than it asks for,
// whatever their models are; otherwise for fragmentation.
// Bound: a job waits at most (k + 1) * T, where k jobs of no lower priority wait before it when it
//       begins to wait. Without backfilling, T is the longest run; with it the longest estimate,
//       and no job may run longer than its estimate. This holds while all nodes are healthy, no job
//       of higher priority arrives and no proposal is `undecided`, in submit and in decide.
// Cost: finish and mark_*: as in gang_scheduler; submit: O(log jobs), and for the first job of a
//       number of GPUs and a demand one proposal for each size of tasks until one may fit, at most
//       32; decide: one proposal for each job that starts and one for the first that does not.
//       Backfilling adds those of easy_beside. Jobs of equal tenant, priority, GPUs and demand are
//       of one kind.
class gang_queue : public job_queue<gang_placer, priority_order, detail::gang_reservation> {
 public:
  // Starts with an empty queue. Requires: no gang runs.
  explicit gang_queue(gang_scheduler scheduler, gang_queue_options options = {})
      : job_queue(gang_placer(std::move(scheduler),
                              {.demands = std::move(options.demands), .preempts = true}),
                  {}, detail::gang_reservation(options.backfill)) {}
  // The scheduler, for questions.
  [[nodiscard]] const gang_scheduler& scheduler() const noexcept { return placer().scheduler(); }
};
static_assert(JobScheduler<gang_queue>);

APIARY_NAMESPACE_END
