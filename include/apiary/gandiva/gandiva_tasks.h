// apiary/gandiva/gandiva_tasks.h - time slices and migration for tasks that share GPUs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/dense_map.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/fgd/node_score.h>
#include <apiary/gandiva/time_sharing.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

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
namespace detail {

// A task and where it runs.
struct placed_task {
  task_request task{};
  placement where{};
};
// A migration of one task.
struct fragmentation_migration {
  std::size_t task = 0;    // its index
  placement to{};          // another node, or other devices of its own
  std::uint64_t gain = 0;  // W * (F of the cluster before - after), above 0
  friend bool operator==(const fragmentation_migration&, const fragmentation_migration&) = default;
};

// Finds the migration of one task that lowers the cluster's fragmentation F most for each GPU of
// the task. For each kind of task it keeps the gain on every node, and updates the nodes that
// changed.
// Model:    migration as in "Gandiva" (OSDI 2018), §3.2, with the measure of "Beware of
//           Fragmentation" (USENIX ATC 2023), §3, instead of free GPUs by server.
// Requires: the same nodes at each call; update() after each change of one. W < 2^32.
// Cost:     best O((tasks + kinds * changed nodes) * GPUs of a node + kinds * nodes).
class fragmentation_migrations {
 public:
  explicit fragmentation_migrations(fragmentation metric) : metric_(std::move(metric)) {}
  [[nodiscard]] const fragmentation& metric() const noexcept { return metric_; }
  // Node n has changed.
  void update(node_id n) {
    if (!kinds_.empty()) changes_.push_back(n);
  }
  // The migration that gains most for each GPU of its task (a task without GPUs counts as one), if
  // that is more than `cost` thousandths. Ties go to the first task, then node, then device.
  [[nodiscard]] std::optional<fragmentation_migration> best(const node_table& nodes,
                                                            std::span<const placed_task> tasks,
                                                            std::uint32_t cost) {
    if (changes_.size() > nodes.size()) {  // a fresh start costs no more
      kinds_.clear();
      changes_.clear();
    }
    ++round_;
    std::optional<fragmentation_migration> found;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      const task_request& task = tasks[i].task;
      const placement at = tasks[i].where;
      const node_state left = with(nodes[at.node], task, at.gpu_mask, false);
      const auto leaving = static_cast<std::int64_t>(metric_.weighted(nodes[at.node])) -
                           static_cast<std::int64_t>(metric_.weighted(left));
      entry to = enter(left, at.node, task);  // its own node without it
      const kind& k = refresh(nodes, task);
      const entry& other = k.best[0].where.node == at.node ? k.best[1] : k.best[0];
      if (other.gain > to.gain || (other.gain == to.gain && other.where.node < to.where.node))
        to = other;
      if (to.gain == no_fit || leaving + to.gain <= 0) continue;
      const fragmentation_migration move{i, to.where,
                                         static_cast<std::uint64_t>(leaving + to.gain)};
      if (pays(move.gain, task, cost) &&
          (!found || move.gain * gpus(tasks[found->task].task) > found->gain * gpus(task)))
        found = move;
    }
    return found;
  }

