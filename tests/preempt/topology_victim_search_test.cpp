// apiary/tests/preempt/topology_victim_search_test.cpp - victims under topology constraints, against trying every set.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/topology_victim_search.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <support/levels.h>
#include <support/naive_constraints.h>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

// Nodes of up to eight GPUs, with gangs on them.
template <CellTree Tree>
struct running_on {
  capacity_index<Tree> capacities;
  std::vector<eviction_candidate> candidates;
  std::vector<gpus_on_node> allocations;
  std::vector<resources> hosts;  // and what each allocation gives back; or neither
  std::vector<resources> freed;

  explicit running_on(const Tree& tree) : capacities(tree, node, 8), cells_(ragged_copy(tree)) {
    for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n)
      capacities.set(n, tree.children(tree.cells(node)[n], node).size());
  }
  void run(std::uint64_t cost, const std::vector<gpus_on_node>& where) {
    const auto first = static_cast<std::uint32_t>(allocations.size());
    for (const gpus_on_node& s : where) {
      capacities.set(s.node, capacities.free(s.node) - s.gpus);
      allocations.push_back(s);
    }
    candidates.push_back({cost, first, static_cast<std::uint32_t>(allocations.size())});
  }
  victim_set solve(topology_victim_search<Tree>& search, const topology_constraints& gang) {
    return search(capacities, gang, candidates, allocations, hosts, freed);
  }

  // Whether the gang fits without these victims, by trying node after node.
  [[nodiscard]] bool fits_without(const std::vector<std::uint32_t>& victims,
                                  const topology_constraints& gang) const {
    test_cluster left{cells_, {capacities.free().begin(), capacities.free().end()}, hosts};
    for (const std::uint32_t j : victims) {
      for (std::uint32_t s = candidates[j].first; s < candidates[j].last; ++s) {
        left.free[allocations[s].node] += allocations[s].gpus;
        if (!hosts.empty()) left.hosts[allocations[s].node] += freed[s];
      }
    }
    return node_after_node(left, gang)(std::min(gang.required, capacities.top()));
  }
  static constexpr std::uint64_t no_set = std::numeric_limits<std::uint64_t>::max();
  // The cost of evicting the cheapest gang, then the next, until the gang fits.
  [[nodiscard]] std::uint64_t cheapest_first(const topology_constraints& gang) const {
    std::vector<std::uint32_t> order(candidates.size());
    for (std::uint32_t j = 0; j < order.size(); ++j) order[j] = j;
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return candidates[a].cost < candidates[b].cost;
    });
    std::vector<std::uint32_t> victims;
    std::uint64_t cost = 0;
    for (const std::uint32_t j : order) {
      if (fits_without(victims, gang)) return cost;
      victims.push_back(j);
      cost += candidates[j].cost;
    }
    return fits_without(victims, gang) ? cost : no_set;
  }
  // The least cost over all sets of candidates, if all of them together are enough.
  [[nodiscard]] std::uint64_t least(const topology_constraints& gang) const {
    std::uint64_t best = no_set;
    for (std::uint32_t set = 1U << candidates.size(); set-- > 0;) {
      std::vector<std::uint32_t> victims;
      std::uint64_t cost = 0;
      for (std::uint32_t j = 0; j < candidates.size(); ++j) {
        if ((set >> j & 1) == 0) continue;
        victims.push_back(j);
        cost += candidates[j].cost;
      }
      if (cost < best && fits_without(victims, gang)) best = cost;
      if (best == no_set) return no_set;
    }
    return best;
  }

 private:
  ragged_tree cells_;
};

// Racks of nodes of eight GPUs.
struct running : running_on<uniform_tree> {
  running(std::uint32_t racks, std::uint32_t nodes)
      : running_on<uniform_tree>(uniform_tree{racks, nodes, 8}) {}
};

topology_constraints in_rack(std::uint32_t tasks, std::uint32_t gpus) {
  topology_constraints gang;
  gang.groups = {{tasks, gpus}};
  gang.required = rack;
  return gang;
}

