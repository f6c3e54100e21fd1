// apiary/tests/gang/infeasibility_proof_test.cpp - the sentences for gangs that do not fit.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/explain/blocking_resource.h>
#include <apiary/explain/proof_check.h>
#include <apiary/gang/colocated_groups.h>
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
  std::string said(const topology_constraints& gang, const std::string& level) {
    return why(gang).text(gang, level);
  }
  std::string blamed(const topology_constraints& gang, const std::string& level) {
    const infeasibility_proof c = why(gang);
    const auto verdict = [&](const topology_constraints& g) {
      return fit(capacities, g, hosts).verdict;
    };
    return c.text(gang, level, blocking_resources(gang, verdict));
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

TEST_CASE("places for one size of task in one rack") {
  cluster c({5, 5, 5, 4, 8, 8, 0, 0});
  CHECK(c.said(gang_of({{5, 5}}, rack), "rack") ==
        "the gang needs capacity for 5 tasks of 5 GPUs in one rack; rack 0 has the most: 3");
  CHECK(c.said(gang_of({{6, 5}}), "cluster") ==
        "the gang needs capacity for 6 tasks of 5 GPUs in one cluster; the cluster has 5");
}

TEST_CASE("pieces, and GPUs as such") {
  cluster c({7, 7, 7, 0, 7, 0, 0, 0});
  CHECK(c.said(gang_of({{2, 6}, {2, 4}}, rack), "rack") ==
        "the gang needs capacity for 4 slots of 4 GPUs in one rack; rack 0 has the most: 3");
  CHECK(c.said(gang_of({{3, 4}, {12, 1}}, rack), "rack") ==
        "the gang needs capacity for 24 GPUs in one rack; rack 0 has the most: 21");
}

TEST_CASE("what is to blame is named, and what of it a task takes") {
  cluster c({5, 7, 5, 4, 6, 6, 4, 0});
  topology_constraints gang = gang_of({{.tasks = 5, .gpus = 1, .spread = {{node, 1}}}}, rack);
  CHECK(c.blamed(gang, "rack") ==
        "the gang needs capacity for 5 tasks of 1 GPU in one rack; rack 0 has the most: 4; without "
        "its anti-affinity it would fit");
  gang = gang_of({{.tasks = 6, .gpus = 3, .slices = {{node, 3}}}}, rack);
  CHECK(c.blamed(gang, "rack") ==
        "the gang needs capacity for 6 tasks of 3 GPUs in one rack; rack 0 has the most: 0; "
        "counting only GPUs, still in one rack, it would not fit either");
  gang = gang_of({{.tasks = 1, .gpus = 8}, {.tasks = 1, .gpus = 1, .host = {5, 0}, .leader = 0}});
  CHECK(c.blamed(gang, "cluster")
            .ends_with("; counting only GPUs, with its leaders, it would not fit either"));
  gang.required = rack;
  CHECK(c.blamed(gang, "rack")
            .ends_with("; counting only GPUs, still in one rack and with its leaders, it would not "
                       "fit either"));
  gang = gang_of({{.tasks = 6, .gpus = 8, .slices = {{node, 1}}}});
  CHECK(c.blamed(gang, "cluster").ends_with("; counting only GPUs it would not fit either"));
  gang = gang_of({{.tasks = 8, .gpus = 2, .slices = {{node, 4}}}}, rack);
  CHECK(c.blamed(gang, "rack") ==
        "the gang needs capacity for 8 tasks of 2 GPUs in one rack; rack 0 has the most: 0; "
        "without its slices it would fit");

  c.hosts.assign(8, {3000, 4096});
  gang = gang_of({{.tasks = 9, .gpus = 1, .host = {1500, 1}}}, rack);
  CHECK(c.blamed(gang, "rack") ==
        "the gang needs capacity for 9 tasks of 1 GPU and 1.5 CPUs in one rack; rack 0 has the "
        "most: 8; without its CPU request it would fit");
  gang.groups[0].host = {1000, 4096};
  gang.groups[0].spread = {{node, 2}};
  CHECK(c.blamed(gang, "rack") ==
        "the gang needs capacity for 9 tasks of 1 GPU and 4096 MiB in one rack; rack 0 has the "
        "most: 4; without its memory request and its anti-affinity it would fit");
  // A gang that takes no GPUs.
  gang = gang_of({{.tasks = 25, .gpus = 0, .host = {1000, 0}}});
  CHECK(c.blamed(gang, "cluster") ==
        "the gang needs capacity for 25 tasks of 1 CPU in one cluster; the cluster has 24; without "
        "its CPU request it would fit");
  gang.groups[0].host.memory_mib = 1;
  CHECK(c.said(gang, "cluster").find("25 tasks of 1 CPU and 1 MiB") != std::string::npos);
  // Without any demands there is nothing to blame.
  CHECK(c.blamed(gang_of({{6, 5}}), "cluster") == c.said(gang_of({{6, 5}}), "cluster"));
  // Where what a rack holds is listed.
  c = cluster({4, 4, 4, 0, 4, 4, 4, 0});
  c.hosts.assign(8, {2, 9});
  gang = gang_of({{3, 1, {2, 0}}, {1, 4, {1, 0}}}, rack);
  CHECK(c.blamed(gang, "rack").ends_with("; without its CPU request it would fit"));
}

TEST_CASE("what a rack can hold is listed where no weight tells") {
  cluster c({4, 4, 4, 0, 4, 4, 4, 0});
  c.hosts.assign(8, {2, 9});
  topology_constraints gang = gang_of({{3, 1, {2, 0}}, {1, 4, {1, 0}}}, rack);
  const std::string said = c.said(gang, "rack");
  CHECK(said.find("places") == std::string::npos);
  CHECK(said.find("holds at most") != std::string::npos);
  const infeasibility_proof why = c.why(gang);
  CHECK(why.cells[0].counts == std::vector<std::uint32_t>{2, 1, 3, 0});
}

TEST_CASE("a rack with another reason than the others") {
  cluster c({8, 0, 0, 0, 7, 7, 7, 7});
  const infeasibility_proof why = c.why(gang_of({{1, 8}, {9, 1}}, rack));
  CHECK(why.weighings.size() == 2);
  CHECK(why.cells[0].weighing != why.cells[1].weighing);
  CHECK(why.text(gang_of({{1, 8}, {9, 1}}, rack), "rack").find("1 of 2 cells") !=
        std::string::npos);
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

TEST_CASE("from the nodes by free leaves alone the same certificate") {
  rng random(7);
  std::uint64_t refused = 0;
  std::uint64_t listed = 0;
  for (std::uint64_t i = 0, n = scaled(std::uint64_t{20'000}); i < n; ++i) {
    CAPTURE(i);
    std::vector<std::uint32_t> free;
    for (std::uint32_t at = 0; at < 8; ++at) free.push_back(random.uniform(9));
    topology_constraints gang;
    for (std::uint32_t m = 1 + random.uniform(4); m > 0; --m)
      gang.groups.push_back({1 + random.uniform(6), 1 + random.uniform(8)});
    std::vector<std::uint32_t> nodes(9);  // with 0, 1, ... free
    for (const std::uint32_t f : free) ++nodes[f];
    colocated_groups groups;
    groups.assign(gang, node, 3);
    const infeasibility_proof why = infeasibility_proof::of_nodes(nodes, groups, 3);
    cluster c(free);
    if (c.fit(c.capacities, gang).verdict == fit_verdict::fits) {
      REQUIRE(why.cells.empty());
      continue;
    }
    const infeasibility_proof whole = c.why(gang);
    const bool weighed = whole.cells[0].weighing != infeasibility_proof::listed;
    REQUIRE(why.cells.empty() == !weighed);
    if (weighed) REQUIRE(why == whole);
    ++(weighed ? refused : listed);
  }
  CHECK(refused > 0);
  CHECK((listed > 0 || scale() < 1.0));
}
