// apiary/tests/policy/preempt_test.cpp - victims of least cost against trying every set.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/model/request.h>
#include <apiary/policy/gang_fit.h>
#include <apiary/policy/preempt.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <support/naive_gang.h>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

constexpr std::uint64_t no_set = std::numeric_limits<std::uint64_t>::max();

struct problem {
  std::vector<node_class> others;
  std::vector<std::uint32_t> free;
  std::vector<eviction_candidate> candidates;
  std::vector<node_share> shares;
  std::vector<gang_member> members;

  void run(std::uint64_t cost, const std::vector<node_share>& where) {
    const auto first = static_cast<std::uint32_t>(shares.size());
    shares.insert(shares.end(), where.begin(), where.end());
    candidates.push_back({cost, first, static_cast<std::uint32_t>(shares.size())});
  }
  // Whether the gang fits once these have ended; each node a class of its own.
  [[nodiscard]] bool fits_without(const std::vector<std::uint32_t>& victims) const {
    std::vector<std::uint32_t> left = free;
    for (const std::uint32_t j : victims) {
      for (std::uint32_t s = candidates[j].first; s < candidates[j].last; ++s)
        left[shares[s].node] += shares[s].leaves;
    }
    std::vector<node_class> classes = others;
    for (const std::uint32_t f : left) classes.push_back({f, 1});
    return gang_fit()(classes, members) == fit_verdict::fits;
  }
  [[nodiscard]] std::uint64_t cost_of(const std::vector<std::uint32_t>& victims) const {
    std::uint64_t sum = 0;
    for (const std::uint32_t j : victims) sum += candidates[j].cost;
    return sum;
  }
  // The least cost over all sets of candidates.
  [[nodiscard]] std::uint64_t least() const {
    std::uint64_t best = no_set;
    for (std::uint32_t set = 0; set < 1U << candidates.size(); ++set) {
      std::vector<std::uint32_t> victims;
      for (std::uint32_t j = 0; j < candidates.size(); ++j)
        if ((set >> j & 1) != 0) victims.push_back(j);
      if (cost_of(victims) < best && fits_without(victims)) best = cost_of(victims);
    }
    return best;
  }
  fit_verdict solve(victim_search& search) const {
    return search(others, free, candidates, shares, members);
  }
};

std::vector<std::uint32_t> victims_of(const victim_search& search) {
  return {search.victims().begin(), search.victims().end()};
}

problem random_problem(std::uint64_t seed, std::uint32_t most_gangs, std::uint32_t most_nodes) {
  rng random(seed);
  problem p;
  std::vector<std::uint32_t> room(1 + random.uniform(most_nodes));
  for (std::uint32_t& r : room) r = 1 + random.uniform(8);
  const bool counts_first = random.uniform(2) == 0;
  for (std::uint32_t j = random.uniform(most_gangs + 1); j-- > 0;) {
    std::vector<node_share> where;
    for (std::uint32_t n = 0; n < room.size(); ++n) {
      if (room[n] == 0 || random.uniform(3) != 0) continue;
      where.push_back({n, 1 + random.uniform(room[n])});
      room[n] -= where.back().leaves;
    }
    p.run((counts_first ? std::uint64_t{1} << 40 : 1) + random.uniform(9), where);
  }
  for (const std::uint32_t r : room) p.free.push_back(random.uniform(r + 1));
  for (std::uint32_t m = 1 + random.uniform(2); m-- > 0;)
    p.members.push_back({1 + random.uniform(3), 1 + random.uniform(5)});
  if (random.uniform(2) == 0) p.others.push_back({random.uniform(5), random.uniform(2)});
  return p;
}

}  // namespace

