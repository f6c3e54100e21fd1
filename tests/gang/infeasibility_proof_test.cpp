// apiary/tests/gang/infeasibility_proof_test.cpp - the sentences for gangs that do not fit.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/explain/blocking_resource.h>
#include <apiary/explain/proof_check.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/model/resources.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <support/levels.h>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

// Two racks of four nodes of eight.
struct cluster {
  explicit cluster(const std::vector<std::uint32_t>& free) {
    for (std::uint32_t n = 0; n < free.size(); ++n) capacities.set(n, free[n]);
  }
  infeasibility_proof why(const topology_constraints& gang) {
    REQUIRE(fit(capacities, gang, hosts).verdict == fit_verdict::does_not_fit);
    infeasibility_proof c = fit.explain(capacities, gang, hosts);
    REQUIRE(proof_check(capacities.tree(), node, capacities.free(), hosts, gang)(c));
    return c;
  }
  std::string said(const topology_constraints& gang) {
    return why(gang).text(gang, {"GPU", "node", "rack"});
  }
  std::string blamed(const topology_constraints& gang) {
    const infeasibility_proof c = why(gang);
    const auto verdict = [&](const topology_constraints& g) {
      return fit(capacities, g, hosts).verdict;
    };
    return c.text(gang, {"GPU", "node", "rack"}, blocking_resources(gang, verdict));
  }

  capacity_index<uniform_tree> capacities{uniform_tree{2, 4, 8}, node, 8};
  std::vector<resources> hosts;
  topology_fit<uniform_tree> fit;
};

topology_constraints gang_of(std::vector<constrained_task_group> groups,
                             level_t required = any_level) {
  topology_constraints gang;
  gang.groups = std::move(groups);
  gang.required = required;
  return gang;
}

}  // namespace

TEST_CASE("text: one size of task in one rack") {
  cluster c({5, 5, 5, 4, 8, 8, 0, 0});
  CHECK(c.said(gang_of({{5, 5}}, rack)) ==
        "the gang needs 5 nodes with 5 free GPUs each in one rack; rack 0 has the most: 3");
  CHECK(c.said(gang_of({{6, 5}})) ==
        "the gang needs 6 nodes with 5 free GPUs each; the cluster has 5");
}

TEST_CASE("text: GPUs, if sizes differ") {
  cluster c({7, 7, 7, 0, 7, 0, 0, 0});
  CHECK(c.said(gang_of({{2, 6}, {2, 4}}, rack)) ==
        "the gang needs 20 free GPUs in one rack for its 2 tasks of 6 GPUs and 2 tasks of 4 GPUs; "
        "rack 0 has the most that the tasks can use: 18");
  CHECK(c.said(gang_of({{3, 4}, {12, 1}}, rack)) ==
        "the gang needs 24 free GPUs in one rack for its 3 tasks of 4 GPUs and 12 tasks of 1 GPU; "
        "rack 0 has the most that the tasks can use: 21");
}

