// apiary/tests/preempt/detail/branch_and_bound_test.cpp - the cheapest of all sets that are enough.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/preempt/victim_search.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

namespace {

// Each gang has a worth. A set is enough if its worth is; for some sets that is not known. Gangs with
// odd numbers are in a group that may lose only so many.
struct worths {
  std::vector<std::uint32_t> worth;
  std::vector<std::uint64_t> costs;
  std::uint32_t needed = 0;
  std::vector<bool> unknown;  // by set
  std::uint64_t budget = ~std::uint64_t{0};
  std::uint32_t most_odd = ~std::uint32_t{0};

  std::size_t evicted = 0;  // a bit a gang
  std::uint32_t odd = 0;    // victims of the group
  std::uint64_t best = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t tried = 0;

  [[nodiscard]] bool will_do(std::size_t set) const {
    std::uint32_t sum = 0;
    for (std::size_t j = 0; j < worth.size(); ++j)
      if ((set >> j & 1) != 0) sum += worth[j];
    return sum >= needed;
  }
  [[nodiscard]] std::uint64_t cost(std::size_t set) const {
    std::uint64_t sum = 0;
    for (std::size_t j = 0; j < costs.size(); ++j)
      if ((set >> j & 1) != 0) sum += costs[j];
    return sum;
  }

  [[nodiscard]] bool within(std::size_t set) const {
    std::uint32_t sum = 0;
    for (std::size_t j = 1; j < worth.size(); j += 2) sum += (set >> j & 1) != 0 ? 1U : 0U;
    return sum <= most_odd;
  }

  [[nodiscard]] std::uint64_t cost_to_beat() const { return best; }
  bool pay() { return tried++ < budget; }
  fit_verdict reprieve(std::size_t k) {
    evicted &= ~(std::size_t{1} << k);
    if (unknown[evicted]) return fit_verdict::budget_ended;
    return will_do(evicted) ? fit_verdict::fits : fit_verdict::does_not_fit;
  }
  void evict(std::size_t k) { evicted |= std::size_t{1} << k; }
  bool add_victim(std::size_t k) {
    odd += k % 2 == 1 ? 1U : 0U;
    return odd <= most_odd;
  }
  void remove_victim(std::size_t k) {
    REQUIRE((k % 2 == 0 || odd > 0));
    odd -= k % 2 == 1 ? 1U : 0U;
  }
  void keep() {
    REQUIRE(will_do(evicted));
    REQUIRE(within(evicted));
    REQUIRE(cost(evicted) < best);
    best = cost(evicted);
  }
};

}  // namespace

TEST_CASE("branch_and_bound: the cheapest set, and certain of it unless something is not known") {
  branch_and_bound search;
  std::uint32_t unsure = 0;
  std::uint32_t missed = 0;
  for (std::uint64_t seed = 0; seed < scaled(20'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    worths w;
    const std::size_t gangs = random.uniform(9);
    for (std::size_t j = 0; j < gangs; ++j) {
      w.worth.push_back(random.uniform(6));
      w.costs.push_back(random.uniform(20));
      w.needed += random.uniform(w.worth.back() + 1);
    }
    std::sort(w.costs.rbegin(), w.costs.rend());
    const std::size_t sets = std::size_t{1} << gangs;
    w.unknown.assign(sets, false);
    if (random.uniform(2) == 0)
      for (std::size_t set = 0; set + 1 < sets; ++set) w.unknown[set] = random.uniform(16) == 0;
    if (random.uniform(4) == 0) w.budget = random.uniform(20);
    if (random.uniform(2) == 0) w.most_odd = random.uniform(4);
    std::uint64_t least = w.best;
    for (std::size_t set = 0; set < sets; ++set)
      if (w.will_do(set) && w.within(set)) least = std::min(least, w.cost(set));
    w.evicted = sets - 1;
    const bool certain = search(w, w.costs);
    if (certain) REQUIRE(w.best == least);
    REQUIRE(w.best >= least);
    REQUIRE(w.tried <= (w.budget < 100 ? w.budget + 1 : w.tried));
    unsure += certain ? 0U : 1U;
    missed += w.best == least ? 0U : 1U;
  }
  MESSAGE(unsure, " not certain, ", missed, " not the least");
  CHECK(unsure > 0);
  CHECK(missed > 0);
}

namespace {

struct nothing_needed {
  std::uint64_t best = ~std::uint64_t{0};
  [[nodiscard]] std::uint64_t cost_to_beat() const { return best; }
  [[nodiscard]] bool pay() const { return true; }
  [[nodiscard]] fit_verdict reprieve(std::size_t /*k*/) const { return fit_verdict::fits; }
  void evict(std::size_t /*k*/) {}
  [[nodiscard]] bool add_victim(std::size_t /*k*/) const { return true; }
  void remove_victim(std::size_t /*k*/) {}
  void keep() { best = 0; }
};

}  // namespace

TEST_CASE("branch_and_bound: a hundred thousand gangs, all of which can be reprieved") {
  const std::vector<std::uint64_t> costs(100'000, 1);
  nothing_needed cluster;
  branch_and_bound search;
  CHECK(search(cluster, costs));
  CHECK(cluster.best == 0);
}
