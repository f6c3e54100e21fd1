// apiary/tests/hived/published_cases_test.cpp - the cases that the documentation of the open-source
// scheduler describes: which gangs run, wait, are preempted, are refused, and survive a restart.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include "support/hived_names.h"
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/hived/gang_plan.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace apiary;
using apiary_test::devices_of;
using apiary_test::task_devices;

// Nodes of two K4s, one of them on a host with P40s; a rack of P40s; RTX nodes alone, in a rack of three
// and in racks of two pairs. Speech has nodes in three chains, and a pinned GPU and a pinned pair; vision
// has P40 nodes and sockets, and a K4 node.
hived_config published_cluster() {
  hived_config config;
  config.cell_types = {{"K4-NODE", "K4", 2, true},
                       {"P40-SOCKET", "P40", 4},
                       {"P40-NODE", "P40-SOCKET", 2, true},
                       {"P40-RACK", "P40-NODE", 3},
                       {"RTX-8", "RTX", 8},
                       {"RTX-NODE", "RTX-8", 2, true},
                       {"RTX-PAIR", "RTX-NODE", 2},
                       {"RTX-RACK-OF-3", "RTX-NODE", 3},
                       {"RTX-RACK-OF-4", "RTX-PAIR", 2}};
  const auto pair = [](const std::string& a, const std::string& b, const std::string& pin = "") {
    return physical_cell_config{.pinned_id = pin, .children = {{.address = a}, {.address = b}}};
  };
  config.physical_cells = {
      {.type = "K4-NODE", .address = "k0"},
      {.type = "K4-NODE", .address = "k1"},
      {.type = "K4-NODE",
       .address = "both",
       .children = {{.address = "8", .pinned_id = "speech-k4"}, {.address = "9"}}},
      {.type = "P40-RACK", .children = {{.address = "both"}, {.address = "p1"}, {.address = "p2"}}},
      {.type = "RTX-NODE", .address = "a0"},
      {.type = "RTX-NODE", .address = "a1"},
      {.type = "RTX-RACK-OF-3",
       .children = {{.address = "b0"}, {.address = "b1"}, {.address = "b2"}}},
      {.type = "RTX-RACK-OF-4", .children = {pair("c0", "c1", "speech-rtx"), pair("c2", "c3")}},
      {.type = "RTX-RACK-OF-4", .children = {pair("d0", "d1"), pair("d2", "d3")}}};
  config.virtual_clusters = {
      {.name = "speech",
       .cells = {{"RTX-RACK-OF-4.RTX-PAIR.RTX-NODE", 2},
                 {"RTX-RACK-OF-3.RTX-NODE", 2},
                 {"RTX-NODE", 2},
                 {"RTX-RACK-OF-4.RTX-PAIR", 1}},
       .pinned_ids = {"speech-k4", "speech-rtx"}},
      {.name = "vision",
       .cells = {{"P40-RACK.P40-NODE", 2}, {"P40-RACK.P40-NODE.P40-SOCKET", 2}, {"K4-NODE", 1}}}};
  return config;
}

std::vector<job_id> published_jobs(std::vector<std::uint32_t> numbers) {
  std::vector<job_id> all;
  for (const std::uint32_t n : numbers) all.push_back(job_id(n));
  return all;
}

struct published_scene {
  hived_config config = published_cluster();
  hived h = *hived::create(config);
  const tenant_id speech = *h.layout().find_tenant("speech");
  const tenant_id vision = *h.layout().find_tenant("vision");

