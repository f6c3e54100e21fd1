// apiary/tests/hived/choice_test.cpp - a gang gets the cells with the fewest opportunistic leaves.
// SPDX-License-Identifier: MIT
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

// Nodes a, b, c, ... of eight leaves in pairs and quads; the tenant owns so many of them.
hived make(std::uint32_t nodes, std::uint32_t owned) {
  hived_config config;
  config.cell_types = {{.name = "PAIR", .child_type = "GPU", .child_count = 2},
                       {.name = "QUAD", .child_type = "PAIR", .child_count = 2},
                       {.name = "NODE", .child_type = "QUAD", .child_count = 2, .is_node = true}};
  for (std::uint32_t n = 0; n < nodes; ++n) {
    config.physical_cells.push_back(
        {.type = "NODE", .address = std::string(1, static_cast<char>('a' + n))});
  }
  config.virtual_clusters = {{.name = "t", .cells = {{.type = "NODE", .count = owned}}}};
  auto made = hived::create(config);
  REQUIRE(made.ok());
  return *std::move(made);
}

gang_plan carry_out(hived& scheduler, const gang_request& request) {
  auto plan = scheduler.propose(request);
  REQUIRE(plan.ok());
  CHECK(scheduler.commit(*plan).ok());
  CHECK(audit(scheduler).empty());
  return *std::move(plan);
}

}  // namespace

TEST_CASE("if every whole cell has opportunistic leaves, the one with the fewest is bound") {
  for (const bool suggested : {false, true}) {
    CAPTURE(suggested);
    hived scheduler = make(3, 1);
    summary_bitset nodes(3, true);
    if (suggested) nodes.reset(0);
    // Opportunistic leaves: seven each in a and b, one in c.
    std::vector<std::uint32_t> sizes = {7, 7, 1};
    for (std::uint32_t n = 0; n < 3; ++n) {
      summary_bitset only(3);
      only.set(n);
      carry_out(scheduler, {.job = job_id(n),
                            .tenant = tenant_id(0),
                            .priority = gang_request::opportunistic_priority,
                            .groups = {{1, sizes[n]}},
                            .suggested = &only});
    }
    const gang_plan plan = carry_out(scheduler, {.job = job_id(9),
                                                 .tenant = tenant_id(0),
                                                 .groups = {{1, 7}},
                                                 .suggested = suggested ? &nodes : nullptr});
    CHECK(plan.result == plan_result::bind);
    CHECK(plan.tasks[0].node == node_id(2));
  }
}

TEST_CASE("a victim on a leaf that another victim claims") {
  hived scheduler = make(1, 1);
  const auto gang = [&](std::uint32_t job, std::int32_t priority, task_group group) {
    return carry_out(
        scheduler,
        {.job = job_id(job), .tenant = tenant_id(0), .priority = priority, .groups = {group}});
  };
  gang(0, 4, {3, 2});
  gang(1, 1, {1, 1});
  CHECK(gang(2, 5, {1, 4}).victims == std::vector<job_id>{job_id(0)});
  CHECK(scheduler.finish(job_id(0)).ok());
  CHECK(gang(3, 3, {4, 1}).victims == std::vector<job_id>{job_id(1)});
  const gang_plan plan = gang(4, 5, {2, 2});
  CHECK(plan.result == plan_result::preempt);
  CHECK(plan.victims == std::vector<job_id>{job_id(1)});
  CHECK(plan.cancelled == std::vector<job_id>{job_id(3)});
}
