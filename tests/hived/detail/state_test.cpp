// apiary/tests/hived/detail/state_test.cpp - gangs that come, go and change places, beside a list.
// SPDX-License-Identifier: MIT
#include "support/hived_audit.h"
#include "support/hived_documents.h"
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/constraints.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/state.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/layout.h>
#include <apiary/model/request.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

// What was asked for, and nothing of how it is kept.
struct expected_gang {
  tenant_id tenant{};
  bool guaranteed = false;
  bool preempting = false;
  bool downgraded = false;
  std::vector<chain_leaf> leaves{};
  std::set<job_id>
      not_restored{};  // preempting: the gangs that its claims kept from being restored
};
using expected_gangs = std::map<job_id, expected_gang>;

hived_layout layout_to_settle() {
  return hived_layout::create(apiary_test::small_cluster()).value();
}

void check_settled(const hived_layout& layout, const hived_state& state,
                   const expected_gangs& known) {
  REQUIRE(state.gangs().size() == known.size());
  std::map<chain_leaf, leaf_holders> holders;
  for (const auto& [job, gang] : known) {
    const std::optional<gang_slot> slot = state.gangs().find(job);
    REQUIRE(slot);
    const gang_record& is = state.gangs()[*slot];
    CHECK(is.request.job == job);
    CHECK(is.guaranteed() == gang.guaranteed);
    CHECK((is.state == gang_state::preempting) == gang.preempting);
    CHECK(is.downgraded == gang.downgraded);
    REQUIRE(is.leaves.size() == gang.leaves.size());
    for (std::size_t i = 0; i < gang.leaves.size(); ++i) {
      const chain_leaf l = gang.leaves[i];
      REQUIRE(is.leaves[i].leaf == l.leaf);
      if (!l.leaf.valid()) continue;
      REQUIRE(is.leaves[i].chain == l.chain);
      if (gang.preempting) {
        holders[l].claimer = *slot;
      } else {
        holders[l].user = *slot;
        holders[l].guaranteed = gang.guaranteed;
      }
    }
  }
  for (std::uint32_t c = 0; c < state.cells().num_chains(); ++c) {
    for (const cell_id leaf : state.cells().chain(c).tree().cells(0)) {
      const auto found = holders.find({c, leaf});
      REQUIRE(state.cells().chain(c).holders(leaf) ==
              (found == holders.end() ? leaf_holders() : found->second));
    }
  }
  for (const violation& v : apiary_test::afresh::audit_afresh(layout, state.cells(), state.gangs()))
    FAIL_CHECK(v.invariant << ": " << v.witness);
}

// Up to `wanted` virtual leaves of one node that can be used, on physical ones; none if there are
// not any.
gang_placement guaranteed_placement(hived_state& state, vc_chain_id c, std::uint32_t wanted,
                                    rng& random) {
  hived_cells& cells = state.cells();
  const virtual_cluster& cluster = cells.cluster(c);
  gang_placement place{.cluster = c, .chain = cluster.chain()};
  const std::uint32_t n = random.uniform(cluster.num_nodes());
  cells.begin();
  for (std::uint32_t bit = 0; bit < 64 && place.leaves.size() < wanted; ++bit) {
    if ((cluster.free(n) >> bit & 1) == 0) continue;
    const cell_id leaf(cluster.first_leaf(n).value + bit);
    const std::optional<cell_id> image = cells.bind_leaf(c, leaf);
    if (!image || !cells.chain(place.chain).healthy().healthy(*image)) break;
    place.leaves.push_back({leaf, *image});
  }
  cells.rollback();
  return place;
}
gang_placement opportunistic_placement(const hived_state& state, std::uint32_t wanted,
                                       rng& random) {
  gang_placement place;
  place.chain = random.uniform(state.cells().num_chains());
  const physical_chain& chain = state.cells().chain(place.chain);
  const std::uint32_t n = random.uniform(chain.num_nodes());
  for (std::uint32_t bit = 0; bit < 64 && place.leaves.size() < wanted; ++bit)
    if ((chain.idle(n) >> bit & 1) != 0)
      place.leaves.push_back({cell_id(), cell_id(chain.first_leaf(n).value + bit)});
  return place;
}

