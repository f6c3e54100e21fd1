// apiary/benchmarks/shared_gang_bench.cpp - gangs in a full cluster of shared GPUs.
// SPDX-License-Identifier: MIT
#include "benchmarks/openb_experiment.h"
#include "tests/support/racks_in_use.h"
#include <apiary/core/rng.h>
#include <apiary/explain/proof_check.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gang_sharing.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/shared_gpu_fit.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary_bench;

namespace {

using gang_fgd = gang_sharing_scheduler<fragmentation_gradient>;

// The trace's cluster after so many percent of its arrivals, and gangs of two task groups of one to
// eight tasks each that look like tasks of the trace.
struct full_cluster {
  explicit full_cluster(std::uint64_t percent, level_t required = any_level)
      : load(load_openb()),
        scheduler(
            gang_fgd::create(load.machines.nodes, fragmentation_gradient(fragmentation(load.mix)))
                .value()) {
    const std::size_t arrivals = load.work.arrivals.size() * percent / 100;
    for (std::size_t i = 0; i < arrivals; ++i) {
      task_request task = load.work.tasks[load.work.arrivals[i]].request;
      task.job = job_id(static_cast<std::uint32_t>(i));
      const task_plan plan = scheduler.propose(task).value();
      if (plan.result == plan_result::bind) APIARY_VERIFY(scheduler.commit(task, plan).ok());
    }
    rng random(11);
    for (int g = 0; g < 200; ++g) {
      topology_constraints& gang = gangs.emplace_back();
      gang.required = required;
      for (int m = 0; m < 2; ++m) {
        const auto t = random.uniform(static_cast<std::uint32_t>(load.work.tasks.size()));
        const task_request& like = load.work.tasks[t].request;
        constrained_task_group& group = gang.groups.emplace_back();
        group = {.tasks = 1 + random.uniform(8), .gpus = like.gpus, .host = like.host()};
        if (like.wants_part_of_gpu()) group.gpu_milli = like.gpu_milli;
        group.models = like.models;
      }
    }
  }

