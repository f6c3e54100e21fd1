// How do I write a placement score? A score is a class with three functions; the scheduler around
// it is the one of FGD. This score prefers the node with the fewest whole free GPUs, so that large
// tasks find large nodes.
// SPDX-License-Identifier: MIT
#include <apiary/fgd/baseline_scores.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/fgd/node_score.h>
#include <apiary/model/node_table.h>
#include <apiary/model/plan.h>

#include <cstdint>
#include <cstdio>

using namespace apiary;

struct fewest_whole_gpus {
  // Called after each change of a node; this score stores nothing.
  void update(const node_table&, node_id) const {}

  // The highest score wins: a node without whole GPUs scores highest.
  std::uint32_t score(const node_table& nodes, node_id n, const task_request& task) const {
    std::uint32_t whole = nodes[n].free_gpus();
    if (task.wants_whole_gpus()) whole -= task.gpus;
    return max_gpus_per_node - whole;
  }

  std::uint32_t gpu_mask(const node_table& nodes, node_id n, const task_request& task) const {
    if (!task.wants_gpu()) return 0;
    if (task.wants_whole_gpus()) return nodes[n].first_free_gpus(task.gpus);
    return nodes[n].tightest_gpu(task.gpu_milli);
  }
};
static_assert(NodeScore<fewest_whole_gpus>);

// Places four tasks of one GPU, then one of four.
template <class Score>
void show(const char* name, Score score) {
  node_table nodes;
  nodes.add({.host = {.cpu_milli = 16'000}, .gpus = 4});
  nodes.add({.host = {.cpu_milli = 64'000}, .gpus = 2});
  nodes.add({.host = {.cpu_milli = 64'000}, .gpus = 2});
  auto scheduler = gpu_sharing_scheduler<Score>::create(nodes, score).value();
  std::printf("%-18s", name);
  for (std::uint32_t job = 0; job < 5; ++job) {
    const task_request task{
        .job = job_id(job), .cpu_milli = 1000, .gpus = job < 4 ? 1U : 4U, .gpu_milli = whole_gpu};
    const task_plan plan = scheduler.propose(task).value();
    if (plan.result == plan_result::bind && scheduler.commit(task, plan).ok()) {
      std::printf("  job %u: node %u", job, plan.where.node.value);
    } else {
      std::printf("  job %u: waits", job);
    }
  }
  std::printf("\n");
}

int main() {
  show("best_fit", best_fit{});
  show("fewest_whole_gpus", fewest_whole_gpus{});
}
