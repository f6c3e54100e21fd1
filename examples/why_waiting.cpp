// Does a gang fit in one rack, in slices, with its leader or spread over nodes, and why must it
// wait? The program prints the nodes of its tasks, or a sentence for users, and the constraint or
// resource that blocks the gang.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/gang_scheduler.h>

#include <cstdint>
#include <cstdio>
#include <string>

using namespace apiary;

namespace {

void ask(gang_scheduler& cluster, const char* name, const topology_constraints& gang) {
  const auto answer = cluster.explain({.job = name, .gang = gang});
  if (!answer.ok()) {
    std::printf("%s\n", std::string(answer.status().message()).c_str());
    return;
  }
  std::printf("%s\n", answer->text.c_str());
  if (answer->plan.result == plan_result::bind) {
    std::printf("  tasks on");
    for (const placement& task : answer->plan.tasks)
      std::printf(" %s", cluster.node(task.node)->name.c_str());
    std::printf("\n");
  }
  for (const blocking_resource what : answer->blocking)
    std::printf("  blocked by: %s\n", what == blocking_resource::gpus     ? "GPUs"
                                      : what == blocking_resource::slices ? "slices"
                                      : what == blocking_resource::spread ? "anti-affinity"
                                                                          : "CPU or memory");
}

}  // namespace

int main() {
  // Two racks of four nodes of eight GPUs. There are 37 free GPUs.
  gang_cluster inventory{.levels = {"rack"}};
  for (int n = 1; n <= 8; ++n)
    inventory.nodes.push_back({.name = "n" + std::to_string(n),
                               .cells = {n <= 4 ? "east" : "west"},
                               .gpus = 8,
                               .host = {.cpu_milli = 64'000}});
  gang_scheduler cluster = gang_scheduler::create(inventory).value();
  const level_t node = cluster.find_level("node").value();
  const level_t rack = cluster.find_level("rack").value();
  constexpr std::uint32_t used[] = {3, 1, 3, 4, 2, 2, 4, 8};
  for (std::uint32_t n = 0; n < 8; ++n) {
    const placement where{node_id(n), (std::uint32_t{1} << used[n]) - 1};
    const gang_scheduler::request running{.job = n,
                                          .gang = {.groups = {{.tasks = 1, .gpus = used[n]}}}};
    if (!cluster.recover(running, {&where, 1}).ok()) return 1;
  }

  topology_constraints large;
  large.groups = {{.tasks = 4, .gpus = 5}};
  large.required = rack;
  ask(cluster, "in-a-rack", large);
  large.required = any_level;
  ask(cluster, "anywhere", large);

  topology_constraints mixed;
  mixed.groups = {{.tasks = 3, .gpus = 5}, {.tasks = 3, .gpus = 2}};
  mixed.required = rack;
  ask(cluster, "mixed", mixed);

  topology_constraints spread;  // one task on each node
  spread.groups = {{.tasks = 5, .gpus = 1, .spread = {{node, 1}}}};
  spread.required = rack;
  ask(cluster, "spread", spread);

  topology_constraints sliced;  // tasks 0 to 2 in one rack, 3 to 5 in one rack, 6 in any
  sliced.groups = {{.tasks = 7, .gpus = 4, .slices = {{rack, 3}}}};
  ask(cluster, "sliced", sliced);

  topology_constraints replicas;  // each leader with three workers in one rack
  replicas.groups = {{.tasks = 2, .gpus = 0, .host = {.cpu_milli = 8'000}},
                     {.tasks = 6, .gpus = 5, .leader = 0, .leader_level = rack}};
  ask(cluster, "replicas", replicas);
}
