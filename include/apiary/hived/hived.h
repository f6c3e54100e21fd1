// apiary/hived/hived.h - HiveD: each tenant has a virtual private cluster with guarantees.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/hived/gang_plan.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/layout.h>

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

// A scheduler that gives each tenant a virtual private cluster: what would fit in a cluster made of
// the tenant's cells alone also fits here, whatever other tenants use, as long as the hardware is
// healthy and the victims have ended.
//
// Guaranteed gangs (priority 0 to 1000) use the cells of their tenant. They preempt guaranteed
// gangs of lower priority of this tenant, and opportunistic gangs (priority -1) of every tenant. A
// call that returns an error leaves the state as it was. The module page lists the terms and the
// calls whose cost grows with the cluster.
// Model:   "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees" (OSDI 2020).
//          Differences: see the module page.
// Cost:    O(levels) per cell or leaf that a call touches, and a search over the tenant's free
//          nodes by class.
// Example: examples/hived_guarantee.cpp
class hived {
 public:
  // A scheduler without gangs for a checked layout; all hardware is healthy.
  explicit hived(hived_layout layout);
  // A copy is a snapshot. A moved-from scheduler can only be assigned to or destroyed.
  hived(const hived& other);
  // Takes the state of the other scheduler.
  hived(hived&& other) noexcept;
  // Makes this scheduler a copy of the other one.
  hived& operator=(const hived& other);
  // Takes the state of the other scheduler.
  hived& operator=(hived&& other) noexcept;
  ~hived();

  // The same for a configuration. kInvalidArgument: lists every fault of the configuration.
  [[nodiscard]] static absl::StatusOr<hived> create(const hived_config& config);

  // Sets the cost (at most 2^40) of ending a running gang for another gang of its tenant. In the
  // first chain where preemption helps, the victims have the least total cost. By default, and
  // where victims end because cells are bound to other hardware, the fewest gangs end, then low
  // priorities, then few leaves. hash() ignores the cost.
  void set_victim_cost(gang_record::cost_function cost);

  // Decides where the gang would run now, which gangs would have to end, or why it must wait.
  // Nothing changes that can be observed. A preempting gang proposes again with the same request;
  // only the suggested nodes may differ.
  // kInvalidArgument: the request is wrong, or no chain that it may use has the levels of its
  // topology constraints. kNotFound: no such tenant, pinned cell or leaf type. kFailedPrecondition:
  // the tenant has no cell of that kind. kAlreadyExists: the gang runs.
  [[nodiscard]] absl::StatusOr<gang_plan> propose(const gang_request& request);
  // The same, but faster if the gang waits: gang_plan::wait does not say why.
  [[nodiscard]] absl::StatusOr<gang_plan> propose_unexplained(const gang_request& request);

  // Applies a plan: binds the gang, or reserves its leaves while the victims end. A plan with
  // result `wait` can be applied only if it cancels the preemption of the same gang, because its
  // leaves have become bad or are no longer suggested.
  // kAborted: the state has changed since propose(), or the plan was moved from or comes from
  // another scheduler (a copy of this one is accepted). kFailedPrecondition: the plan says wait.
  absl::Status commit(const gang_plan& plan);

  // Cancels a preempting gang; its victims keep their leaves. Gangs that lost guaranteed cells to
  // it get them back now if the cells are free (see restored()), otherwise when the gang that
  // claimed them is cancelled. finish, finish_task and commit do the same when they cancel a
  // preempting gang. kNotFound: no such gang. kFailedPrecondition: it is not preempting.
  absl::Status cancel(job_id job);
  // Call when all tasks of a gang have ended. kNotFound: no such gang.
  absl::Status finish(job_id job);
  // Call when one task has ended. The gang ends with its last task; tasks outside the configuration
  // count. A preempting gang gives up its claim on the leaves of the task and will run without the
  // task; if it has to move, all its tasks are placed again.
  // kNotFound: no such gang or task, or the task has ended already.
  absl::Status finish_task(job_id job, std::uint32_t task);

  // Marks a node, or the leaf at a position of it (hived_layout::find_position), as bad. New gangs
  // avoid bad hardware; running gangs go on. Repeated calls change nothing. A node is bad with all
  // nodes of its host (hived_layout::next_of_host).
  // kNotFound: no such node or leaf.
  absl::Status mark_bad(node_id node, std::optional<std::uint32_t> position = std::nullopt);
  // Takes mark_bad() back, with the same arguments and errors.
  absl::Status mark_healthy(node_id node, std::optional<std::uint32_t> position = std::nullopt);

  // Adds a gang that runs already, after a restart of the host. Tasks are in the order of the task
  // groups; a task without leaves has ended. Returns false if a
  // guaranteed gang came back as opportunistic: no cells are free, or its tenant no longer exists.
  // The placement is accepted even against the leaf type or topology constraints of the request.
  //
  // A host should persist names (nodes, devices, tenants, leaf types, pinned cells), because ids
  // are positions in one configuration, and hived_queries::whole_cell_levels of each gang. If the
  // configuration is the same and gangs with levels are recovered first, each of them gets its
  // guaranteed cells. A gang without levels gets the largest whole cells that are free, or else the
  // smallest; if none are free, gangs of lower priority of the tenant are downgraded() for it.
  //
  // `missing` are leaves whose node or device the configuration lacks, by ascending index; a task's
  // leaves have the indices gang_record::leaves_of, those in `tasks` first. A task with missing
  // leaves has not ended: it ends with finish_task(), and gets a leaf back as in reconfigure().
  // Errors as propose(), and kFailedPrecondition: a leaf belongs to another gang. kInvalidArgument:
  // wrong number of tasks, leaves or levels; a missing leaf that is there.
  absl::StatusOr<bool> recover(const gang_request& request, std::span<const hived_placement> tasks,
                               std::span<const level_t> whole_cells = {},
                               std::span<const gang_record::missing_leaf> missing = {});

