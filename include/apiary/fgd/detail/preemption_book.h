// apiary/fgd/detail/preemption_book.h - which jobs run, preempt and may be evicted on shared GPUs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/core/status.h>
#include <apiary/fgd/detail/errors.h>
#include <apiary/fgd/detail/running_tasks.h>
#include <apiary/fgd/detail/victim_index.h>
#include <apiary/fgd/gang_sharing.h>
#include <apiary/fgd/node_score.h>
#include <apiary/fgd/preemption_plan.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A job that has reserved resources, and waits until its victims have ended.
struct preempting_job {
  std::vector<running_task> tasks{};  // its tasks, where they will run
  std::vector<job_id> victims{};      // that still run, ascending
  eviction_terms terms{};             // of the job
  std::uint64_t lower_bound = 0;      // when the victims were chosen
};

// Whether two requests ask for the same.
[[nodiscard]] inline bool same_request(const task_request& a, const task_request& b) noexcept {
  return a.host() == b.host() && a.gpus == b.gpus &&
         (!a.wants_gpu() || (a.gpu_milli == b.gpu_milli && a.models == b.models));
}
// Whether tasks are equal, in the same order and at the same placements.
[[nodiscard]] inline bool same_tasks(const std::vector<running_task>& a,
                                     const std::vector<running_task>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const running_task& x, const running_task& y) {
        return x.group == y.group && x.where == y.where && same_request(x.request, y.request);
      });
}
// Whether the tasks are those of the gang.
[[nodiscard]] inline bool same_requests(const std::vector<running_task>& tasks,
                                        const topology_constraints& gang) {
  std::vector<std::uint32_t> missing;
  for (const constrained_task_group& g : gang.groups) missing.push_back(g.tasks);
  for (const running_task& t : tasks) {
    if (t.group >= missing.size() || missing[t.group]-- == 0) return false;
    if (!same_request(t.request, gang.groups[t.group].task())) return false;
  }
  return std::all_of(missing.begin(), missing.end(), [](std::uint32_t n) { return n == 0; });
}

// "it can start on node 3 when jobs 4 and 7 have been preempted". Names at most eight jobs.
// Requires: the plan of a task is to preempt.
[[nodiscard]] inline std::string explain_victims(const preemption_plan& plan, bool reserved) {
  const std::size_t jobs = plan.victims.size();
  const std::size_t named = jobs <= 8 ? jobs : 7;
  std::string text = absl::StrCat("it can start on node ", plan.placements[0].where.node.value,
                                  jobs == 1 ? " when job " : " when jobs ");
  for (std::size_t i = 0; i < named; ++i)
    absl::StrAppend(&text, i == 0 ? "" : i + 1 == jobs ? " and " : ", ", plan.victims[i].value);
  if (named < jobs) absl::StrAppend(&text, " and ", jobs - named, " more");
  absl::StrAppend(&text, jobs == 1 ? " has" : " have", " been preempted");
  return text + (plan.cost == plan.lower_bound && !reserved ? "; no other choice costs less" : "");
}
// kInvalidArgument: a plan to wait is committed.
[[nodiscard]] inline absl::Status waits(const std::string& name) {
  return absl::InvalidArgumentError(name + ": a plan to wait cannot be committed");
}
// kInvalidArgument: the job has reserved resources for another request or at other placements.
[[nodiscard]] inline absl::Status has_reserved(job_id job) {
  return absl::InvalidArgumentError(
      name_of(job) + " has reserved resources for another request or placement; finish it first");
}
// kFailedPrecondition: victims of a preempting job still run.
[[nodiscard]] inline absl::Status victims_run(job_id job, const std::vector<job_id>& victims) {
  std::string list;
  for (const job_id victim : victims)
    absl::StrAppend(&list, list.empty() ? "" : ", ", victim.value);
  return absl::FailedPreconditionError(
      absl::StrCat(name_of(job), ": victims still run: ", list, "; finish them first"));
}
// kFailedPrecondition: a preempting job has reserved resources of a node that is to change.
[[nodiscard]] inline absl::Status is_reserved(node_id n) {
  return absl::FailedPreconditionError(
      absl::StrCat("a preempting job has reserved resources of node ", n.value));
}