  // A gang; its type may be empty: any. `pinned`: in speech's pair.
  [[nodiscard]] gang_request gang(std::uint32_t job, tenant_id tenant, std::int32_t priority,
                                  const std::string& type, std::vector<task_group> groups,
                                  bool lazy = true) const {
    gang_request r{.job = job_id(job),
                   .tenant = tenant,
                   .priority = priority,
                   .groups = std::move(groups),
                   .lazy = lazy};
    if (!type.empty()) r.leaf_type = *h.find_leaf_type(type);
    return r;
  }
  [[nodiscard]] gang_request in_pair(std::uint32_t job, std::int32_t priority, std::uint32_t tasks,
                                     bool lazy = true) const {
    gang_request r = gang(job, speech, priority, "RTX", {{tasks, 16}}, lazy);
    r.pinned = h.layout().find_pinned("speech-rtx");
    return r;
  }
  gang_plan propose(const gang_request& r) {
    const auto plan = h.propose(r);
    REQUIRE_MESSAGE(plan.ok(), plan.status().ToString());
    return *plan;
  }
  gang_plan commit(const gang_request& r, plan_result expected) {
    gang_plan plan = propose(r);
    CHECK(plan.result == expected);
    if (plan.result != plan_result::wait) REQUIRE(h.commit(plan).ok());
    CHECK(apiary_test::faults_of(h) == "");
    return plan;
  }
  void binds(const gang_request& r) { CHECK(commit(r, plan_result::bind).victims.empty()); }
  [[nodiscard]] absl::StatusCode error(const gang_request& r) {
    const std::uint64_t before = h.hash();
    const absl::StatusCode code = h.propose(r).status().code();
    CHECK(h.hash() == before);
    return code;
  }
  [[nodiscard]] std::vector<std::string> nodes_of(std::uint32_t job) const {
    std::vector<std::string> names;
    for (const hived_placement& at : h.tasks(*h.find(job_id(job))))
      names.push_back(at.leaves == 0 ? "" : std::string(h.layout().node_name(at.node)));
    return names;
  }

  // The gangs that run at once, in order. Speech's are 1 to 5, 12 and 13; 4 and 14 are opportunistic.
  void run_all() {
    binds(gang(1, speech, 0, "RTX", {{1, 1}}));
    binds(gang(2, speech, 1, "RTX", {{1, 1}}));
    binds(gang(3, speech, 2, "RTX", {{1, 8}}));
    binds(gang(4, speech, -1, "RTX", {{1, 1}}));
    binds(in_pair(5, 1, 2));
    binds(gang(9, vision, 1, "", {{1, 7}, {1, 5}}));  // tasks of two sizes, any model
    binds(gang(12, speech, 1, "RTX", {{2, 16}}));
    binds(gang(13, speech, 1, "RTX", {{2, 16}}));
    binds(gang(14, speech, -1, "RTX", {{2, 16}}));
    binds(gang(15, vision, 0, "K4", {{1, 2}}));
    const gang_plan second = commit(gang(16, vision, 1, "K4", {{1, 2}}, false), plan_result::bind);
    CHECK(second.victims.empty());
    CHECK(second.downgraded == published_jobs({15}));  // it runs on, beside
  }
};

}  // namespace

TEST_CASE("published cases: gangs that run, wait, preempt or lose their cells") {
  published_scene s;
  s.run_all();
  // The first two share a pair of GPUs; the third is on the same node, the opportunistic one elsewhere.
  CHECK(s.nodes_of(1) == s.nodes_of(2));
  CHECK(s.nodes_of(1) == s.nodes_of(3));
  CHECK(s.nodes_of(1) != s.nodes_of(4));
  CHECK(s.nodes_of(5) == std::vector<std::string>{"c0", "c1"});
  CHECK(s.h.find(job_id(9))->leaves.size() == 12);
  CHECK(s.h.find(job_id(15))->downgraded);

  // More than the tenant owns.
  const gang_plan large = s.commit(s.gang(7, s.vision, 1, "P40", {{3, 8}}), plan_result::wait);
  CHECK(large.wait.reason == wait_reason::never);
  // A higher priority in the pinned pair, and in the only K4 node of the tenant.
  CHECK(s.propose(s.in_pair(11, 2, 2)).victims == published_jobs({5}));
  const gang_plan last = s.propose(s.gang(17, s.vision, 2, "K4", {{1, 2}}, false));
  CHECK(last.result == plan_result::preempt);
  CHECK(last.victims == published_jobs({16}));
  // An equal priority does not preempt.
  CHECK(s.commit(s.in_pair(18, 1, 2), plan_result::wait).wait.reason == wait_reason::busy);

  for (const std::uint32_t job : {16U, 15U, 14U, 13U, 12U, 9U, 5U, 4U, 3U, 2U, 1U})
    CHECK(s.h.finish(job_id(job)).ok());
  CHECK(s.h.gangs().size() == 0);
  CHECK(s.h.hash() == hived::create(s.config)->hash());

  // All nodes are suggested but one of the pinned pair.
  summary_bitset nodes(s.h.layout().num_nodes(), true);
  nodes.assign(s.h.layout().find_node("c1")->value, false);
  gang_request r = s.in_pair(19, 1, 2);
  r.suggested = &nodes;
  CHECK(s.commit(r, plan_result::wait).wait.reason == wait_reason::not_suggested);
  r.suggested = nullptr;
  s.binds(r);
}

