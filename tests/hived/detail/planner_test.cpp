// apiary/tests/hived/detail/planner_test.cpp - which chains a gang may use, tried in which order.
// SPDX-License-Identifier: MIT
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/hived/constraints.h>
#include <apiary/hived/detail/catalog.h>
#include <apiary/hived/detail/planner.h>
#include <apiary/hived/detail/state.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/layout.h>

#include <absl/status/status.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace planner_of_chains {
namespace {

using namespace apiary;
using namespace apiary::detail;

// Two nodes of two K80s; two racks of two nodes of two V100s. Tenant a has one node of the first and
// a rack, b a rack that is pinned, c nothing.
hived_layout two_chains() {
  hived_config config;
  config.cell_types = {{"OLD", "K80", 2, true}, {"NEW", "V100", 2, true}, {"RACK", "NEW", 2}};
  config.physical_cells = {
      {.type = "OLD", .address = "n0"},
      {.type = "OLD", .address = "n1"},
      {.type = "RACK", .children = {{.address = "n2"}, {.address = "n3"}}},
      {.type = "RACK", .pinned_id = "pin", .children = {{.address = "n4"}, {.address = "n5"}}}};
  config.virtual_clusters = {{.name = "a", .cells = {{"OLD", 1}, {"RACK", 1}}},
                             {.name = "b", .pinned_ids = {"pin"}},
                             {.name = "c"}};
  return hived_layout::create(config).value();
}

struct planned_cluster {
  hived_catalog catalog{two_chains()};
  hived_state state{catalog.layout()};
  hived_planner planner{};