// A gang scheduler of which the nodes may be changed without a job: for reservations, and to try
// evictions.
template <NodeScore Score>
struct open_scheduler : gang_sharing_scheduler<Score> {
  using base = gang_sharing_scheduler<Score>;

  open_scheduler(node_table nodes, Score score) : base(std::move(nodes), std::move(score)) {}

  using base::check_placements;
  using base::nodes_;
  using base::place;
  using base::placer_;
  using base::request_of;
  using base::running_;
};

// Keeps what preemptive_sharing_scheduler knows of jobs: where they run, their terms, what they
// have reserved, and which of them may be evicted.
template <NodeScore Score>
class preemption_book {
 public:
  // Hides reserved resources in a node table: a node with reservations shows what would be left if
  // the tasks with the reservations ran beside all running ones, and 0 where that is less than
  // nothing. It keeps what is really left.
  //
  // Requires: tasks start and end on the node table first, and then here; the table's nodes with
  //           reservations do not leave or change.
  // Cost:     O(GPUs of a node) and a hash look-up for each call.
  class reserved_nodes {
   public:
    // Whether a task has a reservation on the node.
    [[nodiscard]] bool contains(node_id n) const { return nodes_.contains(n.value); }

    // Reserves resources for a task.
    void reserve(node_table& table, const task_request& task, placement where) {
      auto [found, is_new] = nodes_.try_emplace(where.node.value);
      if (is_new) found->second.left = left_of(table[where.node]);
      change(found->second, task, where, true);
      hide(table, where.node);
    }
    // Takes reserve() back.
    void release(node_table& table, const task_request& task, placement where) {
      const auto found = nodes_.find(where.node.value);
      APIARY_ASSERT(found != nodes_.end());
      change(found->second, task, where, false);
      hide(table, where.node);
      if (found->second.tasks == 0) nodes_.erase(found);
    }
    // Shows what is really left on the node until hide().
    void show(node_table& table, node_id n) const {
      const auto found = nodes_.find(n.value);
      if (found == nodes_.end()) return;
      table[n].left = found->second.left.host;
      for (std::uint32_t i = 0; i < max_gpus_per_node; ++i)
        table[n].gpu_left[i] = static_cast<milli_gpu>(found->second.left.gpus[i]);
    }
    // Hides what is reserved on the node.
    void hide(node_table& table, node_id n) const {
      const auto found = nodes_.find(n.value);
      if (found == nodes_.end()) return;
      const amounts& left = found->second.left;
      const amounts& held = found->second.held;
      table[n].left = {above(left.host.cpu_milli, held.host.cpu_milli),
                       above(left.host.memory_mib, held.host.memory_mib)};
      for (std::uint32_t i = 0; i < max_gpus_per_node; ++i)
        table[n].gpu_left[i] = static_cast<milli_gpu>(above(left.gpus[i], held.gpus[i]));
    }
    // A task has started on what the table shows as left; or, after show(), on what is really left.
    void started(const task_request& task, placement where) {
      const auto found = nodes_.find(where.node.value);
      if (found == nodes_.end()) return;
      found->second.left.host -= task.host();
      add_gpus(found->second.left, task, where, false);
    }
    // A task has ended, and the table has got back what it used.
    void ended(node_table& table, const task_request& task, placement where) {
      const auto found = nodes_.find(where.node.value);
      if (found == nodes_.end()) return;
      found->second.left.host += task.host();
      add_gpus(found->second.left, task, where, true);
      hide(table, where.node);
    }

   private:
    struct amounts {
      resources host{};
      std::array<std::uint32_t, max_gpus_per_node> gpus{};  // thousandths
    };
    struct node {
      amounts left{};           // really
      amounts held{};           // by reservations
      std::uint32_t tasks = 0;  // with reservations
    };

