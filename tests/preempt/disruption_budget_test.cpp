// apiary/tests/preempt/disruption_budget_test.cpp - what tenants may lose, against trying every set.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/model/request.h>
#include <apiary/preempt/disruption_budget.h>
#include <apiary/preempt/eviction_candidate.h>
#include <apiary/preempt/topology_victim_search.h>
#include <apiary/preempt/victim_search.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <support/levels.h>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

constexpr std::uint64_t no_cost = std::numeric_limits<std::uint64_t>::max();

// Gangs of tenants on nodes of eight leaves.
struct tenants_gangs {
  capacity_index<uniform_tree> capacities;
  std::vector<eviction_candidate> candidates;
  std::vector<gpus_on_node> shares;
  std::vector<std::uint32_t> tenants;
  std::vector<disruption_budget> most;
  topology_constraints gang;

  tenants_gangs(std::uint32_t racks, std::uint32_t nodes)
      : capacities(uniform_tree{racks, nodes, 8}, node, 8) {
    for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n) capacities.set(n, 8);
  }
  void run(std::uint32_t tenant, std::uint64_t cost, const std::vector<gpus_on_node>& where) {
    const auto first = static_cast<std::uint32_t>(shares.size());
    for (const gpus_on_node& s : where) {
      capacities.set(s.node, capacities.free(s.node) - s.leaves);
      shares.push_back(s);
    }
    candidates.push_back({cost, first, static_cast<std::uint32_t>(shares.size())});
    tenants.push_back(tenant);
  }
  [[nodiscard]] disruption_budgets limits() const { return {tenants, most}; }
  [[nodiscard]] std::vector<task_group> members() const {
    std::vector<task_group> plain;
    for (const constrained_task_group& m : gang.members) plain.push_back({m.tasks, m.gpus});
    return plain;
  }
  [[nodiscard]] std::uint64_t cost_of(std::span<const std::uint32_t> set) const {
    std::uint64_t sum = 0;
    for (const std::uint32_t j : set) sum += candidates[j].cost;
    return sum;
  }
  [[nodiscard]] bool within(std::span<const std::uint32_t> set) const {
    for (std::uint32_t t = 0; t < most.size(); ++t) {
      std::uint64_t gangs = 0;
      std::uint64_t leaves = 0;
      for (const std::uint32_t j : set) {
        if (tenants[j] != t) continue;
        ++gangs;
        for (std::uint32_t s = candidates[j].first; s < candidates[j].last; ++s)
          leaves += shares[s].leaves;
      }
      if (gangs > most[t].gangs || leaves > most[t].leaves) return false;
    }
    return true;
  }
  [[nodiscard]] bool fits_without(std::span<const std::uint32_t> set) const {
    capacity_index<uniform_tree> left = capacities;
    for (const std::uint32_t j : set)
      for (std::uint32_t s = candidates[j].first; s < candidates[j].last; ++s)
        left.set(shares[s].node, left.free(shares[s].node) + shares[s].leaves);
    return topology_fit<uniform_tree>()(left, gang) == fit_verdict::fits;
  }
  // Over all sets within the limits.
  [[nodiscard]] std::uint64_t least() const {
    std::uint64_t best = no_cost;
    for (std::uint32_t bits = 0; bits < 1U << candidates.size(); ++bits) {
      std::vector<std::uint32_t> set;
      for (std::uint32_t j = 0; j < candidates.size(); ++j)
        if ((bits >> j & 1) != 0) set.push_back(j);
      if (cost_of(set) < best && within(set) && fits_without(set)) best = cost_of(set);
    }
    return best;
  }
};

