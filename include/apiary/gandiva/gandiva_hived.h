// apiary/gandiva/gandiva_hived.h - time slices and migration for gangs and jobs on a HiveD cluster.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gandiva/time_sharing.h>
#include <apiary/hived/config.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_jobs.h>
#include <apiary/hived/hived_placer.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/plan.h>
#include <apiary/hived/queries.h>
#include <apiary/hived/request.h>
#include <apiary/model/job.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/model/placement.h>
#include <apiary/model/placer.h>
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
  bool guaranteed = false;   // whether guaranteed gangs migrate too, inside their tenant's cells
  std::uint32_t trials = 4;  // gangs that a decision tries to migrate, round robin

  // Whether this gang may migrate.
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
        const std::uint32_t unused = hived_queries::unused_leaves(without, chain, c, level);
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

// A placer of gangs on a HiveD cluster. Opportunistic gangs run in time slices on the GPUs that
// guaranteed gangs leave idle. A guaranteed gang starts on its tenant's cells and stops the
// opportunistic gangs in the way, and gangs of lower priority of its tenant as hived chooses. If
// such a gang is lazy, it keeps running as opportunistic, outside the time slices.
//
// A guaranteed gang is tried for a migration on a copy, because to undo the trial could change the
// gang's virtual cell. No gang migrates if that preempts or downgrades another one.
// Model: "Gandiva" (OSDI 2018), §3.2; "HiveD" (OSDI 2020), §3.
// Cost:  propose, commit, finish as those of hived; a commit to GPUs that were not proposed just
//        before as hived::recover; check as a propose; jobs_on O(tasks of all gangs log gangs);
//        gain O(leaves of the gang * levels).
class hived_gang_placer {
 public:
  using request = gang_request;  // a gang
  using placement_type =
      std::vector<hived_placement>;  // of each task, in the order of the task groups
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
  // The scheduler that places the gangs.
  [[nodiscard]] const hived& scheduler() const noexcept { return scheduler_; }
  // The priority of the gang; below 0: opportunistic.
  [[nodiscard]] std::int32_t priority(const gang_request& r) const noexcept { return r.priority; }

  // See Placer.
  [[nodiscard]] static kind kind_of(const gang_request& r) noexcept { return {0, r.job}; }
  // kInvalidArgument: the gang names suggested nodes. Other errors are those of hived::propose.
  [[nodiscard]] absl::Status check(const gang_request& r) {
    if (r.suggested == nullptr) return scheduler_.propose_unexplained(r).status();
    return absl::InvalidArgumentError(
        detail::name_of(r.job) + ": suggested nodes are not supported for a gang that may wait");
  }
  // See Placer.
  [[nodiscard]] absl::StatusOr<std::optional<placement_type>> propose(const gang_request& r) {
    APIARY_ASSIGN_OR_RETURN(last_, scheduler_.propose_unexplained(r));
    proposed_ = r.job;
    if (last_.result != plan_result::bind) return std::nullopt;
    return last_.tasks;
  }
  // See PreemptingPlacer.
  [[nodiscard]] absl::StatusOr<placer_answer<placement_type>> propose_preempting(
      const gang_request& r) {
    APIARY_RETURN_IF_ERROR(propose(r).status());
    return placer_answer<placement_type>{last_.result, last_.tasks, last_.victims};
  }
  // See GuaranteeingPlacer. kAborted: the state has changed since.
  [[nodiscard]] absl::Status reserve(job_id /*job*/) { return scheduler_.commit(last_); }
  // kAborted: a leaf is not idle.
  [[nodiscard]] absl::Status commit(const gang_request& r, const placement_type& where) {
    absl::Status done = absl::AbortedError("");
    if (proposed_ == r.job && last_.tasks == where) done = scheduler_.commit(last_);
    if (absl::IsAborted(done)) done = scheduler_.recover(r, where).status();
    if (absl::IsFailedPrecondition(done)) return absl::AbortedError(done.message());
    if (done.ok()) idle_ -= healthy(where);
    return done;
  }
  // See Placer.
  [[nodiscard]] absl::Status finish(job_id job) {
    const gang_record* const gang = scheduler_.find(job);
    if (gang == nullptr) return absl::NotFoundError(detail::missing(job));
    idle_ += healthy(scheduler_.tasks(*gang));
    return scheduler_.finish(job);
  }
  // See Placer.
  [[nodiscard]] absl::Status mark_bad(node_id n) { return mark(n, true); }
  // See Placer.
  [[nodiscard]] absl::Status mark_healthy(node_id n) { return mark(n, false); }
  // See Placer.
  [[nodiscard]] std::vector<job_id> jobs_on(node_id n) const {
    std::vector<job_id> jobs;
    for (const gang_slot slot : scheduler_.gangs().by_job()) {
      const gang_record& gang = scheduler_.gangs()[slot];
      const placement_type tasks = scheduler_.tasks(gang);
      const auto is_here = [&](const hived_placement& t) { return t.node == n && t.leaves != 0; };
      if (std::any_of(tasks.begin(), tasks.end(), is_here)) jobs.push_back(gang.request.job);
    }
    return jobs;
  }
  // Idle leaves of healthy nodes.
  [[nodiscard]] std::uint32_t idle_gpus() const noexcept { return idle_; }
  // All leaves, including those of bad nodes.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept { return total_; }

