// apiary/model/job_scheduler.h - the concept of a scheduler of jobs over time.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <concepts>
#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A scheduler that queues jobs and decides over time. The queues of queue/, philly/ and gandiva/
// model it, and so do hived/hived_queue.h and gang_scheduler/gang_queue.h; sim/simulate.h runs any
// that does.
//
// (s: a scheduler, r: a request, j: a job, n: a server, t: the time now)
//
// | expression              | meaning                                                        |
// |-------------------------|----------------------------------------------------------------|
// | s.submit(r, t)          | a job arrives; an error, and no change, if it can never run    |
// | s.finish(j, t)          | a job has ended, or one that waits is cancelled                |
// | s.mark_bad(n, t)        | a server failed; returns the jobs that stopped and wait again  |
// | s.mark_healthy(n, t)    | the server is healthy again                                    |
// | s.decide(t, actions)    | appends the actions that the host must do now                  |
// | s.wake()                | when decide must be called next even if nothing happens: later |
// |                         | than the last decide, or max_time                              |
// | s.total_gpus()          | GPUs of the cluster                                            |
//
// Only jobs that wait start, and only running ones are suspended, migrated or resized.
//
// A scheduler may also have s.fail(j, why, t), with a failure_class: the running job has failed. It
// returns, as absl::StatusOr<bool>, whether the job waits again.
// Example: examples/own_queue.cpp
template <class S>
concept JobScheduler = requires(S& s, const S& constant, const job_request& r, job_id j, node_id n,
                                time_ms t, std::vector<job_action>& actions) {
  { s.submit(r, t) } -> std::same_as<absl::Status>;
  { s.finish(j, t) } -> std::same_as<absl::Status>;
  { s.mark_bad(n, t) } -> std::same_as<absl::StatusOr<std::vector<job_id>>>;
  { s.mark_healthy(n, t) } -> std::same_as<absl::Status>;
  { s.decide(t, actions) } -> std::same_as<absl::Status>;
  { constant.wake() } -> std::same_as<time_ms>;
  { constant.total_gpus() } -> std::same_as<std::uint32_t>;
};

APIARY_NAMESPACE_END
