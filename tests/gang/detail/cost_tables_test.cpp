// apiary/tests/gang/detail/cost_tables_test.cpp - least costs of subsets of gangs, against all ways to place them.
// SPDX-License-Identifier: MIT
#include "support/levels.h"
#include "support/naive_cells.h"
#include "support/scale.h"
#include <apiary/core/lean_vector.h>
#include <apiary/core/rng.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/cost_tables.h>
#include <apiary/gang/detail/pareto_search.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

namespace tables_of_costs {
namespace {

using counts = naive_cells::counts;
using costs = std::map<counts, std::int64_t>;

// A class for each node; a vector has a fixed cost and a cost for each task, either may be negative.
struct node_prices {
  std::vector<std::set<counts>> holds{};  // capacities, constraints aside, closed downwards
  std::vector<std::vector<std::int64_t>> prices{};

  std::optional<std::int64_t> operator()(std::uint32_t n, class_vectors::counts v) const {
    if (!holds[n].contains(counts(v.begin(), v.end()))) return std::nullopt;
    std::int64_t cost = prices[n].back();
    for (std::size_t u = 0; u < v.size(); ++u) cost += prices[n][u] * v[u];
    return cost;
  }
};

// Of every vector that a cell can hold the least cost, level by level.
costs least(const test_cluster& cluster, const naive_cells& naive, const node_prices& price,
            level_t l, std::uint32_t c) {
  const counts none(naive.kinds().size(), 0);
  costs found{{none, 0}};
  if (l == node) {
    for (const counts& v : naive.held(node, c))
      if (v != none) found[v] = *price(c, v);
    return found;
  }
  for (const std::uint32_t part : naive.children(l, c)) {
    costs more;
    for (const auto& [a, cost_a] : found) {
      for (const auto& [b, cost_b] : least(cluster, naive, price, l - 1, part)) {
        counts sum = a;
        bool some = true;
        for (std::size_t u = 0; u < sum.size(); ++u) {
          sum[u] += b[u];
          some = some && sum[u] <= naive.kinds()[u].tasks;
        }
        if (!some) continue;
        const auto at = more.try_emplace(sum, cost_a + cost_b).first;
        at->second = std::min(at->second, cost_a + cost_b);
      }
    }
    found = more;
  }
  std::erase_if(found, [&](const auto& is) {
    for (std::size_t u = 0; u < is.first.size(); ++u)
      if (!naive.may(u, l, is.first[u])) return true;
    return false;
  });
  return found;
}

TEST_CASE("cost_tables: in every cell the least cost of a gang, a placement of it, all vectors") {
  std::size_t had = 0;
  std::size_t not_had = 0;
  for (std::uint64_t seed = 0; seed < scaled(1000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t most = 1 + random.uniform(6);
    const test_cluster cluster = random_small_cells(random, most);
    const topology_constraints gang = random_small_gang(random, std::min(most, 4U));
    const naive_cells naive(cluster, gang);
    colocated_groups groups;
    groups.assign(gang, node, cluster.tree.num_levels());
    if (groups.size() == 0) continue;
    topology_constraints unconstrained = gang;
    for (constrained_task_group& m : unconstrained.groups) {
      if (m.tasks == 0) continue;
      m.slices.clear();
      m.spread = {{node, m.tasks}};  // says nothing, and keeps the kinds apart
    }
    for (std::size_t m = 0; m < gang.groups.size(); ++m)
      if (naive.lowest_constraint(static_cast<std::uint32_t>(m)) == any_level)
        unconstrained.groups[m].spread.clear();
    const naive_cells capacities(cluster, unconstrained);
    node_prices price;
    std::vector<std::uint32_t> classes;
    for (std::uint32_t n = 0; n < cluster.num_nodes(); ++n) {
      classes.push_back(n);
      price.holds.push_back(capacities.held(node, n));
      std::vector<std::int64_t>& prices = price.prices.emplace_back();
      for (std::size_t u = 0; u <= groups.size(); ++u)
        prices.push_back(std::int64_t{random.uniform(9)} - 4);
    }
    class_vectors vectors;
    step_budget steps(10'000'000);
    REQUIRE(vectors.ask_alone(groups, node, cluster.num_nodes(), price, steps));
    REQUIRE(vectors.ask_all(price, steps));
    cost_tables<ragged_tree> tables;
    REQUIRE(tables.begin(cluster.tree, node, groups, classes, vectors, steps));
    for (level_t l = node; l <= cluster.tree.num_levels(); ++l) {
      for (std::uint32_t c = 0; c < naive.num_cells(l); ++c) {
        const costs expected = least(cluster, naive, price, l, c);
        const std::uint64_t before = steps.steps();
        const auto cost = tables.make(l, c, steps);
        const std::uint64_t needed = steps.steps() - before;
        REQUIRE(cost);
        std::set<counts> greatest;
        const pareto_front front = tables.greatest();
        for (std::size_t i = 0; i < front.size(); ++i)
          greatest.emplace(front[i].begin(), front[i].end());
        REQUIRE(greatest == naive.greatest(l, c));
        const auto whole = expected.find(naive.tasks());
        if (whole == expected.end()) {
          REQUIRE(*cost == cost_tables<ragged_tree>::never);
          ++not_had;
        } else {
          REQUIRE(*cost == whole->second);
          std::vector<counts> on(cluster.num_nodes(), counts(groups.size(), 0));
          apiary::detail::lean_vector<tasks_on_node> placed_here;
          tables.place(placed_here);
          for (const tasks_on_node& p : placed_here) {
            REQUIRE(p.tasks > 0);
            on[p.node][p.group] += p.tasks;
          }
          std::int64_t sum = 0;
          for (std::uint32_t n = 0; n < on.size(); ++n)
            if (on[n] != counts(groups.size(), 0)) sum += *price(n, on[n]);
          REQUIRE(sum == *cost);
          for (level_t k = node; k <= l; ++k) {
            for (std::uint32_t i = 0; i < naive.num_cells(k); ++i) {
              counts here(groups.size(), 0);
              for (std::uint32_t n = 0; n < on.size(); ++n)
                for (std::size_t u = 0; u < here.size(); ++u)
                  if (cluster.cell(n, k) == i) here[u] += on[n][u];
              REQUIRE(naive.held(k, i).contains(here));
              if (k == l) REQUIRE((here == naive.tasks()) == (i == c));
            }
          }
          ++had;
        }
        step_budget enough(needed);
        REQUIRE(tables.make(l, c, enough) == cost);
        step_budget few(needed - 1);
        REQUIRE(!tables.make(l, c, few));
      }
    }
    step_budget none(1);  // a gang has two vectors at least
    REQUIRE(!tables.begin(cluster.tree, node, groups, classes, vectors, none));
  }
  CHECK(had > 0);
  CHECK(not_had > 0);
}

}  // namespace
}  // namespace tables_of_costs
