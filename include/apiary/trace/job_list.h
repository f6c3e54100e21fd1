// apiary/trace/job_list.h - jobs that arrive, and what became of them.
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

// A job as only a simulation knows it.
struct timed_job {
  job_request request{};
  time_ms arrival = 0;
  time_ms duration = 0;  // how long it runs at full speed
};

// Jobs by arrival, job i being job_id(i), and the names of their tenants.
struct job_list {
  std::vector<timed_job> jobs{};
  std::vector<std::string> tenants{};
  std::uint64_t left_out = 0;  // jobs of the file that ran on nothing or for no time
};

// Orders jobs by arrival, equal ones as they are, and numbers them.
inline void number_by_arrival(std::vector<timed_job>& jobs) {
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const timed_job& a, const timed_job& b) { return a.arrival < b.arrival; });
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].request.job = job_id(static_cast<std::uint32_t>(i));
  }
}

// A server that is broken from `from` until before `until`.
struct outage {
  node_id node{};
  time_ms from = 0;
  time_ms until = forever;
};

// What became of a job. Moments are forever where there was none.
struct job_record {
  time_ms started = forever;  // the first time
  time_ms ended = forever;
  delays waited{};
  std::uint32_t suspended = 0;  // times
  std::uint32_t broken = 0;     // times, with the server under it
  std::uint32_t migrated = 0;   // times
  std::uint32_t resized = 0;    // times
  time_ms lost = 0;             // work that it did and had to do again, at full speed
};

APIARY_NAMESPACE_END
