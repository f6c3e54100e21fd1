// apiary/philly/philly_fgd.h - Philly on FGD: gangs of whole GPUs and tasks that share GPUs on one cluster.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/server_pool.h>
#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gpu_sharing.h>
#include <apiary/fgd/node_score.h>
#include <apiary/model/job.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>
#include <apiary/philly/philly.h>

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

// A ServerPool whose nodes also run tasks that share GPUs. Node i is in rack i / servers_per_rack.
// A gang gets the fewest servers: all idle GPUs of the servers with the most, the rest on one more.
// Among equal servers the score chooses. For it, the GPUs of a gang on one server are a task.
//
// Cost: most_idle: O(servers of the result + GPUs of a server) steps of O(log64 servers). fit: the
//       same for each distinct number of GPUs that it takes from a server, and a score for each
//       server that changed since it last looked for so many; if the scheduler has replaced this
//       kind of task by another (see max_kinds), for each server. take, give and tasks: as
//       gpu_sharing_scheduler. Memory: 67 bytes for each server, besides the scheduler's.
template <NodeScore Score>
class gpu_sharing_pool {
 public:
  // The largest number of servers.
  static constexpr std::uint32_t max_servers = std::uint32_t{1} << 26;

  // A pool of these nodes. kInvalidArgument: as gpu_sharing_scheduler::create; more than
  // max_servers nodes; servers_per_rack is 0.
  [[nodiscard]] static absl::StatusOr<gpu_sharing_pool> create(node_table nodes,
                                                               std::uint32_t servers_per_rack,
                                                               Score score) {
    if (servers_per_rack == 0) return absl::InvalidArgumentError("a rack has 0 servers");
    if (nodes.size() > max_servers) {
      return absl::InvalidArgumentError(std::to_string(nodes.size()) + " nodes; the limit is " +
                                        std::to_string(max_servers));
    }
    APIARY_ASSIGN_OR_RETURN(
        auto tasks, gpu_sharing_scheduler<Score>::create(std::move(nodes), std::move(score)));
    return gpu_sharing_pool(std::move(tasks), servers_per_rack);
  }

  // As gpu_sharing_scheduler::propose. A task and a gang may have the same job id.
  [[nodiscard]] absl::StatusOr<task_plan> propose(const task_request& task) {
    return tasks_.propose(task);
  }
  // As gpu_sharing_scheduler::commit. kInvalidArgument also: an id from first_reserved() on.
  absl::Status commit(const task_request& task, const task_plan& plan) {
    if (plan.result == plan_result::wait) return tasks_.commit(task, plan);
    return commit(task, plan.where);
  }
  // Starts a task on these GPUs. Errors as above.
  absl::Status commit(const task_request& task, placement where) {
    if (task.job.valid() && task.job >= first_reserved()) {
      return absl::InvalidArgumentError("job " + std::to_string(task.job.value) +
                                        ": the id of a task must be below " +
                                        std::to_string(first_reserved().value));
    }
    if (!nodes().contains(where.node)) return tasks_.commit(task, where);
    return change(where.node, [&] { return tasks_.commit(task, where); });
  }
  // The task has ended. kNotFound: it does not run.
  absl::Status finish(job_id task) {
    const std::optional<placement> where =
        task < first_reserved() ? tasks_.find(task) : std::nullopt;
    if (!where) {
      return absl::NotFoundError(task.valid() ? detail::name_of(task) + " does not run"
                                              : detail::missing(task));
    }
    return change(where->node, [&] { return tasks_.finish(task); });
  }
  // Job ids from here on are reserved for the GPUs of gangs.
  [[nodiscard]] job_id first_reserved() const noexcept {
    return job_id(job_id().value - num_servers() * max_gpus_per_node);
  }
  // The scheduler inside; the GPUs of a gang on a server are a task there.
  [[nodiscard]] const gpu_sharing_scheduler<Score>& scheduler() const noexcept { return tasks_; }
  // The nodes and what is left of each.
  [[nodiscard]] const node_table& nodes() const noexcept { return tasks_.nodes(); }

