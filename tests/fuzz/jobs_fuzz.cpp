// apiary/tests/fuzz/jobs_fuzz.cpp - whatever job lists the readers accept can be simulated.
// SPDX-License-Identifier: MIT
//
// The input is a list of jobs: the Standard Workload Format behind a first line "swf", or else rows
// with a header line. Of what is read, the first jobs that fit are run on eight servers of four
// GPUs through every queue, without and with broken servers; each must end them all, keep the GPUs'
// time, and explain every wait.
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/status.h>
#include <apiary/gandiva/gandiva.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/hived_queue.h>
#include <apiary/model/job.h>
#include <apiary/philly/philly.h>
#include <apiary/queue/conservative_queue.h>
#include <apiary/queue/policies.h>
#include <apiary/queue/server_placer.h>
#include <apiary/sim/simulate.h>
#include <apiary/sim/simulation_result.h>
#include <apiary/trace/job_list.h>
#include <apiary/trace/job_readers.h>
#include <apiary/trace/line_reader.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace apiary;

namespace {

constexpr std::size_t most_jobs = 64;

// A status that a user could act on: it says where.
void check_fault(const absl::Status& status) {
  APIARY_VERIFY(std::string(status.message()).starts_with("jobs:"));
  APIARY_VERIFY(status.code() == absl::StatusCode::kInvalidArgument ||
                status.code() == absl::StatusCode::kOutOfRange);
}

// Gandiva, with what it wants to know of the jobs that run.
struct measured_gandiva {
  gandiva inner;
  std::vector<job_id> jobs{};

  absl::Status submit(const job_request& r, time_ms t) {
    jobs.push_back(r.job);
    return inner.submit(r, t);
  }
  absl::Status finish(job_id j, time_ms t) {
    std::erase(jobs, j);
    return inner.finish(j, t);
  }
  absl::StatusOr<std::vector<job_id>> mark_bad(node_id n, time_ms t) {
    return inner.mark_bad(n, t);
  }
  absl::Status mark_healthy(node_id n, time_ms t) { return inner.mark_healthy(n, t); }
  absl::Status decide(time_ms t, std::vector<job_action>& actions) {
    for (const job_id j : jobs) {
      if (inner.find(j)->phase != gandiva::phase::run) continue;
      // Of some the packing pays, of others not.
      const std::uint64_t rate = inner.find(j)->beside.valid() && j.value % 3 == 0 ? 10 : 100;
      APIARY_VERIFY(inner.report(j, {j.value * 37 % 1001, j.value * 53 % 90, rate}, t).ok());
    }
    return inner.decide(t, actions);
  }
  time_ms wake() const { return inner.wake(); }
  std::uint32_t total_gpus() const { return inner.total_gpus(); }
};

// Eight nodes of four GPUs; every tenant owns whole nodes, and single GPUs for the rest.
hived_config cells_of(std::uint32_t tenants) {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}, {"RACK", "NODE", 8}};
  config.physical_cells = {{.type = "RACK"}};
  for (std::uint32_t n = 0; n < 8; ++n)
    config.physical_cells[0].children.push_back({.address = "n" + std::to_string(n)});
  for (std::uint32_t t = 0; t < tenants; ++t) {
    virtual_cluster_config owner{.name = "t" + std::to_string(t)};
    const std::uint32_t gpus = 32 / tenants;
    if (gpus >= 4) owner.cells.push_back({"RACK.NODE", gpus / 4});
    if (gpus % 4 > 0 && gpus < 4) owner.cells.push_back({"RACK.NODE.GPU", gpus % 4});
    config.virtual_clusters.push_back(std::move(owner));
  }
  return config;
}

