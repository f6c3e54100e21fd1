// apiary/tests/gang/detail/cell_weighings_test.cpp - weights never refuse a cell that holds the gang.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/refusals.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <support/levels.h>
#include <support/naive_cells.h>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

TEST_CASE(
    "cell_weighings: refuse no cell that holds the gang, and the cell for which they are found") {
  std::uint32_t held = 0;
  std::uint32_t found = 0;
  std::uint32_t elsewhere = 0;  // a weighing refuses another cell, too
  for (std::uint64_t seed = 0; seed < scaled(2'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    constexpr std::uint32_t most = 6;
    const test_cluster cluster = random_small_cells(random, most);
    const topology_constraints gang = random_small_gang(random, 4);
    const auto capacities = capacities_of_cells(cluster, most);
    colocated_groups groups;
    groups.assign(gang, node, capacities.top());
    cell_weighings<ragged_tree> weighings;
    weighings.begin(capacities, groups);
    const naive_cells naive(cluster, gang);
    for (level_t l = rack; l <= capacities.top(); ++l)
      for (std::uint32_t c = 0; c < capacities.num_cells(l); ++c) {
        step_budget steps(10'000);
        const std::size_t before = weighings.all().size();
        const bool refused = weighings.refuse(l, c);
        const bool finds = weighings.find(l, c, steps);
        REQUIRE(weighings.all().size() == before + (finds ? 1U : 0U));
        REQUIRE((!finds || weighings.refuse(l, c, before)));
        REQUIRE((!refused || finds || steps.ended()));
        found += finds ? 1U : 0U;
        elsewhere += refused ? 1U : 0U;
      }
    const naive_cells::counts all = naive.tasks();
    for (level_t l = rack; l <= capacities.top(); ++l)
      for (std::uint32_t c = 0; c < capacities.num_cells(l); ++c) {
        if (!naive.held(l, c).contains(all)) continue;
        ++held;
        REQUIRE(!weighings.refuse(l, c));
      }
  }
  CHECK(held > 0);
  CHECK(found > 0);
  CHECK(elsewhere > 0);
}

TEST_CASE("cell_weighings: groups of one size count together, unless one has constraints") {
  capacity_index<ragged_tree> capacities(ragged_tree({{1}, {2}, {4, 4}}), node, 4);
  capacities.set(0, 4);
  capacities.set(1, 3);
  topology_constraints gang;
  gang.groups = {{.tasks = 2, .gpus = 2}, {.tasks = 2, .gpus = 2, .models = 1}, {.tasks = 5}};
  colocated_groups groups;
  groups.assign(gang, node, capacities.top());
  REQUIRE(groups.size() == 3);
  cell_weighings<ragged_tree> weighings;
  weighings.begin(capacities, groups);
  step_budget steps(1'000);
  REQUIRE(weighings.find(rack, 0, steps));
  const auto& found = weighings.all()[0];
  CHECK(found.weights[0] == found.weights[1]);
  CHECK(found.weights[2] == 0);  // it needs no GPUs
  CHECK(found.needed == 4 * std::uint64_t{found.weights[0]});
  CHECK(found.of_free[1] == 0);
  CHECK(found.of_free[4] == 2 * std::int64_t{found.weights[0]});

  gang.groups[1].spread = {{node, 1}};  // a node holds one of them
  groups.assign(gang, node, capacities.top());
  weighings.begin(capacities, groups);
  CHECK(weighings.all().empty());
  const std::vector<std::uint32_t> weights{0, 3, 0};
  weighings.add(weights);
  CHECK(weighings.all()[0].needed == 6);
  CHECK(weighings.all()[0].of_free == detail::lean_vector<std::int64_t>{0, 0, 3, 3, 3});
  CHECK(!weighings.refuse(rack, 0));
  capacities.set(1, 1);
  CHECK(weighings.refuse(rack, 0));
  CHECK(!weighings.refuse(rack, 0, 1));
}
