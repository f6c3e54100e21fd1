// apiary/sim/simulation_result.h - the options, events and result of a simulation of jobs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/digest.h>
#include <apiary/core/ids.h>
#include <apiary/metric/utilization.h>
#include <apiary/model/job.h>
#include <apiary/trace/job_list.h>

#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The costs of starts, failures and migrations, and the end of a simulation.
struct simulation_options {
  // Milliseconds from the start, growth or shrinking of a job until it makes progress.
  time_ms start_cost = 0;
  // A job saves its progress each time it has done this much work. A job on a server that breaks
  // loses the work since then; 0: it loses all of its work.
  time_ms checkpoint_interval = 0;
  // The simulation ends at this time, even if jobs are still running.
  time_ms until = max_time;
  // Milliseconds from the migration of a job until it makes progress.
  time_ms migration_cost = 0;
  // The GPUs of each server, used to measure the fragmentation of idle GPUs; empty: not measured.
  std::vector<std::uint32_t> servers{};
};

// The speed of a job that nothing slows down, in thousandths.
inline constexpr std::uint32_t full_speed = 1000;

// Something that happened in a simulation, as passed to the observer.
struct simulation_event {
  // What happened.
  enum class kind : std::uint8_t {
    arrival,
    start,
    suspension,
    end,
    breakdown,  // the job stopped because its server broke
    failure,    // a server broke
    repair,     // a server is healthy again
    migration,
    resize,  // the job grew or shrank
    pace     // another job came to the GPUs of the job, or left them
  };
  kind what = kind::arrival;  // what happened
  time_ms at = 0;             // when it happened
  job_id job{};               // not set for failure and repair
  node_id node{};             // set only for failure and repair
  std::uint32_t gpus = 0;     // the GPUs that the job has
  std::uint32_t nodes = 0;    // the nodes on which the job runs
  std::uint32_t speed = 0;    // the speed of the job from `from` on, in thousandths
  time_ms from = 0;           // the job makes no progress before this time
};

// The outcome of a simulation; metrics_of() turns it into figures.
struct simulation_result {
  std::vector<job_record> jobs{};  // the history of each job
  // GPUs in use over time. A GPU that two jobs share counts once.
  utilization gpus{0};
  // Fragmentation of the idle GPUs (0 to 1) times milliseconds, from time 0 to the last event.
  double scattered = 0.0;
  time_ms ended = 0;            // the time of the last event
  std::uint64_t events = 0;     // the number of events
  std::uint64_t decisions = 0;  // the number of calls of decide()
  digest log{};                 // a digest of all events with their placements, in order
};

APIARY_NAMESPACE_END
