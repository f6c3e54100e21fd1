// apiary/tests/support/naive_batch.h - batch queues tick by tick, on a line of free GPUs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/model/job.h>
#include <apiary/trace/job_list.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace apiary_test {

enum class naive_rule : std::uint8_t { fifo, backfill, easy, conservative };

// When each job starts where any GPUs will do: every tick looks at every job, and whether a job may
// start is asked of the free GPUs at each tick of the future, one by one.
// Requires: estimates >= durations > 0, the sum of all times small.
inline std::vector<apiary::time_ms> naive_starts(naive_rule rule, std::uint32_t gpus,
                                                 const std::vector<apiary::timed_job>& jobs) {
  using apiary::time_ms;
  time_ms horizon = 1;
  for (const apiary::timed_job& j : jobs) horizon = std::max(horizon, j.arrival);
  for (const apiary::timed_job& j : jobs) horizon += j.request.estimate;
  std::vector<time_ms> start(jobs.size(), apiary::max_time);
  std::vector<time_ms> reserved(jobs.size(), apiary::max_time);  // conservative
  for (time_ms now = 0; now < horizon; ++now) {
    // The free GPUs at each tick from now on, as the estimates have it.
    std::vector<std::int64_t> idle(static_cast<std::size_t>(horizon - now), gpus);
    const auto add = [&](time_ms from, time_ms until, std::int64_t more) {
      for (time_ms t = std::max(from, now); t < std::min(until, horizon); ++t) {
        idle[static_cast<std::size_t>(t - now)] += more;
      }
    };
    const auto take = [&](std::size_t j, time_ms from, time_ms until) {
      add(from, until, -std::int64_t{jobs[j].request.gpus});
    };
    const auto give = [&](std::size_t j, time_ms from, time_ms until) {
      add(from, until, jobs[j].request.gpus);
    };
    const auto fits = [&](std::size_t j, time_ms from) {
      for (time_ms t = from; t < std::min(horizon, from + jobs[j].request.estimate); ++t) {
        if (idle[static_cast<std::size_t>(t - now)] < jobs[j].request.gpus) return false;
      }
      return true;
    };
    const auto earliest = [&](std::size_t j) {
      time_ms at = now;
      while (!fits(j, at)) ++at;
      return at;
    };
    std::vector<std::size_t> waiting;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      if (start[j] == apiary::max_time) {
        if (jobs[j].arrival <= now) waiting.push_back(j);
      } else if (start[j] + jobs[j].duration > now) {
        take(j, start[j], start[j] + jobs[j].request.estimate);
      }
    }
    const auto run = [&](std::size_t j) {
      start[j] = now;
      take(j, now, now + jobs[j].request.estimate);
    };
    if (rule == naive_rule::conservative) {
      // What is reserved stays at least as early; in order, everyone moves to the earliest place
      // that the reservations of all others leave.
      for (const std::size_t j : waiting) {
        if (reserved[j] != apiary::max_time)
          take(j, reserved[j], reserved[j] + jobs[j].request.estimate);
      }
      for (bool moved = true; moved;) {
        moved = false;
        for (const std::size_t j : waiting) {
          const time_ms before = reserved[j];
          if (before != apiary::max_time) give(j, before, before + jobs[j].request.estimate);
          reserved[j] = earliest(j);
          take(j, reserved[j], reserved[j] + jobs[j].request.estimate);
          moved = moved || reserved[j] != before;
        }
      }
      for (const std::size_t j : waiting) {
        if (reserved[j] == now) start[j] = now;
      }
      continue;
    }
    bool blocked = false;
    for (const std::size_t j : waiting) {
      if (idle[0] < jobs[j].request.gpus) {
        // The first one that waits gets its reservation: later ones go around it.
        if (!blocked && rule == naive_rule::easy) {
          time_ms at = now;
          while (idle[static_cast<std::size_t>(at - now)] < jobs[j].request.gpus) ++at;
          take(j, at, horizon);
        }
        blocked = true;
      } else if (!blocked || rule == naive_rule::backfill ||
                 (rule == naive_rule::easy && fits(j, now))) {
        run(j);
      }
    }
  }
  return start;
}

}  // namespace apiary_test
