// apiary/tests/gang_scheduler/detail/candidate_gangs_test.cpp - sums over preemptible gangs, against a scan.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gang_scheduler/detail/candidate_gangs.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/model/job.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <support/scale.h>
#include <vector>

namespace candidate_gangs_tests {
namespace {

using namespace apiary;
using detail::candidate_gangs;

struct gangs : candidate_gangs {
  gangs() : candidate_gangs(gang_cluster{.nodes = {{.name = "n0", .gpus = 8}}}) {}
  void add(std::uint32_t slot, const brief& gang) { add_candidate(slot, gang, {}); }
  void forget(std::uint32_t slot) { forget_candidate(slot, {}); }
};

TEST_CASE("candidate_gangs: classes and GPU-time of the candidates, as a scan of them says") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(500U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    gangs all;
    std::vector<candidate_gangs::brief> expected(12);
    const bool with_future = random.uniform(2) == 0;
    for (int step = 0; step < 40; ++step) {
      CAPTURE(step);
      const std::uint32_t slot = random.uniform(12);
      candidate_gangs::brief& gang = expected[slot];
      if (gang.alive) {
        all.forget(slot);
        gang = {};
      } else {
        gang = {.gpus = random.uniform(9),
                .started = time_ms{random.uniform(100)} - 50,
                .nodes = random.uniform(4),
                .priority = static_cast<std::int32_t>(random.uniform(5)) - 2,
                .alive = true,
                .is_candidate = random.uniform(4) > 0};
        all.add(slot, gang);
        REQUIRE(all.brief_of(slot) == gang);
      }
      std::map<std::int32_t, candidate_gangs::priority_class> classes;
      for (const candidate_gangs::brief& b : expected) {
        if (!b.is_candidate) continue;
        candidate_gangs::priority_class& c = classes[b.priority];
        ++c.gangs;
        c.nodes += b.nodes;
        c.gpus += b.gpus;
        c.gpu_starts += b.gpus * static_cast<std::uint64_t>(b.started);
      }
      REQUIRE(all.classes() == classes);
      const time_ms now = (with_future ? -60 : 50) + time_ms{random.uniform(120)};
      for (std::int32_t below = -3; below <= 3; ++below) {
        std::uint64_t gpu_time = 0;
        std::uint64_t gangs_below = 0;
        std::uint64_t entries = 0;
        for (const candidate_gangs::brief& b : expected) {
          if (!b.is_candidate || b.priority >= below) continue;
          ++gangs_below;
          entries += 1 + b.nodes;
          gpu_time += b.gpus * static_cast<std::uint64_t>(std::max<time_ms>(0, now - b.started));
        }
        REQUIRE(all.has_candidate(below) == (gangs_below > 0));
        REQUIRE(all.entries(below) == entries);
        REQUIRE(all.gpu_time(below, now) == gpu_time);
      }
    }
  }
}

TEST_CASE("candidate_gangs: the sum of GPU-times does not wrap around") {
  constexpr std::uint64_t half = ~std::uint64_t{0} / 2;
  gangs all;
  constexpr time_ms first = (std::numeric_limits<time_ms>::min)();
  all.add(0, {.gpus = 8, .started = first, .alive = true, .is_candidate = true});
  CHECK(all.gpu_time(1, first) == 0);
  CHECK(all.gpu_time(1, first + 10) == 80);
  CHECK(all.gpu_time(1, max_time) >= half - 8);
  CHECK(all.gpu_time(1, max_time) <= half);
  CHECK(all.gpu_time(0, max_time) == 0);
  for (const std::uint32_t slot : {1U, 2U})
    all.add(slot, {.gpus = 1, .started = first, .alive = true, .is_candidate = true});
  CHECK(all.gpu_time(1, max_time) == ~std::uint64_t{0});
  for (const std::uint32_t slot : {0U, 1U, 2U}) all.forget(slot);
  CHECK(all.gpu_time(1, max_time) == 0);
  CHECK(all.classes().empty());
}

}  // namespace
}  // namespace candidate_gangs_tests
