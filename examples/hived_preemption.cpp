// Which gangs of HiveD give way to others, and how? Opportunistic gangs use idle cells of any
// tenant; when the owner needs its cells, it gets idle ones first, and else an opportunistic gang
// ends as a whole. Within a tenant, a gang of lower priority gives way: with lazy preemption it
// loses its tenant's cell, but keeps its GPUs and runs on as opportunistic. Which one it is, the
// fewest gangs or a cost of your own decides.
// SPDX-License-Identifier: MIT
#include "hived_drawing.h"
#include <apiary/core/ids.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

using namespace apiary;

namespace {

// Nodes of four GPUs; each tenant owns some of them.
hived cluster(std::uint32_t for_research, std::uint32_t for_product) {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 4, true}};
  for (std::uint32_t n = 0; n < for_research + for_product; ++n)
    config.physical_cells.push_back({.type = "NODE", .address = "n" + std::to_string(n)});
  config.virtual_clusters = {{.name = "research", .cells = {{"NODE", for_research}}},
                             {.name = "product", .cells = {{"NODE", for_product}}}};
  return hived::create(config).value();
}
constexpr tenant_id research(0);
constexpr tenant_id product(1);
const std::vector<task_group> one_node{{.tasks = 1, .gpus = 4}};
const std::vector<task_group> two_nodes{{.tasks = 2, .gpus = 4}};

void print(const char* what, const std::vector<job_id>& jobs) {
  if (jobs.empty()) return;
  std::printf("; %s:", what);
  for (const job_id job : jobs) std::printf(" %u", job.value);
}
// Proposes and commits. After `preempts`, the GPUs are reserved until the victims have ended.
void submit(hived& scheduler, const gang_request& gang) {
  const gang_plan plan = scheduler.propose(gang).value();
  const bool waits = plan.result == plan_result::wait;
  std::printf("gang %u %s", gang.job.value,
              waits                              ? "waits"
              : plan.result == plan_result::bind ? "runs"
                                                 : "preempts");
  print("victims", plan.victims);
  print("downgraded", plan.downgraded);
  std::printf("\n");
  if (!waits && !scheduler.commit(plan).ok()) std::printf("stale plan\n");
}
void finish(hived& scheduler, job_id job) {
  std::printf("gang %u has ended\n", job.value);
  if (!scheduler.finish(job).ok()) std::printf("it does not run\n");
}

// Product owns one node of four; its opportunistic gang uses two.
void opportunistic_gangs() {
  std::printf("-- opportunistic gangs\n");
  hived scheduler = cluster(3, 1);
  const gang_request guest{.job = job_id(0),
                           .tenant = product,
                           .priority = gang_request::opportunistic_priority,
                           .groups = two_nodes};
  const gang_request owner{.job = job_id(2), .tenant = research, .groups = two_nodes};
  submit(scheduler, guest);
  submit(scheduler, {.job = job_id(1), .tenant = research, .groups = one_node});
  submit(scheduler, owner);
  std::printf("%s", example::draw(scheduler).c_str());
  // The host ends the victim's tasks, calls finish, and proposes the same request again.
  finish(scheduler, guest.job);
  submit(scheduler, owner);
  submit(scheduler, guest);
}

// A gang of product uses n0 until research runs on n1. Then an opportunistic gang uses n0.
void lazy_preemption() {
  std::printf("-- lazy preemption\n");
  hived scheduler = cluster(1, 1);
  const gang_request first{.job = job_id(3), .tenant = product, .groups = one_node};
  const gang_request low{
      .job = job_id(1), .tenant = research, .priority = 1, .groups = one_node, .lazy = true};
  const gang_request guest{.job = job_id(0),
                           .tenant = product,
                           .priority = gang_request::opportunistic_priority,
                           .groups = one_node};
  const gang_request high{.job = job_id(2), .tenant = research, .priority = 9, .groups = one_node};
  submit(scheduler, first);
  submit(scheduler, low);
  finish(scheduler, first.job);
  submit(scheduler, guest);
  submit(scheduler, high);
  std::printf("%s", example::draw(scheduler).c_str());
  if (!scheduler.cancel(high.job).ok()) return;
  std::printf("gang 2 is cancelled before its victim has ended\n%s",
              example::draw(scheduler).c_str());
  finish(scheduler, guest.job);
  submit(scheduler, high);
  std::printf("%s", example::draw(scheduler).c_str());
}

struct run {
  std::uint32_t gpus = 0;
  std::uint64_t checkpoint = 0;  // minute of the last one, or of the start
};

// Jobs 1 and 2 use a node each, job 3 half a node. Only job 2 has saved a checkpoint.
void victims() {
  std::printf("-- which gang ends\n");
  hived scheduler = cluster(3, 0);
  std::map<job_id, run> runs;
  std::uint64_t now = 0;  // in minutes
  const auto lost = [&](job_id job) { return runs.at(job).gpus * (now - runs.at(job).checkpoint); };
  for (const std::uint32_t job : {1U, 2U, 3U}) {
    const gang_request gang{.job = job_id(job),
                            .tenant = research,
                            .priority = job == 2 ? 1 : 0,
                            .groups = {{.tasks = 1, .gpus = job == 3 ? 2U : 4U}}};
    if (!scheduler.commit(scheduler.propose(gang).value()).ok()) return;
    runs[gang.job] = {.gpus = gang.groups[0].gpus, .checkpoint = now};
  }
  now = 90;
  runs[job_id(2)].checkpoint = 80;
  const gang_request urgent{
      .job = job_id(9), .tenant = research, .priority = 5, .groups = one_node};
  const auto show = [&](const char* cost) {
    const gang_plan plan = scheduler.propose(urgent).value();
    for (const job_id victim : plan.victims) {
      std::printf("%s: job %u ends, %llu GPU-minutes are lost\n", cost, victim.value,
                  static_cast<unsigned long long>(lost(victim)));
    }
  };
  show("fewest gangs, lowest priority, smallest");
  scheduler.set_victim_cost([&](const gang_record& gang) { return lost(gang.request.job); });
  show("least work lost");
}

}  // namespace

int main() {
  opportunistic_gangs();
  lazy_preemption();
  victims();
}