// Blocks of racks of nodes of eight GPUs, sometimes fewer.
uniform_tree random_uniform_tree(rng& random) {
  const std::uint32_t blocks = 1 + random.uniform(2);
  return uniform_tree{blocks, 1 + random.uniform(3), 1 + random.uniform(3), 8};
}
ragged_tree random_ragged_tree(rng& random) {
  std::vector<std::vector<std::uint32_t>> fan_outs{{1 + random.uniform(2)}};
  for (const std::uint32_t most : {3U, 3U, 8U}) {
    std::uint32_t cells = 0;
    for (const std::uint32_t n : fan_outs.back()) cells += n;
    std::vector<std::uint32_t>& below = fan_outs.emplace_back();
    while (cells-- > 0)
      below.push_back(most < 8 || random.uniform(4) == 0 ? 1 + random.uniform(most) : most);
  }
  return ragged_tree(fan_outs);
}

// Some gangs, and GPUs that stay in use.
template <CellTree Tree>
void run_gangs(running_on<Tree>& in, rng& random) {
  const std::uint32_t nodes = in.capacities.num_nodes();
  const bool hosted = random.uniform(2) == 0;
  for (std::uint32_t j = random.uniform(9); j-- > 0;) {
    std::vector<gpus_on_node> where;
    for (std::uint32_t n = 0; n < nodes; ++n) {
      if (random.uniform(3) != 0) continue;
      const std::uint32_t free = in.capacities.free(n);
      if (free > 0) where.push_back({n, 1 + random.uniform(free)});
      if (free == 0 && hosted) where.push_back({n, 0});
    }
    in.run(random.uniform(3) == 0 ? 10 : 1 + random.uniform(100), where);
  }
  for (std::uint32_t n = 0; n < nodes; ++n)
    in.capacities.set(n, in.capacities.free(n) - random.uniform(in.capacities.free(n) / 2 + 1));
  if (!hosted) return;
  for (std::uint32_t n = 0; n < nodes; ++n)
    in.hosts.push_back({random.uniform(6), random.uniform(6)});
  for (std::size_t s = 0; s < in.allocations.size(); ++s)
    in.freed.push_back({random.uniform(4), random.uniform(4)});
}

// Up to three task groups: all constraints, CPU and memory, and tasks without GPUs.
topology_constraints random_intruder(rng& random, bool hosted) {
  topology_constraints gang;
  for (std::uint32_t m = 1 + random.uniform(3); m-- > 0;) {
    constrained_task_group& group = gang.groups.emplace_back();
    group.tasks = 1 + random.uniform(random.uniform(2) == 0 ? 2 : 4);
    group.gpus = random.uniform(6) == 0 ? 0 : 1 + random.uniform(random.uniform(2) == 0 ? 4 : 8);
    if (hosted && random.uniform(2) == 0) group.host = {random.uniform(4), random.uniform(4)};
    const level_t l = node + random.uniform(3);
    if (random.uniform(3) == 0) group.spread = {{l, 1 + random.uniform(3)}};
    if (random.uniform(4) == 0) group.slices = {{rack, group.tasks}};
    if (random.uniform(6) == 0) {
      group.tasks = 4;
      group.slices = {{rack, 2}, {block, 4}};
    }
  }
  if (gang.groups.size() > 1 && random.uniform(4) == 0) {
    gang.groups[1].tasks = gang.groups[0].tasks * (1 + random.uniform(2));
    gang.groups[1].slices.clear();
    gang.groups[1].leader = 0;
  }
  if (random.uniform(2) == 0) gang.required = rack + random.uniform(2);
  if (random.uniform(12) == 0) gang.required = node;
  if (random.uniform(4) == 0) gang.preferred = node + random.uniform(3);
  return gang;
}

struct victim_counts {
  int preempted = 0;
  int for_host_alone = 0;  // no victims would be needed for GPUs alone
  int never_fit = 0;
  int hasty_sets = 0;
};

