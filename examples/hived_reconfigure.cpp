// How do gangs survive a change of the configuration, or a restart of the scheduler? All gangs
// keep running. They keep their tenant's cells if the new configuration has them.
// SPDX-License-Identifier: MIT
#include "hived_drawing.h"
#include <apiary/core/ids.h>
#include <apiary/hived/config.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/request.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

using namespace apiary;

namespace {

// One node for product, the given number for research.
hived_config cluster(const std::vector<std::string>& nodes, std::uint32_t research) {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}};
  for (const std::string& node : nodes)
    config.physical_cells.push_back({.type = "NODE", .address = node});
  config.virtual_clusters = {{.name = "research", .cells = {{"NODE", research}}},
                             {.name = "product", .cells = {{"NODE", 1}}}};
  return config;
}

void start(hived& scheduler, const gang_request& gang) {
  const gang_plan plan = scheduler.propose(gang).value();
  if (plan.result != plan_result::bind || !scheduler.commit(plan).ok())
    std::printf("gang %u does not run\n", gang.job.value);
}

std::string list(const std::vector<job_id>& jobs) {
  std::string text;
  for (const job_id job : jobs) text += " " + std::to_string(job.value);
  return text.empty() ? " none" : text;
}

}  // namespace

int main() {
  hived scheduler = hived::create(cluster({"n0", "n1", "n2", "n3"}, 3)).value();
  const tenant_id research = scheduler.layout().find_tenant("research").value();
  const tenant_id product = scheduler.layout().find_tenant("product").value();
  start(scheduler, {.job = job_id(1), .tenant = research, .groups = {{.tasks = 1, .gpus = 4}}});
  start(scheduler,
        {.job = job_id(2), .tenant = research, .priority = 5, .groups = {{.tasks = 1, .gpus = 4}}});
  start(scheduler, {.job = job_id(3), .tenant = research, .groups = {{.tasks = 2, .gpus = 2}}});
  start(scheduler, {.job = job_id(4), .tenant = product, .groups = {{.tasks = 1, .gpus = 2}}});
  std::printf("%s\n", example::draw(scheduler).c_str());

  // Node n0 is removed, n4 is added, and the quota of research falls from three nodes to one.
  const hived_config next = cluster({"n1", "n2", "n3", "n4"}, 1);
  const hived_reconfiguration report = scheduler.reconfigure(next).value();
  std::printf("gone:%s; downgraded:%s\n%s\n", list(report.gone).c_str(),
              list(report.downgraded).c_str(), example::draw(scheduler).c_str());

  // Gang 5 preempts gang 4. A host stores the configuration and, after each change, a snapshot. After
  // a restart it restores both, and gang 5 still waits for the end of gang 4.
  const gang_request urgent{
      .job = job_id(5), .tenant = product, .priority = 7, .groups = {{.tasks = 1, .gpus = 4}}};
  const gang_plan plan = scheduler.propose(urgent).value();
  if (plan.result != plan_result::preempt || !scheduler.commit(plan).ok()) return 1;
  const std::string stored = scheduler.snapshot();
  hived restarted = hived::create(next).value();
  if (!restarted.restore(stored).ok()) return 1;
  std::printf("after a restart the cluster %s\n",
              restarted.hash() == scheduler.hash() ? "is the same" : "differs");
  if (!restarted.finish(job_id(4)).ok()) return 1;
  start(restarted, urgent);
  std::printf("gang 5 %s\n",
              restarted.find(urgent.job)->state == gang_state::allocated ? "runs" : "waits");
}
