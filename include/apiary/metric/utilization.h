// apiary/metric/utilization.h - a quantity averaged over time.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstdint>

APIARY_NAMESPACE_BEGIN

// The time-weighted use of something of which `capacity` exists. Time is whatever the host counts
// in, and never goes back.
//
// Cost:    O(1) a call. Exact in integers up to 2^64 units of use times time.
// Example: examples/churn.cpp
class utilization {
 public:
  using tick_type = std::uint64_t;

  explicit utilization(std::uint64_t capacity, tick_type start = 0) noexcept
      : capacity_(capacity), start_(start), now_(start) {}

  // From `now` on, `used` is in use. Requires: now is not before the last call's.
  void set(tick_type now, std::uint64_t used) noexcept {
    area_ = area(now);
    now_ = now;
    used_ = used;
    if (used > peak_) peak_ = used;
  }

  [[nodiscard]] std::uint64_t used() const noexcept { return used_; }
  [[nodiscard]] std::uint64_t peak() const noexcept { return peak_; }
  // The sum of use over time from the start to `now`, e.g. GPU-seconds.
  [[nodiscard]] std::uint64_t area(tick_type now) const noexcept {
    APIARY_ASSERT(now >= now_);
    return area_ + (now - now_) * used_;
  }
  // The mean of used / capacity from the start to `now`; 0 over no time or of nothing.
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
