// apiary/sched/hived_plan.h - what a HiveD scheduler answers, to be carried out or dropped.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/sched/gang_plan.h>
#include <apiary/sched/hived_search.h>

#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN

// What hived::propose answers, for hived::commit.
//
//   bind     `tasks` says where each task runs
//   preempt  these leaves become the gang's once the victims have ended: after commit the host ends
//            them and proposes again
//   wait     `wait` says why
//
// Once a plan is committed, also one to preempt, `downgraded` gangs count as opportunistic. They
// have their tenant's cells back only if the gang that took them is withdrawn or cancelled before it
// runs, and the cells are then still to be had.
class gang_plan {
 public:
  outcome result = outcome::wait;
  std::vector<task_place> tasks{};   // in the order of the members
  std::vector<job_id> victims{};     // whole gangs, ascending
  std::vector<job_id> downgraded{};  // lose their tenant's cells at once, run on as opportunistic
  std::vector<job_id> cancelled{};   // preempting gangs that give way, back to waiting
  gang_wait wait{};

 private:
  friend class hived;
  std::uint64_t epoch_ = 0;  // of the scheduler that proposed it
  std::uint64_t hash_ = 0;   // of its state then
  bool placed_ = false;      // a preempting gang's place stays as it is
  gang_request request_{};
  gang_place place_{};
};

APIARY_NAMESPACE_END