    [[nodiscard]] static std::uint32_t above(std::uint32_t left, std::uint32_t held) noexcept {
      return left > held ? left - held : 0;
    }
    [[nodiscard]] static amounts left_of(const node_state& state) noexcept {
      amounts result{state.left, {}};
      for (std::uint32_t i = 0; i < max_gpus_per_node; ++i) result.gpus[i] = state.gpu_left[i];
      return result;
    }
    static void add_gpus(amounts& to, const task_request& task, placement where,
                         bool more) noexcept {
      for (std::uint32_t mask = where.gpu_mask; mask != 0; mask &= mask - 1) {
        std::uint32_t& gpu = to.gpus[static_cast<std::uint32_t>(std::countr_zero(mask))];
        gpu = more ? gpu + task.gpu_milli : gpu - task.gpu_milli;
      }
    }
    static void change(node& here, const task_request& task, placement where, bool more) noexcept {
      more ? here.held.host += task.host() : here.held.host -= task.host();
      add_gpus(here.held, task, where, more);
      here.tasks = more ? here.tasks + 1 : here.tasks - 1;
    }

    std::unordered_map<std::uint32_t, node> nodes_{};
  };

  // The preempting jobs, and the victims of each. A job is the victim of at most one.
  //
  // Cost: a hash look-up for each job and victim.
  class preempting_jobs {
   public:
    // The preempting job; null if it is not preempting.
    [[nodiscard]] const preempting_job* find(job_id job) const {
      const auto found = jobs_.find(job.value);
      return found == jobs_.end() ? nullptr : &found->second;
    }
    // Whether a running job is a victim.
    [[nodiscard]] bool is_victim(job_id job) const { return preemptor_of_.contains(job.value); }
    // The number of preempting jobs.
    [[nodiscard]] std::size_t size() const noexcept { return jobs_.size(); }

    // Adds a preempting job. Requires: its victims are no victims yet.
    void add(job_id job, preempting_job its) {
      for (const job_id victim : its.victims) preemptor_of_.emplace(victim.value, job);
      jobs_.emplace(job.value, std::move(its));
    }
    // Removes a preempting job; its victims are no victims any more. Requires: it is preempting.
    void remove(job_id job) {
      const auto found = jobs_.find(job.value);
      for (const job_id victim : found->second.victims) preemptor_of_.erase(victim.value);
      jobs_.erase(found);
    }
    // A job has ended. Returns whether it was a victim.
    bool ended(job_id job) {
      const auto found = preemptor_of_.find(job.value);
      if (found == preemptor_of_.end()) return false;
      erase_sorted(jobs_.find(found->second.value)->second.victims, job);
      preemptor_of_.erase(found);
      return true;
    }

   private:
    std::unordered_map<std::uint32_t, preempting_job> jobs_{};
    std::unordered_map<std::uint32_t, job_id> preemptor_of_{};  // by victim
  };

  // The sum of the eviction costs of all jobs is below this.
  static constexpr std::uint64_t max_total_cost = (std::uint64_t{1} << 63) - 1;

  preemption_book(node_table nodes, Score score)
      : gangs_(std::move(nodes), std::move(score)), index_(this->nodes().size()) {}

  // Where jobs run. A job starts there by start(); added() and ended() follow what changes there.
  [[nodiscard]] open_scheduler<Score>& gangs() noexcept { return gangs_; }
  [[nodiscard]] const open_scheduler<Score>& gangs() const noexcept { return gangs_; }
  // The nodes; what is reserved counts as used.
  [[nodiscard]] const node_table& nodes() const noexcept { return gangs_.nodes_; }
  // The jobs that wait for their victims.
  [[nodiscard]] const preempting_jobs& preempting() const noexcept { return preempting_; }
  // Whether a preempting job has reserved something of the node.
  [[nodiscard]] bool is_reserved(node_id n) const { return reserved_.contains(n); }

  // What a preempting job does now.
  [[nodiscard]] preemption_plan waiting_plan(const preempting_job& its) const {
    preemption_plan plan{.result = its.victims.empty() ? plan_result::bind : plan_result::preempt,
                         .victims = its.victims};
    for (const job_id victim : its.victims) plan.cost += cost_of(victim);
    plan.lower_bound = (std::min)(plan.cost, its.lower_bound);
    for (const running_task& t : its.tasks) {
      if (!gangs_.nodes_[t.where.node].healthy) return {.reason = wait_reason::unhealthy};
      plan.placements.push_back({t.group, t.where});
    }
    return plan;
  }

