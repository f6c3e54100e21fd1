// apiary/fgd/preemption_plan.h - decisions about tasks and gangs that may preempt others.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/shared_gpu_fit.h>
#include <apiary/model/plan.h>

#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Which jobs may evict a job, and what its eviction costs.
struct eviction_terms {
  std::uint32_t priority = 0;  // jobs of a greater priority may evict it
  // What is lost if it is evicted, in any unit. The costs of victims add up. With the default, the
  // fewest jobs are evicted; victim_cost has costs by class of priority and GPU-time.
  std::uint64_t cost = 1;
};

// The decision about a task or a gang.
struct preemption_plan {
  plan_result result = plan_result::wait;
  // If the result is bind or preempt: one placement for each task, in the order of task groups. A
  // task that is no gang has group 0.
  std::vector<task_placement> placements{};
  std::vector<job_id> victims{};  // if the result is preempt: jobs that must end, ascending
  std::uint64_t cost = 0;         // of the victims
  std::uint64_t lower_bound = 0;  // no victims cost less; if equal, the cost is the least
  wait_reason reason = wait_reason::busy;  // if the result is wait
  // What the search for victims has taken: one for each node that it has read, and for each step of
  // a search on a node.
  std::uint64_t steps = 0;
};

APIARY_NAMESPACE_END
