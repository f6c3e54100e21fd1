// Which placement of a gang leaves the most useful GPUs free? The gang is placed in three ways, each
// in a trial that is taken back.
// SPDX-License-Identifier: MIT
#include <apiary/gang_scheduler/gang_scheduler.h>

#include <cstdint>
#include <cstdio>
#include <set>
#include <string>

using namespace apiary;

namespace {

void try_placement(gang_scheduler& cluster, const char* name, const gang_scheduler::request& gang) {
  cluster.what_if([&](gang_scheduler& trial) {
    const auto plan = trial.propose(gang);
    if (!plan.ok() || plan->result != plan_result::bind || !trial.commit(*plan).ok()) {
      std::printf("%-16s does not fit\n", name);
      return;
    }
    std::set<std::string> nodes;
    std::set<std::string> racks;
    for (const placement& task : plan->tasks) {
      nodes.insert(trial.node(task.node)->name);
      racks.insert(trial.node(task.node)->cells[0]);
    }
    const level_t rack = trial.find_level("rack").value();
    std::uint32_t free_nodes = 0;
    std::uint32_t free_racks = 0;
    const auto capacity = trial.free_capacity(rack).value();
    for (const auto& r : capacity) {
      free_nodes += r.free_nodes;
      free_racks += r.free_nodes == r.nodes ? 1 : 0;
    }
    gang_scheduler::request next{.job = "next"};  // four whole nodes in a rack
    next.gang.groups = {{.tasks = 4, .gpus = 8}};
    next.gang.required = rack;
    const bool fits = trial.propose(next).value().result == plan_result::bind;
    std::printf("%-16s %5zu %5zu %11u %11u  %s\n", name, nodes.size(), racks.size(), free_nodes,
                free_racks, fits ? "yes" : "no");
  });
}

}  // namespace

int main() {
  // Three racks of four nodes of eight GPUs; the last rack is idle.
  gang_cluster inventory{.levels = {"rack"}};
  for (int n = 0; n < 12; ++n)
    inventory.nodes.push_back({.name = "n" + std::to_string(n + 1),
                               .cells = {"r" + std::to_string(n / 4 + 1)},
                               .gpus = 8});
  gang_scheduler cluster = gang_scheduler::create(inventory).value();
  constexpr std::uint32_t in_use[] = {4, 6, 4, 2, 6, 4, 4, 6};
  for (std::uint32_t n = 0; n < 8; ++n) {
    gang_scheduler::request job{.job = n};
    job.gang.groups = {{.tasks = 1, .gpus = in_use[n]}};
    job.filter.nodes = {"n" + std::to_string(n + 1)};
    if (!cluster.commit(cluster.propose(job).value()).ok()) return 1;
  }

  gang_scheduler::request gang{.job = "train"};
  gang.gang.groups = {{.tasks = 4, .gpus = 2}, {.tasks = 2, .gpus = 4}};
  std::printf("%-16s nodes racks  free nodes  free racks  next gang fits\n", "");
  try_placement(cluster, "anywhere", gang);
  const level_t rack = cluster.find_level("rack").value();
  gang.gang.preferred = rack;
  try_placement(cluster, "one rack", gang);
  gang.filter.nodes = {"n9", "n10", "n11", "n12"};
  try_placement(cluster, "the idle rack", gang);
  std::printf("jobs after the trials: %u\n", cluster.num_gangs());
}