gang_request request_of(job_id job, tenant_id tenant, std::int32_t priority, std::size_t leaves) {
  gang_request r;
  r.job = job;
  r.tenant = tenant;
  r.priority = priority;
  r.groups = {{static_cast<std::uint32_t>(leaves), 1}};
  return r;
}

// One that ran before, on these leaves.
gang_record record_of(const gang_request& r, std::vector<chain_leaf> leaves) {
  return {.request = r, .recovered = true, .leaves = std::move(leaves)};
}

// Admits a gang on these leaves: as preempting if another gang runs there.
void admit_expected(hived_state& state, expected_gangs& known, job_id job, tenant_id tenant,
                    const gang_placement& place, bool preempting) {
  expected_gang& gang = known[job];
  gang = {tenant, place.cluster.valid(), preempting, false, {}};
  for (const bound_leaf& l : place.leaves) gang.leaves.push_back({place.chain, l.image});
  const std::int32_t priority = gang.guaranteed ? 1 : gang_request::opportunistic_priority;
  gang_request r = request_of(job, tenant, priority, place.leaves.size());
  if (gang.guaranteed && state.cells().is_pinned(place.cluster)) r.pinned = 0;
  const gang_slot slot = state.admit(r, place, preempting, {});
  CHECK(state.gangs().find(job) == slot);
}

// Records the gang with each gang that has claimed one of its leaves.
void record_claimers(expected_gangs& known, job_id job) {
  for (auto& [by, other] : known) {
    if (!other.preempting) continue;
    for (const chain_leaf& l : known[job].leaves)
      if (l.leaf.valid() &&
          std::find(other.leaves.begin(), other.leaves.end(), l) != other.leaves.end())
        other.not_restored.insert(job);
  }
}

// The chain of the racks.
std::uint32_t racks_of(const hived_layout& layout) {
  std::uint32_t c = 0;
  while (layout.chains[c].name != "RACK") ++c;
  return c;
}

}  // namespace

