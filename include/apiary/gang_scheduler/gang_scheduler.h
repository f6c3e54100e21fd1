// apiary/gang_scheduler/gang_scheduler.h - a scheduler of gangs that preempts at least cost.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/job.h>
#include <apiary/model/placement.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/victim_set.h>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {
class gang_scheduler_core;  // the state of a scheduler
}  // namespace detail

// Schedules gangs of tasks on whole GPUs: places each gang exactly under its topology constraints
// and node filter, preempts gangs of lower priority at least cost, or says why the gang waits and
// what would help. Nodes may differ, join and leave.
//
// Levels count from the nodes: 0 is a node, 1 the level of gang_cluster::levels[0]. A call that
// returns an error leaves the state as it was. Ties go by names, of cells from the top and then of
// nodes, "n9" before "n10"; ids and history decide nothing. The module page has the cost of every
// call.
// Cost:    propose: topology_fit on an index of free GPUs that is kept for each filter; it does not
//          look at nodes unless the gang needs CPU or memory that is scarce, or preempts, or nodes
//          have joined, left or been resized since the last call.
// Example: examples/gang_scheduler.cpp
class gang_scheduler : public gang_scheduler_types {
 public:
  // A scheduler without gangs; all nodes are healthy. Node i of the description gets id i. There
  // may be no nodes yet; the levels cannot change later.
  // kInvalidArgument: see gang_cluster::check.
  [[nodiscard]] static absl::StatusOr<gang_scheduler> create(const gang_cluster& cluster);
  // A copy is a snapshot. A moved-from scheduler can only be assigned to or destroyed.
  gang_scheduler(const gang_scheduler& other);
  // Takes the state of the other scheduler.
  gang_scheduler(gang_scheduler&& other) noexcept;
  // Makes this scheduler a copy of the other one.
  gang_scheduler& operator=(const gang_scheduler& other);
  // Takes the state of the other scheduler.
  gang_scheduler& operator=(gang_scheduler&& other) noexcept;
  ~gang_scheduler();

  // Decides where the gang would run now, which gangs would have to end, or that it must wait. It
  // changes nothing that a caller can observe. `now` matters only for the cost of victims.
  // The last slice of a group may be shorter than the others if the group has no anti-affinity and
  // no leader, and leads none. If several sets of victims cost the same, it takes one that allows
  // the lowest level, from `preferred` on. It preempts nothing only to reach the preferred level;
  // set `required` for that.
  // Propose a preempting gang again, unchanged: the answer is `bind` when its victims have ended.
  // It is `wait` with reason `unhealthy` if one of its nodes is bad; then call finish() and propose
  // a new gang.
  // kInvalidArgument: the request is wrong, or the gang has reserved GPUs for another request; to
  // change it, call finish() first. kNotFound: the filter names a node that does not exist.
  // kAlreadyExists: the gang runs.
  [[nodiscard]] absl::StatusOr<plan> propose(const request& gang, time_ms now = 0);
  // Applies a plan. kAborted: the state, the cost of victims or a disruption budget has changed
  // since propose(); a new step budget changes none of them. kFailedPrecondition: the plan
  // says wait. kInvalidArgument: the plan was changed, and cannot be applied.
  absl::Status commit(const plan& decided);
  // Ends a gang, or cancels a preempting one; its victims then stay. kNotFound: no such gang.
  absl::Status finish(const job_key& job);
  // propose() with the proof, the nodes to free and a sentence. Errors as propose().
  // Cost: milliseconds, as unblock_search; use it for people, not in each decision.
  [[nodiscard]] absl::StatusOr<explanation> explain(const request& gang, time_ms now = 0);
  // Finds new nodes for the tasks of a running gang whose node or GPUs are bad. The other tasks
  // stay, and the constraints hold for all tasks together. If the result is `bind`, commit() moves
  // the tasks `replaced` to `tasks`. Nothing is preempted for them. kNotFound: no such gang.
  // kFailedPrecondition: no task is on bad hardware, or the gang is preempting or a victim.
  [[nodiscard]] absl::StatusOr<plan> propose_replacement(const job_key& job);
  // propose_replacement() with the nodes to free and a sentence, on the same step budget. If the
  // steps end first, fewer nodes may be enough. Errors as there.
  [[nodiscard]] absl::StatusOr<explanation> explain_replacement(const job_key& job);
  // Adds a gang that runs already, after a restart of the host, in any order. The placement is
  // accepted even against the constraints, the filter, the health and the CPU of its nodes. Nodes
  // that the filter names may have left; if one joins again, the filter accepts it again.
  // kInvalidArgument, kAlreadyExists: as propose(); also a placement that does not match its task.
  // kFailedPrecondition: a GPU is in use.
  absl::Status recover(const request& gang, std::span<const placement> tasks, time_ms started = 0);

