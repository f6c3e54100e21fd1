// What is lazy preemption? A gang of lower priority loses its tenant's cell, but keeps its GPUs
// and keeps running as opportunistic. If the preemptor is cancelled, the gang gets its cell back.
// SPDX-License-Identifier: MIT
#include "hived_drawing.h"
#include <apiary/core/ids.h>
#include <apiary/hived/config.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/request.h>

#include <cstdio>
#include <string>
#include <vector>

using namespace apiary;

namespace {

// Two nodes with four GPUs, one for each tenant.
hived_config cluster() {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}};
  config.physical_cells = {{.type = "NODE", .address = "n0"}, {.type = "NODE", .address = "n1"}};
  config.virtual_clusters = {{.name = "research", .cells = {{"NODE", 1}}},
                             {.name = "product", .cells = {{"NODE", 1}}}};
  return config;
}

std::string list(const std::vector<job_id>& jobs) {
  std::string text;
  for (const job_id job : jobs) text += " " + std::to_string(job.value);
  return text.empty() ? " none" : text;
}

void submit(hived& scheduler, const gang_request& gang) {
  const gang_plan plan = scheduler.propose(gang).value();
  if (plan.result == plan_result::wait || !scheduler.commit(plan).ok()) return;
  std::printf("gang %u %s; victims:%s; downgraded:%s\n", gang.job.value,
              plan.result == plan_result::bind ? "runs" : "preempts", list(plan.victims).c_str(),
              list(plan.downgraded).c_str());
}

}  // namespace

int main() {
  hived scheduler = hived::create(cluster()).value();
  const tenant_id research = scheduler.layout().find_tenant("research").value();
  const tenant_id product = scheduler.layout().find_tenant("product").value();
  const std::vector<task_group> one_node{{.tasks = 1, .gpus = 4}};

  // A gang of product uses n0 until research runs on n1. Then an opportunistic gang uses n0.
  const gang_request first{.job = job_id(3), .tenant = product, .groups = one_node};
  const gang_request low{
      .job = job_id(1), .tenant = research, .priority = 1, .groups = one_node, .lazy = true};
  const gang_request opportunistic{.job = job_id(0),
                                   .tenant = product,
                                   .priority = gang_request::opportunistic_priority,
                                   .groups = one_node};
  const gang_request high{.job = job_id(2), .tenant = research, .priority = 9, .groups = one_node};
  submit(scheduler, first);
  submit(scheduler, low);
  if (!scheduler.finish(first.job).ok()) return 1;
  submit(scheduler, opportunistic);
  submit(scheduler, high);
  std::printf("%s", example::draw(scheduler).c_str());

  if (!scheduler.cancel(high.job).ok()) return 1;
  std::printf("gang 2 is cancelled before its victim has ended\n%s",
              example::draw(scheduler).c_str());

  if (!scheduler.finish(opportunistic.job).ok()) return 1;
  submit(scheduler, high);
  std::printf("%s", example::draw(scheduler).c_str());
}
