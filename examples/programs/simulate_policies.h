// apiary/examples/programs/simulate_policies.h - a list of jobs on a cluster under the schedulers of simulate.
// SPDX-License-Identifier: MIT
#pragma once

#include "simulate_picture.h"
#include "simulate_placer.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/core/status.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gpu_sharing_placer.h>
#include <apiary/gandiva/gandiva.h>
#include <apiary/gandiva/gandiva_fgd.h>
#include <apiary/gandiva/gandiva_hived.h>
#include <apiary/gandiva/time_sharing.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_queue.h>
#include <apiary/gang_scheduler/gang_scheduler.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/hived_queue.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/job.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>
#include <apiary/philly/options.h>
#include <apiary/philly/philly.h>
#include <apiary/queue/conservative_queue.h>
#include <apiary/queue/policies.h>
#include <apiary/queue/server_placer.h>
#include <apiary/sim/simulate.h>
#include <apiary/sim/simulation_result.h>
#include <apiary/trace/job_list.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace example {

inline constexpr std::array<std::string_view, 16> job_policies{
    "fifo",    "backfill",    "easy",     "easy_gpus",    "conservative", "qssf",
    "srtf",    "las",         "tiresias", "bounded",      "bounded_srtf", "philly",
    "gandiva", "gandiva_fgd", "hived",    "gandiva_hived"};

// Those that `all` does not name: the gang scheduler without and with backfilling.
inline constexpr std::array<std::string_view, 2> more_policies{"gang", "gang_backfill"};

// Whether a policy knows CPU, memory and GPU models. Philly, Gandiva and HiveD know only GPUs, as in
// their papers.
inline bool knows_demands(std::string_view policy) {
  return policy != "hived" && !policy.starts_with("philly") && !policy.starts_with("gandiva");
}

// About how long a policy takes, in units of the fastest ones: measured on the public Philly trace with
// 728 GPUs.
inline double policy_cost(std::string_view policy) {
  constexpr std::array<double, job_policies.size()> costs{1, 1, 1, 1, 10, 1, 2, 1,
                                                          2, 2, 2, 3, 5,  5, 3, 12};
  for (std::size_t i = 0; i < costs.size(); ++i)
    if (job_policies[i] == policy) return costs[i];
  return policy == "gang_backfill" ? 15 : 3;
}

// Milliseconds until a job makes progress after a start, and after a migration, if not set.
inline constexpr apiary::time_ms start_cost = 1000;
inline constexpr apiary::time_ms migration_cost = 2000;

// The speed of a job of several GPUs, in thousandths, by where they are.
struct place_speeds {
  std::uint32_t nvlink = apiary::full_speed;  // all in one group of NVLink: four GPUs of a server
  std::uint32_t node = apiary::full_speed;    // on one server
  std::uint32_t rack = apiary::full_speed;    // in one rack
  std::uint32_t across = apiary::full_speed;  // in several racks
};

// What can be set for a run.
struct run_settings {
  apiary::time_ms start_cost = example::start_cost;
  apiary::time_ms migration_cost = example::migration_cost;
  apiary::time_ms quantum = 0;  // of las, tiresias, bounded, bounded_srtf and gandiva; 0: their own
  std::uint32_t depth = 0;      // of conservative: the most reservations; 0: no limit
  apiary::time_ms checkpoint = 0;      // of simulation_options
  apiary::time_ms mtbf = 0;            // mean time between two failures of a server; 0: none fails
  apiary::time_ms repair = 3'600'000;  // how long a server is broken
  std::uint64_t seed = 1;              // of the failures and of inexact estimates
  // Estimates are up to so many times the durations; 0: as they are.
  std::uint32_t estimate_error = 0;
  // Per cent of the runs of a job that end with a transient failure, a permanent one, one of unknown
  // kind; at most 100 together.
  std::vector<std::uint32_t> failures{0, 0, 0};
  std::uint32_t retries = 3;            // of a job with failures of unknown kind
  place_speeds speeds{};                // of jobs by placement
  bool bounded_gandiva = false;         // the library's defaults, not the published rule
  std::vector<std::uint32_t> quotas{};  // GPUs of each tenant; empty: in proportion to GPU-time
  bool keeps_jobs = false;              // policy_run::jobs
  bool keeps_events = false;            // policy_run::events
};

