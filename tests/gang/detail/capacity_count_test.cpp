// apiary/tests/gang/detail/capacity_count_test.cpp - capacity for one group of tasks, against all that cells can hold.
// SPDX-License-Identifier: MIT
#include "support/levels.h"
#include "support/naive_cells.h"
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/rng.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/capacity_count.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

namespace {

using node_units = std::pair<std::uint32_t, std::uint32_t>;  // a node, units there
std::vector<node_units> units_of(const apiary::detail::lean_vector<tasks_on_node>& placed) {
  std::vector<node_units> units;
  for (const tasks_on_node& p : placed) units.emplace_back(p.node, p.tasks);
  return units;
}

// The most tasks of one group that a cell can hold.
std::uint32_t most_held(const naive_cells& naive, std::size_t kind, level_t l, std::uint32_t c) {
  std::uint32_t most = 0;
  for (const auto& v : naive.held(l, c)) most = std::max(most, v[kind]);
  return most;
}

// Whether these are n tasks in cell c, within the constraints and the capacity of every cell in it.
bool is_capacity_used(const test_cluster& cluster, const naive_cells& naive, std::size_t kind,
                      level_t l, std::uint32_t c, std::uint32_t n,
                      const std::vector<node_units>& used) {
  std::uint32_t sum = 0;
  for (const auto& [at, groups] : used) {
    if (groups == 0 || cluster.cell(at, l) != c) return false;
    sum += groups;
  }
  if (sum != n) return false;
  for (level_t k = node; k <= l; ++k) {
    for (std::uint32_t i = 0; i < naive.num_cells(k); ++i) {
      std::uint32_t here = 0;
      for (const auto& [at, groups] : used)
        if (cluster.cell(at, k) == i) here += groups;
      if (!naive.may(kind, k, here)) return false;
      if (k == node && here > most_held(naive, kind, node, i)) return false;
    }
  }
  return true;
}

// A small random cluster and a gang, for which the capacity of cells is counted in both ways.
struct counted_cells {
  std::uint32_t most;  // leaves of a node
  test_cluster cluster;
  topology_constraints gang;
  naive_cells naive;
  capacity_index<ragged_tree> capacities;
  colocated_groups groups;
  capacity_count<ragged_tree> count;
  explicit counted_cells(rng& random)
      : most(1 + random.uniform(6)),
        cluster(random_small_cells(random, most)),
        gang(random_small_gang(random, most)),
        naive(cluster, gang),
        capacities(capacities_of_cells(cluster, most)),
        groups(colocated(gang, capacities.top())),
        count(capacities, groups, cluster.hosts) {}

 private:
  static colocated_groups colocated(const topology_constraints& gang, level_t top) {
    colocated_groups groups;
    groups.assign(gang, node, top);
    return groups;
  }
};

}  // namespace

