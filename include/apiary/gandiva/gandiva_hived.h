// apiary/gandiva/gandiva_hived.h - time slices and migration for gangs and jobs on a HiveD cluster.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gandiva/backend.h>
#include <apiary/gandiva/time_sharing.h>
#include <apiary/gandiva/time_sharing_queue.h>
#include <apiary/hived/config.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_jobs.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/plan.h>
#include <apiary/hived/queries.h>
#include <apiary/hived/request.h>
#include <apiary/model/job.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/topology/locality.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Which gangs hived_backend migrates.
struct gang_migration {
  // What a migration must lower.
  enum class metric : std::uint8_t {
    broken,  // broken_leaves(): idle GPUs form whole cells
    spread,  // cells that the gang uses, summed over the levels from nodes up: tasks are close
  };
  metric measure = metric::broken;  // what a migration must lower
  bool guaranteed = false;   // whether guaranteed gangs migrate too, inside their tenant's cells
  std::uint32_t trials = 4;  // gangs that a tick tries to migrate, round robin
};

// The backend of time sharing for gangs on a HiveD cluster. Opportunistic gangs run in time slices
// on the GPUs that guaranteed gangs leave idle. A guaranteed gang starts on its tenant's cells and
// stops the opportunistic gangs in the way, and gangs of lower priority of its tenant as hived
// chooses. If such a gang is lazy, it keeps running as opportunistic, outside the time slices.
//
// To try a migration, the backend ends the gang and proposes it again. The gang migrates if that
// preempts no gang and lowers the measure by more than
// time_sharing_options::migration_limits::cost. The backend tries a guaranteed gang on a copy of
// the scheduler, because to undo the trial could change the gang's virtual cell.
// Model: "Gandiva" (OSDI 2018), §3.2; "HiveD" (OSDI 2020), §3.
// Cost:  start, stop, restart: one propose, commit, finish or recover of hived; with victims, two
//        of each. A trial: also O(leaves of the gang * levels), and a copy for a guaranteed gang.
class hived_backend {
 public:
  using request = gang_request;  // a gang
  using placement_type =
      std::vector<hived_placement>;  // of each task, in the order of the task groups
  // Requires: nothing runs on the cluster.
  explicit hived_backend(hived scheduler, const gang_migration& migration = {})
      : scheduler_(std::move(scheduler)), migration_(migration) {}
  // The scheduler that places the gangs.
  [[nodiscard]] const hived& scheduler() const noexcept { return scheduler_; }
  // The priority of the gang; below 0: opportunistic.
  [[nodiscard]] std::int32_t priority(const gang_request& r) const noexcept { return r.priority; }
  // See TimeSharingBackend.
  [[nodiscard]] bool may_start(const gang_request& r) {
    if (r.suggested != nullptr) return false;
    const absl::StatusOr<gang_plan> plan = scheduler_.propose_unexplained(r);
    return plan.ok() && plan->result != plan_result::wait;
  }
  // kInvalidArgument: the gang names suggested nodes. Other errors are those of hived::propose.
  absl::StatusOr<bool> start(const gang_request& r, std::vector<job_id>& stopped) {
    if (r.suggested != nullptr) {
      return absl::InvalidArgumentError(
          detail::name_of(r.job) + ": suggested nodes are not supported for a gang that may wait");
    }
    APIARY_ASSIGN_OR_RETURN(const gang_plan plan, scheduler_.propose_unexplained(r));
    if (plan.result == plan_result::wait) return false;
    APIARY_VERIFY(scheduler_.commit(plan).ok());
    if (plan.result == plan_result::bind) return true;
    for (const job_id victim : plan.victims) {
      stop(victim);
      stopped.push_back(victim);
    }
    const absl::StatusOr<gang_plan> bound = scheduler_.propose_unexplained(r);
    APIARY_VERIFY(bound.ok() && bound->result == plan_result::bind &&
                  scheduler_.commit(*bound).ok());
    return true;
  }
  // See TimeSharingBackend.
  placement_type stop(job_id job) {
    placement_type was = placement_of(job);
    APIARY_VERIFY(scheduler_.finish(job).ok());
    return was;
  }
  // Requires: an opportunistic gang.
  bool restart(const gang_request& r, const placement_type& where) {
    APIARY_ASSERT(r.priority < 0);
    return scheduler_.recover(r, where).ok();
  }
  // See TimeSharingBackend.
  [[nodiscard]] placement_type placement_of(job_id job) const {
    const gang_record* gang = scheduler_.find(job);
    APIARY_VERIFY(gang != nullptr);
    return scheduler_.tasks(*gang);
  }
  // See TimeSharingBackend.
  void improve(std::span<const job_id> movable,
               const time_sharing_options::migration_limits& limits, std::vector<job_id>& moved) {
    detail::migrate_round_robin(movable, migration_.trials, limits.jobs, next_, moved,
                                [&](job_id job) { return try_migration(job, limits.cost); });
  }
  // See TimeSharingBackend.
  absl::Status mark(node_id n, bool healthy) {
    return healthy ? scheduler_.mark_healthy(n) : scheduler_.mark_bad(n);
  }
  // Whether no gang runs.
  [[nodiscard]] bool empty() const noexcept { return scheduler_.gangs().size() == 0; }