// Servers that are all alike, in racks.
struct job_cluster {
  std::uint32_t nodes = 16;
  std::uint32_t gpus_per_node = 8;
  // CPU and memory of each, and how many have GPUs of each model, for policies that know demands; those
  // without a model come last.
  apiary::resources host{~0U, ~0U};
  std::vector<std::pair<std::string, std::uint32_t>> models{};

  [[nodiscard]] std::uint32_t gpus() const noexcept { return nodes * gpus_per_node; }
  // Whether all servers are alike, without limits of CPU and memory.
  [[nodiscard]] bool is_plain() const noexcept {
    return models.empty() && host == apiary::resources{~0U, ~0U};
  }
  // As many as divide the cluster evenly, from 4 to 16 and the most of them; or all.
  [[nodiscard]] std::uint32_t nodes_per_rack() const noexcept {
    for (std::uint32_t n = 16; n >= 4; --n) {
      if (nodes % n == 0) return n;
    }
    return nodes;
  }
  [[nodiscard]] apiary::server_spec servers() const {
    return {.gpus = std::vector<std::uint32_t>(nodes, gpus_per_node),
            .servers_per_rack = nodes_per_rack()};
  }
};

// The lists that are simulated when none is given, one for each seed: four tenants, a day, more work at
// times than GPUs. Durations are lognormal: half of the jobs take less than 20 minutes, one in a hundred
// more than 10 hours. `busy` has more jobs, `wide` has fewer, but wider ones with a heavier tail.
inline constexpr std::uint64_t embedded_lists = 5;
inline constexpr std::array<std::string_view, 3> job_loads{"day", "busy", "wide"};
inline constexpr std::uint32_t embedded_size(std::string_view load) {
  return load == "wide" ? 500 : load == "busy" ? 1000 : 700;
}
inline apiary::job_list embedded_jobs(std::uint64_t seed = 1, std::string_view load = "day") {
  const bool wide = load == "wide";
  apiary::job_generator spec{.seed = seed,
                             .jobs = embedded_size(load),
                             .tenants = 4,
                             .window = 86'400'000,
                             .shortest = 60'000,
                             .longest = 86'400'000,
                             .per_gpu = true,
                             .median = wide ? 600'000 : 1'200'000,
                             .sigma_milli = wide ? 1700U : 1500U,
                             .sizes = {{1, 45}, {2, 17}, {4, 15}, {8, 13}, {16, 7}, {32, 3}}};
  if (wide) spec.sizes = {{1, 30}, {4, 20}, {8, 25}, {16, 15}, {32, 10}};
  absl::StatusOr<apiary::job_list> made = apiary::generate_jobs(spec);
  APIARY_VERIFY(made.ok());
  return *std::move(made);
}

// Divides the GPUs of the cluster among the tenants by the GPU-time of their jobs. The remainder goes to
// the tenants that lose most by rounding down. Requires: jobs of tenants of the list.
inline std::vector<std::uint32_t> quotas_of(const apiary::job_list& list, std::uint32_t gpus) {
  std::vector<double> parts(list.tenants.size(), 0.0);
  double all = 0.0;
  for (const apiary::timed_job& j : list.jobs) {
    const double time = static_cast<double>(j.duration) * j.request.gpus;
    parts[j.request.tenant.value] += time;
    all += time;
  }
  std::vector<std::uint32_t> quotas;
  std::vector<std::pair<double, std::size_t>> lost;  // negative, so that most comes first
  std::uint32_t left = gpus;
  for (double& part : parts) {
    part *= gpus / all;
    quotas.push_back(std::min(left, static_cast<std::uint32_t>(part)));
    left -= quotas.back();
    lost.emplace_back(quotas.back() - part, lost.size());
  }
  std::sort(lost.begin(), lost.end());
  for (const auto& [loss, tenant] : lost) {
    if (left == 0) break;
    ++quotas[tenant];
    --left;
  }
  return quotas;
}

