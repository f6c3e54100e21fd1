// Two tenants own half of a cluster each. A quota counted in GPUs leaves a tenant GPUs scattered
// between the other tenant's jobs; a quota in cells gives it whole nodes whatever the other does.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/hived/config.h>
#include <apiary/hived/draw.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/request.h>

#include <array>
#include <cstdint>
#include <cstdio>

using namespace apiary;

namespace {

// Four nodes with four GPUs; each tenant owns two nodes.
hived_config cluster() {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}, {"RACK", "NODE", 4}};
  config.physical_cells = {
      {.type = "RACK",
       .children = {{.address = "n0"}, {.address = "n1"}, {.address = "n2"}, {.address = "n3"}}}};
  config.virtual_clusters = {{.name = "research", .cells = {{"RACK.NODE", 2}}},
                             {.name = "product", .cells = {{"RACK.NODE", 2}}}};
  return config;
}

// Whether the gang runs now.
bool start(hived& scheduler, const gang_request& gang) {
  const auto plan = scheduler.propose(gang);
  return plan.ok() && plan->result == plan_result::bind && scheduler.commit(*plan).ok();
}

}  // namespace

int main() {
  auto scheduler = hived::create(cluster());
  if (!scheduler.ok()) return 1;
  const auto research = scheduler->layout().find_tenant("research");
  const auto product = scheduler->layout().find_tenant("product");
  if (!research || !product) return 1;

  // Both tenants submit jobs of one GPU alternately until each uses its 8 GPUs. For comparison, a
  // scheduler that only counts GPUs takes the first node with a free one.
  std::array<std::uint32_t, 4> free{4, 4, 4, 4};
  std::array<std::uint32_t, 16> node_of{};
  for (std::uint32_t job = 0; job < 16; ++job) {
    const tenant_id tenant = job % 2 == 0 ? *research : *product;
    if (!start(*scheduler, {.job = job_id(job), .tenant = tenant, .groups = {{1, 1}}})) return 1;
    while (free[node_of[job]] == 0) ++node_of[job];
    --free[node_of[job]];
  }
  std::printf("%s\n", draw(*scheduler).c_str());

  // The jobs of research end, and it submits a gang of two tasks with four GPUs each.
  for (std::uint32_t job = 0; job < 16; job += 2) {
    if (!scheduler->finish(job_id(job)).ok()) return 1;
    ++free[node_of[job]];
  }
  std::printf("by number: %u %u %u %u GPUs are free on the nodes, and the gang waits\n", free[0],
              free[1], free[2], free[3]);
  const gang_request gang{.job = job_id(16), .tenant = *research, .groups = {{2, 4}}};
  std::printf("by cells: the gang %s\n", start(*scheduler, gang) ? "runs" : "waits");
  std::printf("%s", draw(*scheduler).c_str());
}
