// How do I write a queue inside a tenant? Here the users of a tenant share its cells by weight:
// the job of the user with the fewest GPUs per weight goes first. Jobs may pass a job that does
// not fit, but for at most four rounds, so no job starves.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <tuple>
#include <vector>

using namespace apiary;

namespace {

struct user {
  std::uint32_t weight = 1;
  std::uint32_t gpus = 0;  // that its jobs use now
};
struct job {
  user* owner = nullptr;
  std::uint32_t gpus = 0;
  gang_request gang{};
  std::uint32_t waited = 0;  // rounds
  [[nodiscard]] bool overdue() const { return waited >= 4; }
};

// Starts every job that may start. A plan that is not committed changes nothing.
bool start(hived& scheduler, std::vector<job>& waiting, std::vector<job>& running) {
  const auto rank = [](const job& j) {
    return std::tuple(!j.overdue(), j.overdue() ? 0 : j.owner->gpus * 100 / j.owner->weight,
                      j.gang.job);
  };
  for (auto j = waiting.begin(); j != waiting.end();) {
    if (j == waiting.begin()) std::ranges::sort(waiting, {}, rank);
    const auto plan = scheduler.propose(j->gang);
    if (plan.ok() && plan->result != plan_result::bind) {
      j = j->overdue() ? waiting.end() : j + 1;  // no job passes an overdue one
      continue;
    }
    if (!plan.ok() || !scheduler.commit(*plan).ok()) return false;
    j->owner->gpus += j->gpus;
    running.push_back(*j);
    waiting.erase(j);
    j = waiting.begin();  // the ranks have changed
  }
  for (job& j : waiting) ++j.waited;
  return true;
}

}  // namespace

int main() {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 6, true}};
  config.physical_cells = {{.type = "NODE", .address = "n0"}, {.type = "NODE", .address = "n1"}};
  config.virtual_clusters = {{.name = "research", .cells = {{"NODE", 2}}}};
  hived scheduler = hived::create(config).value();
  const tenant_id research = scheduler.layout().find_tenant("research").value();
  user vision{.weight = 2}, speech{.weight = 1}, search{.weight = 1};
  std::vector<job> waiting;
  auto add = [&, jobs = 0U](user& owner, task_group tasks) mutable {
    waiting.push_back({.owner = &owner,
                       .gpus = tasks.tasks * tasks.gpus,
                       .gang = {.job = job_id(jobs++), .tenant = research, .groups = {tasks}}});
  };
  for (int i = 0; i < 16; ++i) add(i % 2 == 0 ? vision : speech, {.tasks = 1, .gpus = 2});
  add(search, {.tasks = 2, .gpus = 6});  // both nodes
  for (int round = 1; round <= 6; ++round) {
    for (int i = 0; i < 6; ++i) add(i % 2 == 0 ? vision : speech, {.tasks = 1, .gpus = 2});
    std::vector<job> running;
    if (!start(scheduler, waiting, running)) return 1;
    std::printf("round %d: vision %2u, speech %2u, search %2u\n", round, vision.gpus, speech.gpus,
                search.gpus);
    for (const job& j : running) {
      j.owner->gpus -= j.gpus;
      if (!scheduler.finish(j.gang.job).ok()) return 1;
    }
  }
}
