// apiary/benchmarks/sim_bench.cpp - whole job lists through schedulers over time, beside a queue and
// servers that are scanned.
// SPDX-License-Identifier: MIT
#include <apiary/sched/batch_queue.h>
#include <apiary/sched/gandiva.h>
#include <apiary/sched/philly.h>
#include <apiary/sched/preemptive_queue.h>
#include <apiary/sched/server_placer.h>
#include <apiary/sim/job_generator.h>
#include <apiary/sim/job_list.h>
#include <apiary/sim/line_reader.h>
#include <apiary/sim/philly_reader.h>
#include <apiary/sim/simulate.h>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <queue>
#include <string>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

// The public Philly list, or where there is no data one about as long.
const job_list& jobs() {
  static const job_list list = [] {
    const std::string file = std::string(APIARY_DATA_DIR) + "/philly/philly.csv";
    if (std::filesystem::exists(file)) return read_philly(line_reader::open(file).value()).value();
    return generate_jobs({.jobs = 82'247,
                          .tenants = 15,
                          .window = 1'000'000'000,
                          .shortest = 1000,
                          .longest = 10'000'000,
                          .sizes = {{1, 93}, {2, 2}, {4, 2}, {8, 2}, {16, 1}}})
        .value();
  }();
  return list;
}

server_spec cluster_of(std::int64_t gpus) {
  server_spec spec{.gpus = std::vector<std::uint32_t>(static_cast<std::size_t>(gpus / 8), 8),
                   .servers_per_rack = 24};
  if (gpus % 8 != 0) spec.gpus.push_back(static_cast<std::uint32_t>(gpus % 8));
  return spec;
}

// The sum of all ends, which the scanned queue must come to as well.
std::uint64_t sum_of_ends(const std::vector<tick_t>& ends) {
  std::uint64_t sum = 0;
  for (const tick_t end : ends) sum += static_cast<std::uint64_t>(end);
  return sum;
}

// First come first served with backfill and best fit: every event scans the queue, and every job
// that might start scans the servers.
std::vector<tick_t> scanned(const std::vector<timed_job>& list, const server_spec& spec) {
  std::vector<std::uint32_t> idle = spec.gpus;
  std::vector<std::vector<std::pair<std::size_t, std::uint32_t>>> place(list.size());
  std::vector<tick_t> ends(list.size(), 0);
  std::list<std::size_t> waiting;
  using event = std::pair<tick_t, std::size_t>;
  std::priority_queue<event, std::vector<event>, std::greater<>> running;
  std::uint32_t all_idle = 0;
  for (const std::uint32_t gpus : idle) all_idle += gpus;
  const auto fits = [&](std::size_t j) {
    std::uint32_t left = list[j].request.gpus;
    std::vector<std::size_t> order(idle.size());
    for (std::size_t n = 0; n < order.size(); ++n) order[n] = n;
    const auto tightest = [&](std::size_t from) {
      std::size_t best = order.size();
      for (std::size_t i = from; i < order.size(); ++i) {
        const std::size_t n = order[i];
        if (idle[n] >= left &&
            (best == order.size() || idle[n] < idle[best] || (idle[n] == idle[best] && n < best)))
          best = n;
      }
      return best;
    };
    std::size_t taken = 0;
    if (left > 8) {
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return idle[a] > idle[b]; });
      const std::size_t most = (left + 7) / 8;
      for (; left > idle[order[taken]]; ++taken) {
        if (taken + 1 == most || idle[order[taken]] == 0) return false;
        place[j].emplace_back(order[taken], idle[order[taken]]);
        left -= idle[order[taken]];
      }
    }
    const std::size_t last = tightest(taken);
    if (last == order.size()) return false;
    place[j].emplace_back(last, left);
    return true;
  };
  std::size_t arrived = 0;
  while (arrived < list.size() || !running.empty()) {
    tick_t now = forever;
    if (arrived < list.size()) now = list[arrived].arrival;
    if (!running.empty()) now = std::min(now, running.top().first);
    for (; !running.empty() && running.top().first == now; running.pop()) {
      for (const auto& [n, gpus] : place[running.top().second]) {
        idle[n] += gpus;
        all_idle += gpus;
      }
    }
    for (; arrived < list.size() && list[arrived].arrival == now; ++arrived)
      waiting.push_back(arrived);
    for (auto at = waiting.begin(); at != waiting.end() && all_idle > 0;) {
      const std::size_t j = *at;
      place[j].clear();
      if (list[j].request.gpus > all_idle || !fits(j)) {
        ++at;
        continue;
      }
      for (const auto& [n, gpus] : place[j]) {
        idle[n] -= gpus;
        all_idle -= gpus;
      }
      ends[j] = now + list[j].duration;
      running.emplace(ends[j], j);
      at = waiting.erase(at);
    }
  }
  return ends;
}

