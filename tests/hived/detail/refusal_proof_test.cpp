// apiary/tests/hived/detail/refusal_proof_test.cpp - why gangs wait, counted without the search.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include "support/hived_play.h"
#include "support/hived_proofs.h"
#include "support/scale.h"
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/explain/unblock_search.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/hived/detail/capacity.h>
#include <apiary/hived/detail/search.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/queries.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary::detail;
using apiary_test::hived_play;

// Two racks of two nodes of two sockets of three GPUs: one is a's, b has a node and a socket.
hived a_and_b() {
  hived_config config;
  config.cell_types = {{"SOCKET", "GPU", 3}, {"NODE", "SOCKET", 2, true}, {"RACK", "NODE", 2}};
  config.physical_cells = {{.type = "RACK", .children = {{.address = "n0"}, {.address = "n1"}}},
                           {.type = "RACK", .children = {{.address = "n2"}, {.address = "n3"}}}};
  config.virtual_clusters = {{.name = "a", .cells = {{"RACK", 1}}},
                             {.name = "b", .cells = {{"RACK.NODE", 1}, {"RACK.NODE.SOCKET", 1}}}};
  auto scheduler = hived::create(config);
  REQUIRE(scheduler.ok());
  return *std::move(scheduler);
}

struct waiting_gang {
  gang_request request;
  gang_wait wait;
};

// A gang that waits.
waiting_gang waits_for(hived& scheduler, std::uint32_t tenant, std::vector<task_group> groups,
                       std::int32_t priority = 0) {
  waiting_gang a{{.job = job_id(99),
                  .tenant = tenant_id(tenant),
                  .priority = priority,
                  .groups = std::move(groups)},
                 {}};
  const auto plan = scheduler.propose(a.request);
  REQUIRE((plan.ok() && plan->result == plan_result::wait));
  a.wait = plan->wait;
  rng random(1);
  REQUIRE(apiary_test::check_proof(scheduler, a.request, a.wait, random));
  return a;
}
void start_gang(hived& scheduler, const gang_request& request) {
  const auto plan = scheduler.propose(request);
  REQUIRE((plan.ok() && plan->result == plan_result::bind));
  REQUIRE(scheduler.commit(*plan).ok());
}

hived_play::counts play_with_proofs(std::uint64_t runs, std::uint64_t events,
                                    std::uint64_t first_seed, const hived_play::habits& habits) {
  hived_play::counts all;
  for (std::uint64_t seed = first_seed; seed < first_seed + runs; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    hived_play p(apiary_test::random_cluster(random), random(), habits);
    for (std::uint64_t i = 0; i < events; ++i) {
      CAPTURE(i);
      p.step();
    }
    all.waiting += p.seen.waiting;
    all.proven += p.seen.proven;
  }
  return all;
}

}  // namespace

TEST_CASE("a tenant's cells as a tree: a whole cell is alone in each larger cell") {
  hived scheduler = a_and_b();
  const waiting_gang a = waits_for(scheduler, 0, {{13, 1}});
  const gang_capacity rack =
      *hived_queries::refused_capacity(scheduler, a.request, a.wait.reason, 0);
  CHECK(rack.node_level == 2);
  CHECK(rack.free == std::vector<std::uint32_t>{6, 6});
  CHECK(rack.tree.num_levels() == 4);
  CHECK(rack.tree.cells(3).size() == 1);
  CHECK(rack.tree.num_leaves() == 12);

  const waiting_gang b = waits_for(scheduler, 1, {{10, 1}});
  const gang_capacity alone =
      *hived_queries::refused_capacity(scheduler, b.request, b.wait.reason, 0);
  CHECK(alone.free == std::vector<std::uint32_t>{6, 3});
  CHECK(alone.tree.cells(3).size() == 2);
  CHECK(alone.tree.cells(2).size() == 2);
  CHECK(alone.tree.cells(1).size() == 3);
  CHECK(alone.tree.num_leaves() == 9);

  const waiting_gang anyone = waits_for(scheduler, 1, {{25, 1}}, -1);
  const gang_capacity all =
      *hived_queries::refused_capacity(scheduler, anyone.request, anyone.wait.reason, 0);
  CHECK(all.free == std::vector<std::uint32_t>{6, 6, 6, 6});
  CHECK(all.tree.cells(3).size() == 2);
  CHECK(all.tree.num_leaves() == 24);
}

TEST_CASE("what would help a gang that waits: nodes of the tenant to free") {
  hived scheduler = a_and_b();
  const auto helps = [&](const waiting_gang& waits) {
    const gang_capacity cells = *hived_queries::refused_capacity(
        scheduler, waits.request, waits.wait.reason, waits.wait.chain);
    std::vector<std::uint32_t> gpus;
    for (const cell_id node : cells.tree.cells(cells.node_level))
      gpus.push_back(cells.tree.descendants(node, 0).size());
    capacity_index<ragged_tree> free(cells.tree, cells.node_level, 64);
    for (std::uint32_t n = 0; n < gpus.size(); ++n) free.set(n, cells.free[n]);
    unblock_search<ragged_tree> search;
    return search(free, constraints_of(waits.request), gpus)
        .text({"GPU", "socket", "node", "rack"});
  };
  const auto gang = [](std::uint32_t job, std::uint32_t tenant, std::int32_t priority,
                       task_group group) {
    return gang_request{
        .job = job_id(job), .tenant = tenant_id(tenant), .priority = priority, .groups = {group}};
  };
  start_gang(scheduler, gang(1, 0, 5, {1, 5}));
  start_gang(scheduler, gang(2, 0, 5, {1, 3}));
  CHECK(helps(waits_for(scheduler, 0, {{1, 6}}, 5)) ==
        "the gang would fit if node 1 were free (3 more GPUs)");
  start_gang(scheduler, gang(3, 1, 5, {1, 2}));  // on the socket that b owns alone
  start_gang(scheduler, gang(4, 1, 0, {1, 6}));
  CHECK(helps(waits_for(scheduler, 1, {{2, 3}, {1, 3}}, 5)) ==
        "the gang would fit if node 1 were free (2 more GPUs)");  // gang 4 may be preempted
  CHECK(helps(waits_for(scheduler, 1, {{1, 6}, {1, 4}}, 5)) ==
        "the gang does not fit even if all nodes are free");
}