TEST_CASE("what is to blame is named, and what of it a task takes") {
  cluster c({5, 7, 5, 4, 6, 6, 4, 0});
  topology_constraints gang = gang_of({{.tasks = 5, .gpus = 1, .spread = {{node, 1}}}}, rack);
  CHECK(c.blamed(gang) ==
        "the gang needs 5 nodes with 1 free GPU each in one rack; rack 0 has the most: 4; without "
        "its anti-affinity it would fit");
  gang = gang_of({{.tasks = 6, .gpus = 3, .slices = {{node, 3}}}}, rack);
  CHECK(c.blamed(gang) ==
        "the gang needs 2 slices of 3 tasks of 3 GPUs in one rack, each slice on one node; no rack "
        "has any; node 1 comes closest: 2 of 3 tasks; without its slices it would not fit either");
  gang = gang_of({{.tasks = 1, .gpus = 8}, {.tasks = 1, .gpus = 1, .host = {5, 6}, .leader = 0}});
  CHECK(
      c.blamed(gang) ==
      "each leader of 8 GPUs and its 1 worker of 1 GPU need 9 GPUs on one node; a node has at most "
      "8; without its memory request and its CPU request it would not fit either");
  gang = gang_of({{.tasks = 8, .gpus = 2, .slices = {{node, 4}}}}, rack);
  CHECK(c.blamed(gang) ==
        "the gang needs 2 slices of 4 tasks of 2 GPUs in one rack, each slice on one node; no rack "
        "has any; node 1 comes closest: 3 of 4 tasks; without its slices it would fit");

  c.hosts.assign(8, {3000, 4096});
  gang = gang_of({{.tasks = 9, .gpus = 1, .host = {1500, 1}}}, rack);
  CHECK(
      c.blamed(gang) ==
      "the gang needs capacity for 9 tasks of 1 GPU with 1.5 CPUs and 1 MiB of memory in one rack; "
      "rack 0 has the most: 8; without its CPU request it would fit");
  gang.groups[0].host = {1000, 4096};
  gang.groups[0].spread = {{node, 2}};
  CHECK(
      c.blamed(gang) ==
      "the gang needs capacity for 9 tasks of 1 GPU with 1 CPU and 4 GiB of memory in one rack, at "
      "most 2 on one node; rack 0 has the most: 4; without its memory request and its "
      "anti-affinity it would fit");
  // A gang that takes no GPUs.
  gang = gang_of({{.tasks = 25, .gpus = 0, .host = {1000, 0}}});
  CHECK(c.blamed(gang) ==
        "the gang needs capacity for 25 tasks of 1 CPU; the cluster has 24; without its CPU "
        "request it would fit");
  gang.groups[0].host.memory_mib = 1;
  CHECK(c.said(gang).find("25 tasks of 1 CPU with 1 MiB of memory;") != std::string::npos);
  // Without any demands there is nothing to blame.
  CHECK(c.blamed(gang_of({{6, 5}})) == c.said(gang_of({{6, 5}})));
  // Where what a rack holds is listed.
  c = cluster({4, 4, 4, 0, 4, 4, 4, 0});
  c.hosts.assign(8, {2, 9});
  gang = gang_of({{3, 1, {2, 0}}, {1, 4, {1, 0}}}, rack);
  CHECK(c.blamed(gang).ends_with("; without its CPU request it would fit"));
}

TEST_CASE("what a rack can hold is listed where no weight tells") {
  cluster c({4, 4, 4, 0, 4, 4, 4, 0});
  c.hosts.assign(8, {2, 9});
  topology_constraints gang = gang_of({{3, 1, {2, 0}}, {1, 4, {1, 0}}}, rack);
  const std::string said = c.said(gang);
  CHECK(said ==
        "the gang needs capacity for 3 tasks of 1 GPU with 0.002 CPUs and 1 task of 4 GPUs with "
        "0.001 CPUs in one rack; rack 0 comes closest: 2 tasks of 1 GPU with 0.002 CPUs and 1 task "
        "of 4 GPUs with 0.001 CPUs, or 3 tasks of 1 GPU with 0.002 CPUs");
  const infeasibility_proof why = c.why(gang);
  CHECK(why.cells[0].counts == std::vector<std::uint32_t>{2, 1, 3, 0});
}

TEST_CASE("a rack with another reason than the others") {
  cluster c({8, 0, 0, 0, 7, 7, 7, 7});
  const infeasibility_proof why = c.why(gang_of({{1, 8}, {9, 1}}, rack));
  CHECK(why.weighings.size() == 2);
  CHECK(why.cells[0].weighing != why.cells[1].weighing);
  CHECK(why.text(gang_of({{1, 8}, {9, 1}}, rack), {"GPU", "node", "rack"})
            .find("(in 1 of 2 racks; the others lack something else)") != std::string::npos);
}

