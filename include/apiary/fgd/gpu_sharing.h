// apiary/fgd/gpu_sharing.h - a scheduler for tasks that share GPUs, with any node score.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/fgd/detail/errors.h>
#include <apiary/fgd/detail/kind_scores.h>
#include <apiary/fgd/detail/running_tasks.h>
#include <apiary/fgd/node_score.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#ifdef APIARY_COMPILED
#include <apiary/fgd/fragmentation_gradient.h>
#endif

APIARY_NAMESPACE_BEGIN

// Places each task on the node with the best score for it. The scheduler knows which task runs
// where, and which nodes are bad. Nodes may join, leave and change while tasks run. A call with a
// wrong argument returns an error and changes nothing. A task that does not fit now has a plan to
// wait, no error. fgd/gang_sharing.h adds gangs.
//
// Requires: no concurrent calls: propose() updates cached scores.
// Cost:     propose: one score for each node that changed since the last task of this kind, then
//           O(log64 nodes). max_kinds kinds of request are cached, about one byte for each node and
//           kind; another kind scans all nodes once. A task that waits costs O(bad nodes
//           + shapes of nodes that differ in more than memory) more. If nodes lack memory for a
//           task, one step for each of them with a better score.
//           commit, finish, mark_bad, mark_healthy: O(GPUs of a node) and a hash look-up.
//           add_node, remove_node, resize_node: the same, amortized.
// Example:  examples/own_policy.cpp
template <NodeScore Score>
class gpu_sharing_scheduler {
 public:
  // A running task: its request, where it runs and, in a gang, its task group.
  using running_task = detail::running_task;
  // The number of request kinds with cached scores.
  static constexpr std::uint32_t max_kinds = detail::kind_scores<Score>::max_kinds;

  // A scheduler for these nodes. What `nodes` shows as used stays used.
  // kInvalidArgument: no node, a node whose shape is not valid(), or with more left than its shape
  // has. Also the error of score.check(): an empty task mix.
  [[nodiscard]] static absl::StatusOr<gpu_sharing_scheduler> create(node_table nodes, Score score);

  // Where the task would run, or why it waits. Changes no placement. Does not check whether the job
  // runs already: commit() does. kInvalidArgument: not valid().
  [[nodiscard]] absl::StatusOr<task_plan> propose(const task_request& task) {
    return decide(task, nullptr);
  }
  // The same on the nodes in `suggested` only. kInvalidArgument also: not one bit for each node.
  [[nodiscard]] absl::StatusOr<task_plan> propose(const task_request& task,
                                                  const summary_bitset& suggested) {
    return decide(task, &suggested);
  }

  // Applies a plan to bind: the task runs at plan.where.
  // kInvalidArgument: the plan is to wait. Otherwise as commit(task, where).
  absl::Status commit(const task_request& task, const task_plan& plan);
  // The task runs at `where`, which the host chose. kInvalidArgument: the task is not valid() or
  // has no job id. kAlreadyExists: the job runs. kNotFound: no such node. kAborted: the GPUs, CPU
  // or memory are not free, or the node is bad.
  absl::Status commit(const task_request& task, placement where) {
    return start(task, where, false);
  }
  // As commit(task, where), but the node may be bad: after a restart, for a task that still runs.
  absl::Status recover(const task_request& task, placement where) {
    return start(task, where, true);
  }

  // The task has ended; its GPUs, CPU and memory are free again. kNotFound: it does not run.
  absl::Status finish(job_id job) {
    if (running_.finish(job, release())) return absl::OkStatus();
    return detail::does_not_run(job);
  }

  // A bad node gets no new task; its tasks continue. kNotFound: there is no such node.
  absl::Status mark_bad(node_id n) { return set_health(n, false); }
  // The node gets new tasks again. kNotFound: there is no such node.
  absl::Status mark_healthy(node_id n) { return set_health(n, true); }
  // Adds a node. Returns its id: the lowest one that no node has.
  // kInvalidArgument: the shape is not valid().
  absl::StatusOr<node_id> add_node(const node_shape& shape);
  // Removes a node. Its id may be given to another node later. What create() got as used on the
  // node and no commit accounts for is forgotten. kNotFound: there is no such node.
  // kFailedPrecondition: tasks run on it; the message lists their jobs. End them first.
  absl::Status remove_node(node_id n);
  // Changes the GPUs, CPU and memory of a node; its tasks continue. kNotFound: there is no such
  // node. kInvalidArgument: too many GPUs. kFailedPrecondition: tasks use more.
  absl::Status resize_node(node_id n, std::uint32_t gpus, resources host);
  // Replaces the score, for example because the typical tasks have changed. Tasks and cached kinds
  // stay; the next propose() for each kind scores all nodes. Error: that of score.check().
  absl::Status set_score(Score score);

