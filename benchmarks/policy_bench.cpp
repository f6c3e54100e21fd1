// apiary/benchmarks/policy_bench.cpp - gangs into nodes and tasks into leaves, beside slower ways.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/hived/detail/node_choice.h>
#include <apiary/model/request.h>
#include <apiary/preempt/victim_search.h>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <vector>

using namespace apiary;

namespace {

// Nodes of eight leaves, hundreds of each number of free ones, the fullest first.
std::vector<gang_fit::node_class> busy_nodes(std::uint32_t most) {
  std::vector<gang_fit::node_class> classes;
  for (std::uint32_t free = 0; free <= 8; ++free) classes.push_back({free, most});
  return classes;
}

// Sorts the nodes and takes, for each task, the largest first, the first node where it fits: what the
// open-source HiveD does, for every gang anew.
class node_by_node {
 public:
  fit_verdict operator()(const std::vector<gang_fit::node_class>& classes,
                         const std::vector<task_group>& groups) {
    free_.clear();
    tasks_.clear();
    used_ = 0;
    for (const gang_fit::node_class& c : classes) free_.insert(free_.end(), c.nodes, c.free);
    for (const task_group& m : groups) tasks_.insert(tasks_.end(), m.tasks, m.gpus);
    std::sort(free_.begin(), free_.end());
    std::sort(tasks_.begin(), tasks_.end(), std::greater<>());
    for (const std::uint32_t t : tasks_) {
      const auto node =
          std::find_if(free_.begin(), free_.end(), [&](std::uint32_t f) { return f >= t; });
      if (node == free_.end()) return fit_verdict::does_not_fit;
      *node -= t;
      used_ += t;
    }
    return fit_verdict::fits;
  }
  [[nodiscard]] std::uint64_t used() const { return used_; }

 private:
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> tasks_;
  std::uint64_t used_ = 0;
};

// Every node that differs for every task, the largest first: exact for any sizes.
class backtracking {
 public:
  fit_verdict operator()(const std::vector<gang_fit::node_class>& classes,
                         const std::vector<task_group>& groups) {
    free_.clear();
    tasks_.clear();
    for (const gang_fit::node_class& c : classes) free_.insert(free_.end(), c.nodes, c.free);
    for (const task_group& m : groups) tasks_.insert(tasks_.end(), m.tasks, m.gpus);
    std::sort(tasks_.begin(), tasks_.end(), std::greater<>());
    return place(0) ? fit_verdict::fits : fit_verdict::does_not_fit;
  }

