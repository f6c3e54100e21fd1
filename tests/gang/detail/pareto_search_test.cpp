// apiary/tests/gang/detail/pareto_search_test.cpp - fronts of cells, against every vector that they hold.
// SPDX-License-Identifier: MIT
#include "support/levels.h"
#include "support/naive_cells.h"
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/rng.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/pareto_search.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

namespace {

constexpr std::uint64_t much = ~std::uint64_t{0} >> 1;

using held_vectors = std::set<naive_cells::counts>;

// As a set, and in ascending order as it stands.
held_vectors vectors_in(const pareto_front& front) {
  std::vector<naive_cells::counts> all;
  for (std::size_t i = 0; i < front.size(); ++i) all.emplace_back(front[i].begin(), front[i].end());
  CHECK(std::is_sorted(all.begin(), all.end()));
  return {all.begin(), all.end()};
}

// The whole gang is where place() puts it, in cells that hold what they have of it.
void check_front_placed(pareto_search<ragged_tree>& search, const test_cluster& cluster,
                        const naive_cells& naive, level_t l, std::uint32_t c) {
  std::vector<naive_cells::counts> on(cluster.num_nodes(),
                                      naive_cells::counts(naive.tasks().size()));
  apiary::detail::lean_vector<tasks_on_node> placed;
  search.place(placed);
  for (const tasks_on_node& p : placed) {
    REQUIRE(p.node < on.size());
    on[p.node][p.group] += p.tasks;
  }
  for (level_t k = node; k <= l; ++k) {
    for (std::uint32_t i = 0; i < naive.num_cells(k); ++i) {
      naive_cells::counts here(naive.tasks().size(), 0);
      for (std::uint32_t n = 0; n < on.size(); ++n)
        for (std::size_t u = 0; u < here.size(); ++u)
          if (cluster.cell(n, k) == i) here[u] += on[n][u];
      REQUIRE(naive.held(k, i).contains(here));
      if (k == l) REQUIRE(here == (i == c ? naive.tasks() : naive_cells::counts(here.size(), 0)));
    }
  }
}

}  // namespace

TEST_CASE("pareto_search: the front is the greatest of all vectors that the cell holds") {
  std::size_t placed = 0;
  std::size_t several = 0;
  pareto_search<ragged_tree> search;  // the same one for all: begin() leaves nothing behind
  for (std::uint64_t seed = 0; seed < scaled(300U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const std::uint32_t most = 1 + random.uniform(8);
    const test_cluster cluster = random_small_cells(random, most);
    const topology_constraints gang = random_small_gang(random, std::min(most, 4U));
    const naive_cells naive(cluster, gang);
    const auto capacities = capacities_of_cells(cluster, most);
    colocated_groups groups;
    groups.assign(gang, node, capacities.top());
    search.begin(capacities, groups, cluster.hosts);
    for (level_t l = node; l <= capacities.top(); ++l) {
      for (std::uint32_t c = 0; c < naive.num_cells(l); ++c) {
        CAPTURE(l);
        CAPTURE(c);
        const held_vectors held = naive.held(l, c);
        REQUIRE(search.make(l, c, much));
        const held_vectors front = vectors_in(search.front());
        REQUIRE(front == naive.greatest(l, c));
        several += front.size() > 1 ? 1U : 0U;
        // Of what it covers the cell holds exactly the whole steps.
        held_vectors all{naive_cells::counts(groups.size(), 0)};
        for (std::size_t u = 0; u < groups.size(); ++u) {
          const held_vectors fewer = all;
          for (naive_cells::counts v : fewer)
            for (; v[u] <= groups[u].tasks; ++v[u]) all.insert(v);
        }
        for (const naive_cells::counts& v : all) {
          bool steps = true;
          for (std::size_t u = 0; u < v.size(); ++u)
            steps = steps && v[u] % groups.at(u, l).step == 0;
          REQUIRE((steps && search.front().covers(v)) == held.contains(v));
        }
        REQUIRE(search.holds_gang() == held.contains(naive.tasks()));
        if (!search.holds_gang()) continue;
        check_front_placed(search, cluster, naive, l, c);
        ++placed;
      }
    }
  }
  CHECK(placed > 0);
  if (scale() >= 1) CHECK(several > 100);
}

TEST_CASE("pareto_search: a budget is kept, and what it ended is made again") {
  for (std::uint64_t seed = 0; seed < scaled(300U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const test_cluster cluster = random_small_cells(random, 8);
    const topology_constraints gang = random_small_gang(random, 4);
    const auto capacities = capacities_of_cells(cluster, 8);
    colocated_groups groups;
    groups.assign(gang, node, capacities.top());
    pareto_search<ragged_tree> fresh;
    fresh.begin(capacities, groups, cluster.hosts);
    REQUIRE(fresh.make(capacities.top(), 0, much));
    const pareto_front front = fresh.front();
    const std::uint64_t needed = fresh.steps();
    for (const std::uint64_t budget : {needed - 1, needed / 2, std::uint64_t{0}}) {
      if (needed == 0) break;
      pareto_search<ragged_tree> search;
      search.begin(capacities, groups, cluster.hosts);
      REQUIRE(!search.make(capacities.top(), 0, budget));
      REQUIRE(search.steps() == budget);
      REQUIRE(search.make(capacities.top(), 0, needed));
      CHECK(search.steps() <= needed);  // nodes that were looked at are known
      CHECK(search.front() == front);
    }
  }
}
