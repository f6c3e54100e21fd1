// apiary/tests/support/audit_scene.h - a HiveD scheduler in use, to be damaged and audited.
// SPDX-License-Identifier: MIT
#pragma once

#include "support/hived_audit.h"
#include "support/hived_clusters.h"
#include "support/hived_documents.h"
#include <apiary/core/ids.h>
#include <apiary/hived/audit.h>
#include <apiary/hived/detail/cells.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/gang_table.h>
#include <apiary/hived/hived.h>
#include <apiary/model/request.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace apiary_test {

// Removes const from a member of a copy, to damage it.
template <class T>
[[nodiscard]] T& broken(const T& member) {
  return const_cast<T&>(member);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

// The small cluster with gangs in all states: 1 and 2 are a's and fill a rack, 3 is about to preempt
// 1, 4 is b's in a pair of its own, 5 in its pinned node, where another leaf is bad; 6 is
// opportunistic.
class audit_scene {
 public:
  static constexpr std::uint32_t tenant_b = 0;
  static constexpr std::uint32_t tenant_a = 1;

  audit_scene() {
    using apiary::job_id;
    for (const apiary::gang_request& r :
         {gang(1, tenant_a, 0, {{1, 4}}), gang(2, tenant_a, 3, {{2, 2}}),
          gang(3, tenant_a, 2, {{1, 3}}), gang(4, tenant_b, 1, {{2, 1}}),
          gang(5, tenant_b, 1, {{1, 2}}), gang(6, tenant_b, -1, {{1, 1}})}) {
      apiary::gang_request asked = r;
      asked.leaf_type = *whole.find_leaf_type("GPU");
      if (r.job.value == 5) asked.pinned = 0;
      const auto plan = whole.propose(asked);
      REQUIRE(plan.ok());
      REQUIRE(plan->result ==
              (r.job.value == 3 ? apiary::plan_result::preempt : apiary::plan_result::bind));
      REQUIRE(whole.commit(*plan).ok());
    }
    const apiary::hived_placement pinned = whole.tasks(*whole.find(job_id(5)))[0];
    std::uint32_t idle = 0;
    while ((pinned.leaves >> idle & 1) != 0) ++idle;
    REQUIRE(whole.mark_bad(pinned.node, idle).ok());
    cells = whole.cells();
    gangs = whole.gangs();
    rack = whole.gangs()[slot(1)].leaves[0].chain;
  }

  apiary::hived whole = *apiary::hived::create(small_cluster());
  apiary::detail::hived_cells cells = whole.cells();  // copies, to be damaged
  apiary::gang_table gangs = whole.gangs();
  std::uint32_t rack = 0;  // the chain of the racks

  [[nodiscard]] static apiary::gang_request gang(std::uint32_t job, std::uint32_t tenant,
                                                 std::int32_t priority,
                                                 std::vector<apiary::task_group> groups) {
    return {.job = apiary::job_id(job),
            .tenant = apiary::tenant_id(tenant),
            .priority = priority,
            .groups = std::move(groups)};
  }
  [[nodiscard]] apiary::gang_slot slot(std::uint32_t job) const {
    return *whole.gangs().find(apiary::job_id(job));
  }
  [[nodiscard]] apiary::gang_record& record(std::uint32_t job) { return gangs[slot(job)]; }
  [[nodiscard]] apiary::cell_id leaf(std::uint32_t job, std::size_t i = 0) const {
    return whole.gangs()[slot(job)].leaves[i].leaf;
  }
  [[nodiscard]] apiary::detail::physical_chain& chain() { return broken(cells.chain(rack)); }
  [[nodiscard]] apiary::detail::virtual_cell owner(std::uint32_t job) {
    return chain().owner(leaf(job));
  }
  [[nodiscard]] apiary::detail::virtual_cluster& cluster(std::uint32_t job) {
    return broken(cells.cluster(record(job).cluster));
  }
  [[nodiscard]] apiary::cell_id idle_leaf() {
    for (const apiary::cell_id c : chain().tree().cells(0))
      if (chain().holders(c).idle() && chain().cells().cells().enclosing_free_level(c)) return c;
    return {};
  }
};

// A damage to a scene, the invariant that it breaks, and a text in the witness.
struct damage {
  const char* invariant;
  std::string witness;
  std::function<void(audit_scene&)> inflict;
};

// Whether what apiary::audit finds names a gang, a chain, a node, a tenant or a cell.
[[nodiscard]] inline bool names_a_place(const std::string& faults) {
  CAPTURE(faults);
  const auto has = [&](const char* word) { return faults.find(word) != std::string::npos; };
  const bool place = has("gang ") || has("cell ") || has("node ") || has("level ") || has("BOX");
  CHECK(place);
  return place && has(": ");
}

// Checks that an audit finds nothing in the undamaged scene, finds each damage and says where it is,
// and that the damages break these invariants and no others. apiary::audit finds each damage, too.
inline void check_damages(const std::function<void(afresh::audit_notes&)>& audit,
                          const std::set<std::string>& invariants, const std::vector<damage>& all) {
  const auto found = [&](const audit_scene& s) {
    afresh::audit_notes notes(s.whole.layout(), s.cells, s.gangs);
    audit(notes);
    return std::move(notes.found);
  };
  const auto compared = [](const audit_scene& s) {
    return faults_of(apiary::detail::audit(s.whole.catalog(), s.cells, s.gangs));
  };
  CHECK(faults_of(found(audit_scene())) == "");
  CHECK(compared(audit_scene()) == "");
  std::set<std::string> seen;
  for (const damage& d : all) {
    CAPTURE(d.invariant);
    CAPTURE(d.witness);
    seen.insert(d.invariant);
    audit_scene s;
    d.inflict(s);
    CHECK(names_a_place(compared(s)));
    const std::vector<apiary::violation> violations = found(s);
    CAPTURE(faults_of(violations));
    CHECK(std::any_of(violations.begin(), violations.end(), [&](const apiary::violation& v) {
      return v.invariant == d.invariant && v.witness.find(d.witness) != std::string::npos;
    }));
  }
  CHECK(seen == invariants);
}

}  // namespace apiary_test
