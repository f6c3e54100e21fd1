// apiary/fgd/detail/running_tasks.h - the running tasks of a cluster, by job and by node.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/model/placement.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A running task: the only one of its job, or one of the tasks of a gang.
struct running_task {
  task_request request{};   // with the id of its job
  placement where{};        // where it runs
  std::uint32_t group = 0;  // its task group, if the job is a gang
};

// Which tasks run, in a list for each job and in a list for each node.
//
// Requires: nodes are below the number of calls of add_node().
// Cost:     start: O(1) and a hash look-up. finish: O(tasks of the job) and a hash look-up.
//           finish_one, find_one, count_on: O(tasks of the node). Others: in proportion to their
//           result, or O(1). Memory: 64 bytes for each task, 8 for each node, and a map of the
//           jobs.
class running_tasks {
 public:
  // No tasks, and so many nodes.
  explicit running_tasks(std::uint32_t nodes) : on_node_(nodes) {}
  // Adds the next node.
  void add_node() { on_node_.emplace_back(); }

  // Whether the job runs.
  [[nodiscard]] bool contains(job_id job) const { return jobs_.contains(job.value); }
  // The number of running jobs. A gang is one job.
  [[nodiscard]] std::size_t num_jobs() const noexcept { return jobs_.size(); }
  // Whether no task runs on the node.
  [[nodiscard]] bool idle(node_id n) const noexcept { return on_node_[n.value].first == none; }

  // Starts a task: the only one of its job, or one more of a gang.
  void start(const running_task& task, bool in_gang) {
    std::uint32_t t = free_;
    if (t == none) {
      t = static_cast<std::uint32_t>(tasks_.size());
      tasks_.emplace_back();
    } else {
      free_ = tasks_[t].links[of_job].after;
    }
    tasks_[t].task = task;
    job_tasks& its = jobs_[task.request.job.value];
    its.is_gang = in_gang;
    append(its.tasks, of_job, t);
    append(on_node_[task.where.node.value], of_node, t);
  }
  // Ends all tasks of the job; calls ended(task) for each. Returns whether it ran.
  template <class Ended>
  bool finish(job_id job, const Ended& ended) {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return false;
    for (std::uint32_t t = found->second.tasks.first; t != none;) {
      const std::uint32_t next = tasks_[t].links[of_job].after;
      ended(tasks_[t].task);
      erase(found->second.tasks, t);
      t = next;
    }
    jobs_.erase(found);
    return true;
  }
  // Ends one task of a gang, in this task group and at this placement; calls ended(task). The gang
  // ends with its last task. Returns whether there was such a task.
  template <class Ended>
  bool finish_one(job_id job, std::uint32_t group, placement where, const Ended& ended) {
    const std::uint32_t t = index_of(job, group, where);
    if (t == none) return false;
    const auto found = jobs_.find(job.value);
    ended(tasks_[t].task);
    erase(found->second.tasks, t);
    if (found->second.tasks.first == none) jobs_.erase(found);
    return true;
  }

  // Where the only task of the job runs; nullopt if the job does not run or is a gang.
  [[nodiscard]] std::optional<placement> find(job_id job) const {
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end() || found->second.is_gang) return std::nullopt;
    return tasks_[found->second.tasks.first].task.where;
  }
  // Whether the job runs and is a gang.
  [[nodiscard]] bool is_gang(job_id job) const {
    const auto found = jobs_.find(job.value);
    return found != jobs_.end() && found->second.is_gang;
  }
  // A task of a gang, in this task group and at this placement; nullptr if there is none.
  [[nodiscard]] const running_task* find_one(job_id job, std::uint32_t group,
                                             placement where) const {
    const std::uint32_t t = index_of(job, group, where);
    return t == none ? nullptr : &tasks_[t].task;
  }
  // How many tasks of the job run on the node.
  [[nodiscard]] std::uint32_t count_on(job_id job, node_id n) const {
    std::uint32_t count = 0;
    for (std::uint32_t t = on_node_[n.value].first; t != none; t = tasks_[t].links[of_node].after)
      if (tasks_[t].task.request.job == job) ++count;
    return count;
  }
  // The tasks of the job, in the order of their start; empty if it does not run.
  [[nodiscard]] std::vector<running_task> tasks_of(job_id job) const {
    std::vector<running_task> result;
    const auto found = jobs_.find(job.value);
    if (found == jobs_.end()) return result;
    for (std::uint32_t t = found->second.tasks.first; t != none; t = tasks_[t].links[of_job].after)
      result.push_back(tasks_[t].task);
    return result;
  }
  // The jobs with a task on the node, ascending.
  [[nodiscard]] std::vector<job_id> jobs_on(node_id n) const {
    std::vector<job_id> result;
    for (std::uint32_t t = on_node_[n.value].first; t != none; t = tasks_[t].links[of_node].after)
      result.push_back(tasks_[t].task.request.job);
    sort_unique(result);
    return result;
  }
  // All jobs, ascending.
  [[nodiscard]] std::vector<job_id> jobs() const {
    std::vector<job_id> result;
    result.reserve(jobs_.size());
    for (const auto& [job, its] : jobs_) result.emplace_back(job);
    std::sort(result.begin(), result.end());
    return result;
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  enum list_kind : std::size_t { of_job, of_node };

  // The first and the last task of a list; none: it is empty.
  struct list {
    std::uint32_t first = none;
    std::uint32_t last = none;
  };
  struct link {
    std::uint32_t before = none;
    std::uint32_t after = none;
  };
  struct record {
    running_task task{};
    std::array<link, 2> links{};  // in the list of its job, and of its node
  };
  struct job_tasks {
    list tasks{};
    bool is_gang = false;
  };

  // The number of a task of a gang; none if there is none.
  [[nodiscard]] std::uint32_t index_of(job_id job, std::uint32_t group, placement where) const {
    if (!is_gang(job) || where.node.value >= on_node_.size()) return none;
    for (std::uint32_t t = on_node_[where.node.value].first; t != none;
         t = tasks_[t].links[of_node].after) {
      const running_task& task = tasks_[t].task;
      if (task.request.job == job && task.group == group && task.where == where) return t;
    }
    return none;
  }
  void append(list& to, list_kind kind, std::uint32_t t) noexcept {
    tasks_[t].links[kind] = {to.last, none};
    (to.last == none ? to.first : tasks_[to.last].links[kind].after) = t;
    to.last = t;
  }
  void remove(list& from, list_kind kind, std::uint32_t t) noexcept {
    const link gone = tasks_[t].links[kind];
    (gone.before == none ? from.first : tasks_[gone.before].links[kind].after) = gone.after;
    (gone.after == none ? from.last : tasks_[gone.after].links[kind].before) = gone.before;
  }
  void erase(list& of_its_job, std::uint32_t t) noexcept {
    remove(of_its_job, of_job, t);
    remove(on_node_[tasks_[t].task.where.node.value], of_node, t);
    tasks_[t].links[of_job].after = free_;
    free_ = t;
  }

  std::vector<record> tasks_;
  std::uint32_t free_ = none;  // the first of the records that are not in use
  std::unordered_map<std::uint32_t, job_tasks> jobs_;
  std::vector<list> on_node_;
};

}  // namespace detail
APIARY_NAMESPACE_END
