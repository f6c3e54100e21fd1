// apiary/tests/queue/detail/run_queues_test.cpp - the order of running jobs against sorting them.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/queue/detail/run_queues.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

struct leveled_job {
  job_id job{};
  std::uint32_t gpus = 1;
  std::int64_t level = 0;

  [[nodiscard]] std::int64_t position(std::int64_t shift) const {
    return std::max<std::int64_t>(0, level + shift) * gpus;
  }
};

}  // namespace

TEST_CASE("run_lines: jobs of different sizes overtake each other as time goes by") {
  run_queues lines;
  lines.insert(job_id(0), 4, 10);  // 40, less 4 a tick
  lines.insert(job_id(1), 1, 25);  // 25, less 1
  CHECK(lines.gpus() == 5);
  CHECK(lines.gpus_before(30, job_id(9)) == 1);
  lines.shift_to(-5);  // 20 and 20: the lower id first
  CHECK(lines.gpus_before(20, job_id(1)) == 5);
  CHECK(lines.gpus_before(20, job_id(0)) == 4);
  lines.shift_to(-8);  // 8 and 17
  CHECK(lines.gpus_before(16, job_id(9)) == 4);
  lines.shift_to(-30);  // both beyond their time: by id
  run_queues::walk_back back(lines);
  CHECK(back.next()->job == job_id(1));
  CHECK(back.next()->key == 0);
  CHECK_FALSE(back.next());
  lines.erase(job_id(0), 4, 10);
  lines.erase(job_id(1), 1, 25);
  CHECK(lines.empty());
}

TEST_CASE("run_lines: random changes as in a sorted list") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(200U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const bool falls = random.uniform(2) == 0;  // or grows, with no job below 0
    run_queues lines;
    std::vector<leveled_job> jobs;
    std::int64_t shift = 0;
    for (std::uint32_t step = 0; step < 200; ++step) {
      shift += falls ? -std::int64_t{random.uniform(4)} : std::int64_t{random.uniform(4)};
      lines.shift_to(shift);
      if (jobs.empty() || random.uniform(5) < 3) {
        const std::int64_t level = falls ? random.uniform(500) : random.uniform(20) - shift;
        jobs.push_back({job_id(step + 1), 1 + random.uniform(4), level});
        lines.insert(jobs.back().job, jobs.back().gpus, level);
      } else {
        const std::size_t i = random.uniform(static_cast<std::uint32_t>(jobs.size()));
        lines.erase(jobs[i].job, jobs[i].gpus, jobs[i].level);
        jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(i));
      }
      std::sort(jobs.begin(), jobs.end(), [&](const leveled_job& a, const leveled_job& b) {
        return std::pair(a.position(shift), a.job) > std::pair(b.position(shift), b.job);
      });
      const std::int64_t position = random.uniform(60);
      const job_id other(1000 * random.uniform(2));  // before or after all of them
      std::uint32_t all = 0;
      std::uint32_t before = 0;
      run_queues::walk_back back(lines);
      for (const leveled_job& j : jobs) {
        const std::optional<run_queues::entry> e = back.next();
        REQUIRE(e.has_value());
        REQUIRE(e->job == j.job);
        REQUIRE(e->key == j.position(shift));
        REQUIRE(e->gpus == j.gpus);
        all += j.gpus;
        if (std::pair(j.position(shift), j.job) < std::pair(position, other)) before += j.gpus;
      }
      REQUIRE_FALSE(back.next());
      REQUIRE(lines.gpus() == all);
      REQUIRE(lines.gpus_before(position, other) == before);
    }
  }
}
