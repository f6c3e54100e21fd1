// apiary/tests/hived/never_test.cpp - a gang that can never run is is_never so, whatever the state.
// SPDX-License-Identifier: MIT
#include "support/hived_clusters.h"
#include "support/hived_play.h"
#include "support/hived_proofs.h"
#include "support/naive_gang.h"
#include "support/scale.h"
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/detail/catalog.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived.h>
#include <apiary/hived/hived_config.h>
#include <apiary/hived/layout.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace apiary;
using apiary_test::leaf_counts;

// The leaves of the nodes of a chain that a gang may use, were nothing there: by the quotas alone.
leaf_counts owned_nodes(const hived_layout& layout, const gang_request& r, std::uint32_t c) {
  const chain_layout& in = layout.chains[c];
  leaf_counts nodes;
  const auto own = [&](level_t level, std::uint32_t cells) {
    const std::uint32_t node = in.tree.leaves_per_cell(std::min(level, in.node_level));
    nodes.insert(nodes.end(), std::size_t{cells} * (in.tree.leaves_per_cell(level) / node), node);
  };
  if (r.priority < 0) {
    own(in.node_level, in.tree.cells(in.node_level).size());
  } else if (r.pinned) {
    const pinned_layout& pinned = layout.pinned[*r.pinned];
    if (pinned.chain.value == c) own(in.tree.level(pinned.cell), 1);
  } else {
    for (level_t l = 0; l < in.tree.num_levels(); ++l)
      own(l, layout.tenants[r.tenant.value].quota[c][l]);
  }
  return nodes;
}
bool could_ever_run(const hived& h, const gang_request& r) {
  const leaf_counts tasks = apiary_test::tasks_of(r.groups);
  for (std::uint32_t c = 0; c < h.layout().chains.size(); ++c) {
    if (r.leaf_type.valid() && h.catalog().type_of(c) != r.leaf_type) continue;
    if (apiary_test::fits_by_sets(owned_nodes(h.layout(), r, c), tasks)) return true;
  }
  return false;
}

