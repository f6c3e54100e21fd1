// apiary/tests/hived/detail/audit_gangs_test.cpp - gangs that do not agree with their leaves are found.
// SPDX-License-Identifier: MIT
#include "support/audit_scene.h"
#include "support/hived_audit.h"
#include <apiary/core/ids.h>
#include <apiary/hived/gang_table.h>

#include <doctest/doctest.h>

namespace {

using namespace apiary;
using namespace apiary::detail;
using apiary_test::audit_scene;

void audit_gangs_alone(apiary_test::afresh::audit_notes& notes) {
  apiary_test::afresh::audit_gangs(notes);
}

TEST_CASE("the audit finds damage to every invariant of gangs") {
  apiary_test::check_damages(
      audit_gangs_alone,
      {"claims", "class", "ending", "holders", "levels", "missing", "once", "own cells",
       "preempting", "table", "tasks", "type"},
      {
          {"table", "is not found by its job",
           [](audit_scene& s) { s.record(4).request.job = job_id(99); }},
          {"table", "two jobs have slot",
           [](audit_scene& s) {
             const gang_slot slot = s.gangs.add(
                 {.request = audit_scene::gang(7, audit_scene::tenant_b, -1, {{1, 1}})});
             s.gangs[slot].request.job = job_id(8);
             s.gangs.remove(slot);
             s.gangs.add({.request = audit_scene::gang(9, audit_scene::tenant_b, -1, {{1, 1}})});
           }},
          {"table", "gang 4 is listed in cluster",
           [](audit_scene& s) { s.record(4).cluster = s.record(1).cluster; }},
          {"table", "gang 6 is not listed in cluster",
           [](audit_scene& s) { s.record(6).cluster = s.record(1).cluster; }},
          {"once", "gang 1 and gang 6",
           [](audit_scene& s) { s.record(6).leaves[0] = s.record(1).leaves[0]; }},
          {"once", "gang 2 and gang 2",
           [](audit_scene& s) { s.record(2).leaves[0] = s.record(2).leaves[1]; }},
          {"holders", "user gang 6, claimer no gang; by the gangs user no gang",
           [](audit_scene& s) {
             s.cells.hold(s.rack, s.idle_leaf(), {s.slot(6), {}, false});
           }},
          {"holders", "user unknown slot 77",
           [](audit_scene& s) {
             s.cells.hold(s.rack, s.idle_leaf(), {gang_slot(77), {}, false});
           }},
          {"holders", "user no gang, claimer gang 3; by the gangs user gang 1 (guaranteed)",
           [](audit_scene& s) {
             s.cells.hold(s.rack, s.leaf(3), {{}, s.slot(3), false});
           }},
          {"holders", "user gang 4, claimer no gang; by the gangs user gang 4 (guaranteed)",
           [](audit_scene& s) {
             s.cells.hold(s.rack, s.leaf(4), {s.slot(4), {}, false});
           }},
          {"tasks", "lists 3 leaves; its tasks have 4",
           [](audit_scene& s) { s.record(1).leaves.pop_back(); }},
          {"tasks", "task 0 has 1 leaves of 2",
           [](audit_scene& s) { s.record(5).leaves[0].leaf = cell_id(); }},
          {"tasks", "gang 4 has no leaf",
           [](audit_scene& s) {
             for (chain_leaf& l : s.record(4).leaves) l.leaf = cell_id();
           }},
          {"tasks", "gang 5: task 0 has 1 leaves of 2",
           [](audit_scene& s) {
             s.record(5).moved = true;
             s.record(5).leaves[0].leaf = cell_id();
           }},
          {"missing", "gang 4: missing leaf 0 is device 0 of node gone",
           [](audit_scene& s) {
             s.record(4).missing = {{0, "gone", 0}};
           }},
          {"missing", "missing leaf 2 is device 0 of node gone",
           [](audit_scene& s) {
             s.record(4).missing = {{2, "gone", 0}};
           }},
          {"missing", "missing leaf 0 is device 1 of node gone",
           [](audit_scene& s) {
             for (chain_leaf& l : s.record(4).leaves) l.leaf = cell_id();
             s.record(4).missing = {{1, "gone", 0}, {0, "gone", 1}};
           }},
          {"missing", "missing leaf 1 is device 3 of node n2",
           [](audit_scene& s) {
             s.record(4).leaves[1].leaf = cell_id();
             s.record(4).missing = {{1, "n2", 3}};
           }},
          {"type", "gang 1: leaf 0 of node",
           [](audit_scene& s) { s.record(1).request.leaf_type = *s.whole.find_leaf_type("NPU"); }},
          {"tasks", "gang 2: task 0 on two nodes",
           [](audit_scene& s) { s.record(2).leaves[0] = s.record(1).leaves[0]; }},
          {"class", "gang 4 of priority 1, downgraded, has cluster",
           [](audit_scene& s) { s.record(4).downgraded = true; }},
          {"class", "gang 4 of priority 1 has no cluster",
           [](audit_scene& s) { s.gangs.move(s.slot(4), vc_chain_id()); }},
          {"class", "gang 6 of priority -1 has cluster",
           [](audit_scene& s) { s.gangs.move(s.slot(6), s.record(4).cluster); }},
          {"class", "gang 6 of priority -1, downgraded, has no cluster",
           [](audit_scene& s) { s.record(6).downgraded = true; }},
          {"levels", "gang 4 has 2 lost levels and 2 leaves",
           [](audit_scene& s) {
             s.record(4).lost_levels = {0, 0};
           }},
          {"levels", "gang 4, downgraded, has 1 lost levels and 2 leaves",
           [](audit_scene& s) {
             s.gangs.move(s.slot(4), vc_chain_id());
             s.record(4).downgraded = true;
             s.record(4).lost_levels = {0};
           }},
          {"own cells", "gang 4 of tenant 1",
           [](audit_scene& s) { s.record(4).request.tenant.value = 1; }},
          {"own cells", "gang 5 of tenant 0",
           [](audit_scene& s) { s.record(5).request.pinned.reset(); }},
          {"own cells", "has cells of cluster 99",
           [](audit_scene& s) { s.record(4).cluster = vc_chain_id(99); }},
          {"own cells", "is bound to cluster",
           [](audit_scene& s) { s.chain().set_owner(s.leaf(4), s.owner(1)); }},
          {"own cells", "is bound to nothing",
           [](audit_scene& s) { s.chain().set_owner(s.leaf(4), virtual_cell()); }},
          {"preempting", "gang 1",
           [](audit_scene& s) { s.record(1).downgraded_victims.push_back(job_id(2)); }},
          {"preempting", "gang 3: its downgraded victims do not ascend",
           [](audit_scene& s) {
             s.record(3).downgraded_victims = {job_id(9), job_id(9)};
           }},
          {"preempting", "gang 3", [](audit_scene& s) { s.gangs.move(s.slot(3), vc_chain_id()); }},
          {"ending", "gang 1 must end for gang 3",
           [](audit_scene& s) { s.record(1).ends_for = s.slot(3); }},
          {"ending", "gang 6 must end for gang 3",
           [](audit_scene& s) {
             s.record(6).downgraded = true;
             s.record(6).ends_for = s.slot(3);
           }},
          {"ending", "gang 6 must end for gang 2",
           [](audit_scene& s) {
             s.record(6).downgraded = true;
             s.record(6).ends_for = s.slot(2);
             s.record(2).downgraded_victims.push_back(job_id(6));
           }},
          {"ending", "gang 6 must end for unknown slot 77",
           [](audit_scene& s) { s.record(6).ends_for = gang_slot(77); }},
          {"claims", "gang 3 of priority 0 claims it from gang 1 of priority 0",
           [](audit_scene& s) { s.record(3).request.priority = 0; }},
          {"claims", "a guaranteed one of another tenant",
           [](audit_scene& s) { s.record(3).request.tenant = tenant_id(audit_scene::tenant_b); }},
      });
}

}  // namespace