  experiment load;
  gang_fgd scheduler;
  std::vector<topology_constraints> gangs;
};

// Every task proposed and committed by itself, all of them ended when one fits nowhere.
bool one_by_one(gang_fgd& scheduler, const topology_constraints& gang) {
  constexpr std::uint32_t first_job = 1U << 20;
  std::uint32_t job = first_job;
  bool fits = true;
  for (const constrained_task_group& m : gang.groups) {
    for (std::uint32_t t = 0; t < m.tasks && fits; ++t) {
      task_request task = m.task();
      task.job = job_id(job);
      const task_plan plan = scheduler.propose(task).value();
      fits = plan.result == plan_result::bind && scheduler.commit(task, plan).ok();
      if (fits) ++job;
    }
  }
  while (job > first_job) APIARY_VERIFY(scheduler.finish(job_id(--job)).ok());
  return fits;
}

void report(benchmark::State& state, std::size_t gangs) {
  state.counters["s/gang"] =
      benchmark::Counter(static_cast<double>(gangs), benchmark::Counter::kIsIterationInvariantRate |
                                                         benchmark::Counter::kInvert);
}

template <bool InRack>
void exact(benchmark::State& state) {
  full_cluster cluster(static_cast<std::uint64_t>(state.range(0)), InRack ? 1 : any_level);
  const std::uint32_t nodes = cluster.scheduler.nodes().size();
  // Racks of 16, the last one of what is left.
  std::vector<std::uint32_t> sizes(nodes / 16, 16);
  if (nodes % 16 != 0) sizes.push_back(nodes % 16);
  const ragged_tree racks({{static_cast<std::uint32_t>(sizes.size())}, sizes});
  std::uint64_t fits = 0;
  std::uint64_t searched = 0;
  std::uint64_t ended = 0;
  std::vector<infeasibility_proof> why(cluster.gangs.size());
  for (auto _ : state) {
    fits = searched = ended = 0;
    for (std::size_t g = 0; g < cluster.gangs.size(); ++g) {
      shared_gang_plan plan = cluster.scheduler.propose(cluster.gangs[g], racks).value();
      fits += plan.result == plan_result::bind ? 1U : 0U;
      searched += plan.is_least_cost ? 1U : 0U;
      ended += plan.reason == wait_reason::undecided ? 1U : 0U;
      why[g] = std::move(plan.proof);
    }
  }
  std::uint64_t greedy = 0;
  for (std::size_t g = 0; g < cluster.gangs.size(); ++g) {
    greedy += one_by_one(cluster.scheduler, cluster.gangs[g]) ? 1U : 0U;
    if (why[g].cells.empty()) continue;
    proof_check check(racks, 0, cluster.scheduler.nodes(), cluster.gangs[g]);
    if (!check(why[g])) state.SkipWithError("no proof");
  }
  if (!InRack && fits + ended < greedy) state.SkipWithError("a no to a gang that fits");
  state.counters["fit"] = static_cast<double>(fits);
  state.counters["exact_only"] = static_cast<double>(searched);
  state.counters["undecided"] = static_cast<double>(ended);
  state.counters["one_by_one"] = static_cast<double>(greedy);
  report(state, cluster.gangs.size());
}
void greedily(benchmark::State& state) {
  full_cluster cluster(static_cast<std::uint64_t>(state.range(0)));
  std::uint64_t fits = 0;
  for (auto _ : state) {
    fits = 0;
    for (const topology_constraints& gang : cluster.gangs)
      fits += one_by_one(cluster.scheduler, gang) ? 1U : 0U;
  }
  state.counters["fit"] = static_cast<double>(fits);
  report(state, cluster.gangs.size());
}
// Three kinds of 30 small tasks on 100 idle nodes of 16 GPUs.
void small_tasks(benchmark::State& state) {
  node_table nodes;
  for (int n = 0; n < 100; ++n) nodes.add({{1'000'000, 1'000'000}, 16, 0});
  topology_constraints gang;
  for (const milli_gpu part : {250, 200, 150})
    gang.groups.push_back({.tasks = 30, .gpus = 1, .gpu_milli = part});
  shared_gpu_fit<uniform_tree> fit(10'000);
  const auto no_cost = [](const node_state&, const node_state&) -> std::int64_t { return 0; };
  const uniform_tree tree{100};
  for (auto _ : state)
    if (fit(nodes, tree, 0, gang, no_cost).verdict != fit_verdict::fits)
      state.SkipWithError("undecided");
}
// 1,100 tasks run on 128 nodes. 40 gangs of six kinds with CPU arrive, each for one rack of 16 nodes.
void kinds_in_a_rack(benchmark::State& state) {
  const apiary_test::racks_in_use cluster;
  const std::vector<topology_constraints>& gangs = cluster.gangs;
  std::vector<double> times;
  std::uint32_t bound = 0;
  for (auto _ : state) {
    gang_fgd scheduler = cluster.scheduler;
    bound = 0;
    for (std::uint32_t job = 0; job < gangs.size(); ++job) {
      const auto begin = std::chrono::steady_clock::now();
      const shared_gang_plan plan = scheduler.propose(gangs[job], cluster.racks, 0).value();
      const auto end = std::chrono::steady_clock::now();
      times.push_back(std::chrono::duration<double, std::milli>(end - begin).count());
      if (plan.result != plan_result::bind) continue;
      ++bound;
      APIARY_VERIFY(scheduler.commit(job_id(10'000 + job), gangs[job], plan).ok());
    }
  }
  std::sort(times.begin(), times.end());
  state.counters["bound"] = bound;
  state.counters["median_ms"] = times[times.size() / 2];
  state.counters["worst_ms"] = times.back();
}
void loads(benchmark::internal::Benchmark* b) {
  b->Arg(70)->Arg(85)->ArgName("arrived_%")->Unit(benchmark::kMillisecond);
}
BENCHMARK(exact<false>)->Name("gangs/propose")->Apply(loads);
BENCHMARK(exact<true>)->Name("gangs/propose_in_a_rack")->Apply(loads);
BENCHMARK(greedily)->Name("gangs/one_by_one")->Apply(loads);
BENCHMARK(small_tasks)->Name("gangs/small_tasks")->Unit(benchmark::kMillisecond);
BENCHMARK(kinds_in_a_rack)->Name("gangs/kinds_in_a_rack")->Unit(benchmark::kMillisecond);

}  // namespace
