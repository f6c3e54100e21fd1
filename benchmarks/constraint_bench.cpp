// apiary/benchmarks/constraint_bench.cpp - gangs under constraints in clusters of up to a million GPUs.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/rng.h>
#include <apiary/explain/proof_check.h>
#include <apiary/explain/unblock_search.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/topology_victim_search.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/uniform_tree.h>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

using namespace apiary;

namespace {

enum : level_t { node = 1, rack = 2, block = 3 };

// Nodes of eight GPUs, 16 a rack, 7 racks a block; four in five GPUs are in use.
capacity_index<uniform_tree> busy_cluster(std::uint32_t gpus) {
  const std::uint32_t blocks = std::max(1U, gpus / (8 * 16 * 7));
  capacity_index<uniform_tree> capacities(uniform_tree{blocks, 7, 16, 8}, node, 8);
  rng random(3);
  for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n) {
    // A third has 0 free, the others anything, few of them all: 1.6 on average.
    constexpr std::uint32_t free[] = {0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 8};
    capacities.set(n, free[random.uniform(18)]);
  }
  return capacities;
}

// The same, but that no node has more than 2 GPUs free, save six of 8, 7, 6, 6, 5 and 5.
capacity_index<uniform_tree> scarce_cluster(std::uint32_t gpus) {
  capacity_index<uniform_tree> capacities = busy_cluster(gpus);
  for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n)
    capacities.set(n, std::min(capacities.free(n), 2U));
  constexpr std::uint32_t free[] = {8, 7, 6, 6, 5, 5};
  for (std::uint32_t i = 0; i < 6; ++i) capacities.set(capacities.num_nodes() / 6 * i, free[i]);
  return capacities;
}

// 16 idle nodes of eight GPUs a rack.
capacity_index<uniform_tree> idle_racks(std::uint32_t gpus) {
  capacity_index<uniform_tree> capacities(uniform_tree{gpus / 128, 16, 8}, node, 8);
  for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n) capacities.set(n, 8);
  return capacities;
}

// What is left of their CPU and memory: 96 cores and 768 GiB, of which most tasks take an eighth for
// a GPU, some more.
std::vector<resources> busy_hosts(const capacity_index<uniform_tree>& capacities) {
  rng random(4);
  std::vector<resources> hosts;
  for (const std::uint32_t free : capacities.free()) {
    const std::uint32_t more = random.uniform(4) == 0 ? random.uniform(free + 1) : 0;
    hosts.push_back({(free - more) * 12'000, (free - more) * 98'304});
  }
  return hosts;
}

// Racks one after the other; in a rack the largest task first, each to the first node where it fits:
// what greedy schedulers do. Says no too often.
class rack_by_rack {
 public:
  rack_by_rack(const capacity_index<uniform_tree>& capacities, const topology_constraints& gang)
      : capacities_(capacities) {
    for (const constrained_task_group& m : gang.groups)
      tasks_.insert(tasks_.end(), m.tasks, m.gpus);
    std::sort(tasks_.begin(), tasks_.end(), std::greater<>());
    level_ = std::min(gang.required, capacities.top());
  }
  fit_verdict operator()() {
    for (std::uint32_t c = 0; c < capacities_.num_cells(level_); ++c)
      if (fits(c)) return fit_verdict::fits;
    return fit_verdict::does_not_fit;
  }

 private:
  bool fits(std::uint32_t c) {
    free_.clear();
    for (const cell_id n : capacities_.nodes(level_, c)) free_.push_back(capacities_.free(n.value));
    std::sort(free_.begin(), free_.end());
    for (const std::uint32_t t : tasks_) {
      const auto at = std::find_if(free_.begin(), free_.end(), [&](auto f) { return f >= t; });
      if (at == free_.end()) return false;
      *at -= t;
    }
    return true;
  }

  const capacity_index<uniform_tree>& capacities_;
  level_t level_ = 0;
  std::vector<std::uint32_t> tasks_;
  std::vector<std::uint32_t> free_;
};

