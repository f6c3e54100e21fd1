// apiary/benchmarks/sched_bench.cpp - FGD decisions, beside scoring every node and beside the other
// policies.
// SPDX-License-Identifier: MIT
#include "benchmarks/openb_experiment.h"
#include "examples/programs/published_fragmentation.h"
#include "tests/support/naive_sharing.h"
#include <apiary/core/rng.h>
#include <apiary/fgd/baseline_scores.h>
#include <apiary/fgd/fgd.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/price_score.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/sim/replay.h>
#include <apiary/trace/workload.h>

#include <absl/status/statusor.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

using namespace apiary;
using namespace example;
using namespace apiary_bench;

namespace {

// The trace's cluster and load, made `gpus` GPUs large: a part of it, or copies of it behind one
// another.
experiment scaled(std::uint64_t gpus) {
  static const experiment once = load_openb();
  experiment e{{}, {once.work.tasks, {}}, once.mix};
  for (std::uint32_t n = 0; e.machines.nodes.total_gpus() < gpus;
       n = (n + 1) % once.machines.nodes.size()) {
    e.machines.nodes.add(once.machines.nodes.shape(node_id(n)));
  }
  const double copies = static_cast<double>(e.machines.nodes.size()) / once.machines.nodes.size();
  const auto arrivals =
      static_cast<std::size_t>(copies * static_cast<double>(once.work.arrivals.size()));
  for (std::size_t i = 0; i < arrivals; ++i) {
    e.work.arrivals.push_back(once.work.arrivals[i % once.work.arrivals.size()]);
  }
  return e;
}

constexpr std::int64_t trace_gpus = 6212;

std::uint64_t checksum(const decisions& answers) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::optional<placement>& where : answers) {
    const std::uint64_t word =
        where ? std::uint64_t{where->node.value} << 32 | where->gpu_mask : ~std::uint64_t{0};
    hash = (hash ^ word) * 0x100000001b3U;
  }
  return hash;
}

// Every node scored for every task, both fragmentation values from scratch: the rival.
decisions decide_naively(const experiment& e) {
  node_table nodes = e.machines.nodes;
  decisions answers;
  for (const std::uint32_t t : e.work.arrivals) {
    const task_request& task = e.work.tasks[t].request;
    answers.push_back(apiary_test::naive_fgd(e.mix, nodes, task));
    if (answers.back()) nodes.place(task, *answers.back());
  }
  return answers;
}

// The decisions of the naive scorer on the trace, which FGD must repeat, are made once.
std::optional<std::uint64_t> naive_checksum;

void expect_naive(benchmark::State& state, std::uint64_t sum) {
  if (!naive_checksum) naive_checksum = checksum(decide_naively(scaled(trace_gpus)));
  if (sum != *naive_checksum) state.SkipWithError("other decisions than the naive scorer's");
}

