// How does HiveD place gangs, and why does a gang wait? A gang runs as a whole or not at all. Each
// task gets GPUs of one node that are close together. The last gang has tasks of different sizes;
// the exact search places it where greedy placement fails.
// SPDX-License-Identifier: MIT
#include "hived_drawing.h"
#include <apiary/core/ids.h>
#include <apiary/hived/config.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/request.h>
#include <apiary/model/request.h>

#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

// Two racks of two nodes with two sockets of four GPUs; one tenant owns all of them.
hived_config cluster() {
  hived_config config;
  config.cell_types = {{"SOCKET", "GPU", 4}, {"NODE", "SOCKET", 2, true}, {"RACK", "NODE", 2}};
  config.physical_cells = {{.type = "RACK", .children = {{.address = "n0"}, {.address = "n1"}}},
                           {.type = "RACK", .children = {{.address = "n2"}, {.address = "n3"}}}};
  config.virtual_clusters = {{.name = "research", .cells = {{"RACK", 2}}}};
  return config;
}

void start(hived& scheduler, std::uint32_t job, std::vector<task_group> groups) {
  const gang_plan plan =
      scheduler.propose({.job = job_id(job), .tenant = tenant_id(0), .groups = std::move(groups)})
          .value();
  if (plan.result == plan_result::bind) {
    if (!scheduler.commit(plan).ok()) std::printf("the plan is stale\n");
  } else if (const auto& proof = plan.wait.shortage) {
    std::printf("gang %u waits: it needs %llu slots of %u GPUs, and %llu are free\n", job,
                static_cast<unsigned long long>(proof->needed), proof->gpus,
                static_cast<unsigned long long>(proof->present));
  }
}

}  // namespace

int main() {
  hived scheduler = hived::create(cluster()).value();

  // Small gangs are packed on one node. The gang of two whole nodes gets a rack.
  start(scheduler, 0, {{.tasks = 1, .gpus = 2}});
  start(scheduler, 1, {{.tasks = 1, .gpus = 7}});
  start(scheduler, 2, {{.tasks = 1, .gpus = 1}});
  start(scheduler, 3, {{.tasks = 2, .gpus = 8}});
  if (!scheduler.finish(job_id(1)).ok()) return 1;
  std::printf("%s\n", example::draw(scheduler).c_str());

  // Two nodes have 6 and 7 free GPUs. They have two slots of 4 GPUs (4 free GPUs on one node).
  start(scheduler, 4, {{.tasks = 3, .gpus = 4}});
  // Greedy placement, the largest task on the fullest node, puts 5 on the first node and 4 + 2 on
  // the second; then the last task of 2 GPUs does not fit. The exact search puts 5 + 2 on the second.
  start(scheduler, 5, {{.tasks = 1, .gpus = 5}, {.tasks = 1, .gpus = 4}, {.tasks = 2, .gpus = 2}});
  std::printf("%s", example::draw(scheduler).c_str());
}
