// apiary/tests/fgd/preemptive_sharing_test.cpp - preemption on shared GPUs, against all sets of jobs.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/container/bitset.h>
#include <apiary/core/rng.h>
#include <apiary/fgd/baseline_scores.h>
#include <apiary/fgd/fgd.h>
#include <apiary/fgd/preemptive_sharing.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/preempt/victim_cost.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary_test;
using preempting_fgd = preemptive_sharing_scheduler<fragmentation_gradient>;
using placed_task = preempting_fgd::running_task;

task_request whole_task(std::uint32_t job, std::uint32_t gpus) {
  return {.job = job_id(job), .cpu_milli = 1000, .gpus = gpus, .gpu_milli = whole_gpu};
}
task_request part_task(std::uint32_t job, milli_gpu milli) {
  return {.job = job_id(job), .cpu_milli = 1000, .gpus = 1, .gpu_milli = milli};
}
fragmentation_gradient gradient() {
  return fragmentation_gradient(
      fragmentation(task_mix({{{.cpu_milli = 1000, .gpus = 1, .gpu_milli = 1000}, 3},
                              {{.cpu_milli = 1000, .gpus = 1, .gpu_milli = 300}, 2},
                              {{.cpu_milli = 2000, .gpus = 2, .gpu_milli = 1000}, 1}})));
}
preempting_fgd equal_nodes(std::uint32_t count, std::uint32_t gpus) {
  node_table nodes;
  for (std::uint32_t n = 0; n < count; ++n)
    nodes.add({.host = {.cpu_milli = 64'000}, .gpus = gpus});
  return *preempting_fgd::create(std::move(nodes), gradient());
}
std::vector<job_id> ids(std::vector<std::uint32_t> values) {
  std::vector<job_id> result;
  for (const std::uint32_t v : values) result.emplace_back(v);
  return result;
}

// A job that runs or waits for its victims, as a host knows it.
struct host_job {
  eviction_terms terms{};
  std::vector<placed_task> tasks{};
  std::optional<topology_constraints> gang{};
  std::vector<job_id> waits_for{};  // its victims
  bool runs = false;
  bool is_victim = false;
};

// The nodes that a host suggests; nullopt: all.
using suggested_set = std::optional<summary_bitset>;
bool allows(const suggested_set& suggested, node_id n) {
  return !suggested || suggested->test(n.value);
}
// A task of a gang, and its group.
using gang_task = std::pair<task_request, std::uint32_t>;

std::vector<gang_task> tasks_of(const topology_constraints& gang) {
  std::vector<gang_task> tasks;
  for (std::uint32_t g = 0; g < gang.groups.size(); ++g)
    tasks.insert(tasks.end(), gang.groups[g].tasks, {gang.groups[g].task(), g});
  return tasks;
}

// A random cluster, and what a host knows of it.
struct preempting_world {
  rng random;
  node_table idle{};
  std::map<std::uint32_t, host_job> jobs{};
  std::optional<preempting_fgd> scheduler{};
  std::uint32_t next_job = 0;

  explicit preempting_world(std::uint64_t seed) : random(seed) {
    const std::uint32_t count = 1 + random.uniform(3);
    for (std::uint32_t n = 0; n < count; ++n) idle.add(any_shape());
    scheduler.emplace(*preempting_fgd::create(idle, gradient()));
  }
  node_shape any_shape() {
    return {.host = {.cpu_milli = 2000 + random.uniform(7) * 1000,
                     .memory_mib = 400 + random.uniform(8) * 100},
            .gpus = random.uniform(4),
            .model = static_cast<gpu_model>(random.uniform(2))};
  }
  // A node joins, leaves, changes, fails or is mended.
  void change_node() {
    const node_id n(random.uniform(idle.size()));
    const std::uint32_t what = random.uniform(6);
    if (what == 0 && idle.size() < 5) {
      const node_shape shape = any_shape();
      const node_id added = *scheduler->add_node(shape);
      if (added.value == idle.size()) {
        idle.add(shape);
      } else {
        idle.insert(added, shape);
      }
    } else if (!idle.contains(n)) {
      CHECK(scheduler->mark_bad(n).code() == absl::StatusCode::kNotFound);
    } else if (what == 1) {
      const bool in_use = std::any_of(jobs.begin(), jobs.end(), [&](const auto& job) {
        return std::any_of(job.second.tasks.begin(), job.second.tasks.end(),
                           [&](const placed_task& t) { return t.where.node == n; });
      });
      REQUIRE(scheduler->remove_node(n).ok() == !in_use);
      if (!in_use) idle.erase(n);
    } else if (what == 2) {
      node_shape shape = any_shape();
      shape.model = idle.shape(n).model;
      if (scheduler->resize_node(n, shape.gpus, shape.host).ok()) idle.resize(n, shape);
    } else {
      REQUIRE((what == 3 ? scheduler->mark_bad(n) : scheduler->mark_healthy(n)).ok());
    }
  }

  task_request any_task() {
    task_request task{.cpu_milli = random.uniform(4) * 1000, .memory_mib = random.uniform(4) * 100};
    if (random.uniform(8) == 0) return task;
    task.gpus = 1 + random.uniform(3);
    task.gpu_milli = whole_gpu;
    if (task.gpus == 1 && random.uniform(4) > 0)
      task.gpu_milli = static_cast<milli_gpu>(100 * (1 + random.uniform(9)));
    task.models = random.uniform(5) == 0 ? 0b01 : 0b11;
    return task;
  }
  topology_constraints any_gang() {
    topology_constraints gang;
    for (std::uint32_t g = 0; g <= random.uniform(2); ++g) {
      const task_request task = any_task();
      gang.groups.push_back({.tasks = 1 + random.uniform(2),
                             .gpus = task.gpus,
                             .host = task.host(),
                             .gpu_milli = task.gpu_milli,
                             .models = task.models});
    }
    return gang;
  }

  // What is left when these jobs have ended, beside `shown`.
  [[nodiscard]] node_table without(const std::vector<std::uint32_t>& ended) const {
    node_table table = scheduler->nodes();
    for (const std::uint32_t job : ended)
      for (const placed_task& t : jobs.at(job).tasks) table.remove(t.request, t.where);
    return table;
  }
  [[nodiscard]] std::vector<std::uint32_t> evictable(std::uint32_t priority) const {
    std::vector<std::uint32_t> result;
    for (const auto& [id, job] : jobs)
      if (job.runs && !job.is_victim && job.terms.priority < priority) result.push_back(id);
    return result;
  }
  [[nodiscard]] std::uint64_t cost_of(const std::vector<std::uint32_t>& set) const {
    std::uint64_t cost = 0;
    for (const std::uint32_t job : set) cost += jobs.at(job).terms.cost;
    return cost;
  }
  // Calls try(set) for each set of jobs that a job of this priority may evict.
  template <class Try>
  void each_set(std::uint32_t priority, const Try& with) const {
    const std::vector<std::uint32_t> all = evictable(priority);
    for (std::uint32_t bits = 0; bits >> all.size() == 0; ++bits) {
      std::vector<std::uint32_t> set;
      for (std::size_t j = 0; j < all.size(); ++j)
        if ((bits >> j & 1) != 0) set.push_back(all[j]);
      with(set);
    }
  }
  // Some nodes that the host suggests, or all.
  suggested_set any_suggested() {
    if (random.uniform(3) > 0) return std::nullopt;
    summary_bitset suggested(idle.size());
    for (std::uint32_t n = 0; n < idle.size(); ++n)
      if (random.uniform(2) == 0) suggested.set(n);
    return suggested;
  }
  // The least cost of victims for the task, and the first node where they have this cost.
  [[nodiscard]] std::optional<std::pair<std::uint64_t, node_id>> least(
      const task_request& task, std::uint32_t priority, const suggested_set& suggested) const {
    std::optional<std::pair<std::uint64_t, node_id>> best;
    each_set(priority, [&](const std::vector<std::uint32_t>& set) {
      const node_table table = without(set);
      for (const node_id n : table.ids()) {
        if (!table[n].fits(task) || !allows(suggested, n)) continue;
        const std::pair<std::uint64_t, node_id> here{cost_of(set), n};
        if (!best || here < *best) best = here;
      }
    });
    return best;
  }
  // Whether tasks fit together, by trying all nodes and GPUs.
  static bool fit(node_table& table, const std::vector<gang_task>& tasks, std::size_t from,
                  const suggested_set& suggested) {
    if (from == tasks.size()) return true;
    const task_request& task = tasks[from].first;
    for (const node_id n : table.ids()) {
      if (!table[n].fits(task) || !allows(suggested, n)) continue;
      for (std::uint32_t i = 0; i < (std::max)(table[n].gpus, std::uint8_t{1}); ++i) {
        if (i > 0 && !task.wants_part_of_gpu()) break;
        if (task.wants_part_of_gpu() && table[n].gpu_left[i] < task.gpu_milli) continue;
        const placement where{n, task.wants_part_of_gpu() ? std::uint32_t{1} << i
                                                          : table[n].first_free_gpus(task.gpus)};
        table.place(task, where);
        const bool all = fit(table, tasks, from + 1, suggested);
        table.remove(task, where);
        if (all) return true;
      }
    }
    return false;
  }
  [[nodiscard]] std::optional<std::uint64_t> least(const topology_constraints& gang,
                                                   std::uint32_t priority,
                                                   const suggested_set& suggested) const {
    const std::vector<gang_task> tasks = tasks_of(gang);
    std::optional<std::uint64_t> best;
    each_set(priority, [&](const std::vector<std::uint32_t>& set) {
      if (best && cost_of(set) >= *best) return;
      node_table table = without(set);
      if (fit(table, tasks, 0, suggested)) best = cost_of(set);
    });
    return best;
  }

  // What nodes() must show: what is left if running and reserved tasks use the nodes; 0 where that is
  // less than nothing. Running tasks alone must fit.
  void check_nodes() const {
    node_table running = idle;
    for (const node_id n : idle.ids()) running[n].healthy = scheduler->nodes()[n].healthy;
    for (const auto& [id, job] : jobs) {
      if (!job.runs) continue;
      for (const placed_task& t : job.tasks) {
        REQUIRE(running.is_free(t.request, t.where));
        running.place(t.request, t.where);
      }
    }
    const auto take = [](auto& left, std::uint32_t amount) {
      left =
          static_cast<std::remove_reference_t<decltype(left)>>(left > amount ? left - amount : 0);
    };
    for (const auto& [id, job] : jobs) {
      if (job.runs) continue;
      for (const placed_task& t : job.tasks) {
        take(running[t.where.node].left.cpu_milli, t.request.cpu_milli);
        take(running[t.where.node].left.memory_mib, t.request.memory_mib);
        for (std::uint32_t i = 0; i < max_gpus_per_node; ++i)
          if ((t.where.gpu_mask >> i & 1) != 0)
            take(running[t.where.node].gpu_left[i], t.request.gpu_milli);
      }
    }
    REQUIRE(running == scheduler->nodes());
  }
  // The decisions are those of a scheduler that recovers the same jobs. Requires: none preempts.
  void check_afresh() {
    std::optional<preempting_fgd> fresh(*preempting_fgd::create(idle, gradient()));
    for (auto job = jobs.rbegin(); job != jobs.rend(); ++job) {
      if (!job->second.gang) {
        const placed_task& t = job->second.tasks[0];
        REQUIRE(fresh->recover(t.request, t.where, job->second.terms).ok());
        continue;
      }
      std::vector<task_placement> where;
      for (const placed_task& t : job->second.tasks) where.push_back({t.group, t.where});
      REQUIRE(fresh->recover(job_id(job->first), *job->second.gang, where, job->second.terms).ok());
    }
    for (const node_id n : idle.ids())
      if (idle.contains(n) && !scheduler->nodes()[n].healthy) REQUIRE(fresh->mark_bad(n).ok());
    const task_request task = any_task();
    const auto one = scheduler->propose(task, 3);
    const auto other = fresh->propose(task, 3);
    REQUIRE(one->result == other->result);
    CHECK(one->placements == other->placements);
    CHECK(one->victims == other->victims);
    const topology_constraints gang = any_gang();
    const auto for_gang = scheduler->propose(job_id(next_job), gang, 3);
    const auto afresh = fresh->propose(job_id(next_job), gang, 3);
    REQUIRE(for_gang->result == afresh->result);
    CHECK(for_gang->placements == afresh->placements);
    CHECK(for_gang->victims == afresh->victims);
    CHECK(for_gang->lower_bound == afresh->lower_bound);
  }

  // Commits a plan for a new job.
  void commit(std::uint32_t id, const preemption_plan& plan, host_job job) {
    const absl::Status status = job.gang ? scheduler->commit(job_id(id), *job.gang, plan, job.terms)
                                         : scheduler->commit(job.tasks[0].request, plan, job.terms);
    REQUIRE(status == absl::OkStatus());
    const bool waits = plan.result == plan_result::preempt;
    job.runs = !waits;
    job.waits_for = plan.victims;
    std::vector<placed_task> tasks;
    for (const task_placement& p : plan.placements) {
      task_request request = job.gang ? job.gang->groups[p.group].task() : job.tasks[0].request;
      request.job = job_id(id);
      tasks.push_back({request, p.where, p.group});
    }
    job.tasks = tasks;
    for (const job_id victim : plan.victims) jobs.at(victim.value).is_victim = true;
    jobs[id] = std::move(job);
  }
  void finish(std::uint32_t id) {
    REQUIRE(scheduler->finish(job_id(id)).ok());
    for (const job_id victim : jobs.at(id).waits_for) jobs.at(victim.value).is_victim = false;
    jobs.erase(id);
    for (auto& [other, job] : jobs) std::erase(job.waits_for, job_id(id));
  }
  [[nodiscard]] bool some_preempt() const {
    return std::any_of(jobs.begin(), jobs.end(), [](const auto& j) { return !j.second.runs; });
  }
};

// Checks that the tasks of a plan fit at their placements when its victims have ended.
void check_plan(const preempting_world& world, const preemption_plan& plan,
                const std::vector<gang_task>& tasks, std::uint32_t priority,
                const suggested_set& suggested) {
  std::vector<std::uint32_t> set;
  const std::vector<std::uint32_t> may = world.evictable(priority);
  for (const job_id victim : plan.victims) {
    REQUIRE(std::count(may.begin(), may.end(), victim.value) == 1);
    set.push_back(victim.value);
  }
  CHECK(std::is_sorted(set.begin(), set.end()));
  CHECK(world.cost_of(set) == plan.cost);
  CHECK(plan.lower_bound <= plan.cost);
  REQUIRE(plan.placements.size() == tasks.size());
  node_table table = world.without(set);
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const auto& [task, group] = tasks[t];
    REQUIRE(plan.placements[t].group == group);
    REQUIRE(table.can_place(task, plan.placements[t].where));
    CHECK(allows(suggested, plan.placements[t].where.node));
    table.place(task, plan.placements[t].where);
  }
}

}  // namespace

TEST_CASE("a task preempts the job that costs least, and runs when it has ended") {
  preempting_fgd scheduler = equal_nodes(2, 1);
  const eviction_terms low{.priority = 0, .cost = 7};
  REQUIRE(scheduler.recover(part_task(1, 600), {node_id(0), 1}, {.priority = 0, .cost = 5}).ok());
  REQUIRE(scheduler.recover(part_task(2, 300), {node_id(0), 1}, {.priority = 0, .cost = 3}).ok());
  REQUIRE(scheduler.recover(whole_task(3, 1), {node_id(1), 1}, low).ok());
  const task_request task = whole_task(4, 1);
  CHECK(scheduler.propose(task, 0)->result == plan_result::wait);
  const preemption_plan plan = *scheduler.propose(task, 1);
  REQUIRE(plan.result == plan_result::preempt);
  CHECK(plan.victims == ids({3}));
  CHECK(plan.cost == 7);
  CHECK(plan.lower_bound == 7);
  REQUIRE(scheduler.commit(task, plan, {.priority = 1}).ok());
  CHECK(scheduler.commit(task, plan, {.priority = 1}).code() == absl::StatusCode::kAlreadyExists);
  CHECK(*scheduler.victims_of(job_id(4)) == ids({3}));
  CHECK(scheduler.propose(task, 1)->result == plan_result::preempt);
  CHECK(scheduler.propose(part_task(4, 100), 1).status().code() ==
        absl::StatusCode::kInvalidArgument);
  REQUIRE(scheduler.finish(job_id(3)).ok());
  // What the victim used is reserved.
  CHECK(scheduler.propose(part_task(5, 200), 0)->result == plan_result::wait);
  const preemption_plan now = *scheduler.propose(task, 1);
  REQUIRE(now.result == plan_result::bind);
  CHECK(now.placements == plan.placements);
  REQUIRE(scheduler.commit(task, now, {.priority = 1}).ok());
  CHECK(scheduler.find(job_id(4)) == now.placements[0].where);
  CHECK(!scheduler.victims_of(job_id(4)));
}

TEST_CASE("a preempting job that is cancelled leaves its victims as they were") {
  preempting_fgd scheduler = equal_nodes(1, 2);
  REQUIRE(scheduler.recover(part_task(1, 600), {node_id(0), 1}, {}).ok());
  REQUIRE(scheduler.recover(whole_task(2, 1), {node_id(0), 2}, {.cost = 9}).ok());
  const node_table before = scheduler.nodes();
  const task_request task = part_task(3, 700);
  const preemption_plan plan = *scheduler.propose(task, 5);
  CHECK(plan.victims == ids({1}));
  REQUIRE(scheduler.commit(task, plan, {.priority = 5}).ok());
  // The victim is not offered to another job.
  CHECK(scheduler.propose(part_task(4, 700), 5)->victims == ids({2}));
  REQUIRE(scheduler.finish(job_id(3)).ok());
  CHECK(scheduler.nodes() == before);
  CHECK(scheduler.propose(part_task(4, 700), 5)->victims == ids({1}));
  CHECK(scheduler.finish(job_id(3)).code() == absl::StatusCode::kNotFound);
}

TEST_CASE("a gang is evicted as a whole, and what its other tasks used is free, too") {
  preempting_fgd scheduler = equal_nodes(3, 2);
  topology_constraints gang;
  gang.groups = {{.tasks = 3, .gpus = 2}};
  const auto first = scheduler.propose(job_id(1), gang, 0);
  REQUIRE(scheduler.commit(job_id(1), gang, *first, {.cost = 4}).ok());
  topology_constraints other;
  other.groups = {{.tasks = 2, .gpus = 2}, {.tasks = 1, .gpus = 1, .gpu_milli = 500}};
  const preemption_plan plan = *scheduler.propose(job_id(2), other, 1);
  REQUIRE(plan.result == plan_result::preempt);
  CHECK(plan.victims == ids({1}));
  CHECK(plan.cost == 4);
  CHECK(plan.lower_bound == 4);
  REQUIRE(scheduler.commit(job_id(2), other, plan, {.priority = 1}).ok());
  CHECK(scheduler.propose(job_id(2), gang, 1).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(scheduler
            .commit(job_id(2), other, {.result = plan_result::bind, .placements = plan.placements},
                    {.priority = 1})
            .message() == "job 2: victims still run: 1; finish them first");
  // The tasks of the victim end one by one.
  for (const task_placement& t : scheduler.find_gang(job_id(1))) {
    CHECK(scheduler.propose(job_id(2), other, 1)->result == plan_result::preempt);
    REQUIRE(scheduler.finish(job_id(1), t).ok());
  }
  const preemption_plan now = *scheduler.propose(job_id(2), other, 1);
  REQUIRE(now.result == plan_result::bind);
  REQUIRE(scheduler.commit(job_id(2), other, now, {.priority = 1}).ok());
  CHECK(scheduler.find_gang(job_id(2)) == plan.placements);
}

TEST_CASE("a task that joins a running gang can be evicted with it") {
  preempting_fgd scheduler = equal_nodes(2, 1);
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 1}};
  REQUIRE(
      scheduler.commit(job_id(1), gang, *scheduler.propose(job_id(1), gang, 0), {.cost = 5}).ok());
  const task_request more = whole_task(1, 1);
  const placement where = scheduler.propose(whole_task(9, 1), 0)->placements[0].where;
  REQUIRE(scheduler.commit(job_id(1), more, task_placement{1, where}).ok());
  REQUIRE(scheduler.tasks_of(job_id(1)).size() == 2);
  gang.groups[0].tasks = 2;
  const preemption_plan plan = *scheduler.propose(job_id(2), gang, 1);
  CHECK(plan.victims == ids({1}));
  CHECK(plan.cost == 5);
  CHECK(plan.lower_bound == 5);
  CHECK(scheduler.commit(job_id(3), more, task_placement{1, where}).message() ==
        "job 3 does not run");
}