  // See MeasuredPlacer. Requires: `to` was proposed just before.
  [[nodiscard]] std::int64_t gain(const gang_request& /*r*/, const placement_type& from,
                                  const placement_type& to) const {
    return last_.downgraded.empty() ? migration_.gain(scheduler_, from, to) : 0;
  }
  // See MigratingPlacer.
  [[nodiscard]] std::uint32_t trials() const noexcept { return migration_.trials; }
  // See MigratingPlacer.
  [[nodiscard]] bool may_migrate(job_id j) const {
    return migration_.may_migrate(*scheduler_.find(j));
  }

 private:
  // The leaves of the node that no gang uses.
  [[nodiscard]] std::uint32_t unused(node_id n) const {
    const hived_layout& layout = scheduler_.layout();
    const chain_id chain = layout.chain_of(n);
    return hived_queries::unused_leaves(scheduler_, chain.value, layout.node_cell(n),
                                        layout.chain(chain).node_level);
  }
  // The leaves on nodes that are not bad.
  [[nodiscard]] std::uint32_t healthy(const placement_type& tasks) const {
    int sum = 0;
    for (const hived_placement& t : tasks) sum += bad_[t.node.value] ? 0 : std::popcount(t.leaves);
    return static_cast<std::uint32_t>(sum);
  }
  // All nodes of a host are bad, or none is.
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

static_assert(GuaranteeingPlacer<hived_gang_placer> && MigratingPlacer<hived_gang_placer>);

// Gandiva for gangs on a HiveD cluster: a guaranteed gang starts as soon as hived would start it.
// It is not suspended for a time slice or for another tenant.
//
//   gandiva_gangs::create(hived_gang_placer(hived::create(config).value()), {.quantum = 60'000})
//
// Example: examples/gandiva_gangs.cpp
using gandiva_gangs = time_sharing<hived_gang_placer>;

// The same for jobs of whole GPUs: each job is a gang, as hived_jobs makes it. A job of priority 0
// or more is guaranteed; a job of priority -1 is opportunistic and runs in time slices.
class hived_job_placer : public hived_placer {
 public:
  // See Placer.
  struct kind {
    tenant_id tenant{};
    std::int32_t priority = 0;
    std::uint32_t gpus = 0;
    friend auto operator<=>(const kind&, const kind&) noexcept = default;
  };
  // kInvalidArgument: a fault of the configuration, or a node with more than 32 leaf cells.
  [[nodiscard]] static absl::StatusOr<hived_job_placer> create(
      const hived_config& config, const gang_migration& migration = {}) {
    APIARY_ASSIGN_OR_RETURN(hived_placer below, hived_placer::create(config, true));
    return hived_job_placer(std::move(below), migration);
  }
  // See Placer.
  [[nodiscard]] static kind kind_of(const job_request& r) noexcept {
    return {r.tenant, r.priority, r.gpus};
  }
  // The priority of the job.
  [[nodiscard]] std::int32_t priority(const job_request& r) const noexcept { return r.priority; }
  // See PreemptingPlacer. A guaranteed job of a tenant without cells waits.
  [[nodiscard]] absl::StatusOr<placer_answer<job_placement>> propose_preempting(
      const job_request& r) {
    auto answer = hived_placer::propose_preempting(r);
    if (absl::IsFailedPrecondition(answer.status())) return placer_answer<job_placement>();
    return answer;
  }
  // GPUs of the tenant's cells that no guaranteed job uses.
  [[nodiscard]] std::uint32_t entitled_gpus(tenant_id t) const {
    return jobs().owned(t) - by_right_[t.value];
  }
  // See Placer.
  [[nodiscard]] absl::Status commit(const job_request& r, const job_placement& where) {
    APIARY_RETURN_IF_ERROR(hived_placer::commit(r, where));
    if (r.priority >= 0) by_right_[r.tenant.value] += r.gpus;
    return absl::OkStatus();
  }
  // See Placer.
  [[nodiscard]] absl::Status finish(job_id job) {
    const gang_record* const gang = scheduler().find(job);
    if (gang != nullptr && gang->request.priority >= 0) {
      by_right_[gang->request.tenant.value] -= static_cast<std::uint32_t>(gang->leaves.size());
    }
    return hived_placer::finish(job);
  }
  // See MeasuredPlacer.
  [[nodiscard]] std::int64_t gain(const job_request& /*r*/, const job_placement& from,
                                  const job_placement& to) const {
    return migration_.gain(scheduler(), from, to);
  }
  // See MigratingPlacer.
  [[nodiscard]] std::uint32_t trials() const noexcept { return migration_.trials; }
  // See MigratingPlacer.
  [[nodiscard]] bool may_migrate(job_id j) const {
    return migration_.may_migrate(*scheduler().find(j));
  }

 private:
  hived_job_placer(hived_placer below, const gang_migration& migration)
      : hived_placer(std::move(below)), migration_(migration) {
    by_right_.resize(jobs().num_tenants());
  }
  gang_migration migration_;
  std::vector<std::uint32_t> by_right_;  // GPUs of guaranteed jobs, by tenant
};

// Gandiva for jobs of whole GPUs on a HiveD cluster. A guaranteed job (priority 0 to 1000) starts
// on its tenant's cells as soon as it fits there and suspends opportunistic jobs in its way. Until
// then it runs in time slices on idle GPUs, as opportunistic jobs (priority -1) do.
// Example: examples/programs/simulate.cpp
using gandiva_hived = time_sharing<hived_job_placer>;

static_assert(GuaranteeingPlacer<hived_job_placer> && MigratingPlacer<hived_job_placer>);
static_assert(JobScheduler<gandiva_hived>);

APIARY_NAMESPACE_END