void report(benchmark::State& state, const experiment& e) {
  const auto decided = static_cast<std::int64_t>(e.work.arrivals.size());
  state.SetItemsProcessed(state.iterations() * decided);
  state.counters["nodes"] = e.machines.nodes.size();
  state.counters["s/decision"] = benchmark::Counter(
      static_cast<double>(decided),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void naive(benchmark::State& state) {
  const experiment e = scaled(trace_gpus);
  for (auto _ : state) naive_checksum = checksum(decide_naively(e));
  report(state, e);
}
BENCHMARK(naive)->Unit(benchmark::kMillisecond)->Iterations(1);

// Every node scored for every task by the exact form: what the tables alone give.
void scan_of_exact_scores(benchmark::State& state) {
  const experiment e = scaled(trace_gpus);
  std::uint64_t sum = 0;
  for (auto _ : state) {
    node_table nodes = e.machines.nodes;
    fragmentation_gradient gradient{fragmentation(e.mix)};
    for (const node_id n : nodes.ids()) gradient.update(nodes, n);
    decisions answers;
    for (const std::uint32_t t : e.work.arrivals) {
      const task_request& task = e.work.tasks[t].request;
      std::uint32_t best = 0;
      std::optional<node_id> chosen;
      for (const node_id n : nodes.ids()) {
        if (!nodes[n].fits(task)) continue;
        const std::uint32_t score = gradient.score(nodes, n, task);
        if (chosen && score <= best) continue;
        best = score;
        chosen = n;
      }
      answers.push_back(std::nullopt);
      if (!chosen) continue;
      answers.back() = placement{*chosen, gradient.gpu_mask(nodes, *chosen, task)};
      nodes.place(task, *answers.back());
      gradient.update(nodes, *chosen);
    }
    sum = checksum(answers);
  }
  expect_naive(state, sum);
  report(state, e);
}
BENCHMARK(scan_of_exact_scores)->Unit(benchmark::kMillisecond);

template <class Score>
std::uint64_t run(benchmark::State& state, const experiment& e, const Score& score) {
  std::uint64_t sum = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto scheduler = gpu_sharing_scheduler<Score>::create(e.machines.nodes, score).value();
    state.ResumeTiming();
    const decisions answers = replay(scheduler, e.work).value();
    state.PauseTiming();
    const std::uint64_t now = checksum(answers);
    if (sum != 0 && now != sum) state.SkipWithError("other decisions than in the run before");
    sum = now;
    state.ResumeTiming();
  }
  report(state, e);
  return sum;
}

// Propose and commit of every arrival; building the scheduler is not counted.
void fgd_by_gpus(benchmark::State& state) {
  const experiment e = scaled(static_cast<std::uint64_t>(state.range(0)));
  const std::uint64_t sum = run(state, e, fragmentation_gradient(fragmentation(e.mix)));
  if (state.range(0) == trace_gpus) expect_naive(state, sum);
}
BENCHMARK(fgd_by_gpus)
    ->Unit(benchmark::kMillisecond)
    ->Arg(trace_gpus)
    ->Arg(1000)
    ->Arg(10000)
    ->Arg(100000)
    ->Arg(100 * trace_gpus)
    ->Arg(1000000);

// The same if nearly all arrivals differ in memory.
void fgd_by_gpus_memory_differs(benchmark::State& state) {
  experiment e = scaled(static_cast<std::uint64_t>(state.range(0)));
  rng random(1);
  std::vector<named_task> tasks;
  for (std::uint32_t& arrival : e.work.arrivals) {
    tasks.push_back(e.work.tasks[arrival]);
    std::uint32_t& memory = tasks.back().request.memory_mib;
    memory = memory / 2 + random.uniform(memory / 2 + 1);
    arrival = static_cast<std::uint32_t>(tasks.size() - 1);
  }
  e.work.tasks = std::move(tasks);
  run(state, e, fragmentation_gradient(fragmentation(e.mix)));
}
BENCHMARK(fgd_by_gpus_memory_differs)
    ->Unit(benchmark::kMillisecond)
    ->Arg(trace_gpus)
    ->Arg(100 * trace_gpus);

// The same with so many kinds: the CPU of each task is as in the trace, or up to a half less. So many tasks
// arrive that nearly all kinds are among them.
experiment with_kinds(std::uint64_t gpus, std::uint32_t kinds) {
  experiment e = scaled(gpus);
  const auto trace_tasks = static_cast<std::uint32_t>(e.work.tasks.size());
  std::vector<std::uint32_t> distinct;  // a task of each kind
  for (std::uint32_t t = 0; t < trace_tasks; ++t) {
    const task_request& task = e.work.tasks[t].request;
    const auto same = [&](std::uint32_t other) {
      const task_request& o = e.work.tasks[other].request;
      return o.cpu_milli == task.cpu_milli && o.gpus == task.gpus &&
             o.gpu_milli == task.gpu_milli && o.models == task.models;
    };
    if (std::none_of(distinct.begin(), distinct.end(), same)) distinct.push_back(t);
  }
  const std::uint32_t variants =
      (std::max)(kinds / static_cast<std::uint32_t>(distinct.size()), 1U);
  const std::size_t of_trace = e.work.arrivals.size();
  while (e.work.arrivals.size() < 100'000)
    e.work.arrivals.push_back(e.work.arrivals[e.work.arrivals.size() - of_trace]);
  rng random(1);
  std::vector<named_task> tasks;
  for (std::uint32_t& arrival : e.work.arrivals) {
    tasks.push_back(e.work.tasks[arrival]);
    std::uint32_t& cpu = tasks.back().request.cpu_milli;
    cpu -= static_cast<std::uint32_t>(std::uint64_t{cpu / 2} * random.uniform(variants) / variants);
    arrival = static_cast<std::uint32_t>(tasks.size() - 1);
  }
  e.work.tasks = std::move(tasks);
  return e;
}
// Tasks with the same CPU, GPUs and models are of one kind.
using kind = std::tuple<std::uint32_t, std::uint32_t, milli_gpu, model_set>;
kind kind_of(const task_request& task) {
  if (!task.wants_gpu()) return {task.cpu_milli, 0, milli_gpu{0}, any_model};
  return {task.cpu_milli, task.gpus, task.gpu_milli, task.models};
}
// How busy a cluster is.
struct load {
  std::uint32_t percent = 0;  // of the GPUs that tasks use, or as many as fit
  std::uint32_t ends = 0;     // before each so many arrivals the oldest task ends; 0: none does
  friend bool operator==(const load&, const load&) = default;
};
// A cluster of which tasks use a part of the GPUs: when one starts, the oldest ones end. Each copy of the
// trace's cluster was filled by an FGD of its own, because to fill all of them at once takes minutes.
template <class Score>
struct busy_cluster {
  experiment e;
  gpu_sharing_scheduler<Score> scheduler;
  std::deque<std::pair<job_id, std::uint64_t>> running{};  // the oldest first; thousandths of GPUs
  std::uint64_t used = 0;                                  // thousandths of GPUs
  std::uint64_t most = 0;
  std::uint32_t next = 0;  // job id
  std::uint32_t ends = 0;  // as in load
  std::set<kind> kinds{};  // that arrive, or have arrived

  busy_cluster(experiment made, Score score, load wanted)
      : e(std::move(made)),
        scheduler(gpu_sharing_scheduler<Score>::create(e.machines.nodes, std::move(score)).value()),
        next(static_cast<std::uint32_t>(e.work.arrivals.size())),
        ends(wanted.ends) {
    std::vector<std::uint32_t> first_of_kind;
    for (const std::uint32_t t : e.work.arrivals)
      if (kinds.insert(kind_of(e.work.tasks[t].request)).second) first_of_kind.push_back(t);
    static const experiment once = load_openb();
    const std::uint32_t part = once.machines.nodes.size();
    std::vector<std::pair<job_id, std::uint64_t>> started;
    for (std::uint32_t first = 0; first < e.machines.nodes.size(); first += part) {
      node_table nodes;
      for (std::uint32_t n = first; n < e.machines.nodes.size() && n < first + part; ++n)
        nodes.add(e.machines.nodes.shape(node_id(n)));
      const std::uint64_t enough = used + std::uint64_t{10} * wanted.percent * nodes.total_gpus();
      auto one = fgd::create(nodes, fragmentation_gradient(fragmentation(e.mix))).value();
      const std::size_t begin = std::size_t{first} / part * once.work.arrivals.size();
      const std::size_t last =
          (std::min)(begin + once.work.arrivals.size(), e.work.arrivals.size());
      for (std::size_t i = begin; used < enough && i < last; ++i) {
        task_request task = e.work.tasks[e.work.arrivals[i]].request;
        task.job = job_id(static_cast<std::uint32_t>(i));
        task_plan plan = one.propose(task).value();
        if (plan.result != plan_result::bind || !one.commit(task, plan).ok()) continue;
        plan.where.node = node_id(first + plan.where.node.value);
        APIARY_VERIFY(scheduler.commit(task, plan).ok());
        started.push_back({task.job, task.total_gpu_milli()});
        used += task.total_gpu_milli();
      }
    }
    rng(1).shuffle(started);
    running.assign(started.begin(), started.end());
    most = used;
    // The kinds get their scores: what the first task of a kind costs is in new_kind.
    for (int i = 0; i < 20'000; ++i) step();
    for (const std::uint32_t t : first_of_kind)
      benchmark::DoNotOptimize(scheduler.propose(e.work.tasks[t].request));
  }
  // A task arrives, and starts if it fits.
  void step() {
    if (ends > 0 && next % ends == 0 && !running.empty()) end_oldest();
    const task_request task = arrive();
    start(task, scheduler.propose(task).value());
  }
  // The next task.
  task_request arrive() {
    const std::uint32_t arrival = next % static_cast<std::uint32_t>(e.work.arrivals.size());
    task_request task = e.work.tasks[e.work.arrivals[arrival]].request;
    task.job = job_id(next++);
    return task;
  }
  // A task of a kind that has never arrived: it requests a little more CPU than the next task.
  task_request arrive_as_new_kind() {
    task_request task = arrive();
    do {
      ++task.cpu_milli;
    } while (!kinds.insert(kind_of(task)).second);
    return task;
  }
  // It starts, if the plan says so, and the oldest tasks end.
  void start(const task_request& task, const task_plan& plan) {
    if (plan.result == plan_result::bind) {
      APIARY_VERIFY(scheduler.commit(task, plan).ok());
      running.push_back({task.job, task.total_gpu_milli()});
      used += task.total_gpu_milli();
    }
    while (used > most) end_oldest();
  }
  void end_oldest() {
    APIARY_VERIFY(scheduler.finish(running.front().first).ok());
    used -= running.front().second;
    running.pop_front();
  }
};
// Such a cluster with so many GPUs and kinds of tasks, under FGD, or under prices from one sample.
template <class Score>
busy_cluster<Score> busy(std::int64_t gpus, std::uint32_t kinds, load wanted) {
  experiment e = with_kinds(static_cast<std::uint64_t>(gpus), kinds);
  if constexpr (std::same_as<Score, price_score>) {
    const task_mix all = task_mix::from_history(workload::kinds(load_openb().work.tasks), 100);
    auto score = price_score::create(e.machines.nodes, all, {.samples = 1}).value();
    return {std::move(e), std::move(score), wanted};
  } else {
    fragmentation_gradient score{fragmentation(e.mix)};
    return {std::move(e), std::move(score), wanted};
  }
}
load load_of(const benchmark::State& state) {
  return {static_cast<std::uint32_t>(state.range(1)), static_cast<std::uint32_t>(state.range(2))};
}

// Tasks arrive and start, and the oldest ones end: in turns in a cluster with few kinds of tasks and in one
// with thousands. A task of each kind has arrived before. Counters: seconds for each task in the two, and
// their ratio.
template <class Score>
void decision_by_kinds(benchmark::State& state) {
  const auto steps = static_cast<int>(
      500 * std::clamp(20 * trace_gpus / state.range(0), std::int64_t{1}, std::int64_t{20}));
  auto few = busy<Score>(state.range(0), 182, load_of(state));
  auto many = busy<Score>(state.range(0), 4004, load_of(state));
  const auto seconds_of = [steps](busy_cluster<Score>& cluster) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) cluster.step();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  double with_few = 0.0;
  double with_many = 0.0;
  for (auto _ : state) {
    const double begin = with_few + with_many;
    with_few += seconds_of(few);
    with_many += seconds_of(many);
    state.SetIterationTime(with_few + with_many - begin);
  }
  const double tasks = static_cast<double>(state.iterations()) * steps;
  state.counters["nodes"] = few.e.machines.nodes.size();
  state.counters["kinds"] = static_cast<double>(many.kinds.size());
  state.counters["few"] = with_few / tasks;
  state.counters["many"] = with_many / tasks;
  state.counters["ratio"] = with_many / with_few;
}
void fgd_by_kinds(benchmark::State& state) { decision_by_kinds<fragmentation_gradient>(state); }
void prices_by_kinds(benchmark::State& state) { decision_by_kinds<price_score>(state); }
// A task of a kind that was never seen before is proposed. Then it starts, and the oldest ones end, which is
// not timed.
template <class Score>
void propose_new_kind(benchmark::State& state) {
  auto cluster = busy<Score>(state.range(0), 4004, load_of(state));
  std::vector<double> seconds;
  for (auto _ : state) {
    const task_request task = cluster.arrive_as_new_kind();
    const auto begin = std::chrono::steady_clock::now();
    const absl::StatusOr<task_plan> plan = cluster.scheduler.propose(task);
    const auto end = std::chrono::steady_clock::now();
    seconds.push_back(std::chrono::duration<double>(end - begin).count());
    state.SetIterationTime(seconds.back());
    cluster.start(task, *plan);
  }
  std::sort(seconds.begin(), seconds.end());
  state.counters["median"] = seconds[seconds.size() / 2];
  state.counters["p99"] = seconds[seconds.size() * 99 / 100];
  state.counters["slowest"] = seconds.back();
}
void new_kind(benchmark::State& state) { propose_new_kind<fragmentation_gradient>(state); }
void new_kind_by_prices(benchmark::State& state) { propose_new_kind<price_score>(state); }
void by_load(benchmark::internal::Benchmark* b) {
  b->UseManualTime()->ArgNames({"gpus", "percent", "ends"});
  for (const std::int64_t gpus : {trace_gpus, 10 * trace_gpus, 100 * trace_gpus}) {
    b->Args({gpus, 80, 0});
    b->Args({gpus, 100, 0});
    b->Args({gpus, 100, 8});
  }
}
BENCHMARK(fgd_by_kinds)->Apply(by_load)->Iterations(20);
BENCHMARK(prices_by_kinds)->Apply(by_load)->Iterations(20);
BENCHMARK(new_kind)->Apply(by_load)->Iterations(10'000);
BENCHMARK(new_kind_by_prices)->Apply(by_load)->Iterations(10'000);

// A scheduler after most of the arrivals, which are as many for each node as in the trace.
gpu_sharing_scheduler<fragmentation_gradient> loaded(const experiment& e) {
  auto scheduler = fgd::create(e.machines.nodes, fragmentation_gradient(fragmentation(e.mix)));
  const std::size_t arrivals = e.work.arrivals.size() * 4 / 5;
  for (std::size_t i = 0; i < arrivals; ++i) {
    task_request task = e.work.tasks[e.work.arrivals[i]].request;
    task.job = job_id(static_cast<std::uint32_t>(i));
    const task_plan plan = scheduler->propose(task).value();
    if (plan.result == plan_result::bind) APIARY_VERIFY(scheduler->commit(task, plan).ok());
  }
  return *std::move(scheduler);
}
// A node joins, a task is proposed, and the node leaves again.
void node_joins_and_leaves(benchmark::State& state) {
  const experiment e = scaled(static_cast<std::uint64_t>(state.range(0)));
  const bool decides = state.range(1) != 0;
  auto scheduler = loaded(e);
  std::uint32_t i = 0;
  for (auto _ : state) {
    const node_id like(++i % e.machines.nodes.size());
    const absl::StatusOr<node_id> n = scheduler.add_node(e.machines.nodes.shape(like));
    if (decides)
      benchmark::DoNotOptimize(
          scheduler.propose(e.work.tasks[e.work.arrivals[i % e.work.arrivals.size()]].request));
    if (!n.ok() || !scheduler.remove_node(*n).ok()) state.SkipWithError("it failed");
  }
}
BENCHMARK(node_joins_and_leaves)
    ->ArgNames({"gpus", "decides"})
    ->Args({trace_gpus, 0})
    ->Args({trace_gpus, 1})
    ->Args({100 * trace_gpus, 0})
    ->Args({100 * trace_gpus, 1});
// Half as many nodes again join: each node, with what all memory costs that has to grow.
void nodes_join(benchmark::State& state) {
  const experiment e = scaled(static_cast<std::uint64_t>(state.range(0)));
  const auto before = loaded(e);
  const std::uint32_t nodes = e.machines.nodes.size();
  for (auto _ : state) {
    state.PauseTiming();
    auto scheduler = before;
    state.ResumeTiming();
    for (std::uint32_t n = 0; n < nodes / 2; ++n) {
      if (!scheduler.add_node(e.machines.nodes.shape(node_id(n))).ok())
        state.SkipWithError("it failed");
      if (n % 64 != 0) continue;  // the cached scores grow, too
      const std::uint32_t arrival = e.work.arrivals[n % e.work.arrivals.size()];
      benchmark::DoNotOptimize(scheduler.propose(e.work.tasks[arrival].request));
    }
    state.PauseTiming();
    { const auto freed = std::move(scheduler); }
    state.ResumeTiming();
  }
  state.counters["s/node"] = benchmark::Counter(
      nodes / 2, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(nodes_join)
    ->Unit(benchmark::kMillisecond)
    ->ArgName("gpus")
    ->Arg(trace_gpus)
    ->Arg(100 * trace_gpus);
// One node after another gets another core. When all have it, one after another loses it again.
void node_resizes(benchmark::State& state) {
  const experiment e = scaled(static_cast<std::uint64_t>(state.range(0)));
  auto scheduler = loaded(e);
  std::uint32_t i = 0;
  for (auto _ : state) {
    const node_id n(++i % e.machines.nodes.size());
    const node_shape shape = e.machines.nodes.shape(n);
    const resources host{shape.host.cpu_milli + 1000 * (i / e.machines.nodes.size() % 2),
                         shape.host.memory_mib};
    if (!scheduler.resize_node(n, shape.gpus, host).ok()) state.SkipWithError("it failed");
  }
}
BENCHMARK(node_resizes)->ArgName("gpus")->Arg(trace_gpus)->Arg(100 * trace_gpus);
// The rival: a scheduler is built again, and all tasks are recovered, because one node has joined.
void rebuild_for_a_node(benchmark::State& state) {
  const experiment e = scaled(static_cast<std::uint64_t>(state.range(0)));
  const auto before = loaded(e);
  std::vector<std::pair<task_request, placement>> running;
  for (std::size_t i = 0; i < e.work.arrivals.size(); ++i) {
    task_request task = e.work.tasks[e.work.arrivals[i]].request;
    task.job = job_id(static_cast<std::uint32_t>(i));
    if (const auto where = before.find(task.job)) running.push_back({task, *where});
  }
  for (auto _ : state) {
    node_table nodes = e.machines.nodes;
    nodes.add(nodes.shape(node_id(0)));
    auto scheduler = fgd::create(nodes, before.score()).value();
    for (const auto& [task, where] : running)
      if (!scheduler.recover(task, where).ok()) state.SkipWithError("it failed");
  }
}
BENCHMARK(rebuild_for_a_node)
    ->Unit(benchmark::kMillisecond)
    ->ArgName("gpus")
    ->Arg(trace_gpus)
    ->Arg(100 * trace_gpus);

price_score prices_for(const benchmark::State& state, const experiment& e) {
  const task_mix all = task_mix::from_history(workload::kinds(e.work.tasks), 100);
  const auto samples = static_cast<std::uint32_t>(state.range(0));
  return price_score::create(e.machines.nodes, all, {.samples = samples}).value();
}
// The same by prices from samples of the load, which are not counted either.
void prices_by_samples_and_gpus(benchmark::State& state) {
  const experiment e = scaled(static_cast<std::uint64_t>(state.range(1)));
  run(state, e, prices_for(state, e));
}
BENCHMARK(prices_by_samples_and_gpus)
    ->Unit(benchmark::kMillisecond)
    ->Args({1, trace_gpus})
    ->Args({6, trace_gpus})
    ->Args({1, 100 * trace_gpus})
    ->Args({6, 100 * trace_gpus});
// The prices alone.
void create_prices_by_samples_and_gpus(benchmark::State& state) {
  const experiment e = scaled(static_cast<std::uint64_t>(state.range(1)));
  for (auto _ : state) benchmark::DoNotOptimize(prices_for(state, e));
}
BENCHMARK(create_prices_by_samples_and_gpus)
    ->Unit(benchmark::kMillisecond)
    ->Args({1, trace_gpus})
    ->Args({6, trace_gpus})
    ->Args({6, 100 * trace_gpus});

template <class Score>
void policy(benchmark::State& state, const Score& score) {
  run(state, scaled(trace_gpus), score);
}
BENCHMARK_CAPTURE(policy, best_fit, best_fit{})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(policy, dot_prod, dot_prod{})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(policy, gpu_packing, gpu_packing{})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(policy, gpu_clustering, gpu_clustering{})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(policy, random_fit, random_fit(1))->Unit(benchmark::kMillisecond);
void published_rounding(benchmark::State& state) {
  const experiment e = scaled(trace_gpus);
  run(state, e, published_fragmentation_gradient(e.mix));
}
BENCHMARK(published_rounding)->Unit(benchmark::kMillisecond);

}  // namespace
