// apiary/tests/hived/detail/guest_fates_test.cpp - the costs of gangs that end, against sets of gangs.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/hived/detail/guest_choice.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

namespace {

using namespace apiary;
using namespace apiary::detail;

}  // namespace

TEST_CASE("guest_fates: costs are those of the sets of gangs that end; each is asked for once") {
  std::uint64_t exact = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(400U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    physical_chain chain(uniform_tree({2, 3, 4}), 1);  // racks of three nodes
    std::map<std::uint32_t, std::uint32_t> leaves;     // by gang
    for (const cell_id leaf : chain.tree().cells(0)) {
      const std::uint32_t gang = random.uniform(12);
      if (gang >= 8) continue;
      chain.hold(leaf, {gang_slot(gang), gang_slot(), false});
      ++leaves[gang];
    }
    std::map<std::uint32_t, std::uint32_t> asked;
    const auto cost = [&](gang_slot s) {
      ++asked[s.value];
      return std::uint64_t{100} + leaves[s.value];
    };
    guest_fates fates;
    fates.begin(chain, {});
    fates.end(gang_slot(3));  // forgotten
    fates.begin(chain, {.gang = 100, .leaf = 1});
    std::set<std::uint32_t> ended;
    if (random.uniform(2) == 0) {
      ended.insert(5);
      fates.end(gang_slot(5));
    }
    for (int step = 0; step < 20; ++step) {
      const cell_id p(random.uniform(chain.tree().num_cells()));
      std::set<std::uint32_t> users;
      std::uint64_t steps = 0;
      std::uint64_t counted = 0;
      std::uint32_t there = 0;
      for (const cell_id leaf : chain.tree().descendants(p, 0)) {
        const gang_slot s = fates.user(leaf);
        if (!s.valid() || ended.contains(s.value)) continue;
        ++there;
        users.insert(s.value);
        counted += users.size() / 8;
      }
      std::uint64_t total = 0;
      std::uint32_t all = 0;
      for (const std::uint32_t s : users) {
        total += 100 + leaves[s];
        all += leaves[s];
      }
      const std::uint64_t least = fates.least_cost_in(p, steps);
      REQUIRE(least == 100 * users.size() + there);
      REQUIRE(steps == counted);
      if (there == all) {  // no gang has leaves elsewhere
        REQUIRE(least == total);
        ++exact;
      }
      const std::size_t before = fates.position();
      REQUIRE(fates.end_users(p, cost) == total);
      for (const std::uint32_t s : users) REQUIRE(fates.ends(gang_slot(s)));
      if (random.uniform(3) == 0) {
        ended.insert(users.begin(), users.end());
        continue;
      }
      fates.undo(before);
      for (const std::uint32_t s : users) REQUIRE_FALSE(fates.ends(gang_slot(s)));
    }
    for (const auto& [gang, times] : asked) REQUIRE(times == 1);
  }
  CHECK(exact > 0);
}
