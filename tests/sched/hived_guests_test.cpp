// apiary/tests/sched/hived_guests_test.cpp - places for opportunistic gangs, by counting idle leaves.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/model/health.h>
#include <apiary/model/tree.h>
#include <apiary/model/uniform_tree.h>
#include <apiary/sched/gang_plan.h>
#include <apiary/sched/hived.h>
#include <apiary/sched/hived_config.h>
#include <apiary/sched/hived_guests.h>
#include <apiary/sched/hived_supply.h>
#include <apiary/sched/physical_chain.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <support/hived_documents.h>
#include <support/naive_gang.h>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using apiary_test::leaf_counts;

namespace {

// Four racks of two nodes of two pairs; tenant "a" has a rack, a node and a pair, "b" two nodes.
hived racks_of_pairs() {
  hived_config c;
  c.cell_types = {{"PAIR", "GPU", 2}, {"NODE", "PAIR", 2, true}, {"RACK", "NODE", 2}};
  for (const char* names : {"01", "23", "45", "67"}) {
    c.physical_cells.push_back(apiary_test::rack({apiary_test::named(std::string(1, names[0])),
                                                  apiary_test::named(std::string(1, names[1]))}));
  }
  c.virtual_clusters = {
      {.name = "a", .cells = {{"RACK", 1}, {"RACK.NODE", 1}, {"RACK.NODE.PAIR", 1}}},
      {.name = "b", .cells = {{"RACK.NODE", 2}}}};
  auto h = hived::create(c);
  REQUIRE(h.ok());
  return *std::move(h);
}
gang_request random_guest(rng& random, std::uint32_t job) {
  gang_request r{.job = job_id(job), .tenant = tenant_id(random.uniform(2))};
  r.priority = opportunistic_priority;
  for (std::uint32_t m = 1 + random.uniform(2); m > 0; --m)
    r.members.push_back({1 + random.uniform(3), 1 + random.uniform(4)});
  return r;
}
// Guests and owners, and leaves that break.
void let_gangs_come_and_go(hived& h, rng& random) {
  for (std::uint32_t job = 0; job < 12; ++job) {
    gang_request r = random_guest(random, job);
    r.priority = static_cast<std::int32_t>(random.uniform(4)) - 1;
    const auto plan = h.propose(r);
    REQUIRE(plan.ok());
    if (plan->result != outcome::wait) REQUIRE(h.commit(*plan).ok());
    if (random.uniform(2) == 0) static_cast<void>(h.finish(job_id(random.uniform(12))));
    if (random.uniform(3) == 0)
      REQUIRE(h.mark_bad(node_id(random.uniform(8)), random.uniform(4)).ok());
  }
}
// Checks that every leaf of every task is idle, usable and its own, each task on one node.
void check_place_of_guest(const physical_chain& chain, const gang_request& r,
                          const gang_place& place, const health<uniform_tree>* usable) {
  CHECK(!place.cluster.valid());
  std::set<cell_id> taken;
  std::size_t i = 0;
  for (const gang_member& m : r.members) {
    for (std::uint32_t t = 0; t < m.tasks; ++t) {
      std::set<std::uint32_t> nodes;
      for (std::uint32_t k = 0; k < m.leaves; ++k, ++i) {
        REQUIRE(i < place.leaves.size());
        const bound_leaf& l = place.leaves[i];
        REQUIRE(!l.leaf.valid());
        REQUIRE(taken.insert(l.image).second);
        nodes.insert(chain.node_of(l.image));
        REQUIRE(chain.healthy().healthy(l.image));
        if (usable != nullptr) REQUIRE(usable->healthy(l.image));
        REQUIRE(chain.holders(l.image).idle());
      }
      REQUIRE(nodes.size() == 1);
    }
  }
  REQUIRE(i == place.leaves.size());
}

}  // namespace

TEST_CASE("an opportunistic gang fits if and only if the idle healthy leaves hold it") {
  rng random(67);
  int yes = 0;
  int no = 0;
  for (int round = 0; round < apiary_test::scaled(1000); ++round) {
    hived h = racks_of_pairs();
    let_gangs_come_and_go(h, random);
    const gang_request r = random_guest(random, 99);
    const physical_chain& chain = h.cells().chain(0);
    health<uniform_tree> usable(chain.tree());
    for (const cell_id leaf : chain.tree().cells(0))
      if (random.uniform(4) == 0) usable.mark_bad(leaf);
    const leaf_counts tasks = apiary_test::tasks_of(r.members);
    guest_search search;
    hived_supply supply;
    for (const health<uniform_tree>* filter :
         {static_cast<health<uniform_tree>*>(nullptr), &usable}) {
      leaf_counts idle;
      leaf_counts repaired;
      for (std::uint32_t n = 0; n < chain.num_nodes(); ++n) {
        idle.push_back(0);
        repaired.push_back(0);
        for (const cell_id leaf : leaves(chain.tree(), chain.node_cell(n))) {
          if (!chain.holders(leaf).idle()) continue;
          ++repaired.back();
          if (chain.healthy().healthy(leaf) && (filter == nullptr || filter->healthy(leaf)))
            ++idle.back();
        }
      }
      const bool found = search(h.cells(), r, 0, filter);
      REQUIRE(found == apiary_test::fits_by_sets(idle, tasks));
      REQUIRE(supply.fits_repaired(chain, r.members) == apiary_test::fits_by_sets(repaired, tasks));
      found ? ++yes : ++no;
      if (found) check_place_of_guest(chain, r, search.place(), filter);
      if (!found && search.cut()) REQUIRE(apiary_test::is_cut(*search.cut(), idle, tasks));
    }
  }
  CHECK(yes > apiary_test::scaled(50));
  CHECK(no > apiary_test::scaled(50));
}

TEST_CASE("guests gather on the nodes of guests, away from tenants' tasks") {
  hived h = racks_of_pairs();
  const auto run = [&](const gang_request& r) {
    const auto plan = h.propose(r);
    REQUIRE(plan.ok());
    REQUIRE(h.commit(*plan).ok());
    return plan->tasks.at(0).node;
  };
  const node_id first =
      run({.job = job_id(1), .tenant = tenant_id(0), .priority = -1, .members = {{1, 1}}});
  const node_id owned = run({.job = job_id(2), .tenant = tenant_id(1), .members = {{1, 1}}});
  CHECK(first != owned);
  CHECK(run({.job = job_id(3), .tenant = tenant_id(1), .priority = -1, .members = {{1, 2}}}) ==
        first);
  CHECK(run({.job = job_id(4), .tenant = tenant_id(1), .priority = -1, .members = {{1, 3}}}) !=
        owned);
}