// Proofs of the cluster of eight nodes of eight GPUs, with a reason that a search seldom finds.
TEST_CASE("text: slots, weights, combinations, and tasks that share a node") {
  const cell_names names{"GPU", "node", "rack"};
  infeasibility_proof why{.level = 3, .node_level = node, .node_gpus = 8};
  why.groups = {0, 1};
  why.tasks = {4, 3};
  why.weighings = {{{1, 1}, 7}};
  why.cells = {{0, 0, 6, {}}};
  CHECK(why.text(gang_of({{4, 6}, {3, 7}}), names) ==
        "the gang needs 7 nodes with at least 6 free GPUs each for its 4 tasks of 6 GPUs and 3 "
        "tasks of 7 GPUs; the cluster has 6");
  why.weighings = {{{2, 1}, 11}};
  why.cells[0].most = 10;
  CHECK(why.text(gang_of({{4, 6}, {3, 3}}), names) ==
        "the gang needs 11 slots of 3 free GPUs on a node for its 4 tasks of 6 GPUs and 3 tasks of "
        "3 GPUs; the cluster has 10");
  why.weighings = {{{1, 2}, 10}};
  why.cells[0].most = 9;
  CHECK(why.text(gang_of({{4, 4}, {3, 5}}), names) ==
        "the gang needs capacity for 4 tasks of 4 GPUs and 3 tasks of 5 GPUs; the cluster can hold "
        "at most 2 tasks of 5 GPUs beside all 4 tasks of 4 GPUs");
  // The smaller tasks alone are too many; the count says only how many tasks fit at most.
  why.cells = {{0, 0, 3, {}}, {1, 0, 2, {}}};
  why.level = rack;
  CHECK(why.text(gang_of({{4, 4}, {3, 5}}, rack), names) ==
        "the gang needs capacity for 4 tasks of 4 GPUs and 3 tasks of 5 GPUs in one rack; rack 0 "
        "comes closest: it can hold at most 3 of these 7 tasks");
  why.groups = {0, 1, 2};
  why.tasks = {4, 3, 2};
  why.weighings = {{{1, 2, 3}, 16}};
  why.cells = {{0, 0, 13, {}}, {1, 0, 2, {}}};
  CHECK(why.text(gang_of({{4, 4}, {3, 5}, {2, 7}}, rack), names) ==
        "the gang needs capacity for 4 tasks of 4 GPUs, 3 tasks of 5 GPUs and 2 tasks of 7 GPUs in "
        "one rack; rack 0 comes closest: it can hold at most 1 task of 7 GPUs beside all others");
  why.level = 3;
  why.groups = {0, 1};
  why.tasks = {4, 3};
  why.weighings.clear();
  why.cells = {{0, infeasibility_proof::listed, 0, {4, 1, 3, 2, 0, 3, 1, 3}}};
  CHECK(why.text(gang_of({{4, 4}, {3, 4}}), names) ==
        "the gang needs capacity for 4 tasks of 4 GPUs (task group 0) and 3 tasks of 4 GPUs (task "
        "group 1); the cluster can hold 4 tasks of 4 GPUs (task group 0) and 1 task of 4 GPUs "
        "(task group 1), or 3 tasks of 4 GPUs (task group 0) and 2 tasks of 4 GPUs (task group 1) "
        "(and 2 more combinations)");
  topology_constraints gang = gang_of({{4, 1}, {8, 1}}, rack);
  gang.groups[1].leader = 0;
  why = {.level = rack, .node_level = node, .node_gpus = 8};
  why.groups = {0};
  why.tasks = {4};
  why.weighings = {{{1}, 4}};
  why.cells = {{0, 0, 3, {}}, {1, 0, 2, {}}};
  CHECK(why.text(gang, names) ==
        "the gang needs capacity for 4 sets of tasks that share a node (3 GPUs) in one rack; rack "
        "0 has the most: 3");
  gang.groups[1].tasks = 32;
  CHECK(
      why.text(gang, names) ==
      "each leader of 1 GPU and its 8 workers of 1 GPU need 9 GPUs on one node; a node has at most "
      "8");
  gang = gang_of({{.tasks = 4, .gpus = 2, .gpu_milli = 500}}, node);
  gang.groups[0].spread = {{rack, 3}};
  why.level = node;
  CHECK(why.text(gang, names) ==
        "the gang needs capacity for 4 tasks of 1 GPU in fractions of 2 on one node, at most 3 in "
        "one rack; node 0 has the most: 3");
}

TEST_CASE("a proof of one gang is none of another, nor elsewhere") {
  cluster c({5, 5, 5, 4, 8, 8, 0, 0});
  const topology_constraints gang = gang_of({{5, 5}}, rack);
  const infeasibility_proof why = c.why(gang);
  const auto accepted = [&](const topology_constraints& g) {
    return proof_check(c.capacities.tree(), node, c.capacities.free(), {}, g)(why);
  };
  CHECK(accepted(gang));
  CHECK(!accepted(gang_of({{3, 5}}, rack)));
  CHECK(!accepted(gang_of({{5, 5}})));
  CHECK(!accepted(gang_of({{5, 4}}, rack)));
  c.capacities.set(3, 5);
  CHECK(!accepted(gang));
}

