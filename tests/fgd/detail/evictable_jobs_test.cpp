// apiary/tests/fgd/detail/evictable_jobs_test.cpp - the jobs on a node against a plain list.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/fgd/detail/evictable_jobs.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

TEST_CASE("the jobs on a node have the sum of their tasks, by priority and id") {
  using namespace apiary;
  using detail::evictable_jobs;
  struct listed {
    task_request task{};
    std::uint32_t mask = 0;
    std::uint32_t priority = 0;
    std::uint64_t cost = 0;
  };
  rng random(11);
  for (std::uint32_t round = 0; round < apiary_test::scaled(60u); ++round) {
    evictable_jobs jobs;
    std::vector<listed> tasks;
    for (int step = 0; step < 60; ++step) {
      if (!tasks.empty() && random.uniform(3) == 0) {
        const std::size_t t = random.uniform(static_cast<std::uint32_t>(tasks.size()));
        jobs.remove(tasks[t].task, tasks[t].mask, tasks[t].priority);
        tasks.erase(tasks.begin() + static_cast<std::ptrdiff_t>(t));
      } else {
        const std::uint32_t job = random.uniform(9);
        listed one{{.job = job_id(job),
                    .cpu_milli = random.uniform(9),
                    .memory_mib = random.uniform(9),
                    .gpus = 1,
                    .gpu_milli = static_cast<milli_gpu>(1 + random.uniform(90))},
                   std::uint32_t{1} << random.uniform(4),
                   job % 3,
                   10 + job * 7 % 5};
        jobs.add(one.task, one.mask, one.priority, one.cost);
        tasks.push_back(one);
      }
      for (std::uint32_t priority = 0; priority < 4; ++priority) {
        std::map<std::pair<std::uint32_t, std::uint32_t>, evictable_jobs::candidate> expected;
        std::uint64_t least = evictable_jobs::never;
        for (const listed& t : tasks) {
          if (t.priority >= priority) continue;
          evictable_jobs::candidate& c = expected[{t.priority, t.task.job.value}];
          c.cost = t.cost;
          c.host += t.task.host();
          for (std::uint32_t i = 0; i < 4; ++i)
            if ((t.mask >> i & 1) != 0)
              c.gpus[i] = static_cast<milli_gpu>(c.gpus[i] + t.task.gpu_milli);
          least = (std::min)(least, t.cost);
        }
        const auto below = jobs.below(priority);
        REQUIRE(below.size() == expected.size());
        std::size_t at = 0;
        for (const auto& [key, candidate] : expected) {
          CHECK(jobs.job(at).value == key.second);
          CHECK(below[at++] == candidate);
        }
        CHECK(jobs.least_below(priority) == least);
      }
    }
  }
}