 private:
  bool place(std::size_t t) {
    if (t == tasks_.size()) return true;
    std::uint64_t tried = 0;
    for (std::uint32_t& f : free_) {
      if (f < tasks_[t] || (tried >> f & 1) != 0) continue;
      tried |= std::uint64_t{1} << f;
      f -= tasks_[t];
      const bool fits = place(t + 1);
      f += tasks_[t];
      if (fits) return true;
    }
    return false;
  }

  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> tasks_;
};

// Leaves that gang_fit placed, class by class not more nodes than there are.
std::uint64_t leaves_placed(const gang_fit::result& found, const std::vector<task_group>& groups) {
  std::uint64_t leaves = 0;
  for (const gang_fit::used_node& n : found.nodes)
    for (std::uint32_t p = n.first; p < n.last; ++p)
      leaves += std::uint64_t{found.portions[p].tasks} * groups[found.portions[p].group].gpus;
  return leaves;
}

struct gang_case {
  std::vector<gang_fit::node_class> classes;
  std::vector<task_group> groups;
  fit_verdict expected;
};

std::uint64_t leaves_of(const std::vector<task_group>& groups) {
  std::uint64_t leaves = 0;
  for (const task_group& m : groups) leaves += std::uint64_t{m.tasks} * m.gpus;
  return leaves;
}

// 16 tasks of sizes that divide one another, of sizes that do not, and a gang that is too large.
gang_case dividing() {
  return {busy_nodes(300), {{2, 8}, {4, 4}, {4, 2}, {6, 1}}, fit_verdict::fits};
}
gang_case mixed() {
  return {busy_nodes(300),
          {{1, 8}, {2, 7}, {2, 6}, {3, 5}, {2, 4}, {2, 3}, {2, 2}, {2, 1}},
          fit_verdict::fits};
}
gang_case too_large() {
  return {busy_nodes(1), {{2, 8}, {4, 4}, {4, 2}, {6, 1}}, fit_verdict::does_not_fit};
}
// A million leaves, all of them needed.
gang_case million_leaves() {
  return {{{8, 125'000}}, {{62'500, 8}, {62'500, 4}, {62'500, 2}, {125'000, 1}}, fit_verdict::fits};
}
// Every leaf is needed: largest first and best fit fail.
gang_case tight() {
  return {{{10, 2}, {11, 2}, {16, 1}}, {{2, 7}, {3, 4}, {6, 3}, {2, 5}, {1, 4}}, fit_verdict::fits};
}
// As many leaves as needed, places for every size, and no packing.
gang_case no_packing() { return {{{10, 8}}, {{11, 4}, {12, 3}}, fit_verdict::does_not_fit}; }
// Weights 1 and 2 refuse it: every node with 4 free GPUs holds 1, with 6 or 8 free GPUs 2.
gang_case weights() {
  return {{{4, 1024}, {6, 1024}, {8, 1024}}, {{2049, 4}, {1536, 5}}, fit_verdict::does_not_fit};
}

fit_verdict verdict_of(fit_verdict verdict) { return verdict; }
fit_verdict verdict_of(const gang_fit::result& found) { return found.verdict; }

template <class Fit, gang_case (*Make)()>
void fit_gang(benchmark::State& state) {
  gang_case c = Make();
  benchmark::DoNotOptimize(c.classes.data());
  benchmark::DoNotOptimize(c.groups.data());
  Fit fit;
  decltype(fit(c.classes, c.groups)) found{};
  std::uint64_t right = 0;
  std::uint64_t rounds = 0;
  for (auto _ : state) {
    found = fit(c.classes, c.groups);
    right += verdict_of(found) == c.expected ? 1U : 0U;
    ++rounds;
  }
  if (right != rounds) state.SkipWithError("a wrong verdict");
  if constexpr (std::is_same_v<Fit, gang_fit>) {
    if (c.expected == fit_verdict::fits && leaves_placed(found, c.groups) != leaves_of(c.groups))
      state.SkipWithError("leaves were lost");
    state.counters["steps"] = static_cast<double>(found.steps);
  }
}

BENCHMARK(fit_gang<gang_fit, dividing>)->Name("gang/dividing/gang_fit");
BENCHMARK(fit_gang<node_by_node, dividing>)->Name("gang/dividing/node_by_node");
BENCHMARK(fit_gang<gang_fit, too_large>)->Name("gang/too_large/gang_fit");
BENCHMARK(fit_gang<node_by_node, too_large>)->Name("gang/too_large/node_by_node");
BENCHMARK(fit_gang<gang_fit, mixed>)->Name("gang/mixed/gang_fit");
BENCHMARK(fit_gang<node_by_node, mixed>)->Name("gang/mixed/node_by_node");
BENCHMARK(fit_gang<gang_fit, million_leaves>)->Name("gang/million_leaves/gang_fit");
BENCHMARK(fit_gang<gang_fit, tight>)->Name("gang/tight/gang_fit");
BENCHMARK(fit_gang<backtracking, tight>)->Name("gang/tight/backtracking");
BENCHMARK(fit_gang<gang_fit, no_packing>)->Name("gang/no_packing/gang_fit");
BENCHMARK(fit_gang<gang_fit, weights>)->Name("gang/weights/gang_fit");
BENCHMARK(fit_gang<backtracking, no_packing>)->Name("gang/no_packing/backtracking");

// Random sets of idle leaves on a node of eight.
struct leaf_request {
  std::uint64_t available;
  std::uint64_t preferred;
  std::uint32_t n;
};

constexpr std::uint32_t eight[] = {1, 2, 4, 8};
constexpr std::uint32_t sixteen[] = {1, 2, 4, 8, 16};

std::size_t common_level(std::uint64_t leaves, std::span<const std::uint32_t> sizes) {
  const auto first = static_cast<std::uint32_t>(std::countr_zero(leaves));
  const auto last = static_cast<std::uint32_t>(63 - std::countl_zero(leaves));
  std::size_t l = 0;
  while (first / sizes[l] != last / sizes[l]) ++l;
  return l;
}

// The subset with the lowest common cell, most preferred leaves first: all are tried.
std::uint64_t every_subset(std::uint64_t available, std::uint64_t preferred, std::uint32_t n,
                           std::span<const std::uint32_t> sizes) {
  const std::uint64_t pool =
      static_cast<std::uint32_t>(std::popcount(preferred)) >= n ? preferred : available;
  std::uint64_t best = 0;
  std::size_t best_rank = ~std::size_t{0};
  for (std::uint64_t set = pool; set != 0; set = (set - 1) & pool) {
    if (static_cast<std::uint32_t>(std::popcount(set)) != n) continue;
    const std::size_t rank = common_level(set, sizes) * 64 + 64 -
                             static_cast<std::uint32_t>(std::popcount(set & preferred));
    if (rank <= best_rank) {
      best_rank = rank;
      best = set;
    }
  }
  return best;
}

template <std::uint64_t (*Choose)(std::uint64_t, std::uint64_t, std::uint32_t,
                                  std::span<const std::uint32_t>)>
void leaves_of_a_node(benchmark::State& state) {
  std::span<const std::uint32_t> sizes = eight;
  if (state.range(0) == 16) sizes = sixteen;
  benchmark::DoNotOptimize(sizes);
  const std::uint64_t all = (std::uint64_t{1} << state.range(0)) - 1;
  rng random(17);
  std::vector<leaf_request> requests;
  while (requests.size() < 1024) {
    const std::uint64_t available = (random() | random()) & all;
    if (available == 0) continue;
    const auto leaves = static_cast<std::uint32_t>(std::popcount(available));
    requests.push_back({available, available & random(), 1 + random.uniform(leaves)});
  }
  const auto level_sum = [&](auto&& f) {
    std::size_t sum = 0;
    for (const leaf_request& r : requests)
      sum += common_level(f(r.available, r.preferred, r.n, sizes), sizes);
    return sum;
  };
  std::uint64_t sum = 0;
  std::size_t i = 0;
  for (auto _ : state) {
    const leaf_request& r = requests[i++ % requests.size()];
    sum += Choose(r.available, r.preferred, r.n, sizes);
  }
  benchmark::DoNotOptimize(sum);
  if (level_sum(Choose) != level_sum(every_subset)) state.SkipWithError("leaves too far apart");
}

BENCHMARK(leaves_of_a_node<detail::choose_gpus>)->Name("leaves/choose_leaves")->Arg(8)->Arg(16);
BENCHMARK(leaves_of_a_node<every_subset>)->Name("leaves/every_subset")->Arg(8)->Arg(16);

// A cluster full of gangs of 1 to 16 tasks on nodes of eight leaves; all of them cost a gang and
// their leaves.
struct full_cluster {
  std::vector<std::uint32_t> free;
  std::vector<eviction_candidate> candidates;
  std::vector<gpus_on_node> shares;

  explicit full_cluster(std::uint32_t gangs) {
    rng random(7);
    constexpr std::uint32_t kinds[][2] = {{1, 1}, {1, 2}, {1, 4}, {1, 8}, {2, 8}, {4, 8}, {8, 4}};
    for (std::uint32_t j = 0; j < gangs; ++j) {
      const auto& [tasks, leaves] = kinds[random.uniform(7)];
      const auto first = static_cast<std::uint32_t>(shares.size());
      for (std::uint32_t t = 0; t < tasks; ++t) shares.push_back({take(leaves, random), leaves});
      const auto last = static_cast<std::uint32_t>(shares.size());
      candidates.push_back({(std::uint64_t{1} << 40) + std::uint64_t{tasks} * leaves, first, last});
    }
    random.shuffle(candidates);
  }

 private:
  // A node where it fits, of the last few; a new one if none has.
  std::uint32_t take(std::uint32_t leaves, rng& random) {
    const auto n = static_cast<std::uint32_t>(free.size());
    for (std::uint32_t i = n; i-- > 0 && n - i < 16;) {
      if (free[i] < leaves || random.uniform(4) == 0) continue;
      free[i] -= leaves;
      return i;
    }
    free.push_back(8 - leaves);
    return n;
  }
};

// Takes gangs, the cheapest first, until the gang fits: what greedy schedulers do.
class cheapest_first {
 public:
  std::uint64_t operator()(const full_cluster& in, std::span<const task_group> groups) {
    std::vector<std::uint32_t> free = in.free;
    std::vector<std::uint32_t> order(in.candidates.size());
    for (std::uint32_t j = 0; j < order.size(); ++j) order[j] = j;
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return in.candidates[a].cost < in.candidates[b].cost;
    });
    std::vector<gang_fit::node_class> classes(9);
    for (std::uint32_t f = 0; f <= 8; ++f) classes[f].free = f;
    for (const std::uint32_t f : free) ++classes[f].nodes;
    std::uint64_t cost = 0;
    for (const std::uint32_t j : order) {
      if (fit_(classes, groups).verdict == fit_verdict::fits) break;
      cost += in.candidates[j].cost;
      for (std::uint32_t s = in.candidates[j].first; s < in.candidates[j].last; ++s) {
        std::uint32_t& f = free[in.shares[s].node];
        --classes[f].nodes;
        f += in.shares[s].gpus;
        ++classes[f].nodes;
      }
    }
    return cost;
  }

 private:
  gang_fit fit_;
};

void victims(benchmark::State& state) {
  const full_cluster cluster(static_cast<std::uint32_t>(state.range(0)));
  const std::vector<task_group> gang{{8, 8}};
  victim_search search;
  victim_set found;
  std::uint64_t cost = 0;
  for (auto _ : state) {
    found = search({}, cluster.free, cluster.candidates, cluster.shares, gang);
    if (found.verdict != fit_verdict::fits) state.SkipWithError("no victims");
    if (cost != 0 && cost != found.cost) state.SkipWithError("other victims");
    cost = found.cost;
  }
  const auto gangs_in = [](std::uint64_t c) { return static_cast<double>(c >> 40); };
  state.counters["nodes"] = static_cast<double>(cluster.free.size());
  state.counters["victims"] = gangs_in(cost);
  state.counters["at_least"] = gangs_in(found.lower_bound);
  state.counters["greedy"] = gangs_in(cheapest_first()(cluster, gang));
}
BENCHMARK(victims)->Name("victims/victim_search")->Arg(200)->Arg(2000)->Arg(20000);
void victims_greedily(benchmark::State& state) {
  const full_cluster cluster(static_cast<std::uint32_t>(state.range(0)));
  const std::vector<task_group> gang{{8, 8}};
  cheapest_first search;
  for (auto _ : state) benchmark::DoNotOptimize(search(cluster, gang));
}
BENCHMARK(victims_greedily)->Name("victims/cheapest_first")->Arg(200)->Arg(2000)->Arg(20000);

}  // namespace
