// apiary/tests/hived/detail/opportunistic_search_test.cpp - places for opportunistic gangs, by counting idle leaves.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/search.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/topology/health.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <support/hived_racks.h>
#include <support/naive_gang.h>
#include <support/scale.h>

using namespace apiary;
using namespace apiary::detail;
using apiary_test::leaf_counts;

namespace {

gang_request random_guest(rng& random, std::uint32_t job) {
  gang_request r = apiary_test::gang_of_few(random, job);
  r.priority = gang_request::opportunistic_priority;
  return r;
}

}  // namespace

TEST_CASE("an opportunistic gang fits if and only if the idle healthy leaves hold it") {
  rng random(67);
  int yes = 0;
  int no = 0;
  for (int round = 0; round < apiary_test::scaled(1000); ++round) {
    hived h = apiary_test::four_racks();
    apiary_test::let_gangs_come_and_go(h, random, true);
    const gang_request r = random_guest(random, 99);
    const physical_chain& chain = h.cells().chain(0);
    health<uniform_tree> usable(chain.tree());
    for (const cell_id leaf : chain.tree().cells(0))
      if (random.uniform(4) == 0) usable.mark_bad(leaf);
    const leaf_counts tasks = apiary_test::tasks_of(r.groups);
    hived_search search;
    hived_refusal refusal;
    for (const health<uniform_tree>* filter :
         {static_cast<health<uniform_tree>*>(nullptr), &usable}) {
      leaf_counts idle;
      leaf_counts repaired;
      for (std::uint32_t n = 0; n < chain.num_nodes(); ++n) {
        idle.push_back(0);
        repaired.push_back(0);
        for (const cell_id leaf : chain.tree().descendants(chain.node_cell(n), 0)) {
          if (!chain.holders(leaf).idle()) continue;
          ++repaired.back();
          if (chain.healthy().healthy(leaf) && (filter == nullptr || filter->healthy(leaf)))
            ++idle.back();
        }
      }
      const bool found = search.opportunistic(h.cells(), r, 0, filter);
      REQUIRE(found == apiary_test::fits_by_sets(idle, tasks));
      REQUIRE(refusal.may_count(h.cells(), h.gangs(), r, {}) ==
              apiary_test::fits_by_sets(repaired, tasks));
      found ? ++yes : ++no;
      if (found) {
        apiary_test::check_place(chain, r, search.place(), filter);
        CHECK(!search.place().cluster.valid());
        for (const bound_leaf& l : search.place().leaves)
          REQUIRE((!l.leaf.valid() && chain.holders(l.image).idle()));
      }
      if (!found && search.shortage())
        REQUIRE(apiary_test::is_cut(*search.shortage(), idle, tasks));
    }
  }
  CHECK(yes > apiary_test::scaled(50));
  CHECK(no > apiary_test::scaled(50));
}

TEST_CASE("opportunistic gangs share nodes, away from guaranteed gangs") {
  hived h = apiary_test::four_racks();
  const auto run = [&](const gang_request& r) {
    const auto plan = h.propose(r);
    REQUIRE(plan.ok());
    REQUIRE(h.commit(*plan).ok());
    return plan->tasks.at(0).node;
  };
  const node_id first =
      run({.job = job_id(1), .tenant = tenant_id(0), .priority = -1, .groups = {{1, 1}}});
  const node_id owned = run({.job = job_id(2), .tenant = tenant_id(1), .groups = {{1, 1}}});
  CHECK(first != owned);
  CHECK(run({.job = job_id(3), .tenant = tenant_id(1), .priority = -1, .groups = {{1, 2}}}) ==
        first);
  CHECK(run({.job = job_id(4), .tenant = tenant_id(1), .priority = -1, .groups = {{1, 3}}}) !=
        owned);
}
