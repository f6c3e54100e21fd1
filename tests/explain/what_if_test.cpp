// apiary/tests/explain/what_if_test.cpp - gangs placed and evicted in a transaction, and rolled back.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/alloc/journal.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/explain/what_if.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/topology_victim_search.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <support/levels.h>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

// Capacities and hosts, and the same kept by plain sums.
struct tried_state {
  capacity_index<uniform_tree> capacities{uniform_tree{2, 3, 8}, node, 8};
  std::vector<resources> hosts = std::vector<resources>(6);

  struct sums {
    std::vector<std::uint32_t> free;
    std::vector<resources> hosts;
    friend bool operator==(const sums&, const sums&) = default;
  };
  [[nodiscard]] sums now() const {
    return {{capacities.free().begin(), capacities.free().end()}, hosts};
  }
  [[nodiscard]] bool is(const sums& s) const {
    capacity_index<uniform_tree> fresh(uniform_tree{2, 3, 8}, node, 8);
    for (std::uint32_t n = 0; n < 6; ++n) fresh.set(n, s.free[n]);
    for (std::uint32_t t = 1; t <= 8; ++t)
      for (const level_t l : {level_t{rack}, capacities.top()}) {
        const auto a = fresh.slots(l, t);
        const auto b = capacities.slots(l, t);
        if (!std::equal(a.begin(), a.end(), b.begin(), b.end())) return false;
      }
    return now() == s;
  }
};

topology_constraints a_task(std::uint32_t leaves, std::uint32_t cores) {
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = leaves, .host = {cores * 1'000, 0}}};
  return gang;
}

}  // namespace

