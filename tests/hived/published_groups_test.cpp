// apiary/tests/hived/published_groups_test.cpp - the cases of the open-source scheduler whose gangs ask
// for one cell, or have groups in cells of their own: which run where, preempt or wait.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include <apiary/core/ids.h>
#include <apiary/hived/constraints.h>
#include <apiary/hived/gang_plan.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/topology/cell_names.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace apiary;

// Levels of both chains: nodes of two quads of two pairs of GPUs.
enum grouped_level : level_t { of_gpu, of_pair, of_quad, of_node, of_rack };

// A rack for each list of nodes. `type`: the GPU model.
void add_grouped_racks(hived_config& config, const std::string& type,
                       const std::vector<std::vector<std::string>>& racks) {
  config.cell_types.push_back({.name = type + "-PAIR", .child_type = type, .child_count = 2});
  config.cell_types.push_back(
      {.name = type + "-QUAD", .child_type = type + "-PAIR", .child_count = 2});
  config.cell_types.push_back(
      {.name = type + "-NODE", .child_type = type + "-QUAD", .child_count = 2, .is_node = true});
  config.cell_types.push_back({.name = type + "-RACK",
                               .child_type = type + "-NODE",
                               .child_count = static_cast<std::uint32_t>(racks[0].size())});
  for (const std::vector<std::string>& nodes : racks) {
    physical_cell_config& rack = config.physical_cells.emplace_back();
    rack.type = type + "-RACK";
    for (const std::string& n : nodes) rack.children.push_back({.address = n});
  }
}

struct grouped_scene {
  explicit grouped_scene(const hived_config& config) : h(*hived::create(config)) {}

  // A task is the name of its node and its GPUs there.
  using task = std::pair<std::string, std::uint64_t>;

  [[nodiscard]] gang_request gang(std::uint32_t job, std::int32_t priority,
                                  std::vector<task_group> groups,
                                  level_t required = any_level) const {
    gang_request r{.job = job_id(job),
                   .tenant = tenant_id(0),
                   .priority = priority,
                   .groups = std::move(groups)};
    if (required != any_level) r.constraints = {.required = required};
    return r;
  }
  gang_plan commit(const gang_request& r) {
    const auto plan = h.propose(r);
    REQUIRE_MESSAGE(plan.ok(), plan.status().ToString());
    if (plan->result != plan_result::wait) REQUIRE(h.commit(*plan).ok());
    CHECK(apiary_test::faults_of(h) == "");
    return *plan;
  }
  std::vector<task> binds(const gang_request& r) {
    const gang_plan plan = commit(r);
    CHECK(plan.result == plan_result::bind);
    std::vector<task> all;
    for (const hived_placement& at : plan.tasks)
      all.emplace_back(h.layout().node_name(at.node), at.leaves);
    return all;
  }
  void waits(const gang_request& r, wait_reason reason) {
    const gang_plan plan = commit(r);
    CHECK(plan.result == plan_result::wait);
    CHECK(plan.wait.reason == reason);
  }
  void breaks(const std::string& node) { REQUIRE(h.mark_bad(*h.layout().find_node(node)).ok()); }

  hived h;
};

