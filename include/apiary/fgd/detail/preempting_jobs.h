// apiary/fgd/detail/preempting_jobs.h - jobs that wait for their victims, and their victims.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/core/status.h>
#include <apiary/fgd/detail/running_tasks.h>
#include <apiary/fgd/preemption_plan.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A job that has reserved resources, and waits until its victims have ended.
struct preempting_job {
  std::vector<running_task> tasks{};  // its tasks, where they will run
  std::vector<job_id> victims{};      // that still run, ascending
  eviction_terms terms{};             // of the job
  std::uint64_t lower_bound = 0;      // when the victims were chosen
};

// The preempting jobs, and the victims of each. A job is the victim of at most one.
//
// Cost: a hash look-up for each job and victim.
class preempting_jobs {
 public:
  // The preempting job; null if it is not preempting.
  [[nodiscard]] const preempting_job* find(job_id job) const {
    const auto found = jobs_.find(job.value);
    return found == jobs_.end() ? nullptr : &found->second;
  }
  // Whether a running job is a victim.
  [[nodiscard]] bool is_victim(job_id job) const { return preemptor_of_.contains(job.value); }
  // The number of preempting jobs.
  [[nodiscard]] std::size_t size() const noexcept { return jobs_.size(); }

  // Adds a preempting job. Requires: its victims are no victims yet.
  void add(job_id job, preempting_job its) {
    for (const job_id victim : its.victims) preemptor_of_.emplace(victim.value, job);
    jobs_.emplace(job.value, std::move(its));
  }
  // Removes a preempting job; its victims are no victims any more. Requires: it is preempting.
  void remove(job_id job) {
    const auto found = jobs_.find(job.value);
    for (const job_id victim : found->second.victims) preemptor_of_.erase(victim.value);
    jobs_.erase(found);
  }
  // A job has ended. Returns whether it was a victim.
  bool ended(job_id job) {
    const auto found = preemptor_of_.find(job.value);
    if (found == preemptor_of_.end()) return false;
    erase_sorted(jobs_.find(found->second.value)->second.victims, job);
    preemptor_of_.erase(found);
    return true;
  }

 private:
  std::unordered_map<std::uint32_t, preempting_job> jobs_{};
  std::unordered_map<std::uint32_t, job_id> preemptor_of_{};  // by victim
};

// Whether two requests ask for the same.
[[nodiscard]] inline bool same_request(const task_request& a, const task_request& b) noexcept {
  return a.host() == b.host() && a.gpus == b.gpus &&
         (!a.wants_gpu() || (a.gpu_milli == b.gpu_milli && a.models == b.models));
}
// Whether tasks are equal, in the same order and at the same placements.
[[nodiscard]] inline bool same_tasks(const std::vector<running_task>& a,
                                     const std::vector<running_task>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const running_task& x, const running_task& y) {
        return x.group == y.group && x.where == y.where && same_request(x.request, y.request);
      });
}
// Whether the tasks are those of the gang.
[[nodiscard]] inline bool same_requests(const std::vector<running_task>& tasks,
                                        const topology_constraints& gang) {
  std::vector<std::uint32_t> missing;
  for (const constrained_task_group& g : gang.groups) missing.push_back(g.tasks);
  for (const running_task& t : tasks) {
    if (t.group >= missing.size() || missing[t.group]-- == 0) return false;
    if (!same_request(t.request, gang.groups[t.group].task())) return false;
  }
  return std::all_of(missing.begin(), missing.end(), [](std::uint32_t n) { return n == 0; });
}

// "it can start on node 3 when jobs 4 and 7 have been preempted". Names at most eight jobs.
// Requires: the plan of a task is to preempt.
[[nodiscard]] inline std::string explain_victims(const preemption_plan& plan, bool reserved) {
  const std::size_t jobs = plan.victims.size();
  const std::size_t named = jobs <= 8 ? jobs : 7;
  std::string text = absl::StrCat("it can start on node ", plan.placements[0].where.node.value,
                                  jobs == 1 ? " when job " : " when jobs ");
  for (std::size_t i = 0; i < named; ++i)
    absl::StrAppend(&text, i == 0 ? "" : i + 1 == jobs ? " and " : ", ", plan.victims[i].value);
  if (named < jobs) absl::StrAppend(&text, " and ", jobs - named, " more");
  absl::StrAppend(&text, jobs == 1 ? " has" : " have", " been preempted");
  return text + (plan.cost == plan.lower_bound && !reserved ? "; no other choice costs less" : "");
}
// kInvalidArgument: a plan to wait is committed.
[[nodiscard]] inline absl::Status waits(const std::string& name) {
  return absl::InvalidArgumentError(name + ": a plan to wait cannot be committed");
}
// kInvalidArgument: the job has reserved resources for another request or at other placements.
[[nodiscard]] inline absl::Status has_reserved(job_id job) {
  return absl::InvalidArgumentError(
      name_of(job) + " has reserved resources for another request or placement; finish it first");
}
// kFailedPrecondition: victims of a preempting job still run.
[[nodiscard]] inline absl::Status victims_run(job_id job, const std::vector<job_id>& victims) {
  std::string list;
  for (const job_id victim : victims)
    absl::StrAppend(&list, list.empty() ? "" : ", ", victim.value);
  return absl::FailedPreconditionError(
      absl::StrCat(name_of(job), ": victims still run: ", list, "; finish them first"));
}
// kFailedPrecondition: a preempting job has reserved resources of a node that is to change.
[[nodiscard]] inline absl::Status is_reserved(node_id n) {
  return absl::FailedPreconditionError(
      absl::StrCat("a preempting job has reserved resources of node ", n.value));
}

}  // namespace detail
APIARY_NAMESPACE_END
