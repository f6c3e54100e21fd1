// apiary/tests/gandiva/gandiva_hived_test.cpp - jobs on HiveD, guaranteed or opportunistic.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include <apiary/core/ids.h>
#include <apiary/gandiva/gandiva_hived.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/hived_jobs.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace gandiva_on_cells {
namespace {

using namespace apiary;
using phase = gandiva_hived::phase;

// A node of two GPUs, two of four; tenant "small" has the first, "large" one of the others.
hived_config three_nodes() {
  hived_config config;
  config.cell_types = {{"OLD", "GPU", 2, true}, {"NEW", "GPU", 4, true}};
  config.physical_cells = {{.type = "OLD", .address = "n0"},
                           {.type = "NEW", .address = "n1"},
                           {.type = "NEW", .address = "n2"}};
  config.virtual_clusters = {{.name = "small", .cells = {{"OLD", 1}}},
                             {.name = "large", .cells = {{"NEW", 1}}},
                             {.name = "none", .cells = {}}};
  return config;
}
hived_placer placer_of(const hived_config& config) {
  return hived_placer::create(config, true).value();
}
job_request job_of(std::uint32_t tenant, std::uint32_t job, std::uint32_t gpus,
                   std::int32_t priority = 0) {
  return {.job = job_id(job), .tenant = tenant_id(tenant), .priority = priority, .gpus = gpus};
}
std::vector<job_action> decided(gandiva_hived& queue, time_ms now) {
  std::vector<job_action> actions;
  REQUIRE(queue.decide(now, actions).ok());
  CHECK(apiary_test::faults_of(queue.placer().scheduler()) == "");
  return actions;
}

TEST_CASE("gandiva_hived: what a host may configure wrongly") {
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  CHECK(gandiva_hived::create(placer_of(three_nodes()), {.quantum = 0}).status().code() == invalid);
  hived_config config = three_nodes();
  config.virtual_clusters[0].cells[0].count = 2;
  CHECK(hived_placer::create(config, true).status().code() == invalid);
  config = three_nodes();
  for (const std::uint32_t gpus : {32U, 33U}) {  // a placement names 32
    config.cell_types[1].child_count = gpus;
    CHECK(hived_placer::create(config, true).ok() == (gpus == 32));
  }
}

TEST_CASE("hived_placer: a job is a gang of its priority") {
  hived_placer placer = placer_of(three_nodes());
  for (const std::int32_t priority : {7, gang_request::opportunistic_priority}) {
    const job_request asked = job_of(1, 5, 3, priority);
    const job_placement where = placer.propose(asked).value().value();
    REQUIRE(where.size() == 1);
    CHECK(where[0].num_gpus() == 3);
    CHECK(placer.commit(asked, where).ok());
    CHECK(placer.entitled_gpus(tenant_id(1)) == (priority < 0 ? 4 : 1));
    const gang_request& r = placer.scheduler().find(job_id(5))->request;
    CHECK(r.priority == priority);
    CHECK(r.tenant == tenant_id(1));
    std::uint32_t gpus = 0;
    for (const task_group& m : r.groups) gpus += m.tasks * m.gpus;
    CHECK(gpus == 3);
    CHECK(placer.idle_gpus() == 7);
    CHECK(placer.finish(job_id(5)).ok());
    CHECK(placer.idle_gpus() == 10);
  }
  CHECK(placer.entitled_gpus(tenant_id(0)) == 2);
  CHECK(placer.entitled_gpus(tenant_id(1)) == 4);
  CHECK(placer.entitled_gpus(tenant_id(2)) == 0);
  CHECK(placer.total_gpus() == 10);
  CHECK(placer.check(job_of(2, 6, 8)).ok());   // as opportunistic
  CHECK(!placer.check(job_of(2, 6, 9)).ok());  // no chain has so many
}

TEST_CASE("gandiva_hived: time slices on idle GPUs of a tenant, until its own job comes") {
  auto q = gandiva_hived::create(placer_of(three_nodes()), {.quantum = 60}).value();
  REQUIRE(q.submit(job_of(2, 0, 8), 0).ok());  // of a tenant without cells
  CHECK(decided(q, 0).size() == 1);
  CHECK(q.find(job_id(0)) == phase::sliced);
  REQUIRE(q.submit(job_of(1, 1, 4), 5).ok());
  const auto owner = decided(q, 5);
  REQUIRE(owner.size() == 2);
  CHECK(owner[0].job == job_id(0));
  CHECK(owner[0].what == job_action::verb::suspend);
  CHECK(q.find(job_id(1)) == phase::guaranteed);
  REQUIRE(q.submit(job_of(1, 2, 4), 10).ok());  // its tenant has no more
  CHECK(decided(q, 10).size() == 1);
  CHECK(q.find(job_id(2)) == phase::sliced);
  REQUIRE(q.submit(job_of(0, 3, 2), 20).ok());
  CHECK(decided(q, 20).size() == 1);
  CHECK(q.find(job_id(3)) == phase::guaranteed);
  CHECK(q.idle_gpus() == 0);
  REQUIRE(q.submit(job_of(0, 4, 2), 30).ok());  // waits for its tenant's cells, or a time slice
  CHECK(decided(q, 30).empty());
  REQUIRE(q.finish(job_id(3), 45).ok());
  const auto next = decided(q, 45);
  REQUIRE(next.size() == 1);
  CHECK(next[0].job == job_id(4));
  CHECK(next[0].waited[delay_cause::quota] == 15);
  CHECK(next[0].waited.total() == 15);
  CHECK(q.find(job_id(4)) == phase::guaranteed);
}

}  // namespace
}  // namespace gandiva_on_cells
