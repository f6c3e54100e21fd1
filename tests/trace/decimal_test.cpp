// apiary/tests/trace/decimal_test.cpp - rounding and shortest texts.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/trace/decimal.h>

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <charconv>
#include <clocale>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

using namespace apiary;

namespace {

// The same texts from std::to_chars, which is exact.
std::string naive_fixed(double x, int digits) {
  std::array<char, 64> text;
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), x, std::chars_format::fixed, digits);
  return {text.data(), end.ptr};
}
std::string naive_shortest(double x) {
  const bool tiny = x != 0.0 && std::abs(x) < 1e-4;
  std::array<char, 64> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), x,
                                 tiny ? std::chars_format::scientific : std::chars_format::fixed);
  std::string shortest(text.data(), end.ptr);
  if (!tiny && shortest.find('.') == std::string::npos) shortest += ".0";
  return shortest;
}
void check_all(double x) {
  CAPTURE(x);
  REQUIRE(shortest_text(x) == naive_shortest(x));
  if (std::abs(x) < 1e15)
    for (int digits = 0; digits <= 9; ++digits)
      REQUIRE(fixed_text(x, digits) == naive_fixed(x, digits));
}

}  // namespace

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

TEST_CASE("numbers of all sizes, near powers of two and ten, have the texts of std::to_chars") {
  for (int power = -1074; power <= 53; ++power) {
    const double x = std::ldexp(1.0, power);
    for (const double near : {std::nextafter(x, 0.0), x, std::nextafter(x, 1e300)}) {
      check_all(near);
      check_all(-near);
    }
  }
  for (int power = -300; power < 16; ++power) {
    const double x = std::pow(10.0, power);
    for (const double near : {std::nextafter(x, 0.0), x, 5 * x})
      if (near < 1e16) check_all(near);
  }
  rng random(11);
  for (std::uint32_t i = 0; i < apiary_test::scaled(20'000U); ++i) {
    const double bits = std::bit_cast<double>(random());
    if (std::abs(bits) < 1e16) check_all(bits);
    check_all(static_cast<double>(random() >> 11) * 0x1.0p-53 * 100.0);
    check_all(
        std::ldexp(static_cast<double>(random() >> 11), -static_cast<int>(random.uniform(80))));
    check_all(static_cast<double>(random.uniform(100'000)) / 100);
  }
  check_all(0.0);
  check_all(-0.0);
}

TEST_CASE("the locale of the host changes no text") {
  const std::string before = std::setlocale(LC_NUMERIC, nullptr);
  for (const char* const name : {"de_DE.UTF-8", "fr_FR.UTF-8", "C"}) {
    if (std::setlocale(LC_NUMERIC, name) == nullptr) continue;
    CHECK(shortest_text(-1234.5) == "-1234.5");
    CHECK(fixed_text(1234.5, 2) == "1234.50");
  }
  std::setlocale(LC_NUMERIC, before.c_str());
}
