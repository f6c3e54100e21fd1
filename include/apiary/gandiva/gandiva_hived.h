// apiary/gandiva/gandiva_hived.h - time slices and migration for gangs and jobs on a HiveD cluster.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/gandiva/time_sharing.h>
#include <apiary/hived/hived_placer.h>
#include <apiary/model/job_scheduler.h>

APIARY_NAMESPACE_BEGIN

// Gandiva for gangs on a HiveD cluster: a guaranteed gang starts as soon as hived would start it.
// It is not suspended for a time slice or for another tenant. Opportunistic gangs run in time
// slices on the GPUs that guaranteed gangs leave idle. A lazy gang that became opportunistic runs
// outside the time slices.
//
// A guaranteed gang is tried for a migration on a copy, because to undo the trial could change the
// gang's virtual cell. No gang migrates if that preempts or downgrades another one.
// Model: "Gandiva" (OSDI 2018), §3.2; "HiveD" (OSDI 2020), §3.
//
//   gandiva_gangs::create(hived_gang_placer(hived::create(config).value()), {.quantum = 60'000})
//
// Example: examples/gandiva_gangs.cpp
using gandiva_gangs = time_sharing<hived_gang_placer>;

// Gandiva for jobs of whole GPUs on a HiveD cluster. A guaranteed job (priority 0 to 1000) starts
// on its tenant's cells as soon as it fits there and suspends opportunistic jobs in its way. Until
// then it runs in time slices on idle GPUs, as opportunistic jobs (priority -1) do.
//
//   gandiva_hived::create(hived_placer::create(config, true).value(), {.quantum = 60'000})
//
// Example: examples/programs/simulate.cpp
using gandiva_hived = time_sharing<hived_placer>;

static_assert(JobScheduler<gandiva_hived>);

APIARY_NAMESPACE_END
