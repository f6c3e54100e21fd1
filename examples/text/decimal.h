// apiary/examples/text/decimal.h - numbers as text, fixed or shortest, without a locale.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <system_error>

namespace example {

// The text of x with `digits` digits after the point, correctly rounded.
// Requires: |x| < 10^15, digits <= 9.
[[nodiscard]] inline std::string fixed_text(double x, int digits) {
  APIARY_ASSERT(std::abs(x) < 1e15 && digits >= 0 && digits <= 9);
  std::array<char, 32> text;
  const auto [end, fault] =
      std::to_chars(text.data(), text.data() + text.size(), x, std::chars_format::fixed, digits);
  APIARY_VERIFY(fault == std::errc());
  return {text.data(), end};
}

// The shortest text that reads back as x, always with a point or an exponent (12.0, 0.1, 1e-05);
// empty for NaN. Requires: |x| < 10^16 or NaN.
[[nodiscard]] inline std::string shortest_text(double x) {
  if (std::isnan(x)) return {};
  APIARY_ASSERT(std::abs(x) < 1e16);
  const bool tiny = x != 0.0 && std::abs(x) < 1e-4;
  std::array<char, 32> text;
  const auto [end, fault] =
      std::to_chars(text.data(), text.data() + text.size(), x,
                    tiny ? std::chars_format::scientific : std::chars_format::fixed);
  APIARY_VERIFY(fault == std::errc());
  std::string shortest(text.data(), end);
  if (!tiny && shortest.find('.') == std::string::npos) shortest += ".0";
  return shortest;
}

}  // namespace example
