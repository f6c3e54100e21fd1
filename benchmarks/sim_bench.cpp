// apiary/benchmarks/sim_bench.cpp - whole job lists through schedulers over time, beside queues and
// servers that are scanned.
// SPDX-License-Identifier: MIT
#include "tests/support/cluster_experiment.h"
#include "tests/support/forwarding_scheduler.h"
#include "tests/support/naive_conservative_queue.h"
#include "tests/support/naive_hived_queue.h"
#include "tests/support/naive_philly.h"
#include <apiary/core/rng.h>
#include <apiary/core/status.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gpu_sharing_placer.h>
#include <apiary/gandiva/gandiva.h>
#include <apiary/gandiva/gandiva_fgd.h>
#include <apiary/gandiva/gandiva_hived.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_queue.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/hived_queue.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/philly/philly.h>
#include <apiary/queue/conservative_queue.h>
#include <apiary/queue/policies.h>
#include <apiary/queue/server_placer.h>
#include <apiary/sim/simulate.h>
#include <apiary/trace/job_list.h>
#include <apiary/trace/job_readers.h>
#include <apiary/trace/line_reader.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <sys/resource.h>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

const std::string public_list = std::string(APIARY_DATA_DIR) + "/philly/philly.csv";

// The public Philly list, or where there is no data one about as long.
const job_list& jobs() {
  static const job_list list = [] {
    if (std::filesystem::exists(public_list))
      return read_philly(line_reader::open(public_list).value()).value();
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
std::uint64_t sum_of_ends(const std::vector<time_ms>& ends) {
  std::uint64_t sum = 0;
  for (const time_ms end : ends) sum += static_cast<std::uint64_t>(end);
  return sum;
}

// First come first served with backfill and best fit: every event scans the queue, and every job
// that might start scans the servers.
std::vector<time_ms> scanned(const std::vector<timed_job>& list, const server_spec& spec) {
  std::vector<std::uint32_t> idle = spec.gpus;
  std::vector<std::vector<std::pair<std::size_t, std::uint32_t>>> place(list.size());
  std::vector<time_ms> ends(list.size(), 0);
  std::list<std::size_t> waiting;
  using event = std::pair<time_ms, std::size_t>;
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
    time_ms now = max_time;
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

template <class Scheduler>
absl::StatusOr<std::uint64_t> ends_under(Scheduler scheduler, std::span<const timed_job> list,
                                         std::uint64_t& events) {
  APIARY_ASSIGN_OR_RETURN(const simulation_result done, simulate(scheduler, list));
  std::vector<time_ms> ends;
  for (const simulation_result::job_record& r : done.jobs) ends.push_back(r.ended);
  events = done.events;
  return sum_of_ends(ends);
}

// Runs the list under make(cluster), which must come to the expected ends if they are not 0.
template <class Make>
void run(benchmark::State& state, Make&& make, std::uint64_t expected = 0,
         std::span<const timed_job> list = jobs().jobs) {
  std::uint64_t events = 0;
  for (auto _ : state) {
    const absl::StatusOr<std::uint64_t> ends =
        ends_under(make(cluster_of(state.range(0))), list, events);
    if (!ends.ok()) return state.SkipWithError(ends.status().ToString().c_str());
    std::uint64_t sum = *ends;
    if (expected != 0 && sum != expected) state.SkipWithError("other ends than the rival's");
    benchmark::DoNotOptimize(sum);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(events));
}

// A day of work for 128 GPUs, more at times than there are: for rivals that would take too long for
// the whole list.
constexpr std::int64_t day_gpus = 128;
const std::vector<timed_job>& day() {
  static const job_list list =
      generate_jobs({.jobs = 700,
                     .tenants = 4,
                     .window = 86'400'000,
                     .shortest = 300'000,
                     .longest = 6'900'000,
                     .per_gpu = true,
                     .sizes = {{1, 45}, {2, 17}, {4, 15}, {8, 13}, {16, 7}, {32, 3}}})
          .value();
  return list.jobs;
}
// The ends of that day to which make(cluster, tenants) comes.
template <class Make>
std::uint64_t ends_of_day(const Make& make) {
  std::uint64_t events = 0;
  return ends_under(make(cluster_of(day_gpus), 4), day(), events).value();
}
template <class Make>
void run_day(benchmark::State& state, const Make& make, std::uint64_t expected = 0) {
  run(
      state, [&](const server_spec& spec) { return make(spec, 4); }, expected, day());
}
std::uint32_t num_tenants() { return static_cast<std::uint32_t>(jobs().tenants.size()); }

// The list so many times, one copy after the other: as many jobs at once, ever more that have ended.
std::vector<timed_job> copies_of_list(std::int64_t copies) {
  const std::vector<timed_job>& list = jobs().jobs;
  const time_ms span = list.back().arrival + 1;
  std::vector<timed_job> all;
  all.reserve(list.size() * static_cast<std::size_t>(copies));
  for (time_ms copy = 0; copy < copies; ++copy) {
    for (timed_job j : list) {
      j.arrival += copy * span;
      j.request.job = job_id(static_cast<std::uint32_t>(all.size()));
      j.request.max_gpus = 2 * j.request.gpus;
      all.push_back(j);
    }
  }
  return all;
}
// Time an event, and the most memory that the process has had so far: its rows go from small to large.
void count_events(benchmark::State& state, std::uint64_t events) {
  using counter = benchmark::Counter;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(events));
  state.counters["an_event"] =
      counter(static_cast<double>(events), counter::kIsIterationInvariantRate | counter::kInvert);
  state.counters["peak_MB"] = static_cast<double>(usage.ru_maxrss) / 1024;
}

void backfill_copies(benchmark::State& state) {
  const std::vector<timed_job> list = copies_of_list(state.range(1));
  std::uint64_t events = 0;
  for (auto _ : state) {
    batch_queue queue(server_placer::create(cluster_of(state.range(0))).value(),
                      {.rule = batch_options::rules::backfill});
    const absl::StatusOr<std::uint64_t> ends = ends_under(std::move(queue), list, events);
    if (!ends.ok()) return state.SkipWithError(ends.status().ToString().c_str());
    std::uint64_t sum = *ends;
    benchmark::DoNotOptimize(sum);
  }
  count_events(state, events);
}

// A host that measures: once a job runs, alone or beside another, Gandiva is told how it goes.
struct measuring_host : apiary_test::forwarding_scheduler<gandiva> {
  std::vector<job_id> fresh{};  // started, or packed, with the last decision
  std::uint64_t packed = 0;

  static std::uint32_t utilization(job_id job) { return 100 + job.value * 7919 % 900; }
  static std::uint32_t speed_beside(job_id a, job_id b) {
    return utilization(a) + utilization(b) < 1200 ? 800 : 400;
  }

  absl::Status decide(time_ms t, std::vector<job_action>& actions) {
    for (const job_id job : fresh) {
      const std::optional<gandiva::standing> s = scheduler.find(job);
      if (!s || s->phase != gandiva::phase::run) continue;
      const std::uint32_t rate = s->beside.valid() ? speed_beside(job, s->beside) : full_speed;
      APIARY_RETURN_IF_ERROR(scheduler.report(job, {utilization(job), 1, rate}, t));
    }
    fresh.clear();
    APIARY_RETURN_IF_ERROR(scheduler.decide(t, actions));
    for (const job_action& a : actions) {
      if (a.what != job_action::verb::start && a.what != job_action::verb::pack) continue;
      fresh.push_back(a.job);
      if (a.what == job_action::verb::start) continue;
      ++packed;
      fresh.push_back(scheduler.find(a.job)->beside);
    }
    return absl::OkStatus();
  }
};
// Turns, packing, migration and growth, at the published costs.
void gandiva_copies(benchmark::State& state) {
  const std::vector<timed_job> list = copies_of_list(state.range(1));
  const auto speed = [](const timed_job& job, const job_placement& place,
                        std::span<const job_id> others) -> std::uint32_t {
    if (!others.empty()) return measuring_host::speed_beside(job.request.job, others[0]);
    std::uint32_t gpus = 0;
    for (const placement& p : place) gpus += p.num_gpus();
    return full_speed * gpus / job.request.gpus;
  };
  std::uint64_t events = 0;
  for (auto _ : state) {
    measuring_host host{{gandiva::create({.servers = cluster_of(state.range(0)),
                                          .packs = true,
                                          .gpu_memory = 2,
                                          .migrates = true,
                                          .grows = true})
                             .value()}};
    const absl::StatusOr<simulation_result> run =
        simulate(host, list, {}, {.start_cost = 1000, .migration_cost = 2000}, speed,
                 [](const simulation_event&) {});
    if (!run.ok()) return state.SkipWithError(run.status().ToString().c_str());
    events = run->events;
    std::uint64_t suspended = 0;
    std::uint64_t migrated = 0;
    std::uint64_t resized = 0;
    for (const simulation_result::job_record& r : run->jobs) {
      suspended += r.suspended;
      migrated += r.migrated;
      resized += r.resized;
    }
    state.counters["packed"] = static_cast<double>(host.packed);
    state.counters["migrated"] = static_cast<double>(migrated);
    state.counters["resized"] = static_cast<double>(resized);
    state.counters["suspended"] = static_cast<double>(suspended);
  }
  count_events(state, events);
}
BENCHMARK(backfill_copies)->Args({2490, 1})->Args({728, 1})->Unit(benchmark::kMillisecond);
BENCHMARK(gandiva_copies)->Args({2490, 1})->Args({728, 1})->Unit(benchmark::kMillisecond);
BENCHMARK(backfill_copies)->Args({2490, 4})->Args({728, 4})->Unit(benchmark::kMillisecond);
BENCHMARK(gandiva_copies)->Args({2490, 4})->Unit(benchmark::kMillisecond);
BENCHMARK(backfill_copies)->Args({2490, 16})->Args({728, 16})->Unit(benchmark::kMillisecond);

void scanned_backfill(benchmark::State& state) {
  for (auto _ : state) {
    std::uint64_t sum = sum_of_ends(scanned(jobs().jobs, cluster_of(state.range(0))));
    benchmark::DoNotOptimize(sum);
  }
}
BENCHMARK(scanned_backfill)->Arg(2490)->Arg(728)->Arg(364)->Unit(benchmark::kMillisecond);

const auto make_conservative = [](const server_spec& spec, std::uint32_t = 0) {
  return conservative_queue(server_placer::create(spec).value());
};
const auto try_conservative = [](const server_spec& spec, std::uint32_t = 0) {
  return apiary_test::naive_conservative_queue(server_placer::create(spec).value());
};
void conservative_day(benchmark::State& state) {
  run_day(state, make_conservative, ends_of_day(try_conservative));
}
BENCHMARK(conservative_day)->Arg(day_gpus)->Unit(benchmark::kMillisecond);
void tried_conservative_day(benchmark::State& state) { run_day(state, try_conservative); }
BENCHMARK(tried_conservative_day)->Arg(day_gpus)->Unit(benchmark::kMillisecond);

// Equal quotas, published times.
philly_options equal_quotas(const server_spec& spec, std::uint32_t tenants) {
  std::uint32_t gpus = 0;
  for (const std::uint32_t here : spec.gpus) gpus += here;
  return {.servers = spec, .quotas = std::vector<std::uint32_t>(tenants, gpus / tenants)};
}
const auto make_philly = [](const server_spec& spec, std::uint32_t tenants) {
  return philly::create(equal_quotas(spec, tenants)).value();
};
const auto walk_philly = [](const server_spec& spec, std::uint32_t tenants) {
  return apiary_test::naive_philly(equal_quotas(spec, tenants));
};
void philly_day(benchmark::State& state) { run_day(state, make_philly, ends_of_day(walk_philly)); }
BENCHMARK(philly_day)->Arg(day_gpus)->Unit(benchmark::kMillisecond);
void walked_philly_day(benchmark::State& state) { run_day(state, walk_philly); }
BENCHMARK(walked_philly_day)->Arg(day_gpus)->Unit(benchmark::kMillisecond);

// Tenants own as many whole nodes each; what they do not use is lent.
hived_config equal_cells(const server_spec& spec, std::uint32_t tenants) {
  const auto nodes = static_cast<std::uint32_t>(spec.gpus.size());
  std::uint32_t rack = 16;
  while (nodes % rack != 0) --rack;
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 8, true}, {"RACK", "NODE", rack}};
  for (std::uint32_t n = 0; n < nodes; ++n) {
    if (n % rack == 0) config.physical_cells.push_back({.type = "RACK"});
    config.physical_cells.back().children.push_back({.address = "n" + std::to_string(n)});
  }
  for (std::uint32_t t = 0; t < tenants; ++t) {
    config.virtual_clusters.push_back(
        {.name = "t" + std::to_string(t), .cells = {{"RACK.NODE", nodes / tenants}}});
  }
  return config;
}
const auto make_hived = [](const server_spec& spec, std::uint32_t tenants) {
  return hived_queue::create(equal_cells(spec, tenants)).value();
};
const auto walk_hived = [](const server_spec& spec, std::uint32_t tenants) {
  return apiary_test::naive_hived_queue(hived::create(equal_cells(spec, tenants)).value(), true);
};
// How long the jobs above 8 GPUs wait, in minutes, if all that fit may overtake them, and if the first
// one has a reservation: on 128 GPUs those of the day, otherwise those of the list.
void hived_wide_jobs(benchmark::State& state) {
  const auto rule = state.range(1) == 0 ? hived_queue::rules::first_fit : hived_queue::rules::easy;
  const bool one_day = state.range(0) == day_gpus;
  const std::vector<timed_job>& list = one_day ? day() : jobs().jobs;
  const hived_config cells = equal_cells(cluster_of(state.range(0)), one_day ? 4 : num_tenants());
  for (auto _ : state) {
    hived_queue queue = hived_queue::create(cells, true, rule).value();
    const absl::StatusOr<simulation_result> done = simulate(queue, list);
    if (!done.ok()) return state.SkipWithError(done.status().ToString().c_str());
    double wide = 0;
    double sum = 0;
    double wide_sum = 0;
    double longest = 0;
    for (std::size_t j = 0; j < list.size(); ++j) {
      const double minutes = static_cast<double>(done->jobs[j].waited.total()) / 60'000;
      sum += minutes;
      if (list[j].request.gpus <= 8) continue;
      ++wide;
      wide_sum += minutes;
      longest = std::max(longest, minutes);
    }
    state.counters["mean_min"] = sum / static_cast<double>(list.size());
    state.counters["wide_jobs"] = wide;
    state.counters["wide_min"] = wide > 0 ? wide_sum / wide : 0;
    state.counters["longest_wide_min"] = longest;
  }
}
BENCHMARK(hived_wide_jobs)
    ->ArgsProduct({{day_gpus, 728, 416}, {0, 1}})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