TEST_CASE("victims cost as little as any set, and are proved to, whoever the gangs are") {
  victim_search search;
  std::uint32_t possible = 0;
  for (std::uint64_t seed = 0; seed < scaled(60'000U); ++seed) {
    CAPTURE(seed);
    const problem p = random_problem(seed, 8, 5);
    const std::uint64_t least = p.least();
    REQUIRE((p.solve(search) == fit_verdict::fits) == (least != no_set));
    if (least == no_set) continue;
    ++possible;
    REQUIRE(search.cost() == least);
    REQUIRE(search.lower_bound() == least);
    REQUIRE(p.cost_of(victims_of(search)) == least);
    REQUIRE(p.fits_without(victims_of(search)));
  }
  CHECK(possible > scaled(60'000U) / 4);
}

TEST_CASE("without a budget the bound is still a bound and no victim can be spared") {
  victim_search search(0);
  std::uint32_t optimal = 0;
  std::uint32_t proved = 0;
  std::uint32_t possible = 0;
  for (std::uint64_t seed = 0; seed < scaled(20'000U); ++seed) {
    CAPTURE(seed);
    const problem p = random_problem(seed, 8, 5);
    const std::uint64_t least = p.least();
    if (p.solve(search) != fit_verdict::fits) continue;
    ++possible;
    REQUIRE(search.lower_bound() <= least);
    REQUIRE(search.cost() >= least);
    const std::vector<std::uint32_t> victims = victims_of(search);
    for (std::size_t i = 0; i < victims.size(); ++i) {
      std::vector<std::uint32_t> fewer = victims;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      REQUIRE_FALSE(p.fits_without(fewer));
    }
    optimal += search.cost() == least ? 1U : 0U;
    proved += search.cost() == search.lower_bound() ? 1U : 0U;
  }
  MESSAGE(optimal, " of ", possible, " optimal, ", proved, " proved so");
  CHECK(optimal * 100 >= possible * 99);
  CHECK(proved * 2 >= possible);
}

TEST_CASE("one victim where taking the cheapest first takes ten") {
  problem p;
  p.members = {{1, 8}};
  p.free.assign(11, 0);
  std::vector<node_share> whole{{10, 8}};
  for (std::uint32_t n = 0; n < 10; ++n) p.run(1, {{n, 4}});
  p.run(5, whole);
  victim_search search;
  REQUIRE(p.solve(search) == fit_verdict::fits);
  CHECK(victims_of(search) == std::vector<std::uint32_t>{10});
  CHECK(search.lower_bound() == 5);
}

TEST_CASE("eight leaves are freed on one node, not on four") {
  problem p;
  p.members = {{1, 8}};
  p.free.assign(5, 0);
  for (std::uint32_t n = 0; n < 4; ++n) {
    p.run(10, {{n, 2}});
    p.run(12, {{n, 6}});
  }
  p.run(11, {{4, 4}});
  p.run(10, {{4, 4}});
  victim_search search;
  REQUIRE(p.solve(search) == fit_verdict::fits);
  CHECK(victims_of(search) == std::vector<std::uint32_t>{8, 9});
  CHECK(search.cost() == 21);
}

TEST_CASE("a gang over several nodes is paid for once") {
  problem p;
  p.members = {{2, 4}};
  p.free.assign(4, 0);
  p.run(10, {{0, 4}});
  p.run(10, {{1, 4}});
  p.run(15, {{2, 4}, {3, 4}});
  victim_search search;
  REQUIRE(p.solve(search) == fit_verdict::fits);
  CHECK(victims_of(search) == std::vector<std::uint32_t>{2});
}

TEST_CASE("a gang that fits has no victims; one that never fits has a proof") {
  problem p;
  p.members = {{2, 4}};
  p.free = {3, 0};
  p.run(1, {{0, 1}});
  victim_search search;
  REQUIRE(p.solve(search) == fit_verdict::does_not_fit);
  REQUIRE(search.cut().has_value());
  CHECK(search.cut()->present < search.cut()->needed);
  p.others = {{8, 1}};
  REQUIRE(p.solve(search) == fit_verdict::fits);
  CHECK(search.victims().empty());
  CHECK(search.cost() == 0);
}
