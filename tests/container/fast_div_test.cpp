// apiary/tests/container/fast_div_test.cpp - division by multiplication is division.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/container/fast_div.h>
#include <apiary/core/rng.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <type_traits>
#include <vector>

namespace {

using namespace apiary;

static_assert(std::is_trivially_copyable_v<fast_div>);
static_assert(!std::is_convertible_v<std::uint32_t, fast_div>);
static_assert(fast_div(7).quotient(48) == 6 && fast_div(7).quotient(49) == 7);
static_assert(fast_div().divisor() == 1 && fast_div().quotient(42) == 42);

constexpr std::uint32_t limit = std::uint32_t{1} << 31;  // of divisors and dividends

// The quotient changes at multiples of the divisor: the dividends on both sides of the first, of
// the last, and of those around `n` are the hardest.
void require_exact(std::uint32_t divisor, std::uint32_t n) {
  const fast_div by(divisor);
  const std::uint32_t multiple = n / divisor * divisor;
  for (const std::uint64_t dividend :
       {std::uint64_t{n}, std::uint64_t{multiple}, std::uint64_t{multiple} + divisor - 1,
        std::uint64_t{multiple} + divisor, std::uint64_t{multiple} + limit - 1, std::uint64_t{0},
        std::uint64_t{divisor} - 1, std::uint64_t{divisor}, std::uint64_t{limit} - 1,
        std::uint64_t{limit - 1} / divisor * divisor,
        std::uint64_t{limit - 1} / divisor * divisor + limit - 1}) {
    const auto tried = static_cast<std::uint32_t>(dividend % limit);
    if (by.quotient(tried) != tried / divisor) {
      CAPTURE(divisor);
      CAPTURE(tried);
      REQUIRE(by.quotient(tried) == tried / divisor);
    }
  }
}

TEST_CASE("every small divisor is exact for every small dividend") {
  for (std::uint32_t divisor = 1; divisor <= 1024; ++divisor) {
    const fast_div by(divisor);
    REQUIRE(by.divisor() == divisor);
    std::uint32_t wrong = 0;
    for (std::uint32_t n = 0; n <= 8192; ++n) wrong += by.quotient(n) == n / divisor ? 0U : 1U;
    CAPTURE(divisor);
    REQUIRE(wrong == 0);
  }
}

TEST_CASE("every small divisor is exact for the largest dividends") {
  for (std::uint32_t divisor = 1; divisor <= 4096; ++divisor) {
    const fast_div by(divisor);
    std::uint32_t wrong = 0;
    for (std::uint32_t n = limit - 2 * divisor - 1; n < limit; ++n) {
      wrong += by.quotient(n) == n / divisor ? 0U : 1U;
    }
    CAPTURE(divisor);
    REQUIRE(wrong == 0);
  }
}

TEST_CASE("divisors around powers of two and at the limit are exact") {
  rng random(1);
  std::vector<std::uint32_t> divisors;
  for (std::uint32_t k = 0; k <= 31; ++k) {
    for (const std::int64_t d : {-2, -1, 0, 1, 2}) {
      const std::int64_t divisor = (std::int64_t{1} << k) + d;
      if (divisor >= 1 && divisor < limit) divisors.push_back(static_cast<std::uint32_t>(divisor));
    }
  }
  divisors.push_back(limit - 1);
  for (const std::uint32_t divisor : divisors) {
    for (int i = 0; i < 1000; ++i) require_exact(divisor, random.uniform(limit));
  }
}

TEST_CASE("random divisors and dividends are exact") {
  rng random(2);
  const std::uint32_t steps = apiary_test::scaled(2'000'000U);
  for (std::uint32_t i = 0; i < steps; ++i) {
    const std::uint32_t divisor = 1 + random.uniform((limit - 1) >> random.uniform(31));
    require_exact(divisor, random.uniform(limit));
  }
}

}  // namespace
