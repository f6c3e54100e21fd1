// apiary/tests/hived/detail/audit_notes_test.cpp - what witnesses call gangs, leaves and cells.
// SPDX-License-Identifier: MIT
#include "support/audit_scene.h"
#include "support/hived_audit.h"
#include <apiary/core/ids.h>
#include <apiary/hived/gang_table.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary::detail;
using apiary_test::audit_scene;

TEST_CASE("gangs, leaves and cells have names in a witness") {
  audit_scene s;
  const apiary_test::afresh::audit_notes notes(s.whole.layout(), s.cells, s.gangs);
  CHECK(notes.gang(s.slot(4)) == "gang 4");
  CHECK(notes.gang(gang_slot()) == "no gang");
  CHECK(notes.gang(gang_slot(77)) == "unknown slot 77");
  const std::uint32_t node = s.chain().node_of(s.leaf(1));
  const std::string name = s.whole.layout().chains[s.rack].node_names[node];
  const cell_id first = s.chain().first_leaf(node);
  CHECK(notes.leaf(s.rack, first) == "leaf 0 of node " + name);
  CHECK(notes.leaf(s.rack, cell_id(first.value + 3)) == "leaf 3 of node " + name);
  CHECK(notes.cell_of_chain(s.rack, cell_id(5)) == "RACK cell 5");
  CHECK(notes.cell_of_chain(s.rack, cell_id()) == "RACK cell none");
  const std::string cluster = std::to_string(s.record(4).cluster.value);
  CHECK(notes.cell_of_tenant(s.record(4).cluster, cell_id(2)) ==
        "b (cluster " + cluster + ") cell 2");
}

TEST_CASE("all gangs are known, in the order of jobs; slots that are vacant are not") {
  audit_scene s;
  s.gangs.remove(s.slot(2));
  const apiary_test::afresh::audit_notes notes(s.whole.layout(), s.cells, s.gangs);
  std::vector<std::uint32_t> jobs;
  for (const gang_slot slot : notes.all) jobs.push_back(s.gangs[slot].request.job.value);
  CHECK(jobs == std::vector<std::uint32_t>{1, 3, 4, 5, 6});
  CHECK(notes.exists(s.slot(1)));
  CHECK(!notes.exists(s.slot(2)));
  CHECK(!notes.exists(gang_slot()));
}

TEST_CASE("a violation is recorded, and only then its witness is computed") {
  audit_scene s;
  apiary_test::afresh::audit_notes notes(s.whole.layout(), s.cells, s.gangs);
  int asked = 0;
  const auto witness = [&] {
    ++asked;
    return std::string("here");
  };
  notes.expect(true, "holds", witness);
  CHECK(asked == 0);
  notes.expect(false, "broken", witness);
  notes.report("too", "there");
  CHECK(asked == 1);
  CHECK(apiary_test::faults_of(notes.found) == "broken: here\ntoo: there\n");
}

}  // namespace
