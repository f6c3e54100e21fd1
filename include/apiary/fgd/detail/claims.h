// apiary/fgd/detail/claims.h - what preempting jobs have reserved while their victims still run.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/core/status.h>
#include <apiary/fgd/detail/running_tasks.h>
#include <apiary/fgd/preemption_plan.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Hides reserved resources in a node table: a node with reservations shows what would be left if
// the tasks with the reservations ran beside all running ones, and 0 where that is less than
// nothing. It keeps what is really left.
//
// Requires: tasks start and end on the node table first, and then here; the table's nodes with
//           reservations do not leave or change.
// Cost:     O(GPUs of a node) and a hash look-up for each call.
class reserved_nodes {
 public:
  // Whether a task has a reservation on the node.
  [[nodiscard]] bool contains(node_id n) const { return nodes_.contains(n.value); }

  // Reserves resources for a task.
  void reserve(node_table& table, const task_request& task, placement where) {
    auto [found, is_new] = nodes_.try_emplace(where.node.value);
    if (is_new) found->second.left = left_of(table[where.node]);
    change(found->second, task, where, true);
    hide(table, where.node);
  }
  // Takes reserve() back.
  void release(node_table& table, const task_request& task, placement where) {
    const auto found = nodes_.find(where.node.value);
    APIARY_ASSERT(found != nodes_.end());
    change(found->second, task, where, false);
    hide(table, where.node);
    if (found->second.tasks == 0) nodes_.erase(found);
  }
  // Shows what is really left on the node until hide().
  void show(node_table& table, node_id n) const {
    const auto found = nodes_.find(n.value);
    if (found == nodes_.end()) return;
    table[n].left = found->second.left.host;
    for (std::uint32_t i = 0; i < max_gpus_per_node; ++i)
      table[n].gpu_left[i] = static_cast<milli_gpu>(found->second.left.gpus[i]);
  }
  // Hides what is reserved on the node.
  void hide(node_table& table, node_id n) const {
    const auto found = nodes_.find(n.value);
    if (found == nodes_.end()) return;
    const amounts& left = found->second.left;
    const amounts& held = found->second.held;
    table[n].left = {above(left.host.cpu_milli, held.host.cpu_milli),
                     above(left.host.memory_mib, held.host.memory_mib)};
    for (std::uint32_t i = 0; i < max_gpus_per_node; ++i)
      table[n].gpu_left[i] = static_cast<milli_gpu>(above(left.gpus[i], held.gpus[i]));
  }
  // A task has started on what the table shows as left; or, after show(), on what is really left.
  void started(const task_request& task, placement where) {
    const auto found = nodes_.find(where.node.value);
    if (found == nodes_.end()) return;
    found->second.left.host -= task.host();
    add_gpus(found->second.left, task, where, false);
  }
  // A task has ended, and the table has got back what it used.
  void ended(node_table& table, const task_request& task, placement where) {
    const auto found = nodes_.find(where.node.value);
    if (found == nodes_.end()) return;
    found->second.left.host += task.host();
    add_gpus(found->second.left, task, where, true);
    hide(table, where.node);
  }

 private:
  struct amounts {
    resources host{};
    std::array<std::uint32_t, max_gpus_per_node> gpus{};  // thousandths
  };
  struct node {
    amounts left{};           // really
    amounts held{};           // by reservations
    std::uint32_t tasks = 0;  // with reservations
  };

  [[nodiscard]] static std::uint32_t above(std::uint32_t left, std::uint32_t held) noexcept {
    return left > held ? left - held : 0;
  }
  [[nodiscard]] static amounts left_of(const node_state& state) noexcept {
    amounts result{state.left, {}};
    for (std::uint32_t i = 0; i < max_gpus_per_node; ++i) result.gpus[i] = state.gpu_left[i];
    return result;
  }
  static void add_gpus(amounts& to, const task_request& task, placement where, bool more) noexcept {
    for (std::uint32_t mask = where.gpu_mask; mask != 0; mask &= mask - 1) {
      std::uint32_t& gpu = to.gpus[static_cast<std::uint32_t>(std::countr_zero(mask))];
      gpu = more ? gpu + task.gpu_milli : gpu - task.gpu_milli;
    }
  }
  static void change(node& here, const task_request& task, placement where, bool more) noexcept {
    more ? here.held.host += task.host() : here.held.host -= task.host();
    add_gpus(here.held, task, where, more);
    here.tasks = more ? here.tasks + 1 : here.tasks - 1;
  }

  std::unordered_map<std::uint32_t, node> nodes_{};
};

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