TEST_CASE("published cases: requests that are refused") {
  published_scene s;
  CHECK(s.error(s.gang(6, s.vision, 1, "RTX", {{1, 1}})) == absl::StatusCode::kFailedPrecondition);
  CHECK(s.error(s.gang(10, tenant_id(7), 1, "P40", {{1, 1}})) == absl::StatusCode::kNotFound);
  gang_request r = s.gang(10, s.vision, 1, "P40", {{1, 1}});
  CHECK(!s.h.layout().find_pinned("surprise"));
  r.pinned = 9;
  CHECK(s.error(r) == absl::StatusCode::kNotFound);
  r.pinned = s.h.layout().find_pinned("speech-rtx");
  CHECK(s.error(r) == absl::StatusCode::kFailedPrecondition);
  CHECK(s.error(s.gang(10, s.vision, 1001, "P40", {{1, 1}})) == absl::StatusCode::kInvalidArgument);
  CHECK(!s.h.find_leaf_type("V100"));
  r = s.gang(10, s.vision, 1, "P40", {{1, 1}});
  r.leaf_type = leaf_type_id(9);
  CHECK(s.error(r) == absl::StatusCode::kNotFound);

  // More K4 nodes than there are beside the pinned GPU.
  hived_config more = s.config;
  more.virtual_clusters[0].cells[0] = {"K4-NODE", 2};
  const absl::Status refused = hived::create(more).status();
  CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
  CHECK(refused.message() ==
        "virtualClusters: 3 cells of type \"K4-NODE\" are requested; chain \"K4-NODE\" has 2 "
        "besides pinned and larger cells");
}

TEST_CASE("published cases: preemptors take over from each other while their victim ends") {
  published_scene s;
  s.binds(s.in_pair(19, 1, 2, false));
  const gang_plan first = s.commit(s.in_pair(20, 2, 1), plan_result::preempt);
  const gang_plan second = s.commit(s.in_pair(21, 2, 1), plan_result::preempt);
  CHECK(first.victims == published_jobs({19}));
  CHECK(second.victims == published_jobs({19}));
  CHECK(first.tasks[0].node != second.tasks[0].node);
  CHECK(s.commit(s.in_pair(22, 2, 1), plan_result::wait).wait.reason == wait_reason::busy);
  const gang_plan third = s.commit(s.in_pair(23, 3, 2), plan_result::preempt);
  CHECK(third.victims == published_jobs({19}));
  CHECK(third.cancelled == published_jobs({20, 21}));
  CHECK(s.h.find(job_id(20)) == nullptr);
  CHECK(s.h.find(job_id(21)) == nullptr);
  REQUIRE(s.h.finish(job_id(19)).ok());
  const gang_plan fourth = s.commit(s.in_pair(24, 4, 1), plan_result::bind);
  CHECK(fourth.cancelled == published_jobs({23}));
  CHECK(s.h.find(job_id(23)) == nullptr);
  CHECK(s.h.gangs().size() == 1);
}