template <CellTree Tree>
void check_victims(running_on<Tree>& in, const topology_constraints& gang, victim_counts& seen) {
  const std::vector<std::uint32_t> before(in.capacities.free().begin(), in.capacities.free().end());
  topology_victim_search<Tree> search(1'000'000);
  const victim_set found = in.solve(search, gang);
  const fit_verdict verdict = found.verdict;
  REQUIRE(std::equal(before.begin(), before.end(), in.capacities.free().begin()));
  const std::uint64_t least = in.least(gang);
  REQUIRE(verdict == (least < in.no_set ? fit_verdict::fits : fit_verdict::does_not_fit));
  if (verdict != fit_verdict::fits) {
    ++seen.never_fit;
    return;
  }
  const std::vector<std::uint32_t> victims(found.victims.begin(), found.victims.end());
  std::uint64_t cost = 0;
  for (const std::uint32_t j : victims) cost += in.candidates[j].cost;
  REQUIRE(std::set<std::uint32_t>(victims.begin(), victims.end()).size() == victims.size());
  REQUIRE(cost == found.cost);
  REQUIRE(in.fits_without(victims, gang));
  REQUIRE(found.cost == least);
  REQUIRE(found.lower_bound == least);
  seen.preempted += victims.empty() ? 0 : 1;
  if (!victims.empty() && !in.hosts.empty()) {
    running_on<Tree> leaves_alone = in;
    leaves_alone.hosts.clear();
    seen.for_host_alone += leaves_alone.fits_without({}, gang) ? 1 : 0;
  }

  // With few steps: a set if they decide what fits, and a lower bound.
  for (const std::uint64_t budget : {0U, 300U, 3'000U}) {
    CAPTURE(budget);
    topology_victim_search<Tree> hasty(budget);
    const victim_set hasty_found = in.solve(hasty, gang);
    const fit_verdict hastily = hasty_found.verdict;
    REQUIRE(std::equal(before.begin(), before.end(), in.capacities.free().begin()));
    REQUIRE(hastily != fit_verdict::does_not_fit);
    REQUIRE(hasty_found.steps <= budget);
    REQUIRE(hasty_found.lower_bound <= least);
    if (hastily == fit_verdict::budget_ended) continue;
    REQUIRE(hasty_found.cost >= least);
    REQUIRE(in.fits_without({hasty_found.victims.begin(), hasty_found.victims.end()}, gang));
    seen.hasty_sets += budget == 0 ? 1 : 0;
  }
}

}  // namespace

TEST_CASE("victims under constraints cost what the best of all sets costs") {
  const int rounds = scaled(3'000);
  victim_counts seen;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    const auto check = [&](auto in) {
      run_gangs(in, random);
      const topology_constraints gang = random_intruder(random, !in.hosts.empty());
      REQUIRE(gang.valid(node, in.capacities.top()));
      check_victims(in, gang, seen);
    };
    if (round % 2 == 0) {
      check(running_on(random_uniform_tree(random)));
    } else {
      check(running_on(random_ragged_tree(random)));
    }
  }
  MESSAGE(seen.preempted, " preempted, ", seen.for_host_alone, " of them for CPU or memory alone, ",
          seen.never_fit, " never fit, ", seen.hasty_sets, " sets without budget");
  CHECK(seen.hasty_sets > 0);
  if (scale() >= 1) {
    CHECK(seen.preempted > 200);
    CHECK(seen.for_host_alone > 50);
    CHECK(seen.never_fit > 50);
  }
}

TEST_CASE("among many gangs under constraints never more expensive than the cheapest first") {
  const int rounds = scaled(400);
  int cheaper = 0;
  int possible = 0;
  int proved = 0;
  std::uint64_t cost = 0;
  std::uint64_t bound = 0;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    running in(3, 8);
    for (std::uint32_t j = 40; j-- > 0;) {
      std::vector<gpus_on_node> where;
      for (std::uint32_t n = random.uniform(24), i = 1 + random.uniform(4); i > 0; --i, ++n)
        if (n < 24 && in.capacities.free(n) > 0)
          where.push_back({n, 1 + random.uniform(in.capacities.free(n))});
      if (!where.empty()) in.run(1 + random.uniform(20), where);
    }
    for (std::uint32_t n = 0; n < 24; ++n)
      in.capacities.set(n, in.capacities.free(n) - random.uniform(in.capacities.free(n) + 1));
    topology_constraints gang;  // one task group: what fits is known without a step
    gang.groups = {{2 + random.uniform(5), 2 + random.uniform(7)}};
    if (random.uniform(3) > 0) gang.required = rack;
    if (random.uniform(2) == 0) gang.groups[0].spread = {{node + random.uniform(2), 2}};
    if (random.uniform(3) == 0) {
      gang.groups[0].tasks = 4;
      gang.groups[0].slices = {{random.uniform(2) == 0 ? rack : node, 2}};
    }
    const std::uint64_t greedily = in.cheapest_first(gang);
    for (const std::uint64_t budget : {0U, 1'000'000U}) {
      CAPTURE(budget);
      topology_victim_search<uniform_tree> search(budget);
      const victim_set found = search(in.capacities, gang, in.candidates, in.allocations);
      REQUIRE(found.verdict ==
              (greedily == running::no_set ? fit_verdict::does_not_fit : fit_verdict::fits));
      REQUIRE(found.steps <= budget);
      if (greedily == running::no_set || greedily == 0) continue;
      REQUIRE(found.cost <= greedily);
      REQUIRE(found.lower_bound <= found.cost);
      REQUIRE(in.fits_without({found.victims.begin(), found.victims.end()}, gang));
      if (budget == 0) continue;
      ++possible;
      cheaper += found.cost < greedily ? 1 : 0;
      proved += found.cost == found.lower_bound ? 1 : 0;
      cost += found.cost;
      bound += found.lower_bound;
    }
  }
  MESSAGE(cheaper, " of ", possible, " cheaper than the cheapest first, ", proved,
          " proved to be optimal; in sum ", cost, ", at least ", bound);
  CHECK(cheaper > 0);
  CHECK(proved > 0);
}

