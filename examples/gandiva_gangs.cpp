// How do opportunistic gangs share the GPUs that HiveD's tenants leave idle? They are time-shared.
// When a tenant needs its cells, they stop at once and wait. When the tenant's gang ends, one of
// them migrates so that a node becomes free.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/gandiva/gandiva_hived.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/model/job.h>

#include <cstdint>
#include <cstdio>
#include <vector>

using namespace apiary;

namespace {

// Two nodes of four GPUs; research owns one, product none.
hived_config cluster() {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}};
  config.physical_cells = {{.type = "NODE", .address = "n0"}, {.type = "NODE", .address = "n1"}};
  config.virtual_clusters = {{.name = "research", .cells = {{"NODE", 1}}}, {.name = "product"}};
  return config;
}
gang_request opportunistic(std::uint32_t job, std::uint32_t gpus) {
  return {.job = job_id(job),
          .tenant = tenant_id(1),
          .priority = gang_request::opportunistic_priority,
          .groups = {{1, gpus}}};
}

// Prints and clears the actions that a host would carry out.
void show(time_ms now, std::vector<gandiva_gangs::action>& actions) {
  static constexpr const char* verbs[] = {"start", "suspend", "resume", "migrate"};
  for (const auto& a : actions) {
    std::printf("%3d s  %-7s job %u", static_cast<int>(now), verbs[static_cast<int>(a.what)],
                a.job.value);
    for (const hived_placement& t : a.where)
      std::printf("  node %u GPUs %#x", t.node.value, static_cast<unsigned>(t.leaves));
    std::printf("\n");
  }
  actions.clear();
}

}  // namespace

int main() {
  auto scheduler =
      gandiva_gangs::create(hived_gang_placer(hived::create(cluster()).value()), {.quantum = 60})
          .value();
  std::vector<gandiva_gangs::action> todo;
  // Three gangs of a node each, on two nodes.
  for (std::uint32_t job = 0; job < 3; ++job)
    if (!scheduler.submit(opportunistic(job, 4), {}, 0, todo).ok()) return 1;
  show(0, todo);
  for (time_ms now = 0; now <= 120; now = scheduler.wake()) {
    if (!scheduler.decide(now, todo).ok()) return 1;
    show(now, todo);
  }
  const gang_request owner{.job = job_id(3), .tenant = tenant_id(0), .groups = {{1, 4}}};
  if (!scheduler.submit(owner, {}, 140, todo).ok()) return 1;
  show(140, todo);
  for (const std::uint32_t job : {0U, 1U, 2U})
    if (!scheduler.finish(job_id(job), 150).ok()) return 1;
  // Two small opportunistic gangs share the other node; a third waits until the owner's gang ends.
  for (std::uint32_t job = 4; job < 7; ++job)
    if (!scheduler.submit(opportunistic(job, 2), {}, 150, todo).ok()) return 1;
  show(150, todo);
  if (!scheduler.finish(owner.job, 160).ok() || !scheduler.decide(160, todo).ok()) return 1;
  show(160, todo);
  if (!scheduler.finish(job_id(4), 170).ok() || !scheduler.decide(170, todo).ok()) return 1;
  show(170, todo);
}
