// apiary/benchmarks/gang_scheduler_bench.cpp - decisions of the gang scheduler in clusters of 1,000 to 1,000,000 GPUs.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gang_scheduler/gang_scheduler.h>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <malloc.h>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

// The heap, while it is counted: what was taken since then and not given back, and the most of it.
bool is_heap_counted = false;
std::int64_t heap_bytes = 0;
std::int64_t most_heap_bytes = 0;

void count_heap(void* block, std::int64_t sign) {
  if (!is_heap_counted || block == nullptr) return;
  heap_bytes += sign * static_cast<std::int64_t>(malloc_usable_size(block));
  most_heap_bytes = std::max(most_heap_bytes, heap_bytes);
}

}  // namespace

void* operator new(std::size_t bytes) {
  void* const block = std::malloc(bytes);
  if (block == nullptr) std::abort();
  count_heap(block, 1);
  return block;
}
void operator delete(void* block) noexcept {
  count_heap(block, -1);
  std::free(block);
}
void operator delete(void* block, std::size_t) noexcept { operator delete(block); }

namespace {

constexpr level_t rack = 1;

// Nodes of eight GPUs, 16 a rack, 8 racks a block; every 16th node has the label zone=a.
gang_cluster cluster_of(std::uint32_t gpus) {
  gang_cluster cluster{.levels = {"rack", "block"}};
  for (std::uint32_t n = 0; n < gpus / 8; ++n) {
    gang_cluster::node node{.name = "n" + std::to_string(n),
                            .cells = {"r" + std::to_string(n / 16), "b" + std::to_string(n / 128)},
                            .gpus = 8,
                            .host = {.cpu_milli = 96'000, .memory_mib = 768'000}};
    if (n % 16 == 5) node.labels = {"zone=a"};
    cluster.nodes.push_back(std::move(node));
  }
  return cluster;
}

// Gangs of 25 or of 5 GPUs in the mean.
enum class gang_sizes { large, small };

topology_constraints small_gang(rng& random) {
  constexpr std::uint32_t sizes[] = {1, 1, 1, 2, 2, 4, 8, 8};
  topology_constraints gang;
  gang.groups = {{.tasks = 1 + random.uniform(2), .gpus = sizes[random.uniform(8)]}};
  return gang;
}
// What gangs ask for: sizes that divide one another, or any.
topology_constraints random_gang(rng& random, bool divisible) {
  constexpr std::uint32_t sizes[] = {1, 1, 2, 2, 4, 8, 8, 8};
  constexpr std::uint32_t mixed[] = {1, 2, 3, 4, 5, 6, 7, 8};
  topology_constraints gang;
  for (std::uint32_t m = 1 + random.uniform(2); m-- > 0;)
    gang.groups.push_back(
        {.tasks = 1 + random.uniform(8),
         .gpus = divisible ? sizes[random.uniform(8)] : mixed[random.uniform(8)]});
  return gang;
}

// A scheduler with so many percent of the GPUs in use, and the jobs that run there.
struct busy {
  gang_scheduler scheduler;
  std::deque<job_key> running{};
  std::uint64_t next = 0;
  std::uint64_t used = 0;
  std::uint64_t total = 0;

  std::uint64_t percent = 0;
  gang_sizes of = gang_sizes::large;
  time_ms now = 0;  // one more with each gang

  explicit busy(std::uint32_t gpus, std::uint32_t percent_used, gang_sizes sizes)
      : scheduler(gang_scheduler::create(cluster_of(gpus)).value()),
        total(gpus),
        percent(percent_used),
        of(sizes) {
    rng random(1);
    while (!full()) submit(random, true);
    // Some end, others start, so that what is free lies where ends leave it.
    for (std::uint64_t i = 0; i < total / 16; ++i) {
      finish(random);
      while (!full()) submit(random, i % 4 != 0);
    }
  }
  [[nodiscard]] bool full() const { return used * 100 >= total * percent; }
  void submit(rng& random, bool divisible) {
    submit({.job = next++,
            .gang = of == gang_sizes::small ? small_gang(random) : random_gang(random, divisible)});
  }
  void submit(const gang_scheduler::request& r) {
    const auto plan = scheduler.propose(r, ++now);
    if (!plan.ok() || !scheduler.commit(*plan).ok()) return;
    used += scheduler.find(r.job)->gpus;
    running.push_back(r.job);
  }
  void finish(rng& random) {
    std::swap(running[random.uniform(static_cast<std::uint32_t>(running.size()))], running.front());
    used -= scheduler.find(running.front())->gpus;
    scheduler.finish(running.front()).IgnoreError();
    running.pop_front();
  }
};
std::vector<busy> made;
busy& busy_cluster(std::int64_t gpus, std::uint32_t percent = 80,
                   gang_sizes sizes = gang_sizes::large) {
  if (made.empty() || made[0].total != static_cast<std::uint64_t>(gpus) ||
      made[0].percent != percent || made[0].of != sizes) {
    made.clear();  // one at a time
    made.emplace_back(static_cast<std::uint32_t>(gpus), percent, sizes);
  }
  return made[0];
}

// Proposes such gangs; reports the mean and the 99th percentile.
template <class Change>
void propose(benchmark::State& state, bool divisible, const Change& change) {
  busy& cluster = busy_cluster(state.range(0));
  rng random(7);
  std::vector<gang_scheduler::request> requests;
  for (int i = 0; i < 1024; ++i) {
    gang_scheduler::request& r = requests.emplace_back();
    r.job = "asked";
    r.gang = random_gang(random, divisible);
    change(r);
  }
  std::vector<double> times;
  std::size_t i = 0;
  std::uint64_t bound = 0;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    const auto plan = cluster.scheduler.propose(requests[i++ % requests.size()]);
    const auto end = std::chrono::steady_clock::now();
    if (!plan.ok()) state.SkipWithError("a request is wrong");
    bound += plan->result == plan_result::bind ? 1 : 0;
    times.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
  }
  std::sort(times.begin(), times.end());
  state.counters["p99_us"] = times[times.size() * 99 / 100];
  state.counters["bind"] = static_cast<double>(bound) / static_cast<double>(times.size());
}
void none(gang_scheduler::request&) {}
void in_rack(gang_scheduler::request& r) { r.gang.required = rack; }
void in_zone(gang_scheduler::request& r) { r.filter.labels = {"zone=a"}; }
void on_listed_nodes(gang_scheduler::request& r) {
  static node_names names;  // every other node of the cluster
  static std::uint64_t total = 0;
  const std::uint64_t now = made[0].total;
  if (total != now) {
    std::vector<std::string> list;
    for (std::uint64_t n = 0; n < now / 8; n += 2) list.push_back("n" + std::to_string(n));
    names = list;
    total = now;
  }
  r.filter.nodes = names;
}
void with_cpu(gang_scheduler::request& r) {
  for (constrained_task_group& m : r.gang.groups) m.host.cpu_milli = m.gpus * 12'000;
}

