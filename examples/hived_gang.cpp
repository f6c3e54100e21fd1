// Gangs run completely or not at all, and every task lies within one node, on GPUs close together.
// Tasks of different sizes are packed exactly where a greedy packing fails.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/hived/config.h>
#include <apiary/hived/draw.h>
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

bool start(hived& scheduler, std::uint32_t job, std::vector<task_group> groups) {
  const auto plan =
      scheduler.propose({.job = job_id(job), .tenant = tenant_id(0), .groups = std::move(groups)});
  if (!plan.ok()) return false;
  if (plan->result == plan_result::bind) return scheduler.commit(*plan).ok();
  std::printf("gang %u waits", job);
  if (const auto& proof = plan->wait.shortage) {
    std::printf(": counted in pieces of %u GPUs it needs %llu, and %llu are there", proof->gpus,
                static_cast<unsigned long long>(proof->needed),
                static_cast<unsigned long long>(proof->present));
  }
  std::printf("\n");
  return true;
}

}  // namespace

int main() {
  auto scheduler = hived::create(cluster());
  if (!scheduler.ok()) return 1;

  // Small gangs are packed on one node; the gang of two whole nodes gets a rack.
  if (!start(*scheduler, 0, {{1, 2}}) || !start(*scheduler, 1, {{1, 7}}) ||
      !start(*scheduler, 2, {{1, 1}}) || !start(*scheduler, 3, {{2, 8}})) {
    return 1;
  }
  if (!scheduler->finish(job_id(1)).ok()) return 1;
  std::printf("%s\n", draw(*scheduler).c_str());

  // Two nodes have 6 and 7 free GPUs. Greedy placement, largest task on the fullest node, puts 5 on
  // the first and 4 + 2 on the second; then the last task of 2 GPUs does not fit.
  if (!start(*scheduler, 4, {{3, 4}})) return 1;
  if (!start(*scheduler, 5, {{1, 5}, {1, 4}, {2, 2}})) return 1;
  std::printf("%s", draw(*scheduler).c_str());
}
