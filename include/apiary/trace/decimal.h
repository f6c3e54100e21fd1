// apiary/trace/decimal.h - numbers as text, fixed or shortest, without a locale.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The digits of a text that printf made, without its sign, its exponent and the point of the locale.
[[nodiscard]] inline std::string digits_of(const char* text) {
  std::string digits;
  for (; *text != '\0' && *text != 'e'; ++text)
    if (*text >= '0' && *text <= '9') digits += *text;
  return digits;
}

}  // namespace detail

// The text of x with `digits` digits after the point, correctly rounded.
// Requires: |x| < 10^15, digits <= 9.
[[nodiscard]] inline std::string fixed_text(double x, int digits) {
  APIARY_ASSERT(std::abs(x) < 1e15 && digits >= 0 && digits <= 9);
  std::array<char, 48> printed;
  std::snprintf(printed.data(), printed.size(), "%.*f", digits, x);
  std::string text = detail::digits_of(printed.data());
  if (digits > 0) text.insert(text.size() - static_cast<std::size_t>(digits), 1, '.');
  return std::signbit(x) ? '-' + text : text;
}

// The shortest text that reads back as x, always with a point or an exponent (12.0, 0.1, 1e-05);
// empty for NaN. Requires: |x| < 10^16 or NaN.
[[nodiscard]] inline std::string shortest_text(double x) {
  if (std::isnan(x)) return {};
  APIARY_ASSERT(std::abs(x) < 1e16);
  // 15 digits keep every shorter number that is normal, 17 are enough for every double. If 16 do not read
  // back, the next number of 16 digits may: below a power of two, doubles lie closer together.
  std::array<char, 48> printed;
  const auto reads_back = [&] { return std::strtod(printed.data(), nullptr) == x; };
  for (int digits = std::isnormal(x) ? 15 : 1; digits <= 17; ++digits) {
    std::snprintf(printed.data(), printed.size(), "%.*e", digits - 1, x);
    if (reads_back()) break;
    char& last = *(std::strchr(printed.data(), 'e') - 1);
    if (digits < 16 || last == '9') continue;
    ++last;
    if (reads_back()) break;
  }
  const char* const exponent = std::strchr(printed.data(), 'e');
  const int power = std::atoi(exponent + 1);
  std::string digits = detail::digits_of(printed.data());
  while (digits.size() > 1 && digits.back() == '0') digits.pop_back();
  const std::string sign = std::signbit(x) ? "-" : "";
  if (x != 0.0 && std::abs(x) < 1e-4) {
    if (digits.size() > 1) digits.insert(1, 1, '.');
    return sign + digits + exponent;
  }
  if (power < 0) digits.insert(0, static_cast<std::size_t>(-power), '0');
  const std::size_t whole = power < 0 ? 1 : static_cast<std::size_t>(power) + 1;
  if (digits.size() <= whole) digits.resize(whole + 1, '0');
  return sign + digits.insert(whole, 1, '.');
}

APIARY_NAMESPACE_END
