// Compare three ways to place a gang: each is tried on the state in a transaction, what it would
// leave is looked at, and it is taken back.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/journal.h>
#include <apiary/alloc/room_index.h>
#include <apiary/core/ids.h>
#include <apiary/model/uniform_tree.h>
#include <apiary/policy/gang_rules.h>
#include <apiary/policy/remedy.h>
#include <apiary/policy/ruled_fit.h>

#include <cstdint>
#include <cstdio>
#include <set>

using namespace apiary;

namespace {

enum : level_t { gpu, node, rack };

void try_way(room_index<uniform_tree>& rooms, const char* name, const gang_rules& gang,
             gang_objective objective) {
  ruled_fit<uniform_tree> fit(100'000, objective);
  if (fit(rooms, gang) != fit_verdict::fits) {
    std::printf("%-22s does not fit\n", name);
    return;
  }
  std::set<std::uint32_t> nodes;
  std::set<std::uint32_t> racks;
  for (const auto& p : fit.portions()) {
    nodes.insert(p.node);
    racks.insert(p.node / 4);
  }
  journal log;
  transaction tx(log);
  take<uniform_tree>(tx, rooms, gang, fit.portions());
  std::uint32_t whole_racks = 0;
  for (std::uint32_t r = 0; r < rooms.num_cells(rack); ++r)
    if (rooms.histogram(rack, r)[8] == 4) ++whole_racks;
  gang_rules next;  // what may come: four whole nodes in a rack
  next.members = {{.tasks = 4, .leaves = 8}};
  next.required = rack;
  const bool still = fit(rooms, next) == fit_verdict::fits;
  std::printf("%-22s %5zu %5zu %11u %11u  %s\n", name, nodes.size(), racks.size(),
              rooms.histogram(rooms.top(), 0)[8], whole_racks, still ? "yes" : "no");
}

}  // namespace

int main() {
  // Three racks of four nodes of eight GPUs; the last rack is empty.
  room_index<uniform_tree> rooms(uniform_tree{3, 4, 8}, node, 8);
  constexpr std::uint32_t free[] = {4, 2, 4, 6, 2, 4, 4, 2, 8, 8, 8, 8};
  for (std::uint32_t n = 0; n < 12; ++n) rooms.set(n, free[n]);

  gang_rules gang;
  gang.members = {{.tasks = 4, .leaves = 2}, {.tasks = 2, .leaves = 4}};
  std::printf("%-22s nodes racks whole nodes whole racks  room for 4 x 8\n", "");
  gang.preferred = rack;
  try_way(rooms, "few nodes, one rack", gang, gang_objective::fewest_nodes);
  try_way(rooms, "whole cells, one rack", gang, gang_objective::whole_cells);
  gang.preferred = any_level;
  gang.members[0].spread = {{rack, 2}};
  try_way(rooms, "two of a kind a rack", gang, gang_objective::whole_cells);
  std::printf("free GPUs are as before: %u\n", rooms.pieces(rooms.top(), 1)[0]);
}
