// apiary/tests/gandiva/detail/queue_test.cpp - jobs that wait for a server are tried by arrival, and know why.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gandiva/detail/gandiva_jobs.h>
#include <apiary/model/job.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace queue_of_gandiva {
namespace {

using namespace apiary;
using namespace apiary::detail;

gandiva_job waiting(std::uint32_t job, std::uint32_t gpus, time_ms came) {
  gandiva_job r;
  r.request = {.job = job_id(job), .gpus = gpus};
  r.key = came;
  return r;
}

TEST_CASE(
    "gandiva_queue: the first of a number of GPUs that stays keeps those behind it, no others") {
  gandiva_queue q;
  std::map<std::uint32_t, gandiva_job> jobs;
  for (const auto& [job, gpus, came] : std::vector<std::array<std::uint32_t, 3>>{
           {1, 2, 5}, {2, 1, 3}, {3, 2, 4}, {4, 1, 4}, {5, 1, 3}})
    jobs[job] = waiting(job, gpus, came);
  for (auto& [job, r] : jobs) q.enter(r, 5);
  std::vector<std::uint32_t> asked;
  q.place_all([&](job_id job) {
    asked.push_back(job.value);
    if (job == job_id(5)) return false;
    q.leave(jobs[job.value], 6);
    return true;
  });
  CHECK(asked == std::vector<std::uint32_t>{2, 5, 3, 1});  // job 4 is behind job 5
  asked.clear();
  q.place_all([&](job_id job) {
    asked.push_back(job.value);
    return false;
  });
  CHECK(asked == std::vector<std::uint32_t>{5});
}

TEST_CASE("gandiva_queue: random lines: the order of arrival, and each tick under its cause") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(500U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    gandiva_queue q;
    std::map<std::uint32_t, gandiva_job> jobs;  // that wait
    std::map<std::uint32_t, delays> waited;     // of these, tick by tick
    time_ms now = 0;
    for (std::uint32_t job = 0; job < 30; ++job) {
      if (random.uniform(3) > 0) {
        jobs[job] = waiting(job, 1 + random.uniform(4), random.uniform(20));
        waited[job] = {};
        q.enter(jobs[job], now);
      }
      const std::uint32_t idle = random.uniform(5);
      q.explain(idle, now);
      const time_ms next = now + random.uniform(4);
      for (auto& [waits, sums] : waited)
        sums[jobs[waits].request.gpus > idle ? delay_cause::capacity
                                             : delay_cause::fragmentation] += next - now;
      now = next;
      std::vector<std::uint32_t> expected;
      std::set<std::uint32_t> stays;
      for (const auto& [waits, r] : jobs) {
        expected.push_back(waits);
        if (random.uniform(3) == 0) stays.insert(waits);
      }
      std::sort(expected.begin(), expected.end(), [&](std::uint32_t a, std::uint32_t b) {
        return std::pair(jobs[a].key, a) < std::pair(jobs[b].key, b);
      });
      std::set<std::uint32_t> failed;
      std::erase_if(expected, [&](std::uint32_t j) {
        const std::uint32_t gpus = jobs[j].request.gpus;
        if (failed.contains(gpus)) return true;
        if (stays.contains(j)) failed.insert(gpus);
        return false;
      });
      std::vector<std::uint32_t> asked;
      q.place_all([&](job_id j) {
        asked.push_back(j.value);
        if (stays.contains(j.value)) return false;
        gandiva_job& r = jobs[j.value];
        q.leave(r, now);
        REQUIRE(r.since == now);
        REQUIRE(r.waited.by_cause == waited[j.value].by_cause);
        waited.erase(j.value);
        jobs.erase(j.value);
        return true;
      });
      REQUIRE(asked == expected);
    }
  }
}

}  // namespace
}  // namespace queue_of_gandiva