template <class Scheduler>
void run(const absl::StatusOr<Scheduler>& fresh, const std::vector<timed_job>& jobs,
         const std::vector<outage>& outages) {
  APIARY_VERIFY(fresh.ok());
  Scheduler scheduler = *fresh;
  const absl::StatusOr<simulation_result> done = simulate(
      scheduler, jobs, outages, {.servers = std::vector<std::uint32_t>(8, 4)},
      [](const timed_job&, const job_placement&) { return full_speed; },
      [](const simulation_event&) {});
  APIARY_VERIFY(done.ok());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const simulation_result::job_record& r = done->jobs[i];
    APIARY_VERIFY(r.ended != max_time && r.started >= jobs[i].arrival);
    APIARY_VERIFY(r.ended - jobs[i].arrival == jobs[i].duration + r.waited.total() + r.lost);
  }
  const job_metrics m = metrics_of(*done, jobs);
  APIARY_VERIFY(m.ended == jobs.size() && m.unended == 0);
  APIARY_VERIFY(m.utilization >= 0 && m.utilization <= 1.0 + 1e-9);
  APIARY_VERIFY(m.fragmentation >= 0 && m.fragmentation <= 1.0 + 1e-9);
}
template <class Scheduler>
void run_both(const absl::StatusOr<Scheduler>& fresh, const std::vector<timed_job>& jobs,
              const std::vector<outage>& outages) {
  run(fresh, jobs, {});
  run(fresh, jobs, outages);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::string_view swf = "swf\n";
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<job_list> list = text.starts_with(swf)
                                            ? read_swf(line_reader("jobs", text.substr(swf.size())))
                                            : read_philly(line_reader("jobs", text));
  if (!list.ok()) {
    check_fault(list.status());
    return 0;
  }
  const server_spec servers{.gpus = std::vector<std::uint32_t>(8, 4), .servers_per_rack = 4};
  const auto tenants = static_cast<std::uint32_t>(std::min<std::size_t>(list->tenants.size(), 32));
  time_ms longest = 1;
  time_ms all = 0;
  std::vector<timed_job> jobs;
  for (const timed_job& job : list->jobs) {
    APIARY_VERIFY(job.request.tenant.value < list->tenants.size());
    APIARY_VERIFY(job.arrival >= (jobs.empty() ? 0 : jobs.back().arrival));
    APIARY_VERIFY(job.duration > 0 && job.duration <= job.request.estimate);
    if (job.request.gpus > 32 || job.request.tenant.value >= tenants) continue;
    if (jobs.size() == most_jobs) continue;
    jobs.push_back(job);
    jobs.back().request.max_gpus = job.request.gpus * (1 + jobs.back().request.job.value % 2);
    longest = std::max(longest, job.arrival + job.duration);
    all += job.duration;
  }
  job_list::number_by_arrival(jobs);
  const time_ms period = longest / 16 + 1;  // few periods, however long the jobs
  std::vector<outage> outages;
  for (std::uint32_t i = 0; i < 12; ++i)
    outages.push_back({node_id(i * 3 % 8), period * i, period * i + period / 2 + 1});

  const absl::StatusOr<server_placer> placer = server_placer::create(servers);
  APIARY_VERIFY(placer.ok());
  for (const batch_options::rules rule :
       {batch_options::rules::fifo, batch_options::rules::backfill, batch_options::rules::easy,
        batch_options::rules::easy_gpus})
    run_both<batch_queue<server_placer>>(batch_queue(*placer, {.rule = rule}), jobs, outages);
  run_both<conservative_queue<server_placer>>(conservative_queue(*placer), jobs, outages);
  for (const preemptive_options::rules rule :
       {preemptive_options::rules::least_attained, preemptive_options::rules::shortest_remaining}) {
    run_both<preemptive_queue<server_placer>>(
        preemptive_queue(*placer, {.rule = rule, .quantum = period}), jobs, outages);
  }
  for (const bounded_wait_options::orders order :
       {bounded_wait_options::orders::attained, bounded_wait_options::orders::remaining}) {
    run_both<bounded_wait_queue<server_placer>>(
        bounded_wait_queue(
            *placer, {.order = order, .quantum = period, .patience = 3 * period, .slice = period}),
        jobs, outages);
  }
  run_both(philly::create({.servers = servers,
                           .quotas = std::vector<std::uint32_t>(tenants, 32 / tenants),
                           .acquire_time = period,
                           .backoff_time = period}),
           jobs, outages);
  run_both(hived_queue::create(cells_of(tenants)), jobs, outages);
  // Gandiva counts no longer; what breakdowns undo is done once more for each at most.
  if (longest + 13 * all >= time_ms{1} << 43) return 0;
  run_both(gandiva::create({.servers = servers, .quantum = period}), jobs, outages);
  absl::StatusOr<gandiva> all_on = gandiva::create({.servers = servers,
                                                    .quantum = period,
                                                    .packs = true,
                                                    .gpu_memory = 100,
                                                    .migrates = true,
                                                    .migration_cost = period / 8,
                                                    .grows = true,
                                                    .idle_period = period / 2 + 1});
  APIARY_VERIFY(all_on.ok());
  run_both<measured_gandiva>(measured_gandiva{*std::move(all_on)}, jobs, outages);
  return 0;
}
