// How does HiveD place gangs, and why does a gang wait? A gang runs as a whole or not at all. Each
// task gets GPUs of one node that are close together. One gang has tasks of different sizes; the
// exact search places it where greedy placement fails. With topology constraints, a gang asks for
// one rack, for a rack per task, or for workers on the node of their leader; if it waits, an
// explanation says how much each rack can hold.
// SPDX-License-Identifier: MIT
#include "hived_drawing.h"
#include <apiary/core/ids.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/hived/constraints.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/model/request.h>

#include <cstdint>
#include <cstdio>
#include <string>
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

constexpr level_t node = 1;
constexpr level_t rack = 2;

// Two racks of three nodes with four GPUs; one tenant owns both.
hived two_racks() {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}, {"RACK", "NODE", 3, false}};
  for (const char* name : {"a", "b"}) {
    physical_cell_config& in = config.physical_cells.emplace_back();
    in.type = "RACK";
    for (int n = 0; n < 3; ++n) in.children.emplace_back().address = name + std::to_string(n);
  }
  config.virtual_clusters = {{.name = "team", .cells = {{"RACK", 2}}}};
  return hived::create(config).value();
}

void submit(hived& scheduler, const char* what, std::vector<task_group> groups,
            request_constraints constraints) {
  static std::uint32_t next = 0;
  const gang_request gang{.job = job_id(next++),
                          .tenant = scheduler.layout().find_tenant("team").value(),
                          .groups = std::move(groups),
                          .constraints = std::move(constraints)};
  const gang_plan plan = scheduler.propose(gang).value();
  std::printf("%s:", what);
  for (const hived_placement& task : plan.tasks)
    std::printf(" %s", scheduler.layout().node_name(task.node).c_str());
  if (const infeasibility_proof* why = plan.wait.why(); why != nullptr)
    std::printf(" waits: %s", why->text(constraints_of(gang), {"GPU", "node", "rack"}).c_str());
  std::printf("\n");
  if (plan.result == plan_result::bind && !scheduler.commit(plan).ok()) std::printf("stale plan\n");
}

void small_and_large_tasks() {
  hived scheduler = hived::create(cluster()).value();

  // Small gangs are packed on one node. The gang of two whole nodes gets a rack.
  start(scheduler, 0, {{.tasks = 1, .gpus = 2}});
  start(scheduler, 1, {{.tasks = 1, .gpus = 7}});
  start(scheduler, 2, {{.tasks = 1, .gpus = 1}});
  start(scheduler, 3, {{.tasks = 2, .gpus = 8}});
  if (!scheduler.finish(job_id(1)).ok()) return;
  std::printf("%s\n", example::draw(scheduler).c_str());

  // Two nodes have 6 and 7 free GPUs. They have two slots of 4 GPUs (4 free GPUs on one node).
  start(scheduler, 4, {{.tasks = 3, .gpus = 4}});
  // Greedy placement, the largest task on the fullest node, puts 5 on the first node and 4 + 2 on
  // the second; then the last task of 2 GPUs does not fit. The exact search puts 5 + 2 on the
  // second.
  start(scheduler, 5, {{.tasks = 1, .gpus = 5}, {.tasks = 1, .gpus = 4}, {.tasks = 2, .gpus = 2}});
  std::printf("%s", example::draw(scheduler).c_str());
}

void topology_constraints_of_gangs() {
  hived scheduler = two_racks();
  submit(scheduler, "a task of 4 GPUs in each rack", {{.tasks = 2, .gpus = 4}},
         {.groups = {{.spread = {{.level = rack, .tasks = 1}}}}});
  submit(scheduler, "2 tasks of 4 GPUs in one rack", {{.tasks = 2, .gpus = 4}}, {.required = rack});
  submit(scheduler, "2 tasks of 2 GPUs in one rack, preferably on one node",
         {{.tasks = 2, .gpus = 2}}, {.required = rack, .preferred = node});
  submit(scheduler, "2 tasks of 4 GPUs in one rack", {{.tasks = 2, .gpus = 4}}, {.required = rack});
  submit(scheduler, "a leader and 2 workers on its node",
         {{.tasks = 1, .gpus = 1}, {.tasks = 2, .gpus = 1}}, {.groups = {{}, {.leader = 0}}});
}

}  // namespace

int main() {
  small_and_large_tasks();
  std::printf("\n");
  topology_constraints_of_gangs();
}
