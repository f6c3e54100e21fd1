// apiary/tests/sim/detail/gpu_tenants_test.cpp - who has which GPUs, against a table of every GPU.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/core/sort.h>
#include <apiary/sim/detail/gpu_tenants.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

TEST_CASE("gpu_tenants: random jobs, against a table of every GPU") {
  constexpr std::uint32_t servers = 2;
  constexpr std::uint32_t gpus = 4;
  std::uint32_t conflicts = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(400U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    gpu_tenants tenants;
    struct naive {
      placement where{};
      bool shares = false;
    };
    std::map<job_id, naive> jobs;
    const auto neighbours = [&](job_id job, placement where) {
      std::vector<job_id> found;
      for (const auto& [id, j] : jobs) {
        if (id != job && j.where.node == where.node && (j.where.gpu_mask & where.gpu_mask) != 0)
          found.push_back(id);
      }
      return found;
    };
    const auto settle = [&] {  // jobs that are alone share no more
      for (auto& [id, j] : jobs) j.shares = j.shares && !neighbours(id, j.where).empty();
    };
    bool wrong = false;
    for (int step = 0; step < 60 && !wrong; ++step) {
      std::vector<job_id> came;  // since the last check
      for (std::uint32_t n = random.uniform(4); n > 0; --n) {
        const job_id job(random.uniform(8));
        std::vector<job_id> others;
        std::uint32_t alone = 0;
        std::uint32_t free = 0;
        const auto add = [&](job_id other) { others.push_back(other); };
        const auto count = [&](placement where) {
          for (std::uint32_t g = 0; g < gpus; ++g) {
            const placement one{where.node, 1U << g};
            if ((where.gpu_mask >> g & 1) != 0) free += neighbours(job, one).empty() ? 1U : 0U;
          }
          return neighbours(job, where);
        };
        std::vector<job_id> expected;
        if (jobs.contains(job)) {
          const placement where = jobs[job].where;
          alone = tenants.remove(job, where, add);
          jobs.erase(job);
          expected = count(where);
          for (const job_id other : expected) {
            naive& j = jobs[other];
            const bool fresh = std::find(came.begin(), came.end(), other) != came.end();
            j.shares = j.shares && (fresh || !neighbours(other, j.where).empty());
          }
        } else {
          const placement where{node_id(random.uniform(servers)), 1 + random.uniform(15)};
          const bool shares = random.uniform(2) == 0;
          alone = tenants.put(job, where, shares, add);
          expected = count(where);
          jobs[job] = {where, shares};
          came.push_back(job);
        }
        sort_unique(others);
        CHECK(others == expected);
        CHECK(alone == free);
      }
      for (std::uint32_t s = 0; s < servers; ++s) {
        const job_id any = tenants.any_on(node_id(s));
        const bool empty = std::none_of(jobs.begin(), jobs.end(), [&](const auto& j) {
          return j.second.where.node == node_id(s);
        });
        CHECK(any.valid() != empty);
        if (any.valid()) CHECK(jobs.at(any).where.node == node_id(s));
      }
      for (const job_id job : came) {
        if (!jobs.contains(job) || jobs[job].shares) continue;
        for (const job_id other : neighbours(job, jobs[job].where))
          wrong = wrong || !jobs[other].shares;
      }
      const auto conflict = tenants.check();
      REQUIRE(conflict.has_value() == wrong);
      if (!conflict) {
        settle();
        continue;
      }
      ++conflicts;
      const placement both{conflict->where.node, jobs[conflict->job].where.gpu_mask &
                                                     jobs[conflict->other].where.gpu_mask};
      CHECK(conflict->where == both);
      CHECK(both.gpu_mask != 0);
      CHECK(!jobs[conflict->job].shares);
      CHECK(!jobs[conflict->other].shares);
    }
  }
  CHECK(conflicts > apiary_test::scaled(100U));
}
