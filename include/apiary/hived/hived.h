// apiary/hived/hived.h - HiveD: virtual private clusters with guarantees, on shared hardware.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/hived/chain_layout.h>
#include <apiary/hived/config.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/ids.h>
#include <apiary/hived/layout.h>
#include <apiary/hived/plan.h>
#include <apiary/hived/reconfiguration.h>
#include <apiary/hived/request.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

APIARY_NAMESPACE_BEGIN

class gang_table;  // hived/gang_table.h
namespace detail {
class hived_catalog;  // hived/detail/catalog.h
class hived_cells;    // hived/detail/cells.h
struct hived_core;    // the state of a scheduler
}  // namespace detail

// Gives tenants virtual private clusters: whatever a tenant's cells could run as a cluster of its
// own, they run here, wherever they are and whoever else uses the hardware meanwhile, on what is
// healthy and once the victims have ended.
//
// Guaranteed gangs (priority 0 to 1000) use their tenant's cells and preempt lower ones of the same
// tenant and opportunistic gangs (priority -1) of all. What a host sends is checked: an error names
// what is wrong and leaves the state as it was. propose() changes nothing that can be observed;
// commit() takes a plan as long as nothing has changed since.
//
// Model:   "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees" (OSDI 2020).
//          Differs: see hived/detail/cells.h and hived/detail/search.h; every refusal has a reason.
// Cost:    propose as hived_search; commit and finish as hived_state; marking a leaf O(levels *
//          (fan-out + leaves of a node)). What depends on the size of the cluster: a place that must
//          be on suggested nodes, one that several gangs of the tenant must end for, or any under
//          costs of a host's own, a wait, doomed and reconfigure; a gang under rules
//          (hived/detail/topology_fit.h), and where a spread depends on how whole cells are bound all cells
//          of a level for each that is bound; a whole cell that comes into use or is left, O(its
//          nodes), one larger than a node where all are full of guests; on bad hardware a search
//          that meets it (hived/detail/planner.h); and a gang that is given its tenant's cells where it
//          runs, as after recover: O(whole cells of the tenant).
// Example: examples/hived_guarantee.cpp
class hived {
 public:
  explicit hived(hived_layout layout);
  // A copy is a snapshot. One that was moved from can only be assigned to or destroyed.
  hived(const hived& other);
  hived(hived&& other) noexcept;
  hived& operator=(const hived& other);
  hived& operator=(hived&& other) noexcept;
  ~hived();

  // kInvalidArgument: every fault of the configuration (hived/layout.h).
  [[nodiscard]] static absl::StatusOr<hived> create(const hived_config& config);

  // What it costs to end a gang that runs, 2^40 at most, for another one of its tenant: of those in
  // the first chain where some would do, the least sum ends. Empty: fewest gangs, lowest priorities,
  // fewest leaves (hived/detail/victims.h), as always where cells are bound elsewhere. Not in hash().
  void set_victim_cost(gang_cost cost);

  // Where the gang would go now. A preempting gang asks again in the same words; only the suggested
  // nodes may be others.
  // kInvalidArgument: a request that is wrong in itself, or whose rules mean nothing in any chain that
  // it may use. kNotFound: no such tenant, pinned cell or type of leaf. kFailedPrecondition: the tenant
  // has none of it. kAlreadyExists: the gang runs.
  [[nodiscard]] absl::StatusOr<gang_plan> propose(const gang_request& request);

  // Carries a plan out: binds the gang, or reserves its leaves while the victims end.
  // A plan to wait is carried out only where it cancels the gang's own preemption, whose leaves
  // have become bad or are not suggested any more.
  // kAborted: something has changed since it was proposed, or another scheduler proposed it, other
  // than one of which this is a copy, or it was moved from. kFailedPrecondition: it says wait.
  absl::Status commit(const gang_plan& plan);

  // A preempting gang is withdrawn: its victims keep their leaves, and gangs that lost their
  // tenant's cells to it get them back if they are still to be had (restored); if they are not, but
  // other gangs have claimed leaves of theirs, when one of these is withdrawn. So with finish,
  // finish_task and commit, where they withdraw one; with a commit also when its own gang is.
  // kNotFound: no such gang. kFailedPrecondition: it is not preempting.
  absl::Status cancel(job_id job);

  // All tasks of a gang have ended. kNotFound: no such gang.
  absl::Status finish(job_id job);
  // One task has ended; the gang ends with the last, those counted that run where the configuration
  // has nothing. A preempting gang claims the leaves of the task no more, and will run without it
  // where it waits; if it has to go elsewhere, it is placed whole, as if it were new.
  // kNotFound: no such gang or task, or the task has ended before.
  absl::Status finish_task(job_id job, std::uint32_t task);

  // A gang grows: the tasks of another gang become its own, numbered after its own, and that other
  // gang is no more. Both run. A job that wants more tasks asks for them as a gang of their own, which
  // waits and preempts as any other, and joins when it runs; it shrinks by finish_task. Each keeps its
  // members' rules; both must require the same level, and be in one cell of it where the chain has
  // it. Numbers of tasks stand for good: those that have ended count towards the limit, and the cost.
  // kInvalidArgument: the same gang twice, or more than hived_catalog::max_tasks tasks. kNotFound: no
  // such gang. kFailedPrecondition: one of them is preempting, is being preempted, or has lost its
  // tenant's cells; or they differ in tenant, priority, type of leaf, pinned cell, lazy, chain or
  // required level, or are not in one cell of it.
  // Cost: O(leaves of both, ended ones counted).
  absl::Status grow(job_id job, job_id by);