  // Why the task waits, as a text for its user: "never: " and the limit that its request exceeds,
  // or "not now: " and what the nodes of each GPU model lack that could run it. Empty if it fits
  // now. kInvalidArgument: not valid(). Cost: O(nodes).
  [[nodiscard]] absl::StatusOr<std::string> explain(const task_request& task) const {
    return why(task, nullptr);
  }
  // The same for propose(task, suggested): it also counts the nodes that could run the task but are
  // not suggested. kInvalidArgument also: not one bit for each node.
  [[nodiscard]] absl::StatusOr<std::string> explain(const task_request& task,
                                                    const summary_bitset& suggested) const {
    return why(task, &suggested);
  }
  // The nodes and what is left of each. It keeps the ids of nodes that were removed.
  [[nodiscard]] const node_table& nodes() const noexcept { return nodes_; }
  // The score that chooses among nodes.
  [[nodiscard]] const Score& score() const noexcept { return placer_.score(); }
  // The number of running jobs. A gang is one job.
  [[nodiscard]] std::size_t num_running() const noexcept { return running_.num_jobs(); }
  // Where the task runs; nullopt if it does not run.
  [[nodiscard]] std::optional<placement> find(job_id job) const { return running_.find(job); }
  // The running tasks of the job, in the order of its placements; empty if it does not run.
  [[nodiscard]] std::vector<running_task> tasks_of(job_id job) const {
    return running_.tasks_of(job);
  }
  // All running jobs, ascending. Cost: O(jobs log jobs).
  [[nodiscard]] std::vector<job_id> jobs() const { return running_.jobs(); }
  // The jobs on a node, also on a bad one, ascending; empty if there is no such node.
  [[nodiscard]] std::vector<job_id> jobs_on(node_id n) const {
    return nodes_.contains(n) ? running_.jobs_on(n) : std::vector<job_id>();
  }

 protected:
  // All nodes as they are in the table.
  gpu_sharing_scheduler(node_table nodes, Score score);

  // Where the task would run now; nullopt if nowhere. Requires: the task is valid().
  [[nodiscard]] std::optional<placement> place(const task_request& task,
                                               const summary_bitset* suggested);
  // Whether some node could run the task if it were idle and healthy.
  [[nodiscard]] bool fits_idle_node(const task_request& task) const noexcept {
    return task.memory_mib <= shapes_.most_memory_for(task);
  }
  // A function that frees what a running task uses.
  [[nodiscard]] auto release() noexcept {
    return [this](const detail::running_task& ended) {
      nodes_.remove(ended.request, ended.where);
      placer_.update(nodes_, ended.where.node);
    };
  }

  node_table nodes_;                   // the free resources
  detail::kind_scores<Score> placer_;  // scores the nodes
  detail::running_tasks running_;      // where they are used

 private:
  // How many nodes of a cluster have which shape. Nodes that differ only in memory have one shape
  // here, with the number of nodes for each amount of memory. A cluster has few such shapes, so
  // what it could run if it were idle is known without a scan of its nodes.
  //
  // Cost: add, remove: O(log shapes + log amounts of memory). most_memory_for: O(shapes).
  class shape_counts {
   public:
    // The shapes of all nodes.
    explicit shape_counts(const node_table& nodes) {
      for (const node_id n : nodes.ids())
        if (nodes.contains(n)) add(nodes.shape(n));
    }

