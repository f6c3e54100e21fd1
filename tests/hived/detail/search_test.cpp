// apiary/tests/hived/detail/search_test.cpp - places for gangs against packing by trial.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/search.h>
#include <apiary/hived/detail/victims.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/topology/health.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <support/hived_clusters.h>
#include <support/hived_documents.h>
#include <support/hived_racks.h>
#include <support/naive_gang.h>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using apiary_test::four_racks;
using apiary_test::four_racks_of;
using apiary_test::gang_of_few;
using apiary_test::leaf_counts;
using apiary_test::let_gangs_come_and_go;

namespace {

// Checks that the place is one, each leaf with a virtual leaf of its own.
void check_own_place(const hived_cells& cells, const gang_request& r, const gang_placement& place,
                     const health<uniform_tree>* usable) {
  apiary_test::check_place(cells.chain(place.chain), r, place, usable);
  std::set<cell_id> virtual_leaves;
  for (const bound_leaf& l : place.leaves)
    REQUIRE((l.leaf.valid() && virtual_leaves.insert(l.leaf).second));
}

bool packs(const leaf_counts& free, const gang_request& r) {
  return apiary_test::fits_by_sets(free, apiary_test::tasks_of(r.groups));
}

// Whether tasks fit into a tenant's free usable leaves for some way to grant the whole cells from
// `next` on that are not bound yet; the others have left `free` leaves a node.
bool some_grant_packs(const hived_cells& cells, vc_chain_id id, const gang_request& r,
                      const health<uniform_tree>& usable, const reserving_buddy_allocator& granted,
                      std::size_t next, const leaf_counts& free) {
  const virtual_cluster& cluster = cells.cluster(id);
  const physical_chain& chain = cells.chain(cluster.chain());
  std::vector<std::pair<cell_id, level_t>> roots;
  for (level_t l = 0; l < cluster.tree().num_levels(); ++l)
    for (const cell_id root : cluster.tree().roots(l)) roots.push_back({root, l});
  if (next == roots.size()) return packs(free, r);
  const auto [root, l] = roots[next];
  for (const cell_id p : chain.tree().cells(l)) {
    const bool bound = cluster.image(root).valid();
    if (bound ? cluster.image(root) != p : !granted.can_allocate_at(p)) continue;
    reserving_buddy_allocator more = granted;
    if (!bound) REQUIRE(more.allocate_at(p));
    leaf_counts all = free;
    for (const cell_id node : chain.tree().descendants(p, std::min(l, chain.node_level()))) {
      all.push_back(0);
      for (const cell_id leaf : chain.tree().descendants(node, 0))
        if (usable.healthy(leaf) && !chain.holders(leaf).taken()) ++all.back();
    }
    if (some_grant_packs(cells, id, r, usable, more, next + 1, all)) return true;
  }
  return false;
}

// Tenant "a" has two racks, "b" two nodes; some gangs have come and gone.
hived used_racks(rng& random) {
  hived h = four_racks_of(
      {{.name = "a", .cells = {{"RACK", 2}}}, {.name = "b", .cells = {{"RACK.NODE", 2}}}});
  let_gangs_come_and_go(h, random, random.uniform(2) == 0);
  return h;
}
gang_request equal_tasks(rng& random) {
  gang_request r{.job = job_id(99), .tenant = tenant_id(random.uniform(2)), .priority = 3};
  r.groups = {{1 + random.uniform(6), 1 + random.uniform(4)}};
  return r;
}

}  // namespace

TEST_CASE(
    "equal tasks fit under a filter if and only if whole cells that can be granted hold them") {
  rng random(73);
  int yes = 0;
  int no = 0;
  for (int round = 0; round < apiary_test::scaled(2000); ++round) {
    const hived h = used_racks(random);
    hived_cells cells = h.cells();
    const gang_request r = equal_tasks(random);
    const physical_chain& chain = cells.chain(0);
    health<uniform_tree> usable = chain.healthy();
    for (const cell_id leaf : chain.tree().cells(0))
      if (random.uniform(4) == 0) usable.mark_bad(leaf);
    const vc_chain_id id = cells.cluster_of(r.tenant, 0);
    hived_search search;
    const bool found = search.guaranteed(cells, h.gangs(), r, id, false, &usable, std::nullopt);
    REQUIRE(found == some_grant_packs(cells, id, r, usable, chain.cells(), 0, {}));
    if (found) check_own_place(cells, r, search.place(), &usable);
    found ? ++yes : ++no;
  }
  CHECK(yes > apiary_test::scaled(100));
  CHECK(no > apiary_test::scaled(100));
}

