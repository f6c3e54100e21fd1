// apiary/benchmarks/victim_bench.cpp - victims under constraints among 100 to 20,000 gangs, against three simple ways.
// SPDX-License-Identifier: MIT
#include <apiary/gang/fit_verdict.h>
#include <apiary/preempt/topology_victim_search.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/uniform_tree.h>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <support/victim_loads.h>

using namespace apiary;
using namespace apiary_test;

namespace {

// A full cluster, and what the search finds there.
struct solved_load {
  victim_load in;
  victim_gang kind;
  std::int64_t gangs;
  std::uint64_t cost;
  std::uint64_t bound;
};
// The first load of this kind that needs victims; about half of the gangs are the smallest ones.
solved_load& load(victim_gang kind, std::int64_t gangs) {
  static std::unique_ptr<solved_load> last;
  if (last && last->kind == kind && last->gangs == gangs) return *last;
  topology_victim_search<uniform_tree> search;
  for (std::uint64_t seed = 1;; ++seed) {
    victim_load in = random_victim_load(seed, static_cast<std::uint32_t>(gangs * 2 / 3), kind);
    const victim_set found = in.solve(search);
    if (found.verdict != fit_verdict::fits || found.victims.empty()) continue;
    last =
        std::make_unique<solved_load>(solved_load{in, kind, gangs, found.cost, found.lower_bound});
    return *last;
  }
}
void report(benchmark::State& state, const solved_load& on, std::uint64_t cost) {
  state.counters["gangs"] = static_cast<double>(on.in.candidates.size());
  // 0: it finds no set.
  state.counters["of_search"] =
      cost == victim_load::no_set ? 0 : static_cast<double>(cost) / static_cast<double>(on.cost);
  if (cost < on.cost) state.SkipWithError("cheaper than the search");
}

void search(benchmark::State& state, victim_gang kind) {
  solved_load& on = load(kind, state.range(0));
  topology_victim_search<uniform_tree> searching;
  std::uint64_t cost = 0;
  for (auto _ : state) cost = on.in.solve(searching).cost;
  report(state, on, cost);
  state.counters["of_bound"] =
      static_cast<double>(on.cost) / static_cast<double>(std::max<std::uint64_t>(on.bound, 1));
}
void smallest_first(benchmark::State& state, victim_gang kind) {
  const solved_load& on = load(kind, state.range(0));
  std::uint64_t cost = 0;
  for (auto _ : state) cost = simple_preemption(on.in).fewest_gpus_first();
  report(state, on, cost);
}
void cheapest_rack(benchmark::State& state, victim_gang kind) {
  const solved_load& on = load(kind, state.range(0));
  std::uint64_t cost = 0;
  for (auto _ : state) cost = simple_preemption(on.in).best_rack_for_each_slice();
  report(state, on, cost);
}
void call_for_each_slice(benchmark::State& state, victim_gang kind) {
  const solved_load& on = load(kind, state.range(0));
  std::uint64_t cost = 0;
  for (auto _ : state) cost = simple_preemption(on.in).own_call_for_each_slice();
  report(state, on, cost);
}

using method = void (*)(benchmark::State&, victim_gang);
struct named_method {
  const char* name;
  method run;
  std::int64_t most;  // gangs
};
struct named_kind {
  const char* name;
  victim_gang kind;
};
constexpr named_method methods[] = {{"search", search, 20'000},
                                    {"smallest_first", smallest_first, 1'000},
                                    {"cheapest_rack", cheapest_rack, 1'000},
                                    {"call_for_each_slice", call_for_each_slice, 1'000}};
constexpr named_kind kinds[] = {{"anywhere", victim_gang::anywhere},
                                {"in_rack", victim_gang::in_rack},
                                {"slices", victim_gang::slices},
                                {"spread", victim_gang::spread},
                                {"cpu", victim_gang::hosted}};

[[maybe_unused]] const bool registered = [] {
  for (const named_kind& k : kinds)
    for (const std::int64_t gangs : {100, 1'000, 20'000})
      for (const named_method& m : methods) {
        if (gangs > m.most) continue;
        const std::string name = std::string("victims/") + k.name + "/" + m.name;
        benchmark::RegisterBenchmark(name.c_str(), m.run, k.kind)->Arg(gangs);
      }
  return true;
}();

}  // namespace
