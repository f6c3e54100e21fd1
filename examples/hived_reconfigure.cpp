// The configuration of the cluster changes, then the scheduler restarts. All gangs run on, and keep
// their tenant's cells if the new configuration has them.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/hived/config.h>
#include <apiary/hived/draw.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/queries.h>
#include <apiary/hived/request.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

using namespace apiary;

namespace {

hived_config cluster(const std::vector<std::string>& nodes, std::uint32_t research) {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}};
  for (const std::string& node : nodes)
    config.physical_cells.push_back({.type = "NODE", .address = node});
  config.virtual_clusters = {{.name = "research", .cells = {{"NODE", research}}},
                             {.name = "product", .cells = {{"NODE", 1}}}};
  return config;
}

bool start(hived& scheduler, const gang_request& gang) {
  const auto plan = scheduler.propose(gang);
  return plan.ok() && plan->result == plan_result::bind && scheduler.commit(*plan).ok();
}

std::string list(const std::vector<job_id>& jobs) {
  std::string text;
  for (const job_id job : jobs) text += " " + std::to_string(job.value);
  return text.empty() ? " none" : text;
}

}  // namespace

int main() {
  auto scheduler = hived::create(cluster({"n0", "n1", "n2", "n3"}, 3));
  if (!scheduler.ok()) return 1;
  const tenant_id research(0);
  const tenant_id product(1);
  if (!start(*scheduler, {.job = job_id(1), .tenant = research, .groups = {{1, 4}}}) ||
      !start(*scheduler,
             {.job = job_id(2), .tenant = research, .priority = 5, .groups = {{1, 4}}}) ||
      !start(*scheduler, {.job = job_id(3), .tenant = research, .groups = {{2, 2}}}) ||
      !start(*scheduler, {.job = job_id(4), .tenant = product, .groups = {{1, 2}}})) {
    return 1;
  }
  std::printf("%s\n", draw(*scheduler).c_str());

  // Node n0 is removed, n4 is added, and the quota of research falls from three nodes to one.
  const hived_config next = cluster({"n1", "n2", "n3", "n4"}, 1);
  const auto report = scheduler->reconfigure(next);
  if (!report.ok()) return 1;
  std::printf("gone:%s; lost their cells:%s\n%s\n", list(report->gone).c_str(),
              list(report->downgraded).c_str(), draw(*scheduler).c_str());

  // A host stores the request, the tasks and the whole-cell levels of each gang. After a restart it
  // calls recover, for gangs with such levels first.
  std::vector<std::tuple<gang_request, std::vector<task_place>, std::vector<level_t>>> kept;
  for (const gang_slot slot : scheduler->gangs().by_job()) {
    const gang_record& gang = scheduler->gangs()[slot];
    const std::vector<level_t> levels = whole_cell_levels(*scheduler, gang);
    kept.insert(levels.empty() ? kept.end() : kept.begin(),
                {gang.request, scheduler->tasks(gang), levels});
  }
  auto restarted = hived::create(next);
  if (!restarted.ok()) return 1;
  for (const auto& [request, tasks, levels] : kept)
    if (!restarted->recover(request, tasks, levels).ok()) return 1;
  std::printf("after a restart the %s\n",
              draw(*restarted) == draw(*scheduler) ? "same" : "cluster looks different");
}
