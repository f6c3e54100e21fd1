// apiary/tests/hived/queries_test.cpp - usage of tenants and cells, counted by hand.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/queries.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <support/hived_documents.h>
#include <utility>

using namespace apiary;
using namespace apiary_test;

TEST_CASE("what a tenant uses and what a cell is used for") {
  // Racks of two nodes of two pairs: b owns a pair and the pinned node n1, a owns a rack.
  auto made = hived::create(small_cluster());
  REQUIRE(made.ok());
  hived scheduler = *std::move(made);
  const tenant_id a = *scheduler.layout().find_tenant("a");
  const tenant_id b = *scheduler.layout().find_tenant("b");
  CHECK(*hived_queries::usage_of(scheduler, a) == hived_queries::tenant_usage{.owned = 8});
  CHECK(*hived_queries::usage_of(scheduler, b) == hived_queries::tenant_usage{.owned = 6});
  const auto run = [&](const gang_request& request) {
    const auto plan = scheduler.propose(request);
    REQUIRE(plan.ok());
    REQUIRE(plan->result != plan_result::wait);
    REQUIRE(scheduler.commit(*plan).ok());
    return *plan;
  };
  const leaf_type_id gpu = *scheduler.find_leaf_type("GPU");
  run({.job = job_id(0), .tenant = a, .groups = {{1, 2}}, .leaf_type = gpu, .lazy = true});
  run({.job = job_id(1), .tenant = b, .groups = {{1, 2}}, .leaf_type = gpu});
  CHECK(*hived_queries::usage_of(scheduler, a) ==
        hived_queries::tenant_usage{.owned = 8, .guaranteed = 2, .running = 1});
  CHECK(*hived_queries::usage_of(scheduler, b) ==
        hived_queries::tenant_usage{.owned = 6, .guaranteed = 2, .running = 1});
  for (std::uint32_t job = 2; job < 4; ++job) {
    run({.job = job_id(job),
         .tenant = b,
         .priority = gang_request::opportunistic_priority,
         .groups = {{2, job == 2 ? 4U : 2U}},
         .leaf_type = gpu});
  }
  const chain_id chain = scheduler.layout().chain_of(*scheduler.layout().find_node("n0"));
  hived_queries::cell_state sum;
  for (const cell_id root : scheduler.layout().chain(chain).tree.cells(3)) {
    const hived_queries::cell_state rack = *hived_queries::state_of(scheduler, chain, root);
    sum.leaves += rack.leaves;
    sum.idle += rack.idle;
    sum.guaranteed += rack.guaranteed;
    sum.opportunistic += rack.opportunistic;
  }
  CHECK(sum ==
        hived_queries::cell_state{.leaves = 16, .idle = 0, .guaranteed = 4, .opportunistic = 12});
}

TEST_CASE("claimed and bad leaves are counted in addition to their users") {
  hived_config config;
  config.cell_types = {{.name = "NODE", .child_type = "GPU", .child_count = 4, .is_node = true}};
  config.physical_cells = {{.type = "NODE", .address = "n"}};
  config.virtual_clusters = {{.name = "t", .cells = {{.type = "NODE", .count = 1}}}};
  auto made = hived::create(config);
  REQUIRE(made.ok());
  hived scheduler = *std::move(made);
  const cell_id node = scheduler.layout().node_cell(node_id(0));
  CHECK(*hived_queries::state_of(scheduler, chain_id(0), node) ==
        hived_queries::cell_state{.leaves = 4, .idle = 4});
  const gang_request opportunistic{.job = job_id(0),
                                   .tenant = tenant_id(0),
                                   .priority = gang_request::opportunistic_priority,
                                   .groups = {{1, 3}}};
  const auto first = scheduler.propose(opportunistic);
  REQUIRE(first.ok());
  REQUIRE(scheduler.commit(*first).ok());
  const auto second =
      scheduler.propose({.job = job_id(1), .tenant = tenant_id(0), .groups = {{1, 4}}});
  REQUIRE(second.ok());
  REQUIRE(second->result == plan_result::preempt);
  REQUIRE(scheduler.commit(*second).ok());
  REQUIRE(scheduler.mark_bad(node_id(0), 3).ok());
  CHECK(*hived_queries::state_of(scheduler, chain_id(0), node) ==
        hived_queries::cell_state{
            .bound_to = tenant_id(0), .leaves = 4, .opportunistic = 3, .claimed = 4, .bad = 1});
  CHECK(*hived_queries::usage_of(scheduler, tenant_id(0)) ==
        hived_queries::tenant_usage{
            .owned = 4, .opportunistic = 3, .claimed = 4, .running = 1, .preempting = 1});
}

TEST_CASE("what is not there is said to be not there") {
  const auto made = hived::create(small_cluster());
  REQUIRE(made.ok());
  const hived& scheduler = *made;
  const auto refuses = [](const absl::Status& status, const std::string& words) {
    CHECK(status.code() == absl::StatusCode::kNotFound);
    CHECK(std::string(status.message()) == words);
  };
  refuses(hived_queries::usage_of(scheduler, tenant_id(2)).status(), "there is no tenant 2");
  refuses(hived_queries::usage_of(scheduler, tenant_id()).status(), "no tenant");
  const std::uint32_t chains = scheduler.cells().num_chains();
  refuses(hived_queries::state_of(scheduler, chain_id(9), cell_id(0)).status(),
          "there is no chain 9");
  refuses(hived_queries::state_of(scheduler, chain_id(chains), cell_id(0)).status(),
          "there is no chain " + std::to_string(chains));
  const std::uint32_t cells = scheduler.cells().chain(0).tree().num_cells();
  CHECK(hived_queries::state_of(scheduler, chain_id(0), cell_id(cells - 1)).ok());
  refuses(hived_queries::state_of(scheduler, chain_id(0), cell_id(cells)).status(),
          "chain 0 has no cell " + std::to_string(cells));
  refuses(hived_queries::state_of(scheduler, chain_id(0), cell_id()).status(), "no cell is given");
  refuses(hived_queries::state_of(scheduler, chain_id(), cell_id(0)).status(), "no chain is given");
  const auto capacities = [&](const gang_request& request, std::uint32_t chain) {
    return hived_queries::refused_capacity(scheduler, request, wait_reason::busy, chain).status();
  };
  const std::uint32_t racks =
      scheduler.layout().chain_of(*scheduler.layout().find_node("n0")).value;
  const std::uint32_t boxes =
      scheduler.layout().chain_of(*scheduler.layout().find_node("b0")).value;
  const tenant_id b = *scheduler.layout().find_tenant("b");
  gang_request r{.job = job_id(0), .tenant = b, .groups = {{1, 1}}};
  CHECK(capacities(r, racks).ok());
  refuses(capacities(r, chains), "there is no chain " + std::to_string(chains));
  const std::string elsewhere =
      "tenant " + std::to_string(b.value) + " has no such cells in chain " + std::to_string(boxes);
  refuses(capacities(r, boxes), elsewhere);
  r.pinned = 0;
  CHECK(capacities(r, racks).ok());
  refuses(capacities(r, boxes), elsewhere);
  r.pinned = 1;
  refuses(capacities(r, racks), "there is no pinned cell 1");
  r.pinned.reset();
  r.tenant = tenant_id(7);
  refuses(capacities(r, racks), "there is no tenant 7");
  r.tenant = b;
  r.priority = gang_request::opportunistic_priority;
  CHECK(capacities(r, boxes).ok());
}