namespace {

// Another configuration after run_all(): RTX nodes have no halves, the first node of the pinned pair and
// a K4 node have other names, both tenants own fewer cells, and the nodes of gang 13 are in no rack.
hived_config changed_published_cluster(const published_scene& s) {
  hived_config config = s.config;
  config.cell_types[5] = {"RTX-NODE", "RTX", 16, true};
  std::vector<physical_cell_config>& cells = config.physical_cells;
  cells[7].children[0].children[0].address = "c9";
  cells[1].address = "k9";
  for (const std::size_t i : {0U, 1U}) config.virtual_clusters[1].cells[i].count = 1;
  config.virtual_clusters[0].cells[2].count = 1;
  const auto rename = [](physical_cell_config& node, const std::string& moved) {
    if (node.address == moved) node.address = "was-" + moved;
  };
  for (const std::string& moved : s.nodes_of(13)) {
    for (const std::size_t rack : {6U, 7U, 8U}) {
      for (physical_cell_config& cell : cells[rack].children) {
        rename(cell, moved);
        for (physical_cell_config& node : cell.children) rename(node, moved);
      }
    }
    cells.push_back({.type = "RTX-NODE", .address = moved});
  }
  return config;
}

// What must be true of run_all() after this change: of gang 5 a pod is lost, gang 16 is gone with its
// only node and gang 15 has the cell instead, and gangs 9 and 13 have no cells of their tenant any more.
void check_published_change(hived& h) {
  CHECK(apiary_test::faults_of(h) == "");
  for (const std::uint32_t job : {1U, 2U, 3U, 5U, 12U, 15U}) {
    CAPTURE(job);
    CHECK(h.find(job_id(job))->guaranteed());
  }
  for (const std::uint32_t job : {9U, 13U}) {
    CAPTURE(job);
    CHECK(h.find(job_id(job))->downgraded);
  }
  CHECK(h.find(job_id(16)) == nullptr);
  const gang_record& pair = *h.find(job_id(5));
  CHECK(pair.missing.size() == 16);
  CHECK(pair.count_live(0, 16) == 0);
  CHECK(pair.count_live(16, 32) == 16);
  // A pod whose node has left ends as any other, and the gang with its last pod.
  hived twice = h;
  CHECK(twice.finish_task(job_id(5), 1).ok());
  REQUIRE(twice.find(job_id(5)) != nullptr);
  CHECK(twice.finish_task(job_id(5), 0).ok());
  CHECK(twice.find(job_id(5)) == nullptr);
  CHECK(apiary_test::faults_of(twice) == "");
  CHECK(h.finish_task(job_id(5), 0).ok());
  CHECK(h.finish_task(job_id(5), 0).code() == absl::StatusCode::kNotFound);
  CHECK(h.finish_task(job_id(5), 1).ok());
  for (const std::uint32_t job : {15U, 14U, 13U, 12U, 9U, 4U, 3U, 2U, 1U})
    CHECK(h.finish(job_id(job)).ok());
  CHECK(h.gangs().size() == 0);
}

}  // namespace

TEST_CASE("published cases: another configuration, while gangs run") {
  published_scene s;
  s.run_all();
  const hived_config after = changed_published_cluster(s);
  const auto report = s.h.reconfigure(after);
  REQUIRE_MESSAGE(report.ok(), report.status().ToString());
  CHECK(report->gone == published_jobs({16}));
  CHECK(report->shrunk == published_jobs({5}));
  CHECK(report->cancelled.empty());
  CHECK(report->downgraded == published_jobs({9, 13}));
  CHECK(report->restored == published_jobs({15}));
  check_published_change(s.h);
  CHECK(s.h.hash() == hived::create(after)->hash());
}

TEST_CASE("published cases: a restart with another configuration, some nodes of pods have left") {
  published_scene s;
  s.run_all();
  const hived_config after = changed_published_cluster(s);
  hived fresh = *hived::create(after);
  for (const std::uint32_t job : {1U, 2U, 3U, 4U, 5U, 9U, 12U, 13U, 14U, 15U, 16U}) {
    CAPTURE(job);
    const gang_record& gang = *s.h.find(job_id(job));
    gang_request r = gang.request;
    if (r.pinned) r.pinned = fresh.layout().find_pinned("speech-rtx");
    std::vector<hived_placement> tasks;
    std::vector<gang_record::missing_leaf> missing;
    std::uint32_t index = 0;
    for (const task_devices& task : devices_of(s.h, gang)) {
      hived_placement& at = tasks.emplace_back();
      const std::string node = task.begin()->first;
      const auto found = fresh.layout().find_node(node);
      for (const auto& [name, device] : task) {
        if (!found) {
          missing.push_back({index, node, device});
        } else {
          const chain_leaf leaf = fresh.catalog().find_leaf(node, device);
          REQUIRE(leaf.leaf.valid());
          at.node = fresh.catalog().placement_of(leaf).node;
          at.leaves |= fresh.catalog().placement_of(leaf).leaves;
        }
        ++index;
      }
    }
    const auto own = fresh.recover(r, tasks, {}, missing);
    if (job == 16) {  // no leaf of it is left
      CHECK(own.status().code() == absl::StatusCode::kInvalidArgument);
      continue;
    }
    REQUIRE_MESSAGE(own.ok(), own.status().ToString());
  }
  check_published_change(fresh);
  CHECK(fresh.hash() == hived::create(after)->hash());
}
