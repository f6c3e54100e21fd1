// apiary/tests/preempt/disruption_budget_test.cpp - disruption budgets of tenants, against trying every set.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/model/request.h>
#include <apiary/preempt/detail/disruption_tally.h>
#include <apiary/preempt/topology_victim_search.h>
#include <apiary/preempt/victim_search.h>
#include <apiary/preempt/victim_set.h>
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

// Gangs of tenants on nodes of eight GPUs.
struct tenants_gangs {
  capacity_index<uniform_tree> capacities;
  std::vector<eviction_candidate> candidates;
  std::vector<gpus_on_node> allocations;
  std::vector<std::uint32_t> tenants;
  std::vector<disruption_budget> max;
  topology_constraints gang;

  tenants_gangs(std::uint32_t racks, std::uint32_t nodes)
      : capacities(uniform_tree{racks, nodes, 8}, node, 8) {
    for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n) capacities.set(n, 8);
  }
  void run(std::uint32_t tenant, std::uint64_t cost, const std::vector<gpus_on_node>& where) {
    const auto first = static_cast<std::uint32_t>(allocations.size());
    for (const gpus_on_node& s : where) {
      capacities.set(s.node, capacities.free(s.node) - s.gpus);
      allocations.push_back(s);
    }
    candidates.push_back({cost, first, static_cast<std::uint32_t>(allocations.size())});
    tenants.push_back(tenant);
  }
  [[nodiscard]] disruption_budgets limits() const { return {tenants, max}; }
  [[nodiscard]] std::vector<task_group> task_groups() const {
    std::vector<task_group> plain;
    for (const constrained_task_group& m : gang.groups) plain.push_back({m.tasks, m.gpus});
    return plain;
  }
  [[nodiscard]] std::uint64_t cost_of(std::span<const std::uint32_t> set) const {
    std::uint64_t sum = 0;
    for (const std::uint32_t j : set) sum += candidates[j].cost;
    return sum;
  }
  [[nodiscard]] bool within(std::span<const std::uint32_t> set) const {
    for (std::uint32_t t = 0; t < max.size(); ++t) {
      std::uint64_t gangs = 0;
      std::uint64_t gpus = 0;
      for (const std::uint32_t j : set) {
        if (tenants[j] != t) continue;
        ++gangs;
        for (std::uint32_t s = candidates[j].first; s < candidates[j].last; ++s)
          gpus += allocations[s].gpus;
      }
      if (gangs > max[t].gangs || gpus > max[t].gpus) return false;
    }
    return true;
  }
  [[nodiscard]] bool fits_without(std::span<const std::uint32_t> set) const {
    capacity_index<uniform_tree> left = capacities;
    for (const std::uint32_t j : set)
      for (std::uint32_t s = candidates[j].first; s < candidates[j].last; ++s)
        left.set(allocations[s].node, left.free(allocations[s].node) + allocations[s].gpus);
    return topology_fit<uniform_tree>()(left, gang).verdict == fit_verdict::fits;
  }
  // The least cost of all sets within the budgets.
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

// Tenant 3 has no budget.
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
    in.max.emplace_back();
    if (random.uniform(4) > 0) in.max.back().gangs = random.uniform(3);
    if (random.uniform(3) == 0) in.max.back().gpus = random.uniform(20);
  }
  for (std::uint32_t m = 1 + random.uniform(2); m-- > 0;)
    in.gang.groups.push_back({1 + random.uniform(4), 1 + random.uniform(8)});
  if (!constrained) return in;
  if (random.uniform(2) == 0) in.gang.required = node + random.uniform(2);
  if (random.uniform(3) == 0) in.gang.groups[0].spread = {{node + random.uniform(2), 1}};
  if (random.uniform(4) == 0) in.gang.groups[0].slices = {{rack, in.gang.groups[0].tasks}};
  return in;
}

// Two gangs of tenant 0 with half of a node each, one of tenant 1 with a whole one.
tenants_gangs two_tenants() {
  tenants_gangs in(1, 2);
  in.run(0, 1, {{0, 4}});
  in.run(0, 1, {{0, 4}});
  in.run(1, 3, {{1, 8}});
  in.gang.groups = {{1, 8}};
  return in;
}

}  // namespace

