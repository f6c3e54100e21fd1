// How does a gang ask for one rack, for a rack per task, or for workers on the node of their
// leader? HiveD takes topology constraints with the request. A gang that waits gets an explanation
// that says how much each rack can hold.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/hived/config.h>
#include <apiary/hived/constraints.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/request.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

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

}  // namespace

int main() {
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
