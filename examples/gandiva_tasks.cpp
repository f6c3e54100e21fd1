// How does migration make idle GPUs useful again? Half GPUs are free on different nodes, and a
// task waits for a whole GPU. Gandiva migrates a task so that the halves come together, and the
// waiting task starts.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/fgd/fgd.h>
#include <apiary/gandiva/gandiva_tasks.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/job.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>

#include <cstdint>
#include <cstdio>
#include <vector>

using namespace apiary;

namespace {

task_request task(std::uint32_t job, milli_gpu milli) {
  return {.job = job_id(job), .cpu_milli = 4000, .gpus = 1, .gpu_milli = milli};
}

void show(const gandiva_tasks& g, const fragmentation& metric, time_ms now,
          std::vector<gandiva_tasks::action>& actions) {
  static constexpr const char* verbs[] = {"start", "suspend", "resume", "migrate"};
  for (const auto& a : actions) {
    std::printf("%3d s  %-7s job %u  node %u GPUs %#x\n", static_cast<int>(now),
                verbs[static_cast<int>(a.what)], a.job.value, a.where.node.value, a.where.gpu_mask);
  }
  actions.clear();
  const cluster_fragmentation f(metric, g.placer().scheduler().nodes());
  std::printf("%3d s  %zu tasks wait; typical tasks cannot use %.2f of the idle GPUs\n",
              static_cast<int>(now), g.num_waiting(), f.total() / 1000);
}

}  // namespace

int main() {
  node_table nodes;
  for (int i = 0; i < 2; ++i)
    nodes.add({.host = {.cpu_milli = 32'000, .memory_mib = 65'536}, .gpus = 2});
  const task_mix typical({{{.cpu_milli = 4000, .gpus = 1, .gpu_milli = 500}, 3},
                          {{.cpu_milli = 4000, .gpus = 1, .gpu_milli = 1000}, 7}});
  const fragmentation metric(typical);
  auto below = fgd::create(nodes, fragmentation_gradient(metric));
  if (!below.ok()) return 1;
  // No task is suspended for another one. A migration must gain a tenth of the GPUs that it moves.
  auto g = gandiva_tasks::create({*below, metric},
                                 {.quantum = max_time, .migrations = {.jobs = 4, .cost = 100}});
  if (!g.ok()) return 1;
  std::vector<gandiva_tasks::action> todo;
  for (std::uint32_t job = 0; job < 8; ++job)
    if (!g->submit(task(job, 500), {}, 0, todo).ok()) return 1;
  show(*g, metric, 0, todo);
  for (const std::uint32_t job : {0U, 3U, 5U})
    if (!g->finish(job_id(job), 10).ok()) return 1;
  for (std::uint32_t job = 8; job < 10; ++job)
    if (!g->submit(task(job, 1000), {}, 10, todo).ok()) return 1;
  show(*g, metric, 10, todo);
  if (!g->decide(10, todo).ok()) return 1;
  show(*g, metric, 10, todo);
}
