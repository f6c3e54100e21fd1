// Topology constraints in HiveD: gangs ask for one rack, for a rack per task, or for a worker
// beside its leader. A gang that waits gets an explanation that counts what each rack can hold.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/hived/config.h>
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

void ask(hived& cluster, const char* what, std::vector<task_group> groups,
         request_constraints constraints) {
  static std::uint32_t next = 0;
  const gang_request gang{.job = job_id(next++),
                          .tenant = cluster.layout().find_tenant("team").value(),
                          .groups = std::move(groups),
                          .constraints = std::move(constraints)};
  const gang_plan plan = cluster.propose(gang).value();
  std::printf("%s:", what);
  for (const task_place& t : plan.tasks)
    std::printf(" %s", std::string(cluster.layout().node_name(t.node)).c_str());
  if (const infeasibility_proof* why = plan.wait.why();
      plan.result == plan_result::wait && why != nullptr)
    std::printf(" waits: %s", to_string(*why, constraints_of(gang), "rack").c_str());
  std::printf("\n");
  if (plan.result == plan_result::bind && !cluster.commit(plan).ok()) std::printf("stale\n");
}

}  // namespace

int main() {
  hived cluster = two_racks();
  ask(cluster, "a task of 4 GPUs in each rack", {{2, 4}}, {.groups = {{.spread = {{rack, 1}}}}});
  ask(cluster, "2 tasks of 4 GPUs in one rack", {{2, 4}}, {.required = rack});
  ask(cluster, "2 more", {{2, 2}}, {.required = rack, .preferred = node});
  ask(cluster, "2 tasks of 4 GPUs in one rack", {{2, 4}}, {.required = rack});
  ask(cluster, "a leader and 2 workers beside it", {{1, 1}, {2, 1}},
      {.groups = {{}, {.leader = 0}}});
}