    // One more node has the shape.
    void add(const node_shape& shape) { ++nodes_with_[key_of(shape)][shape.host.memory_mib]; }
    // One node less has it. Requires: a node has it.
    void remove(const node_shape& shape) {
      const auto found = nodes_with_.find(key_of(shape));
      APIARY_ASSERT(found != nodes_with_.end());
      const auto nodes = found->second.find(shape.host.memory_mib);
      APIARY_ASSERT(nodes != found->second.end());
      if (--nodes->second > 0) return;
      found->second.erase(nodes);
      if (found->second.empty()) nodes_with_.erase(found);
    }
    // The most memory of the nodes that could run the task, but for its memory, if they were idle
    // and healthy; -1: there is none.
    [[nodiscard]] std::int64_t most_memory_for(task_request task) const noexcept {
      task.memory_mib = 0;
      std::int64_t most = -1;
      for (const auto& [its, nodes_with] : nodes_with_) {
        const node_shape shape{{.cpu_milli = its[0]}, its[1], static_cast<gpu_model>(its[2])};
        if (shape.fits(task)) most = (std::max)(most, std::int64_t{nodes_with.rbegin()->first});
      }
      return most;
    }

   private:
    using key = std::array<std::uint32_t, 3>;  // CPU, GPUs, model

    [[nodiscard]] static key key_of(const node_shape& shape) noexcept {
      return {shape.host.cpu_milli, shape.gpus, shape.model};
    }

    std::map<key, std::map<std::uint32_t, std::uint32_t>> nodes_with_{};  // by amount of memory
  };

  // Orders a heap with the lowest id first.
  static constexpr auto later = [](node_id a, node_id b) { return a > b; };

  // OK, or the error of propose() and explain().
  [[nodiscard]] absl::Status check(const task_request& task,
                                   const summary_bitset* suggested) const {
    APIARY_RETURN_IF_ERROR(detail::check_task(task));
    return suggested == nullptr ? absl::OkStatus()
                                : detail::check_suggested(*suggested, nodes_.size());
  }
  [[nodiscard]] absl::StatusOr<std::string> why(const task_request& task,
                                                const summary_bitset* suggested) const;
  [[nodiscard]] absl::StatusOr<task_plan> decide(const task_request& task,
                                                 const summary_bitset* suggested);
  [[nodiscard]] wait_reason reason_to_wait(const task_request& task,
                                           const summary_bitset* suggested) {
    if (!fits_idle_node(task)) return wait_reason::never;
    for (std::uint32_t n = bad_.find_first(); n != summary_bitset::npos;
         n = bad_.find_next(n + 1)) {
      if (suggested != nullptr && !suggested->test(n)) continue;
      if (nodes_[node_id(n)].fits_if_healthy(task)) return wait_reason::unhealthy;
    }
    if (suggested != nullptr && placer_.fits_somewhere(nodes_, task))
      return wait_reason::not_suggested;
    return wait_reason::busy;
  }

  // Starts the task at `where`, also on a bad node if `on_bad`.
  absl::Status start(const task_request& task, placement where, bool on_bad);
  absl::Status set_health(node_id n, bool healthy) {
    if (!nodes_.contains(n)) return detail::no_such_node(n);
    if (nodes_[n].healthy == healthy) return absl::OkStatus();
    nodes_[n].healthy = healthy;
    bad_.assign(n.value, !healthy);
    placer_.update(nodes_, n);
    return absl::OkStatus();
  }

  shape_counts shapes_;
  summary_bitset bad_;             // nodes
  std::vector<node_id> free_ids_;  // of removed nodes, a heap
};

template <NodeScore Score>
auto gpu_sharing_scheduler<Score>::create(node_table nodes, Score score)
    -> absl::StatusOr<gpu_sharing_scheduler> {
  APIARY_RETURN_IF_ERROR(detail::check_nodes(nodes));
  APIARY_RETURN_IF_ERROR(detail::check_score(score));
  return gpu_sharing_scheduler(std::move(nodes), std::move(score));
}

template <NodeScore Score>
absl::Status gpu_sharing_scheduler<Score>::commit(const task_request& task, const task_plan& plan) {
  if (plan.result == plan_result::bind) return commit(task, plan.where);
  return absl::InvalidArgumentError(
      absl::StrCat(detail::name_of(task.job), ": a plan to wait cannot be committed"));
}

template <NodeScore Score>
absl::StatusOr<node_id> gpu_sharing_scheduler<Score>::add_node(const node_shape& shape) {
  APIARY_RETURN_IF_ERROR(detail::check_shape("a node that joins", shape));
  shapes_.add(shape);
  if (!free_ids_.empty()) {
    std::pop_heap(free_ids_.begin(), free_ids_.end(), later);
    const node_id n = free_ids_.back();
    free_ids_.pop_back();
    nodes_.insert(n, shape);
    placer_.update(nodes_, n);
    return n;
  }
  const node_id n = nodes_.add(shape);
  placer_.add(nodes_, n);
  running_.add_node();
  if (n.value >= bad_.size()) bad_.grow(n.value + n.value / 8 + 1);
  return n;
}

