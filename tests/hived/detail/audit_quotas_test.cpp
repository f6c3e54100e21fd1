// apiary/tests/hived/detail/audit_quotas_test.cpp - the audit finds wrong quotas and reservations.
// SPDX-License-Identifier: MIT
#include "support/audit_scene.h"
#include "support/hived_audit.h"
#include <apiary/alloc/quota_ledger.h>
#include <apiary/core/ids.h>

#include <doctest/doctest.h>

#include <cstdint>

namespace {

using namespace apiary;
using namespace apiary::detail;
using apiary_test::audit_scene;
using apiary_test::broken;

void audit_quotas_alone(apiary_test::afresh::audit_notes& notes) {
  for (std::uint32_t c = 0; c < notes.cells.num_chains(); ++c)
    apiary_test::afresh::audit_reservations(notes, c);
}

TEST_CASE("the audit finds damage to every invariant of quotas") {
  apiary_test::check_damages(
      audit_quotas_alone, {"ledger", "reservations"},
      {
          {"reservations", "1 are reserved, 0 cells are unbound",
           [](audit_scene& s) { REQUIRE(s.chain().cells().reserve(0, 1)); }},
          {"reservations", "cells can be split, the allocator counts",
           [](audit_scene& s) { broken(s.chain().cells().cells()).allocate_at(s.idle_leaf()); }},
          {"reservations", "not all can be met",
           [](audit_scene& s) {
             while (s.idle_leaf().valid())
               broken(s.chain().cells().cells()).allocate_at(s.idle_leaf());
             s.cluster(4).set_image(s.cluster(4).tree().roots(1).first, cell_id());
           }},
          {"ledger", "0 of 1 in use; bound are 1 of 1",
           [](audit_scene& s) {
             broken(s.cells.ledger(s.rack)).refund(tenant_id(audit_scene::tenant_a), 3);
           }},
          {"ledger", "0 of 5 in use; bound are 0 of 0",
           [](audit_scene& s) {
             broken(s.cells.ledger(s.rack)).set_quota(tenant_id(audit_scene::tenant_a), 1, 5);
           }},
          {"ledger", "the total is 9 for 0",
           [](audit_scene& s) { broken(s.cells.ledger(s.rack).total_remaining()[3]) = 9; }},
      });
}

}  // namespace
