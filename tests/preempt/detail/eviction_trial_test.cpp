// apiary/tests/preempt/detail/eviction_trial_test.cpp - capacities and hosts while gangs are evicted.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/rng.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/detail/eviction_states.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <support/levels.h>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

namespace {

// With few nodes, reprieve_all() sets each node; with many, it reprieves each gang.
void change_gangs(std::uint32_t racks, std::uint32_t nodes) {
  capacity_index<uniform_tree> capacities(uniform_tree{racks, nodes / racks, 8}, node, 8);
  for (std::uint32_t n = 0; n < 4; ++n) capacities.set(n, n);
  const std::vector<gpus_on_node> allocations{{0, 4}, {1, 2}, {0, 3}, {3, 5}};
  const std::vector<resources> freed{{4, 1}, {2, 0}, {3, 0}, {5, 7}};
  const std::vector<eviction_candidate> candidates{{1, 0, 2}, {1, 2, 3}, {1, 3, 4}, {1, 4, 4}};
  std::vector<resources> hosts{{1, 1}, {2, 2}, {3, 3}, {4, 4}};
  hosts.resize(nodes);
  eviction_trial<uniform_tree> trial;
  for (const bool hosted : {true, false}) {
    CAPTURE(hosted);
    if (hosted) {
      trial.begin(capacities, candidates, allocations, hosts, freed);
    } else {
      trial.begin(capacities, candidates, allocations, {}, {});
    }
    std::set<std::uint32_t> out;
    std::set<std::uint32_t> tried;
    rng random(1);
    for (int step = 0; step < 300; ++step) {
      CAPTURE(step);
      const std::uint32_t j = random.uniform(4);
      switch (random.uniform(8)) {
        case 0:
          trial.reprieve_all();
          out.clear();
          tried.clear();
          break;
        case 1:
        case 2:
        case 3:
          trial.set_evicted(j, false);
          out.erase(j);
          break;
        default:
          trial.evict(j);
          out.insert(j);
          tried.insert(j);
      }
      std::vector<std::uint32_t> free{0, 1, 2, 3};
      free.resize(nodes);
      std::vector<resources> left = hosts;
      for (std::uint32_t c = 0; c < 4; ++c) {
        REQUIRE(trial.evicted(c) == out.contains(c));
        for (std::uint32_t s = candidates[c].first; s < candidates[c].last && out.contains(c);
             ++s) {
          free[allocations[s].node] += allocations[s].gpus;
          left[allocations[s].node] += freed[s];
        }
      }
      REQUIRE(std::equal(free.begin(), free.end(), capacities.free().begin()));
      REQUIRE(trial.hosts().size() == (hosted ? nodes : 0));
      REQUIRE(std::equal(trial.hosts().begin(), trial.hosts().end(), left.begin()));
      REQUIRE(trial.tried().size() == tried.size());
      REQUIRE(std::set<std::uint32_t>(trial.tried().begin(), trial.tried().end()) == tried);
    }
    trial.reprieve_all();
  }
}

}  // namespace

TEST_CASE("eviction_trial: GPUs, CPU and memory change with the gangs") {
  change_gangs(2, 4);
  change_gangs(2, 128);
}
