// What would it take? A gang waits; which nodes, if freed or healed, would let it run, and does
// that leave its neighbour in the queue better off, too? Tried on the state itself and taken back.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/journal.h>
#include <apiary/alloc/room_index.h>
#include <apiary/core/ids.h>
#include <apiary/model/uniform_tree.h>
#include <apiary/policy/certificate.h>
#include <apiary/policy/gang_rules.h>
#include <apiary/policy/refusal_cause.h>
#include <apiary/policy/remedy.h>
#include <apiary/policy/ruled_fit.h>

#include <cstdint>
#include <cstdio>
#include <vector>

using namespace apiary;

namespace {

enum : level_t { gpu, node, rack };

void print_free(const char* when, const room_index<uniform_tree>& rooms) {
  std::printf("%-14s", when);
  for (std::uint32_t n = 0; n < rooms.num_nodes(); ++n)
    std::printf("%s%u", n % 4 == 0 ? " | " : " ", rooms.free(n));
  std::printf("\n");
}

}  // namespace

int main() {
  // Three racks of four nodes of eight GPUs; node 9 is bad.
  room_index<uniform_tree> rooms(uniform_tree{3, 4, 8}, node, 8);
  constexpr std::uint32_t free[] = {8, 0, 0, 6, 8, 4, 2, 0, 8, 0, 8, 0};
  for (std::uint32_t n = 0; n < 12; ++n) rooms.set(n, free[n]);
  const std::vector<std::uint32_t> capacity(12, 8);
  print_free("free", rooms);

  gang_rules gang;
  gang.members = {{.tasks = 3, .leaves = 8}};
  gang.required = rack;
  gang_rules neighbour;
  neighbour.members = {{.tasks = 4, .leaves = 4}};
  neighbour.required = rack;

  ruled_fit<uniform_tree> fit;
  if (fit(rooms, gang) != fit_verdict::does_not_fit) return 1;  // nor when its budget has ended
  std::printf("%s;\n", sentence(fit.explain(rooms, gang), gang, "rack").c_str());

  remedy_search<uniform_tree> remedy;
  if (!remedy(rooms, gang, capacity)) return 1;
  std::printf("%s\n", remedy_words(remedy.nodes(), remedy.leaves()).c_str());

  journal log;
  {
    transaction tx(log);
    for (const std::uint32_t n : remedy.nodes()) set(tx, rooms, n, capacity[n]);
    if (fit(rooms, gang) != fit_verdict::fits) return 1;
    take<uniform_tree>(tx, rooms, gang, fit.portions());
    print_free("with the gang", rooms);
    const bool fits = fit(rooms, neighbour) == fit_verdict::fits;
    std::printf("its neighbour then %s\n", fits ? "fits" : "waits");
  }
  print_free("taken back", rooms);
  const bool fits = fit(rooms, neighbour) == fit_verdict::fits;
  std::printf("its neighbour without it %s\n", fits ? "fits" : "waits");
}
