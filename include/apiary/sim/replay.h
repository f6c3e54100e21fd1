// apiary/sim/replay.h - sends the tasks of a workload to a scheduler, one by one.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>
#include <apiary/trace/workload.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The decision for each arrival, in order: a placement, or nothing if the task did not fit.
using decisions = std::vector<std::optional<placement>>;

// kInvalidArgument if an arrival names a task that does not exist.
[[nodiscard]] inline absl::Status check_arrivals(const workload& work) {
  for (std::size_t i = 0; i < work.arrivals.size(); ++i) {
    if (work.arrivals[i] < work.tasks.size()) continue;
    return absl::InvalidArgumentError("arrival " + std::to_string(i + 1) + " names task " +
                                      std::to_string(work.arrivals[i]) + "; there are " +
                                      std::to_string(work.tasks.size()) + ", numbered from 0");
  }
  return absl::OkStatus();
}

// Lets the tasks of a workload arrive one by one; the i-th, from 0, is job_id(i). Each is placed or
// dropped, and none departs. observe(decisions so far, the last one) is called after each.
// Errors:   kInvalidArgument, before the first decision: an arrival is not one of the tasks.
//           Otherwise the first error of the scheduler.
// Requires: propose(task) -> StatusOr<task_plan>, commit(task, task_plan) -> Status; no job with an
//           id of an arrival runs on the scheduler.
// Example:  examples/programs/replay.cpp
template <class Scheduler, class Observer>
[[nodiscard]] absl::StatusOr<decisions> replay(Scheduler& scheduler, const workload& work,
                                               Observer&& observe) {
  APIARY_RETURN_IF_ERROR(check_arrivals(work));
  decisions answers;
  answers.reserve(work.arrivals.size());
  for (const std::uint32_t t : work.arrivals) {
    task_request task = work.tasks[t].request;
    task.job = job_id(static_cast<std::uint32_t>(answers.size()));
    APIARY_ASSIGN_OR_RETURN(const task_plan plan, scheduler.propose(task));
    if (plan.result == plan_result::bind) {
      APIARY_RETURN_IF_ERROR(scheduler.commit(task, plan));
      answers.push_back(plan.where);
    } else {
      answers.push_back(std::nullopt);
    }
    observe(answers.size(), answers.back());
  }
  return answers;
}

// The same without an observer.
template <class Scheduler>
[[nodiscard]] absl::StatusOr<decisions> replay(Scheduler& scheduler, const workload& work) {
  return replay(scheduler, work, [](std::size_t, const std::optional<placement>&) {});
}

// "task node devices" for arrival i, devices joined by '-' (none without GPUs); "task -" if it did
// not fit. Requires: i < work.arrivals.size(), the arrival is a task, the node one of `nodes`.
[[nodiscard]] inline std::string decision_line(const trace_cluster& nodes, const workload& work,
                                               std::size_t i,
                                               const std::optional<placement>& answer) {
  APIARY_ASSERT(i < work.arrivals.size() && work.arrivals[i] < work.tasks.size());
  APIARY_ASSERT(!answer || answer->node.value < nodes.names.size());
  std::string line = work.tasks[work.arrivals[i]].name;
  if (!answer) return line + " -";
  line += ' ';
  line += nodes.names[answer->node];
  char before = ' ';
  for (std::uint32_t mask = answer->gpu_mask; mask != 0; mask &= mask - 1) {
    line += before;
    line += std::to_string(std::countr_zero(mask));
    before = '-';
  }
  return line;
}

APIARY_NAMESPACE_END