// The GPUs of all tasks on each node.
std::vector<grouped_scene::task> on_nodes(const std::vector<grouped_scene::task>& tasks) {
  std::vector<grouped_scene::task> all;
  for (const grouped_scene::task& t : tasks) {
    const auto at =
        std::find_if(all.begin(), all.end(), [&](const auto& n) { return n.first == t.first; });
    if (at == all.end()) {
      all.push_back(t);
    } else {
      CHECK((at->second & t.second) == 0);
      at->second |= t.second;
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}
using placed_on = std::vector<grouped_scene::task>;

// Two racks of two nodes, all of one tenant.
hived_config two_racks_of_two() {
  hived_config config;
  add_grouped_racks(config, "A", {{"n1", "n2"}, {"n3", "n4"}});
  config.virtual_clusters = {{.name = "a", .cells = {{"A-RACK", 2}}}};
  return config;
}

}  // namespace

TEST_CASE("published groups: one node, one rack, cells inside a node") {
  grouped_scene s(two_racks_of_two());
  SUBCASE("three free GPUs of a node are too few for four tasks in one node") {
    CHECK(s.binds(s.gang(1, 1, {{1, 5}})) == placed_on{{"n1", 0b11111}});
    const placed_on tasks = s.binds(s.gang(2, 2, {{4, 1}}, of_node));
    CHECK(tasks ==
          placed_on{{"n2", 1}, {"n2", 2}, {"n2", 4}, {"n2", 8}});  // gang 1 is not preempted
  }
  SUBCASE("a cell below the node is asked for as one task") {
    CHECK(s.binds(s.gang(1, 1, {{1, 1}})) == placed_on{{"n1", 1}});
    CHECK(s.binds(s.gang(2, 2, {{1, 4}})) == placed_on{{"n1", 0xf0}});  // the other quad
    const absl::Status refused = s.h.propose(s.gang(3, 2, {{4, 1}}, of_quad)).status();
    CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
  }
  SUBCASE("four pairs beside one GPU in use: whole pairs, three of them on that node") {
    CHECK(s.binds(s.gang(1, 1, {{1, 1}})) == placed_on{{"n1", 1}});
    const placed_on tasks = s.binds(s.gang(2, 2, {{4, 2}}));
    CHECK(tasks[0] == grouped_scene::task{"n1", 0b1100});
    for (const auto& [node, gpus] : tasks)
      CHECK((gpus == 0b11 || gpus == 0b1100 || gpus == 0b110000 || gpus == 0b11000000));
    CHECK(on_nodes(tasks) == placed_on{{"n1", 0b11111100}, {"n2", 0b11}});
  }
  SUBCASE("four pairs in one node take the next one") {
    CHECK(s.binds(s.gang(1, 1, {{1, 1}})) == placed_on{{"n1", 1}});
    CHECK(on_nodes(s.binds(s.gang(2, 2, {{4, 2}}, of_node))) == placed_on{{"n2", 0xff}});
  }
  SUBCASE("two nodes in one rack take the rack that is idle") {
    CHECK(s.binds(s.gang(1, 1, {{1, 1}})) == placed_on{{"n1", 1}});
    CHECK(s.binds(s.gang(2, 2, {{2, 8}}, of_rack)) == placed_on{{"n3", 0xff}, {"n4", 0xff}});
  }
}

TEST_CASE("published groups: two nodes while each rack has one that is partly in use") {
  for (const std::int32_t priority : {1, 100}) {
    CAPTURE(priority);
    grouped_scene s(two_racks_of_two());
    CHECK(s.binds(s.gang(1, priority, {{1, 5}})) == placed_on{{"n1", 0b11111}});
    CHECK(s.binds(s.gang(2, priority, {{1, 5}})) == placed_on{{"n2", 0b11111}});
    CHECK(s.binds(s.gang(3, priority, {{1, 5}})) == placed_on{{"n3", 0b11111}});
    REQUIRE(s.h.finish(job_id(2)).ok());
    hived anywhere = s.h;
    const gang_request r = s.gang(4, 2, {{2, 8}}, of_rack);
    if (priority == 1) {  // of the two that would do, the first
      const gang_plan plan = s.commit(r);
      CHECK(plan.result == plan_result::preempt);
      CHECK(plan.victims == std::vector<job_id>{job_id(1)});
      REQUIRE(s.h.finish(job_id(1)).ok());
      CHECK(s.binds(r) == placed_on{{"n1", 0xff}, {"n2", 0xff}});
    } else {
      s.waits(r, wait_reason::busy);
    }
    // Without the rack no gang ends.
    s.h = anywhere;
    CHECK(s.binds(s.gang(5, 2, {{2, 8}})) == placed_on{{"n2", 0xff}, {"n4", 0xff}});
  }
}

namespace {

// Three racks of A and two of B; the first tenant owns two and one of them.
hived_config two_gpu_models() {
  hived_config config;
  add_grouped_racks(config, "A", {{"a1", "a2"}, {"a3", "a4"}, {"a5", "a6"}});
  add_grouped_racks(config, "B", {{"b1", "b2"}, {"b3", "b4"}});
  config.virtual_clusters = {{.name = "a", .cells = {{"A-RACK", 2}, {"B-RACK", 1}}},
                             {.name = "b", .cells = {{"A-RACK", 1}, {"B-RACK", 1}}}};
  return config;
}
gang_request of_model(const grouped_scene& s, gang_request r, const std::string& model,
                      std::uint32_t tenant) {
  r.leaf_type = *s.h.find_leaf_type(model);
  r.tenant = tenant_id(tenant);
  return r;
}
// The racks of the nodes: a1 and a2 are in rack a1, and so on.
std::set<std::string> racks_of_tasks(const placed_on& tasks) {
  std::set<std::string> racks;
  for (const auto& [node, gpus] : tasks)
    racks.insert(node[0] + std::to_string((node[1] - '1') / 2 * 2 + 1));
  return racks;
}

}  // namespace

TEST_CASE("published groups: thirteen tasks fit in no rack of the tenant, but in two") {
  grouped_scene s(two_gpu_models());
  CHECK(s.binds(of_model(s, s.gang(1, 1, {{1, 5}}), "A", 0)) == placed_on{{"a1", 0b11111}});
  CHECK(on_nodes(s.binds(of_model(s, s.gang(2, 1, {{3, 4}}), "A", 0))) ==
        placed_on{{"a3", 0xff}, {"a4", 0x0f}});  // in one rack
  const gang_request tight = of_model(s, s.gang(3, 1, {{13, 1}}, of_rack), "A", 0);
  s.waits(tight, wait_reason::busy);
  const gang_plan plan = *s.h.propose(tight);
  REQUIRE(plan.wait.why() != nullptr);
  CHECK(plan.wait.why()->text(
            constraints_of(tight),
            cell_names({"GPU", "pair", "quad", "node", "rack"}, "tenant's quota")) ==
        "the gang needs capacity for 13 tasks of 1 GPU in one rack; rack 0 has the most: 11");
  // The other tenant's cells are its own.
  CHECK(s.binds(of_model(s, s.gang(4, 1, {{2, 5}}), "A", 1)) ==
        placed_on{{"a5", 0b11111}, {"a6", 0b11111}});
  const placed_on loose = s.binds(of_model(s, s.gang(5, 1, {{13, 1}}), "A", 0));
  CHECK(racks_of_tasks(loose) == std::set<std::string>{"a1", "a3"});
}

TEST_CASE("published groups: two tenants, one GPU model: each in its own rack") {
  grouped_scene s(two_gpu_models());
  CHECK(s.binds(of_model(s, s.gang(1, 1, {{1, 1}}), "B", 0)) == placed_on{{"b1", 1}});
  CHECK(s.binds(of_model(s, s.gang(2, 1, {{1, 1}}), "B", 1)) == placed_on{{"b3", 1}});
}

TEST_CASE("published groups: four bad nodes of six, and what is left of two tenants' racks") {
  grouped_scene s(two_gpu_models());
  for (const char* bad : {"a4", "a5", "a6"}) s.breaks(bad);
  const placed_on first = s.binds(of_model(s, s.gang(1, 1, {{1, 1}}), "A", 0));
  const placed_on second = s.binds(of_model(s, s.gang(2, 1, {{1, 1}}), "A", 1));
  CHECK(racks_of_tasks(first) != racks_of_tasks(second));
  CHECK(racks_of_tasks(first) != std::set<std::string>{"a5"});
  CHECK(racks_of_tasks(second) != std::set<std::string>{"a5"});
  // One GPU of the first tenant's healthy ones is in use: three quads of a rack are left, or one.
  const std::uint32_t left = racks_of_tasks(first) == std::set<std::string>{"a1"} ? 3 : 1;
  const gang_plan large = s.commit(of_model(s, s.gang(3, 1, {{left + 1, 4}}), "A", 0));
  CHECK(large.result == plan_result::wait);
  CHECK(large.wait.reason == wait_reason::unhealthy);
  CHECK(s.commit(of_model(s, s.gang(4, 1, {{left, 4}}), "A", 0)).result == plan_result::bind);
}

namespace {

// Two racks of four nodes; of the second only the last node is healthy.
grouped_scene racks_of_four() {
  hived_config config;
  add_grouped_racks(config, "A", {{"n1", "n2", "n3", "n4"}, {"n5", "n6", "n7", "n8"}});
  config.virtual_clusters = {{.name = "a", .cells = {{"A-RACK", 2}}}};
  grouped_scene s(config);
  for (const char* bad : {"n5", "n6", "n7"}) s.breaks(bad);
  return s;
}
// Two groups of three pairs in a node each, and two pairs, in a node of their own if `third`; all in one
// rack.
gang_request nested_gang(const grouped_scene& s, std::uint32_t job, bool third) {
  gang_request r = s.gang(job, 1, {{3, 2}, {3, 2}, {2, 2}});
  request_constraints nested{.required = of_rack};
  nested.groups.resize(3);
  nested.groups[0].slices = {{of_node, 3}};
  nested.groups[1].slices = {{of_node, 3}};
  if (third) nested.groups[2].slices = {{of_node, 2}};
  r.constraints = nested;
  return r;
}

}  // namespace

TEST_CASE("published groups: groups inside nodes of one rack") {
  SUBCASE("the third group is beside the gang before") {
    grouped_scene s = racks_of_four();
    const placed_on before = s.binds(s.gang(1, 1, {{11, 1}}, of_rack));
    CHECK(on_nodes(before) == placed_on{{"n1", 0xff}, {"n2", 0b111}});
    const placed_on tasks = s.binds(nested_gang(s, 2, true));
    REQUIRE(tasks.size() == 8);
    for (const std::size_t group : {0U, 3U}) {
      for (std::size_t t = group; t < group + 3; ++t) CHECK(tasks[t].first == tasks[group].first);
    }
    CHECK(std::set{tasks[0].first, tasks[3].first} == std::set<std::string>{"n3", "n4"});
    CHECK(on_nodes({tasks[6], tasks[7]}) == placed_on{{"n2", 0xf0}});  // whole pairs: a quad
  }
  SUBCASE("the third group is beside the other two, one pair each") {
    grouped_scene s = racks_of_four();
    const placed_on before = s.binds(s.gang(1, 1, {{15, 1}}, of_rack));
    CHECK(on_nodes(before) == placed_on{{"n1", 0xff}, {"n2", 0x7f}});
    s.waits(nested_gang(s, 2, true), wait_reason::unhealthy);
    const placed_on tasks = s.binds(nested_gang(s, 3, false));
    REQUIRE(tasks.size() == 8);
    CHECK(std::set{tasks[0].first, tasks[3].first} == std::set<std::string>{"n3", "n4"});
    CHECK(std::set{tasks[6].first, tasks[7].first} == std::set<std::string>{"n3", "n4"});
    CHECK(on_nodes(tasks) == placed_on{{"n3", 0xff}, {"n4", 0xff}});
  }
  SUBCASE("four GPUs of a node that are no two pairs: tasks ask for GPUs, not for cells") {
    grouped_scene s = racks_of_four();
    CHECK(on_nodes(s.binds(s.gang(1, 1, {{11, 1}}))) == placed_on{{"n1", 0xff}, {"n2", 0b111}});
    CHECK(s.binds(s.gang(2, 1, {{1, 1}})) == placed_on{{"n2", 0b1000}});
    CHECK(s.binds(s.gang(3, 1, {{1, 1}})) == placed_on{{"n2", 0b10000}});
    s.waits(nested_gang(s, 4, true), wait_reason::unhealthy);  // three GPUs are left there
    REQUIRE(s.h.finish(job_id(2)).ok());
    const placed_on tasks =
        s.binds(nested_gang(s, 5, true));  // the open-source scheduler waits for pairs
    CHECK(on_nodes({tasks[6], tasks[7]}) == placed_on{{"n2", 0b11101000}});
  }
}
