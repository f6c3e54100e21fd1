// How do I write a queue of my own? Weighted round robin over tenants, as an order of job_queue: on FGD, on
// HiveD and on the gang scheduler.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/fgd/gpu_sharing_placer.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_placer.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/hived_placer.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/job.h>
#include <apiary/model/job_scheduler.h>
#include <apiary/model/placer.h>
#include <apiary/model/request.h>
#include <apiary/queue/job_queue.h>
#include <apiary/queue/orders.h>
#include <apiary/queue/reservations.h>
#include <apiary/sim/simulate.h>
#include <apiary/sim/simulation_result.h>
#include <apiary/trace/job_list.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

using namespace apiary;

// A job comes after GPUs / weight of its tenant's jobs before it: a tenant of weight 2 gets two GPUs for
// each one of a tenant of weight 1, as long as both have jobs that wait. A tenant that had none begins
// where the others are.
struct weighted_tenants {
  std::map<tenant_id, std::int64_t> weight{};
  std::map<tenant_id, std::int64_t> next{};  // where each tenant's next job begins
  std::int64_t reached = 0;                  // the last position of a job that has started
  std::int64_t position(const job_request& r, time_ms) {
    std::int64_t& at = next[r.tenant];
    return at = std::max(at, reached) + r.gpus * 1000 / weight[r.tenant];
  }
  void started(std::int64_t position) { reached = std::max(reached, position); }
};
static_assert(JobOrder<weighted_tenants>);

template <JobPlacer P>
void run(const char* name, P placer, const std::vector<timed_job>& jobs) {
  const weighted_tenants order{{{tenant_id(0), 1}, {tenant_id(1), 3}}};
  job_queue queue(std::move(placer), order, first_fit());
  static_assert(JobScheduler<decltype(queue)>);
  const auto result = simulate(queue, jobs);
  if (!result.ok()) return;
  double wait[2] = {0, 0};
  for (std::size_t j = 0; j < jobs.size(); ++j)
    wait[jobs[j].request.tenant.value] +=
        static_cast<double>(result->jobs[j].waited.total()) / 12 / 60'000;
  std::printf("%-15s %5.1f min    %5.1f min\n", name, wait[0], wait[1]);
}

int main() {
  std::vector<timed_job> jobs;  // both tenants ask for more than half of the cluster at once
  for (std::uint32_t i = 0; i < 24; ++i)
    jobs.push_back({.request = {.job = job_id(i), .tenant = tenant_id(i % 2), .gpus = 2},
                    .duration = 600'000});
  hived_config cells;  // each tenant owns a server
  cells.cell_types = {{"SERVER", "GPU", 4, true}};
  cells.physical_cells = {{.type = "SERVER", .address = "0"}, {.type = "SERVER", .address = "1"}};
  cells.virtual_clusters = {{.name = "a", .cells = {{"SERVER", 1}}},
                            {.name = "b", .cells = {{"SERVER", 1}}}};
  const gang_cluster nodes{.nodes = {{.name = "0", .gpus = 4}, {.name = "1", .gpus = 4}}};
  const fragmentation_gradient fgd{
      fragmentation(task_mix({{{.gpus = 1, .gpu_milli = whole_gpu}, 1}}))};
  std::printf("mean wait of    weight 1     weight 3\n");
  run("FGD", gpu_sharing_placer<fragmentation_gradient>::create({.gpus = {4, 4}}, fgd).value(),
      jobs);
  run("HiveD", hived_placer::create(cells).value(), jobs);
  run("gang scheduler", gang_placer::create(nodes).value(), jobs);
}
