// apiary/fgd/gpu_sharing_placer.h - places jobs of whole GPUs, or tasks, by a node score.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/core/status.h>
#include <apiary/fgd/detail/fragmentation_migrations.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gang_sharing.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/fgd/node_score.h>
#include <apiary/gang/shared_gpu_fit.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/model/job.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/placer.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>
#include <apiary/model/server_spec.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A placer that uses a node score, for example FGD's. A job that fits on some server is one task. A
// larger job is a gang: tasks as large as the smallest server with GPUs, and one with the rest.
// Cost: propose, commit, finish as gang_sharing_scheduler, but propose O(1) for a gang whose tasks
//       have no idle servers.
template <NodeScore Score>
class gpu_sharing_placer : public job_placer_types {
 public:
  // A placer for an idle cluster; spec.anywhere and spec.servers_per_rack are not used.
  // kInvalidArgument: as spec.check(), or no server has a GPU.
  [[nodiscard]] static absl::StatusOr<gpu_sharing_placer> create(const server_spec& spec,
                                                                 Score score) {
    APIARY_RETURN_IF_ERROR(spec.check());
    node_table nodes;
    for (const std::uint32_t gpus : spec.gpus) nodes.add({.gpus = gpus});
    if (nodes.total_gpus() == 0) return absl::InvalidArgumentError("the servers have no GPUs");
    APIARY_ASSIGN_OR_RETURN(
        auto scheduler, gang_sharing_scheduler<Score>::create(std::move(nodes), std::move(score)));
    return gpu_sharing_placer(std::move(scheduler));
  }

