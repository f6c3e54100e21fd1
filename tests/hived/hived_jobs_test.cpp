// apiary/tests/hived/hived_jobs_test.cpp - jobs of so many GPUs as gangs.
// SPDX-License-Identifier: MIT
#include <apiary/hived/hived_config.h>
#include <apiary/hived/hived_jobs.h>
#include <apiary/model/request.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace jobs_on_hived {
namespace {

using namespace apiary;

// Two nodes of eight GPUs and one of four; tenant a owns a node of eight, b nothing.
hived uneven_nodes() {
  hived_config config;
  config.cell_types = {{"BIG", "GPU", 8, true}, {"SMALL", "GPU", 4, true}};
  config.physical_cells = {{.type = "BIG", .address = "n0"},
                           {.type = "BIG", .address = "n1"},
                           {.type = "SMALL", .address = "n2"}};
  config.virtual_clusters = {{.name = "a", .cells = {{"BIG", 1}}}, {.name = "b"}};
  return hived::create(config).value();
}
job_request of(std::uint32_t tenant, std::uint32_t gpus, std::int32_t priority = 0) {
  return {.job = job_id(0), .tenant = tenant_id(tenant), .priority = priority, .gpus = gpus};
}

TEST_CASE("hived_jobs: tasks as large as the smallest node, and the rest") {
  hived_jobs jobs = hived_jobs::create(uneven_nodes()).value();
  CHECK(jobs.total_gpus() == 20);
  CHECK(jobs.num_tenants() == 2);
  CHECK(jobs.owned(tenant_id(0)) == 8);
  CHECK(jobs.owned(tenant_id(1)) == 0);
  CHECK(jobs.gpus(node_id(0)) + jobs.gpus(node_id(1)) + jobs.gpus(node_id(2)) == 20);
  CHECK(jobs.gang_of(of(0, 3)).groups == std::vector<task_group>{{1, 3}});
  CHECK(jobs.gang_of(of(0, 8, 7)).groups == std::vector<task_group>{{2, 4}});
  CHECK(jobs.gang_of(of(0, 8, 7)).priority == 7);
  CHECK(jobs.opportunistic_gang(of(0, 9, 7)).groups == std::vector<task_group>{{2, 4}, {1, 1}});
  CHECK(jobs.opportunistic_gang(of(0, 9, 7)).priority == gang_request::opportunistic_priority);
  CHECK(hived_jobs::placement_of(
            std::vector<hived_placement>{{node_id(1), 3}, {node_id(0), 1}, {node_id(1), 8}}) ==
        job_placement{{node_id(0), 1}, {node_id(1), 11}});
}

TEST_CASE("hived_jobs: what fits into empty cells, guaranteed or opportunistic") {
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  for (const bool over_quota : {true, false}) {
    hived_jobs jobs = hived_jobs::create(uneven_nodes(), over_quota).value();
    CHECK(jobs.over_quota() == over_quota);
    for (int twice = 0; twice < 2; ++twice) {
      CHECK(jobs.fits_cells(of(0, 8)).value());
      CHECK(!jobs.fits_cells(of(0, 8, -1)).value());
      if (over_quota) {
        CHECK(!jobs.fits_cells(of(0, 9)).value());
        CHECK(!jobs.fits_cells(of(1, 1)).value());
      } else {
        CHECK(jobs.fits_cells(of(0, 9)).status().code() == invalid);
        CHECK(jobs.fits_cells(of(1, 1)).status().code() == absl::StatusCode::kFailedPrecondition);
      }
      CHECK(jobs.fits_cells(of(0, 0)).status().code() == invalid);
      CHECK(jobs.fits_cells(of(0, 21, -1)).status().code() == invalid);
      CHECK(jobs.fits_cells(of(0, 1, -2)).status().code() == invalid);
      CHECK(jobs.fits_cells(of(0, 1, 1001)).status().code() == invalid);
      CHECK(jobs.fits_cells(of(2, 1)).status().code() == absl::StatusCode::kNotFound);
    }
  }
}

TEST_CASE("hived_jobs: nodes larger than a placement can name") {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 33, true}};
  config.physical_cells = {{.type = "NODE", .address = "n0"}};
  CHECK(hived_jobs::create(hived::create(config).value()).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace jobs_on_hived