// Tenants own whole nodes, anywhere, and for the rest of their quota single GPUs.
inline apiary::hived_config cells_of(const job_cluster& cluster,
                                     const std::vector<std::uint32_t>& quotas) {
  apiary::hived_config config;
  const std::uint32_t rack = cluster.nodes_per_rack();
  config.cell_types = {{"NODE", "GPU", cluster.gpus_per_node, true}, {"RACK", "NODE", rack}};
  for (std::uint32_t n = 0; n < cluster.nodes; ++n) {
    if (n % rack == 0) config.physical_cells.push_back({.type = "RACK"});
    config.physical_cells.back().children.push_back({.address = "n" + std::to_string(n)});
  }
  for (std::size_t t = 0; t < quotas.size(); ++t) {
    apiary::virtual_cluster_config owner{.name = "t" + std::to_string(t)};
    const std::uint32_t nodes = quotas[t] / cluster.gpus_per_node;
    const std::uint32_t gpus = quotas[t] % cluster.gpus_per_node;
    if (nodes > 0) owner.cells.push_back({"RACK.NODE", nodes});
    if (gpus > 0) owner.cells.push_back({"RACK.NODE.GPU", gpus});
    config.virtual_clusters.push_back(std::move(owner));
  }
  return config;
}

// The tasks of whole GPUs that the jobs are made of; of a job larger than a server, whole servers.
inline apiary::task_mix typical_tasks(const apiary::job_list& list, const job_cluster& cluster) {
  std::vector<std::pair<apiary::task_kind, std::uint32_t>> kinds;
  for (std::uint32_t gpus = 1; gpus <= cluster.gpus_per_node; ++gpus)
    kinds.push_back({{.gpus = gpus, .gpu_milli = apiary::whole_gpu}, 0});
  for (const apiary::timed_job& j : list.jobs)
    ++kinds[std::min(j.request.gpus, cluster.gpus_per_node) - 1].second;
  return apiary::task_mix(kinds);
}

// The servers in racks, with CPU, memory and models.
inline apiary::gang_cluster gang_cluster_of(const job_cluster& cluster) {
  apiary::gang_cluster out{.levels = {"rack"}};
  std::size_t m = 0;
  std::uint32_t of_model = 0;
  for (std::uint32_t n = 0; n < cluster.nodes; ++n) {
    while (m < cluster.models.size() && of_model == cluster.models[m].second) {
      ++m;
      of_model = 0;
    }
    ++of_model;
    out.nodes.push_back({.name = "n" + std::to_string(n),
                         .cells = {"r" + std::to_string(n / cluster.nodes_per_rack())},
                         .gpus = cluster.gpus_per_node,
                         .host = cluster.host,
                         .model = m < cluster.models.size() ? cluster.models[m].first : ""});
  }
  return out;
}
// Whether a job needs only GPUs, of any model.
inline bool needs_only_gpus(const apiary::timed_job& j) {
  return j.per_gpu == apiary::resources{} && j.model == 0;
}
// Numbers the demands of the jobs (job_request::demand). Returns them, by number.
inline std::vector<job_demand> number_demands(apiary::job_list& list) {
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::uint32_t> numbers;
  std::vector<job_demand> demands;
  for (apiary::timed_job& j : list.jobs) {
    const auto next = static_cast<std::uint32_t>(demands.size());
    const auto [at, is_new] =
        numbers.try_emplace({j.per_gpu.cpu_milli, j.per_gpu.memory_mib, j.model}, next);
    j.request.demand = at->second;
    if (!is_new) continue;
    demands.push_back({.per_gpu = j.per_gpu});
    if (j.model > 0) demands.back().models = {list.models[j.model - 1]};
  }
  return demands;
}
// A placer for the queues of queue/. Numbers the demands of the jobs if a job has one, or if the servers
// differ or are limited.
inline absl::StatusOr<cluster_placer> placer_for(const job_cluster& cluster,
                                                 apiary::job_list& list) {
  if (cluster.is_plain() && std::all_of(list.jobs.begin(), list.jobs.end(), needs_only_gpus)) {
    APIARY_ASSIGN_OR_RETURN(auto made, apiary::server_placer::create(cluster.servers()));
    return cluster_placer(std::move(made));
  }
  APIARY_ASSIGN_OR_RETURN(
      auto made,
      apiary::gang_placer::create(gang_cluster_of(cluster), {.demands = number_demands(list)}));
  return cluster_placer(std::move(made));
}