  // The number of servers.
  [[nodiscard]] std::uint32_t num_servers() const noexcept { return nodes().size(); }
  // All servers.
  [[nodiscard]] id_range<node_id> servers() const noexcept { return nodes().ids(); }
  // The number of racks.
  [[nodiscard]] std::uint32_t num_racks() const noexcept {
    return static_cast<std::uint32_t>(racks_.size());
  }
  // The servers of a rack.
  [[nodiscard]] id_range<node_id> servers_of(std::uint32_t r) const noexcept {
    const std::uint32_t first = r * per_rack_;
    return {node_id(first), node_id(first + (std::min)(per_rack_, num_servers() - first))};
  }
  // The rack of a server.
  [[nodiscard]] std::uint32_t rack_of(node_id n) const noexcept { return n.value / per_rack_; }
  // GPUs of all servers.
  [[nodiscard]] std::uint32_t total() const noexcept {
    return static_cast<std::uint32_t>(nodes().total_gpus());
  }
  // GPUs of a rack.
  [[nodiscard]] std::uint32_t total(std::uint32_t r) const noexcept { return racks_[r].gpus; }
  // GPUs of a server.
  [[nodiscard]] std::uint32_t gpus(node_id n) const noexcept { return nodes().shape(n).gpus; }
  // Whether gangs may get GPUs of a server.
  [[nodiscard]] bool healthy(node_id n) const noexcept { return nodes()[n].healthy; }
  // GPUs of healthy servers.
  [[nodiscard]] std::uint32_t usable() const noexcept { return usable_; }
  // Unused GPUs of healthy servers.
  [[nodiscard]] std::uint32_t idle() const noexcept { return idle_; }
  // The same for one rack.
  [[nodiscard]] std::uint32_t idle(std::uint32_t r) const noexcept { return racks_[r].idle; }
  // The same for one server.
  [[nodiscard]] std::uint32_t idle(node_id n) const noexcept {
    return healthy(n) ? nodes()[n].free_gpus() : 0;
  }

  // The `most` servers of a range with the most unused GPUs, in that order; ties: the lowest id.
  [[nodiscard]] std::vector<node_id> most_idle(id_range<node_id> among, std::uint32_t most) const {
    std::vector<node_id> found;
    for (std::uint32_t k = max_gpus_per_node + 1; k-- > 0 && found.size() < most;) {
      std::uint32_t n = by_idle_[k].find_next(among.first.value);
      for (; n < among.last.value && found.size() < most; n = by_idle_[k].find_next(n + 1))
        found.push_back(node_id(n));
    }
    return found;
  }
  // A placement of so many GPUs on at most `most` servers of a range, ascending; empty: none.
  [[nodiscard]] job_placement fit(id_range<node_id> among, std::uint32_t gpus, std::uint32_t most) {
    std::array<std::uint32_t, max_gpus_per_node + 1> tasks{};  // of so many GPUs
    std::uint32_t left = gpus;
    job_placement where;
    for (std::uint32_t k = max_gpus_per_node; k > 0 && left > 0; --k) {
      std::uint32_t n = by_idle_[k].find_next(among.first.value);
      for (; n < among.last.value && left > 0; n = by_idle_[k].find_next(n + 1)) {
        if (most-- == 0) return where;
        const std::uint32_t task = (std::min)(left, k);
        ++tasks[task];
        left -= task;
      }
    }
    if (left > 0) return where;
    for (std::uint32_t k = max_gpus_per_node; k > 0; --k) {
      if (tasks[k] == 0) continue;
      const bool found = tasks_.place_apart(whole({}, k), among, tasks[k], where);
      APIARY_VERIFY(found);
    }
    std::sort(where.begin(), where.end(), [](placement a, placement b) { return a.node < b.node; });
    return where;
  }
  // k unused GPUs of a server. Requires: k <= idle(n).
  [[nodiscard]] placement pick_idle(node_id n, std::uint32_t k) const noexcept {
    return {n, nodes()[n].first_free_gpus(k)};
  }
  // Gives unused GPUs to a job, in addition to those that it has.
  void take(job_id job, std::span<const placement> where) {
    for (placement p : where) {
      std::uint32_t held = 0;
      for (std::uint32_t d = 0; d < gpus(p.node); ++d) {
        if (owner(p.node, d) == job) held |= std::uint32_t{1} << d;
      }
      if (held != 0) end_task({p.node, held});
      p.gpu_mask |= held;
      const task_request task = whole(task_id(p), p.num_gpus());
      APIARY_VERIFY(change(p.node, [&] { return tasks_.commit(task, p); }).ok());
      set_owner(p, job);
    }
  }
  // Frees the GPUs of a job on these servers.
  void give(std::span<const placement> where) {
    for (const placement& p : where) end_task(p);
  }
  // The job that has a GPU; not valid: none.
  [[nodiscard]] job_id owner(node_id n, std::uint32_t gpu) const noexcept {
    return owners_[n.value][gpu];
  }
  // Marks a server as healthy or bad.
  void set_health(node_id n, bool healthy_now) {
    if (healthy(n) == healthy_now) return;
    usable_ = healthy_now ? usable_ + gpus(n) : usable_ - gpus(n);
    const auto mark = [&] { return healthy_now ? tasks_.mark_healthy(n) : tasks_.mark_bad(n); };
    APIARY_VERIFY(change(n, mark).ok());
  }

