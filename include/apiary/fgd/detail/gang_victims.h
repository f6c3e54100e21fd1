// apiary/fgd/detail/gang_victims.h - the jobs to evict for a gang on shared GPUs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/fgd/detail/cost_tree.h>
#include <apiary/fgd/detail/preemption_core.h>
#include <apiary/fgd/detail/running_tasks.h>
#include <apiary/fgd/detail/sets_by_cost.h>
#include <apiary/fgd/gang_sharing.h>
#include <apiary/fgd/node_score.h>
#include <apiary/fgd/preemption_plan.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/placement.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The part of preemptive_sharing_scheduler that finds victims for a gang. First task by task, the largest
// first; victims that are not needed stay. On small clusters it then tries sets of jobs in the order of
// their costs, until the gang fits, no cheaper set is left, or max_tries or max_looks is reached.
//
// Requires: as preemptive_sharing_scheduler.
// Cost:     a search of victim_index for each task group, and for each task that takes victims; then for
//           each set that is tried, a plan for the gang, and O(tasks of the set).
template <NodeScore Score>
class gang_victims : public preemption_core<Score> {
  using base = preemption_core<Score>;

 public:
  // The most sets of jobs that are tried for a gang.
  static constexpr std::uint32_t max_tries = 512;
  // The most nodes, tasks of the gang and tasks of the set, added up over all tries. If nodes and tasks of
  // the gang allow less than min_tries, no set is tried.
  static constexpr std::uint64_t max_looks = 16'384;
  static constexpr std::uint64_t min_tries = 64;
  // The most steps that the search for a placement of the gang takes for a set.
  static constexpr std::uint64_t steps_of_a_try = 256;

 protected:
  using base::base;
  using base::index_;
  using base::nodes_;
  using base::preempting_;
  using base::running_;

  // Finds victims for a gang that does not fit now. Changes `plan` if there are enough.
  // `suggested` are the nodes that the host suggests; null: all nodes. try_now() is a plan for the gang on
  // the nodes as they are, in a few steps.
  template <class Try>
  void find_victims(const topology_constraints& gang, std::uint32_t priority,
                    const summary_bitset* suggested, const Try& try_now, preemption_plan& plan) {
    const std::uint64_t bound = victims_bound(gang, priority, suggested);
    place_greedily(gang, priority, suggested, bound, plan);
    std::uint64_t looks = nodes_.size();  // of a try
    for (const constrained_task_group& group : gang.groups) looks += group.tasks;
    const bool is_least = plan.result != plan_result::wait && plan.cost == plan.lower_bound;
    if (looks * min_tries <= max_looks && !is_least)
      try_sets(gang, evictable(priority, suggested), bound, looks, try_now, plan);
  }

 private:
  using base::cost_of;
  using base::fits_again;
  using base::known_;
  using base::most_gpus;
  using base::spanning_jobs_;
  using base::touch;
  using base::try_without;

  // Its tasks take what is free or costs least, the largest first.
  void place_greedily(const topology_constraints& gang, std::uint32_t priority,
                      const summary_bitset* suggested, std::uint64_t bound, preemption_plan& plan) {
    std::vector<std::uint32_t> order(gang.groups.size());
    for (std::uint32_t g = 0; g < order.size(); ++g) order[g] = g;
    merge_sort(order, [&](std::uint32_t a, std::uint32_t b) {
      return gang.groups[a].task().total_gpu_milli() > gang.groups[b].task().total_gpu_milli();
    });
    std::vector<job_id> victims;
    std::vector<running_task> placed;
    bool all = true;
    for (std::size_t i = 0; i < order.size() && all; ++i) {
      const task_request task = gang.groups[order[i]].task();
      for (std::uint32_t t = 0; t < gang.groups[order[i]].tasks && all; ++t) {
        std::optional<placement> where = base::place(task, suggested);
        if (!where) {
          const auto found = index_.find(nodes_, task, priority, suggested).victims;
          all = found.has_value();
          if (!all) break;
          where = found->where;
          for (const job_id victim : found->victims) {
            try_without(victim);
            victims.push_back(victim);
          }
        }
        place(placed, {task, *where, order[i]});
      }
    }
    if (all) {
      keep_needed(std::move(victims), std::move(placed), bound, plan);
    } else {
      take_back(placed, victims);
    }
  }
  void place(std::vector<running_task>& placed, const running_task& task) {
    nodes_.place(task.request, task.where);
    touch(task.where.node);
    placed.push_back(task);
  }
  // The placed tasks leave the nodes, and the tasks of these victims return.
  void take_back(const std::vector<running_task>& placed, const std::vector<job_id>& victims) {
    for (const running_task& t : placed) {
      nodes_.remove(t.request, t.where);
      touch(t.where.node);
    }
    for (const job_id victim : victims) fits_again(victim);
  }
  // Makes the plan: victims that are not needed stay, those that cost most first. Takes back what was
  // tried. Requires: try_without() for each victim, and place() for each task of the gang.
  void keep_needed(std::vector<job_id> victims, std::vector<running_task> placed,
                   std::uint64_t bound, preemption_plan& plan) {
    merge_sort(victims, [&](job_id a, job_id b) {
      return cost_of(a) != cost_of(b) ? cost_of(a) > cost_of(b) : a < b;
    });
    std::erase_if(victims, [&](job_id victim) { return fits_again(victim); });
    take_back(placed, victims);
    merge_sort(victims);
    merge_sort(placed,
               [](const running_task& a, const running_task& b) { return a.group < b.group; });
    plan = {.result = victims.empty() ? plan_result::bind : plan_result::preempt,
            .victims = std::move(victims)};
    for (const running_task& t : placed) plan.placements.push_back({t.group, t.where});
    for (const job_id victim : plan.victims) plan.cost += cost_of(victim);
    plan.lower_bound = (std::min)(bound, plan.cost);
  }

