// Which running gangs must end so that a new gang fits? The fewest of the lowest priority class,
// with a proof that no other set costs less. Then one gang is protected, and a tenant gets a
// disruption budget.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/gang_scheduler.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

using namespace apiary;

namespace {

constexpr tenant_id research(0);
constexpr tenant_id products(1);

// Starts a gang of one task on each of these nodes.
void run(gang_scheduler& cluster, const std::string& job, tenant_id tenant, std::int32_t priority,
         time_ms started, const std::vector<std::string>& nodes, std::uint32_t gpus) {
  gang_scheduler::request r{.job = job, .tenant = tenant, .priority = priority};
  const auto tasks = static_cast<std::uint32_t>(nodes.size());
  r.gang.groups = {{.tasks = tasks, .gpus = gpus, .spread = {{0, 1}}}};
  r.filter.nodes = nodes;
  const auto plan = cluster.propose(r, started);
  if (!plan.ok() || !cluster.commit(*plan).ok()) std::printf("%s does not run\n", job.c_str());
}
void ask(const char* what, gang_scheduler& cluster) {
  gang_scheduler::request gang{.job = "train", .priority = 9};
  gang.gang.groups = {{.tasks = 2, .gpus = 8}};
  const auto answer = cluster.explain(gang, 1'000);
  std::printf("%s:\n  %s\n", what, answer.ok() ? answer->text.c_str() : "wrong request");
}

}  // namespace

int main() {
  // Six nodes of eight GPUs. Ten small gangs of research fill n1 and n2, and two large ones of
  // products the others; "old" has run for longer than "new".
  gang_cluster inventory;
  for (int n = 1; n <= 6; ++n)
    inventory.nodes.push_back({.name = "n" + std::to_string(n), .gpus = 8});
  gang_scheduler cluster = gang_scheduler::create(inventory).value();
  for (int i = 0; i < 10; ++i)
    run(cluster, "s" + std::to_string(i), research, 1, 900, {i < 5 ? "n1" : "n2"},
        i % 5 < 3 ? 2 : 1);
  run(cluster, "old", products, 1, 100, {"n3", "n4"}, 8);
  run(cluster, "new", products, 1, 600, {"n5", "n6"}, 8);
  ask("all of one class", cluster);

  // A trial is rolled back at its end.
  cluster.what_if([](gang_scheduler& trial) {
    trial.finish("new").IgnoreError();
    run(trial, "new", products, 2, 600, {"n5", "n6"}, 8);
    ask("new is of a higher class", trial);
    trial.finish("old").IgnoreError();
    run(trial, "old", products, 2, 100, {"n3", "n4"}, 8);
    ask("old and new are of a higher class", trial);
    trial.finish("s0").IgnoreError();
    run(trial, "s0", research, 9, 900, {"n1"}, 2);
    ask("s0 may not be preempted", trial);
  });
  cluster.set_disruption_budget(products, {.gangs = 0});
  ask("products may lose no gang", cluster);
  cluster.set_disruption_budget(research, {.gangs = 9});
  ask("nor research more than nine", cluster);
}
