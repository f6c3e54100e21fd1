// apiary/tests/sched/audit_test.cpp - every rule of the audit holds, and is seen to be broken.
// SPDX-License-Identifier: MIT
#include "support/hived_documents.h"
#include "support/hived_worlds.h"
#include <apiary/alloc/node_index.h>
#include <apiary/alloc/quota_ledger.h>
#include <apiary/alloc/safe_buddy_allocator.h>
#include <apiary/core/bitset.h>
#include <apiary/model/health.h>
#include <apiary/sched/audit.h>
#include <apiary/sched/gang_table.h>
#include <apiary/sched/hived.h>
#include <apiary/sched/hived_cells.h>
#include <apiary/sched/physical_chain.h>
#include <apiary/sched/virtual_cluster.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace apiary;

// What a scheduler shows as constant is not so in a copy of ours.
template <class T>
T& broken(const T& part) {
  return const_cast<T&>(part);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

gang_request gang(std::uint32_t job, std::uint32_t tenant, std::int32_t priority,
                  std::vector<gang_member> members) {
  return {.job = job_id(job),
          .tenant = tenant_id(tenant),
          .priority = priority,
          .members = std::move(members)};
}

constexpr std::uint32_t tenant_b = 0;
constexpr std::uint32_t tenant_a = 1;

// The small cluster with gangs of all kinds: 1 and 2 are a's and fill a rack, 3 is about to preempt
// 1, 4 is b's in a pair of its own, 5 in its pinned node, where another leaf is bad; 6 is
// opportunistic.
class scene {
 public:
  scene() {
    for (const gang_request& r :
         {gang(1, tenant_a, 0, {{1, 4}}), gang(2, tenant_a, 3, {{2, 2}}),
          gang(3, tenant_a, 2, {{1, 3}}), gang(4, tenant_b, 1, {{2, 1}}),
          gang(5, tenant_b, 1, {{1, 2}}), gang(6, tenant_b, -1, {{1, 1}})}) {
      gang_request asked = r;
      asked.leaf_type = *whole.find_leaf_type("GPU");
      if (r.job.value == 5) asked.pinned = 0;
      const auto plan = whole.propose(asked);
      REQUIRE(plan.ok());
      REQUIRE(plan->result == (r.job.value == 3 ? outcome::preempt : outcome::bind));
      REQUIRE(whole.commit(*plan).ok());
    }
    const task_place pinned = whole.tasks(*whole.find(job_id(5)))[0];
    std::uint32_t idle = 0;
    while ((pinned.leaves >> idle & 1) != 0) ++idle;
    REQUIRE(whole.mark_bad(pinned.node, idle).ok());
    cells = whole.cells();
    gangs = whole.gangs();
    rack = whole.gangs()[slot(1)].leaves[0].chain;
  }

  hived whole = *hived::create(apiary_test::small_cluster());
  hived_cells cells = whole.cells();
  gang_table gangs = whole.gangs();
  std::uint32_t rack = 0;  // the chain of the racks

  [[nodiscard]] gang_slot slot(std::uint32_t job) const { return *whole.gangs().find(job_id(job)); }
  [[nodiscard]] gang_record& record(std::uint32_t job) { return gangs[slot(job)]; }
  [[nodiscard]] cell_id leaf(std::uint32_t job, std::size_t i = 0) const {
    return whole.gangs()[slot(job)].leaves[i].leaf;
  }
  [[nodiscard]] physical_chain& chain() { return broken(cells.chain(rack)); }
  [[nodiscard]] virtual_cell owner(std::uint32_t job) { return chain().owner(leaf(job)); }
  [[nodiscard]] virtual_cluster& cluster(std::uint32_t job) {
    return broken(cells.cluster(record(job).cluster));
  }
  [[nodiscard]] cell_id idle_leaf() {
    for (const cell_id c : chain().tree().cells(0))
      if (chain().holders(c).idle() && chain().cells().cells().enclosing_free_level(c)) return c;
    return cell_id();
  }
  [[nodiscard]] std::vector<violation> found() const { return audit(whole.layout(), cells, gangs); }
};

struct damage {
  const char* rule;
  std::string witness;  // part of it
  std::function<void(scene&)> inflict;
};

// Each breaks at least the rule it names.
const std::vector<damage>& all_damage() {
  static const std::vector<damage> all = {
      {"table", "is not found by its job", [](scene& s) { s.record(4).request.job = job_id(99); }},
      {"table", "two jobs have slot",
       [](scene& s) {
         const gang_slot slot = s.gangs.add({.request = gang(7, tenant_b, -1, {{1, 1}})});
         s.gangs[slot].request.job = job_id(8);
         s.gangs.remove(slot);
         s.gangs.add({.request = gang(9, tenant_b, -1, {{1, 1}})});
       }},
      {"table", "gang 4 is listed in cluster",
       [](scene& s) { s.record(4).cluster = s.record(1).cluster; }},
      {"table", "gang 6 is not listed in cluster",
       [](scene& s) { s.record(6).cluster = s.record(1).cluster; }},
      {"once", "gang 1 and gang 6",
       [](scene& s) { s.record(6).leaves[0] = s.record(1).leaves[0]; }},
      {"once", "gang 2 and gang 2",
       [](scene& s) { s.record(2).leaves[0] = s.record(2).leaves[1]; }},
      {"holders", "user gang 6, claimer no gang; by the gangs user no gang",
       [](scene& s) {
         s.cells.hold(s.rack, s.idle_leaf(), {s.slot(6), {}, false});
       }},
      {"holders", "user unknown slot 77",
       [](scene& s) {
         s.cells.hold(s.rack, s.idle_leaf(), {gang_slot(77), {}, false});
       }},
      {"holders", "user no gang, claimer gang 3; by the gangs user gang 1 (guaranteed)",
       [](scene& s) {
         s.cells.hold(s.rack, s.leaf(3), {{}, s.slot(3), false});
       }},
      {"holders", "user gang 4, claimer no gang; by the gangs user gang 4 (guaranteed)",
       [](scene& s) {
         s.cells.hold(s.rack, s.leaf(4), {s.slot(4), {}, false});
       }},
      {"tasks", "places for 3 leaves of 4", [](scene& s) { s.record(1).leaves.pop_back(); }},
      {"tasks", "task 0 has 1 leaves of 2",
       [](scene& s) { s.record(5).leaves[0].leaf = cell_id(); }},
      {"tasks", "gang 4 has no leaf",
       [](scene& s) {
         for (chain_leaf& l : s.record(4).leaves) l.leaf = cell_id();
       }},
      {"tasks", "gang 2: task 0 on two nodes",
       [](scene& s) { s.record(2).leaves[0] = s.record(1).leaves[0]; }},
      {"class", "gang 4 of priority 1, downgraded, has cluster",
       [](scene& s) { s.record(4).downgraded = true; }},
      {"class", "gang 4 of priority 1 has no cluster",
       [](scene& s) { s.gangs.move(s.slot(4), cluster_id()); }},
      {"class", "gang 6 of priority -1 has cluster",
       [](scene& s) { s.gangs.move(s.slot(6), s.record(4).cluster); }},
      {"own cells", "gang 4 of tenant 1", [](scene& s) { s.record(4).request.tenant.value = 1; }},
      {"own cells", "gang 5 of tenant 0", [](scene& s) { s.record(5).request.pinned.reset(); }},
      {"own cells", "has cells of cluster 99",
       [](scene& s) { s.record(4).cluster = cluster_id(99); }},
      {"own cells", "is bound to cluster",
       [](scene& s) { s.chain().set_owner(s.leaf(4), s.owner(1)); }},
      {"own cells", "is bound to nothing",
       [](scene& s) { s.chain().set_owner(s.leaf(4), virtual_cell()); }},
      {"own cells", "is taken and bound to nothing",
       [](scene& s) {
         s.chain().hold(s.idle_leaf(), {s.slot(4), {}, true});
       }},
      {"preempting", "gang 1",
       [](scene& s) { s.record(1).downgraded_victims.push_back(job_id(2)); }},
      {"preempting", "gang 3", [](scene& s) { s.gangs.move(s.slot(3), cluster_id()); }},
      {"ending", "gang 1 is to end for gang 3", [](scene& s) { s.record(1).ends_for = s.slot(3); }},
      {"ending", "gang 6 is to end for gang 3",
       [](scene& s) {
         s.record(6).downgraded = true;
         s.record(6).ends_for = s.slot(3);
       }},
      {"ending", "gang 6 is to end for gang 2",
       [](scene& s) {
         s.record(6).downgraded = true;
         s.record(6).ends_for = s.slot(2);
         s.record(2).downgraded_victims.push_back(job_id(6));
       }},
      {"ending", "gang 6 is to end for unknown slot 77",
       [](scene& s) { s.record(6).ends_for = gang_slot(77); }},
      {"claims", "gang 3 of priority 0 claims it from gang 1 of priority 0",
       [](scene& s) { s.record(3).request.priority = 0; }},
      {"claims", "a guaranteed one of another tenant",
       [](scene& s) { s.record(3).request.tenant = tenant_id(tenant_b); }},
      {"bijection", "bound to RACK cell",
       [](scene& s) { s.cluster(4).set_image(s.owner(4).cell, s.idle_leaf()); }},
      {"bijection", "bound to RACK cell 0",
       [](scene& s) { s.cluster(4).set_image(s.owner(4).cell, cell_id(0)); }},
      {"bijection", "bound to RACK cell 7777",
       [](scene& s) { s.cluster(4).set_image(s.owner(4).cell, cell_id(7777)); }},
      {"bijection", "which is not bound to it",
       [](scene& s) { s.chain().set_owner(s.idle_leaf(), s.owner(4)); }},
      {"shape", "of level 0, bound to RACK cell",
       [](scene& s) {
         for (const cell_id v : s.cluster(5).tree().cells(0)) {
           if (s.cluster(5).image(v).valid()) continue;
           s.cells.place_at(s.record(5).cluster, {v, s.idle_leaf()});
           return;
         }
       }},
      {"roots", "which is not allocated",
       [](scene& s) { s.chain().cells().release(s.chain().tree().ancestor(s.leaf(1), 3)); }},
      {"roots", "is allocated and bound to nothing",
       [](scene& s) {
         REQUIRE(s.chain().cells().promise({0, 1}));
         REQUIRE(s.chain().cells().allocate_at(s.idle_leaf()));
       }},
      {"roots", "is allocated for a part",
       [](scene& s) {
         s.chain().cells().release(s.chain().tree().ancestor(s.leaf(1), 3));
         s.chain().cells().withdraw({3, 1});
         REQUIRE(s.chain().cells().promise({0, 1}));
         REQUIRE(s.chain().cells().allocate_at(s.leaf(1)));
       }},
      {"needless", "b (cluster",
       [](scene& s) {
         const cluster_id c = s.record(5).cluster;
         for (const cell_id v : s.cluster(5).tree().cells(0))
           if (!s.cluster(5).image(v).valid()) REQUIRE(s.cells.place(c, v));
       }},
      {"hidden", "is unhealthy and not bound",
       [](scene& s) {
         for (const cell_id leaf :
              leaves(s.chain().tree(), s.chain().tree().ancestor(s.leaf(5), 2)))
           if (!s.chain().owner(leaf).cell.valid()) s.chain().mark(leaf, false);
       }},
      {"active", "counts 3 leaves in use, 2 are",
       [](scene& s) { s.cluster(4).take(s.owner(4).cell, true); }},
      {"free", "free 1, class 1; by its leaves 0",
       [](scene& s) { s.cluster(1).show(s.owner(1).cell, true); }},
      {"free", "free 0, class 1",
       [](scene& s) { broken(s.cluster(1).free_nodes()).assign(node_id(0), 1); }},
      {"usage", "counts 2 opportunistic",
       [](scene& s) {
         broken(s.chain().use()).assign(s.idle_leaf(), physical_chain::opportunistic);
       }},
      {"usage", "guaranteed leaves of 0 and 0",
       [](scene& s) { broken(s.chain().use()).assign(s.idle_leaf(), physical_chain::guaranteed); }},
      {"health", "counts 0 bad leaves of 0, is unhealthy",
       [](scene& s) { broken(s.chain().healthy().usable()).reset(1); }},
      {"health", "counts 1 bad leaves of 0, is unhealthy",
       [](scene& s) {
         for (const cell_id c : s.chain().tree().cells(0))
           broken(s.chain().healthy().usable()).set(c.value);
       }},
      {"health", "has bad leaves, or none",
       [](scene& s) {
         const physical_chain& boxes = s.cells.chain(1 - s.rack);
         broken(boxes.healthy()).mark_bad(boxes.tree().cells(0)[0]);
       }},
      {"quiet", "is quiet", [](scene& s) { broken(s.chain().quiet()).reset(s.idle_leaf().value); }},
      {"quiet", "is not quiet", [](scene& s) { broken(s.chain().quiet()).set(s.leaf(6).value); }},
      {"quiet", "is quiet but for 3 guests",
       [](scene& s) { broken(s.chain().few_guests(3)).reset(s.idle_leaf().value); }},
      {"idle", "by its leaves",
       [](scene& s) { broken(s.chain().healthy()).mark_bad(s.idle_leaf()); }},
      {"idle", "class 65535",
       [](scene& s) {
         broken(s.chain().guest_nodes())
             .assign(node_id(s.chain().from_end(s.chain().node_of(s.idle_leaf()))),
                     node_index::none);
       }},
      {"buddies", "is not free, the allocator differs",
       [](scene& s) { broken(s.chain().cells().cells().free_cells()).set(0); }},
      {"buddies", "is free, the allocator differs",
       [](scene& s) {
         summary_bitset& free = broken(s.chain().cells().cells().free_cells());
         free.reset(free.find_first());
       }},
      {"promises", "1 are promised, 0 cells are unbound",
       [](scene& s) {
         REQUIRE(s.chain().cells().promise({0, 1}));
       }},
      {"promises", "not all can be kept",
       [](scene& s) { broken(s.chain().cells().cells()).allocate_at(s.idle_leaf()); }},
      {"ledger", "0 of 1 in use; bound are 1 of 1",
       [](scene& s) { broken(s.cells.ledger(s.rack)).refund(tenant_id(tenant_a), 3); }},
      {"ledger", "0 of 5 in use; bound are 0 of 0",
       [](scene& s) {
         broken(s.cells.ledger(s.rack)).set_quota(tenant_id(tenant_a), {1, 5});
       }},
      {"ledger", "the total is 9 for 0",
       [](scene& s) { broken(s.cells.ledger(s.rack).total_remaining()[3]) = 9; }},
  };
  return all;
}

TEST_CASE("the audit finds nothing wrong with a scheduler in use") {
  const scene s;
  CHECK(apiary_test::faults_of(s.whole) == "");
  CHECK(apiary_test::faults_of(s.found()) == "");
}

TEST_CASE("the audit finds each damage, and says where it is") {
  for (const damage& d : all_damage()) {
    CAPTURE(d.rule);
    CAPTURE(d.witness);
    scene s;
    d.inflict(s);
    const std::vector<violation> found = s.found();
    CAPTURE(apiary_test::faults_of(found));
    CHECK(std::any_of(found.begin(), found.end(), [&](const violation& v) {
      return v.rule == d.rule && v.witness.find(d.witness) != std::string::npos;
    }));
  }
}

TEST_CASE("the audit recounts what is doomed") {
  scene s;
  const hived_layout& layout = s.whole.layout();
  for (std::uint32_t n = 0; n < layout.num_nodes(); ++n) REQUIRE(s.whole.mark_bad(node_id(n)).ok());
  REQUIRE(s.whole.finish(job_id(1)).ok());
  REQUIRE(s.whole.finish(job_id(2)).ok());
  REQUIRE(s.whole.cancel(job_id(3)).ok());
  CHECK(*s.whole.doomed(tenant_id(tenant_a), chain_id(s.rack), 3) == 1);
  CHECK(apiary_test::faults_of(s.whole) == "");
  REQUIRE(broken(s.whole.cells().ledger(s.rack)).charge(tenant_id(tenant_a), 3));
  const std::vector<violation> found = audit(s.whole);
  CHECK(std::any_of(found.begin(), found.end(), [](const violation& v) {
    return v.rule == "doomed" && v.witness == "a in RACK level 3: 0, recounted 1";
  }));
}

TEST_CASE("every rule of the audit is broken by some damage") {
  std::set<std::string> rules = {"doomed"};
  for (const damage& d : all_damage()) rules.insert(d.rule);
  CHECK(rules == std::set<std::string>{"table",     "once",       "holders", "tasks",     "class",
                                       "own cells", "preempting", "claims",  "bijection", "shape",
                                       "roots",     "needless",   "hidden",  "active",    "free",
                                       "usage",     "health",     "quiet",   "idle",      "buddies",
                                       "promises",  "ledger",     "ending",  "doomed"});
}

}  // namespace