TEST_CASE("the constraints are met where the cheapest victims without them are others") {
  // Both tasks fit the node of the expensive gang, but they must not be on one node.
  running in(1, 3);
  in.run(9, {{0, 8}});
  in.run(5, {{1, 4}});
  in.run(5, {{2, 4}});
  for (const std::uint32_t n : {1U, 2U}) in.capacities.set(n, 0);
  topology_constraints gang;
  gang.groups = {{2, 4}};
  gang.groups[0].spread = {{node, 1}};
  for (const std::uint64_t budget : {0U, 1'000'000U}) {
    topology_victim_search<uniform_tree> search(budget);
    const victim_set found = search(in.capacities, gang, in.candidates, in.allocations);
    REQUIRE(found.verdict == fit_verdict::fits);
    CHECK(found.cost == 10);
    CHECK(std::vector<std::uint32_t>(found.victims.begin(), found.victims.end()) ==
          std::vector<std::uint32_t>{1, 2});
  }
}

TEST_CASE("a cell that the budget does not decide keeps its bound") {
  // Tasks of many sizes: what fits takes a search. They fit the first rack once its gang is evicted.
  int undecided = 0;
  const int rounds = scaled(60);
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    running in(2, 6);
    in.run(1, {{0, 8}});
    in.run(40, {{6, 8}, {7, 8}, {8, 8}, {9, 8}, {10, 8}, {11, 8}});
    topology_constraints gang;
    gang.required = rack;
    for (int n = 0; n < 6; ++n) {
      const std::uint32_t a = 1 + random.uniform(4);
      const std::uint32_t b = 1 + random.uniform(7 - a);
      for (const std::uint32_t gpus : {a, b, 8 - a - b}) gang.groups.push_back({1, gpus});
    }
    gang.groups[0].spread = {{node, 1}};
    for (std::uint64_t budget = 50; budget < 2'000'000; budget *= 3) {
      CAPTURE(budget);
      topology_victim_search<uniform_tree> search(budget);
      const victim_set found = search(in.capacities, gang, in.candidates, in.allocations);
      REQUIRE(found.steps <= budget);
      REQUIRE(found.verdict != fit_verdict::does_not_fit);
      REQUIRE(found.lower_bound <= 1);
      undecided += found.verdict == fit_verdict::budget_ended || found.cost > 1 ? 1 : 0;
    }
  }
  MESSAGE(undecided, " times the cheapest set was not seen");
  CHECK(undecided > 0);
}

