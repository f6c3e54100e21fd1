// Which nodes would have to be free, or repaired, so that a waiting gang fits? The answer is tried
// on the scheduler, to see whether the next gang in the queue still fits, and rolled back.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/gang_scheduler.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>

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

}  // namespace

int main() {
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
    if (!cluster.recover(running, {&where, 1}).ok()) return 1;
  }
  if (!cluster.mark_bad(cluster.find_node("n10").value()).ok()) return 1;
  print_free("free", cluster);

  gang_scheduler::request gang{.job = "train"};
  gang.gang.groups = {{.tasks = 3, .gpus = 8}};
  gang.gang.required = cluster.find_level("rack").value();
  gang_scheduler::request next{.job = "next"};
  next.gang.groups = {{.tasks = 4, .gpus = 4}};
  next.gang.required = gang.gang.required;

  const auto answer = cluster.explain(gang);
  if (!answer.ok()) return 1;
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
}
