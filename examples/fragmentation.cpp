// How many idle GPUs can the typical tasks not use, and why? Two nodes have 1.4 idle GPUs each,
// but the typical workload cannot use them equally well. FGD's fragmentation measures that.
// SPDX-License-Identifier: MIT
#include "programs/published_fragmentation.h"
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>

#include <cstdio>

using namespace apiary;
using namespace example;

int main() {
  const task_mix typical({{{.cpu_milli = 4000, .gpus = 1, .gpu_milli = 500}, 5},     // half a GPU
                          {{.cpu_milli = 8000, .gpus = 1, .gpu_milli = 1000}, 3},    // a GPU
                          {{.cpu_milli = 16'000, .gpus = 2, .gpu_milli = 1000}, 1},  // two GPUs
                          {{.cpu_milli = 2000}, 1}});                                // no GPU
  node_table nodes;
  const node_id compact = nodes.add({.host = {.cpu_milli = 32'000}, .gpus = 2});
  const node_id scattered = nodes.add({.host = {.cpu_milli = 32'000}, .gpus = 4});
  nodes[compact].gpu_left = {1000, 400};
  nodes[scattered].gpu_left = {350, 350, 350, 350};

  const fragmentation exact(typical);
  const published_fragmentation by_class(typical);
  for (const node_id n : {compact, scattered}) {
    const published_fragmentation::amounts c = by_class.classes(nodes[n]);
    std::printf(
        "node %u: idle %u/1000 of a GPU; unusable %.0f: %.0f because GPUs are too small or too "
        "few, "
        "%.0f because a task needs no GPU\n",
        n.value, nodes[n].total_gpu_left(), exact(nodes[n]), c.q2, c.xl);
  }

  cluster_fragmentation cluster(exact, nodes);
  std::printf("cluster: unusable %.0f\n", cluster.total());
  nodes[compact].left.cpu_milli = 3000;  // other tasks take nearly all its CPU
  cluster.update(nodes, compact);
  std::printf("cluster, node 0 short of CPU: unusable %.0f, %.0f of it for lack of CPU\n",
              cluster.total(), by_class.classes(nodes[compact]).q4);
}
