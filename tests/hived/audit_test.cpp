// apiary/tests/hived/audit_test.cpp - the audit names what is wrong; both audits agree.
// SPDX-License-Identifier: MIT
#include "support/audit_scene.h"
#include "support/hived_audit.h"
#include "support/hived_clusters.h"
#include <apiary/core/ids.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/layout.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary::detail;
using apiary_test::audit_scene;
using apiary_test::broken;
using apiary_test::damage;

TEST_CASE("the audit finds nothing wrong with a scheduler in use") {
  const audit_scene s;
  CHECK(apiary_test::faults_of(s.whole) == "");
  CHECK(apiary_test::faults_of(audit(s.whole)) == "");
}

// What each part finds is tested with that part.
TEST_CASE("the audit checks cells, bindings, gangs and quotas") {
  const auto all = [](apiary_test::afresh::audit_notes& notes) {
    notes.found = apiary_test::afresh::audit_afresh(notes.layout, notes.cells, notes.gangs);
  };
  const std::vector<damage> damages = {
      {"tasks", "lists 3 leaves; its tasks have 4",
       [](audit_scene& s) { s.record(1).leaves.pop_back(); }},
      {"bijection", "bound to RACK cell 0",
       [](audit_scene& s) { s.cluster(4).set_image(s.owner(4).cell, cell_id(0)); }},
      {"hidden", "is unhealthy and not bound",
       [](audit_scene& s) {
         for (const cell_id leaf :
              s.chain().tree().descendants(s.chain().tree().ancestor(s.leaf(5), 2), 0))
           if (!s.chain().owner(leaf).cell.valid()) s.chain().mark(leaf, false);
       }},
      {"active", "counts 3 leaves in use, 2 are",
       [](audit_scene& s) { s.cluster(4).set_active(s.owner(4).cell, true); }},
      {"opportunistic", "is not listed",
       [](audit_scene& s) { broken(s.chain().without_opportunistic()).set(s.leaf(6).value); }},
      {"ledger", "the total is 9 for 0",
       [](audit_scene& s) { broken(s.cells.ledger(s.rack).total_remaining()[3]) = 9; }},
  };
  apiary_test::check_damages(
      all, {"active", "bijection", "hidden", "ledger", "opportunistic", "tasks"}, damages);
}

// What the audit finds in a scheduler, a line each.
std::string compared(const hived& h) { return apiary_test::faults_of(audit(h)); }

TEST_CASE("the audit names what differs from a restored scheduler, with both values") {
  struct difference {
    const char* text;
    std::function<void(audit_scene&)> inflict;
  };
  const auto chain = [](audit_scene& s) -> physical_chain& {
    return broken(s.whole.cells().chain(s.rack));
  };
  const auto cluster = [](audit_scene& s) -> virtual_cluster& {
    return broken(s.whole.cells().cluster(s.whole.find(job_id(4))->cluster));
  };
  const difference all[] = {
      {"leaves in use: b (cluster 0) cell 0: 3 instead of 2\n",
       [&](audit_scene& s) { cluster(s).set_active(s.owner(4).cell, true); }},
      {"healthy: RACK cell 1: 0 instead of 1\n",
       [&](audit_scene& s) { broken(chain(s).healthy().usable()).reset(1); }},
      {"quota in use: a in RACK level 3: 0 instead of 1\n",
       [&](audit_scene& s) {
         broken(s.whole.cells().ledger(s.rack)).refund(tenant_id(audit_scene::tenant_a), 3);
       }},
      {"holders: RACK cell ",
       [&](audit_scene& s) {
         chain(s).hold(s.idle_leaf(), {s.slot(6), {}, false});
       }},
      {": user gang 6, claimer no gang instead of user no gang, claimer no gang\n",
       [&](audit_scene& s) {
         chain(s).hold(s.idle_leaf(), {s.slot(6), {}, false});
       }},
      {"order of victims: cluster 0: gang 4 of priority 1, 2 leaves\n",
       [&](audit_scene& s) { broken(*s.whole.find(job_id(4))).request.priority = 0; }},
      {"table: gang 99 is not found by its job\n",
       [&](audit_scene& s) { broken(*s.whole.find(job_id(4))).request.job = job_id(99); }},
      {"state: tasks: gang 5: task 0 has 1 leaves of 2\n",
       [&](audit_scene& s) { broken(*s.whole.find(job_id(5))).leaves[0].leaf = cell_id(); }},
      {"hash: ", [&](audit_scene& s) { broken(*s.whole.find(job_id(6))).request.lazy = true; }},
  };
  for (const difference& d : all) {
    audit_scene s;
    d.inflict(s);
    CAPTURE(d.text);
    CAPTURE(compared(s.whole));
    CHECK(compared(s.whole).find(d.text) != std::string::npos);
  }
}

TEST_CASE("the audit recounts what is doomed") {
  audit_scene s;
  const hived_layout& layout = s.whole.layout();
  for (std::uint32_t n = 0; n < layout.num_nodes(); ++n) REQUIRE(s.whole.mark_bad(node_id(n)).ok());
  REQUIRE(s.whole.finish(job_id(1)).ok());
  REQUIRE(s.whole.finish(job_id(2)).ok());
  REQUIRE(s.whole.cancel(job_id(3)).ok());
  CHECK(*s.whole.doomed(tenant_id(audit_scene::tenant_a), chain_id(s.rack), 3) == 1);
  CHECK(apiary_test::faults_of(s.whole) == "");
  CHECK(compared(s.whole) == "");
  REQUIRE(broken(s.whole.cells().ledger(s.rack)).charge(tenant_id(audit_scene::tenant_a), 3));
  const std::vector<violation> found = apiary_test::afresh::audit_afresh(s.whole);
  CHECK(std::any_of(found.begin(), found.end(), [](const violation& v) {
    return v.invariant == "doomed" && v.witness == "a in RACK level 3: 0, recounted 1";
  }));
  CHECK(compared(s.whole).find("quota in use: a in RACK level 3: 1 instead of 0") !=
        std::string::npos);
}

}  // namespace
