// apiary/gandiva/gandiva_fgd.h - Gandiva's time slices and migration for jobs that FGD places.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/batch/gpu_sharing_placer.h>
#include <apiary/batch/job_placer.h>
#include <apiary/batch/server_placer.h>
#include <apiary/core/config.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/gandiva/placer_backend.h>
#include <apiary/gandiva/time_sharing_queue.h>
#include <apiary/model/job_scheduler.h>

APIARY_NAMESPACE_BEGIN

// Gandiva for jobs of whole GPUs over any JobPlacer: the placer decides where a job starts and where
// it moves; time sharing decides which job runs in a time slice and which job moves.
//
//   const fragmentation metric(mix);
//   gandiva_with_placer<server_placer>::create(
//       {server_placer::create(spec).value(), spec, metric}, {.moves = {.moves = 4, .cost = 100}})
//
// Example: examples/simulate.cpp
template <JobPlacer Placer>
using gandiva_with_placer = time_sharing_queue<placer_backend<Placer>>;

// Gandiva with FGD as the placer, for jobs of whole GPUs. For tasks that share a GPU see
// gandiva/gandiva_tasks.h.
using gandiva_fgd = gandiva_with_placer<gpu_sharing_placer<fragmentation_gradient>>;

static_assert(JobScheduler<gandiva_with_placer<server_placer>> && JobScheduler<gandiva_fgd>);

APIARY_NAMESPACE_END
