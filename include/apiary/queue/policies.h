// apiary/queue/policies.h - queues by name: FIFO, EASY, shortest remaining time, LAS.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/model/job.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/model/placer.h>
#include <apiary/queue/conservative_queue.h>
#include <apiary/queue/job_queue.h>
#include <apiary/queue/orders.h>
#include <apiary/queue/reservations.h>
#include <apiary/queue/server_placer.h>
#include <apiary/queue/suspending_queue.h>

#include <absl/status/status.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Options of a batch_queue.
struct batch_options {
  // Which jobs may start before the first job in the queue.
  enum class rules : std::uint8_t {
    fifo,       // none: no_backfill
    backfill,   // every job that fits, in order; the first job may starve: first_fit
    easy,       // a job that does not delay the first job's reservation of GPUs: easy_by_count
    easy_gpus,  // the same, but the reservation is for particular GPUs: easy_by_placement
  };
  rules rule = rules::easy;  // which jobs may start
  // The order of the jobs; ties by job id.
  enum class orders : std::uint8_t {
    arrival,   // by arrival; with aging, each job becomes the first one: arrival_order
    gpu_time,  // by GPUs * estimate: shortest service first; long jobs may starve: gpu_time_order
  };
  orders order = orders::arrival;  // the order of the jobs
  // For orders::arrival: a job counts as if it had arrived priority * aging milliseconds earlier.
  time_ms aging = 0;
};

namespace detail {

// One of several orders.
struct batch_order {
  std::variant<arrival_order, gpu_time_order> one{};
  [[nodiscard]] std::int64_t position(const job_request& r, time_ms now) {
    return std::visit([&](auto& order) { return order.position(r, now); }, one);
  }
};

// One of several reservations.
template <JobPlacer P>
class batch_reservation : public reservation_events {
  using rules = batch_options::rules;
  std::variant<no_backfill, first_fit, easy_by_count, easy_by_placement<P>> one_{};

 public:
  explicit batch_reservation(rules rule) {
    if (rule == rules::backfill) one_.template emplace<first_fit>();
    if (rule == rules::easy) one_.template emplace<easy_by_count>();
    if (rule == rules::easy_gpus) one_.template emplace<easy_by_placement<P>>();
  }
  template <class Record>
  void started(const Record& r) {
    std::visit([&](auto& v) { v.started(r); }, one_);
  }
  template <class Record>
  void ended(Record& r, time_ms now) {
    std::visit([&](auto& v) { v.ended(r, now); }, one_);
  }
  void withdrawn() {
    std::visit([](auto& v) { v.withdrawn(); }, one_);
  }
  void servers_changed() {
    std::visit([](auto& v) { v.servers_changed(); }, one_);
  }
  template <class Queue>
  [[nodiscard]] absl::Status fill(Queue& q, const typename Queue::entry& first, time_ms now) {
    return std::visit([&](auto& v) { return v.fill(q, first, now); }, one_);
  }
  [[nodiscard]] std::optional<reservation> reserved() const {
    if (const auto* const count = std::get_if<easy_by_count>(&one_)) return count->reserved();
    if (const auto* const copy = std::get_if<easy_by_placement<P>>(&one_)) return copy->reserved();
    return std::nullopt;
  }
};

}  // namespace detail

// A queue of jobs that run to their end, with a rule and an order that are chosen when the program
// runs: FIFO, first-fit backfilling or EASY backfilling. See job_queue, and the page for when a
// reservation holds.
// Example:  examples/job_queues.cpp
template <JobPlacer P>
class batch_queue : public job_queue<P, detail::batch_order, detail::batch_reservation<P>> {
  using base = job_queue<P, detail::batch_order, detail::batch_reservation<P>>;

 public:
  using reservation = apiary::reservation;  // the start of the first job, by the estimates