TEST_CASE(
    "what a placement takes of a host is not free for the next one, until it is rolled back") {
  capacity_index<uniform_tree> capacities(uniform_tree{1, 1, 8}, node, 8);
  capacities.set(0, 8);
  std::vector<resources> hosts{{96'000, 0}};
  const topology_constraints a = a_task(4, 96);
  const topology_constraints b = a_task(4, 96);
  topology_fit<uniform_tree> fit;
  journal log;
  {
    transaction tx(log);
    const auto found = fit(capacities, a, hosts);
    REQUIRE(found.verdict == fit_verdict::fits);
    journaled::place_gang<uniform_tree>(tx, capacities, a, found.portions, hosts);
    CHECK(hosts[0].cpu_milli == 0);
    CHECK(fit(capacities, b, hosts).verdict == fit_verdict::does_not_fit);
    CHECK(fit(capacities, b).verdict == fit_verdict::fits);
  }
  CHECK(hosts[0].cpu_milli == 96'000);
  CHECK(capacities.free(0) == 8);
  CHECK(fit(capacities, b, hosts).verdict == fit_verdict::fits);
}

TEST_CASE("the victims of a search are evicted, the gang is placed, and all is rolled back") {
  capacity_index<uniform_tree> capacities(uniform_tree{1, 2, 8}, node, 8);
  std::vector<resources> hosts{{0, 0}, {4'000, 0}};
  const std::vector<eviction_candidate> candidates{{5, 0, 1}, {3, 1, 2}, {1, 2, 3}};
  const std::vector<gpus_on_node> allocations{{0, 8}, {1, 4}, {1, 4}};
  const std::vector<resources> freed{{96'000, 0}, {92'000, 0}, {0, 0}};
  const topology_constraints gang = a_task(4, 90);
  topology_victim_search<uniform_tree> search;
  const victim_set found = search(capacities, gang, candidates, allocations, hosts, freed);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.cost == 3);
  topology_fit<uniform_tree> fit;
  journal log;
  {
    transaction tx(log);
    for (const std::uint32_t j : found.victims)
      journaled::evict_gang(tx, capacities, candidates[j], allocations, hosts, freed);
    CHECK(capacities.free(1) == 4);
    CHECK(hosts[1] == resources{96'000, 0});
    const auto fitted = fit(capacities, gang, hosts);
    REQUIRE(fitted.verdict == fit_verdict::fits);
    {
      transaction inside(log);
      journaled::place_gang<uniform_tree>(inside, capacities, gang, fitted.portions, hosts);
      CHECK(hosts[1] == resources{6'000, 0});
      CHECK(fit(capacities, gang, hosts).verdict == fit_verdict::does_not_fit);
    }
    CHECK(fit(capacities, gang, hosts).verdict == fit_verdict::fits);
  }
  CHECK(capacities.free(1) == 0);
  CHECK(hosts == std::vector<resources>{{0, 0}, {4'000, 0}});
}

TEST_CASE("any gangs placed and evicted, one in the other: as plain sums, and rolled back") {
  std::uint32_t placed = 0;
  std::uint32_t evicted = 0;
  for (std::uint64_t seed = 0; seed < scaled(2'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    tried_state state;
    std::vector<eviction_candidate> candidates;
    std::vector<gpus_on_node> allocations;
    std::vector<resources> freed;
    for (std::uint32_t j = 0; j < 4; ++j) {
      const auto first = static_cast<std::uint32_t>(allocations.size());
      for (std::uint32_t n = 0; n < 6; ++n) {
        if (random.uniform(2) == 0) continue;
        allocations.push_back({n, random.uniform(3)});
        freed.push_back({random.uniform(50), random.uniform(50)});
      }
      candidates.push_back({1, first, static_cast<std::uint32_t>(allocations.size())});
    }
    std::vector<std::uint32_t> used(6, 0);
    for (const gpus_on_node& s : allocations) used[s.node] += s.gpus;
    for (std::uint32_t n = 0; n < 6; ++n) {
      state.capacities.set(n, random.uniform(8 - used[n] + 1));
      state.hosts[n] = {random.uniform(100), random.uniform(100)};
    }
    const bool hosted = random.uniform(4) > 0;
    journal log;
    topology_fit<uniform_tree> fit;
    std::vector<bool> out(4, false);
    const auto deeper = [&](const auto& again, int depth) -> void {
      const auto before = state.now();
      const std::vector<bool> out_before = out;
      {
        transaction tx(log);
        auto expected = before;
        for (int step = 0; step < 3; ++step) {
          if (const std::uint32_t j = random.uniform(4); random.uniform(2) == 0 && !out[j]) {
            out[j] = true;
            ++evicted;
            if (hosted) {
              journaled::evict_gang(tx, state.capacities, candidates[j], allocations, state.hosts,
                                    freed);
            } else {
              journaled::evict_gang(tx, state.capacities, candidates[j], allocations);
            }
            for (std::uint32_t s = candidates[j].first; s < candidates[j].last; ++s) {
              expected.free[allocations[s].node] += allocations[s].gpus;
              if (hosted) expected.hosts[allocations[s].node] += freed[s];
            }
          } else if (random.uniform(2) == 0) {
            topology_constraints gang;
            gang.groups = {{1 + random.uniform(3), random.uniform(3), {random.uniform(50), 5}},
                           {random.uniform(3), 1 + random.uniform(3), {1, random.uniform(50)}}};
            const auto found =
                fit(state.capacities, gang, hosted ? state.hosts : std::vector<resources>{});
            if (found.verdict != fit_verdict::fits) continue;
            ++placed;
            if (hosted) {
              journaled::place_gang<uniform_tree>(tx, state.capacities, gang, found.portions,
                                                  state.hosts);
            } else {
              journaled::place_gang<uniform_tree>(tx, state.capacities, gang, found.portions);
            }
            for (const tasks_on_node& p : found.portions) {
              const constrained_task_group& m = gang.groups[p.group];
              expected.free[p.node] -= p.tasks * m.gpus;
              for (std::uint32_t i = 0; i < p.tasks && hosted; ++i)
                expected.hosts[p.node] -= m.host;
            }
          } else if (depth > 0) {
            again(again, depth - 1);
          }
          REQUIRE(state.is(expected));
        }
      }
      out = out_before;
      REQUIRE(state.is(before));
    };
    deeper(deeper, 2);
  }
  MESSAGE(placed, " placed, ", evicted, " evicted");
  CHECK(placed > scaled(2'000U) / 4);
  CHECK(evicted > scaled(2'000U) / 4);
}

TEST_CASE("the journal records what changes, whatever the size of the cluster") {
  for (const std::uint32_t racks : {1U, 1'000U}) {
    CAPTURE(racks);
    capacity_index<uniform_tree> capacities(uniform_tree{racks, 4, 8}, node, 8);
    std::vector<resources> hosts(capacities.num_nodes(), resources{8'000, 0});
    const std::vector<gpus_on_node> allocations{{0, 8}, {2, 8}};
    const std::vector<resources> freed(2, resources{1'000, 0});
    journal log;
    transaction tx(log);
    journaled::evict_gang(tx, capacities, {1, 0, 2}, allocations, hosts, freed);
    CHECK(log.mark() == 4);
    topology_constraints gang = a_task(8, 9);
    gang.groups[0].tasks = 2;
    topology_fit<uniform_tree> fit;
    const auto found = fit(capacities, gang, hosts);
    REQUIRE(found.verdict == fit_verdict::fits);
    journaled::place_gang<uniform_tree>(tx, capacities, gang, found.portions, hosts);
    CHECK(log.mark() == 8);
  }
}
