// apiary/model/job.h - jobs over time: requests, actions for the host, and causes of delay.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/placement.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A point in time or a duration, in milliseconds.
using time_ms = std::int64_t;
// A time later than all others: "never" as a point in time, "without limit" as a duration.
inline constexpr time_ms max_time = (std::numeric_limits<time_ms>::max)();

// a + b; max_time if the sum would be later. Requires: b >= 0.
[[nodiscard]] constexpr time_ms add_time(time_ms a, time_ms b) noexcept {
  return a > max_time - b ? max_time : a + b;
}

// A request for a job that runs on `gpus` whole GPUs at the same time.
struct job_request {
  job_id job{};                 // id of the job
  tenant_id tenant{};           // the tenant that asks
  std::int32_t priority = 0;    // a higher priority runs earlier
  std::uint32_t gpus = 1;       // whole GPUs
  time_ms estimate = max_time;  // the longest time that it runs, according to its owner
  std::uint32_t max_gpus = 0;   // it can use up to so many idle GPUs; below `gpus`: `gpus`
  std::uint32_t weight = 1;     // of its time slices if jobs are time-shared: 1, ..., 1000
  std::uint32_t demand = 0;     // what it needs beside GPUs; only a placer knows what it means
};

// Where a job runs: each of its nodes once, with the GPUs that it has there.
using job_placement = std::vector<placement>;

// Why a job waits.
enum class delay_cause : std::uint8_t {
  quota,          // its tenant uses its full quota
  capacity,       // fewer GPUs are idle than it requests
  fragmentation,  // enough GPUs are idle, but not where the job can use them
  order,          // it could start if there were no jobs before it in the queue
};

// Waiting time by cause.
struct delays {
  static constexpr std::size_t num_causes = 4;  // the number of causes
  std::array<time_ms, num_causes> by_cause{};   // waiting time, by delay_cause

  // The time of one cause.
  [[nodiscard]] constexpr time_ms operator[](delay_cause c) const noexcept {
    return by_cause[static_cast<std::size_t>(c)];
  }
  // The waiting time of a cause, to change.
  constexpr time_ms& operator[](delay_cause c) noexcept {
    return by_cause[static_cast<std::size_t>(c)];
  }
  // The sum over all causes.
  [[nodiscard]] constexpr time_ms total() const noexcept {
    time_ms sum = 0;
    for (const time_ms time : by_cause) sum += time;
    return sum;
  }
  // Adds or subtracts the times of every cause.
  constexpr delays& operator+=(const delays& d) noexcept {
    for (std::size_t i = 0; i < num_causes; ++i) by_cause[i] += d.by_cause[i];
    return *this;
  }
  // Subtracts the waiting time of each cause.
  constexpr delays& operator-=(const delays& d) noexcept {
    for (std::size_t i = 0; i < num_causes; ++i) by_cause[i] -= d.by_cause[i];
    return *this;
  }
  friend constexpr bool operator==(const delays&, const delays&) noexcept = default;
};

// Measures how long each cause applies: to one job, or to all jobs that wait for the same reason.
class delay_clock {
 public:
  // Sets the cause from `now` on. Requires: now is not before the time of the last call.
  constexpr void set(delay_cause cause, time_ms now) noexcept {
    sums_ = at(now);
    since_ = now;
    cause_ = cause;
  }
  // The current cause.
  [[nodiscard]] constexpr delay_cause cause() const noexcept { return cause_; }
  // The time by cause until `now`. Requires: now is not before the time of the last set.
  [[nodiscard]] constexpr delays at(time_ms now) const noexcept {
    APIARY_ASSERT(now >= since_);
    delays sums = sums_;
    sums[cause_] += now - since_;
    return sums;
  }

 private:
  delays sums_{};
  delay_cause cause_ = delay_cause::capacity;
  time_ms since_ = 0;
};

// Why a running job has failed: it decides whether the job waits again (the classes of Philly's
// paper).
enum class failure_class : std::uint8_t {
  transient,  // not the fault of the job: it always waits again
  permanent,  // it never runs again
  unknown,    // it waits again, a limited number of times
};

// What the host must do with a job.
struct job_action {
  // The kind of action.
  enum class verb : std::uint8_t {
    start,    // run it at `where`; if it was suspended, continue it
    suspend,  // stop it and keep its progress; it waits again
    pack,     // as start, together with the job that runs at `where`
    unpack,   // as suspend; the job that it was packed with keeps running
    migrate,  // move it to `where`, where another job may run already
    grow,     // give it `where`, which has more GPUs of the same server
    shrink,   // give it `where`, which has fewer GPUs of the same server
  };
  verb what = verb::start;  // what to do
  job_id job{};             // the job
  job_placement where{};    // empty for suspend and unpack
  delays waited{};          // for start and pack: waiting time since submit or the last stop
  friend bool operator==(const job_action&, const job_action&) = default;
};

APIARY_NAMESPACE_END