// The failures of servers until a month after the last arrival, in order: times between two failures
// of a server are uniform from 0 to twice the mean.
inline std::vector<apiary::outage> outages_of(const run_settings& set, const job_cluster& cluster,
                                              const apiary::job_list& list) {
  std::vector<apiary::outage> outages;
  if (set.mtbf == 0) return outages;
  apiary::rng random(set.seed);
  const apiary::time_ms end = list.jobs.back().arrival + apiary::time_ms{30} * 86'400'000;
  for (std::uint32_t n = 0; n < cluster.nodes; ++n) {
    for (apiary::time_ms t = 0;;) {
      // In seconds, because the generator has 32 bits.
      t += apiary::time_ms{random.uniform(static_cast<std::uint32_t>(set.mtbf / 500))} * 1000 + 1;
      if (t >= end) break;
      outages.push_back({apiary::node_id(n), t, t + set.repair});
      t += set.repair;
    }
  }
  std::stable_sort(outages.begin(), outages.end(),
                   [](const auto& a, const auto& b) { return a.from < b.from; });
  return outages;
}

// The failures of the jobs. A run begins with the work of the last checkpoint of its job. It fails, or
// not, at a uniformly random point of the rest.
inline std::vector<apiary::simulation_options::job_failure> job_failures_of(
    const run_settings& set, const apiary::job_list& list) {
  using kind = apiary::simulation_options::job_failure::kind;
  constexpr std::array<kind, 3> kinds{kind::transient, kind::permanent, kind::unknown};
  std::vector<apiary::simulation_options::job_failure> failures;
  apiary::rng random(~set.seed);  // other numbers than those of the servers
  for (const apiary::timed_job& j : list.jobs) {
    apiary::time_ms kept = 0;
    for (int run = 0; run < 100; ++run) {
      std::uint32_t draw = random.uniform(100);
      std::size_t k = 0;
      while (k < kinds.size() && draw >= set.failures[k]) draw -= set.failures[k++];
      if (k == kinds.size()) break;
      // In thousandths, because the generator has 32 bits.
      const apiary::time_ms at = kept + (j.duration - kept) * random.uniform(1000) / 1000;
      failures.push_back({j.request.job, at, kinds[k]});
      if (kinds[k] == kind::permanent) break;
      if (set.checkpoint > 0) kept = at / set.checkpoint * set.checkpoint;
    }
  }
  return failures;
}

// The speed of a job on these GPUs.
inline std::uint32_t speed_of(const place_speeds& speeds, const job_cluster& cluster,
                              const apiary::job_placement& where) {
  if (where.size() == 1) {
    const std::uint32_t gpus = where.front().gpu_mask;
    if ((gpus & (gpus - 1)) == 0) return apiary::full_speed;
    const int first = std::countr_zero(gpus) / 4 * 4;
    return (gpus >> first) <= 0xf ? speeds.nvlink : speeds.node;
  }
  const auto rack = [&](const apiary::placement& p) {
    return p.node.value / cluster.nodes_per_rack();
  };
  const bool together = std::all_of(where.begin(), where.end(), [&](const apiary::placement& p) {
    return rack(p) == rack(where.front());
  });
  return together ? speeds.rack : speeds.across;
}

