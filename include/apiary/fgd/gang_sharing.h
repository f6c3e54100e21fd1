// apiary/fgd/gang_sharing.h - gangs of tasks that share GPUs, placed as a whole or not at all.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/journal.h>
#include <apiary/container/bitset.h>
#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/fgd/detail/errors.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/fgd/node_score.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/shared_gpu_fit.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
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

// The decision about a gang.
struct shared_gang_plan {
  plan_result result = plan_result::wait;  // bind or wait
  // If the result is bind: one placement for each task. Within a slice, tasks are consecutive.
  std::vector<task_placement> placements{};
  // True: no placement at the same level costs less by the score's cost(). False: not known.
  bool is_least_cost = false;

  // If the result is wait: `never` if one task of the gang fits no node even if all nodes are idle
  // and healthy, `undecided` if the search used up its budget, otherwise `busy`.
  wait_reason reason = wait_reason::busy;
  // If it waits, unless `undecided`: a proof for proof_check(tree, node_level, nodes(), gang).
  infeasibility_proof proof{};
};

// A gpu_sharing_scheduler that also places gangs. All tasks of a gang run at once, or none does.
//
// A gang whose task groups have no slices, anti-affinity or leader is first placed greedily, task
// by task: in the whole cluster, or in each cell of the preferred, otherwise of the required level,
// the cell with the fewest free GPUs first. If that fails, or with other constraints,
// shared_gpu_fit searches exactly. If the score has a cost(before, after), it looks for the least
// sum of this cost; if the budget ends, it takes the best placement so far.
//
// Cost:    greedy placement costs a propose for each task in each cell that has enough free GPUs,
//          and O(nodes) if the gang must be in one cell; the exact search as shared_gpu_fit.
// Example: examples/shared_gang.cpp
template <NodeScore Score>
class gang_sharing_scheduler : public gpu_sharing_scheduler<Score> {
  using base = gpu_sharing_scheduler<Score>;

 public:
  // The largest number of tasks in a gang.
  static constexpr std::uint32_t max_tasks = detail::max_gang_tasks;
  // Steps that the search for one gang may take, unless the caller says otherwise: about 20
  // milliseconds at most.
  static constexpr std::uint64_t default_gang_budget = 20'000;

  // As gpu_sharing_scheduler::create.
  [[nodiscard]] static absl::StatusOr<gang_sharing_scheduler> create(node_table nodes, Score score);

  using base::propose;
  // Where all tasks of the gang would run now, or why the gang waits. Changes no placement. Node i
  // is cell i of `node_level`. kInvalidArgument: a task is not valid(); more than max_tasks tasks;
  // constraints that the tree does not allow; or the tree has another number of nodes.
  template <CellTree Tree>
  [[nodiscard]] absl::StatusOr<shared_gang_plan> propose(
      const topology_constraints& gang, const Tree& tree, level_t node_level = 0,
      std::uint64_t budget = default_gang_budget) {
    return decide(gang, tree, node_level, nullptr, budget);
  }
  // The same on the nodes in `suggested` only; a proof is then for suggested_nodes(suggested).
  // kInvalidArgument also: `suggested` does not have one bit for each node.
  template <CellTree Tree>
  [[nodiscard]] absl::StatusOr<shared_gang_plan> propose(
      const topology_constraints& gang, const Tree& tree, level_t node_level,
      const summary_bitset& suggested, std::uint64_t budget = default_gang_budget) {
    return decide(gang, tree, node_level, &suggested, budget);
  }
  // The same without a tree: level 0 is the level of the nodes, and the only one.
  [[nodiscard]] absl::StatusOr<shared_gang_plan> propose(
      const topology_constraints& gang, std::uint64_t budget = default_gang_budget);
  // The same without a tree, on the nodes in `suggested` only.
  [[nodiscard]] absl::StatusOr<shared_gang_plan> propose(
      const topology_constraints& gang, const summary_bitset& suggested,
      std::uint64_t budget = default_gang_budget);

