// apiary/gandiva/gandiva_tasks.h - time slices and migration for tasks that share GPUs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gpu_sharing_placer.h>
#include <apiary/gandiva/time_sharing.h>

APIARY_NAMESPACE_BEGIN

// Gandiva for tasks that share GPUs, placed by FGD. All tasks run in time slices; with a quantum of
// `max_time` no task stops for another. A decision makes the migrations that lower the cluster's
// fragmentation most for each GPU of the task, until none gains enough or
// time_sharing_options::migration_limits::jobs have migrated. For jobs of whole GPUs see
// gandiva_fgd.
// Model: "Gandiva" (OSDI 2018), §3.2; "Beware of Fragmentation" (USENIX ATC 2023).
//
//   const fragmentation metric(mix);
//   gandiva_tasks::create({fgd::create(nodes, fragmentation_gradient(metric)).value(), metric},
//                       {.quantum = max_time, .migrations = {.jobs = 8, .cost = 100}})
//
// Example: examples/gandiva_tasks.cpp
using gandiva_tasks = time_sharing<gpu_sharing_task_placer<fragmentation_gradient>>;

APIARY_NAMESPACE_END