  // Marks a node bad, or one GPU of it. Running gangs go on; new ones avoid it.
  // kNotFound: no such node or GPU.
  absl::Status mark_bad(node_id node, std::optional<std::uint32_t> gpu = std::nullopt);
  // Takes mark_bad back, with the same arguments and errors.
  absl::Status mark_healthy(node_id node, std::optional<std::uint32_t> gpu = std::nullopt);
  // Adds a node. Returns its id: the lowest one that no node has. kInvalidArgument: as
  // gang_cluster::check. kAlreadyExists: a node has this name.
  absl::StatusOr<node_id> add_node(const gang_cluster::node& node);
  // Removes a node. Its id may be given to another node later. kNotFound: no such node.
  // kFailedPrecondition: gangs run on it; end them first.
  absl::Status remove_node(node_id node);
  // Changes the GPUs, CPU and memory of a node. kNotFound: no such node. kInvalidArgument: too many
  // GPUs. kFailedPrecondition: gangs use more.
  absl::Status resize_node(node_id node, std::uint32_t gpus, resources host);

  // Sets the cost of ending a gang; null: the default, which is priority class, then the number of
  // gangs, then GPU-time since the start (preempt/victim_cost.h).
  void set_victim_cost(cost_function cost);
  // Sets the most that a tenant may lose in one preemption.
  void set_disruption_budget(tenant_id tenant, const disruption_budget& budget);
  // Sets the steps that one propose() or propose_replacement() may take; 200,000 at first. 0 counts
  // as 1, more than 2^56 count as 2^56. A step takes at most a microsecond, usually 0.01 to 0.1;
  // the request is read before the first one. If the steps end first, the plan says `undecided`, or
  // its victims may cost more than necessary. The module page says what counts as a step.
  void set_step_budget(std::uint64_t steps);

  // Calls trial(*this) and then takes back every change that it made, also if it throws. Only what
  // changes is copied.
  // Requires: trial does not assign to the scheduler.
  void what_if(absl::FunctionRef<void(gang_scheduler&)> trial);

  // The level with this name: a level of the description, or "node". kNotFound: there is none.
  [[nodiscard]] absl::StatusOr<level_t> find_level(std::string_view name) const;
  // The node with this name. kNotFound: there is none.
  [[nodiscard]] absl::StatusOr<node_id> find_node(std::string_view name) const;
  // The node with this id; null if there is none. The pointer is valid until the next change.
  [[nodiscard]] const gang_cluster::node* node(node_id n) const;
  // The gang; null if there is none. The pointer is valid until the next change.
  [[nodiscard]] const running_gang* find(const job_key& job) const;
  // The gangs on a node, preempting ones included, ascending; empty if there is no such node.
  [[nodiscard]] std::vector<job_key> jobs_on(node_id n) const;
  // The capacity of each cell of a level; level 0: of each node. Cells go by the names of the cells
  // above them, then by their own. Keep the result in a variable before a loop over its value():
  // `for (auto& c : s.free_capacity(1).value())` reads a vector that is destroyed before the loop.
  // kNotFound: no such level. Cost: O(nodes).
  [[nodiscard]] absl::StatusOr<std::vector<cell_capacity>> free_capacity(level_t level) const;
  // The healthy GPUs of the cluster that no gang uses or has reserved. Cost: O(1).
  [[nodiscard]] std::uint64_t free_gpus() const noexcept;
  // The number of running and preempting gangs.
  [[nodiscard]] std::uint32_t num_gangs() const noexcept;
  // A hash of the nodes, by their names, and of the gangs with their requests, in whatever order
  // they came. Cost: O(1).
  [[nodiscard]] std::uint64_t hash() const noexcept;
  // Recomputes everything from nodes and gangs; returns what differs, empty if nothing does.
  // Cost: O(cluster * filters in use).
  [[nodiscard]] std::vector<std::string> audit() const;

 private:
  explicit gang_scheduler(std::unique_ptr<detail::gang_scheduler_core> core) noexcept;
  absl::StatusOr<explanation> find_replacement(const job_key& job, bool explains);
  absl::Status commit_replacement(const plan& decided);
  std::unique_ptr<detail::gang_scheduler_core> core_;  // null after a move
};

APIARY_NAMESPACE_END

#ifndef APIARY_COMPILED
#include <apiary/gang_scheduler/detail/gang_scheduler_inl.h>
#endif