topology_constraints plain(std::vector<constrained_task_group> groups,
                           level_t required = any_level) {
  topology_constraints gang;
  gang.groups = std::move(groups);
  gang.required = required;
  return gang;
}

topology_constraints dividing_yes() { return plain({{2, 8}, {4, 4}, {4, 2}, {6, 1}}); }
topology_constraints dividing_no() { return plain({{1, 8}, {7, 4}, {4, 2}, {4, 1}}); }
topology_constraints mixed_yes() {
  return plain({{1, 8}, {2, 7}, {2, 6}, {3, 5}, {2, 4}, {2, 3}, {2, 2}, {2, 1}});
}
topology_constraints mixed_no() { return plain({{1, 8}, {3, 7}, {2, 5}, {4, 3}, {6, 1}}); }
// Enough GPUs for the tasks of each size and larger: only their combinations do not fit.
topology_constraints packed_no() { return plain({{1, 8}, {1, 7}, {2, 5}, {5, 3}, {7, 1}}); }
topology_constraints rack_yes() { return plain({{2, 4}, {3, 2}, {2, 1}}, rack); }
topology_constraints rack_no() { return plain({{15, 4}, {4, 2}}, rack); }
topology_constraints rack_mixed_yes() { return plain({{2, 5}, {2, 3}, {3, 2}}, rack); }
topology_constraints rack_mixed_no() { return plain({{12, 5}, {2, 3}, {2, 2}}, rack); }
topology_constraints slices_yes() {
  topology_constraints gang = plain({{64, 1}});
  gang.groups[0].slices = {{rack, 16}};
  return gang;
}
topology_constraints spread_yes() {
  topology_constraints gang = plain({{8, 1}}, rack);
  gang.groups[0].spread = {{node, 1}};
  return gang;
}
topology_constraints preferred_yes() {
  topology_constraints gang = plain({{32, 2}, {8, 1}});
  gang.preferred = node;
  return gang;
}

constrained_task_group with_host(std::uint32_t tasks, std::uint32_t gpus, std::uint32_t cores) {
  return {.tasks = tasks, .gpus = gpus, .host = {1000 * cores, 4096 * cores}};
}
topology_constraints hosted_yes() { return plain({with_host(8, 1, 12)}, rack); }
topology_constraints hosted_no() { return plain({with_host(80, 1, 12)}, rack); }
topology_constraints hosted_kinds_yes() {
  return plain({with_host(2, 4, 40), with_host(3, 2, 20), with_host(2, 1, 4)}, rack);
}
topology_constraints hosted_anywhere_yes() {
  return plain({with_host(32, 4, 40), with_host(32, 2, 20), with_host(64, 1, 8)});
}
// Every node has the GPUs for these; none has the cores for both.
topology_constraints preferred_node_no() {
  topology_constraints gang = plain({{1, 1, {60'000, 0}}, {1, 1, {60'000, 0}}}, node);
  gang.groups[0].spread = {{node, 1}};
  return gang;
}

// A node that holds a task of 5 holds no task of 4, so 16 nodes are too few: weights 2 and 1.
topology_constraints weights_no() { return plain({{16, 5}, {1, 4}}, rack); }

template <topology_constraints (*Make)(), fit_verdict Expected, bool Hosted = false,
          capacity_index<uniform_tree> (*Cluster)(std::uint32_t) = busy_cluster>