  // Starts a job with begin(): a new one, or a preempting one whose victims have ended.
  template <class Begin>
  absl::Status start(job_id job, const std::vector<running_task>& tasks,
                     const eviction_terms& terms, const Begin& begin) {
    const preempting_job* its = preempting_.find(job);
    if (its != nullptr) {
      if (!its->victims.empty()) return victims_run(job, its->victims);
      if (!same_tasks(its->tasks, tasks)) return has_reserved(job);
      for (const running_task& t : tasks) reserved_.show(gangs_.nodes_, t.where.node);
    }
    absl::Status status = check_cost(job, terms.cost, its == nullptr ? 0 : its->terms.cost);
    if (status.ok()) status = begin();
    if (status.ok()) {
      for (const running_task& t : tasks) reserved_.started(t.request, t.where);
      total_cost_ += terms.cost - (its == nullptr ? 0 : its->terms.cost);
      if (its != nullptr) preempting_.remove(job);
      std::vector<node_id> on;
      for (const running_task& t : tasks) on.push_back(t.where.node);
      sort_unique(on);
      spanning_jobs_ += on.size() > 1 ? 1U : 0U;
      known_.emplace(job.value, known_job{terms, static_cast<std::uint32_t>(on.size())});
      add_candidate(job);
    }
    for (const running_task& t : tasks) {
      if (its == nullptr || !gangs_.nodes_.contains(t.where.node)) continue;
      if (status.ok()) {
        reserved_.release(gangs_.nodes_, t.request, t.where);
      } else {
        reserved_.hide(gangs_.nodes_, t.where.node);
      }
      touch(t.where.node);
    }
    return status;
  }
  // Reserves the placements of a plan to preempt.
  absl::Status reserve(job_id job, std::vector<running_task> tasks, const preemption_plan& plan,
                       const eviction_terms& terms) {
    if (!job.valid()) return absl::InvalidArgumentError("a job to commit needs a job id");
    if (gangs_.running_.contains(job)) return runs_already(job);
    if (preempting_.find(job) != nullptr)
      return absl::AlreadyExistsError(absl::StrCat(name_of(job), " is preempting already"));
    APIARY_RETURN_IF_ERROR(check_cost(job, terms.cost, 0));
    std::vector<job_id> victims = plan.victims;
    sort_unique(victims);
    for (const job_id victim : victims) {
      const auto found = known_.find(victim.value);
      if (found == known_.end() || preempting_.is_victim(victim))
        return absl::AbortedError(absl::StrCat(name_of(job), ": ", name_of(victim),
                                               found == known_.end()
                                                   ? " does not run any more"
                                                   : " is already a victim of another job"));
      if (found->second.terms.priority >= terms.priority)
        return absl::InvalidArgumentError(
            absl::StrCat(name_of(job), " of priority ", terms.priority, " cannot evict ",
                         name_of(victim), " of priority ", found->second.terms.priority));
    }
    APIARY_RETURN_IF_ERROR(check_free(job, tasks, victims));
    for (const running_task& t : tasks) {
      reserved_.reserve(gangs_.nodes_, t.request, t.where);
      touch(t.where.node);
    }
    for (const job_id victim : victims) remove_candidate(victim);
    total_cost_ += terms.cost;
    preempting_.add(job, {std::move(tasks), std::move(victims), terms, plan.lower_bound});
    return absl::OkStatus();
  }
  // Takes reserve() back.
  void cancel(job_id job) {
    const preempting_job cancelled = *preempting_.find(job);
    preempting_.remove(job);
    for (const running_task& t : cancelled.tasks) {
      reserved_.release(gangs_.nodes_, t.request, t.where);
      touch(t.where.node);
    }
    for (const job_id victim : cancelled.victims) add_candidate(victim);
    total_cost_ -= cancelled.terms.cost;
  }
  // The running gang has one more task.
  void added(running_task task, job_id job) {
    task.request.job = job;
    known_job& its = known_.find(job.value)->second;
    if (gangs_.running_.count_on(job, task.where.node) == 1 && ++its.nodes == 2) ++spanning_jobs_;
    reserved_.started(task.request, task.where);
    if (!preempting_.is_victim(job))
      index_.add(task.request, task.where, its.terms.priority, its.terms.cost);
    touch(task.where.node);
  }
  // These tasks of the job have ended; running_ and nodes_ know it.
  void ended(job_id job, const std::vector<running_task>& tasks) {
    const auto found = known_.find(job.value);
    for (const running_task& t : tasks) {
      reserved_.ended(gangs_.nodes_, t.request, t.where);
      if (!preempting_.is_victim(job))
        index_.remove(t.request, t.where, found->second.terms.priority);
      touch(t.where.node);
    }
    known_job& its = found->second;
    if (gangs_.running_.contains(job)) {
      for (const running_task& t : tasks)
        if (gangs_.running_.count_on(job, t.where.node) == 0 && --its.nodes == 1) --spanning_jobs_;
      return;
    }
    preempting_.ended(job);
    total_cost_ -= its.terms.cost;
    spanning_jobs_ -= its.nodes > 1 ? 1U : 0U;
    known_.erase(found);
  }
  // Changes the cost of evicting a running job.
  absl::Status set_cost(job_id job, std::uint64_t cost) {
    const auto found = known_.find(job.value);
    if (found == known_.end()) return does_not_run(job);
    APIARY_RETURN_IF_ERROR(check_cost(job, cost, found->second.terms.cost));
    const bool is_victim = preempting_.is_victim(job);
    if (!is_victim) remove_candidate(job);
    total_cost_ += cost - found->second.terms.cost;
    found->second.terms.cost = cost;
    if (!is_victim) add_candidate(job);
    return absl::OkStatus();
  }
  // The health of a node has changed.
  void health_changed(node_id n) { index_.touch(n); }
  // A node has another shape, is new, or has left.
  void shape_changed(node_id n) {
    if (n.value == index_.size()) index_.add_node();
    index_.touch(n);
  }
  // No node has more GPUs. Cost: O(nodes).
  [[nodiscard]] std::uint32_t most_gpus() const noexcept {
    std::uint32_t most = 0;
    for (const node_id n : nodes().ids()) most = (std::max)(most, nodes().shape(n).gpus);
    return most;
  }