// Who may lose all belongs to tenant 3.
tenants_gangs random_gangs(std::uint64_t seed, std::uint32_t most_gangs, bool constrained) {
  rng random(seed);
  tenants_gangs in(1 + random.uniform(3), 1 + random.uniform(3));
  for (std::uint32_t j = random.uniform(most_gangs + 1); j-- > 0;) {
    std::vector<gpus_on_node> where;
    for (std::uint32_t n = 0; n < in.capacities.num_nodes(); ++n)
      if (random.uniform(3) == 0 && in.capacities.free(n) > 0)
        where.push_back({n, 1 + random.uniform(in.capacities.free(n))});
    in.run(random.uniform(4), random.uniform(3) == 0 ? 10 : 1 + random.uniform(50), where);
  }
  for (std::uint32_t n = 0; n < in.capacities.num_nodes(); ++n)
    in.capacities.set(n, in.capacities.free(n) - random.uniform(in.capacities.free(n) + 1));
  for (int t = 0; t < 3; ++t) {
    in.most.emplace_back();
    if (random.uniform(4) > 0) in.most.back().gangs = random.uniform(3);
    if (random.uniform(3) == 0) in.most.back().leaves = random.uniform(20);
  }
  for (std::uint32_t m = 1 + random.uniform(2); m-- > 0;)
    in.gang.members.push_back({1 + random.uniform(4), 1 + random.uniform(8)});
  if (!constrained) return in;
  if (random.uniform(2) == 0) in.gang.required = node + random.uniform(2);
  if (random.uniform(3) == 0) in.gang.members[0].spread = {{node + random.uniform(2), 1}};
  if (random.uniform(4) == 0) in.gang.members[0].slices = {{rack, in.gang.members[0].tasks}};
  return in;
}

// Two gangs of tenant 0 with half of a node each, one of tenant 1 with a whole one.
tenants_gangs two_tenants() {
  tenants_gangs in(1, 2);
  in.run(0, 1, {{0, 4}});
  in.run(0, 1, {{0, 4}});
  in.run(1, 3, {{1, 8}});
  in.gang.members = {{1, 8}};
  return in;
}

}  // namespace

TEST_CASE("group_tally: what each group has lost, and whether that is too much") {
  tenants_gangs in(2, 2);
  for (std::uint32_t j = 0; j < 8; ++j) in.run(j % 4, 1, {{j / 2, 1 + j % 4}});
  in.most = {{1, 100}, {2, 6}, {0, 100}};
  disruption_tally tally;
  CHECK(tally.empty());
  tally.begin(in.limits(), in.candidates, in.shares);
  CHECK_FALSE(tally.empty());
  std::vector<bool> taken(8, false);
  rng random(1);
  for (int step = 0; step < 2'000; ++step) {
    CAPTURE(step);
    const std::uint32_t j = random.uniform(8);
    std::vector<std::uint32_t> set;
    const bool admits = !taken[j] && random.uniform(2) == 0;
    if (random.uniform(50) == 0) {
      taken.assign(8, false);
      tally.clear();
    }
    const bool add = !taken[j];
    taken[j] = add;
    for (std::uint32_t i = 0; i < 8; ++i)
      if (taken[i]) set.push_back(i);
    if (!add) {
      tally.give_back(j);
    } else if (admits) {
      taken[j] = tally.admit(j);
      REQUIRE(taken[j] == in.within(set));
      if (!taken[j]) std::erase(set, j);
    } else {
      REQUIRE(tally.take(j) == in.within(set));
    }
    REQUIRE(tally.within() == in.within(set));
    for (std::uint32_t i = 0; i < 8; ++i) {
      tenants_gangs one = in;
      for (std::uint32_t t = 0; t < 3; ++t)
        if (t != in.tenants[i]) one.most[t] = {};
      REQUIRE(tally.over(i) == (in.tenants[i] < 3 && !one.within(set)));
    }
  }
}