void ask(benchmark::State& state) {
  const capacity_index<uniform_tree> capacities =
      Cluster(static_cast<std::uint32_t>(state.range(0)));
  const std::vector<resources> hosts = Hosted ? busy_hosts(capacities) : std::vector<resources>{};
  topology_constraints gang = Make();
  benchmark::DoNotOptimize(gang.groups.data());
  topology_fit<uniform_tree> fit;
  topology_fit<uniform_tree>::result found;
  std::uint64_t right = 0;
  std::uint64_t rounds = 0;
  for (auto _ : state) {
    found = fit(capacities, gang, hosts);
    right += found.verdict == Expected ? 1U : 0U;
    ++rounds;
  }
  if (right != rounds) return state.SkipWithError("a wrong verdict");
  std::uint64_t tasks = 0;
  for (const auto& p : found.portions) tasks += p.tasks;
  std::uint64_t wanted = 0;
  for (const constrained_task_group& m : gang.groups) wanted += m.tasks;
  if (Expected == fit_verdict::fits && tasks != wanted) state.SkipWithError("tasks were lost");
  if (Expected == fit_verdict::does_not_fit &&
      !proof_check(capacities.tree(), node, capacities.free(), hosts,
                   gang)(fit.explain(capacities, gang, hosts)))
    state.SkipWithError("no proof");
  state.counters["steps"] = static_cast<double>(found.steps);
}

// The same kinds, so many small tasks more that no rack is found for them any longer: no count
// refuses all racks.
void ask_at_the_edge(benchmark::State& state) {
  const capacity_index<uniform_tree> capacities =
      busy_cluster(static_cast<std::uint32_t>(state.range(0)));
  const std::vector<resources> hosts = busy_hosts(capacities);
  topology_constraints gang = hosted_kinds_yes();
  topology_fit<uniform_tree> fit;
  while (fit(capacities, gang, hosts).verdict == fit_verdict::fits) ++gang.groups[2].tasks;
  topology_fit<uniform_tree>::result found;
  for (auto _ : state) found = fit(capacities, gang, hosts);
  const fit_verdict verdict = found.verdict;
  if (verdict == fit_verdict::does_not_fit &&
      !proof_check(capacities.tree(), node, capacities.free(), hosts,
                   gang)(fit.explain(capacities, gang, hosts)))
    state.SkipWithError("no proof");
  state.counters["small_tasks"] = static_cast<double>(gang.groups[2].tasks);
  state.counters["undecided"] = verdict == fit_verdict::budget_ended ? 1 : 0;
  state.counters["steps"] = static_cast<double>(found.steps);
}

// Nodes of 64 leaves, each filled by three tasks of the gang, whose sizes have nothing in common; in
// one rack, of which there are so many alike. What a step of a budget takes, and how far a budget is
// overrun.
void hard_to_pack(benchmark::State& state) {
  const auto racks = static_cast<std::uint32_t>(state.range(1));
  capacity_index<uniform_tree> capacities(uniform_tree{racks, 16, 64}, node, 64);
  for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n) capacities.set(n, 64);
  rng random(2);
  topology_constraints gang = plain({}, rack);
  for (int n = 0; n < 16; ++n) {
    const std::uint32_t a = 14 + random.uniform(16);
    const std::uint32_t b = 14 + random.uniform(16);
    for (const std::uint32_t leaves : {a, b, 64 - a - b}) gang.groups.push_back({1, leaves});
  }
  topology_fit<uniform_tree> fit(static_cast<std::uint64_t>(state.range(0)));
  topology_fit<uniform_tree>::result found;
  for (auto _ : state) found = fit(capacities, gang);
  const fit_verdict verdict = found.verdict;
  if (verdict == fit_verdict::does_not_fit) state.SkipWithError("a wrong no");
  if (found.steps > static_cast<std::uint64_t>(state.range(0))) state.SkipWithError("overrun");
  state.counters["steps"] = static_cast<double>(found.steps);
  state.counters["undecided"] = verdict == fit_verdict::budget_ended ? 1 : 0;
}

