// apiary/metric/utilization.h - the time-weighted use of a resource.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstdint>

APIARY_NAMESPACE_BEGIN

// Measures the use of a resource over time: the mean, the peak, and the sum of use times time (for
// example GPU-milliseconds). Times may be in any unit and must not decrease.
//
// Cost:    O(1) for each call. Exact in integers if use times time is below 2^64.
// Example: examples/churn.cpp
class utilization {
 public:
  // A point in time, in any unit.
  using tick_type = std::uint64_t;

  // capacity: how much of the resource exists.
  explicit utilization(std::uint64_t capacity, tick_type start = 0) noexcept
      : capacity_(capacity), start_(start), now_(start) {}

  // Sets the amount in use from `now` on. Requires: now is not before the time of the last call.
  void set(tick_type now, std::uint64_t used) noexcept {
    area_ = area(now);
    now_ = now;
    used_ = used;
    if (used > peak_) peak_ = used;
  }

  // The amount in use now.
  [[nodiscard]] std::uint64_t used() const noexcept { return used_; }
  // The largest amount that was in use.
  [[nodiscard]] std::uint64_t peak() const noexcept { return peak_; }
  // The sum of use times time from the start to `now`.
  [[nodiscard]] std::uint64_t area(tick_type now) const noexcept {
    APIARY_ASSERT(now >= now_);
    return area_ + (now - now_) * used_;
  }
  // The mean of used / capacity from the start to `now`; 0 if no time has passed or capacity is 0.
  [[nodiscard]] double mean(tick_type now) const noexcept {
    const double whole = static_cast<double>(now - start_) * static_cast<double>(capacity_);
    return whole == 0 ? 0 : static_cast<double>(area(now)) / whole;
  }

 private:
  std::uint64_t capacity_;
  tick_type start_;
  tick_type now_;
  std::uint64_t used_ = 0;
  std::uint64_t peak_ = 0;
  std::uint64_t area_ = 0;
};

APIARY_NAMESPACE_END
