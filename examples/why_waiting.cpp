// Does a gang fit in one rack, in slices or spread over nodes, and why must it wait? The program
// prints its nodes, or a sentence for users with the blocking resource, and verifies the proof
// behind it with an independent check.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/ids.h>
#include <apiary/explain/blocking_resource.h>
#include <apiary/explain/proof_check.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/topology/uniform_tree.h>

#include <cstdint>
#include <cstdio>
#include <vector>

using namespace apiary;

namespace {

enum : level_t { gpu, node, rack };

void ask(const capacity_index<uniform_tree>& capacities, const char* name,
         const topology_constraints& gang) {
  topology_fit<uniform_tree> fit;
  const auto found = fit(capacities, gang);
  const fit_verdict verdict = found.verdict;
  if (verdict == fit_verdict::fits) {
    std::printf("%s: fits, level %u, cell %u\n", name, found.level, found.cell);
    for (const auto& p : found.portions)
      std::printf("  node %u: %u of task group %u\n", p.node, p.tasks, p.group);
    return;
  }
  if (verdict == fit_verdict::budget_ended) {  // undecided: there is nothing to explain
    std::printf("%s: undecided\n", name);
    return;
  }
  const infeasibility_proof why = fit.explain(capacities, gang);
  const auto other_verdict = [&](const topology_constraints& other) {
    return fit(capacities, other).verdict;
  };
  const std::vector<blocking_resource> blocking = blocking_resources(gang, other_verdict);
  std::printf("%s: %s\n", name, why.text(gang, {"GPU", "node", "rack"}, blocking).c_str());
  proof_check check(capacities.tree(), node, capacities.free(), {}, gang);
  std::printf("  the proof is %s", check(why) ? "right" : "wrong");
  infeasibility_proof forged = why;
  ++forged.cells[0].most;  // claims that the first cell holds one task more
  std::printf("; a forged one is %s\n", check(forged) ? "right" : "wrong");
}

}  // namespace

int main() {
  // Two racks of four nodes of eight GPUs. There are 37 free GPUs.
  capacity_index<uniform_tree> capacities(uniform_tree{2, 4, 8}, node, 8);
  constexpr std::uint32_t free[] = {5, 7, 5, 4, 6, 6, 4, 0};
  for (std::uint32_t n = 0; n < 8; ++n) capacities.set(n, free[n]);

  topology_constraints large;
  large.groups = {{.tasks = 4, .gpus = 5}};
  large.required = rack;
  ask(capacities, "four tasks of five GPUs in a rack", large);

  large.required = any_level;
  ask(capacities, "the same anywhere", large);

  topology_constraints mixed;
  mixed.groups = {{.tasks = 3, .gpus = 5}, {.tasks = 3, .gpus = 2}};
  mixed.required = rack;
  ask(capacities, "three tasks of five GPUs and three of two in a rack", mixed);

  topology_constraints spread;
  spread.groups = {{.tasks = 5, .gpus = 1, .spread = {{node, 1}}}};
  spread.required = rack;
  ask(capacities, "five small tasks in a rack, one on each node", spread);

  topology_constraints sliced;  // tasks 0 and 1 in one rack, 2 and 3 in one rack, ...
  sliced.groups = {{.tasks = 6, .gpus = 4, .slices = {{rack, 2}}}};
  ask(capacities, "six tasks of four GPUs in slices of two, each slice in a rack", sliced);
}