TEST_CASE("a guaranteed gang fits if and only if its tenant's own free leaves hold it") {
  rng random(61);
  int yes = 0;
  int no = 0;
  for (int round = 0; round < apiary_test::scaled(1500); ++round) {
    hived h = four_racks();
    let_gangs_come_and_go(h, random, false);
    hived_cells cells = h.cells();
    const std::uint64_t before = cells.hash();
    gang_request r = gang_of_few(random, 99);
    r.priority = 3;
    const vc_chain_id id = cells.cluster_of(r.tenant, 0);
    const virtual_cluster& cluster = cells.cluster(id);

    leaf_counts free;
    leaf_counts lower;  // those of lower priority as free
    for (std::uint32_t n = 0; n < cluster.num_nodes(); ++n) {
      free.push_back(static_cast<std::uint32_t>(std::popcount(cluster.free(n))));
      lower.push_back(cluster.range_of_node(n).leaves);
    }
    for (const auto& [rank, s] : h.gangs().of_cluster(id)) {
      if (h.gangs()[s].request.priority < r.priority) continue;
      for (const chain_leaf l : h.gangs()[s].leaves)
        --lower[cluster.node_of(cells.chain(0).owner(l.leaf).cell)];
    }
    hived_search search;
    for (const bool preempting : {false, true}) {
      const bool found =
          search.guaranteed(cells, h.gangs(), r, id, preempting, nullptr, std::nullopt);
      REQUIRE(cells.hash() == before);
      REQUIRE(found == packs(preempting ? lower : free, r));
      found ? ++yes : ++no;
      if (!found) {
        REQUIRE(search.verdict() == fit_verdict::does_not_fit);
        continue;
      }
      const gang_placement& place = search.place();
      REQUIRE(place.cluster == id);
      check_own_place(cells, r, place, nullptr);
      if (!preempting) REQUIRE(place.cancelled.empty());
      if (!preempting) REQUIRE(place.downgraded.empty());
      for (const gang_slot s : place.downgraded) REQUIRE(h.gangs()[s].request.lazy);
    }
  }
  CHECK(yes > apiary_test::scaled(100));
  CHECK(no > apiary_test::scaled(100));
}

TEST_CASE("with bad hardware and filters, placements are usable, and no running gang moves") {
  rng random(71);
  int found = 0;
  for (int round = 0; round < apiary_test::scaled(1000); ++round) {
    hived h = four_racks();
    let_gangs_come_and_go(h, random, true);
    hived_cells cells = h.cells();
    const std::uint64_t before = cells.hash();
    gang_request r = gang_of_few(random, 99);
    r.priority = 3;
    const physical_chain& chain = cells.chain(0);
    health<uniform_tree> usable = chain.healthy();
    for (std::uint32_t n = 0; n < chain.num_nodes(); ++n)
      if (random.uniform(4) == 0) usable.mark_bad(chain.node_cell(n));
    hived_search search;
    for (const health<uniform_tree>* filter :
         {static_cast<health<uniform_tree>*>(nullptr), &usable}) {
      for (const bool preempting : {false, true}) {
        const bool ok = search.guaranteed(cells, h.gangs(), r, cells.cluster_of(r.tenant, 0),
                                          preempting, filter, std::nullopt);
        REQUIRE(cells.hash() == before);
        if (!ok) continue;
        ++found;
        check_own_place(cells, r, search.place(), filter);
      }
    }
  }
  CHECK(found > apiary_test::scaled(100));
}

TEST_CASE("what would fit, were nothing in use") {
  hived h = four_racks();
  hived_refusal refusal;
  const refused_chain all{0, vc_chain_id(), wait_reason::never};
  const refused_chain of_a{0, h.cells().cluster_of(tenant_id(0), 0), wait_reason::never};
  const auto may = [&](std::vector<task_group> groups, const refused_chain& at) {
    return refusal.may_count(h.cells(), h.gangs(), {.groups = std::move(groups)}, at);
  };
  CHECK(may({{3, 4}, {1, 2}}, of_a));
  CHECK(!may({{4, 4}}, of_a));
  CHECK(!may({{3, 4}, {2, 2}}, of_a));
  CHECK(may({{8, 4}}, all));
  CHECK(!may({{9, 3}}, all));
  CHECK(may({{3, 4}}, {0, of_a.cluster}));
}