TEST_CASE("`never` counts all cells, `busy` the cells that the gang may get") {
  hived scheduler = a_and_b();
  const waiting_gang never = waits_for(scheduler, 1, {{2, 5}});
  CHECK(never.wait.reason == wait_reason::never);
  CHECK(never.wait.why()->weighings == std::vector<infeasibility_proof::weighing>{{{1}, 2}});
  CHECK(never.wait.why()->cells[0].most == 1);

  start_gang(scheduler,
             {.job = job_id(0), .tenant = tenant_id(1), .priority = 3, .groups = {{1, 2}}});
  const waiting_gang busy = waits_for(scheduler, 1, {{3, 3}}, 3);
  CHECK(busy.wait.reason == wait_reason::busy);
  CHECK(busy.wait.why()->cells[0].most == 2);
  // Above it, nothing is in the way.
  const auto above = scheduler.propose(
      {.job = job_id(99), .tenant = tenant_id(1), .priority = 4, .groups = {{3, 3}}});
  REQUIRE(above.ok());
  CHECK(above->result == plan_result::preempt);
  CHECK(above->wait.proof.empty());

  // On bad hardware what it may have counts as if it were well.
  REQUIRE(scheduler.mark_bad(node_id(0)).ok());
  const waiting_gang still = waits_for(scheduler, 1, {{3, 3}}, 3);
  CHECK(still.wait.proof == busy.wait.proof);
}

TEST_CASE("what no count of slots refuses is weighed, by the task groups that were asked for") {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}, {"RACK", "NODE", 3}};
  config.physical_cells = {
      {.type = "RACK", .children = {{.address = "n0"}, {.address = "n1"}, {.address = "n2"}}}};
  config.virtual_clusters = {{.name = "a", .cells = {{"RACK", 1}}}};
  auto scheduler = hived::create(config);
  REQUIRE(scheduler.ok());
  // Twelve GPUs for twelve, but a task of three leaves one of its node.
  const waiting_gang a = waits_for(*scheduler, 0, {{1, 3}, {1, 4}, {1, 3}, {1, 2}});
  CHECK(a.wait.reason == wait_reason::never);
  CHECK(!a.wait.shortage);
  const infeasibility_proof& why = *a.wait.why();
  CHECK(why.groups == std::vector<std::uint32_t>{0, 1, 3});
  // A node holds one of these tasks.
  CHECK(why.weighings == std::vector<infeasibility_proof::weighing>{{{1, 1, 1}, 4}});
  CHECK(why.cells[0].weighing == 0);
  CHECK(why.cells[0].most == 3);
  CHECK(why.text(constraints_of(a.request), {"GPU", "node", "rack"}) ==
        "the gang needs capacity for 4 tasks (2 tasks of 3 GPUs, 1 task of 4 GPUs and 1 task of 2 "
        "GPUs); the cluster has 3");
}

TEST_CASE("a preempting gang whose leaves became bad may use its own claims again") {
  hived scheduler = a_and_b();
  start_gang(scheduler, {.job = job_id(0), .tenant = tenant_id(0), .groups = {{2, 6}}});
  const gang_request above{
      .job = job_id(99), .tenant = tenant_id(0), .priority = 2, .groups = {{1, 6}, {1, 5}}};
  auto plan = scheduler.propose(above);
  REQUIRE((plan.ok() && plan->result == plan_result::preempt));
  REQUIRE(scheduler.commit(*plan).ok());
  for (std::uint32_t n = 0; n < 4; ++n) REQUIRE(scheduler.mark_bad(node_id(n)).ok());
  plan = scheduler.propose(above);
  REQUIRE((plan.ok() && plan->result == plan_result::wait));
  CHECK(plan->wait.reason == wait_reason::unhealthy);
  CHECK(plan->wait.proof.empty());
  CHECK(hived_queries::refused_capacity(scheduler, above, wait_reason::busy, 0)->free ==
        std::vector<std::uint32_t>{6, 6});
  CHECK(hived_queries::refused_capacity(scheduler,
                                        {.job = job_id(98), .tenant = tenant_id(0), .priority = 2},
                                        wait_reason::busy, 0)
            ->free == std::vector<std::uint32_t>{0, 1});
}

TEST_CASE("where all hardware is well every gang that waits has a proof, and no forged one holds") {
  hived_play::habits habits;
  habits.marks = 0;
  habits.proofs = true;
  const hived_play::counts all =
      play_with_proofs(apiary_test::scaled(std::uint64_t{200}), 400, 1, habits);
  CHECK(all.proven > 0);
}

TEST_CASE("on bad hardware and with suggested nodes what proofs there are hold") {
  hived_play::habits habits;
  habits.proofs = true;
  const hived_play::counts all =
      play_with_proofs(apiary_test::scaled(std::uint64_t{200}), 400, 5'000, habits);
  CHECK(all.proven > 0);
  CHECK(all.proven < all.waiting);
}