TEST_CASE("hived_state: any calls, against a list of gangs and everything recounted") {
  const hived_layout layout = layout_to_settle();
  std::size_t preempting = 0;
  std::size_t restored = 0;
  std::size_t recovered = 0;
  std::size_t waiting = 0;
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(60U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    hived_state state(layout);
    expected_gangs known;
    for (std::uint32_t step = 0; step < 60; ++step) {
      const job_id job(step);
      const std::uint32_t wanted = 1 + random.uniform(4);
      const std::uint32_t what = random.uniform(9);
      auto at = known.begin();
      if (!known.empty())
        std::advance(at, random.uniform(static_cast<std::uint32_t>(known.size())));
      const std::uint64_t before = state.hash();
      if (what < 2) {
        const vc_chain_id c(random.uniform(state.cells().num_clusters()));
        const gang_placement place = guaranteed_placement(state, c, wanted, random);
        CHECK(state.hash() == before);
        if (place.leaves.empty()) continue;
        bool in_use = false;
        for (const bound_leaf& l : place.leaves)
          in_use = in_use || state.cells().chain(place.chain).holders(l.image).user.valid();
        admit_expected(state, known, job, state.cells().cluster(c).tenant(), place, in_use);
        known[job].guaranteed = true;
        preempting += in_use ? 1U : 0U;
      } else if (what == 2) {
        const gang_placement place = opportunistic_placement(state, wanted, random);
        if (place.leaves.empty()) continue;
        admit_expected(state, known, job, tenant_id(random.uniform(2)), place, false);
        CHECK(state.hash() != before);
        if (random.uniform(2) == 0) {  // and goes at once
          state.drop(*state.gangs().find(job));
          known.erase(job);
          CHECK(state.hash() == before);
        }
      } else if (what == 3) {
        // One that ran before, perhaps with its tenant's cells.
        const gang_placement place = opportunistic_placement(state, wanted, random);
        if (place.leaves.empty()) continue;
        expected_gang& gang = known[job];
        gang.tenant = tenant_id(random.uniform(2));
        for (const bound_leaf& l : place.leaves) gang.leaves.push_back({place.chain, l.image});
        const std::int32_t priority =
            random.uniform(3) == 0 ? gang_request::opportunistic_priority : 2;
        const bool as_it_should = state.recover(
            record_of(request_of(job, gang.tenant, priority, place.leaves.size()), gang.leaves));
        gang.guaranteed = priority >= 0 && as_it_should;
        gang.downgraded = !as_it_should;
        CHECK((as_it_should || priority >= 0));
        CHECK(state.gangs()[*state.gangs().find(job)].levels_known == (priority < 0));
        recovered += gang.guaranteed ? 1U : 0U;
      } else if (what == 4) {
        const std::uint32_t c = random.uniform(state.cells().num_chains());
        const physical_chain& chain = state.cells().chain(c);
        const cell_id leaf = chain.tree().cells(0)[random.uniform(chain.tree().num_leaves())];
        const bool was = chain.healthy().healthy(leaf);
        const bool good = random.uniform(2) == 0;
        CHECK(state.mark({c, leaf}, good) == (was != good));
      } else if (known.empty()) {
        continue;
      } else if (what == 5) {
        const gang_slot slot = *state.gangs().find(at->first);
        if (at->second.preempting) {
          std::vector<job_id> to_restore{job_id(1000)};
          std::vector<job_id> expected = to_restore;
          expected.insert(expected.end(), at->second.not_restored.begin(),
                          at->second.not_restored.end());
          state.drop_preempting(slot, to_restore);
          CHECK(to_restore == expected);
          waiting += expected.size() > 1 ? 1U : 0U;
        } else {
          state.drop(slot);
        }
        known.erase(at);
      } else if (what == 6) {
        if (!at->second.guaranteed || at->second.preempting) continue;
        state.downgrade(*state.gangs().find(at->first));
        at->second.guaranteed = false;
        at->second.downgraded = true;
      } else if (what == 7) {
        std::vector<job_id> jobs{job_id(1000)};
        for (const auto& [other, gang] : known) jobs.push_back(other);
        random.shuffle(jobs);
        state.restore(jobs);
        for (auto& [other, gang] : known) {
          const gang_record& is = state.gangs()[*state.gangs().find(other)];
          if (!gang.downgraded) continue;
          if (is.downgraded) {
            record_claimers(known, other);
            continue;
          }
          gang.downgraded = false;
          gang.guaranteed = true;
          CHECK(state.cells().cluster(is.cluster).tenant() == gang.tenant);
          ++restored;
        }
      } else {
        // Whoever runs where a gang preempts ends, and it runs.
        if (!at->second.preempting) {
          const std::size_t i =
              random.uniform(static_cast<std::uint32_t>(at->second.leaves.size()));
          if (at->second.leaves.size() == 1) continue;
          state.release(*state.gangs().find(at->first), i, i + 1);
          at->second.leaves[i].leaf = cell_id();
          if (std::all_of(at->second.leaves.begin(), at->second.leaves.end(),
                          [](const chain_leaf& l) { return !l.leaf.valid(); })) {
            state.drop(*state.gangs().find(at->first));
            known.erase(at);
          }
          check_settled(layout, state, known);
          continue;
        }
        const job_id winner = at->first;
        for (const chain_leaf& l : at->second.leaves) {
          const gang_slot user = state.cells().chain(l.chain).holders(l.leaf).user;
          if (!user.valid()) continue;
          known.erase(state.gangs()[user].request.job);
          state.drop(user);
        }
        state.bind_reserved(*state.gangs().find(winner));
        known[winner].preempting = false;
        known[winner].not_restored.clear();
      }
      check_settled(layout, state, known);
    }
    // All gone: as in the beginning, but for what is bad.
    for (const auto& [job, gang] : known) state.drop(*state.gangs().find(job));
    for (std::uint32_t c = 0; c < state.cells().num_chains(); ++c)
      for (const cell_id leaf : state.cells().chain(c).tree().cells(0)) state.mark({c, leaf}, true);
    CHECK(state.hash() == hived_state(layout).hash());
  }
  MESSAGE(preempting, " preempting, ", restored, " restored, ", recovered, " recovered, ", waiting,
          " to be restored later");
  if (apiary_test::scale() < 1) return;
  CHECK(preempting > 10);
  CHECK(restored > 10);
  CHECK(recovered > 10);
  CHECK(waiting > 0);
}