TEST_CASE("a gang whose leaves became bad is not blocked by its own claims") {
  hived h = four_racks_of({{.name = "a", .cells = {{"RACK.NODE", 2}}}});
  const gang_request low{.job = job_id(1), .tenant = tenant_id(0), .groups = {{2, 4}}};
  gang_request high{.job = job_id(2), .tenant = tenant_id(0), .priority = 5, .groups = {{2, 4}}};
  REQUIRE(h.commit(*h.propose(low)).ok());
  const auto claimed = h.propose(high);
  REQUIRE(claimed->result == plan_result::preempt);
  REQUIRE(h.commit(*claimed).ok());
  for (const hived_placement& t : claimed->tasks) REQUIRE(h.mark_bad(t.node).ok());
  const auto again = h.propose(high);
  CHECK(again->result == plan_result::preempt);
  CHECK(again->cancelled == std::vector<job_id>{job_id(2)});
  CHECK(again->victims == std::vector<job_id>{job_id(1)});
  for (std::uint32_t n = 0; n < h.layout().num_nodes(); ++n) REQUIRE(h.mark_bad(node_id(n)).ok());
  const auto nowhere = h.propose(high);
  REQUIRE(nowhere->result == plan_result::wait);
  CHECK(nowhere->wait.reason == wait_reason::unhealthy);
  const summary_bitset none(h.layout().num_nodes());
  for (std::uint32_t n = 0; n < h.layout().num_nodes(); ++n)
    REQUIRE(h.mark_healthy(node_id(n)).ok());
  high.suggested = &none;
  const auto elsewhere = h.propose(high);
  REQUIRE(elsewhere->result == plan_result::wait);
  CHECK(elsewhere->wait.reason == wait_reason::not_suggested);
}

TEST_CASE("a shortage names a chain that the gang may use") {
  hived_config c = apiary_test::small_cluster();
  c.virtual_clusters = {{.name = "t", .cells = {{"RACK", 2}, {"BOX", 1}}}};
  hived h = *hived::create(c);
  std::uint32_t racks = 0;
  while (h.layout().chains[racks].level_types[0] != "GPU") ++racks;
  const auto propose = [&](std::uint32_t job, std::uint32_t tasks) {
    return *h.propose({.job = job_id(job), .tenant = tenant_id(0), .groups = {{tasks, 4}}});
  };
  const gang_wait never = propose(0, 5).wait;
  CHECK(never.reason == wait_reason::never);
  CHECK(never.chain == racks);
  REQUIRE(never.shortage);
  CHECK(never.shortage->present * never.shortage->gpus == 16);
  REQUIRE(h.commit(propose(1, 4)).ok());
  const gang_wait busy = propose(0, 3).wait;
  CHECK(busy.reason == wait_reason::busy);
  CHECK(busy.chain == racks);
  REQUIRE(busy.shortage);
  CHECK(busy.shortage->present == 0);
}

TEST_CASE("a lazy gang makes way for one with suggested nodes, and runs on beside an idle node") {
  hived h = four_racks_of({{.name = "a", .cells = {{"RACK.NODE", 2}}}});
  const auto low = [](std::uint32_t job, std::uint32_t tasks, bool lazy) {
    return gang_request{
        .job = job_id(job), .tenant = tenant_id(0), .groups = {{tasks, 4}}, .lazy = lazy};
  };
  const auto first = *h.propose(low(1, 1, true));
  REQUIRE(h.commit(first).ok());
  const auto second = *h.propose(low(2, 1, true));
  REQUIRE(h.commit(second).ok());
  gang_request high{.job = job_id(3), .tenant = tenant_id(0), .priority = 5, .groups = {{1, 4}}};
  summary_bitset nodes(h.layout().num_nodes(), true);

  SUBCASE("all nodes but one that no task is on") { nodes.assign(7, false); }
  SUBCASE("none of the nodes in use") {
    nodes.assign(first.tasks[0].node.value, false);
    nodes.assign(second.tasks[0].node.value, false);
  }
  SUBCASE("one node that is not in use") {
    nodes = summary_bitset(h.layout().num_nodes());
    nodes.assign(6, true);
  }
  high.suggested = &nodes;
  const auto plan = *h.propose(high);
  REQUIRE(plan.result == plan_result::bind);
  CHECK(plan.downgraded == std::vector<job_id>{job_id(1)});
  CHECK(nodes.test(plan.tasks[0].node.value));
  REQUIRE(h.commit(plan).ok());
  CHECK(h.find(job_id(1))->downgraded);
  CHECK(!h.find(job_id(2))->downgraded);
}

