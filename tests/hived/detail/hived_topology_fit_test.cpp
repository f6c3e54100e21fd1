// apiary/tests/hived/detail/hived_topology_fit_test.cpp - HiveD gangs under constraints: what they say and get.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include "support/hived_constraints.h"
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/explain/proof_check.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/hived/constraints.h>
#include <apiary/hived/detail/capacity.h>
#include <apiary/hived/detail/hived_topology_fit.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/queries.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary::detail;

constexpr level_t node_of_racks = 1;
constexpr level_t rack_of_nodes = 2;
constexpr level_t row_of_racks = 3;

// Two rows of two racks of four nodes of four GPUs.
hived two_rows(std::vector<virtual_cluster_config> tenants) {
  hived_config config;
  config.cell_types = {
      {"NODE", "GPU", 4, true}, {"RACK", "NODE", 4, false}, {"ROW", "RACK", 2, false}};
  int next = 0;
  for (int row = 0; row < 2; ++row) {
    physical_cell_config& cell = config.physical_cells.emplace_back();
    cell.type = "ROW";
    for (int rack = 0; rack < 2; ++rack) {
      physical_cell_config& in = cell.children.emplace_back();
      for (int n = 0; n < 4; ++n) in.children.push_back({.address = "n" + std::to_string(next++)});
    }
  }
  config.virtual_clusters = std::move(tenants);
  auto scheduler = hived::create(config);
  REQUIRE(scheduler.ok());
  return *std::move(scheduler);
}

gang_request constrained_gang(std::uint32_t job, std::vector<task_group> groups,
                              request_constraints constraints, std::int32_t priority = 0) {
  return {.job = job_id(job),
          .tenant = tenant_id(0),
          .priority = priority,
          .groups = std::move(groups),
          .constraints = std::move(constraints)};
}
gang_plan plan_for(hived& h, const gang_request& r) {
  const auto plan = h.propose(r);
  INFO(plan.status().message());
  REQUIRE(plan.ok());
  if (plan->result != plan_result::wait)
    REQUIRE(apiary_test::broken_rule(h.layout(), r, plan->tasks) == "");
  return *plan;
}
void start_constrained(hived& h, const gang_request& r) {
  const gang_plan plan = plan_for(h, r);
  REQUIRE(plan.result == plan_result::bind);
  REQUIRE(h.commit(plan).ok());
}
std::set<std::uint32_t> racks_spanned(const std::vector<hived_placement>& tasks) {
  std::set<std::uint32_t> racks;
  for (const hived_placement& t : tasks) racks.insert(t.node.value / 4);
  return racks;
}

TEST_CASE("a gang that requires a rack gets a rack with enough free leaves, guaranteed or not") {
  hived h = two_rows({{.name = "a", .cells = {{"ROW", 1}}}});
  for (const std::int32_t priority : {0, -1}) {
    CAPTURE(priority);
    hived with = h;
    // Three nodes in use: five are left, four of them in one rack.
    start_constrained(with, constrained_gang(1, {{3, 4}}, {.required = rack_of_nodes}, priority));
    const auto all =
        plan_for(with, constrained_gang(2, {{4, 4}}, {.required = rack_of_nodes}, priority));
    CHECK(all.result == plan_result::bind);
    CHECK(racks_spanned(all.tasks).size() == 1);
  }
}

TEST_CASE("whole cells that are nodes are in no common rack, in use or not, spread or not") {
  for (const bool spread : {false, true}) {
    CAPTURE(spread);
    hived h = two_rows({{.name = "a", .cells = {{"ROW.RACK.NODE", 2}}}});
    gang_request r = constrained_gang(9, {{2, 4}}, {.required = rack_of_nodes}, 10);
    if (spread) r.constraints.edit().groups.resize(1);
    if (spread) r.constraints.edit().groups[0].spread = {{rack_of_nodes, 2}};
    CHECK(plan_for(h, r).wait.reason == wait_reason::never);
    for (const std::uint32_t job : {1U, 2U})
      start_constrained(h, constrained_gang(job, {{1, 4}}, {}));
    const gang_plan plan = plan_for(h, r);
    CHECK(plan.result == plan_result::wait);
    CHECK(plan.wait.reason == wait_reason::never);
  }
}

