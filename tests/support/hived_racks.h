// apiary/tests/support/hived_racks.h - a small HiveD cluster, in use, and what a place on it must be.
// SPDX-License-Identifier: MIT
#pragma once

#include "support/hived_documents.h"
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/gang_record.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace apiary_test {

// Four racks of two nodes of two pairs.
[[nodiscard]] inline apiary::hived four_racks_of(
    std::vector<apiary::virtual_cluster_config> tenants) {
  apiary::hived_config c;
  c.cell_types = {{"PAIR", "GPU", 2}, {"NODE", "PAIR", 2, true}, {"RACK", "NODE", 2}};
  for (const char* names : {"01", "23", "45", "67"}) {
    c.physical_cells.push_back(
        rack({named(std::string(1, names[0])), named(std::string(1, names[1]))}));
  }
  c.virtual_clusters = std::move(tenants);
  auto h = apiary::hived::create(c);
  REQUIRE(h.ok());
  return *std::move(h);
}
// Tenant "a" has a rack, a node and a pair, "b" two nodes.
[[nodiscard]] inline apiary::hived four_racks() {
  return four_racks_of(
      {{.name = "a", .cells = {{"RACK", 1}, {"RACK.NODE", 1}, {"RACK.NODE.PAIR", 1}}},
       {.name = "b", .cells = {{"RACK.NODE", 2}}}});
}

// Of either tenant and of a priority from -1 to 2, one or two sizes of task, one in three lazy.
[[nodiscard]] inline apiary::gang_request gang_of_few(apiary::rng& random, std::uint32_t job) {
  apiary::gang_request r{.job = apiary::job_id(job),
                         .tenant = apiary::tenant_id(random.uniform(2))};
  r.priority = static_cast<std::int32_t>(random.uniform(4)) - 1;
  r.lazy = random.uniform(3) == 0;
  for (std::uint32_t m = 1 + random.uniform(2); m > 0; --m)
    r.groups.push_back({1 + random.uniform(3), 1 + random.uniform(4)});
  return r;
}
// Gangs of both tenants come to the racks, and some end; with faults some leaves break.
inline void let_gangs_come_and_go(apiary::hived& h, apiary::rng& random, bool faults) {
  for (std::uint32_t job = 0; job < 12; ++job) {
    const auto plan = h.propose(gang_of_few(random, job));
    REQUIRE(plan.ok());
    if (plan->result != apiary::plan_result::wait) REQUIRE(h.commit(*plan).ok());
    if (random.uniform(2) == 0) static_cast<void>(h.finish(apiary::job_id(random.uniform(12))));
    if (faults && random.uniform(3) == 0)
      REQUIRE(h.mark_bad(apiary::node_id(random.uniform(8)), random.uniform(4)).ok());
  }
}

// Requires that a place has a leaf of its own for every leaf of every task, each task on one node, on
// usable hardware; null: all that is healthy.
inline void check_place(const apiary::detail::physical_chain& chain, const apiary::gang_request& r,
                        const apiary::detail::gang_placement& place,
                        const apiary::health<apiary::uniform_tree>* usable) {
  std::set<apiary::cell_id> taken;
  std::size_t i = 0;
  for (const apiary::task_group& m : r.groups) {
    for (std::uint32_t t = 0; t < m.tasks; ++t) {
      std::set<std::uint32_t> nodes;
      for (std::uint32_t k = 0; k < m.gpus; ++k, ++i) {
        REQUIRE(i < place.leaves.size());
        const apiary::cell_id leaf = place.leaves[i].image;
        REQUIRE(taken.insert(leaf).second);
        nodes.insert(chain.node_of(leaf));
        REQUIRE(chain.healthy().healthy(leaf));
        if (usable != nullptr) REQUIRE(usable->healthy(leaf));
      }
      REQUIRE(nodes.size() == 1);
    }
  }
  REQUIRE(i == place.leaves.size());
}

}  // namespace apiary_test