 private:
  bool try_migration(job_id job, std::uint32_t cost) {
    const gang_record& gang = *scheduler_.find(job);
    if (gang.downgraded || (gang.guaranteed() && !migration_.guaranteed)) return false;
    const gang_request r = gang.request;
    const placement_type from = placement_of(job);
    if (r.priority >= 0) {
      hived trial = scheduler_;
      if (!leave(trial, r, from, cost)) return false;
    }
    if (const std::optional<gang_plan> plan = leave(scheduler_, r, from, cost)) {
      APIARY_VERIFY(scheduler_.commit(*plan).ok());
      return true;
    }
    APIARY_VERIFY(restart(r, from));
    return false;
  }
  // Ends the gang. Returns where it should run instead, if that pays.
  [[nodiscard]] std::optional<gang_plan> leave(hived& from_here, const gang_request& r,
                                               const placement_type& from,
                                               std::uint32_t cost) const {
    APIARY_VERIFY(from_here.finish(r.job).ok());
    absl::StatusOr<gang_plan> plan = from_here.propose_unexplained(r);
    APIARY_VERIFY(plan.ok());
    if (plan->result != plan_result::bind || !plan->downgraded.empty()) return std::nullopt;
    const std::vector<chain_leaf> old_leaves = leaves_of(from);
    const std::vector<chain_leaf> new_leaves = leaves_of(plan->tasks);
    const std::int64_t gain = migration_.measure == gang_migration::metric::broken
                                  ? broken_gain(from_here, old_leaves, new_leaves)
                                  : spread(old_leaves) - spread(new_leaves);
    const std::int64_t price = std::int64_t{cost} * static_cast<std::int64_t>(old_leaves.size());
    if (gain * 1000 <= price) return std::nullopt;
    return *std::move(plan);
  }
  // Ascending.
  [[nodiscard]] std::vector<chain_leaf> leaves_of(std::span<const hived_placement> tasks) const {
    std::vector<chain_leaf> all;
    for (const hived_placement& task : tasks) {
      const chain_id chain = scheduler_.layout().chain_of(task.node);
      const uniform_tree& tree = scheduler_.layout().chain(chain).tree;
      const id_range<cell_id> here = tree.descendants(scheduler_.layout().node_cell(task.node), 0);
      for (std::uint64_t bits = task.leaves; bits != 0; bits &= bits - 1)
        all.push_back({chain.value, here[static_cast<std::uint32_t>(std::countr_zero(bits))]});
    }
    std::sort(all.begin(), all.end());
    return all;
  }
  [[nodiscard]] std::int64_t spread(std::span<const chain_leaf> gang) const {
    const chain_layout& in = scheduler_.layout().chain(chain_id(gang.front().chain));
    std::vector<cell_id> cells;
    for (const chain_leaf& l : gang) cells.push_back(l.leaf);
    std::int64_t sum = 0;
    for (level_t l = in.node_level; l < in.tree.num_levels(); ++l)
      sum += spanned_cells(in.tree, cells, l);
    return sum;
  }
  // By how much broken_leaves() falls if the gang migrates. `without`: the cluster without the
  // gang.
  [[nodiscard]] static std::int64_t broken_gain(const hived& without,
                                                std::span<const chain_leaf> old_leaves,
                                                std::span<const chain_leaf> new_leaves) {
    struct cell_above {
      std::uint32_t chain = 0;
      level_t level = 0;
      cell_id cell{};
      bool is_new = false;
      auto operator<=>(const cell_above&) const noexcept = default;
    };
    std::vector<cell_above> above;
    for (const bool is_new : {false, true}) {
      for (const chain_leaf& l : is_new ? new_leaves : old_leaves) {
        const uniform_tree& tree = without.layout().chains[l.chain].tree;
        cell_id c = l.leaf;
        for (level_t level = 1; level < tree.num_levels(); ++level) {
          c = tree.parent(c, level - 1);
          above.push_back({l.chain, level, c, is_new});
        }
      }
    }
    std::sort(above.begin(), above.end());
    std::int64_t gain = 0;
    for (std::size_t i = 0; i < above.size();) {
      const cell_above& at = above[i];
      std::array<std::uint32_t, 2> taken{};  // of the old leaves, of the new ones
      for (; i < above.size() && above[i].cell == at.cell && above[i].chain == at.chain; ++i)
        ++taken[above[i].is_new ? 1 : 0];
      const std::uint32_t unused =
          hived_queries::unused_leaves(without, at.chain, at.cell, at.level);
      const std::uint32_t leaves = without.layout().chains[at.chain].tree.leaves_per_cell(at.level);
      if (unused - taken[0] < leaves) gain += unused - taken[0];
      if (unused - taken[1] < leaves) gain -= unused - taken[1];
    }
    return gain;
  }