template <class Make>
void run(benchmark::State& state, Make&& make, std::uint64_t expected = 0) {
  std::uint64_t events = 0;
  for (auto _ : state) {
    auto scheduler = make(cluster_of(state.range(0)));
    const absl::StatusOr<simulation> done = simulate(scheduler, jobs().jobs);
    if (!done.ok()) {
      state.SkipWithError(done.status().ToString().c_str());
      return;
    }
    std::vector<tick_t> ends;
    for (const job_record& r : done->jobs) ends.push_back(r.ended);
    const std::uint64_t sum = sum_of_ends(ends);
    if (expected != 0 && sum != expected)
      state.SkipWithError("other ends than the scanned queue's");
    benchmark::DoNotOptimize(sum);
    events = done->events;
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(events));
}

void scanned_backfill(benchmark::State& state) {
  for (auto _ : state) {
    std::uint64_t sum = sum_of_ends(scanned(jobs().jobs, cluster_of(state.range(0))));
    benchmark::DoNotOptimize(sum);
  }
}
BENCHMARK(scanned_backfill)->Arg(2490)->Arg(728)->Arg(364)->Unit(benchmark::kMillisecond);

template <batch_rule Rule>
void batch(benchmark::State& state) {
  const std::uint64_t expected = Rule == batch_rule::backfill
                                     ? sum_of_ends(scanned(jobs().jobs, cluster_of(state.range(0))))
                                     : 0;
  run(
      state,
      [](const server_spec& spec) {
        return batch_queue(server_placer::create(spec).value(), {.rule = Rule});
      },
      expected);
}
BENCHMARK_TEMPLATE(batch, batch_rule::fifo)->Arg(2490)->Arg(728)->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(batch, batch_rule::backfill)
    ->Arg(2490)
    ->Arg(728)
    ->Arg(364)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(batch, batch_rule::easy)
    ->Arg(2490)
    ->Arg(728)
    ->Arg(364)
    ->Unit(benchmark::kMillisecond);

// A tick of 20 minutes; the estimates are exact.
template <preemptive_rule Rule>
void preemptive(benchmark::State& state) {
  run(state, [](const server_spec& spec) {
    return preemptive_queue(server_placer::create(spec).value(),
                            {.rule = Rule, .quantum = 1'200'000});
  });
}
BENCHMARK_TEMPLATE(preemptive, preemptive_rule::shortest_remaining)
    ->Arg(2490)
    ->Arg(728)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(preemptive, preemptive_rule::least_attained)
    ->Arg(2490)
    ->Arg(728)
    ->Unit(benchmark::kMillisecond);

// Equal quotas, published times.
void philly_machine(benchmark::State& state) {
  run(state, [](const server_spec& spec) {
    const auto tenants = static_cast<std::uint32_t>(jobs().tenants.size());
    std::uint32_t gpus = 0;
    for (const std::uint32_t here : spec.gpus) gpus += here;
    return philly::create(
               {.servers = spec, .quotas = std::vector<std::uint32_t>(tenants, gpus / tenants)})
        .value();
  });
}
BENCHMARK(philly_machine)->Arg(2490)->Arg(728)->Unit(benchmark::kMillisecond);

void gandiva_turns(benchmark::State& state) {
  run(state, [](const server_spec& spec) { return gandiva::create({.servers = spec}).value(); });
}
BENCHMARK(gandiva_turns)->Arg(2490)->Arg(728)->Unit(benchmark::kMillisecond);

void read_list(benchmark::State& state) {
  const std::string file = std::string(APIARY_DATA_DIR) + "/philly/philly.csv";
  if (!std::filesystem::exists(file)) {
    state.SkipWithError("no public list");
    return;
  }
  for (auto _ : state) {
    const job_list list = read_philly(line_reader::open(file).value()).value();
    if (list.jobs.size() != jobs().jobs.size()) state.SkipWithError("another list");
  }
}
BENCHMARK(read_list)->Unit(benchmark::kMillisecond);

}  // namespace