  using base::commit;
  // Applies a plan to bind: all tasks of the gang run at plan.placements.
  // kInvalidArgument: the plan is to wait. Otherwise as commit(job, gang, placements).
  absl::Status commit(job_id job, const topology_constraints& gang, const shared_gang_plan& plan);
  // All tasks of the gang run at `placements`, or, after an error, none. Does not check topology
  // constraints. kInvalidArgument: no job id, no task, a task not valid(), or not one placement a
  // task. kAlreadyExists: the job runs. kNotFound: no such node. kAborted: a placement is not free.
  absl::Status commit(job_id job, const topology_constraints& gang,
                      std::span<const task_placement> placements) {
    return start(job, gang, placements, false);
  }
  // One more task of a running gang starts, with any request. kNotFound: no such gang or node.
  // Otherwise as commit(task, where).
  absl::Status commit(job_id job, const task_request& task, const task_placement& added);
  using base::recover;
  // As commit(job, gang, placements) after a restart, for a gang that still runs: nodes may be bad,
  // and tasks that have ended have no placement.
  absl::Status recover(job_id job, const topology_constraints& gang,
                       std::span<const task_placement> placements) {
    return start(job, gang, placements, true);
  }

  using base::finish;
  // One task of a gang has ended, the others continue. The gang ends with its last task.
  // kNotFound: the gang does not run, or no such task of it does.
  absl::Status finish(job_id job, const task_placement& task) {
    if (running_.finish_one(job, task.group, task.where, base::release())) return absl::OkStatus();
    if (!running_.contains(job)) return detail::does_not_run(job);
    return detail::no_such_task(job, task.group, task.where.node);
  }

  // A copy of the nodes in which all nodes not suggested are bad. Requires: one bit for each node.
  [[nodiscard]] node_table suggested_nodes(const summary_bitset& suggested) const {
    node_table copy = nodes_;
    for (const node_id n : copy.ids()) copy[n].healthy = copy[n].healthy && suggested.test(n.value);
    return copy;
  }
  // Where the tasks of a gang run that have not ended, in the order of the commit. Empty if it does
  // not run.
  [[nodiscard]] std::vector<task_placement> find_gang(job_id job) const {
    std::vector<task_placement> placements;
    if (!running_.is_gang(job)) return placements;
    for (const detail::running_task& task : running_.tasks_of(job))
      placements.push_back({task.group, task.where});
    return placements;
  }

 protected:
  using base::base;
  using base::nodes_;
  using base::placer_;
  using base::running_;

  // The request of a task of the gang.
  [[nodiscard]] static task_request request_of(job_id job, const topology_constraints& gang,
                                               const task_placement& p) {
    task_request task = gang.groups[p.group].task();
    task.job = job;
    return task;
  }
  // OK if the tasks are valid, the job has an id, and each task has one placement, or, unless
  // `all`, at most one, on nodes that exist.
  [[nodiscard]] absl::Status check_placements(job_id job, const topology_constraints& gang,
                                              std::span<const task_placement> placements,
                                              bool all) const;

 private:
  static constexpr bool has_cost = requires(const Score& s, const node_state& n) {
    { s.cost(n, n) } -> std::same_as<std::int64_t>;
  };