TEST_CASE("hived_state: the last cells go to the higher priority, then to the lower job") {
  const hived_layout layout = layout_to_settle();
  const std::uint32_t racks = racks_of(layout);
  const tenant_id b = layout.find_tenant("b").value();  // which has one pair
  for (const std::int32_t priority : {1, 2, 3}) {
    CAPTURE(priority);
    hived_state state(layout);
    const cell_id first = state.cells().chain(racks).first_leaf(0);
    for (const std::uint32_t job : {5U, 4U}) {
      const cell_id left(first.value + (job == 5 ? 0 : 2));
      const bool whole =
          state.recover(record_of(request_of(job_id(job), b, job == 5 ? 2 : priority, 2),
                                  {{racks, left}, {racks, cell_id(left.value + 1)}}));
      CHECK(whole == (job == 5));
    }
    const gang_slot fifth = *state.gangs().find(job_id(5));
    const gang_slot fourth = *state.gangs().find(job_id(4));
    CHECK(state.cells().whole_cell_level(0, state.gangs()[fifth].leaves[1].leaf) == 1);
    const std::uint64_t before = state.hash();
    state.downgrade(fifth);
    CHECK(state.gangs()[fifth].downgraded);
    CHECK(state.gangs()[fifth].effective_priority() == gang_request::opportunistic_priority);
    CHECK(state.hash() != before);
    state.restore({job_id(5), job_id(77), job_id(4)});
    const bool to_fourth = priority >= 2;
    CHECK(state.gangs()[fourth].guaranteed() == to_fourth);
    CHECK(state.gangs()[fifth].guaranteed() == !to_fourth);
    CHECK((state.hash() == before) == !to_fourth);
    CHECK(apiary_test::afresh::audit_afresh(layout, state.cells(), state.gangs()).empty());
  }
}

TEST_CASE("hived_state: a gang that ran before has whole cells of the levels that it had") {
  const hived_layout layout = layout_to_settle();
  const std::uint32_t racks = racks_of(layout);
  const tenant_id a = layout.find_tenant("a").value();
  hived_state state(layout);
  const cell_id leaf = state.cells().chain(racks).first_leaf(2);
  const std::vector<level_t> levels{3};
  CHECK(state.recover(record_of(request_of(job_id(1), a, 0, 1), {{racks, leaf}}), levels));
  CHECK(state.cells().whole_cell_level(racks, leaf) == 3);
  // Leaves of two chains get no cells, nor does a gang without leaves.
  CHECK(!state.recover(record_of(request_of(job_id(2), a, 0, 2),
                                 {{racks, state.cells().chain(racks).first_leaf(3)},
                                  {1 - racks, state.cells().chain(1 - racks).first_leaf(1)}})));
  CHECK(!state.recover(record_of(request_of(job_id(3), a, 0, 1), {{racks, cell_id()}})));
  CHECK(!state.recover(
      record_of(request_of(job_id(4), tenant_id(), 0, 1), {{racks, cell_id(leaf.value + 1)}})));
  CHECK(state.recover(record_of(request_of(job_id(5), a, gang_request::opportunistic_priority, 1),
                                {{racks, cell_id(leaf.value + 2)}})));
  for (const std::uint32_t job : {2U, 3U, 4U})
    CHECK(state.gangs()[*state.gangs().find(job_id(job))].downgraded);
  CHECK(!state.gangs()[*state.gangs().find(job_id(5))].downgraded);
}