 private:
  static constexpr std::int64_t no_fit = INT64_MIN;
  struct entry {
    std::int64_t gain = no_fit;  // W * (F before - F with the task)
    placement where{};
  };
  struct kind {
    dense_map<node_id, entry> entries{};  // 24 bytes a node
    std::size_t seen = 0;                 // changes
    std::uint64_t round = 0;              // in which `best` was found
    entry best[2]{};                      // on two nodes
  };
  using kind_key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, milli_gpu, model_set>;
  // Thousandths of GPUs that count as migrated.
  [[nodiscard]] static std::uint64_t gpus(const task_request& task) noexcept {
    return task.wants_gpu() ? task.total_gpu_milli() : whole_gpu;
  }
  [[nodiscard]] bool pays(std::uint64_t gain, const task_request& task, std::uint32_t cost) const {
    const std::uint64_t unit = metric_.total_weight() * gpus(task);
    const std::uint64_t whole = gain * 1000 / unit;
    return whole > cost || (whole == cost && gain * 1000 % unit > 0);
  }
  // The node after the task has been placed there, or removed.
  [[nodiscard]] static node_state with(const node_state& before, const task_request& task,
                                       std::uint32_t mask, bool taken) noexcept {
    node_state node = before;
    node.change(task, mask, taken);
    return node;
  }
  // The devices of this node where the task gains most.
  [[nodiscard]] entry enter(const node_state& node, node_id n, const task_request& task) const {
    entry best;
    if (!node.fits(task)) return best;
    const auto before = static_cast<std::int64_t>(metric_.weighted(node));
    const auto consider = [&](std::uint32_t mask) {
      const std::int64_t gain =
          before - static_cast<std::int64_t>(metric_.weighted(with(node, task, mask, true)));
      if (gain > best.gain) best = {gain, {n, mask}};
    };
    if (!task.wants_part_of_gpu()) {
      consider(task.wants_gpu() ? node.first_free_gpus(task.gpus) : 0);
      return best;
    }
    for (std::uint32_t i = 0; i < node.gpus; ++i) {
      bool seen = false;  // devices with the same amount left gain the same
      for (std::uint32_t j = 0; j < i; ++j) seen = seen || node.gpu_left[j] == node.gpu_left[i];
      if (!seen && node.gpu_left[i] >= task.gpu_milli) consider(std::uint32_t{1} << i);
    }
    return best;
  }
  const kind& refresh(const node_table& nodes, const task_request& task) {
    kind_key key{task.cpu_milli, task.memory_mib, 0, 0, any_model};
    if (task.wants_gpu())
      key = {task.cpu_milli, task.memory_mib, task.gpus, task.gpu_milli, task.models};
    kind& k = kinds_[key];
    if (k.round == round_) return k;
    k.round = round_;
    if (k.entries.empty()) {
      k.entries.resize(nodes.size());
      for (const node_id n : nodes.ids()) k.entries[n] = enter(nodes[n], n, task);
    } else {
      for (; k.seen < changes_.size(); ++k.seen) {
        const node_id n = changes_[k.seen];
        k.entries[n] = enter(nodes[n], n, task);
      }
    }
    k.seen = changes_.size();
    k.best[0] = k.best[1] = entry();
    for (const entry& e : k.entries) {
      if (e.gain > k.best[0].gain) {
        k.best[1] = k.best[0];
        k.best[0] = e;
      } else if (e.gain > k.best[1].gain) {
        k.best[1] = e;
      }
    }
    return k;
  }

  fragmentation metric_;
  std::map<kind_key, kind> kinds_;
  std::vector<node_id> changes_;  // in order
  std::uint64_t round_ = 0;       // calls of best
};

}  // namespace detail

// A placer of tasks that may use fractions of a GPU, by a node score. All tasks run in time slices;
// with a quantum of `max_time` no task stops for another. A decision makes the migrations that
// lower the cluster's fragmentation most for each GPU of the task, until no migration gains enough
// or the limit time_sharing_options::migration_limits::jobs is reached.
// Model: "Gandiva" (OSDI 2018), §3.2; "Beware of Fragmentation" (USENIX ATC 2023).
// Cost:  propose, commit, finish as gpu_sharing_scheduler; to find a migration or that there is
//        none O((tasks + kinds * changed nodes) * GPUs of a node + kinds * nodes).
template <NodeScore Score>
class gpu_sharing_task_placer {
 public:
  using request = task_request;                 // a task
  using placement_type = placement;             // node and GPUs of a task
  using running_request = detail::placed_task;  // see BestMigrationPlacer
  // See Placer. A task that ends may leave more whole GPUs than it had, so `gpus` is always 0.
  struct kind {
    std::uint32_t gpus = 0;
    std::uint32_t cpu_milli = 0;
    std::uint32_t memory_mib = 0;
    std::uint32_t num_gpus = 0;
    milli_gpu gpu_milli = 0;
    model_set models = any_model;
    friend auto operator<=>(const kind&, const kind&) noexcept = default;
  };
  // metric: the measure that migrations lower. Requires: nothing runs on the scheduler's nodes.
  gpu_sharing_task_placer(gpu_sharing_scheduler<Score> scheduler, fragmentation metric)
      : scheduler_(std::move(scheduler)), migrations_(std::move(metric)) {
    for (const node_id n : scheduler_.nodes().ids()) idle_ += idle_on(n);
  }
  // The scheduler that places the tasks.
  [[nodiscard]] const gpu_sharing_scheduler<Score>& scheduler() const noexcept {
    return scheduler_;
  }

