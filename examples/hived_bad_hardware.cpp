// What happens when GPUs and nodes break? Running gangs keep running, new gangs avoid bad
// hardware, and a gang that waits gets the reason. A cell of a tenant is doomed if only bad
// hardware is left for it.
// SPDX-License-Identifier: MIT
#include "hived_drawing.h"
#include <apiary/core/ids.h>
#include <apiary/hived/config.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/request.h>
#include <apiary/model/plan.h>

#include <cstdint>
#include <cstdio>

using namespace apiary;

namespace {

// Four nodes with four GPUs; the tenant owns three of them.
hived_config cluster() {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}, {"RACK", "NODE", 4}};
  config.physical_cells = {
      {.type = "RACK",
       .children = {{.address = "n0"}, {.address = "n1"}, {.address = "n2"}, {.address = "n3"}}}};
  config.virtual_clusters = {{.name = "research", .cells = {{"RACK.NODE", 3}}}};
  return config;
}

// Submits a gang of whole nodes.
void submit(hived& scheduler, std::uint32_t job, std::uint32_t nodes) {
  const gang_plan plan = scheduler
                             .propose({.job = job_id(job),
                                       .tenant = scheduler.layout().find_tenant("research").value(),
                                       .groups = {{.tasks = nodes, .gpus = 4}}})
                             .value();
  const bool waits = plan.result == plan_result::wait;
  std::printf("gang %u of %u nodes %s%s\n", job, nodes, waits ? "waits: " : "runs",
              waits ? wait_reason_text(plan.wait.reason) : "");
  if (!waits && !scheduler.commit(plan).ok()) std::printf("stale plan\n");
}

void show_doomed(const hived& scheduler) {
  const level_t node = scheduler.layout().chains[0].node_level;
  std::printf("doomed nodes: %u\n", scheduler.doomed(tenant_id(0), chain_id(0), node).value());
}

}  // namespace

int main() {
  hived scheduler = hived::create(cluster()).value();
  const node_id n0 = scheduler.layout().find_node("n0").value();
  const node_id n1 = scheduler.layout().find_node("n1").value();
  submit(scheduler, 0, 1);

  // A GPU of gang 0 breaks, and a whole node.
  if (!scheduler.mark_bad(n0, 2).ok() || !scheduler.mark_bad(n1).ok()) return 1;
  show_doomed(scheduler);
  submit(scheduler, 1, 1);
  std::printf("%s\n", example::draw(scheduler).c_str());

  if (!scheduler.finish(job_id(0)).ok()) return 1;
  show_doomed(scheduler);
  submit(scheduler, 2, 2);
  submit(scheduler, 3, 3);
  if (!scheduler.mark_healthy(n1).ok()) return 1;
  show_doomed(scheduler);
  submit(scheduler, 2, 2);
}
