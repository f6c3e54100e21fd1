// apiary/hived/hived_placer.h - places the gangs or the jobs of a queue on a HiveD cluster.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/core/status.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/gang_plan.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/hived_jobs.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/queries.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>
#include <apiary/model/placer.h>
#include <apiary/model/plan.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Which gangs migrate on a HiveD cluster.
struct gang_migration {
  // What a migration must lower.
  enum class metric : std::uint8_t {
    broken,  // broken_leaves(): idle GPUs form whole cells
    spread,  // cells that the gang uses, summed over the levels from nodes up: tasks are close
  };
  metric measure = metric::broken;  // what a migration must lower
  bool guaranteed = false;  // whether guaranteed gangs migrate too, inside their tenant's cells

  // Whether this gang, which runs, may migrate.
  [[nodiscard]] bool may_migrate(const gang_record& gang) const noexcept {
    return !gang.downgraded && (guaranteed || !gang.guaranteed());
  }
  // See MeasuredPlacer. `without`: the cluster without the gang. Tasks: of hived_placement or of
  // placement. Cost: O(leaves of the gang * levels * log).
  template <class Tasks>
  [[nodiscard]] std::int64_t gain(const hived& without, const Tasks& from, const Tasks& to) const {
    const hived_layout& layout = without.layout();
    // The leaves that the gang has in each cell, at `from` and at `to`.
    std::map<std::tuple<std::uint32_t, level_t, cell_id>, std::array<std::uint32_t, 2>> cells;
    std::int64_t size = 0;
    for (const std::size_t side : {0U, 1U}) {
      for (const auto& task : side == 0 ? from : to) {
        const std::uint32_t chain = layout.chain_of(task.node).value;
        const uniform_tree& tree = layout.chains[chain].tree;
        const id_range<cell_id> leaves = tree.descendants(layout.node_cell(task.node), 0);
        for (std::uint64_t bits = mask_of(task); bits != 0; bits &= bits - 1) {
          cell_id c = leaves[static_cast<std::uint32_t>(std::countr_zero(bits))];
          for (level_t l = 0; c.valid(); c = tree.parent(c, l++)) ++cells[{chain, l, c}][side];
          if (side == 0) ++size;
        }
      }
    }
    std::int64_t fall = 0;
    for (const auto& [cell, used] : cells) {
      const auto& [chain, level, c] = cell;
      const chain_layout& in = layout.chains[chain];
      if (measure == metric::spread) {
        if (level >= in.node_level) fall += (used[0] > 0 ? 1 : 0) - (used[1] > 0 ? 1 : 0);
      } else if (level > 0) {
        const std::uint32_t unused = without.cells().chain(chain).unused(c, level);
        const std::uint32_t whole = in.tree.leaves_per_cell(level);
        if (unused - used[0] < whole) fall += unused - used[0];
        if (unused - used[1] < whole) fall -= unused - used[1];
      }
    }
    return fall <= 0 ? 0 : (fall * 1000 - 1) / size + 1;
  }

 private:
  [[nodiscard]] static std::uint64_t mask_of(const hived_placement& p) noexcept { return p.leaves; }
  [[nodiscard]] static std::uint64_t mask_of(const placement& p) noexcept { return p.gpu_mask; }
};

// A placer of gangs on a HiveD cluster, with all their constraints. A guaranteed gang (of priority
// 0 or more) starts on its tenant's cells, and stops the opportunistic gangs in the way, and gangs
// of lower priority of its tenant as hived chooses. If such a gang is lazy, it keeps running as an
// opportunistic one.
// Model: "HiveD" (OSDI 2020), §3.
// Cost:  propose, commit, finish as those of hived; a commit to GPUs that were not proposed just
//        before as hived::recover; check as a propose; jobs_on O(leaves of a host); gain as that of
//        gang_migration.
class hived_gang_placer {
 public:
  using request = gang_request;  // a gang
  using placement_type =
      std::vector<hived_placement>;         // of each task, in the order of the task groups
  static constexpr bool guarantees = true;  // see GuaranteeingPlacer
  // See Placer. Each gang has its own.
  struct kind {
    std::uint32_t gpus = 0;  // not known: 0
    job_id job{};
    friend auto operator<=>(const kind&, const kind&) noexcept = default;
  };
  // Requires: nothing runs on the cluster, and all nodes are healthy.
  explicit hived_gang_placer(hived scheduler, const gang_migration& migration = {})
      : scheduler_(std::move(scheduler)), migration_(migration) {
    const hived_layout& layout = scheduler_.layout();
    bad_.resize(layout.num_nodes());
    for (const chain_layout& chain : layout.chains) total_ += chain.tree.num_leaves();
    for (std::uint32_t n = 0; n < layout.num_nodes(); ++n) idle_ += unused(node_id(n));
  }
  // The scheduler inside.
  [[nodiscard]] const hived& scheduler() const noexcept { return scheduler_; }
  // The nodes that are bad.
  [[nodiscard]] const std::vector<bool>& bad_nodes() const noexcept { return bad_; }

