// apiary/tests/sim/detail/idle_servers_test.cpp - how scattered idle GPUs are, against counting them anew.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/sim/detail/simulator.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

TEST_CASE("idle_servers: the share of idle GPUs that no job of a whole server can have") {
  const std::vector<std::uint32_t> gpus{4, 4, 2};
  idle_servers idle(gpus);
  CHECK(idle.share() == doctest::Approx(2.0 / 10));  // no job of four GPUs fits on the third
  idle.use(node_id(0), 1, 10);
  CHECK(idle.share() == doctest::Approx(5.0 / 9));
  idle.set_health(node_id(1), false, 20);
  CHECK(idle.share() == 1);
  idle.use(node_id(0), 3, 20);
  idle.use(node_id(2), 2, 25);
  CHECK(idle.share() == 0);
  CHECK(idle.area(30) == doctest::Approx(10 * 0.2 + 10 * 5.0 / 9 + 5));
  idle.set_health(node_id(1), true, 30);
  CHECK(idle.share() == 0);
  CHECK(idle_servers({}).area(5) == 0);
}

TEST_CASE("idle_servers: random changes, against counting all servers each time") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(200U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<std::uint32_t> gpus(1 + random.uniform(6));
    for (std::uint32_t& g : gpus) g = random.uniform(33);
    const std::uint32_t largest = *std::max_element(gpus.begin(), gpus.end());
    idle_servers idle(gpus);
    std::vector<std::uint32_t> used(gpus.size(), 0);
    std::vector<bool> broken(gpus.size(), false);
    const auto share = [&] {
      double all = 0;
      double whole = 0;
      for (std::size_t i = 0; i < gpus.size(); ++i) {
        const std::uint32_t n = broken[i] ? 0 : gpus[i] - used[i];
        all += n;
        whole += n == largest ? n : 0;
      }
      return all == 0 ? 0 : 1 - whole / all;
    };
    double area = 0;
    time_ms now = 0;
    for (int step = 0; step < 100; ++step) {
      const time_ms then = now + random.uniform(4);
      area += share() * static_cast<double>(then - now);
      now = then;
      const std::uint32_t n = random.uniform(static_cast<std::uint32_t>(gpus.size()));
      if (random.uniform(4) == 0) {
        broken[n] = !broken[n];
        idle.set_health(node_id(n), !broken[n], now);
      } else {
        const std::uint32_t after = random.uniform(gpus[n] + 1);
        idle.use(node_id(n), std::int64_t{after} - used[n], now);
        used[n] = after;
      }
      REQUIRE(idle.share() == doctest::Approx(share()));
      REQUIRE(idle.area(now) == doctest::Approx(area));
    }
  }
}