 private:
  // Also finds nodes for the tasks of a gang.
  struct task_scheduler : gpu_sharing_scheduler<Score> {
    explicit task_scheduler(gpu_sharing_scheduler<Score> tasks)
        : gpu_sharing_scheduler<Score>(std::move(tasks)) {}
    // As kind_scores::place_apart.
    [[nodiscard]] bool place_apart(const task_request& task, id_range<node_id> among,
                                   std::uint32_t count, job_placement& where) {
      return this->placer_.place_apart(this->nodes_, task, among, count, where);
    }
  };
  struct rack {
    std::uint32_t gpus = 0;
    std::uint32_t idle = 0;
  };

  gpu_sharing_pool(gpu_sharing_scheduler<Score> tasks, std::uint32_t per_rack)
      : tasks_(std::move(tasks)), per_rack_(per_rack), owners_(num_servers()) {
    racks_.resize((num_servers() - 1) / per_rack_ + 1);
    for (summary_bitset& members : by_idle_) members = summary_bitset(num_servers());
    for (const node_id n : servers()) {
      rack& r = racks_[rack_of(n)];
      r.gpus += gpus(n);
      r.idle += idle(n);
      idle_ += idle(n);
      by_idle_[idle(n)].set(n.value);
      if (healthy(n)) usable_ += gpus(n);
    }
  }

  [[nodiscard]] static task_request whole(job_id id, std::uint32_t gpus) noexcept {
    return {.job = id, .gpus = gpus, .gpu_milli = whole_gpu};
  }
  // Different for each group of GPUs: no two have the same first GPU of a server.
  [[nodiscard]] job_id task_id(const placement& p) const noexcept {
    const auto gpu = static_cast<std::uint32_t>(std::countr_zero(p.gpu_mask));
    return job_id(first_reserved().value + p.node.value * max_gpus_per_node + gpu);
  }
  void end_task(const placement& p) {
    APIARY_VERIFY(change(p.node, [&] { return tasks_.finish(task_id(p)); }).ok());
    set_owner(p, {});
  }
  void set_owner(const placement& p, job_id job) noexcept {
    for (std::uint32_t mask = p.gpu_mask; mask != 0; mask &= mask - 1)
      owners_[p.node.value][static_cast<std::size_t>(std::countr_zero(mask))] = job;
  }
  // Calls by(), which changes a server, and updates what depends on its idle GPUs.
  template <class Change>
  absl::Status change(node_id n, Change&& by) {
    const std::uint32_t before = idle(n);
    absl::Status status = by();
    idle_ = idle_ - before + idle(n);
    rack& r = racks_[rack_of(n)];
    r.idle = r.idle - before + idle(n);
    by_idle_[before].reset(n.value);
    by_idle_[idle(n)].set(n.value);
    return status;
  }

  task_scheduler tasks_;
  std::uint32_t per_rack_;
  std::vector<std::array<job_id, max_gpus_per_node>> owners_;  // by server and GPU
  std::vector<rack> racks_;
  std::array<summary_bitset, max_gpus_per_node + 1> by_idle_;  // servers; bad ones have no idle GPU
  std::uint32_t usable_ = 0;
  std::uint32_t idle_ = 0;
};
static_assert(ServerPool<gpu_sharing_pool<fragmentation_gradient>>);

// Philly on FGD. FGD decides which GPUs gangs and tasks get; Philly decides which gang starts,
// collects or is preempted. The host submits tasks: they have no quota and are never preempted.
//
//   using pool = gpu_sharing_pool<fragmentation_gradient>;
//   auto p = philly_fgd::create({.quotas = {64, 64}},
//                               pool::create(nodes, 4, fragmentation_gradient(metric)).value());
//   p->use_pool([&](pool& shared) { return shared.commit(task, shared.propose(task).value()); });
//
// Cost:    as philly, and fit() of the pool: it scores the servers that have changed.
// Example: examples/philly_fgd.cpp
using philly_fgd = philly_scheduler<gpu_sharing_pool<fragmentation_gradient>>;

static_assert(JobScheduler<philly_fgd>);

APIARY_NAMESPACE_END
