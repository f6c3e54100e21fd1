// Which running gangs must end so that a new gang fits? The fewest of the lowest priority class,
// with a proof that no other set costs less. Then one gang is protected, and a tenant gets a
// disruption budget.
// SPDX-License-Identifier: MIT
#include <apiary/gang/gang_fit.h>
#include <apiary/preempt/victim_cost.h>
#include <apiary/preempt/victim_search.h>
#include <apiary/preempt/victim_set.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

using namespace apiary;

namespace {

struct running_gang {
  const char* name;
  victim_cost::loss loss;  // priority class, GPU-hours that it has used
  std::vector<gpus_on_node> gpus;
};

// Small gangs are of tenant 0, large ones of tenant 1.
void find_victims(const char* what, const std::vector<running_gang>& gangs,
                  const std::vector<disruption_budget>& budgets = {}) {
  std::vector<victim_cost::loss> losses;
  for (const running_gang& g : gangs) losses.push_back(g.loss);
  const victim_cost cost(losses);
  std::vector<eviction_candidate> candidates;
  std::vector<gpus_on_node> allocations;
  std::vector<std::uint32_t> tenants;
  for (const running_gang& g : gangs) {
    const auto first = static_cast<std::uint32_t>(allocations.size());
    allocations.insert(allocations.end(), g.gpus.begin(), g.gpus.end());
    candidates.push_back({cost(g.loss), first, static_cast<std::uint32_t>(allocations.size())});
    tenants.push_back(g.gpus.size() == 1 ? 0 : 1);
  }
  // Six nodes of eight GPUs, none of which is free; two tasks of eight GPUs each.
  const std::vector<std::uint32_t> free(6, 0);
  const std::vector<task_group> groups{{.tasks = 2, .gpus = 8}};
  victim_search search;
  const victim_set found =
      search({}, free, candidates, allocations, groups, victim_search::never, {tenants, budgets});
  if (found.verdict != fit_verdict::fits) {
    std::printf("%s: no set of victims suffices\n", what);
    return;
  }
  std::printf("%s:", what);
  for (const std::uint32_t v : found.victims) std::printf(" %s", gangs[v].name);
  std::printf(found.cost == found.lower_bound ? "; no set costs less\n" : "\n");
}

}  // namespace

int main() {
  // Ten small gangs of one class fill nodes 0 and 1, two large ones nodes 2 to 5.
  std::vector<running_gang> gangs;
  const char* names[] = {"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9"};
  for (std::uint32_t i = 0; i < 10; ++i) {
    const std::uint32_t gpus = i % 5 < 3 ? 2 : 1;
    gangs.push_back({names[i], {1, 3}, {{i / 5, gpus}}});
  }
  gangs.push_back({"old", {1, 900}, {{2, 8}, {3, 8}}});
  gangs.push_back({"new", {1, 40}, {{4, 8}, {5, 8}}});
  find_victims("all of one class", gangs);
  gangs[11].loss.priority = 2;
  find_victims("new is of a higher class", gangs);
  gangs[10].loss.priority = 2;
  find_victims("old and new are of a higher class", gangs);
  find_victims("at most nine victims of a tenant", gangs, {{.gangs = 9}});
  gangs.erase(gangs.begin());
  find_victims("s0 is protected", gangs);
}
