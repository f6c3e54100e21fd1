// apiary/container/fast_div.h - division by a run-time constant as a multiplication.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <bit>
#include <cstdint>

APIARY_NAMESPACE_BEGIN

// Divides numbers below 2^31 by a divisor that is fixed at construction, with one 64-bit
// multiplication and a shift.
//
// Model: Granlund, Montgomery, "Division by invariant integers using multiplication" (PLDI 1994),
//        the round-up multiplier; it fits in 32 bits because dividends are limited to 31.
class fast_div {
 public:
  // Division by 1.
  constexpr fast_div() noexcept : fast_div(1) {}
  // Division by `divisor`. Requires: 1 <= divisor < 2^31.
  constexpr explicit fast_div(std::uint32_t divisor) noexcept
      : divisor_(divisor), shift_(31U + static_cast<std::uint32_t>(std::bit_width(divisor - 1))) {
    APIARY_ASSERT(divisor >= 1 && divisor < (std::uint32_t{1} << 31));
    multiplier_ = static_cast<std::uint32_t>((std::uint64_t{1} << shift_) / divisor + 1);
  }

  // The divisor.
  [[nodiscard]] constexpr std::uint32_t divisor() const noexcept { return divisor_; }
  // n / divisor. Requires: n < 2^31.
  [[nodiscard]] constexpr std::uint32_t quotient(std::uint32_t n) const noexcept {
    APIARY_ASSERT(n < (std::uint32_t{1} << 31));
    return static_cast<std::uint32_t>((std::uint64_t{n} * multiplier_) >> shift_);
  }

 private:
  std::uint32_t divisor_ = 1;
  std::uint32_t multiplier_ = 0;
  std::uint32_t shift_ = 0;
};

APIARY_NAMESPACE_END