  // New gangs avoid what is bad, a leaf or a node; what runs there runs on. Repeated calls change
  // nothing. A leaf goes by its position in the node (hived_layout::find_position of a device index).
  // kNotFound: no such node, or no such leaf of it.
  absl::Status mark_bad(node_id node, std::optional<std::uint32_t> position = std::nullopt);
  absl::Status mark_healthy(node_id node, std::optional<std::uint32_t> position = std::nullopt);

  // Takes a gang that runs already, as after a restart: tasks in the order of the members, those
  // with no leaves have ended or are not known here. Whether it has its tenant's cells (again);
  // if they are not to be had, or its tenant is gone (not valid), it runs on as opportunistic. Where it
  // runs stands, also against its request's type of leaf and its rules: these are not compared.
  // What to keep over restarts are names, of nodes (and devices: hived_layout::devices), tenants,
  // types of leaves and pinned cells, and a gang's whole_cell_levels (hived/queries.h), one for each
  // leaf of the tasks; ids are positions in one configuration. In the same configuration every gang
  // that comes with its levels has its tenant's cells again, if these gangs come before all others.
  // One without levels is given the largest whole cells that are to be had, or else the smallest, and
  // those after it may then find none. Lower gangs of its tenant lose their cells to it where it has
  // none without (hived_state::oust; gang_record::downgraded tells).
  // Errors as propose, and kFailedPrecondition: a leaf is another gang's. kInvalidArgument: the
  // number of tasks, leaves or levels.
  absl::StatusOr<bool> recover(const gang_request& request, std::span<const task_place> tasks,
                               std::span<const level_t> whole_cells = {});

  // Goes over to another configuration; gangs run on where they are, found by the names of nodes
  // and devices. Those that have their tenants' cells come first, then those downgraded before, who
  // may have cells again; of both the highest priority first, then by job. Each is given whole cells
  // of the levels that it had, if it can be: in the same configuration nobody is downgraded. A leaf
  // that a gang runs on and that is not in the configuration is the gang's again in a later one that
  // has it; what is bad stays so as long as it is in the configuration. A gang whose tenant, pinned
  // cell or type of leaf is not in the configuration is from then on of none
  // (hived_catalog::translate), also if a later one has it again: what a gang asks for is kept as
  // ids, which mean something in one configuration only. So are the levels of its rules, which count
  // from the leaves in the new one, too. A gang with no leaf in the configuration ends here (gone).
  // kInvalidArgument, and nothing changes: a faulty configuration.
  absl::StatusOr<hived_reconfiguration> reconfigure(const hived_config& config);

  [[nodiscard]] const hived_layout& layout() const noexcept;
  // Checks of requests, and places by the names of nodes.
  [[nodiscard]] const detail::hived_catalog& catalog() const noexcept;
  [[nodiscard]] const detail::hived_cells& cells() const noexcept;
  [[nodiscard]] const gang_table& gangs() const noexcept;
  // The type of leaf of that name.
  [[nodiscard]] std::optional<leaf_type_id> find_leaf_type(std::string_view type) const noexcept;
  // Over the layout and everything else that decisions depend on: same configuration and calls,
  // same value. Cost: O(1).
  [[nodiscard]] std::uint64_t hash() const noexcept;

  // Where the gang's tasks are; null: no such gang. The pointer holds until the next change.
  [[nodiscard]] const gang_record* find(job_id job) const;
  // The gangs that had lost their tenant's cells and have them back by the last change, since the gang
  // that took them was withdrawn or gave way: the highest priority first, then by job. One that a
  // plan downgrades, too, has them. A call that changes nothing leaves this as it is; reconfigure
  // reports its own.
  [[nodiscard]] const std::vector<job_id>& restored() const noexcept;
  // Whether another gang has claimed a leaf of it, or has its tenant's cells and waits for its end.
  [[nodiscard]] bool being_preempted(const gang_record& gang) const noexcept;
  // The node and leaves of each task, in the order of the members; an empty task_place for one that
  // has ended.
  [[nodiscard]] std::vector<task_place> tasks(const gang_record& gang) const;
  // How many of the tenant's whole cells of a level that are not in use must land on bad hardware,
  // by the counts of that level: at least so many. More must where healthy ones are parts of larger
  // cells that others are promised.
  // kNotFound: no such tenant, chain or level. Cost: O(cells of the chain).
  [[nodiscard]] absl::StatusOr<std::uint32_t> doomed(tenant_id tenant, chain_id chain,
                                                     level_t level) const;
  // Of the cells, physical and virtual, and their bindings; without layout, gangs and scratch.
  [[nodiscard]] std::size_t memory_bytes() const noexcept;

 private:
  [[nodiscard]] static std::string name(job_id job);
  [[nodiscard]] absl::StatusOr<gang_slot> existing(job_id job) const;

  void begin_change() noexcept;
  [[nodiscard]] absl::Status check(const gang_request& r);
  // Of a preempting gang: whether all its leaves are healthy and suggested.
  [[nodiscard]] bool place_is_good(const gang_record& gang, const summary_bitset* suggested) const;
  // The tasks on these leaves, who runs there beside the victims there are, and what follows of it.
  void describe(std::span<const chain_leaf> leaves, std::span<const task_group> members,
                gang_plan& plan) const;

  absl::Status mark(node_id node, std::optional<std::uint32_t> position, bool good);

  std::unique_ptr<detail::hived_core> core_;  // null: moved from
};

APIARY_NAMESPACE_END

#ifndef APIARY_COMPILED
#include <apiary/hived/detail/hived_inl.h>
#endif
