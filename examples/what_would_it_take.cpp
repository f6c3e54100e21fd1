// Which nodes would have to be free, or repaired, so that a waiting gang fits? The answer is tried
// on the scheduler, to see whether the next gang in the queue still fits, and rolled back. In the
// same way three placements of a gang are compared: which one leaves the most useful GPUs free?
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/gang_scheduler.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>

using namespace apiary;

namespace {

void print_free(const char* when, const gang_scheduler& cluster) {
  std::printf("%-14s", when);
  const auto nodes = cluster.free_capacity(0);
  for (std::size_t n = 0; n < nodes->size(); ++n)
    std::printf("%s%u", n % 4 == 0 ? " | " : " ", static_cast<unsigned>((*nodes)[n].free_gpus));
  std::printf("\n");
}
bool start(gang_scheduler& cluster, const gang_scheduler::request& gang) {
  const auto plan = cluster.propose(gang);
  return plan.ok() && plan->result == plan_result::bind && cluster.commit(*plan).ok();
}

bool free_some_nodes() {
  // Three racks of four nodes of eight GPUs. Small jobs run, and n10 is bad.
  gang_cluster inventory{.levels = {"rack"}};
  for (int n = 1; n <= 12; ++n)
    inventory.nodes.push_back({.name = "n" + std::to_string(n),
                               .cells = {n <= 4   ? "east"
                                         : n <= 8 ? "west"
                                                  : "south"},
                               .gpus = 8});
  gang_scheduler cluster = gang_scheduler::create(inventory).value();
  constexpr std::uint32_t free[] = {8, 0, 0, 6, 8, 4, 2, 0, 8, 8, 8, 0};
  for (std::uint32_t n = 0; n < 12; ++n) {
    if (free[n] == 8) continue;
    const placement where{node_id(n), (std::uint32_t{1} << (8 - free[n])) - 1};
    const gang_scheduler::request running{.job = n,
                                          .gang = {.groups = {{.tasks = 1, .gpus = 8 - free[n]}}}};
    if (!cluster.recover(running, {&where, 1}).ok()) return false;
  }
  if (!cluster.mark_bad(cluster.find_node("n10").value()).ok()) return false;
  print_free("free", cluster);

  gang_scheduler::request gang{.job = "train"};
  gang.gang.groups = {{.tasks = 3, .gpus = 8}};
  gang.gang.required = cluster.find_level("rack").value();
  gang_scheduler::request next{.job = "next"};
  next.gang.groups = {{.tasks = 4, .gpus = 4}};
  next.gang.required = gang.gang.required;

  const auto answer = cluster.explain(gang);
  if (!answer.ok()) return false;
  std::printf("%s\n", answer->text.c_str());

  cluster.what_if([&](gang_scheduler& trial) {
    for (const node_id n : answer->nodes_to_free) {
      for (const job_key& job : trial.jobs_on(n)) trial.finish(job).IgnoreError();
      trial.mark_healthy(n).IgnoreError();
    }
    if (!start(trial, gang)) std::printf("job train does not fit\n");
    print_free("with the gang", trial);
    std::printf("the next gang then %s\n", start(trial, next) ? "fits" : "waits");
  });
  print_free("rolled back", cluster);
  std::printf("the next gang without it %s\n", start(cluster, next) ? "fits" : "waits");
  return true;
}

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

bool compare_placements() {
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
    if (!cluster.commit(cluster.propose(job).value()).ok()) return false;
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
  return true;
}

}  // namespace

int main() { return free_some_nodes() && compare_placements() ? 0 : 1; }