  // See Placer.
  [[nodiscard]] static kind kind_of(const task_request& r) noexcept {
    if (!r.wants_gpu()) return {.cpu_milli = r.cpu_milli, .memory_mib = r.memory_mib};
    return {0, r.cpu_milli, r.memory_mib, r.gpus, r.gpu_milli, r.models};
  }
  // kInvalidArgument: a task that is not valid.
  [[nodiscard]] absl::Status check(const task_request& r) { return scheduler_.propose(r).status(); }
  // See Placer.
  [[nodiscard]] absl::StatusOr<std::optional<placement>> propose(const task_request& r) {
    APIARY_ASSIGN_OR_RETURN(const task_plan plan, scheduler_.propose(r));
    if (plan.result == plan_result::wait) return std::nullopt;
    return plan.where;
  }
  // See Placer. A task of a node that is bad now may run on there.
  [[nodiscard]] absl::Status commit(const task_request& r, placement where) {
    return change(where.node, [&] { return scheduler_.recover(r, where); });
  }
  // See Placer.
  [[nodiscard]] absl::Status finish(job_id job) {
    const std::optional<placement> where = scheduler_.find(job);
    if (!where) return scheduler_.finish(job);
    return change(where->node, [&] { return scheduler_.finish(job); });
  }
  // See Placer.
  [[nodiscard]] absl::Status mark_bad(node_id n) {
    return change(n, [&] { return scheduler_.mark_bad(n); });
  }
  // See Placer.
  [[nodiscard]] absl::Status mark_healthy(node_id n) {
    return change(n, [&] { return scheduler_.mark_healthy(n); });
  }
  // See Placer.
  [[nodiscard]] std::vector<job_id> jobs_on(node_id n) const { return scheduler_.jobs_on(n); }
  // GPUs of healthy nodes that no task uses.
  [[nodiscard]] std::uint32_t idle_gpus() const noexcept { return idle_; }
  // All GPUs, including those of bad nodes.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept {
    return static_cast<std::uint32_t>(scheduler_.nodes().total_gpus());
  }
  // See BestMigrationPlacer.
  [[nodiscard]] std::optional<detail::fragmentation_migration> best_migration(
      std::span<const detail::placed_task> tasks, std::uint32_t cost) {
    return migrations_.best(scheduler_.nodes(), tasks, cost);
  }

 private:
  [[nodiscard]] std::uint32_t idle_on(node_id n) const noexcept {
    const node_table& nodes = scheduler_.nodes();
    return nodes.contains(n) && nodes[n].healthy ? nodes[n].free_gpus() : 0;
  }
  // Calls apply(), which changes node n.
  template <class F>
  [[nodiscard]] absl::Status change(node_id n, F&& apply) {
    const std::uint32_t before = idle_on(n);
    APIARY_RETURN_IF_ERROR(apply());
    idle_ += idle_on(n) - before;
    migrations_.update(n);
    return absl::OkStatus();
  }

  gpu_sharing_scheduler<Score> scheduler_;
  detail::fragmentation_migrations migrations_;
  std::uint32_t idle_ = 0;
};

// Gandiva for tasks that share GPUs, placed by FGD. For jobs of whole GPUs see gandiva_fgd.
//
//   const fragmentation metric(mix);
//   gandiva_tasks::create({fgd::create(nodes, fragmentation_gradient(metric)).value(), metric},
//                       {.quantum = max_time, .migrations = {.jobs = 8, .cost = 100}})
//
// Example: examples/gandiva_tasks.cpp
using gandiva_tasks = time_sharing<gpu_sharing_task_placer<fragmentation_gradient>>;
static_assert(BestMigrationPlacer<gpu_sharing_task_placer<fragmentation_gradient>>);
APIARY_NAMESPACE_END
