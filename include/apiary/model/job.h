// apiary/model/job.h - a job that takes time: what a host asks, and what it is to do.
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

// Time in whatever the host counts in (milliseconds in the readers and examples); a moment or a
// length.
using time_ms = std::int64_t;
inline constexpr time_ms forever = std::numeric_limits<time_ms>::max();

// a + b, forever where that is beyond it. Requires: b >= 0.
[[nodiscard]] constexpr time_ms later_by(time_ms a, time_ms b) noexcept {
  return a > forever - b ? forever : a + b;
}

// A job that wants so many whole GPUs at once.
struct job_request {
  job_id job{};
  tenant_id tenant{};
  std::int32_t priority = 0;  // the higher, the earlier
  std::uint32_t gpus = 1;
  time_ms estimate = forever;  // how long it runs at most, as its owner says
  std::uint32_t max_gpus = 0;  // that it can use, where they are idle; no more than `gpus` if below
  std::uint32_t weight = 1;    // of its turns, where jobs take turns: 1, ..., 1000
};

// Where a job runs: nodes, each once, with the devices that it has there.
using job_placement = std::vector<placement>;

// Why a job waits.
enum class delay_cause : std::uint8_t {
  quota,          // its tenant has all that it is entitled to
  capacity,       // fewer GPUs are idle than it wants
  fragmentation,  // enough are idle, but not where it may take them
  order,          // it might start, were it not for those before it
};
inline constexpr std::size_t num_delay_causes = 4;

// Time by cause.
struct delays {
  std::array<time_ms, num_delay_causes> by_cause{};

  [[nodiscard]] constexpr time_ms operator[](delay_cause c) const noexcept {
    return by_cause[static_cast<std::size_t>(c)];
  }
  constexpr time_ms& operator[](delay_cause c) noexcept {
    return by_cause[static_cast<std::size_t>(c)];
  }
  [[nodiscard]] constexpr time_ms total() const noexcept {
    time_ms sum = 0;
    for (const time_ms part : by_cause) sum += part;
    return sum;
  }
  constexpr delays& operator+=(const delays& d) noexcept {
    for (std::size_t i = 0; i < num_delay_causes; ++i) by_cause[i] += d.by_cause[i];
    return *this;
  }
  constexpr delays& operator-=(const delays& d) noexcept {
    for (std::size_t i = 0; i < num_delay_causes; ++i) by_cause[i] -= d.by_cause[i];
    return *this;
  }
  friend constexpr bool operator==(const delays&, const delays&) noexcept = default;
};

// How long each cause has held: of one job, or of all that wait for the same reason.
class delay_clock {
 public:
  // From `now` on the cause is `cause`. Requires: now is not before the last call's.
  constexpr void set(delay_cause cause, time_ms now) noexcept {
    sums_ = at(now);
    since_ = now;
    cause_ = cause;
  }
  [[nodiscard]] constexpr delay_cause cause() const noexcept { return cause_; }
  // Time by cause until now.
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

// What the host is to do with a job.
struct job_action {
  enum class verb : std::uint8_t {
    start,    // run it at `place`, from where it was suspended if it was
    suspend,  // stop it and keep its progress; it waits again
    pack,     // as start, beside the job that runs at `place`
    unpack,   // as suspend; the job beside which it ran runs on
    migrate,  // it runs on at `place`, beside the job that runs there if one does
    grow,     // it runs on at `place`, which is more of its server
    shrink,   // it runs on at `place`, which is less of it
  };
  verb what = verb::start;
  job_id job{};
  job_placement place{};  // not for suspend and unpack
  delays waited{};        // start and pack: since it was submitted or last stopped, by cause

  friend bool operator==(const job_action&, const job_action&) = default;
};

APIARY_NAMESPACE_END
