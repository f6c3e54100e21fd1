// apiary/tests/gandiva/gandiva_over_hived_test.cpp - jobs in two forms on HiveD: owners, and guests.
// SPDX-License-Identifier: MIT
#include "support/hived_worlds.h"
#include <apiary/core/ids.h>
#include <apiary/gandiva/gandiva_over_hived.h>
#include <apiary/hived/config.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_jobs.h>
#include <apiary/model/job.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace gandiva_over_cells {
namespace {

using namespace apiary;
using phase = gandiva_over_hived::phase;

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
job_request job_of(std::uint32_t tenant, std::uint32_t job, std::uint32_t gpus,
                   std::int32_t priority = 0) {
  return {.job = job_id(job), .tenant = tenant_id(tenant), .priority = priority, .gpus = gpus};
}
std::vector<job_action> decided(gandiva_over_hived& queue, time_ms now) {
  std::vector<job_action> actions;
  REQUIRE(queue.decide(now, actions).ok());
  CHECK(apiary_test::faults_of(queue.backend().scheduler()) == "");
  return actions;
}

TEST_CASE("make_gandiva_over_hived: what a host may configure wrongly") {
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  CHECK(make_gandiva_over_hived(three_nodes(), {}, {}).ok());
  CHECK(make_gandiva_over_hived(three_nodes(), {}, {.quantum = 0}).status().code() == invalid);
  hived_config config = three_nodes();
  config.virtual_clusters[0].cells[0].count = 2;
  CHECK(make_gandiva_over_hived(config, {}, {}).status().code() == invalid);
  config = three_nodes();
  for (const std::uint32_t gpus : {32U, 33U}) {  // a placement names 32
    config.cell_types[1].child_count = gpus;
    CHECK(make_gandiva_over_hived(config, {}, {}).ok() == (gpus == 32));
  }
}

TEST_CASE("hived_forms: a job is a gang of its priority, and a guest for its turns") {
  const hived cluster = hived::create(three_nodes()).value();
  const hived_backend backend(cluster);
  hived_job_adapter adapter(hived_jobs::create(cluster).value());
  const job_request asked = job_of(1, 5, 3, 7);
  CHECK(backend.priority(adapter.own(asked)) == 7);
  CHECK(backend.priority(adapter.turn(asked)) == opportunistic_priority);
  for (const gang_request& r : {adapter.own(asked), adapter.turn(asked)}) {
    CHECK(r.job == job_id(5));
    CHECK(r.tenant == tenant_id(1));
    std::uint32_t gpus = 0;
    for (const task_group& m : r.members) gpus += m.tasks * m.gpus;
    CHECK(gpus == 3);
  }
  CHECK(adapter.owned(backend, tenant_id(0)) == 2);
  CHECK(adapter.owned(backend, tenant_id(1)) == 4);
  CHECK(adapter.owned(backend, tenant_id(2)) == 0);
  CHECK(adapter.total_gpus(backend) == 10);
  std::multiset<std::uint32_t> of_nodes;
  for (std::uint32_t n = 0; n < 3; ++n) of_nodes.insert(adapter.gpus(backend, node_id(n)));
  CHECK(of_nodes == std::multiset<std::uint32_t>{2, 4, 4});
  CHECK(adapter.check(backend, job_of(2, 6, 8)).ok());   // lent what is idle
  CHECK(!adapter.check(backend, job_of(2, 6, 9)).ok());  // no chain has so many
}

TEST_CASE("gandiva_over_hived: lent GPUs are taken turns on until their owner comes") {
  auto q = make_gandiva_over_hived(three_nodes(), {}, {.quantum = 60}).value();
  REQUIRE(q.submit(job_of(2, 0, 8), 0).ok());  // of a tenant without cells
  CHECK(decided(q, 0).size() == 1);
  CHECK(q.find(job_id(0)) == phase::turn);
  REQUIRE(q.submit(job_of(1, 1, 4), 5).ok());
  const auto owner = decided(q, 5);
  REQUIRE(owner.size() == 2);
  CHECK(owner[0].job == job_id(0));
  CHECK(owner[0].what == job_action::verb::suspend);
  CHECK(q.find(job_id(1)) == phase::own);
  REQUIRE(q.submit(job_of(1, 2, 4), 10).ok());  // its tenant has no more
  CHECK(decided(q, 10).size() == 1);
  CHECK(q.find(job_id(2)) == phase::turn);
  REQUIRE(q.submit(job_of(0, 3, 2), 20).ok());
  CHECK(decided(q, 20).size() == 1);
  CHECK(q.find(job_id(3)) == phase::own);
  CHECK(q.idle_gpus() == 0);
  REQUIRE(q.submit(job_of(0, 4, 2), 30).ok());  // waits for its tenant's, or a turn
  CHECK(decided(q, 30).empty());
  REQUIRE(q.finish(job_id(3), 45).ok());
  const auto next = decided(q, 45);
  REQUIRE(next.size() == 1);
  CHECK(next[0].job == job_id(4));
  CHECK(next[0].waited[delay_cause::quota] == 15);
  CHECK(next[0].waited.total() == 15);
  CHECK(q.find(job_id(4)) == phase::own);
}

}  // namespace
}  // namespace gandiva_over_cells
