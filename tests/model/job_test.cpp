// apiary/tests/model/job_test.cpp - moments without end, and time by cause counted by ticks.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/model/job.h>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

using namespace apiary;

namespace {

constexpr std::array<delay_cause, delays::num_causes> all_causes{
    delay_cause::quota, delay_cause::capacity, delay_cause::fragmentation, delay_cause::order};

static_assert(add_time(3, 4) == 7);
static_assert(add_time(max_time, 0) == max_time);
static_assert(delay_clock().at(5)[delay_cause::capacity] == 5);
static_assert(job_request().estimate == max_time);

}  // namespace

TEST_CASE("add_time: the sum, and max_time where there is none") {
  constexpr time_ms first = std::numeric_limits<time_ms>::min();
  for (const time_ms a :
       {first, first + 1, time_ms{-7}, time_ms{-1}, time_ms{0}, time_ms{1}, time_ms{9},
        max_time / 2, max_time / 2 + 1, max_time - 9, max_time - 1, max_time}) {
    for (const time_ms b : {time_ms{0}, time_ms{1}, time_ms{8}, time_ms{9}, time_ms{10},
                            max_time / 2, max_time / 2 + 1, max_time - 1, max_time}) {
      CAPTURE(a);
      CAPTURE(b);
      // Both at least 0: the sum is below 2^64. Otherwise it is below `max_time`.
      const bool beyond = a > 0 && static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b) >
                                       static_cast<std::uint64_t>(max_time);
      CHECK(add_time(a, b) == (beyond ? max_time : a + b));
    }
  }
}

TEST_CASE("delays: by cause, in all, added and taken away") {
  delays d;
  CHECK(d.total() == 0);
  d[delay_cause::quota] = 1;
  d[delay_cause::capacity] = 20;
  d[delay_cause::fragmentation] = 300;
  d[delay_cause::order] = 4000;
  CHECK(d.total() == 4321);
  CHECK(d.by_cause == std::array<time_ms, delays::num_causes>{1, 20, 300, 4000});
  delays sum = d;
  sum += d;
  for (const delay_cause c : all_causes) CHECK(sum[c] == 2 * d[c]);
  CHECK(sum != d);
  sum -= d;
  CHECK(sum == d);
  sum -= d;
  CHECK(sum == delays());
}

TEST_CASE("delay_clock: every tick counts for the cause that was set last") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(200U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    delay_clock clock;
    delays counted;
    delay_cause cause = delay_cause::capacity;
    time_ms now = 0;
    for (int step = 0; step < 30; ++step) {
      for (std::uint32_t ticks = random.uniform(5); ticks > 0; --ticks) {
        ++counted[cause];
        ++now;
      }
      CHECK(clock.at(now) == counted);
      CHECK(clock.at(now).total() == now);
      if (random.uniform(3) == 0) continue;
      cause = all_causes[random.uniform(delays::num_causes)];
      clock.set(cause, now);
      CHECK(clock.cause() == cause);
      CHECK(clock.at(now) == counted);
    }
  }
}

TEST_CASE("delay_clock: a copy is a reading that can go on by itself") {
  delay_clock clock;
  clock.set(delay_cause::order, 10);
  delay_clock other = clock;
  other.set(delay_cause::quota, 12);
  CHECK(clock.at(15)[delay_cause::order] == 5);
  CHECK(clock.at(15)[delay_cause::quota] == 0);
  CHECK(other.at(15)[delay_cause::order] == 2);
  CHECK(other.at(15)[delay_cause::quota] == 3);
}

TEST_CASE("job_action: equal in all of its parts") {
  const job_action a{job_action::verb::start, job_id(3), {{node_id(1), 0b11}}, {}};
  job_action b = a;
  CHECK(a == b);
  b.waited[delay_cause::order] = 1;
  CHECK(a != b);
  b = a;
  b.where[0].gpu_mask = 0b1;
  CHECK(a != b);
  b = a;
  b.what = job_action::verb::pack;
  CHECK(a != b);
}
