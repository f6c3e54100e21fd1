// apiary/benchmarks/hived_bench.cpp - decisions of HiveD on recorded and synthetic loads, beside a
// pointer tree whose nodes are sorted for each request; dynamic beside static binding, racks beside
// nodes.
// SPDX-License-Identifier: MIT
#include "benchmarks/hived_load.h"
#include "tests/support/naive_binding.h"
#include <apiary/alloc/buddy_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/constraints.h>
#include <apiary/hived/detail/node_choice.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/hived.h>
#include <apiary/metric/buddy_fragmentation.h>
#ifdef APIARY_HAS_YAML
#include "examples/programs/hived_yaml.h"
#endif

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary_bench;

namespace {

std::uint64_t fold(std::uint64_t hash, std::uint64_t word) {
  return (hash ^ word) * 0x100000001b3U;
}

struct measured {
  durations first;   // the first decision of a gang: propose
  durations steady;  // of these, after the cluster has been filled
  durations bound;   // all propose and commit of a gang that was bound in the end
  std::array<std::array<std::uint32_t, 3>, 3> outcomes{};  // [expected][ours]
  std::uint64_t checksum = 0xcbf29ce484222325U;
  std::size_t used_bytes = 0;  // of cells, by memory_bytes()
};

const auto ignore_plans = [](const hived&, const gang_request&, const gang_plan&) {};

// Runs a load; a gang to be preempted ends as soon as it is. Calls observe(scheduler, request,
// plan) before a plan is committed. Gangs may go to `suggested` nodes only; null: to all.
template <class Observe>
void run(hived& h, const hived_load& load, measured& m, Observe&& observe,
         const summary_bitset* suggested = nullptr) {
  std::vector<bool> live(load.gangs, false);
  for (durations* const d : {&m.first, &m.steady, &m.bound}) d->begin_run();
  for (std::size_t i = 0; i < load.events.size(); ++i) {
    const gang_event& e = load.events[i];
    if (e.what == gang_event::kind::ends) {
      if (live[e.gang]) APIARY_VERIFY(h.finish(job_id(e.gang)).ok());
      live[e.gang] = false;
      continue;
    }
    gang_request r = request_of(e);
    r.suggested = suggested;
    const stopwatch deciding;
    absl::StatusOr<gang_plan> plan = h.propose(r);
    const double decided = deciding.us();
    m.first.add(decided);
    if (i >= load.steady) m.steady.add(decided);
    ++m.outcomes[static_cast<std::size_t>(e.expected)][static_cast<std::size_t>(plan->result)];
    m.checksum = fold(m.checksum, static_cast<std::uint64_t>(plan->result));
    if (plan->result == plan_result::wait) continue;
    observe(std::as_const(h), r, *plan);
    const stopwatch binding;
    APIARY_VERIFY(h.commit(*plan).ok());
    double bound = decided + binding.us();
    if (plan->result == plan_result::preempt) {
      for (const job_id victim : plan->victims) {
        APIARY_VERIFY(h.finish(victim).ok());
        live[victim.value] = false;
      }
      const stopwatch again;
      plan = h.propose(r);
      APIARY_VERIFY(plan->result == plan_result::bind && h.commit(*plan).ok());
      bound += again.us();
    }
    m.bound.add(bound);
    live[e.gang] = true;
    for (const hived_placement& t : plan->tasks) {
      m.checksum = fold(m.checksum, (std::uint64_t{t.node.value} << 32) ^ t.leaves);
    }
  }
  m.checksum = fold(m.checksum, h.hash());
  m.used_bytes = h.memory_bytes();
}

void report(benchmark::State& state, measured& m, const hived_load& load) {
  auto& c = state.counters;
  c["first_mean_us"] = m.first.mean();
  c["first_p50_us"] = m.first.quantile(0.5);
  c["first_p99_us"] = m.first.quantile(0.99);
  c["first_steady_us"] = m.steady.mean();
  c["bound_mean_us"] = m.bound.mean();
  c["bound_p99_us"] = m.bound.quantile(0.99);
  c["gpus"] = load.gpus;
  const auto runs = static_cast<double>(state.iterations());
  std::uint32_t decisions = 0;
  std::uint32_t as_expected = 0;
  std::array<std::uint32_t, 3> ours{};
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t k = 0; k < 3; ++k) {
      decisions += m.outcomes[i][k];
      ours[k] += m.outcomes[i][k];
      as_expected += i == k ? m.outcomes[i][k] : 0;
    }
  }
  c["decisions"] = decisions / runs;
  c["bind"] = ours[0] / runs;
  c["preempt"] = ours[1] / runs;
  c["wait"] = ours[2] / runs;
  c["as_expected"] = as_expected / runs;
  c["bind_not_wait"] = (m.outcomes[2][0] + m.outcomes[2][1]) / runs;
  c["wait_not_bind"] = (m.outcomes[0][2] + m.outcomes[1][2]) / runs;
}

// The whole load from an empty cluster in each iteration; building it is a counter of its own.
void run_load(benchmark::State& state, const hived_load& load,
              const summary_bitset* suggested = nullptr) {
  measured all;
  durations create;
  create.begin_run();
  std::uint64_t sum = 0;
  std::size_t bytes = 0;
  std::size_t empty_bytes = 0;
  for (auto _ : state) {
    std::optional<hived> h;
    const std::size_t before = heap_bytes();
    const stopwatch creating;
    h.emplace(*hived::create(load.config));
    create.add(creating.us() / 1000);
    empty_bytes = heap_bytes() - before;
    const stopwatch running;
    all.checksum = 0xcbf29ce484222325U;
    run(*h, load, all, ignore_plans, suggested);
    state.SetIterationTime(running.us() / 1e6);
    if (sum != 0 && sum != all.checksum)
      state.SkipWithError("other decisions than in the run before");
    sum = all.checksum;
    const std::size_t full = heap_bytes();
    h.reset();
    bytes = full - heap_bytes();
  }
  report(state, all, load);
  state.counters["create_ms"] = create.quantile(0.5);
  state.counters["heap_B/gpu"] = static_cast<double>(bytes) / load.gpus;
  state.counters["empty_B/gpu"] = static_cast<double>(empty_bytes) / load.gpus;
  state.counters["cells_B/gpu"] = static_cast<double>(all.used_bytes) / load.gpus;
}