  // Tries sets of these jobs; a try looks at so many nodes and tasks of the gang. No set that costs less
  // than `bound` is enough.
  template <class Try>
  void try_sets(const topology_constraints& gang, std::vector<sets_by_cost::job> jobs,
                std::uint64_t bound, std::uint64_t looks, const Try& try_now,
                preemption_plan& plan) {
    if (plan.result == plan_result::wait && !try_all(gang, jobs, bound, try_now, plan)) return;
    sets_by_cost sets(std::move(jobs));
    bool all_decided = true;  // all sets that cost less were tried, and are not enough
    std::uint32_t tries = 0;
    std::uint64_t looked = 0;
    for (std::uint32_t listed = 0; sets.next() && sets.cost() < plan.cost; ++listed) {
      if (tries == max_tries || looked >= max_looks || listed == 8 * max_tries) return;
      if (sets.cost() < bound) continue;
      if (all_decided) plan.lower_bound = sets.cost();
      ++tries;
      looked += looks;
      const std::vector<job_id> victims = sets.jobs();
      for (const job_id victim : victims) looked += try_without(victim);
      const shared_gang_plan now = try_now();
      take_back({}, victims);
      if (now.result == plan_result::bind) {
        plan.placements = now.placements;
        plan.victims = victims;
        plan.cost = sets.cost();
        return;
      }
      all_decided = all_decided && now.reason != wait_reason::undecided;
    }
    if (all_decided) plan.lower_bound = plan.cost;
  }
  // Makes a plan for a gang for which victims were not found task by task, if it fits without all these
  // jobs. Returns whether it does.
  template <class Try>
  bool try_all(const topology_constraints& gang, const std::vector<sets_by_cost::job>& jobs,
               std::uint64_t bound, const Try& try_now, preemption_plan& plan) {
    std::vector<job_id> victims;
    for (const sets_by_cost::job& j : jobs) {
      try_without(j.id);
      victims.push_back(j.id);
    }
    const shared_gang_plan now = try_now();
    std::vector<running_task> placed;
    for (const task_placement& p : now.placements)
      place(placed, {gang.groups[p.group].task(), p.where, p.group});
    if (now.result == plan_result::bind) {
      keep_needed(std::move(victims), std::move(placed), bound, plan);
      return true;
    }
    take_back(placed, victims);
    return false;
  }
  // The running jobs that may be evicted, with a task on a healthy node where a task of the gang may run.
  [[nodiscard]] std::vector<sets_by_cost::job> evictable(std::uint32_t priority,
                                                         const summary_bitset* suggested) const {
    const auto may_run_on = [&](node_id n) {
      return nodes_[n].healthy && (suggested == nullptr || suggested->test(n.value));
    };
    std::vector<sets_by_cost::job> jobs;
    for (const auto& [id, its] : known_) {
      const job_id job(id);
      if (its.terms.priority >= priority || preempting_.is_victim(job)) continue;
      const std::vector<running_task> tasks = running_.tasks_of(job);
      if (std::any_of(tasks.begin(), tasks.end(),
                      [&](const running_task& t) { return may_run_on(t.where.node); }))
        jobs.push_back({its.terms.cost, job});
    }
    return jobs;
  }

  // No victims for the gang cost less: each of its tasks needs some, and if all jobs run on one node,
  // those on different nodes are different.
  [[nodiscard]] std::uint64_t victims_bound(const topology_constraints& gang,
                                            std::uint32_t priority,
                                            const summary_bitset* suggested) {
    std::uint64_t bound = 0;
    for (std::uint32_t g = 0; g < gang.groups.size(); ++g) {
      const constrained_task_group& group = gang.groups[g];
      if (group.tasks == 0) continue;
      const task_request task = group.task();
      if (base::place(task, suggested)) continue;
      if (const auto found = index_.find(nodes_, task, priority, suggested).victims)
        bound = (std::max)(bound, found->lower_bound);
      if (!task.wants_whole_gpus() || spanning_jobs_ > 0) continue;
      const std::uint32_t on_a_node = (std::max)(most_gpus() / task.gpus, std::uint32_t{1});
      const std::uint64_t sum =
          index_.least_sum(nodes_, task, priority, (group.tasks + on_a_node - 1) / on_a_node);
      if (sum != cost_tree::never) bound = (std::max)(bound, sum);
    }
    return bound;
  }
};

}  // namespace detail
APIARY_NAMESPACE_END
