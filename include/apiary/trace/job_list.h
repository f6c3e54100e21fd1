// apiary/trace/job_list.h - lists of jobs with arrival times, outages of servers, and the record of each job.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/job.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A job with its arrival and its true duration, which only a simulation knows.
struct timed_job {
  job_request request{};  // what the job asks for
  time_ms arrival = 0;    // when it arrives
  time_ms duration = 0;   // milliseconds at full speed
};

// Jobs in order of arrival, job i with the id job_id(i), and the names of their tenants.
struct job_list {
  std::vector<timed_job> jobs{};       // in order of arrival
  std::vector<std::string> tenants{};  // names, by tenant_id
  std::uint64_t left_out = 0;          // jobs of the file without GPUs or without duration
};

// Sorts jobs by arrival (stable) and numbers them from job_id(0).
inline void number_by_arrival(std::vector<timed_job>& jobs) {
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const timed_job& a, const timed_job& b) { return a.arrival < b.arrival; });
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].request.job = job_id(static_cast<std::uint32_t>(i));
  }
}

// A server that is broken from `from` until before `until`.
struct outage {
  node_id node{};            // the server
  time_ms from = 0;          // from this time on
  time_ms until = max_time;  // healthy again at this time
};

// The history of a job in a simulation. A time is max_time if the event did not happen.
struct job_record {
  time_ms started = max_time;   // the first start
  time_ms ended = max_time;     // the end of the job
  delays waited{};              // waiting time by cause
  std::uint32_t suspended = 0;  // number of suspensions
  std::uint32_t broken = 0;     // number of failures of a server on which the job ran
  std::uint32_t migrated = 0;   // number of migrations
  std::uint32_t resized = 0;    // number of times that the job grew or shrank
  time_ms lost = 0;             // work lost in failures, in milliseconds at full speed
};

APIARY_NAMESPACE_END
