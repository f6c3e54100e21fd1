// apiary/benchmarks/shared_preemption_bench.cpp - tasks that preempt others on shared GPUs, by GPUs.
// SPDX-License-Identifier: MIT
#include "benchmarks/openb_experiment.h"
#include <apiary/core/rng.h>
#include <apiary/fgd/fgd.h>
#include <apiary/fgd/preemptive_sharing.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/metric/fragmentation.h>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary_bench;

namespace {

using preempting_fgd = preemptive_sharing_scheduler<fragmentation_gradient>;

// A cluster like that of the openb trace, with so many nodes, full of its tasks: of priority 0, 1 and
// 2, with random costs.
struct full_cluster {
  experiment trace = load_openb();
  rng random{7};
  preempting_fgd scheduler;
  std::uint32_t next_job = 0;

  explicit full_cluster(std::uint32_t nodes)
      : scheduler(*preempting_fgd::create(copies(nodes),
                                          fragmentation_gradient(fragmentation(trace.mix)))) {
    for (std::uint32_t failed = 0; failed < 50;) {
      const task_request task = next_task();
      const auto plan = scheduler.propose(task, 0);
      if (plan->result != plan_result::bind || !scheduler.commit(task, *plan, any_terms()).ok())
        ++failed;
    }
  }
  [[nodiscard]] node_table copies(std::uint32_t nodes) const {
    node_table table;
    while (table.size() < nodes)
      table.add(trace.machines.nodes.shape(node_id(table.size() % trace.machines.nodes.size())));
    return table;
  }
  task_request next_task() {
    const auto& arrivals = trace.work.arrivals;
    task_request task =
        trace.work.tasks[arrivals[random.uniform(static_cast<std::uint32_t>(arrivals.size()))]]
            .request;
    task.job = job_id(next_job++);
    return task;
  }
  eviction_terms any_terms() { return {random.uniform(3), 1 + random.uniform(1000)}; }
};

full_cluster& cluster_of(std::int64_t nodes) {
  static std::map<std::int64_t, full_cluster> known;
  auto found = known.find(nodes);
  if (found == known.end())
    found = known.try_emplace(nodes, static_cast<std::uint32_t>(nodes)).first;
  return found->second;
}

// A task of priority 1, 2 or 3 arrives. If it preempts, its victims end and it runs on, with
// priority 0, 1 or 2. Only propose() is timed.
void shared_preemption(benchmark::State& state) {
  full_cluster& cluster = cluster_of(state.range(0));
  for (std::uint32_t priority = 1; priority <= 3; ++priority)  // all kinds have their bounds
    for (const named_task& task : cluster.trace.work.tasks)
      benchmark::DoNotOptimize(cluster.scheduler.propose(task.request, priority));
  double victims = 0;
  double at_least_cost = 0;
  double preempted = 0;
  double waited = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const task_request task = cluster.next_task();
    const std::uint32_t priority = 1 + cluster.random.uniform(3);
    state.ResumeTiming();
    const auto plan = cluster.scheduler.propose(task, priority);
    state.PauseTiming();
    waited += plan->result == plan_result::wait ? 1 : 0;
    if (plan->result == plan_result::preempt) {
      ++preempted;
      victims += static_cast<double>(plan->victims.size());
      at_least_cost += plan->cost == plan->lower_bound ? 1 : 0;
      if (!cluster.scheduler.commit(task, *plan, {priority}).ok()) state.SkipWithError("no commit");
      for (const job_id victim : plan->victims)
        if (!cluster.scheduler.finish(victim).ok()) state.SkipWithError("a victim does not run");
      const auto now = cluster.scheduler.propose(task, priority);
      if (now->result != plan_result::bind ||
          !cluster.scheduler.commit(task, *now, cluster.any_terms()).ok())
        state.SkipWithError("it does not start");
    } else if (plan->result == plan_result::bind) {
      if (!cluster.scheduler.commit(task, *plan, cluster.any_terms()).ok())
        state.SkipWithError("no commit");
    }
    state.ResumeTiming();
  }
  const double all = static_cast<double>(state.iterations());
  state.counters["preempt"] = preempted / all;
  state.counters["wait"] = waited / all;
  state.counters["victims"] = victims / (std::max)(preempted, 1.0);
  state.counters["least_cost"] = at_least_cost / (std::max)(preempted, 1.0);
}
BENCHMARK(shared_preemption)
    ->ArgName("nodes")
    ->Arg(121)
    ->Arg(1213)
    ->Arg(12130)
    ->Arg(121300)
    ->Iterations(10000)
    ->Unit(benchmark::kMicrosecond);