TEST_CASE("a gang waits with `never` if and only if it does not fit into the empty cells") {
  std::uint64_t never = 0;
  std::uint64_t others = 0;
  const apiary_test::hived_play::habits habits{.gangs = 50, .ends = 14, .misuses = 0};
  for (std::uint64_t run = 0; run < apiary_test::scaled(std::uint64_t{3'000}); ++run) {
    CAPTURE(run);
    rng random(run);
    apiary_test::hived_play host(apiary_test::random_cluster(random), random(), habits);
    for (std::uint32_t i = 0, n = random.uniform(60); i < n; ++i) host.step();
    hived& h = host.scheduler;
    for (int i = 0; i < 10; ++i) {
      gang_request r = apiary_test::random_gang(h.layout(), job_id(1'000'000), random);
      r.groups = {{1 + random.uniform(6), 1 + random.uniform(5)}};
      if (random.uniform(2) == 0) r.groups.push_back({1 + random.uniform(3), 1});
      const summary_bitset nodes = apiary_test::random_nodes(h.layout(), random);
      if (random.uniform(4) == 0) r.suggested = &nodes;
      const auto plan = h.propose(r);
      if (!plan.ok()) continue;  // the tenant has nothing of that type
      const bool is_never =
          plan->result == plan_result::wait && plan->wait.reason == wait_reason::never;
      REQUIRE(is_never == !could_ever_run(h, r));
      ++(is_never ? never : others);
      if (is_never) REQUIRE(apiary_test::check_proof(h, r, plan->wait, random));
    }
  }
  MESSAGE(never << " gangs can never run, " << others << " not");
  CHECK(never > apiary_test::scaled(std::uint64_t{1'000}));
  CHECK(others > apiary_test::scaled(std::uint64_t{1'000}));
}

// Four nodes of two pairs, and two of three GPUs in a chain of their own. Tenant "a" has two nodes,
// one of three GPUs and a pinned pair, "b" a pair.
hived nodes_of_two_sizes() {
  hived_config c;
  c.cell_types = {{"PAIR", "GPU", 2}, {"NODE", "PAIR", 2, true}, {"BOX", "GPU", 3, true}};
  for (const char* name : {"n0", "n1", "n2", "n3"})
    c.physical_cells.push_back({.type = "NODE", .address = name});
  c.physical_cells[2].children = {{.pinned_id = "pin"}, {}};
  for (const char* name : {"b0", "b1"})
    c.physical_cells.push_back({.type = "BOX", .address = name});
  c.virtual_clusters = {{.name = "a", .cells = {{"NODE", 2}, {"BOX", 1}}, .pinned_ids = {"pin"}},
                        {.name = "b", .cells = {{"NODE.PAIR", 1}}}};
  auto h = hived::create(c);
  REQUIRE(h.ok());
  return *std::move(h);
}

struct gang_shape {
  std::string what;
  std::uint32_t tenant = 0;
  std::int32_t priority = 0;
  std::vector<task_group> groups;
  bool in_pinned = false;
};

const std::vector<gang_shape>& shapes_too_large() {
  static const std::vector<gang_shape> all = {
      {"a task larger than any node", 0, 0, {{1, 5}}},
      {"the largest task that can be asked for", 0, 1000, {{1, 64}}},
      {"one such task among others", 0, 0, {{3, 1}, {1, 5}}},
      {"an opportunistic task larger than any node", 0, -1, {{1, 5}}},
      {"a task larger than its tenant's cells, but not than a node", 1, 0, {{1, 3}}},
      {"a gang larger than its tenant's cells, but not than the cluster", 1, 0, {{3, 1}}},
      {"a gang larger than its tenant's cells of any one chain, but not of both", 0, 0, {{9, 1}}},
      {"tasks that leave GPUs of each node unused", 0, 0, {{3, 3}}},
      {"tasks of mixed sizes that do not go together", 0, 0, {{1, 3}, {1, 3}, {1, 2}}},
      {"a gang larger than the cluster", 0, 0, {{23, 1}}},
      {"the largest gang that can be asked for", 0, 0, {{1'000'000, 64}}},
      {"an opportunistic gang larger than each chain", 0, -1, {{17, 1}}},
      {"an opportunistic gang larger than the cluster", 1, -1, {{1'000'000, 1}}},
      {"a task larger than the pinned cell", 0, 0, {{1, 3}}, true},
      {"a gang larger than the pinned cell", 0, 0, {{3, 1}}, true},
  };
  return all;
}

// Each in words that are right otherwise.
void check_told_never(hived& h, const summary_bitset* suggested) {
  rng random(1);
  for (const gang_shape& s : shapes_too_large()) {
    CAPTURE(s.what);
    gang_request r{.job = job_id(99),
                   .tenant = tenant_id(s.tenant),
                   .priority = s.priority,
                   .groups = s.groups,
                   .suggested = suggested};
    if (s.in_pinned) r.pinned = 0;
    const std::uint64_t before = h.hash();
    const auto plan = h.propose(r);
    REQUIRE(plan.ok());
    CHECK(plan->result == plan_result::wait);
    CHECK(plan->wait.reason == wait_reason::never);
    CHECK(apiary_test::check_proof(h, r, plan->wait, random));
    CHECK(h.hash() == before);
  }
}

TEST_CASE("a gang that is too large for its cells waits with `never`") {
  hived h = nodes_of_two_sizes();
  check_told_never(h, nullptr);
  SUBCASE("also on hardware that is all bad") {
    for (std::uint32_t n = 0; n < h.layout().num_nodes(); ++n) REQUIRE(h.mark_bad(node_id(n)).ok());
    check_told_never(h, nullptr);
  }
  SUBCASE("also on nodes of which none is suggested") {
    const summary_bitset none(h.layout().num_nodes());
    check_told_never(h, &none);
  }
  SUBCASE("also on a cluster in use") {
    for (const gang_request& r :
         {gang_request{
              .job = job_id(1), .tenant = tenant_id(0), .priority = 1000, .groups = {{2, 4}}},
          gang_request{
              .job = job_id(2), .tenant = tenant_id(1), .priority = -1, .groups = {{4, 2}}}}) {
      const auto plan = h.propose(r);
      REQUIRE((plan.ok() && plan->result == plan_result::bind));
      REQUIRE(h.commit(*plan).ok());
    }
    check_told_never(h, nullptr);
  }
}

TEST_CASE("what is just not too large runs") {
  for (const gang_shape& s : std::vector<gang_shape>{{"", 0, 0, {{2, 4}}},
                                                     {"", 0, 0, {{8, 1}}},
                                                     {"", 0, 0, {{1, 3}, {1, 1}, {2, 2}}},
                                                     {"", 1, 0, {{1, 2}}},
                                                     {"", 0, 0, {{1, 2}}, true},
                                                     {"", 1, -1, {{4, 4}}},
                                                     {"", 1, -1, {{16, 1}}}}) {
    hived h = nodes_of_two_sizes();
    gang_request r{.job = job_id(99),
                   .tenant = tenant_id(s.tenant),
                   .priority = s.priority,
                   .groups = s.groups};
    if (s.in_pinned) r.pinned = 0;
    const auto plan = h.propose(r);
    REQUIRE(plan.ok());
    CHECK(plan->result == plan_result::bind);
  }
}

}  // namespace
