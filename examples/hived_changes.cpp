// What happens to gangs of HiveD when hardware breaks, the configuration changes, or the scheduler
// restarts? They keep running. New gangs avoid bad hardware, and a gang that waits gets the reason;
// a cell of a tenant is doomed if only bad hardware is left for it. After a change of the
// configuration, gangs keep their tenant's cells if the new one has them.
// SPDX-License-Identifier: MIT
#include "hived_drawing.h"
#include <apiary/core/ids.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/model/plan.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

using namespace apiary;

namespace {

// Nodes of four GPUs in the given number for each tenant.
hived_config cluster(const std::vector<std::string>& nodes, std::uint32_t research,
                     std::uint32_t product) {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}};
  for (const std::string& node : nodes)
    config.physical_cells.push_back({.type = "NODE", .address = node});
  config.virtual_clusters = {{.name = "research", .cells = {{"NODE", research}}},
                             {.name = "product", .cells = {{"NODE", product}}}};
  return config;
}
constexpr tenant_id research(0);
constexpr tenant_id product(1);

void submit(hived& scheduler, const gang_request& gang) {
  const gang_plan plan = scheduler.propose(gang).value();
  const bool waits = plan.result == plan_result::wait;
  std::printf("gang %u %s%s\n", gang.job.value,
              waits                              ? "waits: "
              : plan.result == plan_result::bind ? "runs"
                                                 : "preempts",
              waits ? wait_reason_text(plan.wait.reason) : "");
  if (!waits && !scheduler.commit(plan).ok()) std::printf("stale plan\n");
}
gang_request whole_nodes(std::uint32_t job, std::uint32_t nodes) {
  return {.job = job_id(job), .tenant = research, .groups = {{.tasks = nodes, .gpus = 4}}};
}
void show_doomed(const hived& scheduler) {
  const level_t node = scheduler.layout().chains[0].node_level;
  std::printf("doomed nodes: %u\n", scheduler.doomed(research, chain_id(0), node).value());
}
std::string list(const std::vector<job_id>& jobs) {
  std::string text;
  for (const job_id job : jobs) text += " " + std::to_string(job.value);
  return text.empty() ? " none" : text;
}

// The tenant owns three of four nodes. A GPU of gang 0 breaks, and a whole node.
bool bad_hardware() {
  std::printf("-- bad hardware\n");
  hived scheduler = hived::create(cluster({"n0", "n1", "n2", "n3"}, 3, 0)).value();
  const node_id n0 = scheduler.layout().find_node("n0").value();
  const node_id n1 = scheduler.layout().find_node("n1").value();
  submit(scheduler, whole_nodes(0, 1));
  if (!scheduler.mark_bad(n0, 2).ok() || !scheduler.mark_bad(n1).ok()) return false;
  show_doomed(scheduler);
  submit(scheduler, whole_nodes(1, 1));
  std::printf("%s", example::draw(scheduler).c_str());

  if (!scheduler.finish(job_id(0)).ok()) return false;
  show_doomed(scheduler);
  submit(scheduler, whole_nodes(2, 2));
  submit(scheduler, whole_nodes(3, 3));
  if (!scheduler.mark_healthy(n1).ok()) return false;
  show_doomed(scheduler);
  submit(scheduler, whole_nodes(2, 2));
  return true;
}

bool another_configuration() {
  std::printf("-- another configuration\n");
  hived scheduler = hived::create(cluster({"n0", "n1", "n2", "n3"}, 3, 1)).value();
  submit(scheduler, whole_nodes(1, 1));
  submit(
      scheduler,
      {.job = job_id(2), .tenant = research, .priority = 5, .groups = {{.tasks = 1, .gpus = 4}}});
  submit(scheduler, {.job = job_id(3), .tenant = research, .groups = {{.tasks = 2, .gpus = 2}}});
  submit(scheduler, {.job = job_id(4), .tenant = product, .groups = {{.tasks = 1, .gpus = 2}}});
  std::printf("%s", example::draw(scheduler).c_str());

  // Node n0 is removed, n4 is added, and the quota of research falls from three nodes to one.
  const hived_config next = cluster({"n1", "n2", "n3", "n4"}, 1, 1);
  const hived_reconfiguration report = scheduler.reconfigure(next).value();
  std::printf("gone:%s; downgraded:%s\n%s", list(report.gone).c_str(),
              list(report.downgraded).c_str(), example::draw(scheduler).c_str());

  // Gang 5 preempts gang 4. A host stores the configuration and, after each change, a snapshot.
  // After a restart it restores both, and gang 5 still waits for the end of gang 4.
  const gang_request urgent{
      .job = job_id(5), .tenant = product, .priority = 7, .groups = {{.tasks = 1, .gpus = 4}}};
  submit(scheduler, urgent);
  const std::string stored = scheduler.snapshot();
  hived restarted = hived::create(next).value();
  if (!restarted.restore(stored).ok()) return false;
  std::printf("after a restart the cluster %s\n",
              restarted.hash() == scheduler.hash() ? "is the same" : "differs");
  if (!restarted.finish(job_id(4)).ok()) return false;
  submit(restarted, urgent);
  return true;
}

}  // namespace

int main() { return bad_hardware() && another_configuration() ? 0 : 1; }