// A gang of two to eight equal tasks of priority 3 arrives. Its victims end and it runs on, with priority
// 0, 1 or 2. Only propose() is timed. `cost_to_bound`: the sum of what victims cost by that of the lower
// bounds.
void shared_gang_preemption(benchmark::State& state) {
  full_cluster& cluster = cluster_of(state.range(0));
  double cost = 0;
  double bound = 0;
  double preempted = 0;
  double waited = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const task_request task = cluster.next_task();
    topology_constraints gang;
    gang.groups = {{.tasks = 2 + cluster.random.uniform(7),
                    .gpus = task.gpus,
                    .host = task.host(),
                    .gpu_milli = task.gpu_milli,
                    .models = task.models}};
    state.ResumeTiming();
    const auto plan = cluster.scheduler.propose(task.job, gang, 3);
    state.PauseTiming();
    if (plan->result == plan_result::wait) {
      ++waited;
    } else {
      const bool preempts = plan->result == plan_result::preempt;
      preempted += preempts ? 1 : 0;
      cost += static_cast<double>(plan->cost);
      bound += static_cast<double>(plan->lower_bound);
      if (!cluster.scheduler
               .commit(task.job, gang, *plan, preempts ? eviction_terms{3} : cluster.any_terms())
               .ok())
        state.SkipWithError("no commit");
      for (const job_id victim : plan->victims)
        if (!cluster.scheduler.finish(victim).ok()) state.SkipWithError("a victim does not run");
      if (preempts) {
        const auto now = cluster.scheduler.propose(task.job, gang, 3);
        if (now->result != plan_result::bind ||
            !cluster.scheduler.commit(task.job, gang, *now, cluster.any_terms()).ok())
          state.SkipWithError("it does not start");
      }
    }
    state.ResumeTiming();
  }
  const double all = static_cast<double>(state.iterations());
  state.counters["preempt"] = preempted / all;
  state.counters["wait"] = waited / all;
  state.counters["cost_to_bound"] = bound > 0 ? cost / bound : 1.0;
}
BENCHMARK(shared_gang_preemption)
    ->ArgName("nodes")
    ->Arg(16)
    ->Arg(121)
    ->Arg(1213)
    ->Arg(12130)
    ->Iterations(200)
    ->Unit(benchmark::kMicrosecond);

// A gang of so many tasks of a GPU starts on an idle cluster, and its tasks end one by one. The time is
// that of one task.
void gang_ends_task_by_task(benchmark::State& state) {
  const auto tasks = static_cast<std::uint32_t>(state.range(0));
  node_table nodes;
  while (nodes.size() * 8 < tasks)
    nodes.add({.host = {.cpu_milli = 64'000, .memory_mib = 64'000}, .gpus = 8});
  auto scheduler = *preempting_fgd::create(std::move(nodes),
                                           fragmentation_gradient(fragmentation(load_openb().mix)));
  topology_constraints gang;
  gang.groups = {{.tasks = tasks, .gpus = 1, .host = {.cpu_milli = 1000}}};
  const job_id job(0);
  for (auto _ : state) {
    state.PauseTiming();
    const auto plan = scheduler.propose(job, gang, 0);
    if (!scheduler.commit(job, gang, *plan, {}).ok()) state.SkipWithError("it does not start");
    state.ResumeTiming();
    for (const task_placement& task : plan->placements)
      if (!scheduler.finish(job, task).ok()) state.SkipWithError("a task does not run");
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(gang_ends_task_by_task)
    ->ArgName("tasks")
    ->RangeMultiplier(10)
    ->Range(1000, 100'000)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