  // kInvalidArgument: the job does not fit in an idle, healthy cluster.
  [[nodiscard]] absl::Status check(const job_request& r) const {
    const std::uint32_t tasks = r.gpus / task_;
    const std::uint32_t rest = r.gpus % task_;
    const bool fits = r.gpus <= largest_ ||
                      (tasks + (rest > 0 ? 1 : 0) <= gang_sharing_scheduler<Score>::max_tasks &&
                       (tasks < whole_tasks_ || (tasks == whole_tasks_ && rest <= largest_rest_)));
    if (r.gpus > 0 && fits) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(detail::name_of(r.job), " requests ", r.gpus,
                     " GPUs; it does not fit even into the idle cluster"));
  }
  // Where the job would run; nullopt: not now, or the budget ended. kInvalidArgument: as check(r).
  [[nodiscard]] absl::StatusOr<std::optional<job_placement>> propose(const job_request& r) {
    APIARY_RETURN_IF_ERROR(check(r));
    if (r.gpus > idle_) return std::nullopt;
    if (r.gpus <= largest_) {
      APIARY_ASSIGN_OR_RETURN(const task_plan plan, scheduler_.propose(task(r.job, r.gpus)));
      if (plan.result == plan_result::wait) return std::nullopt;
      return job_placement{plan.where};
    }
    if (r.gpus / task_ > free_tasks_) return std::nullopt;
    topology_constraints gang;
    gang.groups.push_back({.tasks = r.gpus / task_, .gpus = task_});
    if (r.gpus % task_ != 0) gang.groups.push_back({.tasks = 1, .gpus = r.gpus % task_});
    APIARY_ASSIGN_OR_RETURN(const shared_gang_plan plan, scheduler_.propose(gang));
    if (plan.result == plan_result::wait) return std::nullopt;
    std::map<node_id, std::uint32_t> masks;
    for (const task_placement& p : plan.placements) masks[p.where.node] |= p.where.gpu_mask;
    job_placement where;
    for (const auto& [node, mask] : masks) where.push_back({node, mask});
    return where;
  }
  // The job runs at `where`, which may name a server more than once. kAlreadyExists: the job runs.
  // kInvalidArgument: no job id, or another number of GPUs than the job wants. kNotFound: no such
  // server. kAborted: the GPUs are not idle.
  [[nodiscard]] absl::Status commit(const job_request& r, const job_placement& where) {
    std::uint32_t gpus = 0;
    for (const placement& p : where) gpus += p.num_gpus();
    if (gpus != r.gpus || gpus == 0) {
      return absl::InvalidArgumentError(absl::StrCat(detail::name_of(r.job), " requests ", r.gpus,
                                                     " GPUs; the placement has ", gpus));
    }
    return change(where, [&] {
      if (where.size() == 1) return scheduler_.commit(task(r.job, gpus), where[0]);
      topology_constraints gang;
      std::vector<task_placement> tasks;
      for (const placement& p : where) {
        tasks.push_back({static_cast<std::uint32_t>(gang.groups.size()), p});
        gang.groups.push_back({.tasks = 1, .gpus = p.num_gpus()});
      }
      return scheduler_.commit(r.job, gang, tasks);
    });
  }
  // The job has ended. kNotFound: it does not run.
  [[nodiscard]] absl::Status finish(job_id job) {
    job_placement where;
    for (const auto& t : scheduler_.tasks_of(job)) where.push_back(t.where);
    return change(where, [&] { return scheduler_.finish(job); });
  }

  // The server gets no new job; its jobs continue. kNotFound: there is no such server.
  [[nodiscard]] absl::Status mark_bad(node_id n) {
    return change({{n, 0}}, [&] { return scheduler_.mark_bad(n); });
  }
  // The server gets new jobs again. kNotFound: there is no such server.
  [[nodiscard]] absl::Status mark_healthy(node_id n) {
    return change({{n, 0}}, [&] { return scheduler_.mark_healthy(n); });
  }
  // The jobs on the server, ascending.
  [[nodiscard]] std::vector<job_id> jobs_on(node_id n) const { return scheduler_.jobs_on(n); }
  // Idle GPUs on healthy servers.
  [[nodiscard]] std::uint32_t idle_gpus() const noexcept { return idle_; }
  // All GPUs, including those on bad servers.
  [[nodiscard]] std::uint32_t total_gpus() const noexcept {
    return static_cast<std::uint32_t>(scheduler_.nodes().total_gpus());
  }
  // The scheduler inside.
  [[nodiscard]] const gang_sharing_scheduler<Score>& scheduler() const noexcept {
    return scheduler_;
  }

 private:
  explicit gpu_sharing_placer(gang_sharing_scheduler<Score> scheduler)
      : scheduler_(std::move(scheduler)), idle_(total_gpus()) {
    const node_table& nodes = scheduler_.nodes();
    for (const node_id n : nodes.ids()) {
      const std::uint32_t gpus = nodes.shape(n).gpus;
      largest_ = (std::max)(largest_, gpus);
      if (gpus > 0) task_ = (std::min)(task_, gpus);
    }
    for (const node_id n : nodes.ids()) {
      whole_tasks_ += nodes.shape(n).gpus / task_;
      largest_rest_ = (std::max)(largest_rest_, nodes.shape(n).gpus % task_);
    }
    free_tasks_ = whole_tasks_;
  }
  [[nodiscard]] static task_request task(job_id job, std::uint32_t gpus) noexcept {
    return {.job = job, .gpus = gpus, .gpu_milli = whole_gpu};
  }
  // Calls apply(), which changes these servers. They may be named more than once.
  template <class F>
  [[nodiscard]] absl::Status change(const job_placement& where, F&& apply) {
    std::vector<node_id> servers;
    for (const placement& p : where) servers.push_back(p.node);
    detail::sort_unique(servers);
    count(servers, ~0U);
    const absl::Status done = apply();
    count(servers, 1);
    return done;
  }
  // Counts the idle GPUs of the healthy ones among these servers, and their tasks.
  void count(const std::vector<node_id>& servers, std::uint32_t times) {
    for (const node_id n : servers) {
      if (!scheduler_.nodes().contains(n) || !scheduler_.nodes()[n].healthy) continue;
      const std::uint32_t free = scheduler_.nodes()[n].free_gpus();
      idle_ += times * free;
      free_tasks_ += times * (free / task_);
    }
  }

  gang_sharing_scheduler<Score> scheduler_;
  std::uint32_t largest_ = 0;               // GPUs of the largest server
  std::uint32_t task_ = max_gpus_per_node;  // GPUs of a task of a gang
  std::uint32_t whole_tasks_ = 0;           // the most such tasks in an idle cluster
  std::uint32_t largest_rest_ = 0;          // the most GPUs of one server that are left beside them
  std::uint32_t free_tasks_ = 0;  // the most such tasks on the idle GPUs of healthy servers
  std::uint32_t idle_ = 0;
};

// A placer of tasks that may use fractions of a GPU, by a node score. It finds the migration that
// lowers the cluster's fragmentation most for each GPU of the task.
// Model: "Gandiva" (OSDI 2018), §3.2; "Beware of Fragmentation" (USENIX ATC 2023).
// Cost:  propose, commit, finish as gpu_sharing_scheduler; to find a migration or that there is
//        none O((tasks + kinds * changed nodes) * GPUs of a node + kinds * nodes).
template <NodeScore Score>
class gpu_sharing_task_placer {
 public:
  using request = task_request;                    // a task
  using placement_type = placement;                // node and GPUs of a task
  using running_request = detail::placed_request;  // see BestMigrationPlacer
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
      std::span<const detail::placed_request> tasks, std::uint32_t cost) {
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

static_assert(JobPlacer<gpu_sharing_placer<fragmentation_gradient>>);
static_assert(BestMigrationPlacer<gpu_sharing_task_placer<fragmentation_gradient>>);

APIARY_NAMESPACE_END
