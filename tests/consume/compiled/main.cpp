// apiary/tests/consume/compiled/main.cpp - a host: HiveD from the library apiary::compiled.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/queries.h>

#include <cstdio>

#ifndef APIARY_COMPILED
#error "apiary::compiled defines APIARY_COMPILED"
#endif

int main() {
  using namespace apiary;
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}, {"RACK", "NODE", 2}};
  config.physical_cells = {{.type = "RACK", .children = {{.address = "n0"}, {.address = "n1"}}}};
  config.virtual_clusters = {{.name = "research", .cells = {{"RACK", 1}}}};
  auto scheduler = hived::create(config);
  if (!scheduler.ok() || !scheduler->layout().find_node("n1")) return 1;

  const auto plan =
      scheduler->propose({.job = job_id(7), .tenant = tenant_id(0), .groups = {{1, 2}}});
  if (!plan.ok() || plan->result != plan_result::bind) return 2;
  const hived before = *scheduler;
  if (!scheduler->commit(*plan).ok() || scheduler->hash() == before.hash()) return 3;
  if (hived_queries::usage_of(*scheduler, tenant_id(0))->guaranteed != 2) return 4;
  if (!audit(*scheduler).empty()) return 5;
  for (const hived_placement& task : plan->tasks)
    std::printf("%s\n", scheduler->layout().node_name(task.node).c_str());
  return 0;
}
