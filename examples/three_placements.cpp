// Which placement of a gang leaves the most useful GPUs free? Three placements are tried on the
// state in a transaction and then rolled back.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/alloc/journal.h>
#include <apiary/core/ids.h>
#include <apiary/explain/what_if.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/topology/uniform_tree.h>

#include <cstdint>
#include <cstdio>
#include <set>

using namespace apiary;

namespace {

enum : level_t { gpu, node, rack };

void try_placement(capacity_index<uniform_tree>& capacities, const char* name,
                   const topology_constraints& gang, gang_objective objective) {
  topology_fit<uniform_tree> fit(100'000, objective);
  const auto found = fit(capacities, gang);
  if (found.verdict != fit_verdict::fits) {
    std::printf("%-22s does not fit\n", name);
    return;
  }
  std::set<std::uint32_t> nodes;
  std::set<std::uint32_t> racks;
  for (const auto& p : found.portions) {
    nodes.insert(p.node);
    racks.insert(p.node / 4);
  }
  journal log;
  transaction tx(log);
  journaled::place_gang<uniform_tree>(tx, capacities, gang, found.portions);
  std::uint32_t whole_racks = 0;
  for (std::uint32_t r = 0; r < capacities.num_cells(rack); ++r)
    if (capacities.histogram(rack, r)[8] == 4) ++whole_racks;
  topology_constraints next;  // the next gang: four whole nodes in a rack
  next.groups = {{.tasks = 4, .gpus = 8}};
  next.required = rack;
  const bool still = fit(capacities, next).verdict == fit_verdict::fits;
  std::printf("%-22s %5zu %5zu %11u %11u  %s\n", name, nodes.size(), racks.size(),
              capacities.histogram(capacities.top(), 0)[8], whole_racks, still ? "yes" : "no");
}

}  // namespace

int main() {
  // Three racks of four nodes of eight GPUs; the last rack is empty.
  capacity_index<uniform_tree> capacities(uniform_tree{3, 4, 8}, node, 8);
  constexpr std::uint32_t free[] = {4, 2, 4, 6, 2, 4, 4, 2, 8, 8, 8, 8};
  for (std::uint32_t n = 0; n < 12; ++n) capacities.set(n, free[n]);

  topology_constraints gang;
  gang.groups = {{.tasks = 4, .gpus = 2}, {.tasks = 2, .gpus = 4}};
  std::printf("%-22s nodes racks  free nodes  free racks  next gang fits\n", "");
  gang.preferred = rack;
  try_placement(capacities, "few nodes, one rack", gang, gang_objective::fewest_nodes);
  try_placement(capacities, "whole cells, one rack", gang, gang_objective::whole_cells);
  gang.preferred = any_level;
  gang.groups[0].spread = {{rack, 2}};
  try_placement(capacities, "two tasks a rack", gang, gang_objective::whole_cells);
  std::printf("free GPUs after the rollbacks: %u\n", capacities.slots(capacities.top(), 1)[0]);
}