// An event as a line of CSV: time in ms, event, job, server that failed or was repaired, GPUs of the job,
// its speed, its place (servers and their GPUs, as 3:0-1;4:2; where it stopped, if it stops), and for a
// job_failure, whether the job is retried.
inline constexpr const char* event_header = "time,event,job,server,gpus,speed,place,retried\n";
inline std::string event_line(const apiary::simulation_event& e,
                              const apiary::job_placement& where) {
  static constexpr std::array<const char*, 11> kinds{
      "arrival", "start",     "suspension", "end",          "breakdown",  "failure",
      "repair",  "migration", "resize",     "speed_change", "job_failure"};
  const auto id = [](auto i) { return i.valid() ? std::to_string(i.value) : std::string(); };
  std::string line = std::to_string(e.at) + "," + kinds[static_cast<std::size_t>(e.what)] + "," +
                     id(e.job) + "," + id(e.node) + "," + std::to_string(e.gpus) + "," +
                     std::to_string(e.speed) + ",";
  for (const apiary::placement& p : where) {
    line += (&p == where.data() ? "" : ";") + std::to_string(p.node.value);
    char before = ':';
    for (std::uint32_t mask = p.gpu_mask; mask != 0; mask &= mask - 1) {
      line += before + std::to_string(std::countr_zero(mask));
      before = '-';
    }
  }
  line += ",";
  if (e.what == apiary::simulation_event::kind::job_failure) line += e.retried ? "yes" : "no";
  return line + "\n";
}

// What one policy came to.
struct policy_run {
  std::string policy;
  apiary::job_metrics metrics{};
  std::uint64_t log = 0;                      // digest of all events
  std::vector<apiary::time_ms> completion{};  // of the jobs that ended, ascending
  gpu_picture picture;
  std::vector<apiary::simulation_result::job_record> jobs{};  // if run_settings::keeps_jobs
  std::string events{};                                       // if run_settings::keeps_events
};