template <NodeScore Score>
absl::Status gpu_sharing_scheduler<Score>::remove_node(node_id n) {
  if (!nodes_.contains(n)) return detail::no_such_node(n);
  if (!running_.idle(n)) return detail::in_use(n, running_.jobs_on(n));
  shapes_.remove(nodes_.shape(n));
  nodes_.erase(n);
  bad_.reset(n.value);
  placer_.update(nodes_, n);
  free_ids_.push_back(n);
  std::push_heap(free_ids_.begin(), free_ids_.end(), later);
  return absl::OkStatus();
}

template <NodeScore Score>
absl::Status gpu_sharing_scheduler<Score>::resize_node(node_id n, std::uint32_t gpus,
                                                       resources host) {
  if (!nodes_.contains(n)) return detail::no_such_node(n);
  const node_shape before = nodes_.shape(n);
  const node_shape shape{host, gpus, before.model};
  APIARY_RETURN_IF_ERROR(detail::check_shape(absl::StrCat("node ", n.value), shape));
  if (!nodes_.can_resize(n, shape)) return detail::uses_more(nodes_, n, shape);
  shapes_.add(shape);
  shapes_.remove(before);
  nodes_.resize(n, shape);
  placer_.update(nodes_, n);
  return absl::OkStatus();
}

template <NodeScore Score>
absl::Status gpu_sharing_scheduler<Score>::set_score(Score score) {
  APIARY_RETURN_IF_ERROR(detail::check_score(score));
  placer_.set_score(nodes_, std::move(score));
  return absl::OkStatus();
}

template <NodeScore Score>
gpu_sharing_scheduler<Score>::gpu_sharing_scheduler(node_table nodes, Score score)
    : nodes_(std::move(nodes)),
      placer_(nodes_, std::move(score)),
      running_(nodes_.size()),
      shapes_(nodes_),
      bad_(nodes_.size()) {
  for (const node_id n : nodes_.ids()) {  // ascending ids are a heap
    if (!nodes_.contains(n)) free_ids_.push_back(n);
    bad_.assign(n.value, nodes_.contains(n) && !nodes_[n].healthy);
  }
}

template <NodeScore Score>
std::optional<placement> gpu_sharing_scheduler<Score>::place(const task_request& task,
                                                             const summary_bitset* suggested) {
  return placer_.place(nodes_, task, suggested);
}

template <NodeScore Score>
absl::StatusOr<std::string> gpu_sharing_scheduler<Score>::why(
    const task_request& task, const summary_bitset* suggested) const {
  APIARY_RETURN_IF_ERROR(check(task, suggested));
  return detail::explain_task(nodes_, task, suggested);
}

template <NodeScore Score>
absl::StatusOr<task_plan> gpu_sharing_scheduler<Score>::decide(const task_request& task,
                                                               const summary_bitset* suggested) {
  APIARY_RETURN_IF_ERROR(check(task, suggested));
  if (const std::optional<placement> where = place(task, suggested))
    return task_plan{.result = plan_result::bind, .where = *where};
  return task_plan{.result = plan_result::wait, .reason = reason_to_wait(task, suggested)};
}

template <NodeScore Score>
absl::Status gpu_sharing_scheduler<Score>::start(const task_request& task, placement where,
                                                 bool on_bad) {
  APIARY_RETURN_IF_ERROR(detail::check_task(task));
  if (!task.job.valid()) return absl::InvalidArgumentError("a task to commit needs a job id");
  if (!nodes_.contains(where.node)) return detail::no_such_node(task.job, where.node);
  if (running_.contains(task.job)) return detail::runs_already(task.job);
  if (!nodes_.is_free(task, where)) return detail::not_free(nodes_, task, where);
  if (!on_bad && !nodes_[where.node].healthy) return detail::is_bad(task.job, where.node);
  running_.start({task, where}, false);
  nodes_.place(task, where);
  placer_.update(nodes_, where.node);
  return absl::OkStatus();
}

#ifdef APIARY_COMPILED
extern template class gpu_sharing_scheduler<fragmentation_gradient>;
#endif

APIARY_NAMESPACE_END
