// apiary/hived/hived_placer.h - places the jobs of a queue on a HiveD cluster.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/core/status.h>
#include <apiary/hived/config.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_jobs.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/plan.h>
#include <apiary/hived/queries.h>
#include <apiary/hived/request.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>
#include <apiary/model/placer.h>
#include <apiary/model/plan.h>
#include <apiary/topology/tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A placer of jobs as gangs that hived_jobs makes: a job of priority 0 to 1000 runs on its tenant's
// cells and suspends jobs of lower priority of its tenant, and opportunistic jobs of all tenants; a
// job of priority -1 runs on idle GPUs. With first_fit, a
// job_queue over it gives HiveD's guarantees: with another reservation a guaranteed job may wait
// behind an opportunistic one that is before it in the order. hived_queue
// has more rules: EASY on the cells of each tenant, and jobs that run over their quota.
// A job that stops and comes back to where it ran, as in suspending_queue, gets the cells that it
// had, if they are free. The placer remembers them until others have started and stopped twice.
// Cost:    propose, commit and finish as those of hived; a commit to GPUs that were not proposed
//          just before as hived::recover; check as hived_jobs::fits_cells.
// Example: examples/own_queue.cpp
class hived_placer {
 public:
  using request = job_request;           // see Placer
  using placement_type = job_placement;  // see Placer
  // See Placer. Of a tenant, jobs that fit into its empty cells come first, then small ones, then
  // high priorities.
  struct kind {
    tenant_id tenant{};
    bool only_idle = false;  // whether such jobs can only run on idle GPUs
    std::uint32_t gpus = 0;
    std::int32_t minus_priority = 0;
    friend auto operator<=>(const kind&, const kind&) noexcept = default;
  };

  // A placer for an idle cluster. With over_quota, a job of priority 0 or more may also be placed
  // with priority -1, and may be larger than its tenant's cells. kInvalidArgument: as
  // hived_jobs::create, or a fault of the configuration.
  [[nodiscard]] static absl::StatusOr<hived_placer> create(const hived_config& config,
                                                           bool over_quota = false) {
    APIARY_ASSIGN_OR_RETURN(hived scheduler, hived::create(config));
    APIARY_ASSIGN_OR_RETURN(hived_jobs jobs, hived_jobs::create(scheduler, over_quota));
    return hived_placer(std::move(scheduler), std::move(jobs));
  }

