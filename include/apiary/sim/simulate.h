// apiary/sim/simulate.h - runs a list of jobs over time under any scheduler.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/job.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/sim/detail/simulator.h>
#include <apiary/sim/simulation_result.h>
#include <apiary/trace/job_list.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Runs a list of jobs under a scheduler until every job has ended or nothing more can happen. The
// arguments alone determine all events and their digest. The scheduler gets each job's estimate
// plus options.start_cost. A job of duration 0 ends when it has started.
//
// speed(job, where) -> std::uint32_t   the speed on these GPUs, in thousandths of full, not 0
// speed(job, where, others)            the same beside these jobs (ascending), whenever they change
// observe(event)                       called for each event
// observe(event, where)                the same, with the GPUs that the job has, or had until now
//
// If the scheduler has fail() (see JobScheduler), it is called for each failure of a job.
//
// Errors:   kInvalidArgument: a job is not numbered by arrival, has a negative arrival or a
//           duration outside 0 to 2^53 - 1; an outage is not in order of `from`, ends before it
//           begins or breaks a broken server; options.servers and the scheduler differ in GPUs; a
//           start, a migration or a checkpoint interval is less than 0 ms; a failure is not in
//           order of jobs, of no job, or before 0. kInternal: wake() is not later than the last
//           decide(); an action of decide() or the jobs of mark_bad() are wrong: sim/README.md
//           lists what is legal. Otherwise the first error of the scheduler.
// Requires: the scheduler is new.
// Cost:     O(log jobs running) an event beside the work of the scheduler; about 120 bytes a job.
// Example:  examples/job_queues.cpp
template <JobScheduler Scheduler, class Speed, class Observer>
[[nodiscard]] absl::StatusOr<simulation_result> simulate(Scheduler& scheduler,
                                                         std::span<const timed_job> jobs,
                                                         std::span<const outage> outages,
                                                         const simulation_options& options,
                                                         Speed&& speed, Observer&& observe) {
  APIARY_RETURN_IF_ERROR(detail::check_simulation(jobs, outages, options, scheduler.total_gpus()));
  constexpr bool neighbours_matter =
      std::invocable<Speed&, const timed_job&, const job_placement&, std::span<const job_id>>;
  constexpr bool decides_retries = requires(job_id job, failure_class why) {
    scheduler.fail(job, why, time_ms{});
  };
  // The functions live until the end of the expression, and so does the simulator.
  return detail::simulator(
             {[&](const job_request& r, time_ms now) { return scheduler.submit(r, now); },
              [&](job_id job, time_ms now) { return scheduler.finish(job, now); },
              [&](job_id job, failure_class why,
                  time_ms now) -> absl::StatusOr<std::optional<bool>> {
                if constexpr (decides_retries) {
                  return scheduler.fail(job, why, now);
                } else {
                  return std::optional<bool>();
                }
              },
              [&](node_id n, time_ms now) { return scheduler.mark_bad(n, now); },
              [&](node_id n, time_ms now) { return scheduler.mark_healthy(n, now); },
              [&](time_ms now, std::vector<job_action>& actions) {
                return scheduler.decide(now, actions);
              },
              [&] { return std::as_const(scheduler).wake(); },
              [&](const timed_job& job, const job_placement& where,
                  std::span<const job_id> others) -> std::uint32_t {
                if constexpr (neighbours_matter) {
                  return speed(job, where, others);
                } else {
                  return speed(job, where);
                }
              },
              [&](const simulation_event& event, const job_placement& where) {
                if constexpr (std::invocable<Observer&, const simulation_event&,
                                             const job_placement&>) {
                  observe(event, where);
                } else {
                  observe(event);
                }
              }},
             scheduler.total_gpus(), jobs, options, neighbours_matter)
      .run(outages);
}

// The same without failures and with every job at full speed.
template <JobScheduler Scheduler>
[[nodiscard]] absl::StatusOr<simulation_result> simulate(Scheduler& scheduler,
                                                         std::span<const timed_job> jobs) {
  return simulate(
      scheduler, jobs, {}, {}, [](const timed_job&, const job_placement&) { return full_speed; },
      [](const simulation_event&) {});
}

APIARY_NAMESPACE_END