TEST_CASE("hived_state: a cancelled preemption names the gangs that it downgraded") {
  const hived_layout layout = layout_to_settle();
  hived_state state(layout);
  const tenant_id a = layout.find_tenant("a").value();
  rng random(1);
  const gang_placement place =
      guaranteed_placement(state, state.cells().cluster_of(a, racks_of(layout)), 4, random);
  REQUIRE(place.leaves.size() == 4);
  const gang_slot victim = state.admit(request_of(job_id(1), a, 0, 4), place, false, {});
  state.downgrade(victim);
  const std::uint64_t before = state.hash();
  const gang_slot winner =
      state.admit(request_of(job_id(2), a, 5, 4), place, true, {job_id(1), job_id(9)});
  const auto all_held = [&](leaf_holders by) {
    return std::all_of(place.leaves.begin(), place.leaves.end(), [&](const bound_leaf& l) {
      return state.cells().chain(place.chain).holders(l.image) == by;
    });
  };
  CHECK(all_held({victim, winner, false}));
  std::vector<job_id> to_restore{job_id(8)};
  state.drop_preempting(winner, to_restore);
  CHECK(to_restore == std::vector{job_id(8), job_id(1), job_id(9)});
  CHECK(state.hash() == before);
  state.restore(to_restore);
  CHECK(all_held({victim, gang_slot(), true}));
  CHECK(apiary_test::afresh::audit_afresh(layout, state.cells(), state.gangs()).empty());

  // One that is not withdrawn runs, and forgets them.
  state.downgrade(victim);
  const gang_slot next = state.admit(request_of(job_id(3), a, 5, 4), place, true, {job_id(1)});
  state.drop(victim);
  state.bind_reserved(next);
  CHECK(all_held({next, gang_slot(), true}));
  CHECK(state.gangs()[next].downgraded_victims.empty());
  CHECK(apiary_test::afresh::audit_afresh(layout, state.cells(), state.gangs()).empty());
}

TEST_CASE("hived_state: a gang gets its cells back when the last claim on them is cancelled") {
  const hived_layout layout = layout_to_settle();
  hived_state state(layout);
  const tenant_id a = layout.find_tenant("a").value();
  rng random(1);
  const vc_chain_id c = state.cells().cluster_of(a, racks_of(layout));
  const gang_placement place = guaranteed_placement(state, c, 4, random);
  REQUIRE(place.leaves.size() == 4);
  const job_id downgraded(1);
  state.downgrade(state.admit(request_of(downgraded, a, 0, 4), place, false, {}));
  const auto preempt = [&](std::uint32_t job, std::size_t first) {
    gang_placement one = place;
    one.leaves = {place.leaves[first]};
    return state.admit(request_of(job_id(job), a, 5, 1), one, true, {});
  };
  const gang_slot one = preempt(2, 0);
  const gang_slot two = preempt(3, 2);
  const gang_slot new_one = preempt(4, 3);
  const auto restored = [&](std::optional<gang_slot> preempting, std::vector<job_id> jobs) {
    return !state.restore(std::move(jobs), preempting).empty();
  };
  const std::vector<job_id> waits{downgraded};
  CHECK(!restored(new_one, waits));
  for (const gang_slot by : {one, two, new_one})
    CHECK(state.gangs()[by].downgraded_victims == waits);
  for (const gang_slot by : {new_one, one, two}) {
    std::vector<job_id> to_restore;
    state.drop_preempting(by, to_restore);
    CHECK(to_restore == waits);
    CHECK(restored(std::nullopt, to_restore) == (by == two));
  }
  CHECK(state.gangs()[*state.gangs().find(downgraded)].guaranteed());
  CHECK(apiary_test::afresh::audit_afresh(layout, state.cells(), state.gangs()).empty());
}