// Gangs that are hard to decide, on a busy cluster of 131,040 nodes with CPU, and a budget of 1,000
// steps: what a call takes, divided by the steps.
topology_constraints kinds_with_cpu(std::uint32_t kinds) {
  topology_constraints gang;
  for (std::uint32_t i = 0; i < kinds; ++i)
    gang.groups.push_back(
        {.tasks = 1 + 1'000 / kinds, .gpus = 1 + i % 8, .host = {12'000 + 7 * i, 4'096}});
  return gang;
}
topology_constraints five_kinds() { return kinds_with_cpu(5); }
topology_constraints twenty_kinds() { return kinds_with_cpu(20); }
topology_constraints hundred_kinds() { return kinds_with_cpu(100); }
topology_constraints thousand_kinds() { return kinds_with_cpu(1'000); }
topology_constraints ten_thousand_kinds() { return kinds_with_cpu(10'000); }
// Each task fits on many nodes, all together on none.
topology_constraints tasks_on_one_node() {
  return plain({{1, 2, {24'000, 0}}, {1, 2, {23'000, 0}}, {1, 1, {12'000, 0}, {{node, 1}}}}, node);
}
topology_constraints slices_with_cpu() {
  topology_constraints gang = kinds_with_cpu(5);
  gang.groups[1].tasks = 200;
  gang.groups[1].slices = {{rack, 4}};
  gang.groups[2].spread = {{rack, 3}};
  return gang;
}
template <topology_constraints (*Make)()>
void few_steps(benchmark::State& state) {
  constexpr std::uint64_t budget = 1'000;
  const capacity_index<uniform_tree> capacities = busy_cluster(1'048'576);
  const std::vector<resources> hosts = busy_hosts(capacities);
  const topology_constraints gang = Make();
  topology_fit<uniform_tree> fit(budget);
  topology_fit<uniform_tree>::result found;
  for (auto _ : state) found = fit(capacities, gang, hosts);
  if (found.steps > budget) state.SkipWithError("overrun");
  state.counters["nodes"] = static_cast<double>(capacities.num_nodes());
  state.counters["undecided"] = found.verdict == fit_verdict::budget_ended ? 1 : 0;
  state.counters["s/step"] = benchmark::Counter(
      budget, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

// Tasks that all differ in CPU, on an idle cluster, with the default budget of a scheduler.
void kinds_on_idle_nodes(benchmark::State& state) {
  const capacity_index<uniform_tree> capacities =
      idle_racks(static_cast<std::uint32_t>(state.range(0)));
  const std::vector<resources> hosts(capacities.num_nodes(), resources{96'000, 786'432});
  topology_constraints gang = kinds_with_cpu(static_cast<std::uint32_t>(state.range(1)));
  for (constrained_task_group& m : gang.groups) m.tasks = 1;
  topology_fit<uniform_tree> fit(100'000);
  topology_fit<uniform_tree>::result found;
  for (auto _ : state) found = fit(capacities, gang, hosts);
  if (found.verdict != fit_verdict::fits) state.SkipWithError("undecided");
  state.counters["steps"] = static_cast<double>(found.steps);
}

// Which nodes to free for a gang of 43,680 whole nodes with CPU.
void remedy(benchmark::State& state) {
  capacity_index<uniform_tree> capacities = busy_cluster(1'048'576);
  const std::vector<resources> hosts = busy_hosts(capacities);
  const std::vector<std::uint32_t> gpus(capacities.num_nodes(), 8);
  const std::vector<resources> whole(capacities.num_nodes(), resources{96'000, 786'432});
  topology_constraints gang;
  gang.groups = {{.tasks = 43'680, .gpus = 8, .host = {64'000, 0}}};
  unblock_search<uniform_tree> search;
  unblock_set found;
  for (auto _ : state) found = search(capacities, gang, gpus, hosts, whole);
  if (found.verdict != fit_verdict::fits) state.SkipWithError("no remedy");
  state.counters["steps"] = static_cast<double>(found.steps);
  state.counters["nodes"] = static_cast<double>(found.nodes.size());
}

template <topology_constraints (*Make)()>
void ask_greedily(benchmark::State& state) {
  const capacity_index<uniform_tree> capacities =
      busy_cluster(static_cast<std::uint32_t>(state.range(0)));
  const topology_constraints gang = Make();
  rack_by_rack greedy(capacities, gang);
  for (auto _ : state) benchmark::DoNotOptimize(greedy());
}

constexpr auto yes = fit_verdict::fits;
constexpr auto no = fit_verdict::does_not_fit;
constexpr int small = 1'024;
constexpr int middle = 100'352;
constexpr int large = 1'048'576;

BENCHMARK(ask<dividing_yes, yes>)
    ->Name("constraints/dividing/yes")
    ->Arg(small)
    ->Arg(middle)
    ->Arg(large);
BENCHMARK(ask<dividing_no, no, false, scarce_cluster>)
    ->Name("constraints/dividing/no")
    ->Arg(small)
    ->Arg(middle)
    ->Arg(large);
BENCHMARK(ask_greedily<dividing_yes>)->Name("constraints/dividing/node_by_node")->Arg(middle);
BENCHMARK(ask<mixed_yes, yes>)->Name("constraints/mixed/yes")->Arg(middle);
BENCHMARK(ask<mixed_no, no, false, scarce_cluster>)->Name("constraints/mixed/no")->Arg(middle);
BENCHMARK(ask<packed_no, no, false, scarce_cluster>)
    ->Name("constraints/packed/no")
    ->Arg(small)
    ->Arg(middle)
    ->Arg(large);
BENCHMARK(ask<rack_yes, yes>)->Name("constraints/rack/yes")->Arg(middle)->Arg(large);
BENCHMARK(ask<rack_no, no>)->Name("constraints/rack/no")->Arg(middle)->Arg(large);
BENCHMARK(ask_greedily<rack_no>)->Name("constraints/rack/rack_by_rack")->Arg(middle)->Arg(large);
BENCHMARK(ask<rack_mixed_yes, yes>)->Name("constraints/rack_mixed/yes")->Arg(middle);
BENCHMARK(ask<rack_mixed_no, no>)->Name("constraints/rack_mixed/no")->Arg(middle);
BENCHMARK(ask<weights_no, no, false, idle_racks>)->Name("constraints/weights/no")->Arg(large);
BENCHMARK(hard_to_pack)
    ->Name("constraints/hard_to_pack")
    ->ArgNames({"budget", "racks"})
    ->ArgsProduct({{1'000, 10'000, 100'000, 1'000'000}, {1, 1'000}})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(ask<slices_yes, yes>)->Name("constraints/slices/yes")->Arg(middle);
BENCHMARK(ask<spread_yes, yes>)->Name("constraints/spread/yes")->Arg(middle);
BENCHMARK(ask<preferred_yes, yes>)->Name("constraints/preferred/yes")->Arg(middle);
BENCHMARK(ask<hosted_yes, yes, true>)->Name("constraints/hosted/yes")->Arg(middle);
BENCHMARK(ask<hosted_no, no, true>)->Name("constraints/hosted/no")->Arg(middle);
BENCHMARK(ask<hosted_kinds_yes, yes, true>)->Name("constraints/hosted_kinds/yes")->Arg(middle);
BENCHMARK(ask_at_the_edge)
    ->Name("constraints/hosted_kinds/edge")
    ->Arg(middle)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(ask<hosted_anywhere_yes, yes, true>)
    ->Name("constraints/hosted_anywhere/yes")
    ->Arg(middle);
BENCHMARK(ask<preferred_node_no, no, true>)->Name("constraints/hosted_node/no")->Arg(middle);
BENCHMARK(few_steps<five_kinds>)->Name("constraints/few_steps/5_kinds");
BENCHMARK(few_steps<twenty_kinds>)->Name("constraints/few_steps/20_kinds");
BENCHMARK(few_steps<hundred_kinds>)->Name("constraints/few_steps/100_kinds");
BENCHMARK(few_steps<thousand_kinds>)->Name("constraints/few_steps/1000_kinds");
BENCHMARK(few_steps<ten_thousand_kinds>)->Name("constraints/few_steps/10000_kinds");
BENCHMARK(few_steps<tasks_on_one_node>)->Name("constraints/few_steps/one_node");
BENCHMARK(few_steps<slices_with_cpu>)->Name("constraints/few_steps/slices");
BENCHMARK(kinds_on_idle_nodes)
    ->Name("constraints/kinds_on_idle_nodes/yes")
    ->ArgNames({"gpus", "kinds"})
    ->Args({middle, 20})
    ->Args({large, 1'000})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(remedy)->Name("constraints/remedy")->Unit(benchmark::kMillisecond);

// Whether the gang fits once the victims are evicted, and they cost as much as the search says. The
// capacities are as before afterwards.
bool are_enough(capacity_index<uniform_tree>& capacities, const topology_constraints& gang,
                const std::vector<eviction_candidate>& candidates,
                const std::vector<gpus_on_node>& shares, const victim_set& found) {
  std::uint64_t cost = 0;
  const auto evict = [&](bool to) {
    for (const std::uint32_t j : found.victims) {
      cost += to ? candidates[j].cost : 0;
      for (std::uint32_t a = candidates[j].first; a < candidates[j].last; ++a) {
        const std::uint32_t free = capacities.free(shares[a].node);
        capacities.set(shares[a].node, to ? free + shares[a].gpus : free - shares[a].gpus);
      }
    }
  };
  evict(true);
  const fit_verdict then = topology_fit<uniform_tree>()(capacities, gang).verdict;
  evict(false);
  return then == yes && cost == found.cost && found.lower_bound <= cost;
}

// Victims where gangs of 1 to 8 tasks run everywhere: a gang costs one and its leaves. The gang would
// fit on the empty cluster, so a no is always wrong. Without victims the budget must have ended; that
// is an error, too, if it should be enough.
void find_victims(benchmark::State& state, const topology_constraints& gang, std::uint64_t budget,
                  bool enough) {
  capacity_index<uniform_tree> capacities(
      uniform_tree{static_cast<std::uint32_t>(state.range(0)) / 896 + 1, 7, 16, 8}, node, 8);
  for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n) capacities.set(n, 8);
  std::vector<eviction_candidate> candidates;
  std::vector<gpus_on_node> shares;
  rng random(7);
  constexpr std::uint32_t kinds[][2] = {{1, 1}, {1, 2}, {1, 4}, {1, 8}, {2, 8}, {4, 8}, {8, 4}};
  for (std::uint32_t n = 0; n < capacities.num_nodes();) {
    const auto& [tasks, leaves] = kinds[random.uniform(7)];
    const auto first = static_cast<std::uint32_t>(shares.size());
    for (std::uint32_t t = 0; t < tasks && n < capacities.num_nodes(); ++t) {
      while (n < capacities.num_nodes() && capacities.free(n) < leaves) ++n;
      if (n == capacities.num_nodes()) break;
      capacities.set(n, capacities.free(n) - leaves);
      shares.push_back({n, leaves});
      if (random.uniform(8) == 0 || leaves == 4) ++n;
    }
    const auto last = static_cast<std::uint32_t>(shares.size());
    candidates.push_back({(std::uint64_t{1} << 40) + std::uint64_t{tasks} * leaves, first, last});
  }
  topology_victim_search<uniform_tree> search(budget);
  victim_set found;
  for (auto _ : state) {
    found = search(capacities, gang, candidates, shares);
    benchmark::DoNotOptimize(found.cost);
  }
  if (found.verdict == no) state.SkipWithError("a wrong no");
  if (found.verdict == yes && !are_enough(capacities, gang, candidates, shares, found))
    state.SkipWithError("the victims are not enough");
  if (found.verdict == fit_verdict::budget_ended && (enough || found.steps < budget))
    state.SkipWithError("no victims");
  state.counters["gangs"] = static_cast<double>(candidates.size());
  state.counters["steps"] = static_cast<double>(found.steps);
  state.counters["undecided"] = found.verdict == fit_verdict::budget_ended ? 1 : 0;
  if (found.verdict != yes) return;
  state.counters["victims"] = static_cast<double>(found.cost >> 40);
  state.counters["at_least"] = static_cast<double>(found.lower_bound >> 40);
  const double cost = static_cast<double>(found.cost);
  state.counters["gap_%"] = 100 * (cost - static_cast<double>(found.lower_bound)) / cost;
}
template <bool Spread>
void rack_victims(benchmark::State& state) {
  topology_constraints gang = plain({{8, 8}}, rack);
  if (Spread) gang.groups[0].spread = {{node, 1}};
  find_victims(state, gang, 200'000, true);
}
// Slices, and two kinds under a limit. 1,000 steps do not pay for reading the gangs, 14,000 do if all
// tasks are equal, and 42,000 for both.
void few_steps_of_victims(benchmark::State& state) {
  topology_constraints gang = plain({{64, 8}});
  gang.groups[0].slices = {{rack, 8}};
  if (state.range(1) == 2) gang.groups.push_back({.tasks = 8, .gpus = 4, .spread = {{rack, 1}}});
  const auto budget = static_cast<std::uint64_t>(state.range(2));
  find_victims(state, gang, budget, budget >= 42'000);
  state.counters["s/step"] = benchmark::Counter(
      static_cast<double>(budget),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(rack_victims<false>)->Name("constraints/victims_in_a_rack")->Arg(middle)->Arg(380'000);
BENCHMARK(rack_victims<true>)->Name("constraints/victims_spread")->Arg(middle)->Arg(380'000);
BENCHMARK(few_steps_of_victims)
    ->Name("constraints/few_steps/victims")
    ->ArgNames({"gpus", "kinds", "budget"})
    ->ArgsProduct({{1'048'576}, {1, 2}, {1'000, 14'000, 42'000}})
    ->Unit(benchmark::kMicrosecond);

// The open-source HiveD: tasks in ascending order of size, nodes in descending order of GPUs in use;
// when the next task does not fit on a node, the node is not tried again.
bool fits_by_walking(std::vector<std::uint32_t> free, std::vector<std::uint32_t> tasks) {
  std::stable_sort(free.begin(), free.end());
  std::sort(tasks.begin(), tasks.end());
  std::size_t t = 0;
  for (std::uint32_t f : free) {
    while (t < tasks.size() && tasks[t] <= f) f -= tasks[t++];
    if (t == tasks.size()) return true;
  }
  return false;
}
// Tasks in descending order of size, each to the fullest node where it fits.
bool fits_by_best_fit(std::vector<std::uint32_t> free, std::vector<std::uint32_t> tasks) {
  std::sort(tasks.begin(), tasks.end(), std::greater<>());
  for (const std::uint32_t t : tasks) {
    std::sort(free.begin(), free.end());
    const auto at = std::find_if(free.begin(), free.end(), [&](auto f) { return f >= t; });
    if (at == free.end()) return false;
    *at -= t;
  }
  return true;
}

// How often a greedy scheduler says no to a gang that fits: 64 nodes of eight GPUs, 16 a rack, on
// which tasks of random sizes run; then a gang of 2 to 16 tasks of sizes of the mix. Or every other
// node has four GPUs. Each no is proved, and the proof counted again.
enum class mix { dividing, any, odd };
enum class machines { eight, four_and_eight };  // GPUs of a node
template <mix Mix, machines Machines = machines::eight>
void missed(benchmark::State& state) {
  const bool in_rack = state.range(1) != 0;
  std::uint64_t fitting = 0;
  std::uint64_t walked_past = 0;
  std::uint64_t not_best = 0;
  std::uint64_t wrong = 0;
  std::uint64_t unproved = 0;
  constexpr std::uint64_t cases = 5'000;
  for (auto _ : state) {
    for (std::uint64_t seed = 0; seed < cases; ++seed) {
      rng random(seed);
      const auto size = [&] {
        if (Mix == mix::dividing) return 1U << random.uniform(4);
        return Mix == mix::any ? 1 + random.uniform(8) : 3 + 2 * random.uniform(3);
      };
      std::vector<std::uint32_t> free(64, 8);
      for (std::size_t n = 1; n < 64 && Machines == machines::four_and_eight; n += 2) free[n] = 4;
      const std::uint32_t gpus = std::accumulate(free.begin(), free.end(), 0U);
      const auto load = static_cast<std::uint32_t>(state.range(0));
      for (std::uint32_t used = 0; used * 100 < load * gpus;) {
        std::uint32_t& f = free[random.uniform(64)];
        const std::uint32_t task = std::min(1 + random.uniform(8), f);
        f -= task;
        used += task;
      }
      capacity_index<uniform_tree> capacities(uniform_tree{4, 16, 8}, node, 8);
      for (std::uint32_t n = 0; n < 64; ++n) capacities.set(n, free[n]);
      topology_constraints gang;
      std::vector<std::uint32_t> tasks;
      for (std::uint32_t t = 2 + random.uniform(15); t-- > 0;) {
        tasks.push_back(size());
        gang.groups.push_back({1, tasks.back()});
      }
      if (in_rack) gang.required = 2;
      topology_fit<uniform_tree> fit;
      const fit_verdict verdict = fit(capacities, gang).verdict;
      if (verdict == fit_verdict::does_not_fit) {
        proof_check check(capacities.tree(), node, capacities.free(), {}, gang);
        unproved += check(fit.explain(capacities, gang)) ? 0U : 1U;
      }
      bool walked = false;
      bool best = false;
      for (std::ptrdiff_t r = 0; r < (in_rack ? 4 : 1); ++r) {
        const std::vector<std::uint32_t> cell(in_rack ? free.begin() + r * 16 : free.begin(),
                                              in_rack ? free.begin() + (r + 1) * 16 : free.end());
        walked = walked || fits_by_walking(cell, tasks);
        best = best || fits_by_best_fit(cell, tasks);
      }
      const bool fits = verdict == fit_verdict::fits;
      wrong += verdict == fit_verdict::budget_ended || ((walked || best) && !fits) ? 1U : 0U;
      fitting += fits ? 1U : 0U;
      walked_past += fits && !walked ? 1U : 0U;
      not_best += fits && !best ? 1U : 0U;
    }
  }
  if (wrong > 0) state.SkipWithError("a greedy yes where we say no, or no answer");
  if (unproved > 0) state.SkipWithError("a no without proof");
  const auto percent = [&](std::uint64_t n) {
    return 100.0 * static_cast<double>(n) /
           static_cast<double>(std::max<std::uint64_t>(fitting, 1));
  };
  state.counters["fit"] = static_cast<double>(fitting);
  state.counters["walk_misses_%"] = percent(walked_past);
  state.counters["best_fit_misses_%"] = percent(not_best);
}
void loads(benchmark::internal::Benchmark* b) {
  for (const int in_rack : {0, 1})
    for (const int load : {60, 70, 80, 90, 95}) b->Args({load, in_rack});
  b->ArgNames({"use", "in_rack"})->Iterations(1)->Unit(benchmark::kMillisecond);
}
BENCHMARK(missed<mix::dividing>)->Name("missed/1_2_4_8")->Apply(loads);
BENCHMARK(missed<mix::any>)->Name("missed/1_to_8")->Apply(loads);
BENCHMARK(missed<mix::odd>)->Name("missed/3_5_7")->Apply(loads);
BENCHMARK(missed<mix::any, machines::four_and_eight>)
    ->Name("missed/nodes_of_4_and_8")
    ->Apply(loads);

// What a change of one node costs.
void change_node(benchmark::State& state) {
  capacity_index<uniform_tree> capacities =
      busy_cluster(static_cast<std::uint32_t>(state.range(0)));
  rng random(5);
  std::uint64_t free = 0;
  for (const std::uint32_t f : capacities.free()) free += f;
  for (auto _ : state) {
    const std::uint32_t n = random.uniform(capacities.num_nodes());
    const std::uint32_t to = random.uniform(9);
    free += to;
    free -= capacities.set(n, to);
  }
  if (capacities.slots(capacities.top(), 1)[0] != free) state.SkipWithError("leaves were lost");
}
BENCHMARK(change_node)->Name("constraints/change_node")->Arg(middle)->Arg(large);

}  // namespace
