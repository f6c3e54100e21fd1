// apiary/tests/hived/audit_test.cpp - the audit checks everything, and recounts doomed cells.
// SPDX-License-Identifier: MIT
#include "support/audit_scene.h"
#include "support/hived_clusters.h"
#include <apiary/core/ids.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/layout.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
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
  CHECK(apiary_test::faults_of(audit(s.whole.layout(), s.cells, s.gangs)) == "");
}

// What each of its headers finds is tested with that header.
TEST_CASE("the audit checks cells, bindings, gangs and quotas") {
  const auto all = [](apiary::detail::audit_notes& notes) {
    notes.found = audit(notes.layout, notes.cells, notes.gangs);
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

TEST_CASE("the audit of one tenant or chain checks its cells and no others") {
  audit_scene s;
  const hived_cells& cells = s.whole.cells();
  const auto faults = [&](auto of) { return apiary_test::faults_of(audit(s.whole, of)); };
  const vc_chain_id cluster = s.whole.find(job_id(1))->cluster;
  const tenant_id tenant = cells.cluster(cluster).tenant();
  const std::uint32_t c = cells.cluster(cluster).chain();
  const std::uint32_t tenants = static_cast<std::uint32_t>(s.whole.layout().tenants.size());
  for (std::uint32_t t = 0; t < tenants; ++t) CHECK(faults(tenant_id(t)) == "");
  for (std::uint32_t i = 0; i < cells.num_chains(); ++i) CHECK(faults(chain_id(i)) == "");

  const cell_id leaf = s.whole.find(job_id(1))->leaves[0].leaf;
  broken(cells.cluster(cluster)).set_active(cells.chain(c).owner(leaf).cell, true);
  for (std::uint32_t t = 0; t < tenants; ++t)
    CHECK((faults(tenant_id(t)).find("active: ") != std::string::npos) == (tenant_id(t) == tenant));
  for (std::uint32_t i = 0; i < cells.num_chains(); ++i) CHECK(faults(chain_id(i)) == "");
  broken(cells.cluster(cluster)).set_active(cells.chain(c).owner(leaf).cell, false);

  broken(*s.whole.find(job_id(1))).leaves.pop_back();
  for (std::uint32_t t = 0; t < tenants; ++t)
    CHECK((faults(tenant_id(t)).find("tasks: ") != std::string::npos) == (tenant_id(t) == tenant));

  broken(cells.chain(c).healthy().usable()).reset(leaf.value);
  for (std::uint32_t i = 0; i < cells.num_chains(); ++i)
    CHECK((faults(chain_id(i)).find("health: ") != std::string::npos) == (i == c));
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
  REQUIRE(broken(s.whole.cells().ledger(s.rack)).charge(tenant_id(audit_scene::tenant_a), 3));
  const std::vector<violation> found = audit(s.whole);
  CHECK(std::any_of(found.begin(), found.end(), [](const violation& v) {
    return v.invariant == "doomed" && v.witness == "a in RACK level 3: 0, recounted 1";
  }));
}

}  // namespace