  [[nodiscard]] std::uint32_t chain(const std::string& leaf) const {
    std::uint32_t c = 0;
    while (catalog.layout().chains[c].level_types[0] != leaf) ++c;
    return c;
  }
  [[nodiscard]] static gang_request gang(std::uint32_t tenant, std::uint32_t job,
                                         std::int32_t priority, std::uint32_t tasks) {
    return {.job = job_id(job),
            .tenant = tenant_id(tenant),
            .priority = priority,
            .groups = {{tasks, 2}}};
  }
  [[nodiscard]] absl::StatusCode consider(const gang_request& r) {
    return planner.consider(catalog, state.cells(), r).code();
  }
  bool find(const gang_request& r) {
    REQUIRE(consider(r) == absl::StatusCode::kOk);
    return planner.find(catalog, state, r, std::nullopt);
  }
  [[nodiscard]] wait_reason why(const gang_request& r) {
    return planner.why(catalog, state, r).reason;
  }
  // Where it has come.
  std::uint32_t admit(const gang_request& r) {
    REQUIRE(find(r));
    REQUIRE(planner.place().downgraded.empty());
    const std::uint32_t c = planner.place().chain;
    state.admit(r, planner.place(), false, {});
    return c;
  }
};

TEST_CASE(
    "hived_planner: chains with cells of the tenant, for opportunistic gangs all, by leaf type") {
  planned_cluster p;
  constexpr auto ok = absl::StatusCode::kOk;
  constexpr auto missing = absl::StatusCode::kFailedPrecondition;
  CHECK(p.consider(p.gang(0, 1, 0, 1)) == ok);
  CHECK(p.consider(p.gang(1, 1, 0, 1)) == missing);  // its cells are pinned, and it names none
  CHECK(p.consider(p.gang(2, 1, 0, 1)) == missing);
  CHECK(p.consider(p.gang(2, 1, -1, 1)) == ok);
  gang_request pinned = p.gang(1, 1, 0, 1);
  pinned.pinned = p.catalog.layout().find_pinned("pin");
  CHECK(p.consider(pinned) == ok);
  REQUIRE(p.find(pinned));
  CHECK(p.planner.place().chain == p.chain("V100"));
  for (const char* leaf : {"K80", "V100"}) {
    CAPTURE(leaf);
    const std::uint32_t c = p.chain(leaf);
    for (const std::int32_t priority : {-1, 0}) {
      gang_request typed = p.gang(0, 1, priority, 1);
      typed.leaf_type = p.catalog.type_of(c);
      REQUIRE(p.find(typed));
      CHECK(p.planner.place().chain == c);
    }
    pinned.leaf_type = p.catalog.type_of(c);
    CHECK(p.consider(pinned) == (c == p.chain("V100") ? ok : missing));
  }
}

TEST_CASE("hived_planner: constraints count where they can be understood") {
  planned_cluster p;
  gang_request r = p.gang(0, 1, 0, 1);
  r.constraints.edit().required = 2;  // racks, which one chain has
  REQUIRE(p.find(r));
  CHECK(p.planner.place().chain == p.chain("V100"));
  r.leaf_type = p.catalog.type_of(p.chain("K80"));
  CHECK(p.consider(r) == absl::StatusCode::kInvalidArgument);
  r.leaf_type = {};
  r.constraints.edit().required = 3;
  CHECK(p.consider(r) == absl::StatusCode::kInvalidArgument);
  r.tenant = tenant_id(2);
  r.constraints.edit().required = 2;
  CHECK(p.consider(r) == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("hived_planner: every chain without preemption before any with it") {
  planned_cluster p;
  const std::uint32_t old = p.chain("K80");
  const std::uint32_t racks = p.chain("V100");
  REQUIRE(racks < old);
  CHECK(p.admit(p.gang(0, 1, 6, 2)) == racks);
  CHECK(p.admit(p.gang(0, 2, 9, 1)) == old);  // where it need not preempt
  for (const std::int32_t priority : {7, 9, 10}) {
    REQUIRE(p.find(p.gang(0, 3, priority,
                          1)));  // all is in use: the first chain with a gang of lower priority
    CHECK(p.planner.place().chain == racks);
  }
  gang_request typed = p.gang(0, 3, 10, 1);
  typed.leaf_type = p.catalog.type_of(old);
  CHECK(p.find(typed));
  typed.priority = 9;
  CHECK(!p.find(typed));
  CHECK(!p.find(p.gang(0, 3, 6, 1)));
  CHECK(p.why(p.gang(0, 3, 6, 1)) == wait_reason::busy);
}

TEST_CASE("hived_planner: why a gang waits, the reason that leaves most hope") {
  planned_cluster p;
  const gang_request large = p.gang(0, 1, 0, 3);
  CHECK(!p.find(large));
  CHECK(p.why(large) == wait_reason::never);
  const gang_request pair = p.gang(0, 2, 0, 2);
  gang_request suggested_none = pair;
  const summary_bitset none(6);
  suggested_none.suggested = &none;
  CHECK(!p.find(suggested_none));
  CHECK(p.why(suggested_none) == wait_reason::not_suggested);
  p.admit(pair);
  CHECK(!p.find(suggested_none));
  CHECK(p.why(suggested_none) == wait_reason::busy);  // on no other nodes either
  CHECK(!p.find(large));
  CHECK(p.why(large) == wait_reason::never);  // also if nothing ran
}

TEST_CASE(
    "hived_planner: leaves are in the order of the task groups, in whatever order it searched") {
  planned_cluster p;
  gang_request r = p.gang(0, 1, 0, 1);
  r.groups = {{1, 1}, {1, 2}, {1, 1}};
  REQUIRE(p.find(r));
  const gang_placement& place = p.planner.place();
  REQUIRE(place.leaves.size() == 4);
  const physical_chain& chain = p.state.cells().chain(place.chain);
  const auto node = [&](std::size_t i) { return chain.node_of(place.leaves[i].image); };
  CHECK(node(1) == node(2));  // the task of two leaves
  CHECK(node(0) == node(3));
  CHECK(node(0) != node(1));
}

}  // namespace
}  // namespace planner_of_chains