  // Whether a job has tasks on several nodes.
  [[nodiscard]] bool some_span_nodes() const noexcept { return spanning_jobs_ > 0; }
  // The running tasks of a job.
  [[nodiscard]] std::vector<running_task> tasks_of(job_id job) const {
    return gangs_.running_.tasks_of(job);
  }
  // What the eviction of a running job costs.
  [[nodiscard]] std::uint64_t cost_of(job_id job) const {
    return known_.find(job.value)->second.terms.cost;
  }
  // Calls visit(job, cost) for each running job that a job of this priority may evict.
  template <class Visit>
  void for_each_evictable(std::uint32_t priority, const Visit& visit) const {
    for (const auto& [id, its] : known_)
      if (its.terms.priority < priority && !preempting_.is_victim(job_id(id)))
        visit(job_id(id), its.terms.cost);
  }

  // Where the task would run now, without victims.
  [[nodiscard]] std::optional<placement> place(const task_request& task,
                                               const summary_bitset* suggested) {
    return gangs_.place(task, suggested);
  }
  // Where the gang would run now, without victims, by a search of so many steps.
  [[nodiscard]] absl::StatusOr<shared_gang_plan> propose(const topology_constraints& gang,
                                                         const summary_bitset* suggested,
                                                         std::uint64_t steps) {
    return suggested == nullptr ? gangs_.propose(gang, steps)
                                : gangs_.propose(gang, *suggested, steps);
  }
  // The jobs that may be evicted.
  [[nodiscard]] victim_index& evictable() noexcept { return index_; }

