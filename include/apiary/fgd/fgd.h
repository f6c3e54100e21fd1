// apiary/fgd/fgd.h - FGD, fragmentation gradient descent, as a complete scheduler.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gpu_sharing.h>

APIARY_NAMESPACE_BEGIN

// FGD: each task goes to the node and GPU where it adds least to the fragmentation of the cluster.
//
//   fgd::create(nodes, fragmentation_gradient(fragmentation(task_mix::from_history(history))))
//
// Model:   "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
//          Descent" (USENIX ATC 2023).
// Cost:    as gpu_sharing_scheduler; measured in benchmarks/sched_bench.cpp.
// Example: examples/gpu_sharing.cpp
using fgd = gpu_sharing_scheduler<fragmentation_gradient>;

APIARY_NAMESPACE_END