  // Starts the tasks of a gang; if `again`, also on bad nodes, and without those that have ended.
  absl::Status start(job_id job, const topology_constraints& gang,
                     std::span<const task_placement> placements, bool again);
  template <CellTree Tree>
  absl::StatusOr<shared_gang_plan> decide(const topology_constraints& gang, const Tree& tree,
                                          level_t node_level, const summary_bitset* suggested,
                                          std::uint64_t budget) {
    APIARY_RETURN_IF_ERROR(detail::check_gang(gang, tree, node_level, nodes_.size()));
    if (suggested != nullptr)
      APIARY_RETURN_IF_ERROR(detail::check_suggested(*suggested, nodes_.size()));
    shared_gang_plan plan;
    if (detail::tasks_are_independent(gang)) {
      const level_t level = (std::min)(gang.preferred, gang.required);
      plan.placements = level == any_level
                            ? place_one_by_one(gang, suggested)
                            : place_in_one_cell(gang, tree, node_level, level, suggested);
      if (!plan.placements.empty()) {
        plan.result = plan_result::bind;
        return plan;
      }
    }
    shared_gpu_fit<Tree> fit(budget);
    const auto cost = [&](const node_state& before, const node_state& after) -> std::int64_t {
      if constexpr (has_cost) return base::score().cost(before, after);
      return 0;
    };
    const auto found = suggested == nullptr
                           ? fit(nodes_, tree, node_level, gang, cost)
                           : fit(suggested_nodes(*suggested), tree, node_level, gang, cost);
    if (found.verdict == fit_verdict::fits) {
      plan.result = plan_result::bind;
      plan.placements.assign(found.placements.begin(), found.placements.end());
      plan.is_least_cost = has_cost && found.is_least;
    } else if (found.verdict == fit_verdict::budget_ended) {
      plan.reason = wait_reason::undecided;
    } else {
      plan.reason = each_task_fits_idle_node(gang) ? wait_reason::busy : wait_reason::never;
      plan.proof = fit.explain(gang);
    }
    return plan;
  }
  [[nodiscard]] bool each_task_fits_idle_node(const topology_constraints& gang) const {
    for (const constrained_task_group& m : gang.groups)
      if (m.tasks > 0 && !base::fits_idle_node(m.task())) return false;
    return true;
  }
  // Places the tasks one after the other in a cell of the level, the one with the fewest free GPUs
  // first. Empty if that succeeds in none.
  template <CellTree Tree>
  [[nodiscard]] std::vector<task_placement> place_in_one_cell(const topology_constraints& gang,
                                                              const Tree& tree, level_t node_level,
                                                              level_t level,
                                                              const summary_bitset* suggested) {
    std::uint64_t needed = 0;
    for (const constrained_task_group& m : gang.groups)
      needed += std::uint64_t{m.tasks} * m.task().total_gpu_milli();
    const auto counts = [&](cell_id n) {
      return nodes_[node_id(n.value)].healthy && (suggested == nullptr || suggested->test(n.value));
    };
    std::vector<keyed_number> cells;
    for (std::uint32_t c = 0; c < tree.cells(level).size(); ++c) {
      std::uint64_t free = 0;
      for (const cell_id n : detail::positions_inside(tree, level, c, node_level))
        if (counts(n)) free += nodes_[node_id(n.value)].total_gpu_left();
      if (free >= needed) cells.push_back({free, c});
    }
    keyed_number::sort(cells);
    summary_bitset in_cell(nodes_.size());
    for (const keyed_number& cell : cells) {
      const auto nodes = detail::positions_inside(tree, level, cell.number, node_level);
      for (const cell_id n : nodes)
        if (counts(n)) in_cell.set(n.value);
      std::vector<task_placement> placed = place_one_by_one(gang, &in_cell);
      if (!placed.empty()) return placed;
      for (const cell_id n : nodes) in_cell.reset(n.value);
    }
    return {};
  }
  // Places the tasks one after another, those with the most GPUs first. Empty if one does not fit.
  [[nodiscard]] std::vector<task_placement> place_one_by_one(const topology_constraints& gang,
                                                             const summary_bitset* suggested);
};

template <NodeScore Score>
auto gang_sharing_scheduler<Score>::create(node_table nodes, Score score)
    -> absl::StatusOr<gang_sharing_scheduler> {
  APIARY_RETURN_IF_ERROR(detail::check_nodes(nodes));
  APIARY_RETURN_IF_ERROR(detail::check_score(score));
  return gang_sharing_scheduler(std::move(nodes), std::move(score));
}

template <NodeScore Score>
absl::StatusOr<shared_gang_plan> gang_sharing_scheduler<Score>::propose(
    const topology_constraints& gang, std::uint64_t budget) {
  return propose(gang, uniform_tree{nodes_.size()}, 0, budget);
}

template <NodeScore Score>
absl::StatusOr<shared_gang_plan> gang_sharing_scheduler<Score>::propose(
    const topology_constraints& gang, const summary_bitset& suggested, std::uint64_t budget) {
  return propose(gang, uniform_tree{nodes_.size()}, 0, suggested, budget);
}

template <NodeScore Score>
absl::Status gang_sharing_scheduler<Score>::commit(job_id job, const topology_constraints& gang,
                                                   const shared_gang_plan& plan) {
  if (plan.result == plan_result::bind) return commit(job, gang, plan.placements);
  return absl::InvalidArgumentError(
      absl::StrCat(detail::name_of(job, "gang"), ": a plan to wait cannot be committed"));
}