TEST_CASE("disruption_tally: what each group has lost, and whether that is too much") {
  tenants_gangs in(2, 2);
  for (std::uint32_t j = 0; j < 8; ++j) in.run(j % 4, 1, {{j / 2, 1 + j % 4}});
  in.max = {{1, 100}, {2, 6}, {0, 100}};
  detail::disruption_tally tally;
  CHECK(tally.unlimited());
  tally.begin(in.limits(), in.candidates, in.allocations);
  CHECK_FALSE(tally.unlimited());
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
      tally.remove_victim(j);
    } else if (admits) {
      taken[j] = tally.try_add_victim(j);
      REQUIRE(taken[j] == in.within(set));
      if (!taken[j]) std::erase(set, j);
    } else {
      REQUIRE(tally.add_victim(j) == in.within(set));
    }
    REQUIRE(tally.within_budgets() == in.within(set));
    for (std::uint32_t i = 0; i < 8; ++i) {
      tenants_gangs one = in;
      for (std::uint32_t t = 0; t < 3; ++t)
        if (t != in.tenants[i]) one.max[t] = {};
      REQUIRE(tally.over_budget(i) == (in.tenants[i] < 3 && !one.within(set)));
    }
  }
}

TEST_CASE("disruption_tally: no set within the budgets has more than max_sum()") {
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
    detail::disruption_tally tally;
    tally.begin(in.limits(), in.candidates, in.allocations);
    REQUIRE(tally.max_sum(values) >= most);
    exact += tally.max_sum(values) == most ? 1U : 0U;
    const auto of_leaves = [](const disruption_budget& m) { return m.gpus < 1'000; };
    if (std::none_of(in.max.begin(), in.max.end(), of_leaves))
      REQUIRE(tally.max_sum(values) == most);
  }
  CHECK(exact > scaled(3'000U) / 2);
}

TEST_CASE("a tenant that may lose one gang keeps the other, though both together cost less") {
  tenants_gangs in = two_tenants();
  const auto victims = [&](const disruption_budgets& limits) {
    victim_search search;
    const victim_set found = search({}, std::vector<std::uint32_t>{0, 0}, in.candidates,
                                    in.allocations, in.task_groups(), victim_search::never, limits);
    REQUIRE(found.verdict == fit_verdict::fits);
    CHECK(found.lower_bound == found.cost);
    topology_victim_search<uniform_tree> constrained;
    const victim_set in_racks =
        constrained(in.capacities, in.gang, in.candidates, in.allocations, limits);
    REQUIRE(in_racks.verdict == fit_verdict::fits);
    CHECK(in_racks.lower_bound == found.cost);
    CHECK(std::equal(in_racks.victims.begin(), in_racks.victims.end(), found.victims.begin(),
                     found.victims.end()));
    return std::vector<std::uint32_t>(found.victims.begin(), found.victims.end());
  };
  CHECK(victims({}) == std::vector<std::uint32_t>{0, 1});
  in.max = {{.gangs = 1}};
  CHECK(victims(in.limits()) == std::vector<std::uint32_t>{2});
  in.max = {{.gpus = 7}};
  CHECK(victims(in.limits()) == std::vector<std::uint32_t>{2});
  in.max = {{.gangs = 2, .gpus = 8}, {.gangs = 0}};
  CHECK(victims(in.limits()) == std::vector<std::uint32_t>{0, 1});
  // The GPUs that each gang counts as.
  in.max = {{.gpus = 7}};
  const std::vector<std::uint32_t> gpus{3, 4, 8};
  CHECK(victims({in.tenants, in.max, gpus}) == std::vector<std::uint32_t>{0, 1});
}

TEST_CASE("no set within the budgets: that is proved, but not by a count of GPUs") {
  tenants_gangs in = two_tenants();
  in.max = {{.gangs = 1}, {.gangs = 0}};
  victim_search search;
  victim_set found;
  const std::vector<std::uint32_t> none_free{0, 0};
  const auto solve = [&](std::uint64_t budget) {
    search.set_budget(budget);
    found = search({}, none_free, in.candidates, in.allocations, in.task_groups(),
                   victim_search::never, in.limits());
    return found.verdict;
  };
  CHECK(solve(100'000) == fit_verdict::does_not_fit);
  CHECK_FALSE(found.shortage.has_value());
  CHECK(found.victims.empty());
  CHECK(solve(0) == fit_verdict::does_not_fit);
  // Half of each node may be freed: enough GPUs, but no whole node.
  in = tenants_gangs(1, 2);
  in.run(0, 1, {{0, 4}});
  in.run(0, 1, {{0, 4}});
  in.run(1, 3, {{1, 4}});
  in.capacities.set(1, 0);
  in.gang.groups = {{1, 8}};
  in.max = {{.gangs = 1}, {.gangs = 1}};
  CHECK(solve(100'000) == fit_verdict::does_not_fit);
  CHECK(solve(0) == fit_verdict::budget_ended);
  for (const bool spread : {false, true}) {
    if (spread) in.gang.groups[0].spread = {{node, 1}};
    topology_victim_search<uniform_tree> constrained;
    CHECK(constrained(in.capacities, in.gang, in.candidates, in.allocations, in.limits()).verdict ==
          fit_verdict::does_not_fit);
    topology_victim_search<uniform_tree> hasty(0);
    CHECK(hasty(in.capacities, in.gang, in.candidates, in.allocations, in.limits()).verdict ==
          fit_verdict::budget_ended);
  }
}

namespace {

// Two nodes, and a gang of tenant 0 on the first, the cheapest, which frees no whole node. The tenant
// may lose one gang.
tenants_gangs useless_gang() {
  tenants_gangs in(1, 2);
  in.run(0, 1, {{0, 2}});
  in.capacities.set(0, 0);
  in.max = {{.gangs = 1}};
  return in;
}
// What victims cost on two full nodes; no_cost if none are found.
std::uint64_t cost_on_full_nodes(const tenants_gangs& in, std::uint64_t budget) {
  const std::vector<std::uint32_t> none_free{0, 0};
  victim_search search(budget);
  const victim_set found = search({}, none_free, in.candidates, in.allocations, in.task_groups(),
                                  victim_search::never, in.limits());
  return found.verdict == fit_verdict::fits ? found.cost : no_cost;
}

}  // namespace

TEST_CASE("a tenant's useless gang does not use up its budget") {
  // Its expensive gang and the gang of tenant 1 together free a node.
  tenants_gangs in = useless_gang();
  in.run(0, 9, {{1, 4}});
  in.run(1, 9, {{1, 4}});
  in.gang.groups = {{1, 8}};
  CHECK(cost_on_full_nodes(in, 0) == 18);
  CHECK(cost_on_full_nodes(in, 100'000) == 18);
}

TEST_CASE("a tenant's node need not be emptied where one of its gangs is enough") {
  tenants_gangs in = useless_gang();
  in.run(0, 9, {{1, 4}});
  in.run(0, 20, {{1, 4}});
  in.gang.groups = {{1, 4}};
  CHECK(cost_on_full_nodes(in, 0) == 9);
  CHECK(cost_on_full_nodes(in, 100'000) == 9);
}

TEST_CASE("a cheap node that a tenant may not lose does not exclude an expensive one") {
  tenants_gangs in(1, 2);
  in.run(0, 1, {{0, 2}});
  in.run(0, 1, {{0, 3}});
  in.run(0, 1, {{0, 3}});
  in.run(0, 10, {{1, 4}});
  in.run(0, 10, {{1, 4}});
  in.gang.groups = {{1, 8}};
  in.max = {{.gangs = 2}};
  CHECK(cost_on_full_nodes(in, 0) == 20);
}

TEST_CASE("victims within budgets cost what the best of all such sets costs") {
  std::uint32_t limited = 0;
  std::uint32_t refused = 0;
  std::uint32_t hasty_sets = 0;
  victim_search search;
  victim_set found;
  for (std::uint64_t seed = 0; seed < scaled(20'000U); ++seed) {
    CAPTURE(seed);
    const tenants_gangs in = random_gangs(seed, 8, false);
    const std::vector<std::uint32_t> free(in.capacities.free().begin(), in.capacities.free().end());
    const std::uint64_t least = in.least();
    const auto solve = [&](std::uint64_t budget, std::uint64_t limit) {
      search.set_budget(budget);
      found = search({}, free, in.candidates, in.allocations, in.task_groups(), limit, in.limits());
      return found.verdict;
    };
    const fit_verdict verdict = solve(512 * victim_search::set_steps, victim_search::never);
    REQUIRE(verdict == (least == no_cost ? fit_verdict::does_not_fit : fit_verdict::fits));
    refused += least == no_cost ? 1U : 0U;
    if (least != no_cost) {
      REQUIRE(found.cost == least);
      REQUIRE(found.lower_bound == least);
      REQUIRE(in.cost_of(found.victims) == least);
      REQUIRE(in.within(found.victims));
      REQUIRE(in.fits_without(found.victims));
      tenants_gangs free_for_all = in;
      free_for_all.max.clear();
      limited += free_for_all.least() < least ? 1U : 0U;
    }
    // With a cost limit that no set meets: the bound is that limit, or the verdict is a no.
    const fit_verdict below = solve(512 * victim_search::set_steps, least);
    REQUIRE(below == verdict);
    if (below == fit_verdict::fits && least > 0) REQUIRE(found.lower_bound == least);
    // With few steps: a lower bound, and sets within the budgets.
    const fit_verdict hastily = solve(victim_search::set_steps - 1, victim_search::never);
    REQUIRE((hastily != fit_verdict::does_not_fit || least == no_cost));
    if (hastily == fit_verdict::does_not_fit) continue;
    REQUIRE(found.lower_bound <= least);
    if (hastily == fit_verdict::budget_ended) continue;
    REQUIRE(found.cost >= least);
    REQUIRE(in.within(found.victims));
    REQUIRE(in.fits_without(found.victims));
    ++hasty_sets;
  }
  MESSAGE(limited, " more expensive than without budgets, ", refused, " refused, ", hasty_sets,
          " found with few steps");
  CHECK(limited > scaled(20'000U) / 50);
  CHECK(refused > scaled(20'000U) / 50);
  CHECK(hasty_sets > scaled(20'000U) / 4);
}

TEST_CASE(
    "victims under constraints and within budgets cost what the best of all such sets costs") {
  std::uint32_t limited = 0;
  std::uint32_t refused = 0;
  topology_victim_search<uniform_tree> search(1'000'000);
  victim_set found;
  for (std::uint64_t seed = 0; seed < scaled(4'000U); ++seed) {
    CAPTURE(seed);
    tenants_gangs in = random_gangs(seed, 8, true);
    const std::vector<std::uint32_t> before(in.capacities.free().begin(),
                                            in.capacities.free().end());
    const std::uint64_t least = in.least();
    found = search(in.capacities, in.gang, in.candidates, in.allocations, in.limits());
    const fit_verdict verdict = found.verdict;
    REQUIRE(std::equal(before.begin(), before.end(), in.capacities.free().begin()));
    REQUIRE(verdict == (least == no_cost ? fit_verdict::does_not_fit : fit_verdict::fits));
    refused += least == no_cost ? 1U : 0U;
    if (least != no_cost) {
      REQUIRE(found.cost == least);
      REQUIRE(found.lower_bound == least);
      REQUIRE(in.cost_of(found.victims) == least);
      REQUIRE(in.within(found.victims));
      REQUIRE(in.fits_without(found.victims));
      tenants_gangs free_for_all = in;
      free_for_all.max.clear();
      limited += free_for_all.least() < least ? 1U : 0U;
    }
    for (const std::uint64_t budget : {0U, 300U, 3'000U}) {
      CAPTURE(budget);
      topology_victim_search<uniform_tree> hasty(budget);
      const victim_set hasty_found =
          hasty(in.capacities, in.gang, in.candidates, in.allocations, in.limits());
      const fit_verdict hastily = hasty_found.verdict;
      REQUIRE(std::equal(before.begin(), before.end(), in.capacities.free().begin()));
      REQUIRE(hasty_found.steps <= budget);
      REQUIRE((hastily != fit_verdict::does_not_fit || least == no_cost));
      if (hastily == fit_verdict::does_not_fit) continue;
      REQUIRE(hasty_found.lower_bound <= least);
      if (hastily == fit_verdict::budget_ended) continue;
      REQUIRE(hasty_found.cost >= least);
      REQUIRE(in.within(hasty_found.victims));
      REQUIRE(in.fits_without(hasty_found.victims));
    }
  }
  MESSAGE(limited, " more expensive than without budgets, ", refused, " refused");
  CHECK(limited > scaled(4'000U) / 100);
  CHECK(refused > scaled(4'000U) / 50);
}

TEST_CASE("victim_search: a gang reprieved for a budget stays so, however few steps are left") {
  // Gangs Y and X belong to one tenant, which may lose one of them. Evicting Z and Y is enough, and
  // hard to find.
  const std::vector<std::uint32_t> free{0, 0, 0};
  const std::vector<gpus_on_node> allocations{{0, 4}, {1, 6}, {2, 3}};
  const std::vector<eviction_candidate> candidates{{9, 0, 1}, {2, 1, 2}, {1, 2, 3}};
  const std::vector<std::uint32_t> groups{0, 1, 0};
  const std::vector<disruption_budget> max{{.gangs = 1}, {}};
  const std::vector<task_group> asked{{2, 3}, {2, 2}};
  int sets = 0;
  for (std::uint64_t budget = 0; budget < 100; ++budget) {
    CAPTURE(budget);
    victim_search search(budget);
    const victim_set found = search({}, free, candidates, allocations, asked, victim_search::never,
                                    {.groups = groups, .max = max});
    REQUIRE(found.verdict != fit_verdict::does_not_fit);
    if (found.verdict != fit_verdict::fits) continue;
    REQUIRE(std::vector<std::uint32_t>(found.victims.begin(), found.victims.end()) ==
            std::vector<std::uint32_t>{0, 1});
    ++sets;
  }
  CHECK(sets > 50);
}
