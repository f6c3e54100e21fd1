// How do I place gangs whose tasks share GPUs? Greedy placement, task by task, misses a gang that
// the exact search places. Another gang waits, with a proof that an independent check confirms.
// SPDX-License-Identifier: MIT
#include <apiary/explain/proof_check.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gang_sharing.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/shared_gpu_fit.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/topology/uniform_tree.h>

#include <cstdint>
#include <cstdio>
#include <utility>

using namespace apiary;

namespace {

using gang_fgd = gang_sharing_scheduler<fragmentation_gradient>;

// Places the tasks of the gang greedily, on a copy of the scheduler.
bool one_by_one(gang_fgd scheduler, const topology_constraints& gang) {
  std::uint32_t job = 100;
  for (const constrained_task_group& m : gang.groups) {
    for (std::uint32_t t = 0; t < m.tasks; ++t) {
      task_request task = m.task();
      task.job = job_id(job++);
      const auto plan = scheduler.propose(task);
      if (!plan.ok() || plan->result == plan_result::wait) return false;
      if (!scheduler.commit(task, *plan).ok()) return false;
    }
  }
  return true;
}

bool submit(gang_fgd& scheduler, std::uint32_t job, const topology_constraints& gang,
            const uniform_tree& racks) {
  std::printf("gang %u, one task at a time: %s\n", job,
              one_by_one(scheduler, gang) ? "fits" : "does not fit");
  const auto plan = scheduler.propose(gang, racks);
  if (!plan.ok()) return false;
  if (plan->result == plan_result::wait) {
    proof_check check(racks, 0, scheduler.nodes(), gang);
    std::printf("  waits: %s\n  the proof is %s\n",
                plan->proof.text(gang, {"node", "rack"}).c_str(),
                check(plan->proof) ? "right" : "wrong");
    return true;
  }
  for (const auto& [group, where] : plan->placements)
    std::printf("  task group %u: node %u, GPUs %#x\n", group, where.node.value, where.gpu_mask);
  return scheduler.commit(job_id(job), gang, *plan).ok();
}

}  // namespace

int main() {
  // A rack of two nodes; the first has more CPU.
  node_table nodes;
  nodes.add({.host = {.cpu_milli = 16'000, .memory_mib = 65'536}, .gpus = 1});
  nodes.add({.host = {.cpu_milli = 8'000, .memory_mib = 65'536}, .gpus = 1});
  const uniform_tree racks{1, 2};
  const task_mix typical({{{.cpu_milli = 4000, .gpus = 1, .gpu_milli = 500}, 6},
                          {{.cpu_milli = 8000, .gpus = 1, .gpu_milli = 1000}, 4}});
  auto scheduler =
      gang_fgd::create(std::move(nodes), fragmentation_gradient(fragmentation(typical)));
  if (!scheduler.ok()) return 1;

  // Two tasks need little CPU, two need much.
  topology_constraints gang;
  gang.groups = {{.tasks = 2, .gpus = 1, .host = {.cpu_milli = 2000}, .gpu_milli = 400},
                 {.tasks = 2, .gpus = 1, .host = {.cpu_milli = 7000}, .gpu_milli = 400}};
  gang.required = 1;  // one rack
  if (!submit(*scheduler, 1, gang, racks)) return 1;

  topology_constraints next;
  next.groups = {{.tasks = 3, .gpus = 1, .host = {.cpu_milli = 1000}, .gpu_milli = 200}};
  next.required = 1;
  if (!submit(*scheduler, 2, next, racks)) return 1;
  std::printf("%u jobs run\n", static_cast<unsigned>(scheduler->num_running()));
}