void hived_day(benchmark::State& state) { run_day(state, make_hived, ends_of_day(walk_hived)); }
BENCHMARK(hived_day)->Arg(day_gpus)->Unit(benchmark::kMillisecond);
void walked_hived_day(benchmark::State& state) { run_day(state, walk_hived); }
BENCHMARK(walked_hived_day)->Arg(day_gpus)->Unit(benchmark::kMillisecond);

// What came of a list under a scheduler.
struct outcome {
  std::uint64_t ends = 0;  // their sum
  std::uint64_t events = 0;
  std::uint64_t decisions = 0;
  double use = 0;            // of the GPUs
  double wait_minutes = 0;   // the mean of the jobs that ended
  std::uint64_t queued = 0;  // jobs that never started
  bool gave_up = false;      // the time was over
};

// Gives up after five minutes, so that each row ends.
template <class Scheduler>
struct limited : apiary_test::forwarding_scheduler<Scheduler> {
  using clock = std::chrono::steady_clock;
  clock::time_point end = clock::now() + std::chrono::seconds(300);
  std::uint32_t calls = 0;

  absl::Status decide(time_ms t, std::vector<job_action>& actions) {
    if (++calls % 16 == 0 && clock::now() > end) return absl::DeadlineExceededError("too long");
    return this->scheduler.decide(t, actions);
  }
};