// Nodes of so many leaves, named by their numbers; tenant "a" owns some of them.
hived equal_nodes(std::uint32_t leaves, std::uint32_t nodes, std::uint32_t owned) {
  hived_config c;
  c.cell_types = {{"NODE", "GPU", leaves, true}};
  for (std::uint32_t n = 0; n < nodes; ++n)
    c.physical_cells.push_back({.type = "NODE", .address = std::to_string(n)});
  c.virtual_clusters = {{.name = "a", .cells = {{"NODE", owned}}}};
  auto h = hived::create(c);
  REQUIRE(h.ok());
  return *std::move(h);
}
hived nodes_of_two(std::uint32_t nodes, std::uint32_t owned) {
  return equal_nodes(2, nodes, owned);
}
gang_request whole_nodes(std::uint32_t job, std::int32_t priority, std::uint32_t tasks = 1) {
  return {.job = job_id(job), .tenant = tenant_id(0), .priority = priority, .groups = {{tasks, 2}}};
}
gang_plan committed(hived& h, const gang_request& r) {
  auto plan = h.propose(r);
  REQUIRE(plan.ok());
  REQUIRE(h.commit(*plan).ok());
  return *std::move(plan);
}
// An opportunistic gang on each node.
void fill_with_guests(hived& h) {
  for (std::uint32_t n = 0; n < h.layout().num_nodes(); ++n)
    REQUIRE(committed(h, whole_nodes(100 + n, -1)).result == plan_result::bind);
}
summary_bitset only_node(const hived& h, node_id n) {
  summary_bitset nodes(h.layout().num_nodes());
  nodes.assign(n.value, true);
  return nodes;
}

TEST_CASE(
    "a preempting gang with unusable claims is cancelled for a higher priority of its tenant") {
  for (const bool bad : {false, true}) {
    hived h = nodes_of_two(2, 1);
    fill_with_guests(h);
    const gang_plan low = committed(h, whole_nodes(1, 1));
    REQUIRE(low.result == plan_result::preempt);
    const node_id claimed = low.tasks[0].node;
    const node_id other(1 - claimed.value);
    gang_request high = whole_nodes(2, 5);
    const summary_bitset nodes = only_node(h, other);
    if (bad) {
      REQUIRE(h.mark_bad(claimed).ok());
    } else {
      high.suggested = &nodes;
    }
    const gang_plan plan = committed(h, high);
    CHECK(plan.result == plan_result::preempt);
    CHECK(plan.cancelled == std::vector<job_id>{job_id(1)});
    REQUIRE(plan.tasks.size() == 1);
    CHECK(plan.tasks[0].node == other);
    CHECK(h.find(job_id(1)) == nullptr);
    // One of its priority does not.
    gang_request equal = whole_nodes(3, 5);
    CHECK(h.propose(equal)->result == plan_result::wait);
  }
}

TEST_CASE("no more preempting gangs with unusable claims are cancelled than necessary") {
  hived h = nodes_of_two(6, 3);
  fill_with_guests(h);
  std::vector<node_id> claimed;
  for (std::uint32_t job = 1; job <= 3; ++job)
    claimed.push_back(
        committed(h, whole_nodes(job, 4 - static_cast<std::int32_t>(job))).tasks[0].node);
  for (const node_id n : claimed) REQUIRE(h.mark_bad(n).ok());
  CHECK(h.propose(whole_nodes(9, 5))->cancelled == std::vector<job_id>{job_id(3)});
  CHECK(h.propose(whole_nodes(9, 5, 2))->cancelled == std::vector<job_id>{job_id(2), job_id(3)});
  CHECK(h.propose(whole_nodes(9, 3, 2))->cancelled == std::vector<job_id>{job_id(2), job_id(3)});
  CHECK(h.propose(whole_nodes(9, 3, 3))->result == plan_result::wait);
}

