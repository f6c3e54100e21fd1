// apiary/tests/hived/doomed_test.cpp - cells that must land on bad hardware, by trying.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/topology/health.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <support/hived_documents.h>
#include <support/hived_play.h>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

// Racks of two nodes of two leaves, named by their numbers.
hived_config small_racks(std::uint32_t racks, std::vector<virtual_cell_config> of_a,
                         std::vector<virtual_cell_config> of_b) {
  hived_config c;
  c.cell_types = {{"NODE", "GPU", 2, true}, {"RACK", "NODE", 2}};
  for (std::uint32_t r = 0; r < racks; ++r) {
    c.physical_cells.push_back(apiary_test::rack({apiary_test::named(std::to_string(2 * r)),
                                                  apiary_test::named(std::to_string(2 * r + 1))}));
  }
  c.virtual_clusters = {{.name = "a", .cells = std::move(of_a)},
                        {.name = "b", .cells = std::move(of_b)}};
  return c;
}

// The most healthy cells of a level, from this one on and no more than `wanted`, that can be
// granted together while all other reservations can be met.
std::uint32_t most_healthy(const physical_chain& chain, const reserving_buddy_allocator& cells,
                           level_t level, std::uint32_t from, std::uint32_t wanted) {
  std::uint32_t most = 0;
  const id_range<cell_id> all = chain.tree().cells(level);
  for (std::uint32_t i = from; i < all.size() && most < wanted; ++i) {
    if (!chain.healthy().healthy(all[i]) || !cells.can_allocate_at(all[i])) continue;
    reserving_buddy_allocator more = cells;
    REQUIRE(more.allocate_at(all[i]));
    most = std::max(most, 1 + most_healthy(chain, more, level, i + 1, wanted - 1));
  }
  return most;
}

}  // namespace

TEST_CASE("no more cells are doomed than cannot be had healthy, whatever is in use") {
  std::uint64_t doomed = 0;
  std::uint64_t more = 0;  // that could not be had, and one level does not tell
  for (std::uint64_t seed = 1; seed <= apiary_test::scaled(std::uint64_t{300}); ++seed) {
    CAPTURE(seed);
    apiary_test::hived_play host(
        small_racks(4, {{"RACK", 1}, {"RACK.NODE", 2}}, {{"RACK.NODE", 3}, {"RACK.NODE.GPU", 1}}),
        seed, {.marks = 40});
    for (int step = 0; step < 60; ++step) {
      host.step();
      const hived& h = host.scheduler;
      const physical_chain& chain = h.cells().chain(0);
      for (std::uint32_t t = 0; t < 2; ++t) {
        for (level_t l = 0; l < chain.tree().num_levels(); ++l) {
          const std::uint32_t unbound = h.cells().ledger(0).remaining(tenant_id(t), l);
          const std::uint32_t counted = *h.doomed(tenant_id(t), chain_id(0), l);
          const std::uint32_t had = most_healthy(chain, chain.cells(), l, 0, unbound);
          REQUIRE(counted + had <= unbound);
          doomed += counted;
          more += unbound - had - counted;
        }
      }
    }
  }
  CHECK(doomed > apiary_test::scaled(100U));
  CHECK(more > apiary_test::scaled(10U));
}

TEST_CASE("doomed counts one level: healthy children of reserved cells may be unusable") {
  // One node in each of two racks is bad; a rack is reserved for b, so that a may break one only.
  hived h = *hived::create(small_racks(2, {{"RACK.NODE", 2}}, {{"RACK", 1}}));
  REQUIRE(h.mark_bad(node_id(0)).ok());
  REQUIRE(h.mark_bad(node_id(2)).ok());
  const gang_request both{.job = job_id(1), .tenant = tenant_id(0), .groups = {{2, 2}}};
  CHECK(*h.doomed(tenant_id(0), chain_id(0), 1) == 0);
  const auto plan = h.propose(both);
  REQUIRE(plan.ok());
  CHECK(plan->result == plan_result::wait);
  CHECK(plan->wait.reason == wait_reason::unhealthy);
  REQUIRE(h.mark_bad(node_id(3)).ok());
  CHECK(*h.doomed(tenant_id(0), chain_id(0), 1) == 1);
}
