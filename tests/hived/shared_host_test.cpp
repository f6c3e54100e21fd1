// apiary/tests/hived/shared_host_test.cpp - hosts with devices in several chains.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_jobs.h>
#include <apiary/hived/hived_placer.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

using namespace apiary;

namespace {

// Host h has two devices of chain NEW and two of chain OLD; host o one node of chain OLD.
hived_config two_models() {
  hived_config config;
  config.cell_types = {{"NEW", "V100", 2, true}, {"OLD", "K80", 2, true}};
  config.physical_cells = {
      {.type = "NEW", .address = "h"},
      {.type = "OLD", .address = "h", .children = {{.address = "8"}, {.address = "9"}}},
      {.type = "OLD", .address = "o"}};
  config.virtual_clusters = {{.name = "t", .cells = {{"NEW", 1}, {"OLD", 2}}}};
  return config;
}
std::string fault_of(const hived_config& config) {
  return std::string(hived_layout::create(config).status().message());
}
std::uint32_t bad_leaves(const hived& h) {
  std::uint32_t bad = 0;
  for (std::uint32_t c = 0; c < h.layout().chains.size(); ++c) {
    const detail::physical_chain& chain = h.cells().chain(c);
    for (const cell_id leaf : chain.tree().cells(0)) bad += chain.healthy().healthy(leaf) ? 0U : 1U;
  }
  return bad;
}

}  // namespace

TEST_CASE("a host in two chains has a node in each, with one name") {
  const auto layout = hived_layout::create(two_models());
  REQUIRE_MESSAGE(layout.ok(), layout.status().ToString());
  CHECK(layout->num_nodes() == 3);
  const node_id first = *layout->find_node("h");
  const node_id second = layout->next_of_host(first);
  CHECK(second != first);
  CHECK(layout->node_name(second) == "h");
  CHECK(layout->chain_of(second) != layout->chain_of(first));
  CHECK(layout->next_of_host(second) == first);
  const node_id other = *layout->find_node("o");
  CHECK(layout->next_of_host(other) == other);
}

TEST_CASE("hived_gang_placer: a bad host stops the gangs of all its nodes") {
  hived_gang_placer placer(hived::create(two_models()).value());
  for (std::uint32_t job = 1; job <= 3; ++job) {
    const gang_request guest{
        .job = job_id(job), .tenant = tenant_id(0), .priority = -1, .groups = {{1, 2}}};
    REQUIRE(placer.commit(guest, placer.propose(guest).value().value()).ok());
  }
  const hived_layout& layout = placer.scheduler().layout();
  const node_id other = *layout.find_node("o");
  REQUIRE(placer.jobs_on(other).size() == 1);
  std::vector<job_id> of_host{job_id(1), job_id(2), job_id(3)};
  std::erase(of_host, placer.jobs_on(other)[0]);
  const node_id first = *layout.find_node("h");
  CHECK(placer.jobs_on(first) == of_host);
  CHECK(placer.jobs_on(layout.next_of_host(first)) == of_host);
}

TEST_CASE("a device in two chains, and a host twice in one chain, are refused") {
  hived_config config = two_models();
  config.physical_cells[1].children = {{.address = "7"}, {.address = "1"}};
  CHECK(fault_of(config) ==
        "physicalCluster.physicalCells: device 1 of node \"h\" is in chain \"NEW\" and in chain "
        "\"OLD\"; two gangs could get it: give each its cellAddress");
  config.physical_cells[1].children = {{.address = "7"}, {.address = "x"}};
  CHECK(fault_of(config) ==
        "physicalCluster.physicalCells[1].cellChildren[1].cellAddress: \"x\" is "
        "not a device index");
  config = two_models();
  config.physical_cells[2].address = "h";
  CHECK(fault_of(config) ==
        "physicalCluster.physicalCells[2].cellAddress: node \"h\" is named twice");
  config.physical_cells[0].address = "o";  // h is first in OLD, then again
  CHECK(fault_of(config) ==
        "physicalCluster.physicalCells[2].cellAddress: node \"h\" is named twice");
}

TEST_CASE("the nodes of a host are bad and healthy together, its devices one by one") {
  hived h = hived::create(two_models()).value();
  const std::uint64_t fresh = h.hash();
  const node_id first = *h.layout().find_node("h");
  const node_id second = h.layout().next_of_host(first);
  for (const node_id node : {first, second}) {
    REQUIRE(h.mark_bad(node).ok());
    CHECK(bad_leaves(h) == 4);
    CHECK(apiary_test::faults_of(h) == "");
    REQUIRE(h.mark_healthy(node, 0).ok());
    CHECK(bad_leaves(h) == 3);
    REQUIRE(h.mark_healthy(second).ok());
    CHECK(bad_leaves(h) == 0);
    CHECK(h.hash() == fresh);
  }
}

TEST_CASE("devices of a shared host are found by their index, also in another configuration") {
  hived h = hived::create(two_models()).value();
  const gang_request r{.job = job_id(0),
                       .tenant = tenant_id(0),
                       .groups = {{1, 2}},
                       .leaf_type = *h.find_leaf_type("K80")};
  std::vector<node_id> nodes;
  for (const char* name : {"h", "o"}) {
    node_id node = *h.layout().find_node(name);
    if (h.layout().chain(h.layout().chain_of(node)).name != "OLD")
      node = h.layout().next_of_host(node);
    nodes.push_back(node);
  }
  REQUIRE(h.recover(r, std::vector<hived_placement>{{nodes[0], 3}}).ok());
  REQUIRE(h.mark_bad(nodes[1]).ok());
  hived_config config = two_models();
  std::swap(config.physical_cells[0], config.physical_cells[2]);
  config.virtual_clusters[0].cells = {{"OLD", 1}};
  REQUIRE(h.reconfigure(config).ok());
  CHECK(bad_leaves(h) == 2);
  const std::vector<hived_placement> tasks = h.tasks(*h.find(job_id(0)));
  CHECK(h.layout().node_name(tasks[0].node) == "h");
  CHECK(h.layout().devices(tasks[0]) == std::vector<std::uint32_t>{8, 9});
  CHECK(apiary_test::faults_of(h) == "");

  // One of its devices is said to be of the other model now.
  const std::uint64_t hash = h.hash();
  config.physical_cells[1].children = {{.address = "8"}, {.address = "7"}};
  config.physical_cells[2].children = {{.address = "0"}, {.address = "9"}};
  const absl::Status status = h.reconfigure(config).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(status.message() == "gang 0: the devices of one task are in two chains");
  CHECK(h.hash() == hash);
}

TEST_CASE("jobs over time are not for hosts in several chains") {
  CHECK(hived_jobs::create(hived::create(two_models()).value()).status().message() ==
        "node h is in several chains; jobs over time need one");
}