TEST_CASE("group_tally: no set within the limits has more than the most that is said") {
  std::uint32_t exact = 0;
  for (std::uint64_t seed = 0; seed < scaled(3'000U); ++seed) {
    CAPTURE(seed);
    const tenants_gangs in = random_gangs(seed, 8, false);
    rng random(seed);
    std::vector<std::uint64_t> values;
    for (std::size_t j = 0; j < in.candidates.size(); ++j) values.push_back(random.uniform(30));
    std::uint64_t most = 0;
    for (std::uint32_t bits = 0; bits < 1U << values.size(); ++bits) {
      std::vector<std::uint32_t> set;
      std::uint64_t sum = 0;
      for (std::uint32_t j = 0; j < values.size(); ++j) {
        if ((bits >> j & 1) == 0) continue;
        set.push_back(j);
        sum += values[j];
      }
      if (in.within(set)) most = std::max(most, sum);
    }
    disruption_tally tally;
    tally.begin(in.limits(), in.candidates, in.shares);
    REQUIRE(tally.most_of(values) >= most);
    exact += tally.most_of(values) == most ? 1U : 0U;
    const auto of_leaves = [](const disruption_budget& m) { return m.leaves < 1'000; };
    if (std::none_of(in.most.begin(), in.most.end(), of_leaves))
      REQUIRE(tally.most_of(values) == most);
  }
  CHECK(exact > scaled(3'000U) / 2);
}

TEST_CASE("a tenant that may lose one gang keeps the other, though both together cost less") {
  tenants_gangs in = two_tenants();
  const auto victims = [&](const disruption_budgets& limits) {
    victim_search search;
    REQUIRE(search({}, std::vector<std::uint32_t>{0, 0}, in.candidates, in.shares, in.members(),
                   victim_search::never, limits) == fit_verdict::fits);
    CHECK(search.lower_bound() == search.cost());
    topology_victim_search<uniform_tree> constrained;
    REQUIRE(constrained(in.capacities, in.gang, in.candidates, in.shares, limits) ==
            fit_verdict::fits);
    CHECK(constrained.lower_bound() == search.cost());
    CHECK(std::equal(constrained.victims().begin(), constrained.victims().end(),
                     search.victims().begin(), search.victims().end()));
    return std::vector<std::uint32_t>(search.victims().begin(), search.victims().end());
  };
  CHECK(victims({}) == std::vector<std::uint32_t>{0, 1});
  in.most = {{.gangs = 1}};
  CHECK(victims(in.limits()) == std::vector<std::uint32_t>{2});
  in.most = {{.leaves = 7}};
  CHECK(victims(in.limits()) == std::vector<std::uint32_t>{2});
  in.most = {{.gangs = 2, .leaves = 8}, {.gangs = 0}};
  CHECK(victims(in.limits()) == std::vector<std::uint32_t>{0, 1});
  // As few leaves as somebody says.
  in.most = {{.leaves = 7}};
  const std::vector<std::uint32_t> leaves{3, 4, 8};
  CHECK(victims({in.tenants, in.most, leaves}) == std::vector<std::uint32_t>{0, 1});
}

TEST_CASE("no set within the limits: that is a proof, and no count of leaves is one") {
  tenants_gangs in = two_tenants();
  in.most = {{.gangs = 1}, {.gangs = 0}};
  victim_search search;
  const std::vector<std::uint32_t> none_free{0, 0};
  const auto solve = [&](std::uint64_t budget) {
    search.set_budget(budget);
    return search({}, none_free, in.candidates, in.shares, in.members(), victim_search::never,
                  in.limits());
  };
  CHECK(solve(100'000) == fit_verdict::does_not_fit);
  CHECK_FALSE(search.cut().has_value());
  CHECK(search.victims().empty());
  CHECK(solve(0) == fit_verdict::does_not_fit);
  // Half of each node may be freed: leaves enough, and still no node.
  in = tenants_gangs(1, 2);
  in.run(0, 1, {{0, 4}});
  in.run(0, 1, {{0, 4}});
  in.run(1, 3, {{1, 4}});
  in.capacities.set(1, 0);
  in.gang.members = {{1, 8}};
  in.most = {{.gangs = 1}, {.gangs = 1}};
  CHECK(solve(100'000) == fit_verdict::does_not_fit);
  CHECK(solve(0) == fit_verdict::budget_ended);
  for (const bool spread : {false, true}) {
    if (spread) in.gang.members[0].spread = {{node, 1}};
    topology_victim_search<uniform_tree> constrained;
    CHECK(constrained(in.capacities, in.gang, in.candidates, in.shares, in.limits()) ==
          fit_verdict::does_not_fit);
    topology_victim_search<uniform_tree> hasty(0);
    CHECK(hasty(in.capacities, in.gang, in.candidates, in.shares, in.limits()) ==
          fit_verdict::budget_ended);
  }
}

TEST_CASE("a tenant's useless gang does not use up its limit") {
  // The cheapest gang of tenant 0 is where nothing else can go; its dear one and that of tenant 1
  // make room together.
  tenants_gangs in(1, 2);
  in.run(0, 1, {{0, 2}});
  in.capacities.set(0, 0);
  in.run(0, 9, {{1, 4}});
  in.run(1, 9, {{1, 4}});
  in.gang.members = {{1, 8}};
  in.most = {{.gangs = 1}};
  const std::vector<std::uint32_t> none_free{0, 0};
  for (const std::uint64_t budget : {0U, 100'000U}) {
    CAPTURE(budget);
    victim_search search(budget);
    REQUIRE(search({}, none_free, in.candidates, in.shares, in.members(), victim_search::never,
                   in.limits()) == fit_verdict::fits);
    CHECK(search.cost() == 18);
  }
}

TEST_CASE("a tenant's node need not be emptied where one of its gangs is enough") {
  tenants_gangs in(1, 2);
  in.run(0, 1, {{0, 2}});
  in.capacities.set(0, 0);
  in.run(0, 9, {{1, 4}});
  in.run(0, 20, {{1, 4}});
  in.gang.members = {{1, 4}};
  in.most = {{.gangs = 1}};
  const std::vector<std::uint32_t> none_free{0, 0};
  for (const std::uint64_t budget : {0U, 100'000U}) {
    CAPTURE(budget);
    victim_search search(budget);
    REQUIRE(search({}, none_free, in.candidates, in.shares, in.members(), victim_search::never,
                   in.limits()) == fit_verdict::fits);
    CHECK(search.cost() == 9);
  }
}

TEST_CASE("a cheap node that a tenant may not lose does not stand in the way of a dear one") {
  tenants_gangs in(1, 2);
  in.run(0, 1, {{0, 2}});
  in.run(0, 1, {{0, 3}});
  in.run(0, 1, {{0, 3}});
  in.run(0, 10, {{1, 4}});
  in.run(0, 10, {{1, 4}});
  in.gang.members = {{1, 8}};
  in.most = {{.gangs = 2}};
  const std::vector<std::uint32_t> none_free{0, 0};
  victim_search search(0);
  REQUIRE(search({}, none_free, in.candidates, in.shares, in.members(), victim_search::never,
                 in.limits()) == fit_verdict::fits);
  CHECK(search.cost() == 20);
}

TEST_CASE("victims within limits cost what the best of all such sets costs") {
  std::uint32_t limited = 0;
  std::uint32_t refused = 0;
  std::uint32_t hasty_sets = 0;
  victim_search search;
  for (std::uint64_t seed = 0; seed < scaled(20'000U); ++seed) {
    CAPTURE(seed);
    const tenants_gangs in = random_gangs(seed, 8, false);
    const std::vector<std::uint32_t> free(in.capacities.free().begin(), in.capacities.free().end());
    const std::uint64_t least = in.least();
    const auto solve = [&](std::uint64_t budget, std::uint64_t limit) {
      search.set_budget(budget);
      return search({}, free, in.candidates, in.shares, in.members(), limit, in.limits());
    };
    const fit_verdict verdict = solve(512 * victim_search::set_steps, victim_search::never);
    REQUIRE(verdict == (least == no_cost ? fit_verdict::does_not_fit : fit_verdict::fits));
    refused += least == no_cost ? 1U : 0U;
    if (least != no_cost) {
      REQUIRE(search.cost() == least);
      REQUIRE(search.lower_bound() == least);
      REQUIRE(in.cost_of(search.victims()) == least);
      REQUIRE(in.within(search.victims()));
      REQUIRE(in.fits_without(search.victims()));
      tenants_gangs free_for_all = in;
      free_for_all.most.clear();
      limited += free_for_all.least() < least ? 1U : 0U;
    }
    // Below a cost that there is none for: a bound of that, or a no.
    const fit_verdict below = solve(512 * victim_search::set_steps, least);
    REQUIRE(below == verdict);
    if (below == fit_verdict::fits && least > 0) REQUIRE(search.lower_bound() == least);
    // With little of a budget: a bound below, and sets within the limits.
    const fit_verdict hastily = solve(victim_search::set_steps - 1, victim_search::never);
    REQUIRE((hastily != fit_verdict::does_not_fit || least == no_cost));
    if (hastily == fit_verdict::does_not_fit) continue;
    REQUIRE(search.lower_bound() <= least);
    if (hastily == fit_verdict::budget_ended) continue;
    REQUIRE(search.cost() >= least);
    REQUIRE(in.within(search.victims()));
    REQUIRE(in.fits_without(search.victims()));
    ++hasty_sets;
  }
  MESSAGE(limited, " dearer than without limits, ", refused, " refused, ", hasty_sets,
          " found with little of a budget");
  CHECK(limited > scaled(20'000U) / 50);
  CHECK(refused > scaled(20'000U) / 50);
  CHECK(hasty_sets > scaled(20'000U) / 4);
}

TEST_CASE("victims under rules and within limits cost what the best of all such sets costs") {
  std::uint32_t limited = 0;
  std::uint32_t refused = 0;
  topology_victim_search<uniform_tree> search(1'000'000);
  for (std::uint64_t seed = 0; seed < scaled(4'000U); ++seed) {
    CAPTURE(seed);
    tenants_gangs in = random_gangs(seed, 8, true);
    const std::vector<std::uint32_t> before(in.capacities.free().begin(),
                                            in.capacities.free().end());
    const std::uint64_t least = in.least();
    const fit_verdict verdict =
        search(in.capacities, in.gang, in.candidates, in.shares, in.limits());
    REQUIRE(std::equal(before.begin(), before.end(), in.capacities.free().begin()));
    REQUIRE(verdict == (least == no_cost ? fit_verdict::does_not_fit : fit_verdict::fits));
    refused += least == no_cost ? 1U : 0U;
    if (least != no_cost) {
      REQUIRE(search.cost() == least);
      REQUIRE(search.lower_bound() == least);
      REQUIRE(in.cost_of(search.victims()) == least);
      REQUIRE(in.within(search.victims()));
      REQUIRE(in.fits_without(search.victims()));
      tenants_gangs free_for_all = in;
      free_for_all.most.clear();
      limited += free_for_all.least() < least ? 1U : 0U;
    }
    for (const std::uint64_t budget : {0U, 300U, 3'000U}) {
      CAPTURE(budget);
      topology_victim_search<uniform_tree> hasty(budget);
      const fit_verdict hastily =
          hasty(in.capacities, in.gang, in.candidates, in.shares, in.limits());
      REQUIRE(std::equal(before.begin(), before.end(), in.capacities.free().begin()));
      REQUIRE(hasty.steps() <= budget);
      REQUIRE((hastily != fit_verdict::does_not_fit || least == no_cost));
      if (hastily == fit_verdict::does_not_fit) continue;
      REQUIRE(hasty.lower_bound() <= least);
      if (hastily == fit_verdict::budget_ended) continue;
      REQUIRE(hasty.cost() >= least);
      REQUIRE(in.within(hasty.victims()));
      REQUIRE(in.fits_without(hasty.victims()));
    }
  }
  MESSAGE(limited, " dearer than without limits, ", refused, " refused");
  CHECK(limited > scaled(4'000U) / 100);
  CHECK(refused > scaled(4'000U) / 50);
}

TEST_CASE("victim_search: who was spared for a limit stays so, however little budget is left") {
  // Y and X are of one tenant, which may lose one; Z and Y make room, and that is hard to see.
  const std::vector<std::uint32_t> free{0, 0, 0};
  const std::vector<gpus_on_node> shares{{0, 4}, {1, 6}, {2, 3}};
  const std::vector<eviction_candidate> candidates{{9, 0, 1}, {2, 1, 2}, {1, 2, 3}};
  const std::vector<std::uint32_t> groups{0, 1, 0};
  const std::vector<disruption_budget> most{{.gangs = 1}, {}};
  const std::vector<task_group> members{{2, 3}, {2, 2}};
  int found = 0;
  for (std::uint64_t budget = 0; budget < 100; ++budget) {
    CAPTURE(budget);
    victim_search search(budget);
    const fit_verdict verdict = search({}, free, candidates, shares, members, victim_search::never,
                                       {.groups = groups, .most = most});
    REQUIRE(verdict != fit_verdict::does_not_fit);
    if (verdict != fit_verdict::fits) continue;
    REQUIRE(std::vector<std::uint32_t>(search.victims().begin(), search.victims().end()) ==
            std::vector<std::uint32_t>{0, 1});
    ++found;
  }
  CHECK(found > 50);
}
