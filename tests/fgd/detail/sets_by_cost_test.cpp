// apiary/tests/fgd/detail/sets_by_cost_test.cpp - sets of jobs by cost, against all sets sorted.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/fgd/detail/sets_by_cost.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

using namespace apiary;

TEST_CASE(
    "sets_by_cost: each set of jobs comes once, after those that cost less or have fewer jobs") {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t count = random.uniform(8);
    std::vector<detail::sets_by_cost::job> jobs;
    for (std::uint32_t j = 0; j < count; ++j) jobs.push_back({random.uniform(5), job_id(90 - j)});
    detail::sets_by_cost sets(jobs);
    std::set<std::vector<job_id>> seen;
    std::pair<std::uint64_t, std::size_t> last{0, 0};
    while (sets.next()) {
      const std::vector<job_id> now = sets.jobs();
      CHECK(std::is_sorted(now.begin(), now.end()));
      std::uint64_t cost = 0;
      for (const detail::sets_by_cost::job& j : jobs)
        if (std::binary_search(now.begin(), now.end(), j.id)) cost += j.cost;
      CHECK(sets.cost() == cost);
      const std::pair<std::uint64_t, std::size_t> here{cost, now.size()};
      CHECK(last <= here);
      last = here;
      CHECK(seen.insert(now).second);
    }
    CHECK(seen.size() + 1 == std::size_t{1} << count);
  }
}
