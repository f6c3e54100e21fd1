// Chooses which gang of a tenant ends for another one. By default: the fewest gangs, then the
// lowest priority, then the smallest. With a cost of your own: the least work lost since the last
// checkpoint.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/hived/config.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/request.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <vector>

using namespace apiary;

namespace {

// Three nodes with four GPUs; one tenant owns all of them.
hived_config cluster() {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}};
  for (const char* name : {"n0", "n1", "n2"})
    config.physical_cells.push_back({.type = "NODE", .address = name});
  config.virtual_clusters = {{.name = "research", .cells = {{"NODE", 3}}}};
  return config;
}

struct run {
  std::uint32_t gpus = 0;
  std::uint64_t saved_at = 0;  // minutes
};

}  // namespace

int main() {
  auto scheduler = hived::create(cluster());
  if (!scheduler.ok()) return 1;
  std::map<job_id, run> runs;
  std::uint64_t now = 0;
  const auto start = [&](std::uint32_t job, std::int32_t priority, std::vector<task_group> tasks) {
    std::uint32_t gpus = 0;
    for (const task_group& m : tasks) gpus += m.tasks * m.gpus;
    const auto plan = scheduler->propose({job_id(job), tenant_id(0), priority, tasks});
    if (!plan.ok() || !scheduler->commit(*plan).ok()) return false;
    runs[job_id(job)] = {gpus, now};
    return true;
  };
  // Jobs 1 and 2 use a node each, job 3 half of one. Only job 2 has saved a checkpoint, at minute 80.
  if (!start(1, 0, {{1, 4}}) || !start(2, 1, {{1, 4}}) || !start(3, 0, {{1, 2}})) return 1;
  now = 90;
  runs[job_id(2)].saved_at = 80;
  const auto show = [&](const char* rule) {
    const auto plan = scheduler->propose({job_id(9), tenant_id(0), 5, {{1, 4}}});
    std::printf("%s:", rule);
    if (!plan.ok()) return;
    for (const job_id victim : plan->victims) {
      const run& r = runs[victim];
      std::printf(" job %u ends, %llu GPU-minutes are lost", victim.value,
                  static_cast<unsigned long long>(r.gpus * (now - r.saved_at)));
    }
    std::printf("\n");
  };
  show("fewest, lowest, smallest");
  scheduler->set_victim_cost([&](const gang_record& gang) {
    const run& r = runs.at(gang.request.job);
    return r.gpus * (now - r.saved_at);
  });
  show("least work lost");
}