  // In a search for victims, a task uses the nodes, until vacate().
  void occupy(const running_task& task) {
    gangs_.nodes_.place(task.request, task.where);
    touch(task.where.node);
  }
  // Takes occupy() back.
  void vacate(const running_task& task) {
    gangs_.nodes_.remove(task.request, task.where);
    touch(task.where.node);
  }
  // The tasks of a running job leave the nodes, in a search for victims. Returns how many.
  std::size_t try_without(job_id victim) {
    remove_candidate(victim);
    const std::vector<running_task> tasks = gangs_.running_.tasks_of(victim);
    for (const running_task& t : tasks) vacate(t);
    return tasks.size();
  }
  // Takes try_without() back if the nodes have enough left. Returns whether they have.
  bool fits_again(job_id victim) {
    const std::vector<running_task> tasks = gangs_.running_.tasks_of(victim);
    std::size_t placed = 0;
    while (placed < tasks.size() &&
           gangs_.nodes_.is_free(tasks[placed].request, tasks[placed].where)) {
      gangs_.nodes_.place(tasks[placed].request, tasks[placed].where);
      ++placed;
    }
    if (placed < tasks.size()) {
      while (placed-- > 0) gangs_.nodes_.remove(tasks[placed].request, tasks[placed].where);
      return false;
    }
    for (const running_task& t : tasks) touch(t.where.node);
    add_candidate(victim);
    return true;
  }

 private:
  // What is known of a running job.
  struct known_job {
    eviction_terms terms{};
    std::uint32_t nodes = 0;  // on which it has tasks
  };

  // A node has changed.
  void touch(node_id n) {
    gangs_.placer_.update(nodes(), n);
    index_.touch(n);
  }
  // A running job may be evicted from now on.
  void add_candidate(job_id job) {
    const eviction_terms& terms = known_.find(job.value)->second.terms;
    for (const running_task& t : gangs_.running_.tasks_of(job))
      index_.add(t.request, t.where, terms.priority, terms.cost);
  }
  // A running job may not be evicted any more.
  void remove_candidate(job_id job) {
    const std::uint32_t priority = known_.find(job.value)->second.terms.priority;
    for (const running_task& t : gangs_.running_.tasks_of(job))
      index_.remove(t.request, t.where, priority);
  }
  // OK if the job, which had the cost `before`, may have this cost.
  [[nodiscard]] absl::Status check_cost(job_id job, std::uint64_t cost,
                                        std::uint64_t before) const {
    const std::uint64_t others = total_cost_ - before;
    if (cost < max_total_cost - others) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(name_of(job), ": an eviction cost of ", cost,
                                                   "; the costs of other jobs are ", others,
                                                   ", and the sum must be below 2^63 - 1"));
  }
  // OK if the tasks fit at their placements when the victims have ended.
  [[nodiscard]] absl::Status check_free(job_id job, const std::vector<running_task>& tasks,
                                        const std::vector<job_id>& victims) {
    for (const running_task& t : tasks)
      if (!gangs_.nodes_.contains(t.where.node)) return no_such_node(job, t.where.node);
    for (const job_id victim : victims)
      for (const running_task& t : gangs_.running_.tasks_of(victim))
        gangs_.nodes_.remove(t.request, t.where);
    absl::Status status;
    std::size_t placed = 0;
    for (; placed < tasks.size() && status.ok(); ++placed) {
      const running_task& t = tasks[placed];
      if (!gangs_.nodes_.is_free(t.request, t.where)) {
        status = not_free(gangs_.nodes_, t.request, t.where);
      } else if (!gangs_.nodes_[t.where.node].healthy) {
        status = is_bad(job, t.where.node);
      } else {
        gangs_.nodes_.place(t.request, t.where);
        continue;
      }
      break;
    }
    while (placed-- > 0) gangs_.nodes_.remove(tasks[placed].request, tasks[placed].where);
    for (const job_id victim : victims)
      for (const running_task& t : gangs_.running_.tasks_of(victim))
        gangs_.nodes_.place(t.request, t.where);
    return status;
  }

  open_scheduler<Score> gangs_;
  victim_index index_;
  reserved_nodes reserved_{};
  preempting_jobs preempting_{};
  std::unordered_map<std::uint32_t, known_job> known_{};  // running jobs, by id
  std::uint32_t spanning_jobs_ = 0;                       // those with tasks on several nodes
  std::uint64_t total_cost_ = 0;                          // of running and preempting jobs
};

}  // namespace detail
APIARY_NAMESPACE_END
