// apiary/fgd/preemptive_sharing.h - tasks and gangs on shared GPUs that preempt at least cost.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/fgd/detail/errors.h>
#include <apiary/fgd/detail/gang_victims.h>
#include <apiary/fgd/detail/preemption_book.h>
#include <apiary/fgd/gang_sharing.h>
#include <apiary/fgd/node_score.h>
#include <apiary/fgd/preemption_plan.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#ifdef APIARY_COMPILED
#include <apiary/fgd/fragmentation_gradient.h>
#endif

APIARY_NAMESPACE_BEGIN

// A gang_sharing_scheduler with priorities. A task or a gang that fits nowhere preempts jobs of
// lower priority, those that cost least. A job is evicted as a whole, with all its tasks.
//
// After the commit of `preempt`, the job has reserved its placements. The host ends the victims,
// calls finish() for each, and proposes the job again: the answer is `bind` when all victims have
// ended. finish() of a preempting job cancels it, and its victims stay. A preempting job and its
// victims are no victims of others. nodes() shows what is reserved as used.
//
// Victims for a task cost least if lower_bound == cost; otherwise a budget of the search ended.
// Those for a gang are found task by task, with a lower bound; on small clusters, sets of jobs are
// then tried in the order of their costs (detail::gang_victims has the limits). A gang under
// topology constraints preempts nothing, and neither does one that is `undecided`: it may fit.
//
// Cost:    propose: as gang_sharing_scheduler; if a task does not fit, as detail::victim_index, so
//          O(nodes), once for a task and twice for each task group of a gang, and then for each
//          task the nodes of its victims; plan.steps counts it. For a gang on a small cluster also
//          a plan for each set of jobs that is tried. commit, finish: as there, and O(jobs on the
//          node).
// Example: examples/shared_preemption.cpp
template <NodeScore Score>
class preemptive_sharing_scheduler {
 public:
  // A running task: its request, where it runs and, in a gang, its task group.
  using running_task = detail::running_task;
  // The sum of the eviction costs of all jobs is below this.
  static constexpr std::uint64_t max_total_cost = detail::preemption_book<Score>::max_total_cost;

  // As gpu_sharing_scheduler::create. What `nodes` shows as used cannot be evicted.
  [[nodiscard]] static absl::StatusOr<preemptive_sharing_scheduler> create(node_table nodes,
                                                                           Score score);

  // Where the task would run now, or when which jobs of lower priority have ended, or why it waits.
  // Changes nothing that a caller can observe. kInvalidArgument: not valid(), or the job has
  // reserved GPUs for another request. kAlreadyExists: the job runs; a task that is to join a
  // running gang is proposed without a job id, and then it may evict that gang, too.
  [[nodiscard]] absl::StatusOr<preemption_plan> propose(const task_request& task,
                                                        std::uint32_t priority) {
    return decide(task, priority, nullptr);
  }
  // The same on the nodes in `suggested` only. kInvalidArgument also: not one bit for each node.
  [[nodiscard]] absl::StatusOr<preemption_plan> propose(const task_request& task,
                                                        std::uint32_t priority,
                                                        const summary_bitset& suggested) {
    return decide(task, priority, &suggested);
  }
  // The same for a gang. Errors as gang_sharing_scheduler::propose, and as above.
  [[nodiscard]] absl::StatusOr<preemption_plan> propose(job_id job,
                                                        const topology_constraints& gang,
                                                        std::uint32_t priority) {
    return decide(job, gang, priority, nullptr);
  }
  // The same for a gang on the nodes in `suggested` only.
  [[nodiscard]] absl::StatusOr<preemption_plan> propose(job_id job,
                                                        const topology_constraints& gang,
                                                        std::uint32_t priority,
                                                        const summary_bitset& suggested) {
    return decide(job, gang, priority, &suggested);
  }
  // Applies a plan: the task runs, or it has reserved its placement and its victims must end.
  // kInvalidArgument: the plan is to wait, or does not match the task; or a cost too large.
  // kAlreadyExists: the job runs, or is preempting already. kNotFound: no such node. kAborted: the
  // plan is stale. kFailedPrecondition: victims of the job still run.
  absl::Status commit(const task_request& task, const preemption_plan& plan,
                      const eviction_terms& terms);
  // The same for a gang.
  absl::Status commit(job_id job, const topology_constraints& gang, const preemption_plan& plan,
                      const eviction_terms& terms);
  // One more task of a running gang starts. Errors as gang_sharing_scheduler::commit.
  absl::Status commit(job_id job, const task_request& task, const task_placement& added);
  // Adds a task that runs already, after a restart, also on a bad node. Errors as commit().
  absl::Status recover(const task_request& task, placement where, const eviction_terms& terms);
  // The same for a gang; tasks that have ended have no placement.
  absl::Status recover(job_id job, const topology_constraints& gang,
                       std::span<const task_placement> placements, const eviction_terms& terms);

