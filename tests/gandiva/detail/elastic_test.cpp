// apiary/tests/gandiva/detail/elastic_test.cpp - a published kind of day, and all ways to share a server.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gandiva/detail/gandiva_jobs.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

// Calls visit with all numbers of GPUs that jobs may have, from low to high, that sum up to `sum`.
void each_share(const std::vector<std::pair<std::uint32_t, std::uint32_t>>& bounds,
                std::uint32_t sum, std::vector<std::uint32_t>& shares,
                const std::function<void(const std::vector<std::uint32_t>&)>& visit) {
  if (shares.size() == bounds.size()) {
    if (sum == 0) visit(shares);
    return;
  }
  const auto [low, high] = bounds[shares.size()];
  for (std::uint32_t gpus = low; gpus <= std::min(high, sum); ++gpus) {
    shares.push_back(gpus);
    each_share(bounds, sum - gpus, shares, visit);
    shares.pop_back();
  }
}

std::vector<std::uint32_t> applied(const std::vector<elastic_job>& jobs,
                                   const std::vector<resize>& changes) {
  std::vector<std::uint32_t> has;
  std::size_t c = 0;
  for (const elastic_job& j : jobs) {
    has.push_back(j.has);
    if (c == changes.size() || changes[c].job != j.job) continue;
    REQUIRE(changes[c].gpus != j.has);
    has.back() = changes[c++].gpus;
  }
  REQUIRE(c == changes.size());  // in the order of the jobs
  return has;
}

}  // namespace

TEST_CASE("elastic: a job grows, and gives way at once") {
  const std::vector<elastic_job> alone{{job_id(1), 1, 1, 4}};  // on a server of four
  CHECK(resized(alone, 3, true) == std::vector<resize>{{job_id(1), 4}});
  const std::vector<elastic_job> grown{{job_id(1), 1, 4, 4}};
  CHECK(resized(grown, 2, false) ==
        std::vector<resize>{{job_id(1), 2}});  // one comes that wants two
  const std::vector<elastic_job> beside{{job_id(1), 1, 2, 4}};
  CHECK(resized(beside, 2, false) ==
        std::vector<resize>{{job_id(1), 1}});  // another; more it has not
  CHECK(resized(alone, 2, false).empty());
  CHECK(resized(beside, 2, true) == std::vector<resize>{{job_id(1), 4}});  // both have ended
  CHECK(resized(beside, 1, true) == std::vector<resize>{{job_id(1), 3}});
}

TEST_CASE("elastic: two grow to equal shares, the odd one to the lower id") {
  const std::vector<elastic_job> jobs{
      {job_id(7), 1, 1, 8}, {job_id(5), 2, 2, 8}, {job_id(9), 1, 1, 1}};
  CHECK(resized(jobs, 4, true) == std::vector<resize>{{job_id(7), 3}, {job_id(5), 4}});
  const std::vector<elastic_job> grown{{job_id(7), 1, 4, 8}, {job_id(5), 2, 4, 8}};
  CHECK(resized(grown, 1, false) == std::vector<resize>{{job_id(7), 3}});
  CHECK(resized(grown, 4, false) == std::vector<resize>{{job_id(7), 2}, {job_id(5), 2}});
}

TEST_CASE("elastic: of all ways to share, the evenest") {
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(2000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<elastic_job> jobs(1 + random.uniform(4));
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < jobs.size(); ++i) {
      elastic_job& j = jobs[i];
      j = {job_id(i), 1 + random.uniform(3)};
      j.has = j.asked + random.uniform(3);
      j.most = j.has + random.uniform(4);
      sum += j.has;
    }
    const std::uint32_t gpus = random.uniform(7);
    std::uint32_t can_use = 0;
    std::uint32_t beyond = 0;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> up;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> down;
    for (const elastic_job& j : jobs) {
      can_use += j.most - j.has;
      beyond += j.has - j.asked;
      up.emplace_back(j.has, j.most);
      down.emplace_back(j.asked, j.has);
    }
    // The shares in ascending order, the smallest as large as they can be; then the lowest ids.
    const auto best = [](const auto& bounds, std::uint32_t total) {
      std::vector<std::uint32_t> found;
      std::vector<std::uint32_t> found_sorted;
      std::vector<std::uint32_t> shares;
      each_share(bounds, total, shares, [&](const std::vector<std::uint32_t>& candidate) {
        std::vector<std::uint32_t> sorted = candidate;
        std::sort(sorted.begin(), sorted.end());
        if (sorted < found_sorted || (sorted == found_sorted && candidate < found)) return;
        found = candidate;
        found_sorted = sorted;
      });
      return found;
    };
    REQUIRE(applied(jobs, resized(jobs, gpus, true)) == best(up, sum + std::min(gpus, can_use)));
    REQUIRE(applied(jobs, resized(jobs, gpus, false)) == best(down, sum - std::min(gpus, beyond)));
  }
}
