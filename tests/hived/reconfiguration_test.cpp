// apiary/tests/hived/reconfiguration_test.cpp - gangs and faults go over by their names.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include <apiary/core/ids.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/detail/catalog.h>
#include <apiary/hived/detail/move.h>
#include <apiary/hived/detail/state.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/layout.h>
#include <apiary/topology/tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary::detail;

// Nodes of two GPUs, of which tenant "a" has some.
hived_config nodes_named(const std::vector<std::string>& names, std::uint32_t owned) {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 2, true}};
  for (const std::string& name : names)
    config.physical_cells.push_back({.type = "NODE", .address = name});
  config.virtual_clusters = {{.name = "a", .cells = {{"NODE", owned}}}};
  return config;
}

struct one_configuration {
  hived_catalog catalog;
  hived_state state;

  explicit one_configuration(const hived_config& config)
      : catalog(*hived_layout::create(config)), state(catalog.layout()) {}

  // A gang of "a" runs, a task on each of these nodes. Whether as a's.
  bool run(std::uint32_t job, std::int32_t priority, const std::vector<std::string>& nodes) {
    std::vector<chain_leaf> leaves;
    for (const std::string& node : nodes)
      for (const std::uint32_t device : {0U, 1U}) leaves.push_back(catalog.find_leaf(node, device));
    return state.recover({.request = {.job = job_id(job),
                                      .tenant = tenant_id(0),
                                      .priority = priority,
                                      .groups = {{static_cast<std::uint32_t>(nodes.size()), 2}}},
                          .leaves = std::move(leaves)});
  }
  // A gang of "a" waits until this node is idle.
  void preempt(std::uint32_t job, std::int32_t priority, const std::string& node) {
    gang_placement place;
    place.cluster = state.cells().cluster_of(tenant_id(0), 0);
    const auto& tree = state.cells().cluster(place.cluster).tree();
    cell_id root;
    for (const cell_id r : tree.roots(1))
      if (!state.cells().cluster(place.cluster).image(r).valid()) root = r;
    for (const std::uint32_t device : {0U, 1U}) {
      place.leaves.push_back(
          {tree.children(root, 1)[device], catalog.find_leaf(node, device).leaf});
    }
    state.admit(
        {.job = job_id(job), .tenant = tenant_id(0), .priority = priority, .groups = {{1, 2}}},
        place, true, {});
  }
  hived_reconfiguration from(const one_configuration& before) {
    hived_reconfiguration report =
        detail::hived_move(before.catalog, before.state, catalog, state).carry_over();
    CHECK(faults() == "");
    return report;
  }
  [[nodiscard]] std::string faults() const {
    return apiary_test::faults_of(
        apiary_test::afresh::audit_afresh(catalog.layout(), state.cells(), state.gangs()));
  }
  [[nodiscard]] const gang_record& gang(std::uint32_t job) const {
    return state.gangs()[*state.gangs().find(job_id(job))];
  }
  // The nodes of a gang's tasks, "" where one is not in the configuration.
  [[nodiscard]] std::vector<std::string> nodes_of(std::uint32_t job) const {
    std::vector<hived_placement> tasks;
    catalog.list_tasks(gang(job).leaves, gang(job).request.groups, tasks);
    std::vector<std::string> names;
    for (const hived_placement& t : tasks)
      names.push_back(t.leaves == 0 ? "" : std::string(catalog.layout().node_name(t.node)));
    return names;
  }
};

using job_ids = std::vector<job_id>;
using names_of_nodes = std::vector<std::string>;

