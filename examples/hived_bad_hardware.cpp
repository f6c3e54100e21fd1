// GPUs and nodes break. Running gangs run on, new gangs avoid what is bad, and a gang that waits
// gets the reason. Doomed cells are those that can only be bound to bad hardware.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/hived/chain_layout.h>
#include <apiary/hived/config.h>
#include <apiary/hived/draw.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/request.h>

#include <cstdint>
#include <cstdio>

using namespace apiary;

namespace {

// Four nodes with four GPUs; the tenant owns three of them.
hived_config cluster() {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}, {"RACK", "NODE", 4}};
  config.physical_cells = {
      {.type = "RACK",
       .children = {{.address = "n0"}, {.address = "n1"}, {.address = "n2"}, {.address = "n3"}}}};
  config.virtual_clusters = {{.name = "research", .cells = {{"RACK.NODE", 3}}}};
  return config;
}

const char* name(wait_reason reason) {
  switch (reason) {
    case wait_reason::never:
      return "it is larger than all it may use";
    case wait_reason::busy:
      return "others are in the way";
    case wait_reason::unhealthy:
      return "hardware is bad";
    case wait_reason::not_suggested:
      return "the nodes that would do are not suggested";
    case wait_reason::undecided:
      return "the search was given up";
  }
  return "";
}

// Asks for a gang of whole nodes.
bool ask(hived& scheduler, std::uint32_t job, std::uint32_t nodes) {
  const auto plan =
      scheduler.propose({.job = job_id(job), .tenant = tenant_id(0), .groups = {{nodes, 4}}});
  if (!plan.ok()) return false;
  const bool waits = plan->result == plan_result::wait;
  std::printf("gang %u of %u nodes %s%s\n", job, nodes, waits ? "waits: " : "runs",
              waits ? name(plan->wait.reason) : "");
  return waits || scheduler.commit(*plan).ok();
}

bool show_doomed(const hived& scheduler) {
  const level_t node_level = scheduler.layout().chains[0].node_level;
  const auto doomed = scheduler.doomed(tenant_id(0), chain_id(0), node_level);
  if (doomed.ok()) std::printf("doomed nodes: %u\n", *doomed);
  return doomed.ok();
}

}  // namespace

int main() {
  auto scheduler = hived::create(cluster());
  if (!scheduler.ok() || !ask(*scheduler, 0, 1)) return 1;

  // A GPU under gang 0 breaks, and a whole node.
  const auto n0 = scheduler->layout().find_node("n0");
  const auto n1 = scheduler->layout().find_node("n1");
  if (!n0 || !n1 || !scheduler->mark_bad(*n0, 2).ok() || !scheduler->mark_bad(*n1).ok()) return 1;
  if (!show_doomed(*scheduler) || !ask(*scheduler, 1, 1)) return 1;
  std::printf("%s\n", draw(*scheduler).c_str());
  if (!scheduler->finish(job_id(0)).ok() || !show_doomed(*scheduler)) return 1;
  if (!ask(*scheduler, 2, 2) || !ask(*scheduler, 3, 3)) return 1;
  if (!scheduler->mark_healthy(*n1).ok() || !show_doomed(*scheduler)) return 1;
  return ask(*scheduler, 2, 2) ? 0 : 1;
}