TEST_CASE("a lower bound for a gang adds up what different nodes cost") {
  preempting_fgd scheduler = equal_nodes(4, 2);
  for (std::uint32_t n = 0; n < 4; ++n)
    REQUIRE(scheduler.recover(whole_task(n, 2), {node_id(n), 3}, {.cost = 10 + n}).ok());
  topology_constraints gang;
  gang.groups = {{.tasks = 3, .gpus = 2}};
  const preemption_plan plan = *scheduler.propose(job_id(9), gang, 1);
  CHECK(plan.victims == ids({0, 1, 2}));
  CHECK(plan.cost == 33);
  CHECK(plan.lower_bound == 33);
}

TEST_CASE(
    "costs of victim_cost evict the lowest class, then the fewest jobs, then the least work") {
  preempting_fgd scheduler = equal_nodes(3, 1);
  const std::vector<victim_cost::loss> losses{{2, 1}, {1, 900}, {1, 40}};
  const victim_cost cost(losses);
  for (std::uint32_t n = 0; n < 3; ++n)
    REQUIRE(scheduler
                .recover(whole_task(n, 1), {node_id(n), 1},
                         {.priority = losses[n].priority, .cost = cost(losses[n])})
                .ok());
  CHECK(scheduler.propose(whole_task(9, 1), 3)->victims == ids({2}));
  // A checkpoint makes another victim the cheapest one.
  REQUIRE(scheduler.set_eviction_cost(job_id(1), cost({1, 0})).ok());
  CHECK(scheduler.propose(whole_task(9, 1), 3)->victims == ids({1}));
  CHECK(scheduler.propose(whole_task(9, 1), 1)->result == plan_result::wait);
}