TEST_CASE("a preempting gang that proposes again with other suggested nodes gets those nodes") {
  for (const bool bad : {false, true}) {
    hived h = nodes_of_two(2, 1);
    fill_with_guests(h);
    gang_request r = whole_nodes(1, 1);
    const node_id claimed = committed(h, r).tasks[0].node;
    const node_id other(1 - claimed.value);
    const summary_bitset nodes = only_node(h, other);
    if (bad) {
      REQUIRE(h.mark_bad(claimed).ok());
    } else {
      r.suggested = &nodes;
    }
    const gang_plan plan = committed(h, r);
    CHECK(plan.result == plan_result::preempt);
    CHECK(plan.cancelled == std::vector<job_id>{job_id(1)});
    REQUIRE(plan.tasks.size() == 1);
    CHECK(plan.tasks[0].node == other);
  }
}

// A gang of tenant "a" runs on the one node it owns, of two, which then breaks or is not suggested.
struct stuck_gang {
  hived h = nodes_of_two(2, 1);
  summary_bitset nodes;
  gang_request high = whole_nodes(2, 1000);
  node_id used{};
  node_id other{};

  stuck_gang(bool lazy, bool bad) {
    gang_request low = whole_nodes(1, 0);
    low.lazy = lazy;
    used = committed(h, low).tasks[0].node;
    other = node_id(1 - used.value);
    nodes = only_node(h, other);
    if (bad) {
      REQUIRE(h.mark_bad(used).ok());
    } else {
      high.suggested = &nodes;
    }
  }
};

TEST_CASE("a lazy gang on bad hardware makes way at once, one that is not lazy ends first") {
  for (const bool lazy : {false, true}) {
    for (const bool bad : {false, true}) {
      stuck_gang s(lazy, bad);
      const gang_plan plan = committed(s.h, s.high);
      REQUIRE(plan.tasks.size() == 1);
      CHECK(plan.tasks[0].node == s.other);
      CHECK(plan.result == (lazy ? plan_result::bind : plan_result::preempt));
      CHECK(plan.downgraded == std::vector<job_id>(lazy ? 1 : 0, job_id(1)));
      CHECK(plan.victims == std::vector<job_id>(lazy ? 0 : 1, job_id(1)));
      CHECK(s.h.find(job_id(1))->downgraded);
      CHECK(s.h.being_preempted(*s.h.find(job_id(1))) == !lazy);
      CHECK(apiary_test::faults_of(s.h) == "");
      if (lazy) continue;
      const gang_plan still = committed(s.h, s.high);
      CHECK(still.result == plan_result::preempt);
      CHECK(still.victims == plan.victims);
      CHECK(still.tasks == plan.tasks);
      REQUIRE(s.h.finish(job_id(1)).ok());
      const gang_plan now = committed(s.h, s.high);
      CHECK(now.result == plan_result::bind);
      CHECK(now.tasks == plan.tasks);
      CHECK(s.h.find(job_id(2))->state == gang_state::allocated);
      CHECK(apiary_test::faults_of(s.h) == "");
    }
  }
}

TEST_CASE("a victim that must end for its cells is restored when the preemptor is cancelled") {
  stuck_gang s(false, true);
  const std::uint64_t before = s.h.hash();
  committed(s.h, s.high);
  REQUIRE(s.h.cancel(job_id(2)).ok());
  CHECK(s.h.find(job_id(1))->guaranteed());
  CHECK(!s.h.being_preempted(*s.h.find(job_id(1))));
  CHECK(s.h.hash() == before);
}

TEST_CASE("a victim need not end when a higher priority takes over its preemptor's claims") {
  stuck_gang s(false, true);
  s.high.priority = 5;
  committed(s.h, s.high);
  for (const bool claims : {false, true}) {  // an opportunistic gang on the other node
    hived h = s.h;
    if (claims) {
      REQUIRE(h.finish(job_id(2)).ok());
      REQUIRE(committed(h, whole_nodes(7, -1)).result == plan_result::bind);
      REQUIRE(committed(h, s.high).victims == std::vector<job_id>{job_id(1), job_id(7)});
    }
    const gang_request higher = whole_nodes(3, 9);
    const gang_plan plan = committed(h, higher);
    CHECK(plan.cancelled == std::vector<job_id>{job_id(2)});
    CHECK(plan.victims == std::vector<job_id>(claims ? 1 : 0, job_id(7)));
    CHECK(h.find(job_id(1))->downgraded);
    CHECK(!h.being_preempted(*h.find(job_id(1))));
    CHECK(apiary_test::faults_of(h) == "");
    if (!claims) continue;
    CHECK(committed(h, higher).victims == plan.victims);
    hived withdrawn = h;
    REQUIRE(withdrawn.cancel(job_id(3)).ok());
    CHECK(withdrawn.find(job_id(1))->guaranteed());
    REQUIRE(h.finish(job_id(7)).ok());
    CHECK(committed(h, higher).result == plan_result::bind);
  }
}