TEST_CASE("from the nodes by free leaves alone the same proof") {
  rng random(7);
  std::uint64_t refused = 0;
  for (std::uint64_t i = 0, n = scaled(std::uint64_t{20'000}); i < n; ++i) {
    CAPTURE(i);
    std::vector<std::uint32_t> free;
    for (std::uint32_t at = 0; at < 8; ++at) free.push_back(random.uniform(9));
    topology_constraints gang;
    for (std::uint32_t m = 1 + random.uniform(4); m > 0; --m)
      gang.groups.push_back({1 + random.uniform(6), 1 + random.uniform(8)});
    std::vector<std::uint32_t> nodes(9);  // with 0, 1, ... free
    for (const std::uint32_t f : free) ++nodes[f];
    std::vector<task_group> groups;
    for (const constrained_task_group& m : gang.groups) groups.push_back({m.tasks, m.gpus});
    const infeasibility_proof why = infeasibility_proof::of_nodes(nodes, groups, node, 3);
    cluster c(free);
    if (c.fit(c.capacities, gang).verdict == fit_verdict::fits) {
      REQUIRE(why.cells.empty());
      continue;
    }
    const infeasibility_proof whole = c.why(gang);
    const bool weighed = whole.cells[0].weighing != infeasibility_proof::listed;
    REQUIRE(why == whole);
    refused += weighed ? 1 : 0;
  }
  CHECK(refused > 0);
}

TEST_CASE("from the nodes by free leaves alone the same list where no weights refuse the gang") {
  // Fractions of the nodes would hold the gang, so no weights refuse it.
  const topology_constraints gang = gang_of({{3, 22}, {5, 16}, {4, 12}, {4, 5}});
  std::vector<std::uint32_t> nodes(38);  // with 0, 1, ... free
  capacity_index<uniform_tree> capacities{uniform_tree{1, 6, 37}, node, 37};
  for (std::uint32_t n = 0; n < 6; ++n) {
    const std::uint32_t free = n < 2 ? 35 : 37;
    capacities.set(n, free);
    ++nodes[free];
  }
  topology_fit<uniform_tree> fit(100'000'000);
  REQUIRE(fit(capacities, gang).verdict == fit_verdict::does_not_fit);
  const infeasibility_proof whole = fit.explain(capacities, gang);
  CHECK(whole.cells[0].weighing == infeasibility_proof::listed);
  std::vector<task_group> groups;
  for (const constrained_task_group& m : gang.groups) groups.push_back({m.tasks, m.gpus});
  CHECK(infeasibility_proof::of_nodes(nodes, groups, node, capacities.top()) == whole);
}

TEST_CASE("main_reason: the reason of most cells, and the cell of them that lacks least") {
  infeasibility_proof why{.level = rack, .node_level = node};
  why.weighings = {{{1}, 10}, {{2}, 20}};
  why.cells = {{0, 0, 3, {}}, {1, 1, 12, {}}, {2, 1, 15, {}}, {4, 1, 15, {}}};
  infeasibility_proof::reason found = why.main_reason();
  CHECK(found.weighing == 1);
  CHECK(found.cells == 3);
  CHECK(found.best == 2);  // the first of equals
  CHECK(found.missing == 5);
  why.cells = {{0, 0, 3, {}}, {3, infeasibility_proof::listed, 0, {1}}};
  CHECK(why.main_reason().weighing == 0);  // of as many cells the first
  why.cells.push_back({5, infeasibility_proof::listed, 0, {2}});
  found = why.main_reason();
  CHECK(found.weighing == infeasibility_proof::listed);
  CHECK(found.cells == 2);
  CHECK(found.best == 3);
  CHECK(found.missing == 0);
}

TEST_CASE("needs_of: a task and all tasks that it leads on its node") {
  const topology_constraints gang =
      gang_of({{.tasks = 2, .gpus = 1, .host = {100, 10}},
               {.tasks = 6, .gpus = 2, .host = {1, 2}, .leader = 0, .gpu_milli = 500},
               {.tasks = 2, .gpus = 8, .leader = 0, .leader_level = rack}});
  const detail::task_needs needs = detail::needs_of(gang, 0);
  CHECK(needs.gpus == 7);
  CHECK(needs.milli == 4'000);
  CHECK(needs.cpu_milli == 103);
  CHECK(needs.memory_mib == 16);
  CHECK(detail::needs_of(gang, 2).gpus == 8);
}
