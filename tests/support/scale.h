// apiary/tests/support/scale.h - how much work the long tests do.
// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstdlib>

namespace apiary_test {

// The environment variable APIARY_TEST_SCALE, 1 when it is not set; slow builds run with less.
inline double scale() {
  static const double value = [] {
    const char* text = std::getenv("APIARY_TEST_SCALE");
    return text == nullptr ? 1.0 : std::strtod(text, nullptr);
  }();
  return value;
}

// Whether this is a quick run: golden tests that take a minute without optimisation are left out.
inline bool is_quick() { return scale() < 0.5; }

// max(1, n * scale()): how many steps of n to do.
template <std::integral Int>
[[nodiscard]] Int scaled(Int n) {
  const double steps = static_cast<double>(n) * scale();
  return steps < 1.0 ? Int{1} : static_cast<Int>(steps);
}

}  // namespace apiary_test