TEST_CASE("hived_state: the hash covers which task group has a spread") {
  const hived_layout layout = layout_to_settle();
  const std::uint32_t racks = racks_of(layout);
  const tenant_id a = layout.find_tenant("a").value();
  request_constraints::of_group spread;
  spread.spread = {{0, no_task_group}};
  std::set<std::uint64_t> hashes;
  for (const bool first : {false, true}) {
    hived_state state(layout);
    const cell_id leaf = state.cells().chain(racks).first_leaf(0);
    gang_request r = request_of(job_id(1), a, 0, 1);
    r.groups = {{1, 1}, {1, 1}};
    r.constraints.edit().groups.resize(2);
    r.constraints.edit().groups[first ? 0 : 1] = spread;
    state.recover(record_of(r, {{racks, leaf}, {racks, cell_id(leaf.value + 1)}}));
    hashes.insert(state.hash());
  }
  CHECK(hashes.size() == 2);
}

TEST_CASE("hived_state: a downgraded gang forgets the levels of the leaves that it gave back") {
  const hived_layout layout = layout_to_settle();
  hived_state state(layout);
  const tenant_id a = layout.find_tenant("a").value();
  rng random(1);
  const gang_placement place =
      guaranteed_placement(state, state.cells().cluster_of(a, racks_of(layout)), 2, random);
  REQUIRE(place.leaves.size() == 2);
  const gang_slot slot = state.admit(request_of(job_id(1), a, 0, 2), place, false, {});
  state.downgrade(slot);
  CHECK(state.gangs()[slot].lost_levels == std::vector<level_t>{3, 3});
  state.release(slot, 0, 1);
  CHECK(state.gangs()[slot].lost_levels == std::vector<level_t>{hived_cells::no_level, 3});
}

TEST_CASE("hived_state: a gang that has its cells back does not end for another one") {
  const hived_layout layout = layout_to_settle();
  hived_state state(layout);
  const tenant_id a = layout.find_tenant("a").value();
  rng random(1);
  gang_placement place =
      guaranteed_placement(state, state.cells().cluster_of(a, racks_of(layout)), 2, random);
  REQUIRE(place.leaves.size() == 2);
  gang_placement victims_place = place;
  victims_place.leaves = {place.leaves[0]};
  place.leaves = {place.leaves[1]};
  const gang_slot victim = state.admit(request_of(job_id(1), a, 0, 1), victims_place, false, {});
  state.downgrade(victim);
  place.downgraded = {victim};
  const gang_slot winner = state.admit(request_of(job_id(2), a, 5, 1), place, true, {job_id(1)});
  CHECK(state.gangs()[victim].ends_for == winner);
  CHECK(state.restore({job_id(1)}) == std::vector{job_id(1)});
  CHECK(!state.gangs()[victim].ends_for.valid());
}

TEST_CASE("hived_state: gangs that are downgraded in vain have their cells back") {
  const hived_layout layout = layout_to_settle();
  const std::uint32_t racks = racks_of(layout);
  const tenant_id b = layout.find_tenant("b").value();  // which has one pair
  hived_state state(layout);
  const auto leaf = [&](std::uint32_t i) {
    return chain_leaf{racks, cell_id(state.cells().chain(racks).first_leaf(0).value + i)};
  };
  REQUIRE(state.recover(record_of(request_of(job_id(1), b, 0, 2), {leaf(0), leaf(1)})));
  // Two leaves of the other pair, and one more: the tenant has no cells for that.
  REQUIRE(!state.recover(
      record_of(request_of(job_id(2), b, 3, 3),
                {leaf(2), leaf(3), {racks, state.cells().chain(racks).first_leaf(2)}})));
  const gang_slot low = *state.gangs().find(job_id(1));
  std::vector<job_id> lost;
  CHECK(!state.preempt_lazily(*state.gangs().find(job_id(2)), {}, lost));
  CHECK(lost.empty());
  CHECK(state.gangs()[low].guaranteed());
  CHECK(apiary_test::afresh::audit_afresh(layout, state.cells(), state.gangs()).empty());
}