TEST_CASE("one budget is for the whole search") {
  // Coprime sizes and constraints: the verdicts are hard, and there are many sets.
  running in(4, 16);
  rng random(5);
  for (std::uint32_t n = 0; n < 64; ++n) {
    for (std::uint32_t left = 7; left > 0;) {
      const std::uint32_t gpus = 1 + random.uniform(left);
      in.run(1 + random.uniform(50), {{n, gpus}});
      left -= gpus;
    }
    in.capacities.set(n, random.uniform(in.capacities.free(n) + 1));
  }
  topology_constraints gang;
  gang.required = rack;
  gang.groups = {{6, 7}, {6, 5}, {8, 3}, {5, 2}};
  gang.groups[0].spread = {{node, 1}};
  gang.groups[2].spread = {{node, 1}};
  for (const std::uint64_t budget : {0U, 1'000U, 10'000U, 100'000U, 1'000'000U}) {
    CAPTURE(budget);
    topology_victim_search<uniform_tree> search(budget);
    const victim_set found = search(in.capacities, gang, in.candidates, in.allocations);
    CHECK(found.steps <= budget + budget / 100);
    CHECK(found.lower_bound <= found.cost);
    MESSAGE(budget, ": verdict ", static_cast<int>(found.verdict), ", steps ", found.steps,
            ", cost ", found.cost, ", at least ", found.lower_bound);
  }
}

TEST_CASE("what unequal tasks under constraints look at counts against the budget") {
  // 4,096 nodes, each full with a gang of its own; two task groups, so each fit looks at all nodes.
  running in(16, 256);
  for (std::uint32_t n = 0; n < 4'096; ++n) in.run(1 + n % 7, {{n, 8}});
  // A step for every 32 nodes and task group, at most a 256th of the budget.
  const auto of_fit = [](std::uint64_t budget) {
    return std::max<std::uint64_t>(1, std::min<std::uint64_t>(4'096 * 2 / 32, budget / 256));
  };
  topology_constraints gang;
  gang.groups = {{.tasks = 17, .gpus = 8, .spread = {{rack, 1}}}, {.tasks = 2, .gpus = 4}};
  for (const std::uint64_t budget : {0U, 1'000U, 100'000U}) {
    CAPTURE(budget);
    topology_victim_search<uniform_tree> search(budget);
    const victim_set found = search(in.capacities, gang, in.candidates, in.allocations);
    CHECK(found.verdict == fit_verdict::does_not_fit);  // there are 16 racks
    CHECK(found.steps <= budget);
    CHECK(found.steps >= std::min(budget / of_fit(budget), std::uint64_t{14}) * of_fit(budget));
  }
  gang.groups[0].tasks = 4;
  for (const std::uint64_t budget : {0U, 10'000U, 100'000U, 300'000U}) {
    CAPTURE(budget);
    topology_victim_search<uniform_tree> search(budget);
    const victim_set found = search(in.capacities, gang, in.candidates, in.allocations);
    CHECK(found.steps <= budget);
    if (found.verdict == fit_verdict::fits) CHECK(found.cost == 5);  // gangs of five nodes
    CHECK((found.verdict == fit_verdict::fits) == (budget > 0));
  }
}

TEST_CASE("a search begins only if the budget pays for reading all gangs, and its end is no no") {
  // A gang on each of 16,384 nodes but one: 49,150 gangs, allocations and nodes. 16,384 are free.
  using search_type = topology_victim_search<uniform_tree>;
  CHECK(search_type::can_read(16'384 + 23, 0));
  CHECK(!search_type::can_read(16'384 + 24, 0));
  CHECK(search_type::can_read(49'150, 1'365));
  CHECK(!search_type::can_read(49'150, 1'364));
  running in(128, 128);
  for (std::uint32_t n = 1; n < 128 * 128; ++n) in.run(1 + n % 7, {{n, 8}});
  for (const std::uint32_t tasks : {1U, 2U, 129U}) {  // one fits now, 129 never in a rack
    CAPTURE(tasks);
    search_type search(1'364);
    const victim_set unread = in.solve(search, in_rack(tasks, 8));
    CHECK(unread.verdict == (tasks == 1 ? fit_verdict::fits : fit_verdict::budget_ended));
    CHECK(unread.victims.empty());
    CHECK(unread.cost == (tasks == 1 ? 0 : victim_set::never));
    CHECK(unread.lower_bound == 0);
    CHECK(unread.steps <= 1'364);
    if (tasks > 1) CHECK(unread.steps == 1'364);
    search.set_budget(1'365);
    const victim_set found = in.solve(search, in_rack(tasks, 8));
    CHECK(found.verdict == (tasks == 129 ? fit_verdict::does_not_fit : fit_verdict::fits));
    if (tasks == 2) CHECK(found.cost == 1);
    CHECK(found.steps <= 1'365);
  }
  // Tasks that differ and have constraints: a third of the budget has to pay.
  topology_constraints gang = in_rack(2, 8);
  gang.groups.push_back({.tasks = 1, .gpus = 4, .spread = {{node, 1}}});
  search_type search(4'094);
  const victim_set unread = in.solve(search, gang);
  CHECK(unread.verdict == fit_verdict::budget_ended);
  CHECK(unread.cost == victim_set::never);
  CHECK(unread.lower_bound == 0);
  CHECK(unread.steps == 4'094);
  search.set_budget(4'095);
  CHECK(in.solve(search, gang).verdict == fit_verdict::fits);
}

TEST_CASE("allocations that no candidate names are not read") {
  running in(2, 8);
  // 100,000 entries of gangs that are no candidates.
  in.allocations.assign(100'000, {0, 0});
  for (std::uint32_t n = 0; n < 16; ++n) in.run(1 + n % 7, {{n, 8}});
  topology_victim_search<uniform_tree> search(1'000);
  const victim_set found = in.solve(search, in_rack(2, 8));
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.cost == 2);  // in the rack of the gangs 0 and 7
  const std::vector<std::uint32_t> none_free(16, 0);
  const std::vector<task_group> groups{{.tasks = 2, .gpus = 8}};
  victim_search plain(1'000);
  const victim_set anywhere = plain({}, none_free, in.candidates, in.allocations, groups);
  REQUIRE(anywhere.verdict == fit_verdict::fits);
  CHECK(anywhere.cost == 2);
}

TEST_CASE("what a search reads counts as steps, a step for 48 entries") {
  // A gang on each of 4,096 nodes: 12,288 gangs, allocations and nodes.
  running in(64, 64);
  for (std::uint32_t n = 0; n < 4'096; ++n) in.run(1 + n % 7, {{n, 8}});
  topology_constraints unequal = in_rack(2, 8);
  unequal.groups.push_back({.tasks = 1, .gpus = 4});
  topology_constraints constrained = unequal;
  constrained.groups[1].spread = {{node, 1}};
  for (const topology_constraints& gang : {in_rack(2, 8), unequal, constrained})
    for (const std::uint64_t budget : {0U, 100U, 100'000U}) {
      CAPTURE(budget);
      topology_victim_search<uniform_tree> search(budget);
      const victim_set found = in.solve(search, gang);
      CHECK(found.steps <= budget);
      CHECK(found.steps >= std::min<std::uint64_t>(budget, 12'288 / 48));
    }
}

TEST_CASE("gangs in many racks are read again for each rack, and count again") {
  // Eight gangs on all nodes of 200 racks: 6,400 allocations, and as many for each rack that is
  // searched. All racks are equal, and no bound of a rack is the cost of its victims.
  running in(200, 4);
  for (std::uint32_t j = 0; j < 8; ++j) {
    std::vector<gpus_on_node> where;
    for (std::uint32_t n = 0; n < 800; ++n) where.push_back({n, 1});
    in.run(100 + j, where);
  }
  topology_constraints gang = in_rack(3, 5);
  gang.groups.push_back({.tasks = 1, .gpus = 3});
  topology_victim_search<uniform_tree> search(1'000'000);
  const victim_set found = in.solve(search, gang);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.cost == 100 + 101 + 102 + 103 + 104);
  CHECK(found.steps >= 200 * 6'400 / 48);
  // With few steps some racks are not read. The bound is then that of the racks.
  search.set_budget(2'000);
  const victim_set hasty = in.solve(search, gang);
  REQUIRE(hasty.verdict == fit_verdict::fits);
  CHECK(hasty.steps == 2'000);
  CHECK(hasty.cost == found.cost);
  CHECK(hasty.lower_bound > 0);
  CHECK(hasty.lower_bound <= found.cost);
}

TEST_CASE("after reading, few steps are enough for the first set of equal tasks") {
  // 16,384 nodes in racks of 16, each with two gangs: 81,920 entries take 1,706 steps. The gang takes
  // eight slices, each in a rack.
  running in(1'024, 16);
  for (std::uint32_t n = 0; n < 1'024 * 16; ++n) {
    in.run(10 + n % 7, {{n, 4}});
    in.run(10 + n % 5, {{n, 4}});
  }
  topology_constraints gang;
  gang.groups = {{.tasks = 64, .gpus = 8, .slices = {{rack, 8}}}};
  topology_victim_search<uniform_tree> search(6'000);
  const victim_set found = in.solve(search, gang);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.steps <= 6'000);
  CHECK(found.cost == found.lower_bound);
}

TEST_CASE("no gang is evicted for a set that the budget does not pay for") {
  // The search ends amid the sets of the cell, with fewer steps left than a set takes. To evict the
  // other gangs would take them all.
  running in(16, 256);
  for (std::uint32_t n = 0; n < 4'096; ++n) in.run(1 + n % 7, {{n, 8}});
  topology_constraints gang;
  gang.groups = {{.tasks = 12, .gpus = 8, .spread = {{rack, 1}}}, {.tasks = 200, .gpus = 4}};
  topology_victim_search<uniform_tree> search(20'000);
  const victim_set found = search(in.capacities, gang, in.candidates, in.allocations);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.cost == 112);
  CHECK(found.steps < 20'000);
  CHECK(found.steps > 20'000 - 200 - 20'000 / 256);
}

TEST_CASE("few steps are enough for a set if few gangs run on the nodes that it takes") {
  // What fits takes a search, so the cheapest gangs first decide nothing; all 280 together do. Of
  // these, only the gangs on the nodes that the new gang takes need a fit each.
  rng random(17);
  running in(4, 70);
  for (std::uint32_t n = 0; n < 280; ++n) {
    const std::uint32_t gpus = 3 + random.uniform(6);
    in.run(1 + random.uniform(5), {{n, gpus}});
    in.capacities.set(n, 0);
  }
  topology_constraints gang;
  gang.required = rack;
  const std::uint32_t groups = 2 + random.uniform(5);
  for (const std::uint32_t gpus : {7U, 5U, 3U, 2U, 4U, 6U})
    if (gang.groups.size() < groups)
      gang.groups.push_back({.tasks = 1 + random.uniform(12), .gpus = gpus});
  gang.groups[0].spread = {{node, 1}};
  topology_victim_search<uniform_tree> search(2'250);
  const victim_set found = search(in.capacities, gang, in.candidates, in.allocations);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.cost == 86);
  CHECK(found.steps <= 2'250);
}

TEST_CASE("victims give back CPU and memory, too") {
  running in(1, 2);
  in.run(3, {{0, 2}});
  in.run(1, {{0, 2}});
  in.run(9, {{1, 8}});
  const std::vector<resources> hosts{{0, 100}, {0, 0}};
  const std::vector<resources> freed{{8, 0}, {2, 50}, {8, 8}};
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 1, .host = {8, 100}}};
  topology_victim_search<uniform_tree> search;
  victim_set found = search(in.capacities, gang, in.candidates, in.allocations, hosts, freed);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.cost == 3);
  CHECK(found.lower_bound == 3);
  gang.groups[0].host = {10, 150};
  found = search(in.capacities, gang, in.candidates, in.allocations, hosts, freed);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.cost == 4);
  gang.groups[0].host = {11, 0};
  found = search(in.capacities, gang, in.candidates, in.allocations, hosts, freed);
  CHECK(found.verdict == fit_verdict::does_not_fit);
  const std::vector<resources> nothing(3);
  gang.groups[0].host = {1, 0};
  found = search(in.capacities, gang, in.candidates, in.allocations, hosts, nothing);
  CHECK(found.verdict == fit_verdict::does_not_fit);
  found = search(in.capacities, gang, in.candidates, in.allocations);
  CHECK(found.verdict == fit_verdict::fits);
}

TEST_CASE("one victim where the cheapest first takes ten") {
  running in(2, 2);
  in.run(1, {{1, 1}});
  in.run(1, {{1, 1}});
  for (int i = 0; i < 8; ++i) in.run(1, {{0, 1}});
  in.run(7, {{1, 6}});
  in.run(2, {{2, 8}});
  in.run(9, {{3, 8}});
  topology_victim_search<uniform_tree> search;
  const victim_set found = search(in.capacities, in_rack(1, 8), in.candidates, in.allocations);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(std::vector<std::uint32_t>(found.victims.begin(), found.victims.end()) ==
        std::vector<std::uint32_t>{11});
}

TEST_CASE("GPUs are freed on one node, not on four") {
  running in(1, 4);
  for (std::uint32_t n = 0; n < 4; ++n) {
    in.run(10, {{n, 2}});
    in.run(10, {{n, 6}});
  }
  topology_victim_search<uniform_tree> search;
  const victim_set found = search(in.capacities, in_rack(1, 8), in.candidates, in.allocations);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.cost == 20);
  CHECK(found.lower_bound <= 20);
  CHECK(std::vector<std::uint32_t>(found.victims.begin(), found.victims.end()) ==
        std::vector<std::uint32_t>{0, 1});
}

TEST_CASE("a gang over two racks frees GPUs in both") {
  // To empty a rack costs 30 or 40. The gang over both racks costs 25, and its nodes are enough if no
  // rack is required.
  running in(2, 2);
  in.run(25, {{0, 8}, {2, 8}});
  in.run(10, {{1, 8}});
  in.run(20, {{3, 8}});
  topology_victim_search<uniform_tree> search;
  victim_set found;
  topology_constraints gang = in_rack(2, 8);
  found = search(in.capacities, gang, in.candidates, in.allocations);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.cost == 35);
  gang.preferred = rack;
  gang.required = any_level;
  found = search(in.capacities, gang, in.candidates, in.allocations);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.cost == 25);
}

TEST_CASE("gangs that free only CPU are no bound for the GPUs of a node") {
  running in(2, 1);
  for (const std::uint32_t n : {0U, 1U}) in.capacities.set(n, 0);
  in.run(3, {{0, 0}});
  in.run(100, {{0, 0}});
  in.run(5, {{1, 0}});
  in.hosts.assign(2, {});
  in.freed.assign(3, {.cpu_milli = 4});
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 0, .host = {.cpu_milli = 4}}};
  topology_victim_search<uniform_tree> search;
  victim_set found = in.solve(search, gang);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.cost == 3);
  CHECK(found.lower_bound == 3);
  // The same with GPUs: the gang of cost 100 has only CPU, of which there is enough.
  running with_gpus(2, 1);
  with_gpus.run(3, {{0, 8}});
  with_gpus.run(100, {{0, 0}});
  with_gpus.run(5, {{1, 8}});
  with_gpus.hosts.assign(2, {.cpu_milli = 1});
  with_gpus.freed.assign(3, {.cpu_milli = 1});
  gang.groups = {{.tasks = 1, .gpus = 8, .host = {.cpu_milli = 1}}};
  found = with_gpus.solve(search, gang);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.cost == 3);
  CHECK(found.lower_bound == 3);
}

TEST_CASE("a node with more gangs than can be combined does not use up the budget") {
  running in(2, 1);
  for (const std::uint32_t n : {0U, 1U}) in.capacities.set(n, 0);
  for (int i = 0; i < 70; ++i) in.run(1, {{0, 0}});
  in.run(3, {{1, 0}});
  in.hosts.assign(2, {});
  in.freed.assign(70, {.cpu_milli = 1});
  in.freed.push_back({.cpu_milli = 6});
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 0, .host = {.cpu_milli = 6}}};
  topology_victim_search<uniform_tree> search;
  const victim_set found = in.solve(search, gang);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.cost == 3);
  MESSAGE(found.steps, " steps");
  CHECK(found.steps < 10'000);
}

TEST_CASE("the bound of a search that ends early holds under disruption budgets") {
  // One tenant may lose one of its two gangs: the expensive one on two nodes.
  running in(3, 2);
  in.run(1, {{0, 8}});
  in.run(10, {{2, 8}, {3, 8}});
  in.run(3, {{4, 8}});
  for (const std::uint32_t n : {1U, 5U}) in.capacities.set(n, 0);
  const std::vector<std::uint32_t> tenants{0, 0, ~0U};
  const std::vector<disruption_budget> most{{.gangs = 1}};
  topology_constraints gang;
  gang.groups = {{.tasks = 3, .gpus = 8, .spread = {{node, 1}}}};
  for (std::uint64_t budget = 0; budget <= 2'000; ++budget) {
    CAPTURE(budget);
    topology_victim_search<uniform_tree> search(budget);
    const victim_set found = search(in.capacities, gang, in.candidates, in.allocations, {}, {},
                                    disruption_budgets{tenants, most, {}});
    REQUIRE(found.verdict != fit_verdict::does_not_fit);
    REQUIRE(found.lower_bound <= 13);
    if (found.verdict == fit_verdict::fits) REQUIRE(found.cost == 13);
    if (budget == 2'000) REQUIRE(found.verdict == fit_verdict::fits);
    if (budget == 2'000) REQUIRE(found.lower_bound == 13);
  }
}
