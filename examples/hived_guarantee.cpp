// Why are quotas in cells better than quotas in GPUs? Two tenants own half of a cluster each. A
// quota counted in GPUs leaves a tenant free GPUs scattered among the other tenant's jobs. A quota
// of cells gives it whole nodes, no matter what the other tenant does.
// SPDX-License-Identifier: MIT
#include "hived_drawing.h"
#include <apiary/core/ids.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>

#include <array>
#include <cstdint>
#include <cstdio>

using namespace apiary;

namespace {

// Four nodes with four GPUs; each tenant owns two nodes.
hived_config cluster() {
  return {.cell_types = {{"NODE", "GPU", 4, true}, {"RACK", "NODE", 4}},
          .physical_cells = {{.type = "RACK",
                              .children = {{.address = "n0"},
                                           {.address = "n1"},
                                           {.address = "n2"},
                                           {.address = "n3"}}}},
          .virtual_clusters = {{.name = "research", .cells = {{"RACK.NODE", 2}}},
                               {.name = "product", .cells = {{"RACK.NODE", 2}}}}};
}

// Starts the gang if it fits now.
bool start(hived& scheduler, const gang_request& gang) {
  const gang_plan plan = scheduler.propose(gang).value();
  return plan.result == plan_result::bind && scheduler.commit(plan).ok();
}

}  // namespace

int main() {
  hived scheduler = hived::create(cluster()).value();
  const tenant_id research = scheduler.layout().find_tenant("research").value();
  const tenant_id product = scheduler.layout().find_tenant("product").value();

  // The tenants alternately submit jobs of one GPU, until each uses its 8 GPUs. For comparison, a
  // scheduler that only counts GPUs places each job on the first node with a free GPU.
  std::array<std::uint32_t, 4> free{4, 4, 4, 4};
  std::array<std::uint32_t, 16> node_of{};
  for (std::uint32_t job = 0; job < 16; ++job) {
    const tenant_id tenant = job % 2 == 0 ? research : product;
    if (!start(scheduler,
               {.job = job_id(job), .tenant = tenant, .groups = {{.tasks = 1, .gpus = 1}}}))
      return 1;
    while (free[node_of[job]] == 0) ++node_of[job];
    --free[node_of[job]];
  }
  std::printf("%s\n", example::draw(scheduler).c_str());

  // The jobs of research end, and research submits a gang of two tasks with four GPUs each.
  for (std::uint32_t job = 0; job < 16; job += 2) {
    if (!scheduler.finish(job_id(job)).ok()) return 1;
    ++free[node_of[job]];
  }
  const gang_request gang{
      .job = job_id(16), .tenant = research, .groups = {{.tasks = 2, .gpus = 4}}};
  std::printf("quotas in GPUs: the nodes have %u, %u, %u and %u free GPUs; the gang waits\n",
              free[0], free[1], free[2], free[3]);
  std::printf("quotas in cells: the gang %s\n", start(scheduler, gang) ? "runs" : "waits");
  std::printf("%s", example::draw(scheduler).c_str());
}