  // Changes to another configuration; gangs keep running where they are, found by the names of
  // nodes and devices. Guaranteed gangs come first, then downgraded gangs, which may get cells
  // again; within both, higher priorities, then lower job ids. Each gang gets whole cells of the
  // same levels as before if possible; in the same configuration no gang is downgraded.
  //
  // A leaf that the new configuration lacks belongs to its gang again when a later configuration
  // has it; a gang without any leaf is forgotten (hived_reconfiguration::gone). A gang whose
  // tenant, pinned cell or leaf type is missing loses that attribute for good. Bad hardware stays
  // bad while it is in the configuration. Levels of topology constraints count from the leaves in
  // the new configuration. kInvalidArgument, and nothing changes: the configuration is faulty, or
  // has the devices of one task, on one host, in two chains.
  absl::StatusOr<hived_reconfiguration> reconfigure(const hived_config& config);

  // The state as text, for a host that stores it and restarts: gangs (preempting ones, too), their
  // cells, bad hardware. The configuration and the victim cost are not in it.
  // Cost: O(cells of the tenants + leaves of all gangs), and for each bad leaf O(levels * fan-out);
  // about 70 bytes for a gang on one node.
  [[nodiscard]] std::string snapshot() const;
  // Replaces gangs and health by those of a snapshot. hash() is then the same as when it was taken,
  // and so are all later decisions. Plans that were proposed before are stale. A program without
  // apiary::compiled that proposes a preempting gang again sets its topology constraints again.
  // kInvalidArgument: not a snapshot. kUnimplemented: a newer version. kDataLoss: a damaged
  // snapshot. kFailedPrecondition: a snapshot of another configuration. Nothing changes then.
  // Cost: O(cells of the cluster + leaves of all gangs * levels), and a sort of the gangs.
  absl::Status restore(std::string_view snapshot);

  // The cells of the cluster and of the tenants, with their names.
  [[nodiscard]] const hived_layout& layout() const noexcept;
  // Internal tables, for tests, audits and tools.
  [[nodiscard]] const detail::hived_catalog& catalog() const noexcept;
  // The use of every physical cell.
  [[nodiscard]] const detail::hived_cells& cells() const noexcept;
  // All gangs.
  [[nodiscard]] const gang_table& gangs() const noexcept;
  // The leaf type (GPU model) with this name, if there is one.
  [[nodiscard]] std::optional<leaf_type_id> find_leaf_type(std::string_view type) const noexcept;
  // A hash of everything that decisions depend on, the layout included. Cost: O(1).
  [[nodiscard]] std::uint64_t hash() const noexcept;

  // The gang and its leaves; null if there is none. The pointer is valid until the next change.
  [[nodiscard]] const gang_record* find(job_id job) const;
  // The gangs that got their guaranteed cells back in the last change because a gang was cancelled:
  // higher priorities first, then lower job ids. reconfigure() reports its own list.
  [[nodiscard]] const std::vector<job_id>& restored() const noexcept;
  // The gangs that lost their guaranteed cells in the last change because recover() gave the cells
  // to a gang of higher priority, by ascending job id. commit() and reconfigure() report their own.
  [[nodiscard]] const std::vector<job_id>& downgraded() const noexcept;
  // Whether another gang has claimed a leaf of this gang, or has its cells and waits for its end.
  [[nodiscard]] bool being_preempted(const gang_record& gang) const noexcept;
  // The node and leaves of each task, in the order of the task groups; empty if the task has ended.
  [[nodiscard]] std::vector<hived_placement> tasks(const gang_record& gang) const;
  // A lower bound on the unused whole cells of the tenant at this level that can only be bound to
  // bad hardware. kNotFound: no such tenant, chain or level. Cost: O(cells of the chain).
  [[nodiscard]] absl::StatusOr<std::uint32_t> doomed(tenant_id tenant, chain_id chain,
                                                     level_t level) const;
  // Bytes of the physical and virtual cells and their bindings, without layout, gangs and buffers.
  [[nodiscard]] std::size_t memory_bytes() const noexcept;

 private:
  [[nodiscard]] static std::string name(job_id job);
  [[nodiscard]] absl::StatusOr<gang_slot> existing(job_id job) const;
  void begin_change() noexcept;
  // Whether all leaves of a preempting gang are healthy and suggested.
  [[nodiscard]] bool is_placement_usable(const gang_record& gang,
                                         const summary_bitset* suggested) const;
  // Fills the public part of a plan: the tasks on these leaves, and the gangs that must end.
  void describe(std::span<const chain_leaf> leaves, std::span<const task_group> groups,
                gang_plan& plan) const;
  absl::Status mark(node_id node, std::optional<std::uint32_t> position, bool good);
  std::unique_ptr<detail::hived_core> core_;  // null after a move
};

APIARY_NAMESPACE_END

#ifndef APIARY_COMPILED
#include <apiary/hived/detail/hived_inl.h>
#endif