// 8 racks of 1,024 nodes of 8 GPUs; 10,000 gangs of 1, 2, 4 or 8 GPUs of a node, or 2, 4, 8 or 16
// nodes, all equally frequent, guaranteed. Four tenants own a rack each, four 900 nodes each.
void paper(benchmark::State& state) {
  hived_load load;
  load.gpus = 65536;
  load.config.cell_types = {{"PAIR", "GPU", 2, false},
                            {"SOCKET", "PAIR", 2, false},
                            {"NODE", "SOCKET", 2, true},
                            {"RACK", "NODE", 1024, false}};
  for (std::uint32_t r = 0; r < 8; ++r) {
    physical_cell_config& rack = load.config.physical_cells.emplace_back();
    rack.type = "RACK";
    for (std::uint32_t n = 0; n < 1024; ++n)
      rack.children.emplace_back().address = "n" + std::to_string(r * 1024 + n);
  }
  load_shape shape;
  for (std::uint32_t t = 0; t < 8; ++t) {
    virtual_cluster_config& tenant = load.config.virtual_clusters.emplace_back();
    tenant.name = "VC" + std::to_string(t);
    tenant.cells.push_back(t < 4 ? virtual_cell_config{"RACK", 1}
                                 : virtual_cell_config{"RACK.NODE", 900});
    shape.quotas.push_back(t < 4 ? 8192 : 7200);
  }
  shape.classes = {{1, 1, 13}, {1, 2, 13}, {1, 4, 12}, {1, 8, 12},
                   {2, 8, 13}, {4, 8, 13}, {8, 8, 12}, {16, 8, 12}};
  shape.opportunistic_percent = 0;
  shape.min_arrivals = 10000;
  generate(shape, load);
  run_load(state, load);
}
BENCHMARK(paper)->UseManualTime()->Unit(benchmark::kMillisecond);

void synthetic(benchmark::State& state) {
  run_load(state, synthetic_load(static_cast<std::uint32_t>(state.range(0)),
                                 quota_kind::rows_and_racks, {.steady_arrivals = 3000}));
}
BENCHMARK(synthetic)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Arg(1000)
    ->Arg(10000)
    ->Arg(100000)
    ->Arg(1000000);

// The same load where the host suggests all nodes but one in so many.
void suggested(benchmark::State& state) {
  const hived_load load = synthetic_load(static_cast<std::uint32_t>(state.range(0)),
                                         quota_kind::rows_and_racks, {.steady_arrivals = 1000});
  summary_bitset nodes(load.gpus / 8, true);
  for (std::uint32_t n = 5; n < nodes.size(); n += static_cast<std::uint32_t>(state.range(1)))
    nodes.assign(n, false);
  run_load(state, load, &nodes);
}
BENCHMARK(suggested)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->ArgNames({"GPUs", "1_in"})
    ->ArgsProduct({{1000, 10000, 100000}, {1000, 10, 2}});

// Racks of four nodes of eight GPUs, and one tenant.
hived_config racks_of_one(std::uint32_t racks, std::vector<virtual_cell_config> cells) {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 8, true}, {"RACK", "NODE", 4, false}};
  for (std::uint32_t r = 0; r < racks; ++r) {
    physical_cell_config& rack = config.physical_cells.emplace_back();
    rack.type = "RACK";
    for (std::uint32_t n = 0; n < 4; ++n)
      rack.children.emplace_back().address = std::to_string(r * 4 + n);
  }
  config.virtual_clusters = {{.name = "t", .cells = std::move(cells)}};
  return config;
}

// A gang as large as the cluster, guaranteed or opportunistic: nanoseconds for each GPU.
void whole_cluster(benchmark::State& state) {
  const auto racks = static_cast<std::uint32_t>(state.range(0) / 32);
  hived h = *hived::create(racks_of_one(racks, {{"RACK", racks}}));
  gang_request r;
  r.job = job_id(0);
  r.tenant = tenant_id(0);
  r.priority = state.range(1) != 0 ? gang_request::opportunistic_priority : 0;
  r.groups = {{racks * 4, 8}};
  durations proposing, committing, finishing;
  for (auto _ : state) {
    for (durations* const d : {&proposing, &committing, &finishing}) d->begin_run();
    const stopwatch first;
    const absl::StatusOr<gang_plan> plan = h.propose(r);
    proposing.add(first.us());
    const stopwatch second;
    APIARY_VERIFY(h.commit(*plan).ok());
    committing.add(second.us());
    const stopwatch third;
    APIARY_VERIFY(h.finish(r.job).ok());
    finishing.add(third.us());
  }
  const double scale = 1000.0 / (racks * 32);
  state.counters["propose_ns"] = proposing.quantile(0.5) * scale;
  state.counters["commit_ns"] = committing.quantile(0.5) * scale;
  state.counters["finish_ns"] = finishing.quantile(0.5) * scale;
}
BENCHMARK(whole_cluster)
    ->Unit(benchmark::kMillisecond)
    ->ArgNames({"GPUs", "guest"})
    ->ArgsProduct({{1024, 10240, 100352, 1000448}, {0, 1}});

// Random gangs on two racks of four nodes of eight GPUs, full of opportunistic gangs: how many gangs
// end, and how many must end, found by trying every binding of the same virtual cells.
void victims(benchmark::State& state) {
  hived_config config;
  config.cell_types = {{"PAIR", "GPU", 2, false},
                       {"QUAD", "PAIR", 2, false},
                       {"NODE", "QUAD", 2, true},
                       {"RACK", "NODE", 4, false}};
  for (int rack = 0; rack < 2; ++rack) {
    physical_cell_config& cell = config.physical_cells.emplace_back();
    cell.type = "RACK";
    for (int n = 0; n < 4; ++n) cell.children.emplace_back().address = std::to_string(rack * 4 + n);
  }
  config.virtual_clusters = {
      {.name = "a", .cells = {{"RACK", 1}, {"RACK.NODE.QUAD", 2}}},
      {.name = "b", .cells = {{"RACK.NODE", 1}, {"RACK.NODE.QUAD.PAIR", 3}}}};
  std::uint64_t preemptions = 0, own = 0, guests = 0, least = 0, needless = 0;
  for (auto _ : state) {
    preemptions = own = guests = least = needless = 0;
    hived h = *hived::create(config);
    rng random(1);
    std::vector<job_id> jobs;
    for (std::uint32_t next = 0; preemptions < 2000; ++next) {
      if (random.uniform(4) == 0 && !jobs.empty()) {
        job_id& job = jobs[random.uniform(static_cast<std::uint32_t>(jobs.size()))];
        if (h.find(job) != nullptr) APIARY_VERIFY(h.finish(job).ok());
        job = jobs.back();
        jobs.pop_back();
        continue;
      }
      gang_request r;
      r.job = job_id(next);
      r.tenant = tenant_id(random.uniform(2));
      r.priority = static_cast<std::int32_t>(random.uniform(4)) - 1;
      if (random.uniform(3) == 0) r.priority = gang_request::opportunistic_priority;
      r.groups = {{1 + random.uniform(3), 1U << random.uniform(r.priority < 0 ? 3 : 4)}};
      absl::StatusOr<gang_plan> plan = h.propose(r);
      if (plan->result == plan_result::wait) continue;
      APIARY_VERIFY(h.commit(*plan).ok());
      if (plan->result == plan_result::preempt) {
        const apiary_test::naive_binding best(h, *h.find(r.job));
        ++preemptions;
        own += best.own();
        guests += best.guests();
        least += best.least();
        needless += best.own() + best.least() == 0 ? 1U : 0U;
        for (const job_id v : plan->victims) APIARY_VERIFY(h.finish(v).ok());
        plan = h.propose(r);
        APIARY_VERIFY(plan->result == plan_result::bind && h.commit(*plan).ok());
      }
      jobs.push_back(r.job);
    }
  }
  state.counters["preemptions"] = static_cast<double>(preemptions);
  state.counters["own_victims"] = static_cast<double>(own);
  state.counters["guest_victims"] = static_cast<double>(guests);
  state.counters["least_guests"] = static_cast<double>(least);
  state.counters["needless"] = static_cast<double>(needless);
}
BENCHMARK(victims)->Unit(benchmark::kMillisecond)->Iterations(1);

