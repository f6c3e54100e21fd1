// Opportunistic gangs use idle cells of any tenant. A tenant that needs its cells gets idle ones
// first; if there are none, an opportunistic gang is preempted as a whole.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/hived/config.h>
#include <apiary/hived/draw.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/request.h>

#include <cstdio>

using namespace apiary;

namespace {

// Three nodes of four GPUs for research, one for product.
hived_config cluster() {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}, {"RACK", "NODE", 4}};
  config.physical_cells = {
      {.type = "RACK",
       .children = {{.address = "n0"}, {.address = "n1"}, {.address = "n2"}, {.address = "n3"}}}};
  config.virtual_clusters = {{.name = "research", .cells = {{"RACK.NODE", 3}}},
                             {.name = "product", .cells = {{"RACK.NODE", 1}}}};
  return config;
}

// Proposes and commits: the gang runs, or its GPUs are reserved until the victims have ended.
bool ask(hived& scheduler, const gang_request& gang) {
  const auto plan = scheduler.propose(gang);
  if (!plan.ok()) return false;
  std::printf("gang %u", gang.job.value);
  if (plan->result == plan_result::wait) std::printf(" waits");
  if (plan->result == plan_result::bind) std::printf(" runs");
  if (plan->result == plan_result::preempt) std::printf(" preempts");
  for (const job_id victim : plan->victims) std::printf(" gang %u", victim.value);
  std::printf("\n");
  return plan->result == plan_result::wait || scheduler.commit(*plan).ok();
}

}  // namespace

int main() {
  auto scheduler = hived::create(cluster());
  if (!scheduler.ok()) return 1;
  const auto research = scheduler->layout().find_tenant("research");
  const auto product = scheduler->layout().find_tenant("product");
  if (!research || !product) return 1;

  // Product owns one node and uses two more as opportunistic.
  const gang_request guest{
      .job = job_id(0), .tenant = *product, .priority = opportunistic_priority, .groups = {{2, 4}}};
  const gang_request first{.job = job_id(1), .tenant = *research, .groups = {{1, 4}}};
  const gang_request second{.job = job_id(2), .tenant = *research, .groups = {{2, 4}}};
  if (!ask(*scheduler, guest) || !ask(*scheduler, first) || !ask(*scheduler, second)) return 1;
  std::printf("%s", draw(*scheduler).c_str());

  // The host ends the victim's tasks, calls finish, and proposes the same request again.
  if (!scheduler->finish(guest.job).ok() || !ask(*scheduler, second)) return 1;
  std::printf("%s", draw(*scheduler).c_str());
  return ask(*scheduler, guest) ? 0 : 1;
}
