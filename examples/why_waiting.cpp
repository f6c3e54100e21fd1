// Why does my gang wait? Three gangs in two racks: what is counted, said, blamed, and checked by
// someone who has never seen the search.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/room_index.h>
#include <apiary/core/ids.h>
#include <apiary/model/uniform_tree.h>
#include <apiary/policy/certificate.h>
#include <apiary/policy/certificate_check.h>
#include <apiary/policy/gang_rules.h>
#include <apiary/policy/refusal_cause.h>
#include <apiary/policy/ruled_fit.h>

#include <cstdint>
#include <cstdio>
#include <vector>

using namespace apiary;

namespace {

enum : level_t { gpu, node, rack };

void ask(const room_index<uniform_tree>& rooms, const char* name, const gang_rules& gang) {
  ruled_fit<uniform_tree> fit;
  const fit_verdict verdict = fit(rooms, gang);
  if (verdict == fit_verdict::fits) {
    std::printf("%s: fits, level %u, cell %u\n", name, fit.level(), fit.cell());
    for (const auto& p : fit.portions())
      std::printf("  node %u: %u of member %u\n", p.node, p.tasks, p.member);
    return;
  }
  if (verdict == fit_verdict::budget_ended) {  // neither yes nor no: there is nothing to explain
    std::printf("%s: undecided\n", name);
    return;
  }
  const certificate why = fit.explain(rooms, gang);
  const char* level = gang.required == rack ? "rack" : "cluster";
  const auto other_verdict = [&](const gang_rules& other) { return fit(rooms, other); };
  const std::vector<demand> blocking = blocking_demands(gang, other_verdict);
  std::printf("%s: %s\n", name, sentence(why, gang, level, blocking).c_str());
  certificate_check check(rooms.tree(), node, rooms.free(), {}, gang);
  std::printf("  counted again: %s", check(why) ? "right" : "wrong");
  certificate forged = why;
  ++forged.cells[0].most;
  std::printf("; with one more in rack 0: %s\n", check(forged) ? "right" : "wrong");
}

}  // namespace

int main() {
  // Two racks of four nodes of eight GPUs. There are 37 free GPUs.
  room_index<uniform_tree> rooms(uniform_tree{2, 4, 8}, node, 8);
  constexpr std::uint32_t free[] = {5, 7, 5, 4, 6, 6, 4, 0};
  for (std::uint32_t n = 0; n < 8; ++n) rooms.set(n, free[n]);

  gang_rules large;
  large.members = {{.tasks = 4, .leaves = 5}};
  large.required = rack;
  ask(rooms, "four tasks of five GPUs in a rack", large);

  large.required = any_level;
  ask(rooms, "the same anywhere", large);

  gang_rules mixed;
  mixed.members = {{.tasks = 3, .leaves = 5}, {.tasks = 3, .leaves = 2}};
  mixed.required = rack;
  ask(rooms, "three of five and three of two in a rack", mixed);

  gang_rules spread;
  spread.members = {{.tasks = 5, .leaves = 1, .spread = {{node, 1}}}};
  spread.required = rack;
  ask(rooms, "five small tasks in a rack, one a node", spread);
}