// Runs the jobs under a policy of job_policies or more_policies; calls progress(jobs that have ended
// or were given up) now and then.
// Requires: jobs that fit into the cluster, numbered by arrival.
inline absl::StatusOr<policy_run> run_policy(std::string_view policy, const job_cluster& cluster,
                                             apiary::job_list list,
                                             const std::function<void(std::size_t)>& progress,
                                             const run_settings& set = {}) {
  using apiary::batch_options;
  using apiary::batch_queue;
  const std::vector<std::uint32_t> quotas =
      set.quotas.empty() ? quotas_of(list, cluster.gpus()) : set.quotas;
  const std::vector<apiary::outage> outages = outages_of(set, cluster, list);
  policy_run out{.policy = std::string(policy),
                 .picture = gpu_picture(cluster.nodes, cluster.gpus_per_node, colors_of(list))};
  const auto run = [&](auto scheduler) -> absl::Status {
    watched watch(std::move(scheduler), list.jobs, out.picture);
    std::size_t ended = 0;
    APIARY_ASSIGN_OR_RETURN(
        const apiary::simulation_result done,
        simulate(
            watch, list.jobs, outages,
            {.start_cost = set.start_cost,
             .checkpoint_interval = set.checkpoint,
             .migration_cost = set.migration_cost,
             .servers = cluster.servers().gpus,
             .failures = job_failures_of(set, list),
             .max_retries = set.retries},
            [&](const apiary::timed_job&, const apiary::job_placement& at) {
              return speed_of(set.speeds, cluster, at);
            },
            [&](const apiary::simulation_event& e, const apiary::job_placement& where) {
              if (set.keeps_events) out.events += event_line(e, where);
              using kind = apiary::simulation_event::kind;
              if (e.what == kind::end || (e.what == kind::job_failure && !e.retried))
                progress(++ended);
            }));
    out.metrics = metrics_of(done, list.jobs);
    out.log = done.log.value();
    for (std::size_t j = 0; j < list.jobs.size(); ++j) {
      if (done.jobs[j].ended != apiary::max_time && !done.jobs[j].given_up)
        out.completion.push_back(done.jobs[j].ended - list.jobs[j].arrival);
    }
    std::sort(out.completion.begin(), out.completion.end());
    if (set.keeps_jobs) out.jobs = done.jobs;
    return absl::OkStatus();
  };
  // Of the queues that suspend by attained service.
  const apiary::time_ms quantum = set.quantum == 0 ? 600'000 : set.quantum;
  // Gandiva by its published rule: slices of a minute, jobs share time, waits have no bound. A
  // migration has a cost.
  const apiary::time_ms minute = set.quantum == 0 ? 60'000 : set.quantum;
  apiary::time_sharing_options slices{.quantum = minute,
                                      .migrations = {.jobs = 4, .cost = 100},
                                      .max_wait = 0,
                                      .shares_gpu_time = false};
  const apiary::gandiva_options of_gandiva{.servers = cluster.servers(),
                                           .quantum = minute,
                                           .migrates = true,
                                           .migration_cost = set.migration_cost};
  if (set.bounded_gandiva)  // the defaults of the library
    slices = {.quantum = quantum, .migrations = slices.migrations};
  absl::Status status;
  const apiary::philly_options by_quota{
      .servers = cluster.servers(), .quotas = quotas, .max_retries = set.retries};
  if (policy == "philly") {
    APIARY_ASSIGN_OR_RETURN(auto made, apiary::philly::create(by_quota));
    status = run(std::move(made));
  } else if (policy == "gandiva") {
    APIARY_ASSIGN_OR_RETURN(auto made, apiary::gandiva::create(of_gandiva));
    status = run(std::move(made));
  } else if (policy == "gandiva_fgd") {
    using placer = apiary::gpu_sharing_placer<apiary::fragmentation_gradient>;
    const apiary::server_spec servers = cluster.servers();
    const apiary::fragmentation metric(typical_tasks(list, cluster));
    APIARY_ASSIGN_OR_RETURN(auto below,
                            placer::create(servers, apiary::fragmentation_gradient(metric)));
    APIARY_ASSIGN_OR_RETURN(
        auto made, apiary::gandiva_fgd::create({std::move(below), servers, metric}, slices));
    status = run(std::move(made));
  } else if (policy == "gandiva_hived") {
    APIARY_ASSIGN_OR_RETURN(auto below,
                            apiary::hived_placer::create(cells_of(cluster, quotas), true));
    APIARY_ASSIGN_OR_RETURN(auto made, apiary::gandiva_hived::create(std::move(below), slices));
    status = run(std::move(made));
  } else if (policy == "gang" || policy == "gang_backfill") {
    APIARY_ASSIGN_OR_RETURN(auto made, apiary::gang_scheduler::create(gang_cluster_of(cluster)));
    status = run(apiary::gang_queue(
        std::move(made), {.backfill = policy == "gang_backfill", .demands = number_demands(list)}));
  } else if (policy == "hived") {
    APIARY_ASSIGN_OR_RETURN(auto made, apiary::hived_queue::create(cells_of(cluster, quotas)));
    status = run(std::move(made));
  } else {
    APIARY_ASSIGN_OR_RETURN(auto made, placer_for(cluster, list));
    using rules = batch_options::rules;
    using apiary::preemptive_options;
    using apiary::preemptive_queue;
    if (policy == "conservative") {
      status = run(apiary::conservative_queue(std::move(made), {.depth = set.depth}));
    } else if (policy == "srtf") {
      status = run(
          preemptive_queue(std::move(made), {.rule = preemptive_options::rules::shortest_remaining,
                                             .checkpoint_interval = set.checkpoint}));
    } else if (policy == "las") {
      status = run(preemptive_queue(std::move(made), {.quantum = quantum}));
    } else if (policy == "tiresias") {  // two thresholds: 1 and 10 GPU-hours
      status = run(preemptive_queue(std::move(made),
                                    {.quantum = quantum, .thresholds = {3'600'000, 36'000'000}}));
    } else if (policy == "bounded") {
      status =
          run(apiary::bounded_wait_queue(std::move(made), {.quantum = quantum, .slice = quantum}));
    } else if (policy == "bounded_srtf") {
      status = run(apiary::bounded_wait_queue(
          std::move(made), {.order = apiary::bounded_wait_options::orders::remaining,
                            .quantum = quantum,
                            .slice = quantum,
                            .checkpoint_interval = set.checkpoint}));
    } else if (policy == "qssf") {
      status = run(batch_queue(
          std::move(made), {.rule = rules::backfill, .order = batch_options::orders::gpu_time}));
    } else {
      const rules rule = policy == "fifo"       ? rules::fifo
                         : policy == "backfill" ? rules::backfill
                         : policy == "easy"     ? rules::easy
                                                : rules::easy_gpus;
      status = run(batch_queue(std::move(made), {.rule = rule}));
    }
  }
  APIARY_RETURN_IF_ERROR(status);
  return out;
}

}  // namespace example
