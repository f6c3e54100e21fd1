// apiary/sim/simulation_result.h - what a simulation of jobs is asked, and what it tells.
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

// What things cost, and how long to go on.
struct simulation_options {
  time_ms start_cost = 0;      // from a job's start, growth or shrinking until it makes progress
  time_ms checkpoint = 0;      // a broken server loses the work since the last whole multiple of it
                               // done; 0: all of it
  time_ms until = forever;     // ends then, whatever still runs
  time_ms migration_cost = 0;  // from a job's migration until it makes progress
  std::vector<std::uint32_t> servers{};  // GPUs of each, to measure how scattered idle ones are;
                                         // empty: that is not measured
};

// A thousand means full speed.
inline constexpr std::uint32_t full_speed = 1000;

// What happened, as the observer sees it.
struct simulation_event {
  enum class kind : std::uint8_t {
    arrival,
    start,
    suspension,
    end,
    breakdown,
    failure,
    repair,
    migration,
    resize,
    pace  // another job came to its GPUs or left them
  };
  kind what = kind::arrival;
  time_ms at = 0;
  job_id job{};             // not for failure and repair of a server
  node_id node{};           // only for those
  std::uint32_t gpus = 0;   // that the job has
  std::uint32_t nodes = 0;  // over which it runs
  std::uint32_t speed = 0;  // from now on, in thousandths ...
  time_ms from = 0;         // ... or from then on, until when it makes no progress
};

struct simulation_result {
  std::vector<job_record> jobs{};
  utilization gpus{0};     // GPUs that jobs have, those of two jobs once
  double scattered = 0.0;  // idle_servers::area() from time 0 to the last event
  time_ms ended = 0;       // the last event
  std::uint64_t events = 0;
  std::uint64_t decisions = 0;  // calls of decide
  digest log{};                 // of all events with their places, in order
};

APIARY_NAMESPACE_END