// A scheduler of the library: makes one for so many tenants that is ready to run a list until a time.
struct policy {
  using runs = std::function<absl::StatusOr<outcome>()>;
  std::string name;
  std::function<runs(const server_spec&, std::uint32_t, std::span<const timed_job>, time_ms)> make;
  std::uint32_t divisor = 1;  // of the GPUs that the cluster must have
};
template <class Make>
policy policy_of(std::string name, Make make, std::uint32_t divisor = 1) {
  const auto ready = [make](const server_spec& spec, std::uint32_t tenants,
                            std::span<const timed_job> list, time_ms until) -> policy::runs {
    using scheduler = limited<decltype(make(spec, tenants))>;
    const auto made = std::make_shared<scheduler>(scheduler{{make(spec, tenants)}});
    return [made, list, until]() -> absl::StatusOr<outcome> {
      const auto run = simulate(
          *made, list, {}, {.until = until},
          [](const timed_job&, const job_placement&) { return full_speed; },
          [](const simulation_event&) {});
      if (absl::IsDeadlineExceeded(run.status())) return outcome{.gave_up = true};
      if (!run.ok()) return run.status();
      const job_metrics m = metrics_of(*run, list);
      outcome o{.events = run->events,
                .decisions = run->decisions,
                .use = m.utilization,
                .wait_minutes = m.delay.mean / 60'000};
      for (const simulation_result::job_record& r : run->jobs) {
        o.ends += static_cast<std::uint64_t>(r.ended);
        o.queued += r.started == max_time ? 1U : 0U;
      }
      return o;
    };
  };
  return {std::move(name), ready, divisor};
}
template <batch_options::rules Rule, batch_options::orders Order = batch_options::orders::arrival>
policy batch_policy(std::string name) {
  return policy_of(std::move(name), [](const server_spec& spec, std::uint32_t) {
    return batch_queue(server_placer::create(spec).value(), {.rule = Rule, .order = Order});
  });
}
// Jobs are chosen every ten minutes; the estimates are exact.
policy preemptive_policy(std::string name, preemptive_options options) {
  return policy_of(std::move(name), [options](const server_spec& spec, std::uint32_t) {
    return preemptive_queue(server_placer::create(spec).value(), options);
  });
}
policy bounded_policy(std::string name, bounded_wait_options::orders order) {
  return policy_of(std::move(name), [order](const server_spec& spec, std::uint32_t) {
    return bounded_wait_queue(server_placer::create(spec).value(), {.order = order});
  });
}
policy gandiva_policy(std::string name, gandiva_options options) {
  return policy_of(std::move(name), [options](const server_spec& spec, std::uint32_t) {
    gandiva_options here = options;
    here.servers = spec;
    return gandiva::create(here).value();
  });
}
fragmentation typical_fragmentation() {
  return fragmentation(task_mix({{{.gpus = 1, .gpu_milli = whole_gpu}, 60},
                                 {{.gpus = 2, .gpu_milli = whole_gpu}, 15},
                                 {{.gpus = 4, .gpu_milli = whole_gpu}, 10},
                                 {{.gpus = 8, .gpu_milli = whole_gpu}, 15}}));
}
// Racks of as many servers as elsewhere.
policy gang_policy(std::string name, bool backfill) {
  return policy_of(std::move(name), [backfill](const server_spec& spec, std::uint32_t) {
    gang_cluster cluster{.levels = {"rack"}};
    for (std::size_t n = 0; n < spec.gpus.size(); ++n) {
      cluster.nodes.push_back({.name = "n" + std::to_string(n),
                               .cells = {"r" + std::to_string(n / spec.servers_per_rack)},
                               .gpus = spec.gpus[n]});
    }
    return gang_queue(gang_scheduler::create(cluster).value(), {.backfill = backfill});
  });
}
const std::vector<policy>& policies() {
  using rules = batch_options::rules;
  using preemptive_rules = preemptive_options::rules;
  using orders = bounded_wait_options::orders;
  static const std::vector<policy> all{
      batch_policy<rules::fifo>("fifo"),
      batch_policy<rules::backfill>("backfill"),
      batch_policy<rules::easy>("easy"),
      batch_policy<rules::easy_gpus>("easy_gpus"),
      policy_of("conservative", make_conservative),
      policy_of("conservative_100",
                [](const server_spec& spec, std::uint32_t) {
                  return conservative_queue(server_placer::create(spec).value(), {.depth = 100});
                }),
      batch_policy<rules::backfill, batch_options::orders::gpu_time>("qssf"),
      preemptive_policy("srtf", {.rule = preemptive_rules::shortest_remaining}),
      preemptive_policy("las", {.quantum = 600'000}),
      preemptive_policy("tiresias", {.quantum = 600'000, .thresholds = {3'600'000, 36'000'000}}),
      bounded_policy("bounded", orders::attained),
      bounded_policy("bounded_srtf", orders::remaining),
      policy_of("philly", make_philly),
      gandiva_policy("gandiva", {.migrates = true}),
      gandiva_policy("gandiva_published", {}),
      policy_of("gandiva_best_fit",
                [](const server_spec& spec, std::uint32_t) {
                  return gandiva_with_placer<server_placer>::create(
                             {server_placer::create(spec).value(), spec, typical_fragmentation()},
                             {.migrations = {.jobs = 4, .cost = 100}})
                      .value();
                }),
      policy_of("gandiva_fgd",
                [](const server_spec& spec, std::uint32_t) {
                  const fragmentation metric = typical_fragmentation();
                  using placer = gpu_sharing_placer<fragmentation_gradient>;
                  return gandiva_fgd::create(
                             {placer::create(spec, fragmentation_gradient(metric)).value(), spec,
                              metric},
                             {.migrations = {.jobs = 4, .cost = 100}})
                      .value();
                }),
      policy_of("hived", make_hived, 8),
      policy_of(
          "hived_first_fit",
          [](const server_spec& spec, std::uint32_t tenants) {
            return hived_queue::create(equal_cells(spec, tenants), true,
                                       hived_queue::rules::first_fit)
                .value();
          },
          8),
      policy_of(
          "gandiva_hived",
          [](const server_spec& spec, std::uint32_t tenants) {
            return gandiva_hived::create(
                       hived_placer::create(equal_cells(spec, tenants), true).value(),
                       {.migrations = {.jobs = 4, .cost = 100}})
                .value();
          },
          8),
      gang_policy("gang", false),
      gang_policy("gang_backfill", true)};
  return all;
}

// Runs the list once an iteration; the scheduler is made outside the time.
void run_policy(benchmark::State& state, const policy& p, std::int64_t gpus,
                std::uint32_t num_tenants, std::span<const timed_job> list, time_ms until,
                std::uint64_t expected = 0) {
  outcome came;
  for (auto _ : state) {
    state.PauseTiming();
    const policy::runs runs = p.make(cluster_of(gpus), num_tenants, list, until);
    state.ResumeTiming();
    const absl::StatusOr<outcome> done = runs();
    if (!done.ok()) return state.SkipWithError(done.status().ToString().c_str());
    came = *done;
    if (expected != 0 && came.ends != expected) state.SkipWithError("other ends than the rival's");
  }
  if (came.gave_up) return state.SetLabel("more than 300 s");
  count_events(state, came.events);
  state.counters["decisions"] = static_cast<double>(came.decisions);
  state.counters["use_percent"] = 100 * came.use;
  state.counters["wait_min"] = came.wait_minutes;
  state.counters["queued"] = static_cast<double>(came.queued);
}
// The whole public list. Arguments: GPUs.
void run_list(benchmark::State& state, const policy& p) {
  const std::int64_t gpus = (state.range(0) + p.divisor - 1) / p.divisor * p.divisor;
  const std::uint64_t expected =
      p.name == "backfill" ? sum_of_ends(scanned(jobs().jobs, cluster_of(gpus))) : 0;
  run_policy(state, p, gpus, num_tenants(), jobs().jobs, max_time, expected);
}

// 100,000 jobs that keep `percent` % of the GPUs busy from the start: at first as many arrive as use
// them, each with what a job still has to do when it is met at random; the others arrive at random
// times, and the list ends with the last arrival.
std::pair<std::vector<timed_job>, time_ms> steady_jobs(std::int64_t gpus, std::int64_t percent) {
  job_list list = generate_jobs({.jobs = 100'000,
                                 .tenants = 4,
                                 .window = 1'000'000'000,
                                 .shortest = 60'000,
                                 .longest = 7'200'000,
                                 .per_gpu = true,
                                 .sizes = {{1, 60}, {2, 15}, {4, 10}, {8, 10}, {16, 4}, {32, 1}}})
                      .value();
  rng random(5);
  const double busy = static_cast<double>(gpus * percent) / 100;
  double first = 0;  // GPUs of the jobs that arrive at first
  double work = 0;   // of the others
  for (timed_job& j : list.jobs) {
    // Long jobs are met more often.
    if (first < busy && random.uniform(7'200'000) < static_cast<std::uint64_t>(j.duration)) {
      first += j.request.gpus;
      j.arrival = 0;
      j.duration = 1 + random.uniform(static_cast<std::uint32_t>(j.duration));
      j.request.estimate = j.duration;
    } else {
      work += static_cast<double>(j.duration) * j.request.gpus;
      j.arrival = random.uniform(1'000'000'000);
    }
  }
  const double stretch = work / busy / 1e9;
  for (timed_job& j : list.jobs)
    j.arrival = static_cast<time_ms>(static_cast<double>(j.arrival) * stretch);
  job_list::number_by_arrival(list.jobs);
  const time_ms until = list.jobs.back().arrival;
  return {std::move(list.jobs), until};
}
// Arguments: GPUs, per cent of them that the jobs ask for.
void run_growth(benchmark::State& state, const policy& p) {
  const auto [list, until] = steady_jobs(state.range(0), state.range(1));
  run_policy(state, p, state.range(0), 4, list, until);
}
[[maybe_unused]] const bool has_policies = [] {
  for (const policy& p : policies()) {
    benchmark::RegisterBenchmark(("list/" + p.name).c_str(), run_list, p)
        ->Arg(2490)
        ->Arg(728)
        ->Arg(364)
        ->Iterations(1)
        ->Unit(benchmark::kMillisecond);
  }
  for (const policy& p : policies()) {
    benchmark::RegisterBenchmark(("growth/" + p.name).c_str(), run_growth, p)
        ->ArgsProduct({{2'000, 20'000, 100'000}, {80, 100}})
        ->Iterations(1)
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

// Gandiva's published cluster experiment: the time until a job has done 100 mini-batches, in seconds, under
// assumptions about what is not published.
struct assumption {
  const char* name;
  apiary_test::cluster_experiment experiment{};
  bool packs = true;  // and migrates
};
std::vector<assumption> assumptions() {
  using apiary_test::cluster_experiment;
  const auto with = [](auto&& change) {
    // As busy as gives the published use with backfill; costs as published.
    cluster_experiment e{.utilization = {546, 546, 546}};
    e.costs = {.start_cost = 1000, .migration_cost = 2000};
    change(e);
    return e;
  };
  return {
      {"published", with([](auto&) {})},
      {"time_slices_alone", with([](auto&) {}), false},
      {"published_rates", with([](auto& e) {
         e.minibatches = {1200, 2500, 10'000};
       })},
      {"starts_take_30_s",
       with([](auto& e) { e.costs.start_cost = e.costs.migration_cost = 30'000; })},
      {"new_jobs_last", with([](auto& e) { e.last_in_round = true; })},
      {"jobs_of_one_gpu", with([](auto& e) {
         e.sizes = {100, 0, 0};
       })},
      {"wide_jobs", with([](auto& e) {
         e.sizes = {50, 25, 25};
       })},
      {"minutes_of_jobs", with([](auto& e) { e.per_gpu = true; })},
      {"starts_take_30_s_new_jobs_last", with([](auto& e) {
         e.costs.start_cost = e.costs.migration_cost = 30'000;
         e.last_in_round = true;
       })},
      {"setup_300_s_beside", with([](auto& e) { e.setup = 300'000; })},
      {"setup_300_s_within", with([](auto& e) {
         for (time_ms& time : e.minibatches) time += 300'000;
       })},
      {"container_400_s", with([](auto& e) { e.container = 400'000; })},
      {"two_jobs_a_gpu", with([](auto& e) { e.over_subscription = 200; })},
      {"three_jobs_a_gpu", with([](auto& e) { e.over_subscription = 300; })},
      {"four_jobs_a_gpu", with([](auto& e) { e.over_subscription = 400; })},
      {"minibatches_nine_times", with([](auto& e) {
         e.minibatches = {432'000, 288'000, 180'000};
       })},
  };
}
void cluster_experiment(benchmark::State& state, const assumption& a) {
  apiary_test::cluster_experiment before = a.experiment;
  before.costs = {};
  before.over_subscription = 0;
  before.last_in_round = false;
  for (auto _ : state) {
    const auto backfill = apiary_test::run_experiment(before, [](const server_spec& spec) {
      return batch_queue(server_placer::create(spec).value(),
                         {.rule = batch_options::rules::backfill});
    });
    const auto shared = apiary_test::run_experiment(a.experiment, [&](const server_spec& spec) {
      return gandiva::create({.servers = spec, .packs = a.packs, .migrates = a.packs}).value();
    });
    if (!backfill.ok() || !shared.ok()) return state.SkipWithError("the experiment failed");
    state.counters["backfill_s"] = backfill->seconds;
    state.counters["backfill_use"] = 100 * backfill->utilization;
    state.counters["gandiva_s"] = shared->seconds;
    state.counters["first_wait_s"] = shared->first_wait;
    state.counters["alone_s"] = shared->alone;
    state.counters["use"] = 100 * shared->utilization;
    state.counters["jobs_per_gpu"] = shared->requested;
    state.counters["at_start"] = shared->requested_at_start;
  }
}
[[maybe_unused]] const bool has_assumptions = [] {
  for (const assumption& a : assumptions()) {
    const std::string name = std::string("cluster_experiment/") + a.name;
    benchmark::RegisterBenchmark(name.c_str(), cluster_experiment, a)
        ->Iterations(1)
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

// One job ends and one of as many GPUs comes, again and again: where does it go? Servers of eight
// GPUs, jobs of 1, 2 and 4, so many per cent of the GPUs asked for.
struct churn {
  static constexpr std::array<std::uint32_t, 3> sizes{1, 2, 4};
  rng random{7};
  std::vector<job_request> live{};
  std::uint32_t next = 0;

  job_request fresh(std::uint32_t gpus) { return {.job = job_id(next++), .gpus = gpus}; }
  job_request any() { return fresh(sizes[random.uniform(3)]); }
};

// The answers of gandiva without over-subscription, from a scan of all servers.
class scanned_servers {
 public:
  explicit scanned_servers(std::size_t servers)
      : load_(servers), affinity_(servers), jobs_(servers) {}

  std::uint32_t come(const job_request& r) {
    const std::size_t none = load_.size();
    std::size_t same = none;
    std::size_t empty = none;
    std::size_t tight = none;
    for (std::size_t n = 0; n < load_.size(); ++n) {
      if (affinity_[n] == r.gpus && (same == none || load_[n] < load_[same])) same = n;
      if (affinity_[n] == 0 && empty == none) empty = n;
      if (load_[n] + r.gpus <= 8 && (tight == none || load_[n] > load_[tight])) tight = n;
    }
    std::size_t home = same;
    if (same == none || load_[same] + r.gpus > 8) home = empty != none ? empty : tight;
    if (home == none) return ~0U;
    if (jobs_[home]++ == 0) affinity_[home] = r.gpus;
    load_[home] += r.gpus;
    home_.resize(r.job.value + std::size_t{1});
    return home_[r.job.value] = static_cast<std::uint32_t>(home);
  }
  void go(const job_request& r) {
    const std::uint32_t home = home_[r.job.value];
    load_[home] -= r.gpus;
    if (--jobs_[home] == 0) affinity_[home] = 0;
  }

 private:
  std::vector<std::uint32_t> load_;
  std::vector<std::uint32_t> affinity_;
  std::vector<std::uint32_t> jobs_;
  std::vector<std::uint32_t> home_;  // by job
};

struct indexed_servers {
  gandiva scheduler;
  std::vector<job_action> actions{};

  std::uint32_t come(const job_request& r) {
    actions.clear();
    if (!scheduler.submit(r, 1).ok() || !scheduler.decide(1, actions).ok()) return ~0U;
    return scheduler.find(r.job)->server.value;
  }
  void go(const job_request& r) { (void)scheduler.finish(r.job, 1); }
};

template <class Servers>
void fill(Servers& servers, churn& jobs, std::uint32_t gpus) {
  while (true) {
    const job_request r = jobs.any();
    if (r.gpus > gpus) return;
    gpus -= r.gpus;
    benchmark::DoNotOptimize(servers.come(r));
    jobs.live.push_back(r);
  }
}
template <class Servers>
std::uint32_t step(Servers& servers, churn& jobs) {
  job_request& r = jobs.live[jobs.random.uniform(static_cast<std::uint32_t>(jobs.live.size()))];
  servers.go(r);
  r = jobs.fresh(r.gpus);
  return servers.come(r);
}

template <class Make>
void place_jobs(benchmark::State& state, Make&& make) {
  const auto gpus = static_cast<std::uint32_t>(state.range(0));
  auto servers = make(gpus / 8);
  churn jobs;
  fill(servers, jobs, gpus / 100 * static_cast<std::uint32_t>(state.range(1)));
  std::uint64_t sum = 0;
  for (auto _ : state) sum += step(servers, jobs);
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(state.iterations());
}
indexed_servers indexed(std::size_t servers) {
  const server_spec spec{.gpus = std::vector<std::uint32_t>(servers, 8)};
  return {gandiva::create({.servers = spec}).value()};
}
void gandiva_place(benchmark::State& state) {
  if (state.range(1) < 100) {  // the answers are those of the scan
    churn a;
    churn b;
    indexed_servers fast = indexed(100);
    scanned_servers slow(100);
    fill(fast, a, 480);
    fill(slow, b, 480);
    for (int i = 0; i < 1000; ++i) {
      if (step(fast, a) != step(slow, b)) return state.SkipWithError("another server");
    }
  }
  place_jobs(state, indexed);
}
BENCHMARK(gandiva_place)->ArgsProduct({{1'000, 10'000, 100'000}, {60, 150}});
void scanned_place(benchmark::State& state) {
  place_jobs(state, [](std::size_t servers) { return scanned_servers(servers); });
}
BENCHMARK(scanned_place)->ArgsProduct({{1'000, 10'000, 100'000}, {60}});

void read_list(benchmark::State& state) {
  for (auto _ : state) {
    const job_list list = read_philly(line_reader::open(public_list).value()).value();
    if (list.jobs.size() != jobs().jobs.size()) state.SkipWithError("another list");
  }
}
// Where there is no such list there is nothing to measure.
[[maybe_unused]] const bool has_public_list = [] {
  if (!std::filesystem::exists(public_list)) return false;
  benchmark::RegisterBenchmark("read_list", read_list)->Unit(benchmark::kMillisecond);
  return true;
}();

}  // namespace
