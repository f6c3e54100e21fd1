// apiary/tests/examples/decimal_test.cpp - rounding and shortest texts.
// SPDX-License-Identifier: MIT
#include "../../examples/text/decimal.h"

#include <apiary/core/rng.h>

#include <doctest/doctest.h>

#include <cstdlib>
#include <limits>
#include <string>

using namespace apiary;
using example::fixed_text;
using example::shortest_text;

TEST_CASE("the shortest text has a point or an exponent and reads back") {
  CHECK(shortest_text(12.0) == "12.0");
  CHECK(shortest_text(0.0) == "0.0");
  CHECK(shortest_text(0.1) == "0.1");
  CHECK(shortest_text(100.0) == "100.0");
  CHECK(shortest_text(123456.0) == "123456.0");
  CHECK(shortest_text(14.015918367346941) == "14.015918367346941");
  CHECK(shortest_text(0.0001) == "0.0001");
  CHECK(shortest_text(0.00001) == "1e-05");
  CHECK(shortest_text(-2.5) == "-2.5");
  CHECK(shortest_text(1.0 / 3.0) == "0.3333333333333333");
  CHECK(shortest_text(std::numeric_limits<double>::quiet_NaN()).empty());
  rng random(7);
  for (int i = 0; i < 1000; ++i) {
    const double x = static_cast<double>(random() >> 11) * 0x1.0p-53 * 100.0;
    CHECK(std::strtod(shortest_text(x).c_str(), nullptr) == x);
  }
}

TEST_CASE("a fixed number of decimals, correctly rounded") {
  CHECK(fixed_text(0.0, 0) == "0");
  CHECK(fixed_text(2.5, 0) == "2");
  CHECK(fixed_text(95.286, 2) == "95.29");
  CHECK(fixed_text(1e14, 2) == "100000000000000.00");
}