void divisible(benchmark::State& state) { propose(state, true, none); }
void mixed(benchmark::State& state) { propose(state, false, none); }
void required_rack(benchmark::State& state) { propose(state, true, in_rack); }
void mixed_rack(benchmark::State& state) { propose(state, false, in_rack); }
void label(benchmark::State& state) { propose(state, true, in_zone); }
void listed(benchmark::State& state) { propose(state, true, on_listed_nodes); }
void cpu(benchmark::State& state) { propose(state, true, with_cpu); }

// A gang starts, another one ends.
void start_and_end(benchmark::State& state) {
  busy& cluster = busy_cluster(state.range(0));
  rng random(9);
  for (auto _ : state) {
    cluster.submit(random, true);
    while (cluster.full()) cluster.finish(random);
  }
}
// A node joins its rack, and leaves it.
void join_and_leave(benchmark::State& state) {
  busy& cluster = busy_cluster(state.range(0));
  gang_cluster::node node = cluster_of(128 * 8).nodes[7];
  node.name = "new";
  for (auto _ : state) {
    const auto id = cluster.scheduler.add_node(node);
    if (!id.ok() || !cluster.scheduler.remove_node(*id).ok()) state.SkipWithError("it failed");
  }
}
// A node joins its rack and leaves it; then a gang is proposed.
void join_leave_and_propose(benchmark::State& state) {
  busy& cluster = busy_cluster(state.range(0));
  gang_cluster::node node = cluster_of(128 * 8).nodes[7];
  node.name = "new";
  const gang_scheduler::request r{.job = "asked", .gang = {.groups = {{.tasks = 4, .gpus = 2}}}};
  for (auto _ : state) {
    const auto id = cluster.scheduler.add_node(node);
    if (!id.ok() || !cluster.scheduler.remove_node(*id).ok()) state.SkipWithError("it failed");
    const auto plan = cluster.scheduler.propose(r);
    if (!plan.ok() || plan->result != plan_result::bind) state.SkipWithError("it does not fit");
  }
}
// A random node of an idle cluster leaves, and joins again.
void random_join_and_leave(benchmark::State& state) {
  const gang_cluster cluster = cluster_of(static_cast<std::uint32_t>(state.range(0)));
  gang_scheduler scheduler = gang_scheduler::create(cluster).value();
  rng random(10);
  for (auto _ : state) {
    const std::uint32_t n = random.uniform(static_cast<std::uint32_t>(cluster.nodes.size()));
    if (!scheduler.remove_node(node_id(n)).ok() ||
        scheduler.add_node(cluster.nodes[n]).value() != node_id(n))
      state.SkipWithError("it failed");
  }
}
// Half of the nodes are bad; a random node becomes bad or healthy.
void bad_nodes(benchmark::State& state) {
  const auto nodes = static_cast<std::uint32_t>(state.range(0) / 8);
  gang_scheduler scheduler =
      gang_scheduler::create(cluster_of(static_cast<std::uint32_t>(state.range(0)))).value();
  std::vector<bool> is_bad(nodes);
  rng random(10);
  const auto change = [&](std::uint32_t n) {
    is_bad[n] = !is_bad[n];
    const absl::Status done =
        is_bad[n] ? scheduler.mark_bad(node_id(n)) : scheduler.mark_healthy(node_id(n));
    if (!done.ok()) state.SkipWithError("it failed");
  };
  for (std::uint32_t n = 0; n < nodes; n += 2) change(n);
  for (auto _ : state) change(random.uniform(nodes));
}
// Half as many nodes again join, one rack after the other; the mean of a call; no gang is proposed.
void grow(benchmark::State& state) {
  const gang_cluster cluster = cluster_of(static_cast<std::uint32_t>(state.range(0)));
  const gang_scheduler idle = gang_scheduler::create(cluster).value();
  double joined = 0;
  for (auto _ : state) {
    state.PauseTiming();
    gang_scheduler scheduler = idle;
    state.ResumeTiming();
    for (const gang_cluster::node& n : cluster.nodes) {
      if (n.name.back() % 2 == 0) continue;
      gang_cluster::node added = n;
      added.name += "b";
      if (!scheduler.add_node(added).ok()) state.SkipWithError("it failed");
      ++joined;
    }
  }
  state.counters["per_node"] =
      benchmark::Counter(joined, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
// A full cluster, in which no rack is idle.
busy& full_cluster(std::int64_t gpus, gang_sizes sizes = gang_sizes::large) {
  busy& cluster = busy_cluster(gpus, 99, sizes);
  topology_constraints whole_rack{.groups = {{.tasks = 16, .gpus = 8}}, .required = rack};
  for (bool idle = true; idle;) {  // no rack stays idle
    const std::size_t before = cluster.running.size();
    cluster.submit({.job = cluster.next++, .gang = whole_rack});
    idle = cluster.running.size() > before;
  }
  return cluster;
}
// A gang of a higher priority that needs victims; in a rack, in slices, or anywhere.
void victims(benchmark::State& state, const topology_constraints& gang,
             gang_sizes sizes = gang_sizes::large) {
  busy& cluster = full_cluster(state.range(0), sizes);
  gang_scheduler::request r{.job = "asked", .priority = 1, .gang = gang};
  std::size_t found = 0;
  double of_bound = 0;
  for (auto _ : state) {
    const auto plan = cluster.scheduler.propose(r, cluster.now);
    if (!plan.ok() || plan->result != plan_result::preempt) state.SkipWithError("no victims");
    if (!plan.ok()) continue;
    found = plan->victims.size();
    of_bound = static_cast<double>(plan->cost) /
               static_cast<double>(std::max<std::uint64_t>(plan->lower_bound, 1));
  }
  state.counters["of_bound"] = of_bound;
  state.counters["gangs"] = static_cast<double>(cluster.running.size());
  state.counters["victims"] = static_cast<double>(found);
}
void victims_in_a_rack(benchmark::State& state) {
  victims(state, {.groups = {{.tasks = 16, .gpus = 8}}, .required = rack});
}
busy& cluster_without_idle_nodes(std::int64_t gpus, gang_sizes sizes) {
  busy& cluster = full_cluster(gpus, sizes);
  const topology_constraints whole_node{.groups = {{.tasks = 1, .gpus = 8}}};
  for (bool idle = true; idle;) {
    const std::size_t before = cluster.running.size();
    cluster.submit({.job = cluster.next++, .gang = whole_node});
    idle = cluster.running.size() > before;
  }
  return cluster;
}
template <gang_sizes Sizes>
void victims_anywhere(benchmark::State& state) {
  cluster_without_idle_nodes(state.range(0), Sizes);
  victims(state, {.groups = {{.tasks = 16, .gpus = 8}}}, Sizes);
}
template <gang_sizes Sizes>
void victims_in_slices(benchmark::State& state) {
  victims(state, {.groups = {{.tasks = 64, .gpus = 8, .slices = {{rack, 16}}}}}, Sizes);
}
// The same if the state changes between two proposals: one gang ends, another one starts.
void victims_after_changes(benchmark::State& state) {
  busy& cluster = full_cluster(state.range(0));
  rng random(11);
  gang_scheduler::request r{.job = "asked", .priority = 1};
  r.gang = {.groups = {{.tasks = 16, .gpus = 8}}, .required = rack};
  for (auto _ : state) {
    state.PauseTiming();
    cluster.finish(random);
    while (!cluster.full()) cluster.submit(random, false);
    state.ResumeTiming();
    const auto plan = cluster.scheduler.propose(r, cluster.now);
    if (!plan.ok() || plan->result == plan_result::wait) state.SkipWithError("no victims");
  }
}
// Gangs that ask for the nodes of so many pools in turn; before each of them, a node may join and leave.
template <bool Joins>
void filters_in_turn(benchmark::State& state) {
  gang_cluster cluster = cluster_of(static_cast<std::uint32_t>(state.range(0)));
  const auto pools = static_cast<std::uint32_t>(state.range(1));
  for (std::uint32_t n = 0; n < cluster.nodes.size(); ++n)
    cluster.nodes[n].labels = {"pool=" + std::to_string(n % pools)};
  gang_scheduler scheduler = gang_scheduler::create(cluster).value();
  gang_cluster::node node = cluster.nodes[7];
  node.name = "new";
  std::vector<gang_scheduler::request> gangs;
  for (std::uint32_t p = 0; p < pools; ++p) {
    gangs.push_back({.job = p, .gang = {.groups = {{.tasks = 1, .gpus = 8}}}});
    gangs.back().filter.labels = {"pool=" + std::to_string(p)};
    if (!scheduler.propose(gangs.back()).ok()) state.SkipWithError("it failed");
  }
  std::chrono::duration<double> joins{};
  std::size_t at = 0;
  for (auto _ : state) {
    if (Joins) {
      const auto start = std::chrono::steady_clock::now();
      const auto id = scheduler.add_node(node);
      if (!id.ok() || !scheduler.remove_node(*id).ok()) state.SkipWithError("it failed");
      joins += std::chrono::steady_clock::now() - start;
    }
    const auto plan = scheduler.propose(gangs[at]);
    if (!plan.ok() || plan->result != plan_result::bind) state.SkipWithError("it does not fit");
    at = at + 1 == gangs.size() ? 0 : at + 1;
  }
  state.counters["joins_us"] = 1e6 * joins.count() / static_cast<double>(state.iterations());
}

// A gang that needs whole nodes reserves those of two gangs each; then its victims end in their order.
void end_of_victims(benchmark::State& state) {
  const auto nodes = static_cast<std::uint32_t>(state.range(0) / 2);
  gang_scheduler full = gang_scheduler::create(cluster_of(nodes * 8)).value();
  for (std::uint32_t job = 0; job < 2 * nodes; ++job) {
    const placement at{node_id(job / 2), job % 2 == 0 ? 0x0fU : 0xf0U};
    if (!full.recover({.job = job, .gang = {.groups = {{.tasks = 1, .gpus = 4}}}}, {&at, 1}).ok())
      state.SkipWithError("it failed");
  }
  full.set_step_budget(1'000'000'000);
  const gang_scheduler::plan plan =
      full.propose({.job = "big", .priority = 1, .gang = {.groups = {{.tasks = nodes, .gpus = 8}}}})
          .value();
  if (plan.victims.size() != 2 * nodes) state.SkipWithError("other victims");
  std::chrono::duration<double> commits{};
  std::chrono::duration<double> ends{};
  for (auto _ : state) {
    state.PauseTiming();
    gang_scheduler scheduler = full;
    state.ResumeTiming();
    const auto start = std::chrono::steady_clock::now();
    if (!scheduler.commit(plan).ok()) state.SkipWithError("it failed");
    const auto middle = std::chrono::steady_clock::now();
    for (const job_key& victim : plan.victims)
      if (!scheduler.finish(victim).ok()) state.SkipWithError("it failed");
    commits += middle - start;
    ends += std::chrono::steady_clock::now() - middle;
  }
  const double victims_in_all = static_cast<double>(state.range(0) * state.iterations());
  state.counters["commit_ns"] = 1e9 * commits.count() / victims_in_all;
  state.counters["finish_ns"] = 1e9 * ends.count() / victims_in_all;
}

// Gangs that have to wait: nothing is free for them, and no gang has a lower priority.
void waits(benchmark::State& state) {
  busy& cluster = full_cluster(state.range(0));
  const gang_scheduler::request r{
      .job = "asked",
      .gang = {.groups = {{.tasks = 12, .gpus = 8}, {.tasks = 3, .gpus = 5}}, .required = rack}};
  for (auto _ : state) {
    const auto plan = cluster.scheduler.propose(r);
    if (!plan.ok() || plan->reason != wait_reason::busy || plan->result != plan_result::wait)
      state.SkipWithError("it does not wait");
  }
}

// Adversarial gangs for which propose() may take few steps, on a full cluster of small gangs. The
// counter s/step is the time of a propose() for each step of the budget.
struct hard_case {
  const char* name;
  gang_scheduler::request (*make)(rng& random);
  void (*prepare)(gang_scheduler& scheduler, rng& random) = nullptr;
};
gang_scheduler::request asked(topology_constraints gang, std::int32_t priority = 1) {
  return {.job = "asked", .priority = priority, .gang = std::move(gang)};
}
// Task groups of one or two tasks; all differ in CPU.
topology_constraints kinds(rng& random, std::uint32_t groups, std::uint32_t tasks = 1) {
  topology_constraints gang;
  for (std::uint32_t m = 0; m < groups; ++m)
    gang.groups.push_back({.tasks = tasks,
                           .gpus = 1 + random.uniform(8),
                           .host = {.cpu_milli = 4'000 + m, .memory_mib = 1 + m}});
  return gang;
}
topology_constraints in_slices(std::uint32_t cpu_milli, std::uint32_t groups) {
  topology_constraints gang;
  for (std::uint32_t m = 0; m < groups; ++m)
    gang.groups.push_back(
        {.tasks = 64, .gpus = 8 - 3 * m, .host = {.cpu_milli = cpu_milli}, .slices = {{rack, 8}}});
  return gang;
}
gang_scheduler::request with_level(gang_scheduler::request r, level_t required,
                                   level_t preferred = any_level) {
  r.gang.required = required;
  r.gang.preferred = preferred;
  return r;
}
constexpr level_t block = 2;
const hard_case hard_cases[] = {
    {"10000_kinds", [](rng& r) { return asked(kinds(r, 10'000)); }},
    {"10000_kinds_wait", [](rng& r) { return asked(kinds(r, 10'000), 0); }},
    {"400_kinds", [](rng& r) { return asked(kinds(r, 400, 100)); }},
    {"400_kinds_wait", [](rng& r) { return asked(kinds(r, 400, 100), 0); }},
    {"20_kinds_in_a_rack", [](rng& r) { return with_level(asked(kinds(r, 20)), rack); }},
    {"20_kinds_in_a_block", [](rng& r) { return with_level(asked(kinds(r, 20, 4)), block); }},
    {"sizes_in_a_rack",
     [](rng& r) {
       auto asks = with_level(asked(kinds(r, 100)), rack, 0);
       for (constrained_task_group& m : asks.gang.groups) m.host = {};
       return asks;
     }},
    {"in_a_rack",
     [](rng&) { return with_level(asked({.groups = {{.tasks = 16, .gpus = 8}}}), rack); }},
    {"in_a_block",
     [](rng&) { return with_level(asked({.groups = {{.tasks = 64, .gpus = 8}}}), block); }},
    {"preferred_rack_with_cpu",
     [](rng&) {
       return with_level(
           asked({.groups = {{.tasks = 16, .gpus = 8, .host = {.cpu_milli = 90'000}}}}), any_level,
           rack);
     }},
    {"preferred_node_with_cpu",
     [](rng&) {
       return with_level(
           asked({.groups = {{.tasks = 40, .gpus = 7, .host = {.cpu_milli = 90'000}},
                             {.tasks = 8, .gpus = 3, .host = {.cpu_milli = 10'000}}}}),
           any_level, 0);
     }},
    {"slices", [](rng&) { return asked(in_slices(0, 1)); }},
    {"slices_with_cpu", [](rng&) { return asked(in_slices(90'000, 1)); }},
    {"slices_of_two_kinds", [](rng&) { return asked(in_slices(40'000, 2)); }},
    {"spread_in_a_block",
     [](rng&) {
       topology_constraints gang;
       gang.groups = {{.tasks = 8, .gpus = 7, .spread = {{rack, 1}}},
                      {.tasks = 16, .gpus = 5, .spread = {{0, 1}}}};
       return with_level(asked(gang), block);
     }},
    {"leaders",
     [](rng&) {
       topology_constraints gang;
       gang.groups = {{.tasks = 8, .gpus = 2},
                      {.tasks = 32, .gpus = 8, .leader = 0, .leader_level = rack}};
       return asked(gang);
     }},
    {"leaders_on_nodes",
     [](rng&) {
       topology_constraints gang;
       gang.groups = {{.tasks = 200, .gpus = 1}};
       for (std::uint32_t m = 0; m < 2'000; ++m)
         gang.groups.push_back({.tasks = 200, .gpus = 0, .host = {.cpu_milli = 1}, .leader = 0});
       return asked(gang);
     }},
    {"one_of_many", [](rng&) { return asked({.groups = {{.tasks = 1, .gpus = 8}}}); }},
    {"anywhere", [](rng&) { return asked({.groups = {{.tasks = 500, .gpus = 8}}}); }},
    {"anywhere_with_cpu",
     [](rng&) {
       return asked({.groups = {{.tasks = 500, .gpus = 8, .host = {.cpu_milli = 90'000}}}});
     }},
    {"tenants",
     [](rng&) { return with_level(asked({.groups = {{.tasks = 64, .gpus = 8}}}), block); },
     [](gang_scheduler& s, rng& random) {
       for (std::uint32_t t = 0; t < 10'000; ++t)
         s.set_disruption_budget(tenant_id(t), {.gangs = random.uniform(3)});
     }},
    {"cost_function",
     [](rng&) { return with_level(asked({.groups = {{.tasks = 64, .gpus = 8}}}), block); },
     [](gang_scheduler& s, rng&) {
       s.set_victim_cost([](const gang_scheduler::running_gang& g, time_ms) { return 5 + g.gpus; });
     }},
    {"cost_function_anywhere", [](rng&) { return asked({.groups = {{.tasks = 64, .gpus = 8}}}); },
     [](gang_scheduler& s, rng&) {
       s.set_victim_cost([](const gang_scheduler::running_gang& g, time_ms) { return 5 + g.gpus; });
     }},
    {"listed_nodes",
     [](rng&) {
       auto asks =
           with_level(asked({.groups = {{.tasks = 50, .gpus = 8, .host = {.cpu_milli = 90'000}}}}),
                      any_level, rack);
       on_listed_nodes(asks);
       return asks;
     }},
    {"bad_nodes",
     [](rng&) {
       return asked({.groups = {{.tasks = 50'000, .gpus = 8, .host = {.cpu_milli = 90'000}}}}, 0);
     },
     [](gang_scheduler& s, rng&) {
       for (std::uint32_t n = 0; s.node(node_id(n)) != nullptr; ++n)
         if (n % 3 != 0) s.mark_bad(node_id(n)).IgnoreError();
     }},
    {"equal_costs", [](rng&) { return asked({.groups = {{.tasks = 1, .gpus = 8}}}); }},
    {"late_starts",
     [](rng&) { return with_level(asked({.groups = {{.tasks = 16, .gpus = 8}}}), rack); }},
    {"priorities", [](rng&) { return asked({.groups = {{.tasks = 64, .gpus = 8}}}, 1'000'000); },
     [](gang_scheduler& s, rng&) {
       // Each gang gets a priority and a tenant of its own.
       std::vector<gang_scheduler::running_gang> all;
       for (std::uint32_t n = 0; s.node(node_id(n)) != nullptr; ++n)
         for (const job_key& job : s.jobs_on(node_id(n))) {
           gang_scheduler::running_gang gang = *s.find(job);
           if (gang.what.priority != 0) continue;
           s.finish(job).IgnoreError();
           gang.what.priority = 1 + static_cast<std::int32_t>(all.size());
           gang.what.tenant = tenant_id(static_cast<std::uint32_t>(all.size()));
           s.recover(gang.what, gang.tasks, gang.started).IgnoreError();
           all.push_back(std::move(gang));
         }
     }},
};
void few_steps(benchmark::State& state) {
  const hard_case& at = hard_cases[state.range(0)];
  state.SetLabel(at.name);
  busy& cluster = cluster_without_idle_nodes(state.range(1), gang_sizes::small);
  std::optional<gang_scheduler> copy;
  if (at.prepare != nullptr) copy = cluster.scheduler;
  gang_scheduler& scheduler = copy ? *copy : cluster.scheduler;
  rng random(5);
  if (at.prepare != nullptr) at.prepare(scheduler, random);
  const auto budget = static_cast<std::uint64_t>(state.range(2));
  scheduler.set_step_budget(budget);
  const gang_scheduler::request r = at.make(random);
  // "equal_costs": before the start of any gang; "late_starts": of most gangs.
  const std::string name = at.name;
  const time_ms now = name == "equal_costs" ? 0 : name == "late_starts" ? 1 : cluster.now;
  gang_scheduler::plan last;
  // The first two make the lists of gangs, and check the names of nodes.
  for (int i = 0; i < 2; ++i) last = scheduler.propose(r, now).value();
  for (auto _ : state) last = scheduler.propose(r, now).value();
  constexpr std::uint64_t all = 200'000;  // at first
  scheduler.set_step_budget(all);
  state.counters["undecided"] =
      last.result == plan_result::wait && last.reason == wait_reason::undecided ? 1 : 0;
  state.counters["victims"] = static_cast<double>(last.victims.size());
  state.counters["s/step"] = benchmark::Counter(
      static_cast<double>(budget),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
// The heap that one propose() takes with the default budget, on a scheduler that has not searched
// victims before: the most during the call, and what stays as buffers and lists. of_bound: the most, as
// part of what the module's page says.
void memory(benchmark::State& state) {
  const hard_case& at = hard_cases[state.range(0)];
  state.SetLabel(at.name);
  if (state.range(0) == 0) made.clear();  // other benchmarks have searched
  const busy& cluster = cluster_without_idle_nodes(state.range(1), gang_sizes::small);
  for (auto _ : state) {
    gang_scheduler scheduler = cluster.scheduler;
    rng random(5);
    if (at.prepare != nullptr) at.prepare(scheduler, random);
    const gang_scheduler::request r = at.make(random);
    heap_bytes = most_heap_bytes = 0;
    is_heap_counted = true;
    auto plan = scheduler.propose(r, cluster.now);
    is_heap_counted = false;
    constexpr double mib = 1024 * 1024;
    state.counters["most_MiB"] = static_cast<double>(most_heap_bytes) / mib;
    state.counters["kept_MiB"] = static_cast<double>(heap_bytes) / mib;
    const double bound = 450.0 * static_cast<double>(cluster.total / 8) +
                         1'000.0 * static_cast<double>(r.gang.groups.size()) +
                         64.0 * static_cast<double>(plan.value().steps) + 64 * 1'024;
    state.counters["of_bound"] = static_cast<double>(most_heap_bytes) / bound;
    if (static_cast<double>(most_heap_bytes) > bound) state.SkipWithError("it takes more memory");
  }
}
void hard_memory(benchmark::internal::Benchmark* b) {
  b->ArgNames({"case", "gpus"})->Unit(benchmark::kMillisecond)->Iterations(1);
  for (const std::int64_t gpus : {1'024, 102'400, 1'024'000})
    for (std::int64_t i = 0; i < std::ssize(hard_cases); ++i) b->Args({i, gpus});
}
void hard(benchmark::internal::Benchmark* b) {
  b->ArgNames({"case", "gpus", "budget"})->Unit(benchmark::kMicrosecond);
  for (const std::int64_t gpus : {1'024, 102'400, 1'024'000})
    for (std::int64_t i = 0; i < std::ssize(hard_cases); ++i)
      for (const std::int64_t budget : {1'000, 10'000, 100'000, 200'000})
        b->Args({i, gpus, budget});
}

// The same for explain(), which searches up to seven times on a part of the budget of its own, and once
// on five budgets. "s/step" is the time divided by the budget of one proposal.
void few_steps_explained(benchmark::State& state) {
  const hard_case& at = hard_cases[state.range(0)];
  state.SetLabel(at.name);
  gang_scheduler scheduler =
      cluster_without_idle_nodes(state.range(1), gang_sizes::small).scheduler;
  rng random(5);
  if (at.prepare != nullptr) at.prepare(scheduler, random);
  scheduler.set_step_budget(static_cast<std::uint64_t>(state.range(2)));
  const gang_scheduler::request r = at.make(random);
  scheduler.propose(r, 0).IgnoreError();
  for (auto _ : state) benchmark::DoNotOptimize(scheduler.explain(r, 0));
  state.counters["s/step"] = benchmark::Counter(
      static_cast<double>(state.range(2)),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
void hard_explained(benchmark::internal::Benchmark* b) {
  b->ArgNames({"case", "gpus", "budget"})->Unit(benchmark::kMicrosecond);
  for (const std::int64_t gpus : {1'024, 102'400})
    for (std::int64_t i = 0; i < std::ssize(hard_cases); ++i) b->Args({i, gpus, 10'000});
}

// explain() with the default budget for tasks of so many kinds, some of 8 GPUs, on nodes that all differ in
// free CPU and memory, none of which has 8 free GPUs. "s/step" is the time divided by the 1,000,000 steps
// of the search for nodes to free.
void many_kinds_explained(benchmark::State& state) {
  const auto nodes = static_cast<std::uint32_t>(state.range(1));
  gang_cluster all;
  for (std::uint32_t n = 0; n < nodes; ++n)
    all.nodes.push_back({.name = "n" + std::to_string(n), .gpus = 8, .host = {64'000, 524'288}});
  gang_scheduler scheduler = gang_scheduler::create(all).value();
  rng random(1);
  for (std::uint32_t n = 0; n < nodes; ++n) {
    gang_scheduler::request r = asked({.groups = {{.tasks = 1, .gpus = 1 + random.uniform(7)}}});
    r.job = std::uint64_t{n};
    r.gang.groups[0].host = {random.uniform(40'000), random.uniform(300'000)};
    const placement at{node_id(n), (1U << r.gang.groups[0].gpus) - 1};
    scheduler.recover(r, {&at, 1}).IgnoreError();
  }
  topology_constraints gang;
  for (std::uint32_t i = 0; i < state.range(0); ++i)
    gang.groups.push_back({.tasks = state.range(0) < 100 ? 20U : 1U,
                           .gpus = 1 + i % 8,
                           .host = {100 + i, 1'000 + i * 7}});
  gang_scheduler::request r = asked(gang, -1);
  r.job = "many-kinds";
  gang_scheduler::explanation e;
  for (auto _ : state) e = scheduler.explain(r, 0).value();
  state.counters["nodes_to_free"] = static_cast<double>(e.nodes_to_free.size());
  state.counters["s/step"] = benchmark::Counter(
      1e6, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
void kinds_explained(benchmark::internal::Benchmark* b) {
  b->ArgNames({"groups", "nodes"})->Unit(benchmark::kMillisecond);
  for (const std::int64_t nodes : {1'280, 12'800, 128'000})
    for (const std::int64_t groups : {8, 50, 125, 1'000, 10'000})
      if (groups < nodes) b->Args({groups, nodes});
}

// A gang that fills nodes and loses a part of them.
struct lost_gang {
  const char* name;
  gang_scheduler::request (*make)(rng& random, std::uint32_t nodes);
  std::uint32_t stay = 0;  // of 16 nodes
};
const lost_gang lost_gangs[] = {
    {"tasks",
     [](rng&, std::uint32_t nodes) {
       return asked({.groups = {{.tasks = (std::min)(nodes, 1'000U), .gpus = 8}}});
     }},
    {"kinds",
     [](rng& r, std::uint32_t nodes) { return asked(kinds(r, (std::min)(nodes, 1'000U))); }},
    {"groups",
     [](rng&, std::uint32_t nodes) {
       topology_constraints gang;
       gang.groups.assign((std::min)(nodes * 8, 100'000U), {.tasks = 1, .gpus = 1});
       return asked(gang);
     }},
    {"groups_of_which_most_stay",
     [](rng&, std::uint32_t nodes) {
       topology_constraints gang;
       gang.groups.assign((std::min)(nodes * 8, 100'000U), {.tasks = 1, .gpus = 1});
       return asked(gang);
     },
     15},
    {"kinds_in_a_block",
     [](rng& r, std::uint32_t) { return with_level(asked(kinds(r, 10, 4)), block); }, 8},
    {"anti_affinity",
     [](rng&, std::uint32_t) {
       return asked(
           {.groups = {
                {.tasks = 64, .gpus = 3, .host = {.cpu_milli = 1'000}, .spread = {{rack, 9}}}}});
     },
     4},
};
// propose_replacement() or explain_replacement() with a budget, for gangs that are hard to replace.
void few_steps_of_replacement(benchmark::State& state) {
  const lost_gang& at = lost_gangs[state.range(0)];
  state.SetLabel(at.name);
  gang_scheduler scheduler =
      cluster_without_idle_nodes(state.range(1), gang_sizes::small).scheduler;
  rng random(5);
  const gang_scheduler::request r =
      at.make(random, static_cast<std::uint32_t>(state.range(1) / 16));
  // Its tasks fill nodes from the first one on.
  std::vector<placement> tasks;
  std::uint32_t node = 0;
  std::uint32_t used = 0;
  for (const constrained_task_group& m : r.gang.groups) {
    for (std::uint32_t t = 0; t < m.tasks; ++t) {
      if (used + m.gpus > 8) {
        ++node;
        used = 0;
      }
      tasks.push_back({node_id(node), ((1U << m.gpus) - 1) << used});
      used += m.gpus;
    }
  }
  for (std::uint32_t n = 0; n <= node; ++n)
    for (const job_key& job : scheduler.jobs_on(node_id(n))) scheduler.finish(job).IgnoreError();
  if (!scheduler.recover(r, tasks).ok()) return state.SkipWithError("the gang was not recovered");
  for (std::uint32_t n = 0; n <= node; ++n)
    if (n % 16 >= at.stay) scheduler.mark_bad(node_id(n)).IgnoreError();
  scheduler.set_step_budget(static_cast<std::uint64_t>(state.range(2)));
  gang_scheduler::plan last = scheduler.propose_replacement(r.job).value();
  for (auto _ : state) {
    if (state.range(3) == 0) {
      last = scheduler.propose_replacement(r.job).value();
    } else {
      last = scheduler.explain_replacement(r.job).value().plan;
    }
  }
  state.counters["undecided"] =
      last.result == plan_result::wait && last.reason == wait_reason::undecided ? 1 : 0;
  state.counters["s/step"] = benchmark::Counter(
      static_cast<double>(state.range(2)),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
void lost(benchmark::internal::Benchmark* b) {
  b->ArgNames({"case", "gpus", "budget", "explains"})->Unit(benchmark::kMicrosecond);
  for (const std::int64_t gpus : {1'024, 102'400, 1'024'000})
    for (std::int64_t i = 0; i < std::ssize(lost_gangs); ++i)
      for (const std::int64_t budget : {10'000, 200'000})
        for (const std::int64_t explains : {0, 1}) b->Args({i, gpus, budget, explains});
}

void filters(benchmark::internal::Benchmark* b) {
  for (const std::int64_t count : {1, 30, 40, 1'000}) b->Args({10'240, count});
  for (const std::int64_t count : {1, 30, 40}) b->Args({102'400, count});
}
void sizes(benchmark::internal::Benchmark* b) {
  for (const std::int64_t gpus : {1'024, 10'240, 102'400, 1'024'000}) b->Arg(gpus);
}

}  // namespace

BENCHMARK(divisible)->Name("gang_scheduler/divisible")->Apply(sizes);
BENCHMARK(mixed)->Name("gang_scheduler/mixed")->Apply(sizes);
BENCHMARK(required_rack)->Name("gang_scheduler/required_rack")->Apply(sizes);
BENCHMARK(mixed_rack)->Name("gang_scheduler/mixed_required_rack")->Apply(sizes);
BENCHMARK(label)->Name("gang_scheduler/label")->Apply(sizes);
BENCHMARK(listed)->Name("gang_scheduler/listed_nodes")->Apply(sizes);
BENCHMARK(cpu)->Name("gang_scheduler/cpu")->Apply(sizes);
BENCHMARK(start_and_end)->Name("gang_scheduler/start_and_end")->Apply(sizes);
BENCHMARK(join_and_leave)->Name("gang_scheduler/join_and_leave")->Apply(sizes);
BENCHMARK(join_leave_and_propose)->Name("gang_scheduler/join_leave_and_propose")->Apply(sizes);
BENCHMARK(random_join_and_leave)->Name("gang_scheduler/random_join_and_leave")->Apply(sizes);
BENCHMARK(bad_nodes)->Name("gang_scheduler/bad_nodes")->Apply(sizes);
BENCHMARK(grow)->Name("gang_scheduler/grow")->Apply(sizes)->Unit(benchmark::kMillisecond);
BENCHMARK(waits)->Name("gang_scheduler/waits")->Apply(sizes);
BENCHMARK(victims_in_a_rack)->Name("gang_scheduler/victims_in_a_rack")->Apply(sizes);
BENCHMARK(victims_after_changes)->Name("gang_scheduler/victims_after_changes")->Apply(sizes);
// At 573,440 GPUs about 20,000 gangs run; of small gangs as many at 102,400 GPUs.
BENCHMARK(victims_in_slices<gang_sizes::large>)
    ->Name("gang_scheduler/victims_in_slices")
    ->Arg(10'240)
    ->Arg(102'400)
    ->Arg(573'440);
BENCHMARK(victims_anywhere<gang_sizes::large>)
    ->Name("gang_scheduler/victims_anywhere")
    ->Arg(10'240)
    ->Arg(102'400)
    ->Arg(573'440);
BENCHMARK(victims_in_slices<gang_sizes::small>)
    ->Name("gang_scheduler/small_victims_in_slices")
    ->Arg(102'400);
BENCHMARK(victims_anywhere<gang_sizes::small>)
    ->Name("gang_scheduler/small_victims_anywhere")
    ->Arg(102'400);
BENCHMARK(filters_in_turn<false>)->Name("gang_scheduler/filters_in_turn")->Apply(filters);
BENCHMARK(filters_in_turn<true>)->Name("gang_scheduler/filters_and_joins")->Apply(filters);
BENCHMARK(end_of_victims)
    ->Name("gang_scheduler/end_of_victims")
    ->Arg(1'280)
    ->Arg(12'800)
    ->Arg(128'000)
    ->Iterations(3)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(memory)->Name("gang_scheduler/memory")->Apply(hard_memory);
BENCHMARK(few_steps)->Name("gang_scheduler/few_steps")->Apply(hard);
BENCHMARK(few_steps_explained)->Name("gang_scheduler/few_steps_explained")->Apply(hard_explained);
BENCHMARK(many_kinds_explained)
    ->Name("gang_scheduler/many_kinds_explained")
    ->Apply(kinds_explained);
BENCHMARK(few_steps_of_replacement)->Name("gang_scheduler/few_steps_of_replacement")->Apply(lost);