  // See Placer.
  [[nodiscard]] static kind kind_of(const gang_request& r) noexcept { return {0, r.job}; }
  // kInvalidArgument: the gang names suggested nodes. Other errors are those of hived::propose.
  [[nodiscard]] absl::Status check(const gang_request& r) {
    if (r.suggested == nullptr) return scheduler_.propose_unexplained(r).status();
    return absl::InvalidArgumentError(
        detail::name_of(r.job) + ": suggested nodes are not supported for a gang that may wait");
  }
  // Asks hived for a plan, which is last_plan() from now on. An error: last_plan() is as before.
  [[nodiscard]] absl::Status plan(const gang_request& r) {
    APIARY_ASSIGN_OR_RETURN(last_, scheduler_.propose_unexplained(r));
    proposed_ = r.job;
    return absl::OkStatus();
  }
  // The plan for the gang that was proposed last.
  [[nodiscard]] const gang_plan& last_plan() const noexcept { return last_; }
  // See Placer.
  [[nodiscard]] absl::StatusOr<std::optional<placement_type>> propose(const gang_request& r) {
    APIARY_RETURN_IF_ERROR(plan(r));
    if (last_.result != plan_result::bind) return std::nullopt;
    return last_.tasks;
  }
  // See PreemptingPlacer.
  [[nodiscard]] absl::StatusOr<placer_answer<placement_type>> propose_preempting(
      const gang_request& r) {
    APIARY_RETURN_IF_ERROR(plan(r));
    return placer_answer<placement_type>{last_.result, last_.tasks, last_.victims};
  }
  // See PreemptingPlacer; finish() gives the GPUs up. kAborted: the state has changed since.
  [[nodiscard]] absl::Status reserve(job_id job) {
    if (proposed_ != job) return absl::AbortedError(detail::name_of(job) + " was not proposed");
    return scheduler_.commit(last_);
  }
  // kAborted: a leaf is not idle.
  [[nodiscard]] absl::Status commit(const gang_request& r, const placement_type& where) {
    const bool was_proposed = proposed_ == r.job && last_.result == plan_result::bind;
    if (was_proposed && last_.tasks == where) {
      const absl::Status done = commit_proposed();
      if (!absl::IsAborted(done)) return done;
    }
    return put_back(r, where, {});
  }
  // The gang that was proposed last runs as its plan to bind says. kAborted: the state has changed.
  [[nodiscard]] absl::Status commit_proposed() {
    const absl::Status done = scheduler_.commit(last_);
    if (done.ok()) idle_ -= healthy(last_.tasks);
    return done;
  }
  // The gang runs where it ran before; whole_cells: see hived::recover. kAborted: as commit().
  [[nodiscard]] absl::Status put_back(const gang_request& r, const placement_type& where,
                                      std::span<const level_t> whole_cells) {
    const absl::Status done = scheduler_.recover(r, where, whole_cells).status();
    if (absl::IsFailedPrecondition(done)) return absl::AbortedError(done.message());
    if (done.ok()) idle_ -= healthy(where);
    return done;
  }
  // See Placer.
  [[nodiscard]] absl::Status finish(job_id job) {
    const gang_record* const gang = scheduler_.find(job);
    if (gang == nullptr) return absl::NotFoundError(detail::missing(job));
    if (gang->state == gang_state::preempting) return scheduler_.cancel(job);
    idle_ += healthy(scheduler_.tasks(*gang));
    return scheduler_.finish(job);
  }
  // See Placer. All nodes of a host are bad, or none is.
  [[nodiscard]] absl::Status mark_bad(node_id n) { return mark(n, true); }
  // See Placer.
  [[nodiscard]] absl::Status mark_healthy(node_id n) { return mark(n, false); }
  // See Placer. Those on all nodes of its host.
  [[nodiscard]] std::vector<job_id> jobs_on(node_id n) const {
    std::vector<job_id> jobs;
    if (n.value >= bad_.size()) return jobs;
    const hived_layout& layout = scheduler_.layout();
    node_id of_host = n;
    do {
      const detail::physical_chain& chain =
          scheduler_.cells().chain(layout.chain_of(of_host).value);
      for (const cell_id leaf : chain.tree().descendants(layout.node_cell(of_host), 0)) {
        const gang_slot user = chain.holders(leaf).user;
        if (user.valid()) jobs.push_back(scheduler_.gangs()[user].request.job);
      }
      of_host = layout.next_of_host(of_host);
    } while (of_host != n);
    detail::sort_unique(jobs);
    return jobs;
  }
  // Idle leaves of healthy nodes.
  [[nodiscard]] std::uint32_t idle_gpus() const noexcept { return idle_; }
  // All leaves, including those of bad nodes.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return total_; }

