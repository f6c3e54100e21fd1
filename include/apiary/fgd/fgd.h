// apiary/fgd/fgd.h - fragmentation gradient descent: GPU sharing that leaves little GPU unusable.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gpu_sharing.h>

APIARY_NAMESPACE_BEGIN

// Each task goes where it adds least to the cluster's fragmentation against a typical workload.
//
//   fgd::create(nodes, fragmentation_gradient(fragmentation(task_mix::from_history(history))))
//
// Model:   "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
//          Descent" (USENIX ATC 2023).
// Cost:    fgd/gpu_sharing.h; measured in benchmarks/sched_bench.cpp.
// Example: examples/gpu_sharing.cpp
using fgd = gpu_sharing_scheduler<fragmentation_gradient>;

APIARY_NAMESPACE_END