TEST_CASE("capacity_count: capacities and placements are those of trying every vector") {
  std::size_t some = 0;
  for (std::uint64_t seed = 0; seed < scaled(250U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    counted_cells in(random);
    for (std::uint32_t u = 0; u < in.groups.size(); ++u) {
      for (level_t l = node; l <= in.capacities.top(); ++l) {
        const auto found = in.count.count(u, l);
        const std::vector<std::uint32_t> held_by(found.begin(), found.end());
        REQUIRE(held_by.size() == in.naive.num_cells(l));
        for (std::uint32_t c = 0; c < held_by.size(); ++c) {
          REQUIRE(held_by[c] == most_held(in.naive, u, l, c));
          const std::uint32_t step = in.groups.at(u, l).step;
          for (std::uint32_t n = 0; n <= held_by[c]; n += step) {
            for (const gang_objective objective :
                 {gang_objective::whole_cells, gang_objective::fewest_nodes}) {
              apiary::detail::lean_vector<tasks_on_node> placed;
              in.count.place(u, l, c, n, objective, placed);
              const std::vector<node_units> used = units_of(placed);
              REQUIRE(is_capacity_used(in.cluster, in.naive, u, l, c, n, used));
            }
            some += n > 0 ? 1U : 0U;
          }
        }
      }
    }
  }
  CHECK(some > 0);
}

TEST_CASE("capacity_count: the fewest nodes, the last one the fullest that is enough") {
  for (std::uint64_t seed = 0; seed < scaled(400U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t nodes = 1 + random.uniform(8);
    test_cluster cluster{ragged_tree({{1}, {nodes}, std::vector<std::uint32_t>(nodes, 8)}), {}, {}};
    for (std::uint32_t n = 0; n < nodes; ++n) cluster.free.push_back(random.uniform(9));
    if (random.uniform(2) == 0)
      for (std::uint32_t n = 0; n < nodes; ++n) cluster.hosts.push_back({random.uniform(9), 9});
    topology_constraints gang;
    gang.groups = {{64, 1 + random.uniform(3), {random.uniform(2), 0}}};
    if (random.uniform(2) == 0) gang.groups[0].slices = {{node, 2}};
    const auto capacities = capacities_of_cells(cluster, 8);
    colocated_groups groups;
    groups.assign(gang, node, capacities.top());
    capacity_count<ragged_tree> count(capacities, groups, cluster.hosts);
    const auto at_nodes = count.count(0, node);
    const std::vector<std::uint32_t> held_by(at_nodes.begin(), at_nodes.end());
    std::vector<std::uint32_t> sorted = held_by;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const std::uint32_t all = count.count(0, rack)[0];
    REQUIRE(all == std::accumulate(held_by.begin(), held_by.end(), 0U));
    for (std::uint32_t n = groups.at(0, node).step; n <= all; n += groups.at(0, node).step) {
      apiary::detail::lean_vector<tasks_on_node> placed;
      count.place(0, rack, 0, n, gang_objective::fewest_nodes, placed);
      const std::vector<node_units> used = units_of(placed);
      std::size_t fewest = 0;
      for (std::uint32_t sum = 0; sum < n; ++fewest) sum += sorted[fewest];
      REQUIRE(used.size() == fewest);
      // All but the last are filled, in the order of their capacity; no other that is left over would
      // do for the last and has less capacity, or as much and less free, or a lower position.
      for (std::size_t i = 0; i + 1 < used.size(); ++i) {
        CHECK(used[i].second == held_by[used[i].first]);
        CHECK(used[i].second == sorted[i]);
      }
      const auto [last, rest] = used.back();
      REQUIRE(rest <= held_by[last]);
      for (std::uint32_t other = 0; other < nodes; ++other) {
        bool taken = false;
        for (const auto& [at, here] : used) taken = taken || at == other;
        if (taken || held_by[other] < rest) continue;
        const auto rank = [&](std::uint32_t at) {
          return std::tuple(held_by[at], cluster.free[at], at);
        };
        CHECK(rank(other) > rank(last));
      }
    }
  }
}

namespace {

// The most nodes with most free leaves that can be left as they are when n units are put on nodes.
std::uint32_t most_untouched(const test_cluster& cluster, const std::vector<std::uint32_t>& held_by,
                             std::uint32_t step, std::uint32_t n, std::uint32_t at) {
  const std::uint32_t highest = *std::max_element(cluster.free.begin(), cluster.free.end());
  if (at == cluster.num_nodes()) return n == 0 ? 0 : cluster.num_nodes() + 1;  // no way
  std::uint32_t best = cluster.num_nodes() + 1;
  for (std::uint32_t here = 0; here <= std::min(n, held_by[at]); here += step) {
    const std::uint32_t rest = most_untouched(cluster, held_by, step, n - here, at + 1);
    if (rest > cluster.num_nodes()) continue;
    const std::uint32_t all = rest + (here == 0 && cluster.free[at] == highest ? 1U : 0U);
    best = best > cluster.num_nodes() ? all : std::max(best, all);
  }
  return best;
}

}  // namespace

TEST_CASE("capacity_count: the fullest nodes first, and whole nodes stay whole wherever they can") {
  std::size_t skipped = 0;
  for (std::uint64_t seed = 0; seed < scaled(2000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t nodes = 2 + random.uniform(4);
    test_cluster cluster{ragged_tree({{1}, {nodes}, std::vector<std::uint32_t>(nodes, 8)}), {}, {}};
    for (std::uint32_t n = 0; n < nodes; ++n)
      cluster.free.push_back(random.uniform(3) == 0 ? 8 : random.uniform(5));
    if (random.uniform(2) == 0)
      for (std::uint32_t n = 0; n < nodes; ++n) cluster.hosts.push_back({random.uniform(9), 9});
    topology_constraints gang;
    gang.groups = {{64, random.uniform(4), {random.uniform(3), 0}}};
    if (random.uniform(3) == 0) gang.groups[0].slices = {{node, 2}};
    if (random.uniform(3) == 0) gang.groups[0].spread = {{node, 2}};
    const auto capacities = capacities_of_cells(cluster, 8);
    colocated_groups groups;
    groups.assign(gang, node, capacities.top());
    capacity_count<ragged_tree> count(capacities, groups, cluster.hosts);
    const auto at_nodes = count.count(0, node);
    const std::vector<std::uint32_t> held_by(at_nodes.begin(), at_nodes.end());
    const std::uint32_t step = groups.at(0, node).step;
    const std::uint32_t all = std::min(count.count(0, rack)[0], 8U);
    for (std::uint32_t n = step; n <= all; n += step) {
      apiary::detail::lean_vector<tasks_on_node> placed;
      count.place(0, rack, 0, n, gang_objective::whole_cells, placed);
      const std::vector<node_units> used = units_of(placed);
      std::uint32_t untouched = 0;
      const std::uint32_t highest = *std::max_element(cluster.free.begin(), cluster.free.end());
      for (std::uint32_t at = 0; at < nodes; ++at) {
        const auto is = [&](const node_units& u) { return u.first == at; };
        const bool taken = std::any_of(used.begin(), used.end(), is);
        untouched += !taken && cluster.free[at] == highest ? 1U : 0U;
        // What is less free and not used up has no capacity.
        if (!taken && held_by[at] > 0) CHECK(cluster.free[at] >= cluster.free[used.back().first]);
      }
      REQUIRE(untouched == most_untouched(cluster, held_by, step, n, 0));
      skipped += untouched;
    }
  }
  CHECK(skipped > 0);
}

TEST_CASE("capacity_count: what cells bear is what the proof says they do") {
  std::size_t several = 0;
  for (std::uint64_t seed = 0; seed < scaled(400U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    counted_cells in(random);
    for (int round = 0; round < 4; ++round) {
      std::vector<std::uint32_t> weights;
      for (std::size_t u = 0; u < in.groups.size(); ++u) weights.push_back(random.uniform(4));
      several += std::count(weights.begin(), weights.end(), 0U) + 1 < std::ssize(weights) ? 1U : 0U;
      for (level_t l = node; l <= in.capacities.top(); ++l) {
        const auto max_weight = in.count.max_weights(weights, l);
        REQUIRE(max_weight.size() == in.naive.num_cells(l));
        for (std::uint32_t c = 0; c < max_weight.size(); ++c)
          CHECK(max_weight[c] == in.naive.max_weight(weights, l, c));
      }
    }
  }
  CHECK(several > 0);
}
