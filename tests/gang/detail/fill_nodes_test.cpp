// apiary/tests/gang/detail/fill_nodes_test.cpp - node after node: a placement that is found is valid.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/rng.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/greedy.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using apiary_test::scaled;

TEST_CASE("fill_nodes: all tasks are placed within GPUs, CPU, memory and the limits of a node") {
  rng random(41);
  fill_nodes<uniform_tree> fill;
  std::uint32_t placed = 0;
  std::uint32_t refused = 0;
  for (std::uint32_t round = 0; round < scaled(5'000U); ++round) {
    capacity_index<uniform_tree> capacities(uniform_tree{3, 4, 8}, 1, 8);
    std::vector<resources> hosts;
    for (std::uint32_t n = 0; n < 12; ++n) {
      capacities.set(n, random.uniform(9));
      hosts.push_back({random.uniform(20), random.uniform(20)});
    }
    const bool hosted = random.uniform(2) == 0;
    topology_constraints gang;
    for (std::uint32_t m = 1 + random.uniform(4); m > 0; --m) {
      constrained_task_group& group = gang.groups.emplace_back();
      group.gpus = random.uniform(5);
      group.tasks = 1 + random.uniform(6);
      group.host = {random.uniform(4), random.uniform(4)};
      if (random.uniform(4) == 0) group.spread = {{1, 1 + random.uniform(3)}};
      if (random.uniform(4) == 0 && group.tasks % 2 == 0) group.slices = {{1, 2}};
    }
    colocated_groups groups;
    groups.assign(gang, 1, capacities.top());
    std::vector<std::uint32_t> order;
    for (std::uint32_t u = 0; u < groups.size(); ++u) order.push_back(u);
    step_budget steps(random.uniform(3) == 0 ? random.uniform(20) : 1'000);
    const std::uint32_t rack = random.uniform(3);
    apiary::detail::lean_vector<tasks_on_node> to{{99, 99, 99}};
    const auto objective =
        random.uniform(2) == 0 ? gang_objective::whole_cells : gang_objective::fewest_nodes;
    if (!fill(capacities, groups, hosted ? hosts : std::vector<resources>{}, order, objective, 2,
              rack, steps, to)) {
      REQUIRE(to.size() == 1);
      ++refused;
      continue;
    }
    ++placed;
    REQUIRE_FALSE(steps.ended());
    std::vector<std::uint64_t> tasks(groups.size(), 0);
    std::array<std::array<std::uint64_t, 3>, 12> taken{};
    for (std::size_t i = 1; i < to.size(); ++i) {
      const tasks_on_node& p = to[i];
      REQUIRE(p.node / 4 == rack);
      REQUIRE(groups.bound(p.group, 1, p.tasks) == p.tasks);
      tasks[p.group] += p.tasks;
      taken[p.node][0] += std::uint64_t{p.tasks} * groups[p.group].gpus;
      taken[p.node][1] += p.tasks * groups[p.group].cpu_milli;
      taken[p.node][2] += p.tasks * groups[p.group].memory_mib;
      for (std::size_t j = 1; j < i; ++j) REQUIRE((to[j].node != p.node || to[j].group != p.group));
    }
    for (std::size_t u = 0; u < groups.size(); ++u) REQUIRE(tasks[u] == groups[u].tasks);
    for (std::uint32_t n = 0; n < 12; ++n) {
      REQUIRE(taken[n][0] <= capacities.free(n));
      if (hosted) REQUIRE(taken[n][1] <= hosts[n].cpu_milli);
      if (hosted) REQUIRE(taken[n][2] <= hosts[n].memory_mib);
    }
  }
  if (apiary_test::scale() >= 1) {
    CHECK(placed > 500);
    CHECK(refused > 500);
  }
}

TEST_CASE("fill_nodes: constraints between the nodes and the cell are not for it") {
  capacity_index<uniform_tree> capacities(uniform_tree{3, 4, 8}, 1, 8);
  for (std::uint32_t n = 0; n < 12; ++n) capacities.set(n, 8);
  topology_constraints gang;
  gang.groups = {{.tasks = 2, .gpus = 1, .spread = {{2, 1}}}};
  colocated_groups groups;
  groups.assign(gang, 1, capacities.top());
  step_budget steps(1'000);
  apiary::detail::lean_vector<tasks_on_node> to;
  fill_nodes<uniform_tree> fill;
  const std::vector<std::uint32_t> order{0};
  CHECK_FALSE(fill(capacities, groups, {}, order, gang_objective::whole_cells, capacities.top(), 0,
                   steps, to));
}

TEST_CASE("fill_nodes: it looks at no group when a node is full") {
  capacity_index<uniform_tree> capacities(uniform_tree{1, 140, 8}, 1, 8);
  for (std::uint32_t n = 0; n < 140; ++n) capacities.set(n, 8);
  topology_constraints gang;
  for (std::uint32_t m = 0; m < 400; ++m)
    gang.groups.push_back({.tasks = 1, .gpus = 2, .host = {1'000 + m, 0}});
  colocated_groups groups;
  groups.assign(gang, 1, capacities.top());
  std::vector<std::uint32_t> order;
  for (std::uint32_t u = 0; u < 400; ++u) order.push_back(u);
  fill_nodes<uniform_tree> fill;
  apiary::detail::lean_vector<tasks_on_node> to;
  // Each task is looked at once.
  step_budget one_each(400);
  const std::vector<resources> enough(140, resources{64'000, 0});
  CHECK(fill(capacities, groups, enough, order, gang_objective::whole_cells, 2, 0, one_each, to));
  CHECK(to.size() == 400);
  // Where CPU is short, a node takes no more groups after 16 that do not fit.
  const std::vector<resources> scarce(140, resources{5'000, 0});
  step_budget few(3'000);
  to.clear();
  CHECK(fill(capacities, groups, scarce, order, gang_objective::whole_cells, 2, 0, few, to));
  CHECK(to.size() == 400);
}

TEST_CASE("fill_nodes: nodes with too few free GPUs cost no steps") {
  // Most nodes are full, or have one GPU free, which holds the task of the first group alone.
  capacity_index<uniform_tree> capacities(uniform_tree{1, 1'000, 8}, 1, 8);
  for (std::uint32_t n = 0; n < 1'000; ++n) capacities.set(n, n % 100 == 99 ? 8 : n % 2);
  const std::vector<resources> hosts(1'000, resources{10'000, 0});
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 1, .host = {1'000, 0}},
                 {.tasks = 8, .gpus = 5, .host = {2'000, 0}},
                 {.tasks = 3, .gpus = 3, .host = {3'000, 0}}};
  colocated_groups groups;
  groups.assign(gang, 1, capacities.top());
  const std::vector<std::uint32_t> order{1, 2, 0};
  for (const auto objective : {gang_objective::whole_cells, gang_objective::fewest_nodes}) {
    step_budget steps(33);
    apiary::detail::lean_vector<tasks_on_node> to;
    fill_nodes<uniform_tree> fill;
    CHECK(fill(capacities, groups, hosts, order, objective, 2, 0, steps, to));
  }
}