  hived scheduler_;
  gang_migration migration_;
  job_id next_{0};  // the next gang to try
};

static_assert(TimeSharingBackend<hived_backend>);

// Gandiva for gangs on a HiveD cluster: a guaranteed gang starts as soon as hived would start it.
// It is not suspended for a time slice or for another tenant.
//
//   gandiva_gangs::create(hived_backend(hived::create(config).value()), {.quantum = 60'000})
//
// Example: examples/gandiva_gangs.cpp
using gandiva_gangs = time_sharing<hived_backend>;

// hived_backend for jobs of whole GPUs: each job is a gang, as hived_jobs makes it. A job of
// priority 0 or more is guaranteed; a job of priority -1 is opportunistic and runs in time slices.
class hived_job_backend : public hived_backend {
 public:
  using request = job_request;  // a job
  // kInvalidArgument: a fault of the configuration, or a node with more than 32 leaf cells.
  [[nodiscard]] static absl::StatusOr<hived_job_backend> create(
      const hived_config& config, const gang_migration& migration = {}) {
    APIARY_ASSIGN_OR_RETURN(hived scheduler, hived::create(config));
    APIARY_ASSIGN_OR_RETURN(hived_jobs jobs, hived_jobs::create(scheduler));
    return hived_job_backend(hived_backend(std::move(scheduler), migration), std::move(jobs));
  }
  // The priority of the job.
  [[nodiscard]] std::int32_t priority(const job_request& r) const noexcept { return r.priority; }
  // See TimeSharingBackend.
  [[nodiscard]] bool may_start(const job_request& r) {
    return hived_backend::may_start(jobs_.gang_of(r));
  }
  // Errors as hived_backend::start.
  absl::StatusOr<bool> start(const job_request& r, std::vector<job_id>& stopped) {
    return hived_backend::start(jobs_.gang_of(r), stopped);
  }
  // Requires: an opportunistic job.
  bool restart(const job_request& r, const placement_type& where) {
    return hived_backend::restart(jobs_.gang_of(r), where);
  }
  // Errors as hived_jobs::fits_cells.
  [[nodiscard]] absl::Status check(const job_request& r) { return jobs_.fits_cells(r).status(); }
  // See JobBackend.
  [[nodiscard]] job_placement job_placement_of(const placement_type& w) const {
    return hived_jobs::placement_of(w);
  }
  // GPUs of the tenant's cells.
  [[nodiscard]] std::uint32_t entitled_gpus(tenant_id t) const { return jobs_.owned(t); }
  // GPUs of a node.
  [[nodiscard]] std::uint32_t gpus(node_id n) const { return jobs_.gpus(n); }
  // GPUs of the cluster.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return jobs_.total_gpus(); }

 private:
  hived_job_backend(hived_backend gangs, hived_jobs jobs)
      : hived_backend(std::move(gangs)), jobs_(std::move(jobs)) {}
  hived_jobs jobs_;
};

// Gandiva for jobs of whole GPUs on a HiveD cluster. A guaranteed job (priority 0 to 1000) starts
// on its tenant's cells as soon as it fits there and suspends opportunistic jobs in its way. Until
// then it runs in time slices on idle GPUs, as opportunistic jobs (priority -1) do.
// Example: examples/programs/simulate.cpp
using gandiva_hived = time_sharing_queue<hived_job_backend>;

static_assert(JobBackend<hived_job_backend> && JobScheduler<gandiva_hived>);

APIARY_NAMESPACE_END
