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

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

APIARY_NAMESPACE_BEGIN

// The decision for each arrival, in order: a placement, or nothing if the task did not fit.
using decisions = std::vector<std::optional<placement>>;

namespace detail {

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

}  // namespace detail

// Lets the tasks of a workload arrive one by one. Each is placed, or dropped when nothing fits at
// that moment; nothing departs. The i-th arrival, counted from 0, is job_id(i).
//
// After each decision `observe(done, answer)` is called with the number of decisions so far and the
// last one, for a progress bar or a clock of the caller's.
// Returns the decisions; kInvalidArgument, before the first, for an arrival that is not one of the
// tasks; the first error of the scheduler.
// Requires: propose(task) -> StatusOr<task_plan>, commit(task, task_plan) -> Status; no job of
//           the numbers that the arrivals take runs on the scheduler.
template <class Scheduler, class Observer>
[[nodiscard]] absl::StatusOr<decisions> replay(Scheduler& scheduler, const workload& work,
                                               Observer&& observe) {
  APIARY_RETURN_IF_ERROR(detail::check_arrivals(work));
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

APIARY_NAMESPACE_END
