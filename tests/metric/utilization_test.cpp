// apiary/tests/metric/utilization_test.cpp - averages over time against adding up every tick.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/metric/utilization.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>

using namespace apiary;

TEST_CASE("by hand: half in use for 10 ticks, all for 10, none for 20") {
  utilization gpus(8, 100);
  CHECK(gpus.mean(100) == 0);
  gpus.set(100, 4);
  gpus.set(110, 8);
  gpus.set(120, 0);
  CHECK(gpus.area(140) == 120);
  CHECK(gpus.mean(140) == doctest::Approx(120.0 / 320));
  CHECK(gpus.mean(120) == doctest::Approx(120.0 / 160));
  CHECK(gpus.peak() == 8);
  CHECK(gpus.used() == 0);
}

TEST_CASE("the area is the sum over all ticks") {
  rng random(81);
  utilization gpus(50);
  std::uint64_t now = 0;
  std::uint64_t used = 0;
  std::uint64_t sum = 0;
  std::uint64_t peak = 0;
  for (int step = 0; step < 2000; ++step) {
    for (std::uint32_t ticks = random.uniform(5); ticks > 0; --ticks, ++now) sum += used;
    used = random.uniform(51);
    peak = std::max(peak, used);
    gpus.set(now, used);
    REQUIRE(gpus.area(now) == sum);
    REQUIRE(gpus.area(now + 7) == sum + 7 * used);
    REQUIRE(gpus.peak() == peak);
  }
  CHECK(gpus.mean(now) ==
        doctest::Approx(static_cast<double>(sum) / static_cast<double>(now) / 50));
}

TEST_CASE("of nothing, nothing is used") {
  const utilization none(0);
  CHECK(none.mean(10) == 0);
}