TEST_CASE("wrong calls of a scheduler that preempts are errors and change nothing") {
  preempting_fgd scheduler = equal_nodes(2, 1);
  const std::uint64_t most = preempting_fgd::max_total_cost - 1;
  REQUIRE(scheduler.recover(whole_task(1, 1), {node_id(0), 1}, {.priority = 2, .cost = 1}).ok());
  CHECK(
      scheduler.recover(whole_task(2, 1), {node_id(1), 1}, {.cost = most}).message() ==
      "job 2: an eviction cost of 9223372036854775806; the costs of other jobs are 1, and the sum "
      "must be below 2^63 - 1");
  REQUIRE(scheduler.recover(whole_task(2, 1), {node_id(1), 1}, {.cost = most - 1}).ok());
  CHECK(scheduler.set_eviction_cost(job_id(1), 2).code() == absl::StatusCode::kInvalidArgument);
  CHECK(scheduler.set_eviction_cost(job_id(3), 2).code() == absl::StatusCode::kNotFound);
  REQUIRE(scheduler.set_eviction_cost(job_id(2), 5).ok());
  const task_request task = whole_task(3, 1);
  preemption_plan plan = *scheduler.propose(task, 1);
  REQUIRE(plan.victims == ids({2}));
  const node_table before = scheduler.nodes();
  CHECK(scheduler.commit(task, {}, {}).message() == "job 3: a plan to wait cannot be committed");
  CHECK(scheduler.commit(task, {.result = plan_result::preempt}, {}).message() ==
        "job 3: the plan has 0 placements; a task has one");
  CHECK(scheduler.commit(task, plan, {.priority = 0}).message() ==
        "job 3 of priority 0 cannot evict job 2 of priority 0");
  preemption_plan wrong = plan;
  wrong.victims = ids({7});
  CHECK(scheduler.commit(task, wrong, {.priority = 1}).message() ==
        "job 3: job 7 does not run any more");
  wrong.victims.clear();
  CHECK(scheduler.commit(task, wrong, {.priority = 1}).code() == absl::StatusCode::kAborted);
  wrong.placements[0].where.node = node_id(5);
  CHECK(scheduler.commit(task, wrong, {.priority = 1}).code() == absl::StatusCode::kNotFound);
  REQUIRE(scheduler.mark_bad(node_id(1)).ok());
  CHECK(scheduler.commit(task, plan, {.priority = 1}).message() == "job 3: node 1 is bad");
  REQUIRE(scheduler.mark_healthy(node_id(1)).ok());
  CHECK(scheduler.nodes() == before);
  REQUIRE(scheduler.commit(task, plan, {.priority = 1}).ok());
  CHECK(scheduler.remove_node(node_id(1)).message() ==
        "a preempting job has reserved resources of node 1");
  CHECK(!scheduler.resize_node(node_id(1), 2, {.cpu_milli = 64'000}).ok());
  wrong = plan;
  CHECK(scheduler.commit(whole_task(4, 1), wrong, {.priority = 1}).message() ==
        "job 4: job 2 is already a victim of another job");
  REQUIRE(scheduler.mark_bad(node_id(1)).ok());
  CHECK(scheduler.propose(task, 1)->reason == wait_reason::unhealthy);
}

TEST_CASE("a scheduler that preempts refuses a wrong inventory and an empty mix at create") {
  const auto refused = [](const node_table& nodes, const std::string& why) {
    CHECK(preempting_fgd::create(nodes, gradient()).status() == absl::InvalidArgumentError(why));
  };
  node_table nodes;
  refused(nodes, "a cluster needs at least one node");
  nodes.add({.host = {.cpu_milli = 1000}, .gpus = 2});
  CHECK(preempting_fgd::create(nodes, fragmentation_gradient(fragmentation(task_mix()))).status() ==
        absl::InvalidArgumentError("the task mix is empty; a score needs typical tasks"));
  nodes.add({.host = {.cpu_milli = 1000}, .gpus = 17});
  refused(nodes, "node 1 has 17 GPUs; a node can have at most 16");
}

TEST_CASE("an explanation for a priority says which jobs have to be preempted") {
  preempting_fgd scheduler = equal_nodes(3, 2);
  const auto why = [&](const task_request& task, std::uint32_t priority) {
    return scheduler.explain(task, priority).value();
  };
  const task_request two = whole_task(9, 2);
  CHECK(why(two, 5).empty());
  for (std::uint32_t n = 0; n < 3; ++n) {
    for (std::uint32_t g = 0; g < 2; ++g) {
      const eviction_terms terms{.priority = 2, .cost = n == 1 ? 1u : 10u};
      REQUIRE(scheduler.recover(whole_task(2 * n + g, 1), {node_id(n), 1U << g}, terms).ok());
    }
  }
  const std::string alone =
      "not now: of 3 nodes that could run it, 3 lack free GPUs (the freest has 0; it needs 2)";
  CHECK(scheduler.explain(two).value() == alone);
  CHECK(why(two, 2) == alone);
  CHECK(why(whole_task(9, 3), 5) == "never: it requests 3 GPUs; a node has at most 2");
  CHECK(why(two, 5) ==
        "it can start on node 1 when jobs 2 and 3 have been preempted; no other choice costs less");
  CHECK(why(part_task(9, 500), 5) ==
        "it can start on node 1 when job 2 has been preempted; no other choice costs less");
  summary_bitset suggested(3);
  suggested.set(2);
  CHECK(scheduler.explain(two, 5, suggested).value() ==
        "it can start on node 2 when jobs 4 and 5 have been preempted; no other choice costs less");
  CHECK(scheduler.explain(two, 2, suggested).value() == scheduler.explain(two, suggested).value());
  CHECK(scheduler.explain(whole_task(0, 1), 5).status() ==
        scheduler.propose(whole_task(0, 1), 5).status());
  CHECK(!scheduler.explain(two, 5, summary_bitset(2)).ok());

  REQUIRE(scheduler.commit(two, *scheduler.propose(two, 5), {.priority = 5}).ok());
  CHECK(why(two, 5) == "it can start on node 1 when jobs 2 and 3 have been preempted");
  REQUIRE(scheduler.finish(job_id(2)).ok());
  CHECK(why(two, 5) == "it can start on node 1 when job 3 has been preempted");
  REQUIRE(scheduler.mark_bad(node_id(1)).ok());
  CHECK(why(two, 5) == "not now: node 1, where it has reserved resources, is bad");
  REQUIRE(scheduler.mark_healthy(node_id(1)).ok());
  REQUIRE(scheduler.finish(job_id(3)).ok());
  CHECK(why(two, 5).empty());

  // More than eight jobs are counted.
  preempting_fgd shared = equal_nodes(1, 1);
  for (std::uint32_t j = 0; j < 10; ++j)
    REQUIRE(shared.recover(part_task(j, 100), {node_id(0), 1}, {}).ok());
  CHECK(shared.explain(whole_task(20, 1), 1).value() ==
        "it can start on node 0 when jobs 0, 1, 2, 3, 4, 5, 6 and 3 more have been preempted; no "
        "other choice costs less");
}

TEST_CASE("a gang that may fit, because the budget of the search ended, preempts nothing") {
  node_table nodes;
  for (std::uint32_t n = 0; n < 9; ++n) nodes.add({.host = {.cpu_milli = 64'000}, .gpus = 1});
  auto scheduler = *preemptive_sharing_scheduler<best_fit>::create(nodes, best_fit{});
  REQUIRE(scheduler.recover(whole_task(1, 1), {node_id(8), 1}, {}).ok());
  topology_constraints gang;  // it wants 7,516 thousandths of the 8,000 that are left
  for (const auto& [tasks, milli] :
       {std::pair{3, 448}, {3, 338}, {3, 470}, {1, 323}, {3, 413}, {3, 333}, {1, 403}, {2, 392}})
    gang.groups.push_back({.tasks = static_cast<std::uint32_t>(tasks),
                           .gpus = 1,
                           .gpu_milli = static_cast<milli_gpu>(milli)});
  const preemption_plan plan = *scheduler.propose(job_id(2), gang, 1);
  CHECK(plan.result == plan_result::wait);
  CHECK(plan.reason == wait_reason::undecided);
  CHECK(plan.victims.empty());
  gang.groups = {{.tasks = 9, .gpus = 1}};  // no search is needed: it does not fit
  const preemption_plan larger = *scheduler.propose(job_id(2), gang, 1);
  CHECK(larger.result == plan_result::preempt);
  CHECK(larger.victims == ids({1}));
}

TEST_CASE("a job that runs is not proposed again, and is never its own victim") {
  preempting_fgd scheduler = equal_nodes(1, 1);
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 1}};
  REQUIRE(scheduler.recover(whole_task(5, 1), {node_id(0), 1}, {}).ok());
  CHECK(scheduler.propose(whole_task(5, 1), 1).status() ==
        absl::AlreadyExistsError("job 5 runs already"));
  CHECK(scheduler.propose(job_id(5), gang, 1).status() ==
        absl::AlreadyExistsError("job 5 runs already"));
  REQUIRE(scheduler.finish(job_id(5)).ok());
  REQUIRE(scheduler.recover(job_id(6), gang, std::vector<task_placement>{{0, {node_id(0), 1}}}, {})
              .ok());
  CHECK(scheduler.propose(whole_task(6, 1), 1).status() ==
        absl::AlreadyExistsError("job 6 runs already"));
  CHECK(scheduler.propose(job_id(6), gang, 1).status() ==
        absl::AlreadyExistsError("job 6 runs already"));
  // Without a job id, and as another job, the answer is to preempt.
  CHECK(scheduler.propose(whole_task(7, 1), 1)->victims == ids({6}));
  task_request more = whole_task(6, 1);
  more.job = job_id{};
  CHECK(scheduler.propose(more, 1)->victims == ids({6}));
  // A job that preempts already gets its own plan again.
  const preemption_plan plan = *scheduler.propose(job_id(8), gang, 1);
  REQUIRE(scheduler.commit(job_id(8), gang, plan, {.priority = 1}).ok());
  CHECK(scheduler.propose(job_id(8), gang, 1)->victims == ids({6}));
}

TEST_CASE("a preempting job is known by its request, and starts at its placements only") {
  preempting_fgd scheduler = equal_nodes(2, 2);
  for (std::uint32_t g = 0; g < 4; ++g)
    REQUIRE(scheduler.recover(whole_task(g, 1), {node_id(g / 2), 1U << g % 2}, {}).ok());
  const auto knows = [&](const task_request& task) {
    const auto plan = scheduler.propose(task, 1);
    CHECK((plan.ok() || plan.status().code() == absl::StatusCode::kInvalidArgument));
    return plan.ok();
  };
  const task_request half = part_task(9, 500);
  REQUIRE(scheduler.commit(half, *scheduler.propose(half, 1), {.priority = 1}).ok());
  CHECK(knows(half));
  task_request other = half;
  other.gpu_milli = 501;
  CHECK(!knows(other));
  other = half;
  other.models = 1;
  CHECK(!knows(other));
  other = half;
  other.memory_mib = 1;
  CHECK(!knows(other));
  other = half;
  other.gpus = 0;
  CHECK(!knows(other));
  CHECK(!scheduler.propose(whole_task(9, 2), 1).ok());
  REQUIRE(scheduler.finish(job_id(9)).ok());

  // Without GPUs, neither the fraction nor the models count.
  REQUIRE(scheduler.recover({.job = job_id(4), .cpu_milli = 62'000}, {node_id(0), 0}, {}).ok());
  REQUIRE(scheduler.recover({.job = job_id(5), .cpu_milli = 62'000}, {node_id(1), 0}, {}).ok());
  const task_request cpu{.job = job_id(9), .cpu_milli = 500};
  const preemption_plan for_cpu = *scheduler.propose(cpu, 1);
  REQUIRE(for_cpu.result == plan_result::preempt);
  REQUIRE(scheduler.commit(cpu, for_cpu, {.priority = 1}).ok());
  task_request same = cpu;
  same.models = 1;
  CHECK(knows(same));
  same.gpu_milli = 1;
  CHECK(knows(same));
  REQUIRE(scheduler.finish(job_id(9)).ok());

  // A gang, by the number of tasks of each group and their requests.
  topology_constraints gang;
  gang.groups = {{.tasks = 2, .gpus = 1, .host = {.cpu_milli = 500}, .gpu_milli = 500},
                 {.tasks = 1, .gpus = 1, .host = {.cpu_milli = 500}}};
  const preemption_plan plan = *scheduler.propose(job_id(9), gang, 1);
  REQUIRE(plan.result == plan_result::preempt);
  REQUIRE(scheduler.commit(job_id(9), gang, plan, {.priority = 1}).ok());
  CHECK(scheduler.propose(job_id(9), gang, 1).ok());
  const auto knows_with = [&](auto change) {
    topology_constraints changed = gang;
    change(changed.groups);
    return scheduler.propose(job_id(9), changed, 1).ok();
  };
  CHECK(!knows_with([](auto& groups) { groups[0].tasks = 1; }));
  CHECK(!knows_with([](auto& groups) { groups[0].tasks = 3; }));
  CHECK(!knows_with([](auto& groups) { groups[1].gpu_milli = 500; }));
  CHECK(!knows_with([](auto& groups) { groups.pop_back(); }));
  CHECK(!knows_with([](auto& groups) { std::swap(groups[0], groups[1]); }));
  CHECK(!knows_with([](auto& groups) { groups.push_back(groups[1]); }));
  // When its victims have ended, it starts where it has reserved, and nowhere else.
  for (const job_id victim : plan.victims) REQUIRE(scheduler.finish(victim).ok());
  preemption_plan now = *scheduler.propose(job_id(9), gang, 1);
  REQUIRE(now.result == plan_result::bind);
  CHECK(now.placements == plan.placements);
  std::swap(now.placements[0].where, now.placements[2].where);
  CHECK(scheduler.commit(job_id(9), gang, now, {.priority = 1}).message() ==
        "job 9 has reserved resources for another request or placement; finish it first");
  now.placements = plan.placements;
  CHECK(scheduler.commit(job_id(9), gang, now, {.priority = 1}).ok());
}

TEST_CASE("nodes that join can be preempted on, and suggested nodes only") {
  preempting_fgd scheduler = equal_nodes(1, 1);
  REQUIRE(scheduler.recover(whole_task(1, 1), {node_id(0), 1}, {.cost = 5}).ok());
  const node_id added = *scheduler.add_node({.host = {.cpu_milli = 8000}, .gpus = 1});
  REQUIRE(scheduler.recover(whole_task(2, 1), {added, 1}, {.cost = 3}).ok());
  CHECK(scheduler.propose(whole_task(9, 1), 1)->victims == ids({2}));
  summary_bitset suggested(2);
  suggested.set(0);
  CHECK(scheduler.propose(whole_task(9, 1), 1, suggested)->victims == ids({1}));
  topology_constraints gang;
  gang.groups = {{.tasks = 1, .gpus = 1}};
  CHECK(scheduler.propose(job_id(9), gang, 1, suggested)->victims == ids({1}));
  REQUIRE(scheduler.finish(job_id(2)).ok());
  REQUIRE(scheduler.resize_node(added, 0, {.cpu_milli = 8000}).ok());
  CHECK(scheduler.propose(whole_task(9, 1), 1)->victims == ids({1}));
  REQUIRE(scheduler.remove_node(added).ok());
  CHECK(scheduler.propose(whole_task(9, 1), 1)->victims == ids({1}));
}

TEST_CASE("jobs are evicted only where the task or the gang may run, and only if that is enough") {
  // One cheap job on each node; each node but the last one lacks something of the request.
  node_table nodes;
  const resources host{.cpu_milli = 8000, .memory_mib = 800};
  nodes.add({.host = {.cpu_milli = 8000, .memory_mib = 400}, .gpus = 1, .model = 1});  // memory
  nodes.add({.host = {.cpu_milli = 4000, .memory_mib = 800}, .gpus = 1, .model = 1});  // CPU
  nodes.add({.host = host, .gpus = 1, .model = 2});                                    // the model
  nodes.add({.host = host, .gpus = 1, .model = 1});  // it is not suggested
  nodes.add({.host = host, .gpus = 1, .model = 1});  // a job of higher priority has the memory
  nodes.add({.host = host, .gpus = 1, .model = 1});  // it is bad
  nodes.add({.host = host, .gpus = 1, .model = 1});
  auto scheduler = *preempting_fgd::create(std::move(nodes), gradient());
  for (std::uint32_t n = 0; n < 7; ++n)
    REQUIRE(scheduler.recover(whole_task(n, 1), {node_id(n), 1}, {.cost = n == 6 ? 90U : 1U}).ok());
  const task_request memory{.job = job_id(20), .memory_mib = 300};
  REQUIRE(scheduler.recover(memory, {node_id(4), 0}, {.priority = 5}).ok());
  REQUIRE(scheduler.mark_bad(node_id(5)).ok());
  summary_bitset suggested(7);
  for (const std::uint32_t n : {0U, 1U, 2U, 4U, 5U, 6U}) suggested.set(n);

  const task_request task{.job = job_id(30),
                          .cpu_milli = 6000,
                          .memory_mib = 600,
                          .gpus = 1,
                          .gpu_milli = whole_gpu,
                          .models = 0b10};
  const preemption_plan plan = *scheduler.propose(task, 1, suggested);
  REQUIRE(plan.result == plan_result::preempt);
  CHECK(plan.victims == ids({6}));
  CHECK(plan.lower_bound == 90);
  CHECK(scheduler.propose(task, 1)->victims == ids({3}));

  topology_constraints gang;
  gang.groups = {
      {.tasks = 1, .gpus = 1, .host = {.cpu_milli = 6000, .memory_mib = 600}, .models = 0b10}};
  CHECK(scheduler.propose(job_id(31), gang, 1, suggested)->victims == ids({6}));
  gang.groups[0].tasks = 2;
  CHECK(scheduler.propose(job_id(31), gang, 1, suggested)->result == plan_result::wait);
  CHECK(scheduler.propose(job_id(31), gang, 1)->victims == ids({3, 6}));
  // A gang that must be on one node, or whose tasks must be apart, does not preempt.
  gang.groups[0].tasks = 1;
  gang.required = 0;
  CHECK(scheduler.propose(job_id(31), gang, 1)->result == plan_result::wait);
  gang.required = any_level;
  gang.groups[0].spread = {{0, 1}};
  CHECK(scheduler.propose(job_id(31), gang, 1)->result == plan_result::wait);
}

TEST_CASE(
    "victims on shared GPUs cost as little as any set of jobs does, while jobs and nodes come and "
    "go") {
  std::uint32_t preempted = 0;
  std::uint32_t gangs = 0;
  std::uint32_t best_gangs = 0;
  std::uint32_t bounded_gangs = 0;
  std::uint32_t bound = 0;
  std::uint32_t undecided = 0;
  std::uint32_t never = 0;
  std::uint32_t waits_in_vain = 0;
  for (std::uint32_t seed = 0; seed < scaled(200u); ++seed) {
    preempting_world world(seed);
    rng& random = world.random;
    for (int step = 0; step < 120; ++step) {
      const std::uint32_t priority = random.uniform(4);
      host_job job{.terms = {priority, random.uniform(3) == 0 ? 1 : random.uniform(20)}};
      const std::uint32_t what = random.uniform(10);
      const bool full = world.evictable(4).size() >= 9;
      if (what < 4) {
        task_request task = world.any_task();
        task.job = job_id(world.next_job);
        const auto suggested = world.any_suggested();
        const preemption_plan plan = suggested
                                         ? *world.scheduler->propose(task, priority, *suggested)
                                         : *world.scheduler->propose(task, priority);
        const auto least = world.least(task, priority, suggested);
        REQUIRE((plan.result != plan_result::wait) == least.has_value());
        if (!least) continue;
        check_plan(world, plan, {{task, 0}}, priority, suggested);
        REQUIRE(plan.cost == least->first);
        CHECK(plan.lower_bound == plan.cost);
        if (plan.result == plan_result::preempt) {
          ++preempted;
          CHECK(plan.placements[0].where.node == least->second);
        }
        job.tasks = {{task, {}}};
        if (plan.result == plan_result::bind && full) continue;
        if (random.uniform(6) > 0) world.commit(world.next_job++, plan, std::move(job));
      } else if (what < 6) {
        topology_constraints gang = world.any_gang();
        const job_id id(world.next_job);
        const suggested_set suggested = world.any_suggested();
        const preemption_plan plan = suggested
                                         ? *world.scheduler->propose(id, gang, priority, *suggested)
                                         : *world.scheduler->propose(id, gang, priority);
        const std::vector<gang_task> tasks = tasks_of(gang);
        node_table now = world.without({});
        const bool fits = preempting_world::fit(now, tasks, 0, suggested);
        if (plan.result == plan_result::wait) {
          // Without its reservation, an undecided gang may fit; every other one does not.
          if (plan.reason != wait_reason::undecided) REQUIRE(!fits);
          if (plan.reason != wait_reason::undecided)
            waits_in_vain += world.least(gang, priority, suggested) ? 1U : 0U;
          if (plan.reason == wait_reason::never) {
            node_table idle = world.idle;
            REQUIRE(!preempting_world::fit(idle, tasks, 0, std::nullopt));
            ++never;
          }
          undecided += plan.reason == wait_reason::undecided ? 1U : 0U;
          continue;
        }
        REQUIRE((plan.result == plan_result::bind) == fits);
        check_plan(world, plan, tasks, priority, suggested);
        if (plan.result == plan_result::preempt) {
          const auto least = world.least(gang, priority, suggested);
          REQUIRE(least.has_value());
          REQUIRE(plan.cost >= *least);
          REQUIRE(plan.lower_bound <= *least);
          ++gangs;
          best_gangs += plan.cost == *least ? 1U : 0U;
          bounded_gangs += plan.cost == plan.lower_bound ? 1U : 0U;
        }
        if (plan.result == plan_result::bind && full) continue;
        job.gang = std::move(gang);
        world.commit(world.next_job++, plan, std::move(job));
      } else if (what < 8 && !world.jobs.empty()) {
        auto victim = world.jobs.begin();
        std::advance(victim, random.uniform(static_cast<std::uint32_t>(world.jobs.size())));
        host_job& job_of = victim->second;
        if (job_of.runs && job_of.tasks.size() > 1 && random.uniform(2) == 0) {
          const placed_task one = job_of.tasks.back();
          REQUIRE(world.scheduler->finish(job_id(victim->first), {one.group, one.where}).ok());
          job_of.tasks.pop_back();
        } else {
          world.finish(victim->first);
        }
      } else if (what == 8) {
        world.change_node();
      } else {  // the victims of a preempting job have ended
        for (auto& [id, waiting] : world.jobs) {
          if (waiting.runs || !waiting.waits_for.empty()) continue;
          const preemption_plan plan = waiting.gang
                                           ? *world.scheduler->propose(job_id(id), *waiting.gang, 0)
                                           : *world.scheduler->propose(waiting.tasks[0].request, 0);
          if (plan.result == plan_result::wait) {
            CHECK(plan.reason == wait_reason::unhealthy);
            continue;
          }
          REQUIRE(plan.result == plan_result::bind);
          world.commit(id, plan, host_job(waiting));
          ++bound;
          break;
        }
      }
      world.check_nodes();
      if (!world.some_preempt() && step % 4 == 0) world.check_afresh();
    }
  }
  INFO(preempted, " tasks and ", gangs, " gangs preempted; ", best_gangs, " gangs at least cost, ",
       bounded_gangs, " of them proved; ", bound, " ran later; ", undecided, " waited undecided; ",
       never, " gangs can never run; ", waits_in_vain, " waited although victims were enough");
  CHECK(preempted > scaled(300u));
  CHECK(bound > scaled(40u));
  CHECK(best_gangs == gangs);
  CHECK(waits_in_vain == 0);
  CHECK(undecided == 0);
  CHECK(never > scaled(400u));
}
