// What can a tenant do with GPUs that other tenants leave idle? Opportunistic gangs use idle cells
// of any tenant. When the owner needs its cells, it gets idle ones first; if there are none, an
// opportunistic gang is preempted as a whole.
// SPDX-License-Identifier: MIT
#include "hived_drawing.h"
#include <apiary/core/ids.h>
#include <apiary/hived/config.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/request.h>

#include <cstdio>

using namespace apiary;

namespace {

// Three nodes of four GPUs for research, one for product.
hived_config cluster() {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}, {"RACK", "NODE", 4}};
  config.physical_cells = {
      {.type = "RACK",
       .children = {{.address = "n0"}, {.address = "n1"}, {.address = "n2"}, {.address = "n3"}}}};
  config.virtual_clusters = {{.name = "research", .cells = {{"RACK.NODE", 3}}},
                             {.name = "product", .cells = {{"RACK.NODE", 1}}}};
  return config;
}

// Proposes and commits. After `preempts`, the GPUs are reserved until the victims have ended.
void submit(hived& scheduler, const gang_request& gang) {
  const gang_plan plan = scheduler.propose(gang).value();
  std::printf("gang %u", gang.job.value);
  switch (plan.result) {
    case plan_result::bind:
      std::printf(" runs");
      break;
    case plan_result::preempt:
      std::printf(" preempts");
      for (const job_id victim : plan.victims) std::printf(" gang %u", victim.value);
      break;
    case plan_result::wait:
      std::printf(" waits");
      break;
  }
  std::printf("\n");
  if (plan.result != plan_result::wait && !scheduler.commit(plan).ok()) std::printf("stale plan\n");
}

}  // namespace

int main() {
  hived scheduler = hived::create(cluster()).value();
  const tenant_id research = scheduler.layout().find_tenant("research").value();
  const tenant_id product = scheduler.layout().find_tenant("product").value();

  // Product owns one node. Its opportunistic gang uses two nodes.
  const gang_request opportunistic{.job = job_id(0),
                                   .tenant = product,
                                   .priority = gang_request::opportunistic_priority,
                                   .groups = {{.tasks = 2, .gpus = 4}}};
  const gang_request one_node{
      .job = job_id(1), .tenant = research, .groups = {{.tasks = 1, .gpus = 4}}};
  const gang_request two_nodes{
      .job = job_id(2), .tenant = research, .groups = {{.tasks = 2, .gpus = 4}}};
  submit(scheduler, opportunistic);
  submit(scheduler, one_node);
  submit(scheduler, two_nodes);
  std::printf("%s", example::draw(scheduler).c_str());

  // The host ends the victim's tasks, calls finish, and proposes the same request again.
  if (!scheduler.finish(opportunistic.job).ok()) return 1;
  submit(scheduler, two_nodes);
  std::printf("%s", example::draw(scheduler).c_str());
  submit(scheduler, opportunistic);
}
