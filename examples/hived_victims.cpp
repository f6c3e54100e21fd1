// Which gang of a tenant ends for a gang of higher priority? By default the fewest gangs end, then
// those of the lowest priority, then the smallest. With a cost function of your own: here, the
// least work lost since the last checkpoint.
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
  std::uint64_t checkpoint = 0;  // minute of the last one, or of the start
};

}  // namespace

int main() {
  hived scheduler = hived::create(cluster()).value();
  const tenant_id research = scheduler.layout().find_tenant("research").value();
  std::map<job_id, run> runs;
  std::uint64_t now = 0;  // in minutes
  const auto lost = [&](job_id job) { return runs.at(job).gpus * (now - runs.at(job).checkpoint); };

  // Jobs 1 and 2 use a node each, job 3 half a node. Only job 2 has saved a checkpoint.
  for (const gang_request& gang :
       {gang_request{.job = job_id(1), .tenant = research, .groups = {{.tasks = 1, .gpus = 4}}},
        gang_request{.job = job_id(2),
        .tenant = research,
        .priority = 1,
        .groups = {{.tasks = 1, .gpus = 4}}},
        gang_request{.job = job_id(3), .tenant = research, .groups = {{.tasks = 1, .gpus = 2}}}}) {
    if (!scheduler.commit(scheduler.propose(gang).value()).ok()) return 1;
    runs[gang.job] = {.gpus = gang.groups[0].gpus, .checkpoint = now};
  }
  now = 90;
  runs[job_id(2)].checkpoint = 80;

  const gang_request urgent{
      .job = job_id(9), .tenant = research, .priority = 5, .groups = {{.tasks = 1, .gpus = 4}}};
  const auto show = [&](const char* cost) {
    const gang_plan plan = scheduler.propose(urgent).value();
    for (const job_id victim : plan.victims) {
      std::printf("%s: job %u ends, %llu GPU-minutes are lost\n", cost, victim.value,
                  static_cast<unsigned long long>(lost(victim)));
    }
  };
  show("fewest gangs, lowest priority, smallest");
  scheduler.set_victim_cost([&](const gang_record& gang) { return lost(gang.request.job); });
  show("least work lost");
}