  // A queue over a placer on which no job runs.
  explicit batch_queue(P placer, batch_options options = {})
      : base(std::move(placer), order_of(options), detail::batch_reservation<P>(options.rule)) {}
  // The reservation of the last decide(), for easy and easy_gpus; nullopt if no job waited, or
  // after an error.
  [[nodiscard]] std::optional<reservation> reserved() const {
    return this->blocked() ? this->reservations().reserved() : std::nullopt;
  }

 private:
  [[nodiscard]] static detail::batch_order order_of(const batch_options& options) {
    if (options.order == batch_options::orders::gpu_time) return {gpu_time_order()};
    return {arrival_order{options.aging}};
  }
};

// Options of a preemptive_queue.
struct preemptive_options {
  // Which jobs come first.
  enum class rules : std::uint8_t {
    shortest_remaining,  // the smallest GPUs * remaining time, by the estimate
    least_attained,      // the smallest GPUs * time that the job has run so far
  };
  rules rule = rules::least_attained;  // which jobs run
  // least_attained only: jobs are chosen again at the first decide() from each multiple of it on.
  time_ms quantum = 1;
  // least_attained only: as in service_order.
  std::vector<std::int64_t> thresholds{};
  // shortest_remaining only: as in suspending_options.
  time_ms checkpoint_interval = 0;
};

// A suspending_queue without a bound on waits and without migration: SRPT, LAS, or Tiresias (LAS
// with thresholds). shortest_remaining chooses at each event, least_attained at multiples of its
// quantum. A job starves while jobs with less GPU-time keep arriving, or if it needs the GPUs of
// more than suspending_queue::max_stops jobs: use bounded_wait_queue.
// Example:  examples/job_queues.cpp
template <JobPlacer P>
class preemptive_queue : public suspending_queue<P> {
  using rules = preemptive_options::rules;
  using measures = service_order::measures;

 public:
  // A queue over a placer on which no job runs. Requires: options.quantum > 0; checkpoint_interval
  // >= 0.
  explicit preemptive_queue(P placer, preemptive_options options = {})
      : suspending_queue<P>(
            std::move(placer),
            service_order(
                options.rule == rules::least_attained ? measures::attained : measures::remaining,
                std::move(options.thresholds)),
            {.quantum = options.rule == rules::least_attained ? options.quantum : 0,
             .stops_on_arrival = false,
             .checkpoint_interval = options.checkpoint_interval}) {}
};

// Options of a bounded_wait_queue.
struct bounded_wait_options {
  using orders = service_order::measures;  // which jobs come first, if no job starves
  orders order = orders::attained;         // which jobs come first
  time_ms quantum = 600'000;        // jobs are chosen at the first decide() from each multiple on
  time_ms patience = 86'400'000;    // a job that has waited so long without a break starves
  time_ms slice = 600'000;          // how long a job that starves runs before all others
  bool migrates = true;             // whether running jobs move to make GPUs of one server idle
  time_ms checkpoint_interval = 0;  // orders::remaining only: as in suspending_options
};

// A suspending_queue that bounds the wait of each job and migrates jobs. It is the library's
// recommendation for jobs that can be suspended: with orders::remaining if there are estimates.
// Example:  examples/job_queues.cpp
template <JobPlacer P>
class bounded_wait_queue : public suspending_queue<P> {
 public:
  // A queue over a placer on which no job runs. Requires: quantum > 0, and as suspending_queue.
  explicit bounded_wait_queue(P placer, const bounded_wait_options& options = {})
      : suspending_queue<P>(std::move(placer), service_order(options.order),
                            {.quantum = options.quantum,
                             .patience = options.patience,
                             .slice = options.slice,
                             .migrates = options.migrates,
                             .checkpoint_interval = options.checkpoint_interval}) {
    APIARY_ASSERT(options.quantum > 0);
  }
};

static_assert(JobScheduler<batch_queue<server_placer>> &&
              JobScheduler<conservative_queue<server_placer>> &&
              JobScheduler<preemptive_queue<server_placer>> &&
              JobScheduler<bounded_wait_queue<server_placer>>);

APIARY_NAMESPACE_END
