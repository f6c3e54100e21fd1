// An urgent task arrives, and all GPUs are in use. Which jobs must end for it? Those that lose least:
// FGD places tasks on shared GPUs, and the scheduler chooses victims by GPU and node.
// SPDX-License-Identifier: MIT
#include <apiary/fgd/fgd.h>
#include <apiary/fgd/preemptive_sharing.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

using scheduler_type = preemptive_sharing_scheduler<fragmentation_gradient>;

void print(const char* what, const preemption_plan& plan) {
  std::string text = plan.result == plan_result::wait
                         ? std::string("waits: ") + std::string(wait_reason_text(plan.reason))
                         : "node " + std::to_string(plan.placements[0].where.node.value);
  if (plan.result == plan_result::preempt) {
    text += " when these jobs have ended:";
    for (const job_id victim : plan.victims) text += " " + std::to_string(victim.value);
    text += "; they lose " + std::to_string(plan.cost) + " GPU-minutes, and any others at least " +
            std::to_string(plan.lower_bound);
  }
  std::printf("%s: %s\n", what, text.c_str());
}

}  // namespace

int main() {
  node_table nodes;  // three nodes with two GPUs
  for (int n = 0; n < 3; ++n) nodes.add({.host = {.cpu_milli = 32'000}, .gpus = 2});
  const task_mix typical({{{.cpu_milli = 2000, .gpus = 1, .gpu_milli = 500}, 1}});
  auto scheduler =
      scheduler_type::create(std::move(nodes), fragmentation_gradient(fragmentation(typical)));
  if (!scheduler.ok()) return 1;

  // Twelve jobs of half a GPU fill the cluster. If one is evicted, it loses what it has done: here
  // more for each job. The first four have priority 1, the others 0.
  for (std::uint32_t j = 0; j < 12; ++j) {
    const task_request half{.job = job_id(j), .cpu_milli = 2000, .gpus = 1, .gpu_milli = 500};
    const eviction_terms terms{.priority = j < 4 ? 1u : 0u, .cost = 10 + 3 * j};
    const auto plan = scheduler->propose(half, terms.priority);
    if (!plan.ok() || !scheduler->commit(half, *plan, terms).ok()) return 1;
  }

  const task_request small{.job = job_id(20), .cpu_milli = 2000, .gpus = 1, .gpu_milli = 300};
  const task_request whole{.job = job_id(21), .cpu_milli = 2000, .gpus = 1, .gpu_milli = whole_gpu};
  print("300/1000 of a GPU, priority 0", *scheduler->propose(small, 0));
  print("300/1000 of a GPU, priority 1", *scheduler->propose(small, 1));
  print("one GPU, priority 1", *scheduler->propose(whole, 1));
  print("one GPU, priority 2", *scheduler->propose(whole, 2));

  // The commit reserves the GPU. The task runs when the host has ended the victims.
  const eviction_terms urgent{.priority = 2, .cost = 100};
  const preemption_plan plan = *scheduler->propose(whole, urgent.priority);
  if (!scheduler->commit(whole, plan, urgent).ok()) return 1;
  for (const job_id victim : plan.victims)
    if (!scheduler->finish(victim).ok()) return 1;
  const preemption_plan now = *scheduler->propose(whole, urgent.priority);
  print("its victims have ended", now);
  return scheduler->commit(whole, now, urgent).ok() ? 0 : 1;
}
