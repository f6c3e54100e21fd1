// Two tenants own half of a cluster each. As numbers of GPUs, what one of them leaves free lies in
// pieces between the other's jobs; as cells, a tenant's nodes are there whatever the other does.
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

// Four nodes of four GPUs, two nodes for each tenant.
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

  // Jobs of one GPU from both in turn, until each has the 8 GPUs that it may have. Beside HiveD a
  // scheduler that only counts: the first node with a free GPU.
  std::array<std::uint32_t, 4> free{4, 4, 4, 4};
  std::array<std::uint32_t, 16> node_of{};
  for (std::uint32_t job = 0; job < 16; ++job) {
    const tenant_id tenant = job % 2 == 0 ? *research : *product;
    if (!start(*scheduler, {.job = job_id(job), .tenant = tenant, .members = {{1, 1}}})) return 1;
    while (free[node_of[job]] == 0) ++node_of[job];
    --free[node_of[job]];
  }
  std::printf("%s\n", draw(*scheduler).c_str());

  // The jobs of research end. It comes again with two tasks of four GPUs, each within a node.
  for (std::uint32_t job = 0; job < 16; job += 2) {
    if (!scheduler->finish(job_id(job)).ok()) return 1;
    ++free[node_of[job]];
  }
  std::printf("by number: %u %u %u %u GPUs are free on the nodes, and the gang waits\n", free[0],
              free[1], free[2], free[3]);
  const gang_request gang{.job = job_id(16), .tenant = *research, .members = {{2, 4}}};
  std::printf("by cells: the gang %s\n", start(*scheduler, gang) ? "runs" : "waits");
  std::printf("%s", draw(*scheduler).c_str());
}