  // See Placer. Requires: check() was OK.
  [[nodiscard]] kind kind_of(const job_request& r) const {
    return {r.tenant, !jobs_.known_to_fit_cells(r), r.gpus, -r.priority};
  }
  // Errors as hived_jobs::fits_cells.
  [[nodiscard]] absl::Status check(const job_request& r) { return jobs_.fits_cells(r).status(); }
  // See Placer.
  [[nodiscard]] absl::StatusOr<std::optional<job_placement>> propose(const job_request& r) {
    APIARY_ASSIGN_OR_RETURN(const placer_answer<job_placement> answer, propose_preempting(r));
    if (answer.result != plan_result::bind) return std::nullopt;
    return answer.where;
  }
  // See PreemptingPlacer.
  [[nodiscard]] absl::StatusOr<placer_answer<job_placement>> propose_preempting(
      const job_request& r) {
    APIARY_ASSIGN_OR_RETURN(gang_plan plan, scheduler_.propose_unexplained(jobs_.gang_of(r)));
    placer_answer<job_placement> answer{plan.result, {}, {}};
    if (plan.result == plan_result::wait) return answer;
    answer.victims = plan.victims;
    if (plan.result == plan_result::bind) answer.where = hived_jobs::placement_of(plan.tasks);
    last_ = {r.job, answer.where, std::move(plan)};
    return answer;
  }
  // After propose_preempting named victims for the job: reserves its GPUs while they end. Then
  // propose() finds these GPUs; finish() gives them up. kAborted: the state has changed since.
  [[nodiscard]] absl::Status reserve(job_id job) {
    if (last_.job != job) return absl::AbortedError(detail::name_of(job) + " was not proposed");
    return scheduler_.commit(last_.plan);
  }
  // kAborted: GPUs are not idle, or not healthy. Requires: a placement proposed for such a job.
  [[nodiscard]] absl::Status commit(const job_request& r, const job_placement& where) {
    if (last_.job == r.job && last_.where == where && !where.empty()) {
      const absl::Status done = scheduler_.commit(last_.plan);
      if (done.ok()) take(where);
      started_ = started_ || done.ok();
      if (!absl::IsAborted(done)) return done;
    }
    if (std::any_of(where.begin(), where.end(),
                    [&](const placement& p) { return nodes_[p.node.value].bad; }))
      return absl::AbortedError(detail::name_of(r.job) + ": its GPUs are not usable");
    const gang_request gang = jobs_.gang_of(r);
    past_run as = take_run(r.job, where);
    if (as.tasks.empty()) {
      APIARY_ASSIGN_OR_RETURN(as.tasks, tasks_of(gang, where));
    }
    const absl::Status done = scheduler_.recover(gang, as.tasks, as.whole_cells).status();
    if (absl::IsFailedPrecondition(done)) return absl::AbortedError(done.message());
    if (done.ok()) take(where);
    return done;
  }
  // See Placer.
  [[nodiscard]] absl::Status finish(job_id job) {
    const gang_record* const gang = scheduler_.find(job);
    if (gang == nullptr) return absl::NotFoundError(detail::missing(job));
    if (gang->state == gang_state::preempting) return scheduler_.cancel(job);
    past_run ran{job, scheduler_.tasks(*gang), hived_queries::whole_cell_levels(scheduler_, *gang)};
    APIARY_RETURN_IF_ERROR(scheduler_.finish(job));
    for (const hived_placement& t : ran.tasks)
      change_used(t.node, 0 - static_cast<std::uint32_t>(std::popcount(t.leaves)));
    if (!ran.whole_cells.empty()) remember(std::move(ran));
    return absl::OkStatus();
  }
  // See Placer.
  [[nodiscard]] absl::Status mark_bad(node_id n) { return mark(n, true); }
  // See Placer.
  [[nodiscard]] absl::Status mark_healthy(node_id n) { return mark(n, false); }
  // See Placer.
  [[nodiscard]] std::vector<job_id> jobs_on(node_id n) const {
    std::vector<job_id> jobs;
    if (n.value >= nodes_.size()) return jobs;
    const detail::physical_chain& chain =
        scheduler_.cells().chain(scheduler_.layout().chain_of(n).value);
    for (const cell_id leaf : chain.tree().descendants(scheduler_.layout().node_cell(n), 0)) {
      const gang_slot user = chain.holders(leaf).user;
      if (user.valid()) jobs.push_back(scheduler_.gangs()[user].request.job);
    }
    detail::sort_unique(jobs);
    return jobs;
  }
  // See Placer.
  [[nodiscard]] std::uint32_t idle_gpus() const noexcept { return idle_; }
  // See Placer.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return jobs_.total_gpus(); }
  // Whether all nodes are healthy.
  [[nodiscard]] bool healthy() const noexcept { return num_bad_ == 0; }
  // Whether the job would fit with priority -1 on the healthy nodes if no other job ran. O(nodes).
  [[nodiscard]] bool fits_healthy(const job_request& r) const {
    std::vector<bool> bad;
    for (const node_use& n : nodes_) bad.push_back(n.bad);
    return jobs_.fits_without(r, bad);
  }
  // How it makes gangs of jobs.
  [[nodiscard]] const hived_jobs& jobs() const noexcept { return jobs_; }
  // The scheduler inside.
  [[nodiscard]] const hived& scheduler() const noexcept { return scheduler_; }

