// apiary/fgd/detail/gang_victims.h - the jobs to evict for a gang on shared GPUs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/fgd/detail/preemption_book.h>
#include <apiary/fgd/detail/running_tasks.h>
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

// Finds victims for a gang. First task by task, the largest first; victims that are not needed
// stay. On small clusters it then tries sets of jobs in the order of their costs, until the gang
// fits, no cheaper set is left, or max_tries or max_looks is reached.
//
// Requires: the gang does not fit now.
// Cost:     two searches of victim_index for each task group that takes victims, so O(nodes); for
//           each task that takes victims, one step of such a search, which reads the nodes that
//           have changed; then for each set that is tried, a plan for the gang, and O(tasks of the
//           set).
template <NodeScore Score>
class gang_victims {
 public:
  // The most sets of jobs that are tried for a gang.
  static constexpr std::uint32_t max_tries = 512;
  // The most nodes, tasks of the gang and tasks of the set, added up over all tries. If nodes and
  // tasks of the gang allow less than min_tries, no set is tried.
  static constexpr std::uint64_t max_looks = 16'384;
  static constexpr std::uint64_t min_tries = 64;
  // The most steps that the search for a placement of the gang takes for a set.
  static constexpr std::uint64_t steps_of_a_try = 256;
  // The most steps of victim_index for a gang. Then no search for another task group begins, and
  // nodes are searched in few steps.
  static constexpr std::uint64_t max_steps = 10'000'000;

  // The job wants to run on the nodes in `suggested` only; null: on all nodes.
  gang_victims(preemption_book<Score>& book, const topology_constraints& gang,
               std::uint32_t priority, const summary_bitset* suggested)
      : book_(book), gang_(gang), priority_(priority), suggested_(suggested) {}

  // Changes `plan` if there are enough victims, or if max_steps end the search. The book is as
  // before.
  void find(preemption_plan& plan) {
    const std::uint64_t before = index().steps();
    const std::uint64_t bound = victims_bound(before + max_steps / 2);
    place_greedily(bound, before + max_steps, plan);
    std::uint64_t looks = book_.nodes().size();  // of a try
    for (const constrained_task_group& group : gang_.groups) looks += group.tasks;
    const bool is_least = plan.result != plan_result::wait && plan.cost == plan.lower_bound;
    if (looks * min_tries <= max_looks && !is_least) try_sets(bound, looks, plan);
    plan.steps = index().steps() - before;
  }

 private:
  // A job, and what its eviction costs.
  struct priced_job {
    std::uint64_t cost = 0;
    job_id job{};
  };
  // Lists the sets of some jobs that are not empty, one by one, those that cost least first; of
  // sets that cost the same, those with the fewest jobs first.
  //
  // Each set is made from one that costs no more and has no more jobs: either its last job, in the
  // order of costs, follows the job that it replaces, or it is added after it.
  //
  // Requires: the costs of all jobs add up to less than 2^63.
  // Cost:     next: O(log sets so far), and O(jobs of the set) for jobs(). Memory: 40 bytes for
  //           each set so far.
  class sets_by_cost {
   public:
    explicit sets_by_cost(std::vector<priced_job> jobs) : jobs_(std::move(jobs)) {
      merge_sort(jobs_, [](const priced_job& a, const priced_job& b) {
        return a.cost != b.cost ? a.cost < b.cost : a.job < b.job;
      });
      if (!jobs_.empty()) push({jobs_[0].cost, 1, 0, none});
    }
    // Goes to the first set, or to the next one. False: there is no other one.
    bool next() {
      if (open_.empty()) return false;
      std::pop_heap(open_.begin(), open_.end(),
                    [this](std::uint32_t a, std::uint32_t b) { return comes_after(a, b); });
      now_ = open_.back();
      open_.pop_back();
      const set at = sets_[now_];
      if (at.last + 1 == jobs_.size()) return true;
      const std::uint64_t cost = jobs_[at.last + 1].cost;
      push({at.cost - jobs_[at.last].cost + cost, at.size, at.last + 1, at.rest});
      push({at.cost + cost, at.size + 1, at.last + 1, now_});
      return true;
    }
    // What the present set costs. Requires: next() was true.
    [[nodiscard]] std::uint64_t cost() const noexcept { return sets_[now_].cost; }
    // The jobs of the present set, ascending. Requires: next() was true.
    [[nodiscard]] std::vector<job_id> jobs() const {
      std::vector<job_id> result;
      for (std::uint32_t s = now_; s != none; s = sets_[s].rest)
        result.push_back(jobs_[sets_[s].last].job);
      merge_sort(result);
      return result;
    }

