// apiary/tests/hived/detail/audit_cells_test.cpp - counts of cells and nodes that are wrong are found.
// SPDX-License-Identifier: MIT
#include "support/audit_scene.h"
#include "support/hived_audit.h"
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/hived/detail/node_index.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/topology/health.h>

#include <doctest/doctest.h>

#include <cstdint>

namespace {

using namespace apiary;
using namespace apiary::detail;
using apiary_test::audit_scene;
using apiary_test::broken;

void audit_cells_alone(apiary_test::afresh::audit_notes& notes) {
  for (std::uint32_t i = 0; i < notes.cells.num_clusters(); ++i)
    apiary_test::afresh::audit_cluster(
        notes, vc_chain_id(i), apiary_test::afresh::count_active(notes.cells, vc_chain_id(i)));
  for (std::uint32_t c = 0; c < notes.cells.num_chains(); ++c)
    apiary_test::afresh::audit_chain(notes, c,
                                     apiary_test::afresh::count_leaves(notes.cells.chain(c)));
}

TEST_CASE("the audit finds damage to every invariant of cells") {
  apiary_test::check_damages(
      audit_cells_alone, {"active", "buddies", "free", "health", "idle", "opportunistic", "usage"},
      {
          {"active", "counts 3 leaves in use, 2 are",
           [](audit_scene& s) { s.cluster(4).set_active(s.owner(4).cell, true); }},
          {"free", "free 1, class 1; by its leaves 0",
           [](audit_scene& s) { s.cluster(1).set_usable(s.owner(1).cell, true); }},
          {"free", "free 0, class 1",
           [](audit_scene& s) { broken(s.cluster(1).free_nodes()).assign(node_id(0), 1); }},
          {"usage", "counts 2 opportunistic",
           [](audit_scene& s) {
             broken(s.chain().use()).assign(s.idle_leaf(), physical_chain::opportunistic);
           }},
          {"usage", "guaranteed leaves of 0 and 0",
           [](audit_scene& s) {
             broken(s.chain().use()).assign(s.idle_leaf(), physical_chain::guaranteed);
           }},
          {"health", "counts 0 bad leaves of 0, is unhealthy",
           [](audit_scene& s) { broken(s.chain().healthy().usable()).reset(1); }},
          {"health", "counts 1 bad leaves of 0, is unhealthy",
           [](audit_scene& s) {
             for (const cell_id c : s.chain().tree().cells(0))
               broken(s.chain().healthy().usable()).set(c.value);
           }},
          {"health", "has bad leaves, or none",
           [](audit_scene& s) {
             const physical_chain& boxes = s.cells.chain(1 - s.rack);
             broken(boxes.healthy()).mark_bad(boxes.tree().cells(0)[0]);
           }},
          {"opportunistic", "is listed",
           [](audit_scene& s) {
             broken(s.chain().without_opportunistic()).reset(s.idle_leaf().value);
           }},
          {"opportunistic", "is not listed",
           [](audit_scene& s) { broken(s.chain().without_opportunistic()).set(s.leaf(6).value); }},
          {"opportunistic", "is listed with at most 3 opportunistic leaves",
           [](audit_scene& s) {
             broken(s.chain().few_opportunistic(3)).reset(s.idle_leaf().value);
           }},
          {"idle", "by its leaves",
           [](audit_scene& s) { broken(s.chain().healthy()).mark_bad(s.idle_leaf()); }},
          {"idle", "class 65535",
           [](audit_scene& s) {
             broken(s.chain().idle_nodes())
                 .assign(node_id(s.chain().from_end(s.chain().node_of(s.idle_leaf()))),
                         node_index::none);
           }},
          {"buddies", "the allocator counts",
           [](audit_scene& s) {
             auto& allocator = broken(s.chain().cells().cells());
             const summary_bitset before = allocator.free_cells();
             const cell_id leaf = s.idle_leaf();
             REQUIRE(allocator.allocate_at(leaf));
             for (const cell_id c : s.chain().tree().cells(0))
               broken(allocator.free_cells()).reset(c.value);
             allocator.release(leaf);  // which is not merged so
             broken(allocator.free_cells()) = before;
           }},
          {"buddies", "is not free, the allocator differs",
           [](audit_scene& s) { broken(s.chain().cells().cells().free_cells()).set(0); }},
          {"buddies", "is free, the allocator differs",
           [](audit_scene& s) {
             summary_bitset& free = broken(s.chain().cells().cells().free_cells());
             free.reset(free.find_first());
           }},
      });
}

}  // namespace
