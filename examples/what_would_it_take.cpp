// Which nodes would have to be free, or repaired, so that a waiting gang fits? The answer is tried
// on the state in a transaction, to see whether the next gang in the queue still fits, and rolled
// back.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/alloc/journal.h>
#include <apiary/core/ids.h>
#include <apiary/explain/blocking_resource.h>
#include <apiary/explain/unblock_search.h>
#include <apiary/explain/what_if.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/topology/cell_names.h>
#include <apiary/topology/named_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <cstdint>
#include <cstdio>
#include <vector>

using namespace apiary;

namespace {

enum : level_t { gpu, node, rack };

void print_free(const char* when, const capacity_index<uniform_tree>& capacities) {
  std::printf("%-14s", when);
  for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n)
    std::printf("%s%u", n % 4 == 0 ? " | " : " ", capacities.free(n));
  std::printf("\n");
}

}  // namespace

int main() {
  // Three racks of four nodes of eight GPUs; node-9 is bad.
  const auto cluster = named_tree<uniform_tree>::create(
      {"h100", {{"rack", {3}, {"east", "west", "south"}}, {"node", {4}}, {"gpu", {8}}}});
  if (!cluster.ok()) return 1;
  const cell_names names(*cluster);
  capacity_index<uniform_tree> capacities(cluster->tree(), node, 8);
  constexpr std::uint32_t free[] = {8, 0, 0, 6, 8, 4, 2, 0, 8, 0, 8, 0};
  for (std::uint32_t n = 0; n < 12; ++n) capacities.set(n, free[n]);
  const std::vector<std::uint32_t> capacity(12, 8);
  print_free("free", capacities);

  topology_constraints gang;
  gang.groups = {{.tasks = 3, .gpus = 8}};
  gang.required = rack;
  topology_constraints next;
  next.groups = {{.tasks = 4, .gpus = 4}};
  next.required = rack;

  topology_fit<uniform_tree> fit;
  if (fit(capacities, gang).verdict != fit_verdict::does_not_fit)
    return 1;  // also if the step budget ended
  std::printf("%s;\n", fit.explain(capacities, gang).text(gang, names).c_str());

  unblock_search<uniform_tree> search;
  const auto remedy = search(capacities, gang, capacity);
  if (remedy.verdict != fit_verdict::fits) return 1;
  std::printf("%s\n", remedy.text(names).c_str());

  journal log;
  {
    transaction tx(log);
    for (const std::uint32_t n : remedy.nodes) tx.set(capacities, n, capacity[n]);
    const auto found = fit(capacities, gang);
    if (found.verdict != fit_verdict::fits) return 1;
    journaled::place_gang<uniform_tree>(tx, capacities, gang, found.portions);
    print_free("with the gang", capacities);
    const bool fits = fit(capacities, next).verdict == fit_verdict::fits;
    std::printf("the next gang then %s\n", fits ? "fits" : "waits");
  }
  print_free("rolled back", capacities);
  const bool fits = fit(capacities, next).verdict == fit_verdict::fits;
  std::printf("the next gang without it %s\n", fits ? "fits" : "waits");
}