   private:
    static constexpr std::uint32_t none = ~std::uint32_t{0};
    struct set {
      std::uint64_t cost = 0;
      std::uint32_t size = 0;
      std::uint32_t last = 0;     // index of its last job
      std::uint32_t rest = none;  // the set of its other jobs
    };

    // Whether set b comes before set a: the order of the heap.
    [[nodiscard]] bool comes_after(std::uint32_t a, std::uint32_t b) const {
      if (sets_[a].cost != sets_[b].cost) return sets_[a].cost > sets_[b].cost;
      return sets_[a].size != sets_[b].size ? sets_[a].size > sets_[b].size : a > b;
    }
    void push(const set& s) {
      open_.push_back(static_cast<std::uint32_t>(sets_.size()));
      sets_.push_back(s);
      std::push_heap(open_.begin(), open_.end(),
                     [this](std::uint32_t a, std::uint32_t b) { return comes_after(a, b); });
    }

    std::vector<priced_job> jobs_;       // ascending by cost, then id
    std::vector<set> sets_{};            // all sets that were made
    std::vector<std::uint32_t> open_{};  // those to come, a heap
    std::uint32_t now_ = none;
  };

  // A plan for the gang on the nodes as they are, in a few steps.
  [[nodiscard]] shared_gang_plan try_now() {
    return *book_.propose(gang_, suggested_, steps_of_a_try);
  }
  [[nodiscard]] victim_index& index() noexcept { return book_.evictable(); }
  // Its tasks take what is free or costs least, the largest first.
  void place_greedily(std::uint64_t bound, std::uint64_t end, preemption_plan& plan) {
    std::vector<std::uint32_t> order(gang_.groups.size());
    for (std::uint32_t g = 0; g < order.size(); ++g) order[g] = g;
    merge_sort(order, [&](std::uint32_t a, std::uint32_t b) {
      return gang_.groups[a].task().total_gpu_milli() > gang_.groups[b].task().total_gpu_milli();
    });
    std::vector<job_id> victims;
    std::vector<running_task> placed;
    bool all = true;
    for (std::size_t i = 0; i < order.size() && all; ++i) {
      const task_request task = gang_.groups[order[i]].task();
      bool is_open = false;  // the search for victims of this task group
      for (std::uint32_t t = 0; t < gang_.groups[order[i]].tasks && all; ++t) {
        std::optional<placement> where = book_.place(task, suggested_);
        if (!where) {
          if (!is_open && index().steps() >= end) plan.reason = wait_reason::undecided;
          if (plan.reason == wait_reason::undecided) return take_back(placed, victims);
          if (!is_open) index().open(task, priority_, suggested_);
          is_open = true;
          const auto found = index().least(book_.nodes(), end);
          all = found.has_value();
          if (!all) break;
          where = found->where;
          for (const job_id victim : found->victims) {
            book_.try_without(victim);
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
    book_.occupy(task);
    placed.push_back(task);
  }
  // The placed tasks leave the nodes, and the tasks of these victims return.
  void take_back(const std::vector<running_task>& placed, const std::vector<job_id>& victims) {
    for (const running_task& t : placed) book_.vacate(t);
    for (const job_id victim : victims) book_.fits_again(victim);
  }
  // Makes the plan: victims that are not needed stay, those that cost most first. Takes back what
  // was tried. Requires: try_without() for each victim, and place() for each task of the gang.
  void keep_needed(std::vector<job_id> victims, std::vector<running_task> placed,
                   std::uint64_t bound, preemption_plan& plan) {
    merge_sort(victims, [&](job_id a, job_id b) {
      return book_.cost_of(a) != book_.cost_of(b) ? book_.cost_of(a) > book_.cost_of(b) : a < b;
    });
    std::erase_if(victims, [&](job_id victim) { return book_.fits_again(victim); });
    take_back(placed, victims);
    merge_sort(victims);
    merge_sort(placed,
               [](const running_task& a, const running_task& b) { return a.group < b.group; });
    plan = {.result = victims.empty() ? plan_result::bind : plan_result::preempt,
            .victims = std::move(victims)};
    for (const running_task& t : placed) plan.placements.push_back({t.group, t.where});
    for (const job_id victim : plan.victims) plan.cost += book_.cost_of(victim);
    plan.lower_bound = (std::min)(bound, plan.cost);
  }

  // Tries sets of jobs; a try looks at so many nodes and tasks of the gang. No set that costs less
  // than `bound` is enough.
  void try_sets(std::uint64_t bound, std::uint64_t looks, preemption_plan& plan) {
    std::vector<priced_job> jobs = evictable();
    if (plan.result == plan_result::wait && !try_all(jobs, bound, plan)) return;
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
      for (const job_id victim : victims) looked += book_.try_without(victim);
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
  // Makes a plan for a gang for which victims were not found task by task, if it fits without all
  // these jobs. Returns whether it does.
  bool try_all(const std::vector<priced_job>& jobs, std::uint64_t bound, preemption_plan& plan) {
    std::vector<job_id> victims;
    for (const priced_job& j : jobs) {
      book_.try_without(j.job);
      victims.push_back(j.job);
    }
    const shared_gang_plan now = try_now();
    std::vector<running_task> placed;
    for (const task_placement& p : now.placements)
      place(placed, {gang_.groups[p.group].task(), p.where, p.group});
    if (now.result == plan_result::bind) {
      keep_needed(std::move(victims), std::move(placed), bound, plan);
      return true;
    }
    take_back(placed, victims);
    return false;
  }
  // The running jobs that may be evicted, with a task on a healthy node where the gang may run.
  [[nodiscard]] std::vector<priced_job> evictable() const {
    const auto may_run_on = [&](const running_task& t) {
      const node_id n = t.where.node;
      return book_.nodes()[n].healthy && (suggested_ == nullptr || suggested_->test(n.value));
    };
    std::vector<priced_job> jobs;
    book_.for_each_evictable(priority_, [&](job_id job, std::uint64_t cost) {
      const std::vector<running_task> tasks = book_.tasks_of(job);
      if (std::any_of(tasks.begin(), tasks.end(), may_run_on)) jobs.push_back({cost, job});
    });
    return jobs;
  }

  // No victims for the gang cost less: each of its tasks needs some, and if all jobs run on one
  // node, those on different nodes are different.
  [[nodiscard]] std::uint64_t victims_bound(std::uint64_t end) {
    std::uint64_t bound = 0;
    for (const constrained_task_group& group : gang_.groups) {
      if (group.tasks == 0) continue;
      const task_request task = group.task();
      if (book_.place(task, suggested_)) continue;
      if (index().steps() >= end) break;
      index().open(task, priority_, suggested_);
      std::uint64_t sum = victim_index::never;
      if (task.wants_whole_gpus() && !book_.some_span_nodes()) {
        const std::uint32_t on_a_node = (std::max)(book_.most_gpus() / task.gpus, std::uint32_t{1});
        sum = index().least_sum(book_.nodes(), (group.tasks + on_a_node - 1) / on_a_node);
      }
      if (const auto found = index().least(book_.nodes(), end))
        bound = (std::max)(bound, found->lower_bound);
      if (sum != victim_index::never) bound = (std::max)(bound, sum);
    }
    return bound;
  }

  preemption_book<Score>& book_;
  const topology_constraints& gang_;
  std::uint32_t priority_;
  const summary_bitset* suggested_;
};

}  // namespace detail
APIARY_NAMESPACE_END