  // The job has ended, or a preempting job is cancelled. kNotFound: it neither runs nor preempts.
  absl::Status finish(job_id job);
  // One task of a gang has ended. Errors as gang_sharing_scheduler::finish.
  absl::Status finish(job_id job, const task_placement& task);
  // Changes the cost of evicting a running job, for example after a checkpoint. kNotFound: it does
  // not run. kInvalidArgument: the costs of all jobs would add up to 2^63 - 1 or more.
  absl::Status set_eviction_cost(job_id job, std::uint64_t cost) {
    return book_.set_cost(job, cost);
  }

  // As gpu_sharing_scheduler.
  absl::Status mark_bad(node_id n) { return touched(n, gangs().mark_bad(n)); }
  // As gpu_sharing_scheduler.
  absl::Status mark_healthy(node_id n) { return touched(n, gangs().mark_healthy(n)); }
  // As gpu_sharing_scheduler.
  absl::StatusOr<node_id> add_node(const node_shape& shape) {
    const absl::StatusOr<node_id> added = gangs().add_node(shape);
    if (!added.ok()) return added;
    book_.shape_changed(*added);
    return added;
  }
  // As gpu_sharing_scheduler. kFailedPrecondition also: a preempting job has reserved GPUs there.
  absl::Status remove_node(node_id n) {
    if (book_.is_reserved(n)) return detail::is_reserved(n);
    APIARY_RETURN_IF_ERROR(gangs().remove_node(n));
    book_.shape_changed(n);
    return absl::OkStatus();
  }
  // As gpu_sharing_scheduler. kFailedPrecondition also: a preempting job has reserved GPUs there.
  absl::Status resize_node(node_id n, std::uint32_t gpus, resources host) {
    if (book_.is_reserved(n)) return detail::is_reserved(n);
    APIARY_RETURN_IF_ERROR(gangs().resize_node(n, gpus, host));
    book_.shape_changed(n);
    return absl::OkStatus();
  }

  // As gpu_sharing_scheduler: without preemption.
  [[nodiscard]] absl::StatusOr<std::string> explain(const task_request& task) const {
    return gangs().explain(task);
  }
  // As gpu_sharing_scheduler: without preemption.
  [[nodiscard]] absl::StatusOr<std::string> explain(const task_request& task,
                                                    const summary_bitset& suggested) const {
    return gangs().explain(task, suggested);
  }
  // Why propose(task, priority) does not bind, as a text for its user: which jobs have to be
  // preempted, or what explain(task) says. Empty if it fits now. Errors as propose().
  [[nodiscard]] absl::StatusOr<std::string> explain(const task_request& task,
                                                    std::uint32_t priority) {
    return why(task, priority, nullptr);
  }
  // The same for propose(task, priority, suggested).
  [[nodiscard]] absl::StatusOr<std::string> explain(const task_request& task,
                                                    std::uint32_t priority,
                                                    const summary_bitset& suggested) {
    return why(task, priority, &suggested);
  }
  // The nodes and what is left of each. What is reserved counts as used.
  [[nodiscard]] const node_table& nodes() const noexcept { return book_.nodes(); }
  // As gpu_sharing_scheduler.
  absl::Status set_score(Score score) { return gangs().set_score(std::move(score)); }
  // As gpu_sharing_scheduler.
  [[nodiscard]] const Score& score() const noexcept { return gangs().score(); }
  // As gpu_sharing_scheduler: a preempting job does not run.
  [[nodiscard]] std::size_t num_running() const noexcept { return gangs().num_running(); }
  // As gpu_sharing_scheduler.
  [[nodiscard]] std::optional<placement> find(job_id job) const { return gangs().find(job); }
  // As gang_sharing_scheduler.
  [[nodiscard]] std::vector<task_placement> find_gang(job_id job) const {
    return gangs().find_gang(job);
  }
  // As gpu_sharing_scheduler.
  [[nodiscard]] std::vector<running_task> tasks_of(job_id job) const {
    return gangs().tasks_of(job);
  }
  // As gpu_sharing_scheduler.
  [[nodiscard]] std::vector<job_id> jobs() const { return gangs().jobs(); }
  // As gpu_sharing_scheduler.
  [[nodiscard]] std::vector<job_id> jobs_on(node_id n) const { return gangs().jobs_on(n); }
  // The victims of a preempting job that still run, ascending; nullopt if it is not preempting.
  [[nodiscard]] std::optional<std::vector<job_id>> victims_of(job_id job) const {
    if (const detail::preempting_job* its = book_.preempting().find(job)) return its->victims;
    return std::nullopt;
  }