  // See MeasuredPlacer. Requires: `to` was proposed just before. Tasks: of hived_placement or of
  // placement. No gang migrates if that downgrades another one.
  template <class Request, class Tasks>
  [[nodiscard]] std::int64_t gain(const Request& /*r*/, const Tasks& from, const Tasks& to) const {
    return last_.downgraded.empty() ? migration_.gain(scheduler_, from, to) : 0;
  }
  // See MeasuredPlacer.
  [[nodiscard]] bool may_migrate(job_id j) const {
    return migration_.may_migrate(*scheduler_.find(j));
  }

 private:
  // The leaves of the node that no gang uses.
  [[nodiscard]] std::uint32_t unused(node_id n) const {
    const hived_layout& layout = scheduler_.layout();
    const chain_id chain = layout.chain_of(n);
    return scheduler_.cells()
        .chain(chain.value)
        .unused(layout.node_cell(n), layout.chain(chain).node_level);
  }
  // The leaves on nodes that are not bad.
  [[nodiscard]] std::uint32_t healthy(const placement_type& tasks) const {
    int sum = 0;
    for (const hived_placement& t : tasks) sum += bad_[t.node.value] ? 0 : std::popcount(t.leaves);
    return static_cast<std::uint32_t>(sum);
  }
  [[nodiscard]] absl::Status mark(node_id n, bool bad) {
    APIARY_RETURN_IF_ERROR(bad ? scheduler_.mark_bad(n) : scheduler_.mark_healthy(n));
    if (bad_[n.value] == bad) return absl::OkStatus();
    node_id of_host = n;
    do {
      bad_[of_host.value] = bad;
      idle_ = bad ? idle_ - unused(of_host) : idle_ + unused(of_host);
      of_host = scheduler_.layout().next_of_host(of_host);
    } while (of_host != n);
    return absl::OkStatus();
  }

  hived scheduler_;
  gang_migration migration_;
  std::vector<bool> bad_;    // nodes
  std::uint32_t total_ = 0;  // leaves
  std::uint32_t idle_ = 0;   // leaves of healthy nodes
  job_id proposed_{};        // the last gang that was proposed
  gang_plan last_{};         // its plan
};