TEST_CASE("hived_reconfiguration: every gang is where it was, or is said not to be") {
  one_configuration before(nodes_named({"n0", "n1", "n2", "n3"}, 2));
  REQUIRE(before.run(1, 0, {"n0"}));
  before.run(2, -1, {"n1"});
  before.run(3, -1, {"n2", "n3"});
  before.preempt(4, 1, "n2");
  REQUIRE(before.faults() == "");

  one_configuration after(nodes_named({"n3", "n5", "n0"}, 1));
  const hived_reconfiguration report = after.from(before);
  CHECK(report.cancelled == job_ids{job_id(4)});
  CHECK(report.gone == job_ids{job_id(2)});
  CHECK(report.shrunk == job_ids{job_id(3)});
  CHECK(report.downgraded.empty());
  CHECK(report.restored.empty());
  CHECK(after.state.gangs().size() == 2);
  CHECK(after.gang(1).guaranteed());
  CHECK(after.nodes_of(1) == names_of_nodes{"n0"});
  CHECK(after.nodes_of(3) == names_of_nodes{"", "n3"});
  CHECK(after.gang(3).missing.size() == 2);

  // What it runs on is its own again in a configuration that has it.
  one_configuration again(nodes_named({"n2", "n3", "n0"}, 1));
  const hived_reconfiguration back = again.from(after);
  CHECK(back.shrunk.empty());
  CHECK(again.nodes_of(3) == names_of_nodes{"n2", "n3"});
  CHECK(again.gang(3).missing.empty());
}

TEST_CASE("hived_reconfiguration: guaranteed gangs first, then by priority, then by job") {
  const names_of_nodes names = {"n0", "n1", "n2", "n3"};
  one_configuration before(nodes_named(names, 3));
  REQUIRE(before.run(1, 0, {"n0"}));
  REQUIRE(before.run(2, 3, {"n1"}));
  REQUIRE(before.run(3, 3, {"n2"}));
  REQUIRE(!before.run(4, 9, {"n3"}));  // it came too late

  one_configuration one(nodes_named(names, 1));
  CHECK(one.from(before).downgraded == job_ids{job_id(3), job_id(1)});
  CHECK(one.gang(2).guaranteed());

  // A gang that lost its cells comes after the others, whatever its priority.
  one_configuration three(nodes_named(names, 3));
  hived_reconfiguration report = three.from(before);
  CHECK(report.downgraded.empty());
  CHECK(report.restored.empty());
  CHECK(!three.gang(4).guaranteed());

  one_configuration two(nodes_named(names, 2));
  report = two.from(one);
  CHECK(report.restored == job_ids{job_id(4)});
  CHECK(report.downgraded.empty());
  one_configuration four(nodes_named(names, 4));
  report = four.from(two);
  CHECK(report.restored == job_ids{job_id(3), job_id(1)});
  for (std::uint32_t job = 1; job <= 4; ++job)
    CHECK(four.nodes_of(job) == names_of_nodes{names[job - 1]});
}

TEST_CASE("hived_reconfiguration: what is bad stays so, by its names") {
  one_configuration before(nodes_named({"n0", "n1", "n2"}, 1));
  for (const char* node : {"n0", "n2"})
    REQUIRE(before.state.mark(before.catalog.find_leaf(node, 1), false));
  one_configuration after(nodes_named({"n3", "n2", "n1"}, 1));
  CHECK(after.from(before).gone.empty());
  const auto healthy = [&](const char* node, std::uint32_t device) {
    const chain_leaf l = after.catalog.find_leaf(node, device);
    return after.state.cells().chain(l.chain).healthy().healthy(l.leaf);
  };
  CHECK(!healthy("n2", 1));
  CHECK(healthy("n2", 0));
  for (const std::uint32_t device : {0U, 1U})
    CHECK((healthy("n1", device) && healthy("n3", device)));
}

TEST_CASE("hived_reconfiguration: a gang whose tenant is missing runs on without tenant") {
  one_configuration before(nodes_named({"n0", "n1"}, 1));
  REQUIRE(before.run(1, 5, {"n0"}));
  hived_config config = nodes_named({"n0", "n1"}, 1);
  config.virtual_clusters[0].name = "b";
  one_configuration after(config);
  CHECK(after.from(before).downgraded == job_ids{job_id(1)});
  CHECK(!after.gang(1).request.tenant.valid());
  CHECK(after.nodes_of(1) == names_of_nodes{"n0"});
  // That is final.
  one_configuration again(nodes_named({"n0", "n1"}, 1));
  CHECK(again.from(after).restored.empty());
  CHECK(!again.gang(1).guaranteed());
}

}  // namespace