 private:
  preemptive_sharing_scheduler(node_table nodes, Score score);

  [[nodiscard]] detail::open_scheduler<Score>& gangs() noexcept { return book_.gangs(); }
  [[nodiscard]] const detail::open_scheduler<Score>& gangs() const noexcept {
    return book_.gangs();
  }
  // The status of a change of node n.
  absl::Status touched(node_id n, absl::Status status) {
    if (status.ok()) book_.health_changed(n);
    return status;
  }

  [[nodiscard]] static std::vector<running_task> tasks_at(
      job_id job, const topology_constraints& gang, std::span<const task_placement> placements) {
    std::vector<running_task> tasks;
    for (const task_placement& p : placements)
      tasks.push_back({detail::open_scheduler<Score>::request_of(job, gang, p), p.where, p.group});
    return tasks;
  }

  absl::StatusOr<std::string> why(const task_request& task, std::uint32_t priority,
                                  const summary_bitset* suggested);
  absl::StatusOr<preemption_plan> decide(const task_request& task, std::uint32_t priority,
                                         const summary_bitset* suggested);
  absl::StatusOr<preemption_plan> decide(job_id job, const topology_constraints& gang,
                                         std::uint32_t priority, const summary_bitset* suggested);

  detail::preemption_book<Score> book_;
};

template <NodeScore Score>
auto preemptive_sharing_scheduler<Score>::create(node_table nodes, Score score)
    -> absl::StatusOr<preemptive_sharing_scheduler> {
  APIARY_RETURN_IF_ERROR(detail::check_nodes(nodes));
  APIARY_RETURN_IF_ERROR(detail::check_score(score));
  return preemptive_sharing_scheduler(std::move(nodes), std::move(score));
}

template <NodeScore Score>
absl::Status preemptive_sharing_scheduler<Score>::commit(const task_request& task,
                                                         const preemption_plan& plan,
                                                         const eviction_terms& terms) {
  if (plan.result == plan_result::wait) return detail::waits(detail::name_of(task.job));
  if (plan.placements.size() != 1)
    return absl::InvalidArgumentError(absl::StrCat(detail::name_of(task.job), ": the plan has ",
                                                   plan.placements.size(),
                                                   " placements; a task has one"));
  const placement where = plan.placements[0].where;
  if (plan.result == plan_result::bind)
    return book_.start(task.job, {{task, where}}, terms,
                       [&] { return gangs().commit(task, where); });
  APIARY_RETURN_IF_ERROR(detail::check_task(task));
  return book_.reserve(task.job, {{task, where}}, plan, terms);
}

template <NodeScore Score>
absl::Status preemptive_sharing_scheduler<Score>::commit(job_id job,
                                                         const topology_constraints& gang,
                                                         const preemption_plan& plan,
                                                         const eviction_terms& terms) {
  if (plan.result == plan_result::wait) return detail::waits(detail::name_of(job, "gang"));
  APIARY_RETURN_IF_ERROR(gangs().check_placements(job, gang, plan.placements, true));
  std::vector<running_task> tasks = tasks_at(job, gang, plan.placements);
  if (plan.result == plan_result::bind)
    return book_.start(job, std::move(tasks), terms,
                       [&] { return gangs().commit(job, gang, plan.placements); });
  return book_.reserve(job, std::move(tasks), plan, terms);
}

template <NodeScore Score>
absl::Status preemptive_sharing_scheduler<Score>::commit(job_id job, const task_request& task,
                                                         const task_placement& added) {
  APIARY_RETURN_IF_ERROR(gangs().commit(job, task, added));
  book_.added({task, added.where, added.group}, job);
  return absl::OkStatus();
}

template <NodeScore Score>
absl::Status preemptive_sharing_scheduler<Score>::recover(const task_request& task, placement where,
                                                          const eviction_terms& terms) {
  return book_.start(task.job, {{task, where}}, terms,
                     [&] { return gangs().recover(task, where); });
}

template <NodeScore Score>
absl::Status preemptive_sharing_scheduler<Score>::recover(
    job_id job, const topology_constraints& gang, std::span<const task_placement> placements,
    const eviction_terms& terms) {
  APIARY_RETURN_IF_ERROR(gangs().check_placements(job, gang, placements, false));
  return book_.start(job, tasks_at(job, gang, placements), terms,
                     [&] { return gangs().recover(job, gang, placements); });
}

