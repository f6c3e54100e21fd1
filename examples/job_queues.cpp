// How long do jobs wait under different schedulers? Fourteen jobs, in the Standard Workload
// Format, run on two servers with four GPUs each under ten schedulers.
// SPDX-License-Identifier: MIT
#include <apiary/gandiva/gandiva.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/hived_queue.h>
#include <apiary/philly/philly.h>
#include <apiary/queue/conservative_queue.h>
#include <apiary/queue/policies.h>
#include <apiary/queue/server_placer.h>
#include <apiary/sim/simulate.h>
#include <apiary/sim/simulation_result.h>
#include <apiary/trace/job_list.h>
#include <apiary/trace/job_readers.h>
#include <apiary/trace/line_reader.h>

#include <cstdio>

using namespace apiary;

namespace {

// Number, submitted, waited, ran, processors, -, -, requested, requested time, -, status, user, ...
constexpr const char* text = R"(; seconds
 1    0 0 3000 3 -1 -1 3 3600 -1 1 1 -1 -1 -1 -1 -1 -1
 2   10 0 2400 4 -1 -1 4 3000 -1 1 2 -1 -1 -1 -1 -1 -1
 3   60 0 1800 8 -1 -1 8 2400 -1 1 1 -1 -1 -1 -1 -1 -1
 4   90 0  300 1 -1 -1 1  600 -1 1 2 -1 -1 -1 -1 -1 -1
 5  120 0 4200 1 -1 -1 1 5400 -1 1 2 -1 -1 -1 -1 -1 -1
 6  300 0  600 2 -1 -1 2  900 -1 1 1 -1 -1 -1 -1 -1 -1
 7  400 0  240 1 -1 -1 1  300 -1 1 1 -1 -1 -1 -1 -1 -1
 8  900 0 1500 4 -1 -1 4 1800 -1 1 2 -1 -1 -1 -1 -1 -1
 9 1000 0  120 1 -1 -1 1  300 -1 1 1 -1 -1 -1 -1 -1 -1
10 1800 0  600 2 -1 -1 2  900 -1 1 2 -1 -1 -1 -1 -1 -1
11 2400 0  900 4 -1 -1 4 1200 -1 1 1 -1 -1 -1 -1 -1 -1
12 3000 0  300 1 -1 -1 1  600 -1 1 2 -1 -1 -1 -1 -1 -1
13 3600 0 1200 2 -1 -1 2 1800 -1 1 1 -1 -1 -1 -1 -1 -1
14 4000 0  180 1 -1 -1 1  300 -1 1 2 -1 -1 -1 -1 -1 -1
)";

template <JobScheduler Scheduler>
void show(const char* name, Scheduler scheduler, const job_list& list) {
  const absl::StatusOr<simulation_result> run = simulate(scheduler, list.jobs);
  if (!run.ok()) return;
  const job_metrics m = metrics_of(*run, list.jobs);
  const auto minutes = [](double ms) { return ms / 60'000; };
  std::printf("%-20s %6.1f %6.1f %6.1f %6.1f %5.1f %% %11llu\n", name, minutes(m.completion.mean),
              minutes(m.delay.mean), minutes(static_cast<double>(m.delay.max)),
              minutes(static_cast<double>(m.makespan)), 100 * m.utilization,
              static_cast<unsigned long long>(m.suspensions));
}

}  // namespace

int main() {
  const absl::StatusOr<job_list> list = read_swf(line_reader("jobs", text));
  const server_spec servers{.gpus = {4, 4}, .servers_per_rack = 2};
  const auto placer = server_placer::create(servers);
  const auto quotas = philly::create({.servers = servers, .quotas = {4, 4}});
  hived_config cells;  // each tenant owns a server
  cells.cell_types = {{"SERVER", "GPU", 4, true}};
  cells.physical_cells = {{.type = "SERVER", .address = "0"}, {.type = "SERVER", .address = "1"}};
  cells.virtual_clusters = {{.name = "1", .cells = {{"SERVER", 1}}},
                            {.name = "2", .cells = {{"SERVER", 1}}}};
  const auto guaranteed = hived_queue::create(cells);
  const auto time_slices = gandiva::create({.servers = servers});
  if (!list.ok() || !placer.ok() || !quotas.ok() || !guaranteed.ok() || !time_slices.ok()) return 1;
  std::printf("                       mean   mean    max   last\n");
  std::printf("minutes:             finish  delay  delay    end     use suspensions\n");
  show("FIFO", batch_queue(*placer, {.rule = batch_options::rules::fifo}), *list);
  show("backfill", batch_queue(*placer, {.rule = batch_options::rules::backfill}), *list);
  show("EASY", batch_queue(*placer, {.rule = batch_options::rules::easy}), *list);
  show("conservative", conservative_queue(*placer), *list);
  show("least attained", preemptive_queue(*placer, {.quantum = 600'000}), *list);
  show("shortest remaining",
       preemptive_queue(*placer, {.rule = preemptive_options::rules::shortest_remaining}), *list);
  show("bounded wait", bounded_wait_queue(*placer), *list);
  show("Philly", *quotas, *list);
  show("HiveD", *guaranteed, *list);
  show("Gandiva", *time_slices, *list);
}