template <NodeScore Score>
absl::Status gang_sharing_scheduler<Score>::commit(job_id job, const task_request& task,
                                                   const task_placement& added) {
  APIARY_RETURN_IF_ERROR(detail::check_task(task));
  if (!running_.is_gang(job)) return detail::no_such_gang(job, running_.contains(job));
  task_request one = task;
  one.job = job;
  if (!nodes_.contains(added.where.node)) return detail::no_such_node(job, added.where.node);
  if (!nodes_.is_free(one, added.where)) return detail::not_free(nodes_, one, added.where);
  if (!nodes_[added.where.node].healthy) return detail::is_bad(job, added.where.node);
  nodes_.place(one, added.where);
  running_.start({one, added.where, added.group}, true);
  placer_.update(nodes_, added.where.node);
  return absl::OkStatus();
}

template <NodeScore Score>
absl::Status gang_sharing_scheduler<Score>::check_placements(
    job_id job, const topology_constraints& gang, std::span<const task_placement> placements,
    bool all) const {
  APIARY_RETURN_IF_ERROR(detail::check_tasks(gang));
  if (!job.valid()) return absl::InvalidArgumentError("a gang to commit needs a job id");
  const auto wrong = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("gang ", job.value, what));
  };
  std::vector<std::uint32_t> missing;
  for (const constrained_task_group& m : gang.groups) missing.push_back(m.tasks);
  for (const task_placement& p : placements) {
    if (p.group >= missing.size() || missing[p.group]-- == 0)
      return wrong(absl::StrCat(": task group ", p.group, " has more placements than tasks"));
    if (!nodes_.contains(p.where.node)) return detail::no_such_node(job, p.where.node);
  }
  for (std::size_t m = 0; m < missing.size(); ++m) {
    if (all && missing[m] > 0)
      return wrong(
          absl::StrCat(": ", missing[m], " tasks of task group ", m, " have no placement"));
  }
  return placements.empty() ? wrong(" has no task") : absl::OkStatus();
}

template <NodeScore Score>
absl::Status gang_sharing_scheduler<Score>::start(job_id job, const topology_constraints& gang,
                                                  std::span<const task_placement> placements,
                                                  bool again) {
  APIARY_RETURN_IF_ERROR(check_placements(job, gang, placements, !again));
  if (running_.contains(job)) return detail::runs_already(job);
  journal log;
  transaction tx(log);
  for (const task_placement& p : placements) {
    const task_request task = request_of(job, gang, p);
    if (!nodes_.is_free(task, p.where)) return detail::not_free(nodes_, task, p.where);
    if (!again && !nodes_[p.where.node].healthy) return detail::is_bad(job, p.where.node);
    tx.place(nodes_, task, p.where);
  }
  tx.commit();
  for (const task_placement& p : placements) {
    running_.start({request_of(job, gang, p), p.where, p.group}, true);
    placer_.update(nodes_, p.where.node);
  }
  return absl::OkStatus();
}

template <NodeScore Score>
std::vector<task_placement> gang_sharing_scheduler<Score>::place_one_by_one(
    const topology_constraints& gang, const summary_bitset* suggested) {
  std::vector<std::uint32_t> order(gang.groups.size());
  for (std::uint32_t g = 0; g < order.size(); ++g) order[g] = g;
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return gang.groups[a].task().total_gpu_milli() > gang.groups[b].task().total_gpu_milli();
  });
  std::vector<task_placement> placements;
  journal log;
  transaction tx(log);
  bool all = true;
  for (std::size_t i = 0; i < order.size() && all; ++i) {
    const task_request task = gang.groups[order[i]].task();
    for (std::uint32_t t = 0; t < gang.groups[order[i]].tasks && all; ++t) {
      const std::optional<placement> where = base::place(task, suggested);
      all = where.has_value();
      if (!all) break;
      tx.place(nodes_, task, *where);
      placer_.update(nodes_, where->node);
      placements.push_back({order[i], *where});
    }
  }
  tx.rollback();
  for (const task_placement& p : placements) placer_.update(nodes_, p.where.node);
  if (!all) placements.clear();
  std::stable_sort(placements.begin(), placements.end(),
                   [](const auto& a, const auto& b) { return a.group < b.group; });
  return placements;
}

#ifdef APIARY_COMPILED
extern template class gang_sharing_scheduler<fragmentation_gradient>;
#endif

APIARY_NAMESPACE_END
