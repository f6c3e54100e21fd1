// Does this gang fit in my cluster under these constraints; if not, why, what would help, and which
// gangs would have to be preempted?
// SPDX-License-Identifier: MIT
#include <apiary/gang_scheduler/gang_scheduler.h>

#include <cstdio>
#include <string>

using namespace apiary;

namespace {

// Two racks of four nodes of eight GPUs: V100 in rack r1, H100 and a fast network in rack r2.
gang_cluster inventory() {
  gang_cluster all{.levels = {"rack"}};
  const gang_cluster::node v100{.cells = {"r1"},
                                .gpus = 8,
                                .host = {.cpu_milli = 64'000, .memory_mib = 512'000},
                                .model = "v100"};
  const gang_cluster::node h100{.cells = {"r2"},
                                .gpus = 8,
                                .host = {.cpu_milli = 96'000, .memory_mib = 1'024'000},
                                .model = "h100",
                                .labels = {"network=fast"}};
  for (int n = 1; n <= 8; ++n) {
    all.nodes.push_back(n <= 4 ? v100 : h100);
    all.nodes.back().name = "n" + std::to_string(n);
  }
  return all;
}

// The whole question.
void ask(gang_scheduler& cluster, const gang_scheduler::request& gang) {
  const auto answer = cluster.explain(gang);
  std::printf("%s\n", answer.ok() ? answer->text.c_str() : answer.status().ToString().c_str());
}
// What a host does with the answer.
void run(gang_scheduler& cluster, const gang_scheduler::request& gang) {
  const auto plan = cluster.propose(gang);
  if (!plan.ok() || !cluster.commit(*plan).ok()) std::printf("%s waits\n", gang.job.text().c_str());
}

}  // namespace

int main() {
  gang_scheduler cluster = gang_scheduler::create(inventory()).value();
  gang_scheduler::request gang{.job = "train", .priority = 10};
  gang.gang.groups = {{.tasks = 4, .gpus = 8}};
  gang.gang.required = cluster.find_level("rack").value();
  ask(cluster, gang);

  // Small jobs of low priority fill some nodes; a failed node is in rack r1.
  for (const unsigned small : {1U, 2U, 3U}) {
    gang_scheduler::request job{.job = small, .priority = small < 3 ? 0 : 20};
    job.gang.groups = {{.tasks = 1, .gpus = 4}};
    job.filter.nodes = {small == 1 ? "n5" : small == 2 ? "n7" : "n2"};
    run(cluster, job);
  }
  cluster.mark_bad(cluster.find_node("n3").value()).IgnoreError();
  ask(cluster, gang);
  gang.priority = 0;
  ask(cluster, gang);
  gang.filter.models = {"v100"};
  ask(cluster, gang);
  gang.filter = {.labels = {"network=slow"}};
  ask(cluster, gang);

  // What if job 1 had ended?
  gang.filter = {};
  cluster.what_if([&](gang_scheduler& trial) {
    trial.finish(1).IgnoreError();
    ask(trial, gang);
  });
  gang.gang.groups = {{.tasks = 5, .gpus = 8}};
  ask(cluster, gang);
}