// A hived_gang_placer of jobs, which hived_jobs makes gangs: a job of priority 0 to 1000 runs on
// its tenant's cells and suspends jobs of lower priority of its tenant, and opportunistic jobs of
// all tenants; a job of priority -1 runs on idle GPUs. With first_fit, a job_queue over it gives
// HiveD's guarantees: with another reservation a guaranteed job may wait behind an opportunistic
// one that is before it in the order. hived_queue has more rules: EASY on the cells of each tenant,
// and jobs that run over their quota. A job that stops and comes back to where it ran, as in
// suspending_queue, gets the cells that it had, if they are free. The placer remembers them until
// others have started and stopped twice.
// Cost:    as hived_gang_placer; check as hived_jobs::fits_cells.
// Example: examples/own_queue.cpp
class hived_placer {
 public:
  using request = job_request;              // see Placer
  using placement_type = job_placement;     // see Placer
  static constexpr bool guarantees = true;  // see GuaranteeingPlacer
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
                                                           bool over_quota = false,
                                                           const gang_migration& migration = {}) {
    APIARY_ASSIGN_OR_RETURN(hived scheduler, hived::create(config));
    APIARY_ASSIGN_OR_RETURN(hived_jobs jobs, hived_jobs::create(scheduler, over_quota));
    return hived_placer(hived_gang_placer(std::move(scheduler), migration), std::move(jobs));
  }

  // See Placer. Requires: check() was OK.
  [[nodiscard]] kind kind_of(const job_request& r) const {
    const bool only_idle = r.priority < 0 || !jobs_.known_to_fit_cells(r);
    return {r.tenant, only_idle, r.gpus, -r.priority};
  }
  // Errors as hived_jobs::fits_cells.
  [[nodiscard]] absl::Status check(const job_request& r) { return jobs_.fits_cells(r).status(); }
  // See Placer.
  [[nodiscard]] absl::StatusOr<std::optional<job_placement>> propose(const job_request& r) {
    APIARY_ASSIGN_OR_RETURN(placer_answer<job_placement> answer, propose_preempting(r));
    if (answer.result != plan_result::bind) return std::nullopt;
    return std::move(answer.where);
  }
  // See PreemptingPlacer. A job that hived refuses with kFailedPrecondition waits: its tenant has
  // no cells.
  [[nodiscard]] absl::StatusOr<placer_answer<job_placement>> propose_preempting(
      const job_request& r) {
    proposed_ = {};
    const absl::Status planned = gangs_.plan(jobs_.gang_of(r));
    if (absl::IsFailedPrecondition(planned)) return placer_answer<job_placement>();
    APIARY_RETURN_IF_ERROR(planned);
    const gang_plan& plan = gangs_.last_plan();
    if (plan.result == plan_result::bind) proposed_ = {r.job, hived_jobs::placement_of(plan.tasks)};
    return placer_answer<job_placement>{plan.result, proposed_.where, plan.victims};
  }
  // See PreemptingPlacer.
  [[nodiscard]] absl::Status reserve(job_id job) { return gangs_.reserve(job); }
  // kAborted: GPUs are not idle, or not healthy. Requires: a placement proposed for such a job.
  [[nodiscard]] absl::Status commit(const job_request& r, const job_placement& where) {
    absl::Status done = absl::AbortedError("");
    if (proposed_.job == r.job && proposed_.where == where) {
      done = gangs_.commit_proposed();
      started_ = started_ || done.ok();
    }
    if (absl::IsAborted(done)) done = put_back(r, where);
    if (done.ok() && r.priority >= 0) by_right_[r.tenant.value] += r.gpus;
    return done;
  }
  // See Placer.
  [[nodiscard]] absl::Status finish(job_id job) {
    const gang_record* const gang = scheduler().find(job);
    if (gang != nullptr && gang->state == gang_state::allocated && gang->request.priority >= 0) {
      by_right_[gang->request.tenant.value] -= static_cast<std::uint32_t>(gang->leaves.size());
      past_run ran{job, scheduler().tasks(*gang),
                   hived_queries::whole_cell_levels(scheduler(), *gang)};
      if (!ran.whole_cells.empty()) remember(std::move(ran));
    }
    return gangs_.finish(job);
  }
  // See Placer.
  [[nodiscard]] absl::Status mark_bad(node_id n) { return mark(n, true); }
  // See Placer.
  [[nodiscard]] absl::Status mark_healthy(node_id n) { return mark(n, false); }
  // See Placer.
  [[nodiscard]] std::vector<job_id> jobs_on(node_id n) const { return gangs_.jobs_on(n); }
  // See Placer.
  [[nodiscard]] std::uint32_t idle_gpus() const noexcept { return gangs_.idle_gpus(); }
  // See Placer.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return gangs_.total_gpus(); }
  // GPUs of the tenant's cells that no guaranteed job has. Requires: there is such a tenant.
  [[nodiscard]] std::uint32_t entitled_gpus(tenant_id t) const {
    return jobs_.owned(t) - by_right_[t.value];
  }
  // See MeasuredPlacer.
  [[nodiscard]] std::int64_t gain(const job_request& r, const job_placement& from,
                                  const job_placement& to) const {
    return gangs_.gain(r, from, to);
  }
  // See MeasuredPlacer.
  [[nodiscard]] bool may_migrate(job_id j) const { return gangs_.may_migrate(j); }
  // Whether all nodes are healthy.
  [[nodiscard]] bool healthy() const noexcept { return num_bad_ == 0; }
  // Whether the job would fit with priority -1 on the healthy nodes if no other job ran. O(nodes).
  [[nodiscard]] bool fits_healthy(const job_request& r) const {
    return jobs_.fits_without(r, gangs_.bad_nodes());
  }
  // How it makes gangs of jobs.
  [[nodiscard]] const hived_jobs& jobs() const noexcept { return jobs_; }
  // The scheduler inside.
  [[nodiscard]] const hived& scheduler() const noexcept { return gangs_.scheduler(); }

 private:
  struct proposal {
    job_id job{};
    job_placement where{};
  };
  hived_placer(hived_gang_placer gangs, hived_jobs jobs)
      : gangs_(std::move(gangs)), jobs_(std::move(jobs)), by_right_(jobs_.num_tenants()) {}

  // How a guaranteed job ran that has stopped.
  struct past_run {
    job_id job{};
    std::vector<hived_placement> tasks{};
    std::vector<level_t> whole_cells{};  // see hived::recover
  };
  [[nodiscard]] static absl::Status unusable(job_id job) {
    return absl::AbortedError(detail::name_of(job) + ": its GPUs are not usable");
  }
  // The job runs where it ran before.
  [[nodiscard]] absl::Status put_back(const job_request& r, const job_placement& where) {
    for (const placement& p : where) {
      if (gangs_.bad_nodes()[p.node.value]) return unusable(r.job);
    }
    const gang_request gang = jobs_.gang_of(r);
    const std::size_t run = find_run(r.job, where);
    if (run == runs_.size()) {
      APIARY_ASSIGN_OR_RETURN(const auto tasks, tasks_of(gang, where));
      return gangs_.put_back(gang, tasks, {});
    }
    const absl::Status done = gangs_.put_back(gang, runs_[run].tasks, runs_[run].whole_cells);
    if (done.ok()) {
      runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(run));
      if (run < old_runs_) --old_runs_;
    }
    return done;
  }
  // The tasks of the gang, in order, on these GPUs. kAborted: they do not match.
  [[nodiscard]] static absl::StatusOr<std::vector<hived_placement>> tasks_of(
      const gang_request& gang, const job_placement& where) {
    std::vector<hived_placement> tasks;
    job_placement left = where;
    for (const task_group& group : gang.groups) {
      for (std::uint32_t task = 0; task < group.tasks; ++task) {
        const auto found = std::find_if(left.begin(), left.end(), [&](const placement& p) {
          return p.num_gpus() >= group.gpus;
        });
        if (found == left.end()) return unusable(gang.job);
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
  // The last run of the job there; runs_.size() if none is known.
  [[nodiscard]] std::size_t find_run(job_id job, const job_placement& where) const {
    for (std::size_t i = runs_.size(); i-- > 0;)
      if (runs_[i].job == job && hived_jobs::placement_of(runs_[i].tasks) == where) return i;
    return runs_.size();
  }
  void remember(past_run ran) {
    // No more can have run at the same time.
    const bool enough = runs_.size() - old_runs_ >= total_gpus();
    if (std::exchange(started_, false) || enough) {
      runs_.erase(runs_.begin(), runs_.begin() + static_cast<std::ptrdiff_t>(old_runs_));
      old_runs_ = runs_.size();
    }
    runs_.push_back(std::move(ran));
  }
  [[nodiscard]] absl::Status mark(node_id n, bool bad) {
    const bool was = n.value < gangs_.bad_nodes().size() && gangs_.bad_nodes()[n.value];
    APIARY_RETURN_IF_ERROR(bad ? gangs_.mark_bad(n) : gangs_.mark_healthy(n));
    if (was != bad) num_bad_ += bad ? 1U : ~0U;
    return absl::OkStatus();
  }

  hived_gang_placer gangs_;
  hived_jobs jobs_;
  std::vector<std::uint32_t> by_right_;  // GPUs of guaranteed jobs, by tenant
  std::uint32_t num_bad_ = 0;            // nodes
  proposal proposed_{};                  // the last placement that was proposed
  std::vector<past_run> runs_;           // the last ones last
  std::size_t old_runs_ = 0;             // of these, before the last start of a proposed job
  bool started_ = false;                 // such a job has started since the last of runs_
};

static_assert(GuaranteeingPlacer<hived_gang_placer> && MeasuredPlacer<hived_gang_placer>);
static_assert(JobPlacer<hived_placer> && GuaranteeingPlacer<hived_placer> &&
              MeasuredPlacer<hived_placer>);

APIARY_NAMESPACE_END
