// apiary/tests/hived/detail/audit_bindings_test.cpp - bindings that do not agree are found.
// SPDX-License-Identifier: MIT
#include "support/audit_scene.h"
#include "support/hived_audit.h"
#include <apiary/core/ids.h>
#include <apiary/topology/tree.h>

#include <doctest/doctest.h>

#include <cstdint>

namespace {

using namespace apiary;
using namespace apiary::detail;
using apiary_test::audit_scene;

void audit_bindings_alone(apiary_test::afresh::audit_notes& notes) {
  for (std::uint32_t i = 0; i < notes.cells.num_clusters(); ++i)
    apiary_test::afresh::audit_images(
        notes, vc_chain_id(i), apiary_test::afresh::count_active(notes.cells, vc_chain_id(i)));
  for (std::uint32_t c = 0; c < notes.cells.num_chains(); ++c)
    apiary_test::afresh::audit_owners(notes, c,
                                      apiary_test::afresh::count_leaves(notes.cells.chain(c)));
}

TEST_CASE("the audit finds damage to every invariant of bindings") {
  apiary_test::check_damages(
      audit_bindings_alone, {"bijection", "hidden", "needless", "own cells", "roots", "shape"},
      {
          {"own cells", "is taken and bound to nothing",
           [](audit_scene& s) {
             s.chain().hold(s.idle_leaf(), {s.slot(4), {}, true});
           }},
          {"bijection", "bound to RACK cell",
           [](audit_scene& s) { s.cluster(4).set_image(s.owner(4).cell, s.idle_leaf()); }},
          {"bijection", "bound to RACK cell 0",
           [](audit_scene& s) { s.cluster(4).set_image(s.owner(4).cell, cell_id(0)); }},
          {"bijection", "bound to RACK cell 7777",
           [](audit_scene& s) { s.cluster(4).set_image(s.owner(4).cell, cell_id(7777)); }},
          {"bijection", "which is not bound to it",
           [](audit_scene& s) { s.chain().set_owner(s.idle_leaf(), s.owner(4)); }},
          {"shape", "of level 0, bound to RACK cell",
           [](audit_scene& s) {
             for (const cell_id v : s.cluster(5).tree().cells(0)) {
               if (s.cluster(5).image(v).valid()) continue;
               s.cells.bind_leaf_at(s.record(5).cluster, {v, s.idle_leaf()});
               return;
             }
           }},
          {"roots", "which is not allocated",
           [](audit_scene& s) {
             s.chain().cells().release(s.chain().tree().ancestor(s.leaf(1), 3));
           }},
          {"roots", "is allocated and bound to nothing",
           [](audit_scene& s) {
             REQUIRE(s.chain().cells().reserve(0, 1));
             REQUIRE(s.chain().cells().allocate_at(s.idle_leaf()));
           }},
          {"roots", "is allocated; it is bound to a cell inside a whole cell",
           [](audit_scene& s) {
             s.chain().cells().release(s.chain().tree().ancestor(s.leaf(1), 3));
             s.chain().cells().cancel_reservation(3, 1);
             REQUIRE(s.chain().cells().reserve(0, 1));
             REQUIRE(s.chain().cells().allocate_at(s.leaf(1)));
           }},
          {"needless", "b (cluster",
           [](audit_scene& s) {
             const vc_chain_id c = s.record(5).cluster;
             for (const cell_id v : s.cluster(5).tree().cells(0))
               if (!s.cluster(5).image(v).valid()) REQUIRE(s.cells.bind_leaf(c, v));
           }},
          {"hidden", "is unhealthy and not bound",
           [](audit_scene& s) {
             for (const cell_id leaf :
                  s.chain().tree().descendants(s.chain().tree().ancestor(s.leaf(5), 2), 0))
               if (!s.chain().owner(leaf).cell.valid()) s.chain().mark(leaf, false);
           }},
      });
}

}  // namespace