TEST_CASE("a gang of the name of one that was to end is another one") {
  stuck_gang s(false, true);
  const gang_plan plan = committed(s.h, s.high);
  REQUIRE(s.h.finish(job_id(1)).ok());
  gang_request opportunistic = whole_nodes(1, -1);
  CHECK(s.h.propose(opportunistic)->result ==
        plan_result::wait);  // one node is bad, the other claimed
  REQUIRE(s.h.mark_healthy(s.used).ok());
  REQUIRE(committed(s.h, opportunistic).result == plan_result::bind);
  CHECK(committed(s.h, s.high).result == plan_result::bind);
}

TEST_CASE("of gangs on hardware that will not do, no more end than must") {
  hived h = nodes_of_two(6, 3);
  for (std::uint32_t job = 1; job <= 3; ++job) {
    gang_request r = whole_nodes(job, 4 - static_cast<std::int32_t>(job));
    r.lazy = job == 1;
    REQUIRE(h.mark_bad(committed(h, r).tasks[0].node).ok());
  }
  // The lazy one, though it is the highest of them.
  CHECK(h.propose(whole_nodes(9, 5))->downgraded == std::vector<job_id>{job_id(1)});
  CHECK(h.propose(whole_nodes(9, 5))->victims.empty());
  CHECK(h.propose(whole_nodes(9, 5, 2))->downgraded == std::vector<job_id>{job_id(1)});
  CHECK(h.propose(whole_nodes(9, 5, 2))->victims == std::vector<job_id>{job_id(3)});
  CHECK(h.propose(whole_nodes(9, 2))->victims == std::vector<job_id>{job_id(3)});
  CHECK(h.propose(whole_nodes(9, 1))->result == plan_result::wait);
}

TEST_CASE(
    "with unusable hardware, a gang that ends anyway yields before a gang of lower priority") {
  hived h = nodes_of_two(4, 3);
  const gang_plan two = committed(h, whole_nodes(1, 1, 2));
  REQUIRE(committed(h, whole_nodes(2, 9)).result == plan_result::bind);
  const gang_plan claims = committed(h, whole_nodes(3, 5));
  REQUIRE(claims.victims == std::vector{job_id(1)});
  REQUIRE(h.finish(job_id(2)).ok());
  const gang_plan low = committed(h, whole_nodes(4, 0));
  REQUIRE(low.result == plan_result::bind);
  const bool first = claims.tasks[0].node == two.tasks[0].node;
  REQUIRE(h.mark_bad(two.tasks[first ? 1 : 0].node).ok());  // the one that is not claimed
  REQUIRE(h.mark_bad(low.tasks[0].node).ok());
  const gang_plan plan = committed(h, whole_nodes(5, 3));
  REQUIRE(plan.result == plan_result::preempt);
  CHECK(plan.victims == std::vector{job_id(1)});
}

// How many gangs end before a gang can run there.
std::size_t num_ended(const physical_chain& chain, const gang_table& gangs,
                      const gang_placement& place) {
  std::set<gang_slot> ended;
  for (const bound_leaf& l : place.leaves)
    if (chain.holders(l.image).user.valid()) ended.insert(chain.holders(l.image).user);
  for (const gang_slot s : place.downgraded)
    if (hived_victims::must_end(gangs[s])) ended.insert(s);
  return ended.size();
}

TEST_CASE("a search that tries several placements grants the one that ends the fewest gangs") {
  rng random(97);
  int tried = 0;
  int better = 0;
  for (int round = 0; round < apiary_test::scaled(2000); ++round) {
    CAPTURE(round);
    const hived h = used_racks(random);
    hived_cells cells = h.cells();
    gang_request r = gang_of_few(random, 99);
    r.priority = 1000;
    const physical_chain& chain = cells.chain(0);
    health<uniform_tree> usable = chain.healthy();
    for (const cell_id leaf : chain.tree().cells(0))
      if (random.uniform(4) == 0) usable.mark_bad(leaf);
    const vc_chain_id id = cells.cluster_of(r.tenant, 0);
    hived_search first;
    if (!first.attempt({cells, h.gangs(), r, id, true, std::nullopt}, {.usable = &usable}))
      continue;
    const gang_placement& at_first = first.place();
    const std::size_t most = num_ended(chain, h.gangs(), at_first);
    hived_search search;
    REQUIRE(search.guaranteed(cells, h.gangs(), r, id, true, &usable, std::nullopt));
    check_own_place(cells, r, search.place(), &usable);
    const std::size_t ended = num_ended(chain, h.gangs(), search.place());
    REQUIRE(ended <= most);
    if (ended == most) REQUIRE(search.place().leaves == at_first.leaves);  // of equals, the first
    ++tried;
    better += ended < most ? 1 : 0;
  }
  CHECK(tried > 0);
  if (apiary_test::scale() >= 1) CHECK(better > 0);
}