// One tenant's cluster full of gangs of a node (or of two gangs that share it, 0), and one of a node
// and higher priority: its first decision, for which one of them must end.
void preempting(benchmark::State& state) {
  const auto racks = static_cast<std::uint32_t>(state.range(0) / 32);
  hived h = *hived::create(racks_of_one(racks, {{"RACK", racks}}));
  std::uint32_t next = 0;
  const auto request = [&](std::int32_t priority, std::uint32_t tasks) {
    gang_request r;
    r.job = job_id(next++);
    r.tenant = tenant_id(0);
    r.priority = priority;
    r.groups = {{tasks, 8}};
    return r;
  };
  for (std::uint32_t left = racks * 4; left > 0;) {
    const std::uint32_t tasks = state.range(1) != 0 ? 1 : std::max(1U, left - 1);
    APIARY_VERIFY(h.commit(*h.propose(request(static_cast<std::int32_t>(next % 3), tasks))).ok());
    left -= tasks;
  }
  const gang_request r = request(5, 1);
  std::uint64_t sum = 0;
  for (auto _ : state) {
    const absl::StatusOr<gang_plan> plan = h.propose(r);
    if (plan->victims.size() != 1) state.SkipWithError("one victim was enough");
    sum = fold(sum, plan->victims[0].value);
  }
  benchmark::DoNotOptimize(sum);
}
BENCHMARK(preempting)
    ->Unit(benchmark::kMicrosecond)
    ->ArgNames({"GPUs", "gangs_of_a_node"})
    ->ArgsProduct({{1024, 10240, 100352}, {0, 1}});

// Every node has an opportunistic gang, of 8 GPUs, or some (`mixed`) of 5 to 7; and a gang comes for
// a whole cell of its tenant, a node or a rack: its first decision, which takes the cell with the
// fewest guests.
void guests_everywhere(benchmark::State& state) {
  const auto racks = static_cast<std::uint32_t>(state.range(0) / 32);
  const bool mixed = state.range(1) != 0;
  const std::uint32_t nodes = state.range(2) != 0 ? 4 : 1;  // of the cell
  const virtual_cell_config cell{nodes == 4 ? "RACK" : "RACK.NODE", 4};
  hived h = *hived::create(racks_of_one(racks, {cell}));
  const auto gang = [&](std::uint32_t job, std::int32_t priority, task_group group) {
    gang_request r;
    r.job = job_id(job);
    r.tenant = tenant_id(0);
    r.priority = priority;
    r.groups = {group};
    return r;
  };
  std::vector<std::uint32_t> guests(racks * 4);  // of each gang
  std::vector<std::uint32_t> in_cell(racks * 4 / nodes, 0);
  for (std::uint32_t job = 0; job < racks * 4; ++job) {
    guests[job] = mixed && job % 97 == 96 ? 5 + job / 97 % 3 : 8;
    const gang_plan plan = *h.propose(gang(job, -1, {1, guests[job]}));
    APIARY_VERIFY(plan.result == plan_result::bind && h.commit(plan).ok());
    in_cell[plan.tasks[0].node.value / nodes] += guests[job];
  }
  const std::uint32_t least = *std::min_element(in_cell.begin(), in_cell.end());
  const gang_request r = gang(racks * 4, 0, {nodes, 8});
  std::uint64_t sum = 0;
  for (auto _ : state) {
    const absl::StatusOr<gang_plan> plan = h.propose(r);
    std::uint32_t ended = 0;
    for (const job_id victim : plan->victims) ended += guests[victim.value];
    if (ended != least) state.SkipWithError("other cells have fewer guests");
    sum = fold(sum, plan->victims[0].value);
  }
  benchmark::DoNotOptimize(sum);
}
BENCHMARK(guests_everywhere)
    ->Unit(benchmark::kMicrosecond)
    ->ArgNames({"GPUs", "mixed", "rack"})
    ->ArgsProduct({{1024, 10240, 100352}, {0, 1}, {0, 1}});

// A restart while a gang of random tenant and priority runs on every node. Each of four tenants owns
// whole racks, so that gangs on racks of other tenants get no cells. The gangs are recovered in random
// order with the levels of their cells (way 0) or without (1), or a snapshot is restored (2).
void restart(benchmark::State& state) {
  hived_config config = zones(static_cast<std::uint32_t>(state.range(0)) / 1024);
  const auto racks = static_cast<std::uint32_t>(state.range(0)) / 32;
  for (const char* tenant : {"a", "b", "c", "d"})
    config.virtual_clusters.push_back({.name = tenant, .cells = {{"ZONE.ROW.RACK", racks / 4}}});
  const hived empty = *hived::create(config);
  const auto way = state.range(1);
  rng random(7);
  std::vector<std::uint32_t> nodes(empty.layout().num_nodes());
  std::iota(nodes.begin(), nodes.end(), 0U);
  random.shuffle(nodes);
  std::vector<gang_request> gangs;
  for (const std::uint32_t n : nodes)
    gangs.push_back({.job = job_id(n),
                     .tenant = tenant_id(random.uniform(4)),
                     .priority = static_cast<std::int32_t>(random.uniform(10)),
                     .groups = {{1, 8}}});
  std::vector<level_t> levels;
  if (way != 1) levels.assign(8, 4);
  const auto recover_all = [&](hived& h) {
    std::uint32_t own = 0;
    for (const gang_request& r : gangs) {
      const hived_placement at{node_id(r.job.value), 0xff};
      const absl::StatusOr<bool> recovered = h.recover(r, {&at, 1}, levels);
      APIARY_VERIFY(recovered.ok());
      own += *recovered ? 1U : 0U;
    }
    return own;
  };
  hived before = empty;
  const std::uint32_t own = recover_all(before);
  const std::string stored = before.snapshot();
  for (auto _ : state) {
    state.PauseTiming();
    auto h = std::make_unique<hived>(empty);
    state.ResumeTiming();
    if (way == 2) {
      APIARY_VERIFY(h->restore(stored).ok());
    } else {
      recover_all(*h);
    }
    state.PauseTiming();
    APIARY_VERIFY(h->hash() == before.hash());
    h.reset();
    state.ResumeTiming();
  }
  state.counters["gangs"] = static_cast<double>(gangs.size());
  state.counters["own_cells"] = own;
  state.counters["snapshot_bytes"] = static_cast<double>(stored.size());
}
BENCHMARK(restart)
    ->Unit(benchmark::kMillisecond)
    ->ArgNames({"GPUs", "way"})
    ->ArgsProduct({{1024, 10240, 100352, 1000448}, {0, 1, 2}});

