// apiary/tests/container/timer_queue_test.cpp - timers against a map.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/container/timer_queue.h>
#include <apiary/core/rng.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <set>
#include <utility>

using namespace apiary;

TEST_CASE("timer_queue: the earliest first, ties by id whatever the order of calls") {
  timer_queue timers;
  CHECK(timers.empty());
  timers.set(5, 10);
  timers.set(2, 10);
  timers.set(9, 7);
  timers.set(9, 30);  // moved
  timers.set(4, 11);
  timers.cancel(4);
  timers.cancel(77);  // never had one
  CHECK(timers.size() == 3);
  CHECK(timers.pop() == timer_queue::timer{10, 2});
  CHECK(timers.pop() == timer_queue::timer{10, 5});
  CHECK(!timers.contains(5));
  CHECK(timers.pop() == timer_queue::timer{30, 9});
  CHECK(timers.empty());
}

TEST_CASE("timer_queue: random changes as in a set") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(50U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    timer_queue timers;
    std::map<std::uint32_t, std::int64_t> times;
    std::set<std::pair<std::int64_t, std::uint32_t>> ordered;
    const std::uint32_t ids = 1 + random.uniform(60);
    for (int step = 0; step < 600; ++step) {
      const std::uint32_t id = random.uniform(ids);
      const std::uint32_t what = random.uniform(8);
      if (what < 5) {
        const std::int64_t at = std::int64_t{random.uniform(20)} - 10;
        if (times.contains(id)) ordered.erase({times[id], id});
        times[id] = at;
        ordered.emplace(at, id);
        timers.set(id, at);
      } else if (what < 6) {
        if (times.contains(id)) ordered.erase({times[id], id});
        times.erase(id);
        timers.cancel(id);
      } else if (!times.empty()) {
        const auto [at, first] = *ordered.begin();
        REQUIRE(timers.pop() == timer_queue::timer{at, first});
        times.erase(first);
        ordered.erase(ordered.begin());
      }
      REQUIRE(timers.size() == times.size());
      REQUIRE(timers.contains(id) == times.contains(id));
      if (!times.empty()) {
        REQUIRE(timers.first() ==
                timer_queue::timer{ordered.begin()->first, ordered.begin()->second});
      }
    }
  }
}