TEST_CASE("of placements that end as many gangs the first is granted, and no lazy gang yields") {
  hived h = nodes_of_two(3, 1);
  const summary_bitset first = only_node(h, node_id(0));
  const summary_bitset second = only_node(h, node_id(1));
  gang_request lazy = whole_nodes(1, 0);
  lazy.lazy = true;
  lazy.suggested = &first;
  REQUIRE(committed(h, lazy).tasks[0].node == node_id(0));
  gang_request guest = whole_nodes(2, -1);
  guest.groups = {{1, 1}};
  guest.suggested = &second;
  REQUIRE(committed(h, guest).tasks[0].node == node_id(1));
  // On the first node the lazy gang ends. If it gave up its cell instead, the guest would end.
  gang_request high = whole_nodes(3, 5);
  summary_bitset both(3, true);
  both.reset(2);
  high.suggested = &both;
  const gang_plan plan = *h.propose(high);
  CHECK(plan.tasks[0].node == node_id(0));
  CHECK(plan.victims == std::vector<job_id>{job_id(1)});
  CHECK(plan.downgraded.empty());
}

TEST_CASE("two lazy gangs do not give up their cells if two other gangs end instead of them") {
  hived h = equal_nodes(4, 5, 2);
  const auto start = [&](std::uint32_t job, std::int32_t priority, std::uint64_t leaves,
                         std::vector<std::uint32_t> nodes) {
    gang_request r{.job = job_id(job), .tenant = tenant_id(0), .priority = priority};
    r.lazy = priority >= 0;
    r.groups = {{static_cast<std::uint32_t>(nodes.size()),
                 static_cast<std::uint32_t>(std::popcount(leaves))}};
    std::vector<hived_placement> tasks;
    for (const std::uint32_t n : nodes) tasks.push_back({.node = node_id(n), .leaves = leaves});
    REQUIRE(h.recover(r, tasks).ok());
  };
  start(1, 0, 15, {0});
  start(2, 0, 15, {1});
  start(3, -1, 1, {2, 3});
  start(4, -1, 2, {2, 3});
  // Beside the cell of one lazy gang, both gangs of a third node would end: three together. Instead
  // of both cells, the gangs of two other nodes would end: these are two, as many as the lazy ones.
  gang_request high{.job = job_id(9), .tenant = tenant_id(0), .priority = 5, .groups = {{2, 4}}};
  summary_bitset nodes(5, true);
  nodes.reset(4);
  high.suggested = &nodes;
  const gang_plan plan = *h.propose(high);
  CHECK(plan.victims == std::vector<job_id>{job_id(1), job_id(2)});
  CHECK(plan.downgraded.empty());
}

TEST_CASE("an attempt that finds no healthy cell for a leaf leaves no cell bound") {
  hived h = nodes_of_two(3, 2);
  for (const std::uint32_t n : {1U, 2U}) REQUIRE(h.mark_bad(node_id(n), 0).ok());
  const std::uint64_t before = h.hash();
  // The first two leaves get node 0. Then no node is left that is healthy as a whole.
  const gang_request r{.job = job_id(1), .tenant = tenant_id(0), .groups = {{3, 1}}};
  gang_plan plan = *h.propose(r);
  CHECK(h.hash() == before);
  CHECK(audit(h).empty());
  REQUIRE(plan.result == plan_result::bind);
  REQUIRE(h.commit(plan).ok());
  CHECK(audit(h).empty());
  REQUIRE(h.finish(job_id(1)).ok());
  CHECK(h.hash() == before);
}