 private:
  struct node_use {
    std::uint32_t used = 0;  // GPUs
    bool bad = false;
  };
  struct proposal {
    job_id job{};
    job_placement where{};
    gang_plan plan{};
  };

  // How a guaranteed job ran that has stopped.
  struct past_run {
    job_id job{};
    std::vector<hived_placement> tasks{};
    std::vector<level_t> whole_cells{};  // see hived::recover
  };

  hived_placer(hived scheduler, hived_jobs jobs)
      : scheduler_(std::move(scheduler)), jobs_(std::move(jobs)), idle_(jobs_.total_gpus()) {
    nodes_.resize(scheduler_.layout().num_nodes());
  }

  // The tasks of the gang, in order, on these GPUs. kAborted: they do not match.
  [[nodiscard]] absl::StatusOr<std::vector<hived_placement>> tasks_of(
      const gang_request& gang, const job_placement& where) const {
    std::vector<hived_placement> tasks;
    job_placement left = where;
    for (const task_group& group : gang.groups) {
      for (std::uint32_t task = 0; task < group.tasks; ++task) {
        const auto found = std::find_if(left.begin(), left.end(), [&](const placement& p) {
          return p.num_gpus() >= group.gpus;
        });
        if (found == left.end())
          return absl::AbortedError(detail::name_of(gang.job) + ": its GPUs are not usable");
        std::uint32_t mask = 0;
        for (std::uint32_t i = 0; i < group.gpus; ++i) {
          mask |= found->gpu_mask & (~found->gpu_mask + 1);  // the lowest one
          found->gpu_mask &= found->gpu_mask - 1;
        }
        tasks.push_back({found->node, mask});
      }
    }
    return tasks;
  }
  // The last run of the job there, which is forgotten; without tasks if none is known.
  [[nodiscard]] past_run take_run(job_id job, const job_placement& where) {
    for (std::size_t i = runs_.size(); i-- > 0;) {
      if (runs_[i].job != job || hived_jobs::placement_of(runs_[i].tasks) != where) continue;
      past_run ran = std::move(runs_[i]);
      runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(i));
      if (i < old_runs_) --old_runs_;
      return ran;
    }
    return {};
  }
  void remember(past_run ran) {
    if (std::exchange(started_, false)) {
      runs_.erase(runs_.begin(), runs_.begin() + static_cast<std::ptrdiff_t>(old_runs_));
      old_runs_ = runs_.size();
    }
    runs_.push_back(std::move(ran));
  }
  void take(const job_placement& where) {
    for (const placement& p : where) change_used(p.node, p.num_gpus());
  }
  void change_used(node_id n, std::uint32_t more) {
    nodes_[n.value].used += more;
    if (!nodes_[n.value].bad) idle_ -= more;
  }
  [[nodiscard]] absl::Status mark(node_id n, bool bad) {
    APIARY_RETURN_IF_ERROR(bad ? scheduler_.mark_bad(n) : scheduler_.mark_healthy(n));
    node_use& node = nodes_[n.value];
    if (std::exchange(node.bad, bad) == bad) return absl::OkStatus();
    const std::uint32_t free = jobs_.gpus(n) - node.used;
    idle_ = bad ? idle_ - free : idle_ + free;
    num_bad_ = bad ? num_bad_ + 1 : num_bad_ - 1;
    return absl::OkStatus();
  }

  hived scheduler_;
  hived_jobs jobs_;
  std::vector<node_use> nodes_;
  std::uint32_t idle_ = 0;      // GPUs on healthy nodes
  std::uint32_t num_bad_ = 0;   // nodes
  proposal last_{};             // the last placement that was proposed
  std::vector<past_run> runs_;  // the last ones last
  std::size_t old_runs_ = 0;    // of these, before the last start of a job that was proposed
  bool started_ = false;        // such a job has started since the last of runs_
};

static_assert(JobPlacer<hived_placer> && PreemptingPlacer<hived_placer>);

APIARY_NAMESPACE_END
