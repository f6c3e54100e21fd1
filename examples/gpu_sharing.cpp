// How do I run FGD? Six tasks of half and whole GPUs arrive at two nodes with two GPUs each. FGD
// puts half GPUs together and keeps whole GPUs free for the tasks that need them. Then a task ends
// and a node breaks.
// SPDX-License-Identifier: MIT
#include <apiary/fgd/fgd.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>

#include <cstdint>
#include <cstdio>
#include <utility>

using namespace apiary;

int main() {
  node_table nodes;
  for (int i = 0; i < 2; ++i)
    nodes.add({.host = {.cpu_milli = 32'000, .memory_mib = 65'536}, .gpus = 2});
  const task_mix typical({{{.cpu_milli = 4000, .gpus = 1, .gpu_milli = 500}, 6},
                          {{.cpu_milli = 8000, .gpus = 1, .gpu_milli = 1000}, 4}});
  auto scheduler = fgd::create(std::move(nodes), fragmentation_gradient(fragmentation(typical)));
  if (!scheduler.ok()) return 1;

  // Sizes are in thousandths of a GPU.
  const auto submit = [&](std::uint32_t job, milli_gpu size) {
    const task_request task{.job = job_id(job), .cpu_milli = 4000, .gpus = 1, .gpu_milli = size};
    const auto plan = scheduler->propose(task);  // changes nothing
    if (!plan.ok()) return;                      // the request is wrong
    if (plan->result == plan_result::wait) {
      std::printf("job %u, %u/1000 of a GPU: waits\n", job, size);
    } else if (scheduler->commit(task, *plan).ok()) {
      std::printf("job %u, %u/1000 of a GPU: node %u, GPUs %#x\n", job, size,
                  plan->where.node.value, plan->where.gpu_mask);
    }
  };
  for (std::uint32_t job = 0; job < 6; ++job) submit(job, job % 2 == 0 ? 500 : 1000);

  std::printf("job 1 ends: %s\n", scheduler->finish(job_id(1)).ok() ? "ok" : "error");
  submit(6, 1000);
  std::printf("job 1 ends again: %s\n", scheduler->finish(job_id(1)).ToString().c_str());

  std::printf("job 3 ends: %s\n", scheduler->finish(job_id(3)).ok() ? "ok" : "error");
  std::printf("node 1 breaks: %s\n", scheduler->mark_bad(node_id(1)).ok() ? "ok" : "error");
  submit(7, 500);
}