TEST_CASE("a search that has used up its budget of grants refuses nothing") {
  // The tenant owns four of forty racks of two nodes. Half of the racks have five GPUs left on each
  // node, the others eight and four. Six tasks of five GPUs and four of four fit into no four racks,
  // but no count shows it, and there are too many ways to choose the racks.
  hived_config c;
  c.cell_types = {{"NODE", "GPU", 8, true}, {"RACK", "NODE", 2}};
  for (std::uint32_t n = 0; n < 40; ++n)
    c.physical_cells.push_back(apiary_test::rack({apiary_test::named(std::to_string(2 * n)),
                                                  apiary_test::named(std::to_string(2 * n + 1))}));
  c.virtual_clusters = {{.name = "a", .cells = {{"RACK", 4}}}};
  const hived h = hived::create(c).value();
  hived_cells cells = h.cells();
  const physical_chain& chain = cells.chain(0);
  health<uniform_tree> usable = chain.healthy();
  for (std::uint32_t n = 0; n < chain.num_nodes(); ++n) {
    const std::uint32_t bad = n / 2 % 2 == 0 ? 3 : n % 2 == 0 ? 0 : 4;
    for (std::uint32_t i = 0; i < bad; ++i) usable.mark_bad(cell_id(chain.first_leaf(n).value + i));
  }
  const gang_request r{.job = job_id(1), .tenant = tenant_id(0), .groups = {{6, 5}, {4, 4}}};
  const vc_chain_id id = cells.cluster_of(r.tenant, 0);
  hived_search search;
  CHECK(!search.guaranteed(cells, h.gangs(), r, id, false, &usable, std::nullopt));
  CHECK(search.verdict() == fit_verdict::budget_ended);
  CHECK(!search.shortage());
  // Racks for seven tasks of five GPUs come first when racks are ranked by tasks of that size.
  const gang_request other{.job = job_id(1), .tenant = tenant_id(0), .groups = {{1, 2}, {7, 5}}};
  CHECK(search.guaranteed(cells, h.gangs(), other, id, false, &usable, std::nullopt));
}

TEST_CASE("a gang that preempts another one uses the idle GPUs beside it") {
  hived h = four_racks_of({{.name = "a", .cells = {{"RACK.NODE", 1}}}});
  gang_request r{.job = job_id(1), .tenant = tenant_id(0), .groups = {{1, 3}}};
  const gang_plan low = committed(h, r);
  REQUIRE(low.result == plan_result::bind);
  r.job = job_id(2);
  r.priority = 5;
  const gang_plan high = *h.propose(r);
  REQUIRE(high.result == plan_result::preempt);
  REQUIRE(high.tasks[0].node == low.tasks[0].node);
  const std::uint64_t idle = 0xf & ~low.tasks[0].leaves;
  CHECK((high.tasks[0].leaves & idle) == idle);
}

TEST_CASE("tasks are placed as if sorted by size, and listed in the order of the request") {
  rng random(79);
  int several = 0;
  for (int round = 0; round < apiary_test::scaled(500); ++round) {
    hived h = four_racks();
    let_gangs_come_and_go(h, random, true);
    gang_request r = gang_of_few(random, 99);
    r.groups.clear();
    for (std::uint32_t m = 2 + random.uniform(4); m > 0; --m)
      r.groups.push_back({1 + random.uniform(2), 1 + random.uniform(2)});
    gang_request by_size = r;
    std::vector<task_group>& sorted = by_size.groups;
    sorted = {{0, r.groups[0].gpus}, {0, 3 - r.groups[0].gpus}};
    for (const task_group& m : r.groups) sorted[m.gpus == sorted[0].gpus ? 0 : 1].tasks += m.tasks;
    if (sorted[1].tasks == 0) sorted.pop_back();
    const auto plan = *h.propose(r);
    const auto expected = *h.propose(by_size);
    REQUIRE(plan.result == expected.result);
    REQUIRE(plan.wait.reason == expected.wait.reason);
    REQUIRE(plan.victims == expected.victims);
    REQUIRE(plan.tasks.size() == expected.tasks.size());
    if (plan.result == plan_result::wait) continue;
    ++several;
    std::size_t next[2] = {0, sorted[0].tasks};
    std::size_t task = 0;
    for (const task_group& m : r.groups) {
      for (std::uint32_t t = 0; t < m.tasks; ++t)
        REQUIRE(plan.tasks[task++] == expected.tasks[next[m.gpus == sorted[0].gpus ? 0 : 1]++]);
    }
  }
  CHECK(several > apiary_test::scaled(50));
}
