// apiary/tests/queue/detail/gpu_profile_test.cpp - free GPUs over time against an array of ticks.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/queue/detail/gpu_profile.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

TEST_CASE("free_profile: a job goes into the first gap that is long enough") {
  gpu_profile profile(4);
  profile.take(0, 10, 3);
  profile.take(15, 20, 2);
  CHECK(profile.free_at(9) == 1);
  CHECK(profile.free_at(10) == 4);
  CHECK(profile.earliest(0, 5, 1) == 0);
  CHECK(profile.earliest(0, 5, 4) == 10);
  CHECK(profile.earliest(0, 6, 3) == 20);
  CHECK(profile.earliest(0, max_time, 2) == 10);
  CHECK(profile.earliest(0, 1, 5) == max_time);
  CHECK(profile.next_change(10) == 15);
  CHECK(profile.earliest(0, 5, 3, 15) == 10);
  CHECK(profile.earliest(0, 6, 3, 15) == 10);  // until 15
  CHECK(profile.earliest(0, 5, 4, 9) == 9);
  profile.give(0, 10, 3);
  CHECK(profile.next_change(0) == 15);
  profile.give(15, 20, 2);
  CHECK(profile.free_at(0) == 4);
  CHECK(profile.next_change(0) == max_time);
  profile.take(3, max_time, 1);
  profile.forget_before(7);
  CHECK(profile.start() == 7);
  CHECK(profile.free_at(7) == 3);
  CHECK(profile.next_change(7) == max_time);
}

TEST_CASE("free_profile: random takes and gives as in an array") {
  constexpr time_ms last = 60;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(200U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    gpu_profile profile(8);
    std::vector<std::int64_t> ticks(last, 8);
    time_ms now = 0;
    for (int step = 0; step < 60; ++step) {
      const time_ms from = random.uniform(last);
      const time_ms until = random.uniform(8) == 0 ? max_time : from + random.uniform(20);
      const std::int64_t gpus = random.uniform(4);
      const bool more = random.uniform(2) == 0;
      more ? profile.give(from, until, gpus) : profile.take(from, until, gpus);
      for (time_ms t = from; t < last && t < until; ++t)
        ticks[static_cast<std::size_t>(t)] += more ? gpus : -gpus;
      if (random.uniform(10) == 0 && now < last - 1) profile.forget_before(++now);
      for (time_ms t = now; t < last; ++t)
        REQUIRE(profile.free_at(t) == ticks[static_cast<std::size_t>(t)]);
      const time_ms length = 1 + random.uniform(12);
      const std::int64_t wanted = random.uniform(9);
      time_ms at = now;  // in the array, where it ends
      for (time_ms t = at; t < last && t < at + length; ++t) {
        if (ticks[static_cast<std::size_t>(t)] < wanted) at = t + 1;
      }
      if (at + length <= last) {
        REQUIRE(profile.earliest(now, length, wanted) == at);
      } else {
        REQUIRE(profile.earliest(now, length, wanted) >= at);
      }
      time_ms change = now + 1;
      while (change < last &&
             ticks[static_cast<std::size_t>(change)] == ticks[static_cast<std::size_t>(change - 1)])
        ++change;
      REQUIRE(std::min(profile.next_change(now), last) == change);
    }
  }
}