template <NodeScore Score>
absl::Status preemptive_sharing_scheduler<Score>::finish(job_id job) {
  if (book_.preempting().find(job) != nullptr) {
    book_.cancel(job);
    return absl::OkStatus();
  }
  const std::vector<running_task> tasks = tasks_of(job);
  APIARY_RETURN_IF_ERROR(gangs().finish(job));
  book_.ended(job, tasks);
  return absl::OkStatus();
}

template <NodeScore Score>
absl::Status preemptive_sharing_scheduler<Score>::finish(job_id job, const task_placement& task) {
  std::vector<running_task> ended;
  if (const running_task* its = gangs().running_.find_one(job, task.group, task.where))
    ended.push_back(*its);
  APIARY_RETURN_IF_ERROR(gangs().finish(job, task));
  book_.ended(job, ended);
  return absl::OkStatus();
}

template <NodeScore Score>
preemptive_sharing_scheduler<Score>::preemptive_sharing_scheduler(node_table nodes, Score score)
    : book_(std::move(nodes), std::move(score)) {}

template <NodeScore Score>
absl::StatusOr<std::string> preemptive_sharing_scheduler<Score>::why(
    const task_request& task, std::uint32_t priority, const summary_bitset* suggested) {
  APIARY_ASSIGN_OR_RETURN(const preemption_plan plan, decide(task, priority, suggested));
  if (plan.result == plan_result::bind) return std::string();
  const detail::preempting_job* const its = book_.preempting().find(task.job);
  if (plan.result == plan_result::preempt) return detail::explain_victims(plan, its != nullptr);
  if (its != nullptr)
    return absl::StrCat("not now: node ", its->tasks[0].where.node.value,
                        ", where it has reserved resources, is bad");
  return detail::explain_task(nodes(), task, suggested);
}

template <NodeScore Score>
absl::StatusOr<preemption_plan> preemptive_sharing_scheduler<Score>::decide(
    const task_request& task, std::uint32_t priority, const summary_bitset* suggested) {
  APIARY_RETURN_IF_ERROR(detail::check_task(task));
  if (suggested != nullptr)
    APIARY_RETURN_IF_ERROR(detail::check_suggested(*suggested, nodes().size()));
  if (const detail::preempting_job* its = book_.preempting().find(task.job)) {
    if (its->tasks.size() == 1 && detail::same_request(its->tasks[0].request, task))
      return book_.waiting_plan(*its);
    return detail::has_reserved(task.job);
  }
  if (gangs().running_.contains(task.job)) return detail::runs_already(task.job);
  const absl::StatusOr<task_plan> now =
      suggested == nullptr ? gangs().propose(task) : gangs().propose(task, *suggested);
  preemption_plan plan{.result = now->result, .reason = now->reason};
  if (now->result == plan_result::bind) {
    plan.placements.push_back({0, now->where});
  } else if (now->reason != wait_reason::never) {
    detail::victim_index& index = book_.evictable();
    const std::uint64_t before = index.steps();
    index.open(task, priority, suggested);
    auto found = index.least(nodes());
    plan.steps = index.steps() - before;
    if (!found) return plan;
    plan.result = plan_result::preempt;
    plan.placements.push_back({0, found->where});
    plan.victims = std::move(found->victims);
    plan.cost = found->cost;
    plan.lower_bound = found->lower_bound;
  }
  return plan;
}

template <NodeScore Score>
absl::StatusOr<preemption_plan> preemptive_sharing_scheduler<Score>::decide(
    job_id job, const topology_constraints& gang, std::uint32_t priority,
    const summary_bitset* suggested) {
  if (const detail::preempting_job* its = book_.preempting().find(job)) {
    if (detail::same_requests(its->tasks, gang)) return book_.waiting_plan(*its);
    return detail::has_reserved(job);
  }
  if (gangs().running_.contains(job)) return detail::runs_already(job);
  absl::StatusOr<shared_gang_plan> now =
      book_.propose(gang, suggested, gang_sharing_scheduler<Score>::default_gang_budget);
  if (!now.ok()) return now.status();
  preemption_plan plan{
      .result = now->result, .placements = std::move(now->placements), .reason = now->reason};
  const bool fits_nowhere = now->result == plan_result::wait && now->reason != wait_reason::never &&
                            now->reason != wait_reason::undecided;
  const bool preempts =
      fits_nowhere && detail::tasks_are_independent(gang) && gang.required == any_level;
  if (preempts) detail::gang_victims<Score>(book_, gang, priority, suggested).find(plan);
  return plan;
}

#ifdef APIARY_COMPILED
extern template class preemptive_sharing_scheduler<fragmentation_gradient>;
#endif

APIARY_NAMESPACE_END
