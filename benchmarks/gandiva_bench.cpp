// apiary/benchmarks/gandiva_bench.cpp - what moving tasks that share GPUs gains at a load, and what a
// move costs to find, beside trying every move.
// SPDX-License-Identifier: MIT
#include "benchmarks/openb_experiment.h"
#include "tests/support/naive_migrations.h"
#include <apiary/fgd/fgd.h>
#include <apiary/gandiva/gandiva_tasks.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/model/node_table.h>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary_bench;

namespace {

const experiment& openb() {
  static const experiment e = load_openb();
  return e;
}

// The arrivals of the trace, 130 % of its cluster; a job that fits nowhere waits. A tick every
// ten arrivals moves so many tasks at most, each for so much less fragmentation a GPU. Counters: at
// the end, and of the tasks placed.
void at_load(benchmark::State& state) {
  const experiment& e = openb();
  const fragmentation metric(e.mix);
  const time_sharing_options::migration_limits limits{static_cast<std::uint32_t>(state.range(0)),
                                                      static_cast<std::uint32_t>(state.range(1))};
  for (auto _ : state) {
    gandiva_tasks g =
        gandiva_tasks::create(
            {fgd::create(e.machines.nodes, fragmentation_gradient(metric)).value(), metric},
            {.quantum = max_time, .migrations = limits})
            .value();
    std::vector<gandiva_tasks::action> actions;
    std::uint64_t moves = 0;
    time_ms now = 0;
    for (const std::uint32_t t : e.work.arrivals) {
      task_request task = e.work.tasks[t].request;
      task.job = job_id(static_cast<std::uint32_t>(now));
      if (!g.submit(task, {}, now, actions).ok()) state.SkipWithError("a task was refused");
      if (++now % 10 != 0) continue;
      actions.clear();
      if (!g.decide(now, actions).ok()) state.SkipWithError("a tick was refused");
      for (const auto& a : actions)
        moves += a.what == gandiva_tasks::action::verb::migrate ? 1U : 0U;
    }
    const node_table& nodes = g.placer().scheduler().nodes();
    std::uint64_t idle = 0;
    for (const node_id n : nodes.ids()) idle += nodes[n].total_gpu_left();
    const cluster_fragmentation f(metric, nodes);
    const auto all = static_cast<double>(nodes.total_gpus());
    state.counters["tasks"] = static_cast<double>(g.num_jobs() - g.num_waiting());
    state.counters["gpus%"] = 100 - static_cast<double>(idle) / all / 10;
    state.counters["fragmented%"] = f.total() / all / 10;
    state.counters["moves"] = static_cast<double>(moves);
  }
}
BENCHMARK(at_load)
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1)
    ->ArgNames({"moves", "cost"})
    ->Args({0, 0})
    ->Args({1, 0})
    ->Args({1, 100})
    ->Args({4, 0});

// A cluster of so many nodes of the trace, after arrivals of as many GPUs as it has.
struct loaded_cluster {
  node_table nodes;
  std::vector<detail::placed_request> tasks;

  explicit loaded_cluster(std::uint32_t count) {
    const experiment& e = openb();
    for (std::uint32_t n = 0; n < count; ++n)
      nodes.add(e.machines.nodes.shape(node_id(n % e.machines.nodes.size())));
    fgd below = fgd::create(nodes, fragmentation_gradient(fragmentation(e.mix))).value();
    std::uint64_t asked = 0;
    for (std::size_t i = 0; asked < nodes.total_gpus() * whole_gpu; ++i) {
      task_request task = e.work.tasks[e.work.arrivals[i]].request;
      task.job = job_id(static_cast<std::uint32_t>(i));
      asked += task.total_gpu_milli();
      const task_plan plan = below.propose(task).value();
      if (plan.result == plan_result::wait || !below.commit(task, plan).ok()) continue;
      nodes.place(task, plan.where);
      tasks.push_back({task, plan.where});
    }
  }
  void move(const detail::fragmentation_migration& m) {
    detail::placed_request& t = tasks[m.task];
    nodes.remove(t.task, t.where);
    t.where = m.to;
    nodes.place(t.task, t.where);
  }
};

// Finds and makes the best move, again and again; the same moves as by trying all.
void best_move(benchmark::State& state) {
  loaded_cluster cluster(static_cast<std::uint32_t>(state.range(0)));
  const loaded_cluster loaded = cluster;
  const fragmentation metric(openb().mix);
  detail::fragmentation_migrations moves(metric);
  std::uint64_t found = 0;
  for (auto _ : state) {
    const auto m = moves.best(cluster.nodes, cluster.tasks, 0);
    if (state.range(0) <= 32 && found < 3) {
      state.PauseTiming();
      if (m != apiary_test::naive_best_move(openb().mix, cluster.nodes, cluster.tasks, 0))
        state.SkipWithError("another move than by trying all");
      state.ResumeTiming();
    }
    if (!m) {
      cluster = loaded;
      moves = detail::fragmentation_migrations(metric);
      continue;
    }
    ++found;
    moves.update(cluster.tasks[m->task].where.node);
    moves.update(m->to.node);
    cluster.move(*m);
  }
  state.counters["tasks"] = static_cast<double>(loaded.tasks.size());
}
BENCHMARK(best_move)->Unit(benchmark::kMicrosecond)->Arg(32)->Arg(1213);

void by_trying_all(benchmark::State& state) {
  loaded_cluster cluster(static_cast<std::uint32_t>(state.range(0)));
  for (auto _ : state) {
    const auto m = apiary_test::naive_best_move(openb().mix, cluster.nodes, cluster.tasks, 0);
    if (!m) {
      state.SkipWithError("no move");
      break;
    }
    cluster.move(*m);
  }
}
BENCHMARK(by_trying_all)->Unit(benchmark::kMicrosecond)->Iterations(1)->Arg(32);

}  // namespace
