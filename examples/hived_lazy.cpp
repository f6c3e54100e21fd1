// Lazy preemption: a gang of lower priority loses its tenant's cell but keeps its GPUs and runs on
// as opportunistic. If the preemptor is cancelled, the gang gets its cell back.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/hived/config.h>
#include <apiary/hived/draw.h>
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

bool ask(hived& scheduler, const gang_request& gang) {
  const auto plan = scheduler.propose(gang);
  if (!plan.ok() || plan->result == plan_result::wait || !scheduler.commit(*plan).ok())
    return false;
  std::printf("gang %u %s; must end:%s; lose their cells:%s\n", gang.job.value,
              plan->result == plan_result::bind ? "runs" : "preempts", list(plan->victims).c_str(),
              list(plan->downgraded).c_str());
  return true;
}

}  // namespace

int main() {
  auto scheduler = hived::create(cluster());
  if (!scheduler.ok()) return 1;
  const auto research = scheduler->layout().find_tenant("research");
  const auto product = scheduler->layout().find_tenant("product");
  if (!research || !product) return 1;

  // A gang of product holds n0 until research runs on n1; then an opportunistic gang uses n0.
  const gang_request own{.job = job_id(3), .tenant = *product, .groups = {{1, 4}}};
  const gang_request guest{
      .job = job_id(0), .tenant = *product, .priority = opportunistic_priority, .groups = {{1, 4}}};
  const gang_request low{
      .job = job_id(1), .tenant = *research, .priority = 1, .groups = {{1, 4}}, .lazy = true};
  const gang_request high{.job = job_id(2), .tenant = *research, .priority = 9, .groups = {{1, 4}}};
  if (!ask(*scheduler, own) || !ask(*scheduler, low) || !scheduler->finish(own.job).ok() ||
      !ask(*scheduler, guest) || !ask(*scheduler, high)) {
    return 1;
  }
  std::printf("%s", draw(*scheduler).c_str());

  if (!scheduler->cancel(high.job).ok()) return 1;
  std::printf("gang 2 is withdrawn before the guest has ended\n%s", draw(*scheduler).c_str());

  if (!scheduler->finish(guest.job).ok() || !ask(*scheduler, high)) return 1;
  std::printf("%s", draw(*scheduler).c_str());
}