TEST_CASE("a gang under constraints has no more task groups than its search is made for") {
  hived h = two_rows({{.name = "a", .cells = {{"ROW", 1}}}});
  const std::vector<task_group> many(1025, {1, 1});
  const auto plan = h.propose(constrained_gang(1, many, {.required = rack_of_nodes}));
  CHECK(plan.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(h.propose(constrained_gang(1, many, {})).ok());
}

TEST_CASE("a gang that requires more than any rack has waits with a proof that can be counted") {
  hived h = two_rows({{.name = "a", .cells = {{"ROW", 1}}}});
  start_constrained(h, constrained_gang(1, {{1, 1}}, {.required = rack_of_nodes}));
  start_constrained(h, constrained_gang(2, {{4, 4}}, {.required = rack_of_nodes}));
  const gang_request r = constrained_gang(3, {{4, 4}}, {.required = rack_of_nodes});
  const gang_plan busy = plan_for(h, r);
  REQUIRE(busy.result == plan_result::wait);
  CHECK(busy.wait.reason == wait_reason::busy);
  REQUIRE(busy.wait.why() != nullptr);
  const gang_capacity capacities = *hived_queries::refused_capacity(h, r, busy.wait.reason, 0);
  const topology_constraints gang = constraints_of(r);
  proof_check check(capacities.tree, capacities.node_level, capacities.free, {}, gang);
  CHECK(check(*busy.wait.why()));
  CHECK(busy.wait.why()->text(constraints_of(r), {"GPU", "node", "rack"}) ==
        "the gang needs 4 free nodes of 4 GPUs in one rack; rack 0 has the most: 3");
  const gang_plan never = plan_for(h, constrained_gang(4, {{5, 4}}, {.required = rack_of_nodes}));
  CHECK(never.wait.reason == wait_reason::never);
  CHECK(never.wait.why() != nullptr);
  CHECK(plan_for(h, constrained_gang(5, {{3, 4}}, {.required = rack_of_nodes})).result ==
        plan_result::bind);
}

TEST_CASE("a gang prefers the lowest level that can be") {
  hived h = two_rows({{.name = "a", .cells = {{"ROW", 2}}}});
  start_constrained(h, constrained_gang(1, {{2, 4}}, {.required = rack_of_nodes}));
  const auto in_rack = plan_for(h, constrained_gang(2, {{4, 4}}, {.preferred = node_of_racks}));
  CHECK(racks_spanned(in_rack.tasks).size() == 1);
  const auto in_row = plan_for(h, constrained_gang(3, {{6, 4}}, {.preferred = node_of_racks}));
  CHECK(racks_spanned(in_row.tasks).size() == 2);
  CHECK(apiary_test::in_one_cell(h.layout(), in_row.tasks, row_of_racks));
  CHECK(plan_for(h, constrained_gang(4, {{10, 4}}, {.preferred = node_of_racks})).result ==
        plan_result::bind);
  CHECK(plan_for(h, constrained_gang(5, {{10, 4}}, {.required = row_of_racks})).wait.reason ==
        wait_reason::never);
}

TEST_CASE("slices are consecutive tasks, a leader has its workers beside it") {
  hived h = two_rows({{.name = "a", .cells = {{"ROW", 1}, {"ROW.RACK", 2}}}});
  for (const std::int32_t priority : {0, -1}) {
    hived with = h;
    start_constrained(with, constrained_gang(1, {{1, 1}}, {.required = rack_of_nodes}, priority));
    request_constraints constraints;
    constraints.groups = {{.slices = {{rack_of_nodes, 3}}}};
    const auto sliced = plan_for(with, constrained_gang(2, {{12, 4}}, constraints, priority));
    CHECK(sliced.result == plan_result::bind);
    constraints.groups = {{.spread = {{node_of_racks, 1}}}, {.leader = 0}};
    const auto led = plan_for(with, constrained_gang(3, {{4, 1}, {12, 1}}, constraints, priority));
    CHECK(led.result == plan_result::bind);
  }
}

TEST_CASE("whole cells below a rack are in no common rack, wherever they are bound") {
  hived h = two_rows({{.name = "a", .cells = {{"ROW.RACK.NODE", 4}}}});
  const gang_plan plan = plan_for(h, constrained_gang(1, {{2, 4}}, {.required = rack_of_nodes}));
  CHECK(plan.result == plan_result::wait);
  CHECK(plan.wait.reason == wait_reason::never);
  CHECK(plan_for(h, constrained_gang(2, {{2, 2}}, {.required = node_of_racks})).result ==
        plan_result::bind);
}

TEST_CASE("a gang under constraints preempts the fewest gangs that its constraints need") {
  hived h = two_rows({{.name = "a", .cells = {{"ROW", 1}}}});
  start_constrained(h, constrained_gang(1, {{4, 4}}, {.required = rack_of_nodes}));
  for (std::uint32_t job = 2; job < 6; ++job)
    start_constrained(h, constrained_gang(job, {{1, 4}}, {}));
  // One gang has a whole rack, four have the other.
  const gang_request r = constrained_gang(9, {{4, 4}}, {.required = rack_of_nodes}, 1);
  const gang_plan plan = plan_for(h, r);
  CHECK(plan.result == plan_result::preempt);
  CHECK(plan.victims == std::vector<job_id>{job_id(1)});
  REQUIRE(h.commit(plan).ok());
  CHECK(apiary_test::faults_of(h) == "");
  gang_request other = r;
  other.constraints.edit().required = any_level;
  CHECK(h.propose(other).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(h.finish(job_id(1)).ok());
  const gang_plan bound = plan_for(h, r);
  CHECK(bound.result == plan_result::bind);
  REQUIRE(h.commit(bound).ok());
}

TEST_CASE("a preempting gang under constraints that goes elsewhere keeps them there") {
  hived h = two_rows({{.name = "a", .cells = {{"ROW", 1}}}});
  start_constrained(h, constrained_gang(1, {{4, 4}}, {.required = rack_of_nodes}));
  start_constrained(h, constrained_gang(2, {{4, 4}}, {.required = rack_of_nodes}));
  const gang_request r = constrained_gang(9, {{3, 4}}, {.required = rack_of_nodes}, 1);
  const gang_plan first = plan_for(h, r);
  REQUIRE(first.result == plan_result::preempt);
  REQUIRE(h.commit(first).ok());
  const std::uint32_t rack = *racks_spanned(first.tasks).begin();
  for (std::uint32_t n = 0; n < 2; ++n) REQUIRE(h.mark_bad(node_id(rack * 4 + n)).ok());
  const gang_plan second = plan_for(h, r);
  REQUIRE(second.result == plan_result::preempt);
  CHECK(second.cancelled == std::vector<job_id>{job_id(9)});
  CHECK(*racks_spanned(second.tasks).begin() != rack);
  REQUIRE(h.commit(second).ok());
  CHECK(apiary_test::faults_of(h) == "");
}

TEST_CASE("under constraints, too, suggested nodes and bad hardware count") {
  hived h = two_rows({{.name = "a", .cells = {{"ROW", 1}, {"ROW.RACK", 1}}}});
  for (const std::int32_t priority : {0, -1}) {
    CAPTURE(priority);
    for (std::uint32_t rack = 0; rack < 4; ++rack) {
      CAPTURE(rack);
      summary_bitset nodes(16, false);
      for (std::uint32_t n = 0; n < 4; ++n) nodes.set(rack * 4 + n);
      nodes.set((rack * 4 + 5) % 16);
      gang_request r = constrained_gang(1, {{4, 4}}, {.required = rack_of_nodes}, priority);
      r.suggested = &nodes;
      const gang_plan plan = plan_for(h, r);
      CHECK(plan.result == plan_result::bind);
      CHECK(racks_spanned(plan.tasks) == std::set<std::uint32_t>{rack});
      nodes.reset(rack * 4 + 2);
      CHECK(plan_for(h, r).wait.reason == wait_reason::not_suggested);
    }
    hived bad = h;
    for (const std::uint32_t n : {0U, 5U, 10U}) REQUIRE(bad.mark_bad(node_id(n)).ok());
    const gang_request r = constrained_gang(1, {{4, 4}}, {.required = rack_of_nodes}, priority);
    CHECK(racks_spanned(plan_for(bad, r).tasks) == std::set<std::uint32_t>{3});
    REQUIRE(bad.mark_bad(node_id(15)).ok());
    const gang_plan none = plan_for(bad, r);
    CHECK(none.result == plan_result::wait);
    CHECK(none.wait.reason == wait_reason::unhealthy);
  }
}

TEST_CASE("constraints that cannot be understood are refused in words, and nothing changes") {
  hived h = two_rows({{.name = "a", .cells = {{"ROW", 1}}}});
  const std::uint64_t before = h.hash();
  const auto refused = [&](const gang_request& r) {
    const auto plan = h.propose(r);
    CHECK(plan.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(h.hash() == before);
    return std::string(plan.status().message());
  };
  CHECK(refused(constrained_gang(1, {{2, 1}}, {.required = 9})) ==
        "gang 1: the gang requires level 9; the levels are 1 to 3");
  CHECK(refused(constrained_gang(1, {{2, 1}}, {.preferred = 0})) ==
        "gang 1: the gang prefers level 0; the levels are 1 to 3");
  request_constraints constraints;
  constraints.groups = {{}, {}};
  CHECK(refused(constrained_gang(1, {{2, 1}}, constraints)) ==
        "gang 1: topology constraints for 2 task groups; it has 1");
  constraints.groups = {{.slices = {{rack_of_nodes, 2}}}};
  CHECK(refused(constrained_gang(1, {{3, 1}}, constraints)) ==
        "gang 1: task group 0: slices of 2 tasks (level 2) do not divide its 3 tasks");
}

TEST_CASE("a gang under constraints that runs already is taken wherever it is") {
  hived h = two_rows({{.name = "a", .cells = {{"ROW", 2}}}});
  const gang_request r = constrained_gang(1, {{2, 4}}, {.required = rack_of_nodes});
  const std::vector<hived_placement> tasks{{node_id(0), 15}, {node_id(9), 15}};
  const auto own = h.recover(r, tasks);
  REQUIRE(own.ok());
  CHECK(*own);
  CHECK(apiary_test::faults_of(h) == "");
}

}  // namespace

TEST_CASE("a spread that depends on bindings is refused in words, and nothing changes") {
  hived h = two_rows({{.name = "a", .cells = {{"ROW.RACK.NODE", 6}}},
                      {.name = "b", .cells = {{"ROW.RACK", 1}, {"ROW.RACK.NODE", 1}}},
                      {.name = "c", .cells = {{"ROW.RACK", 1}}}});
  const std::uint64_t before = h.hash();
  request_constraints over_racks;
  over_racks.groups = {{.spread = {{rack_of_nodes, 1}}}};
  gang_request r = constrained_gang(1, {{2, 4}}, over_racks);
  const auto plan = h.propose(r);
  CHECK(plan.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(plan.status().message() ==
        "gang 1: anti-affinity at level 2: tenant a has 6 cells below that level, and several of "
        "them may lie in one cell of it; a tenant needs cells of that level for it");
  CHECK(h.hash() == before);
  // A limit that the tasks cannot exceed depends on nothing.
  r.constraints.edit().groups[0].spread = {{rack_of_nodes, 2}};
  CHECK(plan_for(h, r).result == plan_result::bind);
  r.constraints.edit().groups[0].spread = {{rack_of_nodes, 1}};
  r.groups = {{1, 4}};
  CHECK(plan_for(h, r).result == plan_result::bind);
  r.groups = {{2, 4}};
  // Over nodes, within one rack, as an opportunistic gang, and in a rack beside one node it is possible.
  r.constraints.edit().groups[0].spread = {{node_of_racks, 1}};
  CHECK(plan_for(h, r).result == plan_result::bind);
  r.constraints = request_constraints{.required = node_of_racks, .groups = over_racks.groups};
  r.groups = {{1, 4}};
  CHECK(plan_for(h, r).result == plan_result::bind);
  r = constrained_gang(1, {{2, 4}}, over_racks, -1);
  CHECK(racks_spanned(plan_for(h, r).tasks).size() == 2);
  r = constrained_gang(1, {{2, 4}}, over_racks);
  r.tenant = tenant_id(1);
  CHECK(racks_spanned(plan_for(h, r).tasks).size() == 2);
  r.tenant = tenant_id(2);
  CHECK(plan_for(h, r).wait.reason == wait_reason::never);
}