// After that load, with one bad leaf in so many nodes of eight (0: none), each tenant asks for one
// whole node more than it has free: how long it takes to be told why it waits.
void waiting(benchmark::State& state) {
  const hived_load load = synthetic_load(static_cast<std::uint32_t>(state.range(0)),
                                         quota_kind::rows_and_racks, {.steady_arrivals = 1000});
  hived h = *hived::create(load.config);
  const auto step = static_cast<std::uint32_t>(state.range(1));
  for (std::uint32_t n = 7; step > 0 && n < h.layout().num_nodes(); n += step)
    APIARY_VERIFY(h.mark_bad(node_id(n), n / step % 8).ok());
  measured filled;
  run(h, load, filled, ignore_plans);
  std::vector<gang_request> asked;
  for (std::uint32_t t = 0; t < h.layout().tenants.size(); ++t) {
    const vc_chain_id c = h.cells().cluster_of(tenant_id(t), 0);
    if (!c.valid()) continue;
    gang_request& r = asked.emplace_back();
    r.job = job_id(load.gangs + t);
    r.tenant = tenant_id(t);
    r.groups = {{h.cells().cluster(c).free_nodes().counts()[8] + 1, 8}};
  }
  std::uint64_t sum = 0;
  for (auto _ : state) {
    for (const gang_request& r : asked) {
      const absl::StatusOr<gang_plan> plan = h.propose(r);
      if (plan->result != plan_result::wait) state.SkipWithError("a gang got more than there is");
      sum = fold(sum, static_cast<std::uint64_t>(plan->wait.reason));
    }
  }
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(asked.size()));
  state.counters["s/wait"] = benchmark::Counter(
      static_cast<double>(asked.size()),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(waiting)
    ->Unit(benchmark::kMicrosecond)
    ->ArgNames({"GPUs", "bad_1_in"})
    ->ArgsProduct({{1000, 10000, 100000, 1000000}, {0, 1000000, 200}});

// After that load each tenant asks for a gang of whole nodes under one kind of rule, or under none;
// those that wait count where no place is expected.
struct rule_question {
  const char* name = "";
  task_group group{};
  request_constraints constraints{};
  std::int32_t priority = 0;
  bool waits = false;
};
std::vector<rule_question> rule_questions() {
  constexpr level_t rack = 4;
  const auto of_member = [](request_constraints::of_group m) {
    request_constraints constraints;
    constraints.groups.push_back(std::move(m));
    return constraints;
  };
  return {{"2 nodes", {2, 8}, {}},
          {"2 nodes, one rack", {2, 8}, {.required = rack}},
          {"2 nodes, a rack if it can be", {2, 8}, {.preferred = rack}},
          {"8 nodes", {8, 8}, {}},
          {"8 nodes, pairs in a rack", {8, 8}, of_member({.slices = {{rack, 2}}})},
          {"8 nodes, one a rack", {8, 8}, of_member({.spread = {{rack, 1}}})},
          {"2 nodes of a guest", {2, 8}, {}, -1},
          {"2 nodes of a guest, one rack", {2, 8}, {.required = rack}, -1},
          {"5 nodes, one rack of 4", {5, 8}, {.required = rack}, 0, true}};
}
void constrained(benchmark::State& state) {
  const rule_question asked = rule_questions()[static_cast<std::size_t>(state.range(1))];
  const hived_load load = synthetic_load(static_cast<std::uint32_t>(state.range(0)),
                                         quota_kind::rows_and_racks, {.steady_arrivals = 1000});
  hived h = *hived::create(load.config);
  measured filled;
  run(h, load, filled, ignore_plans);
  std::vector<gang_request> answered;
  std::uint32_t tenants = 0;
  for (std::uint32_t t = 0; t < h.layout().tenants.size(); ++t) {
    if (!h.cells().cluster_of(tenant_id(t), 0).valid()) continue;
    ++tenants;
    gang_request r;
    r.job = job_id(load.gangs + t);
    r.tenant = tenant_id(t);
    r.priority = asked.priority;
    r.groups = {asked.group};
    r.constraints = asked.constraints;
    if ((h.propose(r)->result == plan_result::wait) == asked.waits) answered.push_back(r);
  }
  std::uint64_t sum = 0;
  for (auto _ : state) {
    for (const gang_request& r : answered)
      sum = fold(sum, static_cast<std::uint64_t>(h.propose(r)->result));
  }
  benchmark::DoNotOptimize(sum);
  state.SetLabel(asked.name);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(answered.size()));
  state.counters["tenants"] = tenants;
  state.counters["answered"] = static_cast<double>(answered.size());
  state.counters["s/decision"] = benchmark::Counter(
      static_cast<double>(answered.size()),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(constrained)
    ->Unit(benchmark::kMicrosecond)
    ->ArgNames({"GPUs", "rule"})
    ->ArgsProduct({{10000, 100000}, {0, 1, 2, 3, 4, 5, 6, 7, 8}});

// The operations that cost most, after that load (`worst_*`): microseconds on average, and of the
// slowest request.
void report_worst(benchmark::State& state, const durations& each) {
  state.counters["mean_us"] = each.mean();
  state.counters["slowest_us"] = each.quantile(1);
}
hived filled_cluster(const hived_load& load) {
  hived h = *hived::create(load.config);
  measured filled;
  run(h, load, filled, ignore_plans);
  return h;
}
// Proposes gangs_of(virtual cluster) for each tenant, again and again.
template <class GangsOf>
void propose_worst(benchmark::State& state, hived& h, std::uint32_t first_job,
                   const GangsOf& gangs_of) {
  std::vector<gang_request> asked;
  for (std::uint32_t t = 0; t < h.layout().tenants.size(); ++t) {
    const vc_chain_id c = h.cells().cluster_of(tenant_id(t), 0);
    if (!c.valid()) continue;
    for (const gang_request& r : gangs_of(h.cells().cluster(c))) {
      asked.push_back(r);
      asked.back().job = job_id(first_job + static_cast<std::uint32_t>(asked.size()));
      asked.back().tenant = tenant_id(t);
    }
  }
  durations each;
  std::array<std::uint32_t, 3> results{};
  std::uint32_t undecided = 0;
  for (auto _ : state) {
    each.begin_run();
    results = {};
    undecided = 0;
    for (const gang_request& r : asked) {
      const stopwatch deciding;
      const absl::StatusOr<gang_plan> plan = h.propose(r);
      each.add(deciding.us());
      ++results[static_cast<std::size_t>(plan->result)];
      if (plan->result == plan_result::wait && plan->wait.reason == wait_reason::undecided)
        ++undecided;
    }
  }
  report_worst(state, each);
  state.counters["bind"] = results[0];
  state.counters["preempt"] = results[1];
  state.counters["wait"] = results[2];
  state.counters["undecided"] = undecided;
}

// A leaf of every third node is bad; gangs of 1, 4 and 16 nodes and of all or two thirds of the nodes
// that the tenant has free, of the priority of those that run or of a higher one.
void worst_bad(benchmark::State& state) {
  const hived_load load = synthetic_load(static_cast<std::uint32_t>(state.range(0)),
                                         quota_kind::rows_and_racks, {.steady_arrivals = 1000});
  hived h = filled_cluster(load);
  for (std::uint32_t n = 0; n < h.layout().num_nodes(); n += 3)
    APIARY_VERIFY(h.mark_bad(node_id(n), n / 3 % 8).ok());
  propose_worst(state, h, load.gangs, [](const detail::virtual_cluster& cluster) {
    const std::uint32_t free = cluster.free_nodes().counts()[8];
    std::vector<gang_request> gangs;
    for (const std::int32_t priority : {0, 1})
      for (const std::uint32_t nodes :
           {1U, 4U, 16U, std::max(1U, free * 2 / 3), std::max(1U, free)})
        gangs.push_back({.priority = priority, .groups = {{nodes, 8}}});
    return gangs;
  });
}
// A gang of five task groups, each with slices or anti-affinity.
void worst_constraints(benchmark::State& state) {
  const hived_load load = synthetic_load(static_cast<std::uint32_t>(state.range(0)),
                                         quota_kind::rows_and_racks, {.steady_arrivals = 1000});
  hived h = filled_cluster(load);
  constexpr level_t node = 3, rack = 4;
  gang_request r{.groups = {{4, 8}, {4, 8}, {2, 4}, {8, 1}, {2, 8}}};
  request_constraints constraints;
  constraints.groups.resize(5);
  constraints.groups[0].slices = {{rack, 2}};
  constraints.groups[1].spread = {{rack, 1}};
  constraints.groups[2].slices = {{node, 2}};
  constraints.groups[3].spread = {{node, 2}};
  constraints.groups[4].spread = {{rack, 2}};
  r.constraints = constraints;
  gang_request preempts = r;
  preempts.priority = 1;
  const std::vector<gang_request> both{r, preempts};
  propose_worst(state, h, load.gangs, [&](const detail::virtual_cluster&) { return both; });
}
// The audit.
void worst_audit(benchmark::State& state) {
  const hived_load load = synthetic_load(static_cast<std::uint32_t>(state.range(0)),
                                         quota_kind::rows_and_racks, {.steady_arrivals = 1000});
  const hived h = filled_cluster(load);
  for (auto _ : state) {
    if (!audit(h).empty()) state.SkipWithError("the audit found a violation");
  }
}
// A change to the same configuration.
void worst_reconfigure(benchmark::State& state) {
  const hived_load load = synthetic_load(static_cast<std::uint32_t>(state.range(0)),
                                         quota_kind::rows_and_racks, {.steady_arrivals = 1000});
  hived h = filled_cluster(load);
  for (auto _ : state) {
    const absl::StatusOr<hived_reconfiguration> report = h.reconfigure(load.config);
    if (!report->downgraded.empty()) state.SkipWithError("a gang lost its cells");
  }
}
BENCHMARK(worst_bad)
    ->Unit(benchmark::kMillisecond)
    ->Arg(1000)
    ->Arg(10000)
    ->Arg(100000)
    ->Arg(1000000);
BENCHMARK(worst_constraints)
    ->Unit(benchmark::kMillisecond)
    ->Arg(1000)
    ->Arg(10000)
    ->Arg(100000)
    ->Arg(1000000);
BENCHMARK(worst_audit)
    ->Unit(benchmark::kMillisecond)
    ->Arg(1000)
    ->Arg(10000)
    ->Arg(100000)
    ->Arg(1000000);
BENCHMARK(worst_reconfigure)
    ->Unit(benchmark::kMillisecond)
    ->Arg(1000)
    ->Arg(10000)
    ->Arg(100000)
    ->Arg(1000000);

// The recorded load for so many nodes, and why there is none.
std::pair<const hived_load*, std::string> recorded_load(std::int64_t nodes) {
  static std::map<std::int64_t, hived_load> all;
  const std::string file =
      std::string(APIARY_DATA_DIR) + "/hived/workload_" + std::to_string(nodes) + ".txt";
  if (!std::filesystem::exists(file)) return {nullptr, "skipped: there is no " + file};
#ifdef APIARY_HAS_YAML
  const auto [at, is_new] = all.try_emplace(nodes);
  hived_load& load = at->second;
  if (!is_new) return {&load, ""};
  const std::optional<std::string> config = read_recorded(file, load);
  if (!config) return {nullptr, "skipped: no CONFIG in " + file};
  load.config = example::parse_hived_yaml(*config).value();
  load.gpus = static_cast<std::uint32_t>(nodes * 8);
  return {&load, ""};
#else
  return {nullptr, "skipped: the configuration is read with yaml-cpp, which is not here"};
#endif
}
void skip(benchmark::State& state, const std::string& why) {
  for (auto _ : state) state.SetIterationTime(1);
  state.SetLabel(why);
}

void recorded(benchmark::State& state) {
  const auto [load, why] = recorded_load(state.range(0));
  if (load == nullptr) return skip(state, why);
  run_load(state, *load);
}
BENCHMARK(recorded)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Arg(128)
    ->Arg(1024)
    ->Arg(4096)
    ->Arg(12544);

// In how few racks n whole nodes could be, given how many each rack has.
std::uint32_t fewest_racks(std::vector<std::uint32_t> whole, std::uint32_t n) {
  std::sort(whole.begin(), whole.end(), std::greater<>());
  std::uint32_t racks = 0;
  while (n > 0) n -= std::min(n, whole[racks++]);
  return racks;
}

// Racks that gangs of 8 and 16 whole nodes span, and the fewest possible at that moment: of an
// opportunistic gang counted over whole idle nodes; of a guaranteed one over its tenant's whole
// free nodes by virtual rack, each of which is one physical rack, and (`any`) over the whole nodes
// that no guaranteed gang uses, whoever owns them.
void racks(benchmark::State& state) {
  const auto [load, why] = recorded_load(1024);
  if (load == nullptr) return skip(state, why);
  struct spread {
    double gangs = 0;
    double ours = 0;
    double best = 0;
    double any = 0;
  };
  std::map<std::string, spread> all;
  const auto observe = [&](const hived& h, const gang_request& r, const gang_plan& plan) {
    const task_group m = r.groups.front();
    if (m.gpus != 8 || m.tasks < 8) return;
    spread& s = all[(r.priority < 0 ? "guest_" : "owner_") + std::to_string(m.tasks) + "x8"];
    std::vector<std::uint32_t> used;
    for (const hived_placement& t : plan.tasks) used.push_back(t.node.value / 4);
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    ++s.gangs;
    s.ours += static_cast<double>(used.size());
    const detail::physical_chain& chain = h.cells().chain(0);
    std::vector<std::uint32_t> idle(chain.num_nodes() / 4, 0);
    std::vector<std::uint32_t> unowned(chain.num_nodes() / 4, 0);
    for (std::uint32_t n = 0; n < chain.num_nodes(); ++n) {
      idle[n / 4] += std::popcount(chain.idle(n)) == 8 ? 1U : 0U;
      unowned[n / 4] +=
          chain.use().used(chain.node_cell(n), detail::physical_chain::guaranteed) == 0 ? 1U : 0U;
    }
    if (r.priority < 0) {
      s.best += fewest_racks(idle, m.tasks);
      s.any += fewest_racks(idle, m.tasks);
      return;
    }
    const detail::virtual_cluster& c = h.cells().cluster(h.cells().cluster_of(r.tenant, 0));
    std::vector<std::uint32_t> free(c.num_nodes() / 4, 0);
    for (std::uint32_t n = 0; n < c.num_nodes(); ++n)
      free[n / 4] += std::popcount(c.free(n)) == 8 ? 1U : 0U;
    s.best += fewest_racks(free, m.tasks);
    s.any += fewest_racks(unowned, m.tasks);
  };
  for (auto _ : state) {
    hived h = *hived::create(load->config);
    measured m;
    all.clear();
    const stopwatch running;
    run(h, *load, m, observe);
    state.SetIterationTime(running.us() / 1e6);
  }
  for (const auto& [name, s] : all) {
    state.counters[name] = s.ours / s.gangs;
    state.counters[name + "_best"] = s.best / s.gangs;
    state.counters[name + "_any"] = s.any / s.gangs;
    if (s.ours > 1.05 * s.best) state.SkipWithError("more racks than needed");
  }
}
BENCHMARK(racks)->UseManualTime()->Unit(benchmark::kMillisecond);

// The rival: cells that point to one another, in each a map of its use by priority; for each gang
// all nodes are sorted and taken in turn, as the open-source scheduler does. One tenant, one size
// of task in a gang, no mapping to physical cells, no preemption: less than is asked of ours.
class sorting_scheduler {
 public:
  explicit sorting_scheduler(std::uint32_t nodes, std::uint32_t gangs) : tasks_of_(gangs) {
    for (std::uint32_t zone = 0; zone * 128 < nodes; ++zone) add(nullptr, 0);
  }

  // Whether the gang was placed.
  bool start(const gang_event& e) {
    struct view {
      cell* node;
      int used;
      int free;
    };
    std::vector<view> views;
    for (cell* node : nodes_)
      views.push_back({node, node->used[e.priority], node->leaves - used_from(*node, e.priority)});
    std::stable_sort(views.begin(), views.end(),
                     [](const view& a, const view& b) { return a.used > b.used; });
    const int size = static_cast<int>(e.leaves);
    std::vector<cell*> where;
    for (view& v : views) {
      for (; where.size() < e.tasks && v.free >= size; v.free -= size) where.push_back(v.node);
      if (where.size() == e.tasks) break;
    }
    if (where.size() < e.tasks) return false;
    for (cell* node : where) {
      std::vector<cell*> leaves;
      cell* in = tightest(node, size, e.priority);
      collect(in, size, e.priority, leaves);
      for (cell* leaf : leaves) {
        for (cell* c = leaf; c != nullptr; c = c->parent) ++c->used[e.priority];
        tasks_of_[e.gang].push_back(leaf);
      }
    }
    return true;
  }
  void end(const gang_event& e) {
    for (cell* leaf : tasks_of_[e.gang])
      for (cell* c = leaf; c != nullptr; c = c->parent) --c->used[e.priority];
    tasks_of_[e.gang].clear();
  }

 private:
  struct cell {
    cell* parent = nullptr;
    int leaves = 0;
    std::map<int, int> used{};  // leaves by priority
    std::vector<std::unique_ptr<cell>> children{};
  };
  static constexpr std::array fan_outs{8, 4, 4, 2, 2, 2};

  int add(cell* parent, std::size_t depth) {
    auto made = std::make_unique<cell>();
    cell* c = made.get();
    c->parent = parent;
    (parent != nullptr ? parent->children : zones_).push_back(std::move(made));
    if (depth == 3) nodes_.push_back(c);
    c->leaves = depth == fan_outs.size() ? 1 : 0;
    for (int i = 0; depth < fan_outs.size() && i < fan_outs[depth]; ++i)
      c->leaves += add(c, depth + 1);
    return c->leaves;
  }
  static int used_from(const cell& c, int priority) {
    int n = 0;
    for (auto at = c.used.lower_bound(priority); at != c.used.end(); ++at) n += at->second;
    return n;
  }
  // The smallest cell with so many free leaves.
  static cell* tightest(cell* c, int size, int priority) {
    cell* best = nullptr;
    for (const auto& child : c->children) {
      if (child->leaves - used_from(*child, priority) < size) continue;
      cell* in = tightest(child.get(), size, priority);
      if (best == nullptr || in->leaves < best->leaves) best = in;
    }
    return best != nullptr ? best : c;
  }
  static void collect(cell* c, int size, int priority, std::vector<cell*>& out) {
    if (static_cast<int>(out.size()) == size) return;
    if (c->children.empty() && used_from(*c, priority) == 0) out.push_back(c);
    for (const auto& child : c->children) collect(child.get(), size, priority, out);
  }

  std::vector<std::unique_ptr<cell>> zones_;
  std::vector<cell*> nodes_;
  std::vector<std::vector<cell*>> tasks_of_;
};

// Guaranteed gangs of one tenant that owns everything.
hived_load one_tenant(std::int64_t gpus) {
  hived_load load;
  load.gpus = static_cast<std::uint32_t>(gpus);
  load.config = zones(load.gpus / 1024);
  load.config.virtual_clusters = {{"VC", {{"ZONE", load.gpus / 1024}}, {}}};
  load_shape shape{.quotas = {load.gpus}, .opportunistic_percent = 0, .load_percent = 70};
  shape.classes = recorded_classes();
  shape.steady_arrivals = 1000;
  generate(shape, load);
  return load;
}
std::map<std::int64_t, std::uint64_t> verdicts;  // of the rival, by GPUs

// Propose and commit together, finish outside.
template <class Scheduler>
void run_beside(benchmark::State& state, const hived_load& load, Scheduler make) {
  durations decisions;
  std::uint64_t sum = 0;
  for (auto _ : state) {
    auto scheduler = make();
    decisions.begin_run();
    std::vector<bool> live(load.gangs, false);
    sum = 0xcbf29ce484222325U;
    double total = 0;
    for (const gang_event& e : load.events) {
      if (e.what == gang_event::kind::ends) {
        if (live[e.gang]) scheduler.end(e);
        continue;
      }
      const stopwatch deciding;
      live[e.gang] = scheduler.start(e);
      const double us = deciding.us();
      decisions.add(us);
      total += us;
      sum = fold(sum, live[e.gang] ? 1 : 0);
    }
    state.SetIterationTime(total / 1e6);
  }
  state.counters["mean_us"] = decisions.mean();
  state.counters["p99_us"] = decisions.quantile(0.99);
  const auto [known, is_new] = verdicts.try_emplace(state.range(0), sum);
  if (!is_new && known->second != sum) state.SkipWithError("other verdicts than the other's");
}
void beside_sorting(benchmark::State& state) {
  const hived_load load = one_tenant(state.range(0));
  run_beside(state, load, [&] { return sorting_scheduler(load.gpus / 8, load.gangs); });
}
BENCHMARK(beside_sorting)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Arg(1024)
    ->Arg(8192)
    ->Arg(32768)
    ->Arg(100352);

class hived_scheduler {
 public:
  explicit hived_scheduler(const hived_config& config) : hived_(*hived::create(config)) {}
  // Whether the gang was placed; the victims have ended.
  bool start(const gang_event& e, std::vector<job_id>* victims = nullptr) {
    const gang_request r = request_of(e);
    gang_plan plan = *hived_.propose(r);
    if (plan.result == plan_result::wait) return false;
    APIARY_VERIFY(hived_.commit(plan).ok());
    if (plan.result == plan_result::bind) return true;
    for (const job_id victim : plan.victims) APIARY_VERIFY(hived_.finish(victim).ok());
    if (victims != nullptr) *victims = plan.victims;
    return hived_.commit(*hived_.propose(r)).ok();
  }
  void end(const gang_event& e) { APIARY_VERIFY(hived_.finish(job_id(e.gang)).ok()); }
  [[nodiscard]] const hived& get() const { return hived_; }

 private:
  hived hived_;
};
void beside_hived(benchmark::State& state) {
  const hived_load load = one_tenant(state.range(0));
  run_beside(state, load, [&] { return hived_scheduler(load.config); });
}
BENCHMARK(beside_hived)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Arg(1024)
    ->Arg(8192)
    ->Arg(32768)
    ->Arg(100352);

// What dynamic binding is compared with: every virtual cell is one physical cell for good. Gangs of
// a tenant are placed in its cells and opportunistic ones anywhere, both as hived_search does.
class static_scheduler {
 public:
  explicit static_scheduler(const hived_load& load)
      : layout_(*hived_layout::create(load.config)),
        chain_(layout_.chains[0].tree, layout_.chains[0].node_level),
        gangs_(load.gangs) {
    const uniform_tree& tree = chain_.tree();
    for (const tenant_layout& tenant : layout_.tenants)
      clusters_.emplace_back(tenant_id(0), 0, tree, chain_.node_level(), tenant.quota[0]);
    buddy_allocator<uniform_tree> free(tree);
    for (level_t l = tree.num_levels(); l-- > 0;) {
      for (detail::virtual_cluster& c : clusters_) {
        for (const cell_id root : c.tree().roots(l)) {
          const cell_id image = *free.allocate(l);
          for (std::uint32_t i = 0; i < tree.leaves_per_cell(l); ++i)
            c.set_image(c.tree().descendants(root, 0)[i], tree.descendants(image, 0)[i]);
        }
      }
    }
    for (level_t l = 0; l <= chain_.node_level(); ++l) sizes_.push_back(tree.leaves_per_cell(l));
  }

  bool start(const gang_event& e, std::vector<job_id>* victims) {
    const task_group group{e.tasks, e.leaves};
    detail::virtual_cluster* const c = e.priority < 0 ? nullptr : &clusters_[e.tenant];
    const std::uint32_t size = chain_.node_leaves();
    classes_.clear();
    for (std::uint32_t n = 1; c != nullptr && n <= size; ++n)
      classes_.push_back({static_cast<detail::node_index::class_t>(n), n});
    for (std::uint32_t opportunistic = size; c == nullptr && opportunistic-- > 0;)
      for (std::uint32_t idle = size - opportunistic; idle > 0; --idle)
        classes_.push_back({chain_.idle_class(false, opportunistic, idle), idle});
    const detail::node_index& index = c != nullptr ? c->free_nodes() : chain_.idle_nodes();
    if (placer_.fit(index, classes_, {&group, 1}).verdict != fit_verdict::fits) return false;
    placer_.choose_nodes(
        index, c != nullptr ? detail::rack_choice::tightest : detail::rack_choice::fullest);
    nodes_.clear();
    for (const std::uint32_t picked : placer_.nodes()) {
      const std::uint32_t n = c != nullptr ? picked : chain_.from_end(picked);
      const std::uint64_t mask = c != nullptr ? c->free(n) : chain_.idle(n);
      nodes_.push_back(
          {mask, mask, c != nullptr ? c->first_leaf(n) : chain_.first_leaf(n), sizes_});
    }
    const std::span<const cell_id> leaves = placer_.choose_gpus_of(nodes_, {&group, 1});
    const std::vector<cell_id> chosen(leaves.begin(), leaves.end());
    for (const cell_id leaf : chosen) {
      const gang_slot user = chain_.holders(c != nullptr ? c->image(leaf) : leaf).user;
      if (!user.valid()) continue;
      victims->push_back(job_id(user.value));
      end_opportunistic(user.value);
    }
    for (const cell_id leaf : chosen) {
      chain_.hold(c != nullptr ? c->image(leaf) : leaf,
                  {gang_slot(e.gang), gang_slot(), c != nullptr});
      if (c != nullptr) c->set_usable(leaf, false);
    }
    gangs_[e.gang] = chosen;
    return true;
  }
  void end(const gang_event& e) {
    if (e.priority < 0) return end_opportunistic(e.gang);
    detail::virtual_cluster& c = clusters_[e.tenant];
    for (const cell_id leaf : gangs_[e.gang]) {
      chain_.hold(c.image(leaf), {});
      c.set_usable(leaf, true);
    }
  }

 private:
  void end_opportunistic(std::uint32_t gang) {
    for (const cell_id leaf : gangs_[gang]) chain_.hold(leaf, {});
  }

  hived_layout layout_;
  detail::physical_chain chain_;
  std::vector<detail::virtual_cluster> clusters_;
  std::vector<std::vector<cell_id>> gangs_;  // leaves of each
  std::vector<std::uint32_t> sizes_;
  detail::node_choice placer_;
  std::vector<detail::indexed_class> classes_;
  std::vector<detail::node_gpus> nodes_;
};

struct preempted {
  std::uint64_t gpus = 0;
  std::uint64_t lost_gpus = 0;  // of those, found no other place at once
  std::uint64_t guest_gpus = 0;
  std::uint64_t owner_gangs = 0;
};
// Runs a load; opportunistic gangs that are preempted come again at once.
template <class Scheduler>
preempted run_with_victims(Scheduler& scheduler, const hived_load& load) {
  std::vector<const gang_event*> gangs(load.gangs, nullptr);
  std::vector<bool> live(load.gangs, false);
  preempted result;
  for (const gang_event& e : load.events) {
    if (e.what == gang_event::kind::ends) {
      if (live[e.gang]) scheduler.end(*gangs[e.gang]);
      live[e.gang] = false;
      continue;
    }
    gangs[e.gang] = &e;
    std::vector<job_id> victims;
    std::vector<job_id> none;
    live[e.gang] = scheduler.start(e, &victims);
    if (live[e.gang] && e.priority < 0) result.guest_gpus += e.gpus();
    if (live[e.gang] && e.priority >= 0) ++result.owner_gangs;
    for (const job_id victim : victims) {
      const gang_event& v = *gangs[victim.value];
      result.gpus += v.gpus();
      live[v.gang] = scheduler.start(v, &none);
      if (!live[v.gang]) result.lost_gpus += v.gpus();
    }
  }
  return result;
}

// GPUs of opportunistic gangs preempted, 8,192 GPUs, by load in percent: the tenants' virtual cells
// bound as needed and bound for good. Guaranteed gangs have the same verdicts in both.
void binding(benchmark::State& state) {
  const auto percent = static_cast<std::uint32_t>(state.range(0));
  const auto guests = static_cast<std::uint32_t>(state.range(1));
  const hived_load load = synthetic_load(
      8192, quota_kind::rows_and_racks,
      {.opportunistic_percent = guests, .load_percent = percent, .steady_arrivals = 10000});
  preempted dynamic;
  preempted fixed;
  for (auto _ : state) {
    hived_scheduler ours(load.config);
    static_scheduler rival(load);
    dynamic = run_with_victims(ours, load);
    fixed = run_with_victims(rival, load);
  }
  if (dynamic.owner_gangs != fixed.owner_gangs) state.SkipWithError("other verdicts");
  auto& c = state.counters;
  c["dynamic_gpus"] = static_cast<double>(dynamic.gpus);
  c["static_gpus"] = static_cast<double>(fixed.gpus);
  c["saved_%"] = 100 * (1 - c["dynamic_gpus"] / c["static_gpus"]);
  c["guest_gpus"] = static_cast<double>(dynamic.guest_gpus);
  c["dynamic_lost"] = static_cast<double>(dynamic.lost_gpus);
  c["static_lost"] = static_cast<double>(fixed.lost_gpus);
}
BENCHMARK(binding)
    ->Unit(benchmark::kMillisecond)
    ->ArgNames({"load", "guests"})
    ->ArgsProduct({{60, 80, 95}, {20, 50}})
    ->Iterations(1);

// Guaranteed gangs on 8,192 GPUs, quotas in rows and racks or (`nodes`) the same number of nodes:
// racks that a gang of 2 to 4, 8 and 16 nodes spans on average, share of gangs of 2 to 4 nodes
// within one rack, and of all free GPUs the share outside whole free racks.
void levels(benchmark::State& state) {
  auto& c = state.counters;
  for (auto _ : state) {
    for (const quota_kind kind : {quota_kind::rows_and_racks, quota_kind::nodes}) {
      const hived_load load =
          synthetic_load(8192, kind,
                         {.opportunistic_percent = 0,
                          .load_percent = static_cast<std::uint32_t>(state.range(0)),
                          .steady_arrivals = 10000});
      hived h = *hived::create(load.config);
      measured m;
      std::map<std::uint32_t, std::pair<double, double>> spans;  // by nodes: gangs, racks
      double together = 0;
      double small = 0;
      double outside = 0;
      double looks = 0;
      run(h, load, m, [&](const hived& now, const gang_request& r, const gang_plan& plan) {
        if (looks++; static_cast<int>(looks) % 16 == 0) {
          const detail::physical_chain& chain = now.cells().chain(0);
          double free = 0;
          double whole = 0;
          for (const cell_id rack : chain.tree().cells(chain.node_level() + 1)) {
            const double used =
                chain.use().used_at_least(rack, detail::physical_chain::opportunistic);
            free += 32 - used;
            whole += used == 0 ? 32 : 0;
          }
          outside += 16 * (free - whole) / free;
        }
        if (r.groups[0].gpus != 8 || r.groups[0].tasks < 2) return;
        std::vector<std::uint32_t> used;
        for (const hived_placement& t : plan.tasks) used.push_back(t.node.value / 4);
        std::sort(used.begin(), used.end());
        used.erase(std::unique(used.begin(), used.end()), used.end());
        auto& [gangs, racks] = spans[std::max(r.groups[0].tasks, 4U)];
        ++gangs;
        racks += static_cast<double>(used.size());
        if (r.groups[0].tasks > 4) return;
        ++small;
        together += used.size() == 1 ? 1 : 0;
      });
      const std::string prefix = kind == quota_kind::nodes ? "nodes_" : "";
      for (const auto& [nodes, span] : spans)
        c[prefix + "span" + std::to_string(nodes)] = span.second / span.first;
      c[prefix + "one_rack_%"] = 100 * together / small;
      c[prefix + "broken_%"] = 100 * outside / looks;
      c[prefix + "bound"] = m.outcomes[0][0] + m.outcomes[2][0];
    }
  }
}
BENCHMARK(levels)->Unit(benchmark::kMillisecond)->ArgName("load")->Arg(60)->Arg(80)->Iterations(1);

}  // namespace
