// apiary/tests/hived/model_check_test.cpp - every interleaving of events on tiny clusters.
// SPDX-License-Identifier: MIT
#include "support/hived_model.h"
#include "support/scale.h"
#include <apiary/core/ids.h>
#include <apiary/hived/gang_request.h>
#include <apiary/hived/hived_config.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary::detail;
using apiary_test::hived_model;

constexpr tenant_id checked_a(0);
constexpr tenant_id checked_b(1);

gang_request gang(std::uint32_t job, tenant_id tenant, std::int32_t priority, bool lazy,
                  std::vector<task_group> groups) {
  return {.job = job_id(job),
          .tenant = tenant,
          .priority = priority,
          .groups = std::move(groups),
          .lazy = lazy};
}
gang_request pinned(gang_request r) {
  r.pinned = 0;
  return r;
}

// Two racks of two nodes of two leaves; the last node is pinned for tenant b if wanted.
hived_config racks(std::vector<virtual_cell_config> of_a, std::vector<virtual_cell_config> of_b,
                   bool with_pinned) {
  hived_config config;
  config.cell_types = {{"NODE", "GPU", 2, true}, {"RACK", "NODE", 2, false}};
  for (std::uint32_t r = 0; r < 2; ++r) {
    config.physical_cells.push_back({.type = "RACK"});
    for (std::uint32_t n = 0; n < 2; ++n)
      config.physical_cells[r].children.push_back({.address = "n" + std::to_string(2 * r + n)});
  }
  config.virtual_clusters = {{.name = "a", .cells = std::move(of_a)},
                             {.name = "b", .cells = std::move(of_b)}};
  if (with_pinned) {
    config.physical_cells[1].children[1].pinned_id = "mine";
    config.virtual_clusters[1].pinned_ids = {"mine"};
  }
  return config;
}

// `there_are`: states that the model has at least. Those first met by what hived_changes adds.
std::uint64_t explore(const std::string& what, hived_model model, std::uint64_t states,
                      std::uint64_t there_are) {
  const auto begin = std::chrono::steady_clock::now();
  const hived_model::figures seen = model.explore(apiary_test::scaled(states));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  MESSAGE(what << ": " << seen.states << " states" << std::string(seen.all ? ", all there are" : "")
               << ", " << seen.events << " events, depth " << seen.depth << ", " << seen.beside
               << " by changes beside, " << took.count() << " s");
  CHECK(seen.states >= std::min(apiary_test::scaled(states), there_are));
  CHECK(seen.events > seen.states);
  return seen.beside;
}

// Of each cluster, those nearest to the empty one; a million in all. Two have no more than these.
constexpr std::uint64_t states = 105'000;
constexpr std::uint64_t many_states = 170'000;  // where few events are possible
constexpr std::uint64_t few_states = 60'000;    // where many are
constexpr std::uint64_t pinned_states = 60'000;
constexpr std::uint64_t restarted_states = 26'000;
static_assert(6 * states + many_states + 2 * few_states + pinned_states + restarted_states >=
              1'000'000);

TEST_CASE("no order of events breaks an invariant: gangs of a tenant, lazy or not") {
  explore("lazy and not",
          {racks({{"RACK", 1}}, {{"RACK.NODE", 1}, {"RACK.NODE.GPU", 1}}, false),
           {gang(0, checked_a, 0, true, {{2, 1}}), gang(1, checked_a, 0, false, {{1, 2}}),
            gang(2, checked_a, 1, true, {{2, 1}, {1, 2}}), gang(3, checked_a, 2, false, {{1, 2}}),
            gang(4, checked_b, 1, true, {{1, 1}}), gang(5, checked_b, -1, false, {{2, 1}})},
           {}},
          states, states);
}

TEST_CASE("no order of events breaks an invariant: two tenants, opportunistic gangs, failures") {
  explore("bad hardware",
          {racks({{"RACK", 1}}, {{"RACK.NODE", 1}, {"RACK.NODE.GPU", 1}}, false),
           {gang(0, checked_a, 0, true, {{2, 1}}), gang(1, checked_a, 1, false, {{1, 2}}),
            gang(2, checked_a, 1, false, {{1, 1}}), gang(3, checked_b, 0, false, {{1, 1}}),
            gang(4, checked_b, -1, false, {{2, 1}})},
           {{0, 0}, {1, {}}, {2, 1}}},
          states, states);
}

TEST_CASE("no order of events breaks an invariant: a host in two chains that fails") {
  hived_config config = racks({{"RACK", 1}, {"BOX", 1}}, {{"RACK.NODE", 1}, {"BOX.OLD", 1}}, false);
  config.cell_types.push_back({"BOX", "OLD", 2, true});
  for (const std::uint32_t box : {0U, 4U}) {  // the first one is in the host n0
    config.physical_cells.push_back({.type = "BOX",
                                     .address = "n" + std::to_string(box),
                                     .children = {{.address = "2"}, {.address = "3"}}});
  }
  explore("a host in two chains",
          {config,
           {gang(0, checked_a, 0, true, {{2, 2}}), gang(1, checked_a, 1, false, {{1, 2}}),
            gang(2, checked_b, 0, false, {{1, 2}}), gang(3, checked_b, 1, true, {{1, 1}}),
            gang(4, checked_b, -1, false, {{2, 1}})},
           {{0, {}}, {2, 1}}},
          few_states, few_states);
}

TEST_CASE("no order of events breaks an invariant: a pinned node with a leaf that fails") {
  explore("pinned",
          {racks({{"RACK.NODE", 1}}, {{"RACK.NODE", 1}, {"RACK.NODE.GPU", 1}}, true),
           {pinned(gang(0, checked_b, 0, true, {{2, 1}})),
            pinned(gang(1, checked_b, 1, false, {{1, 2}})), gang(2, checked_b, 0, true, {{1, 2}}),
            gang(3, checked_b, 1, false, {{1, 1}}), gang(4, checked_a, -1, false, {{2, 2}}),
            gang(5, checked_a, 1, true, {{2, 1}})},
           {{3, 0}, {2, {}}}},
          states, pinned_states);
}

TEST_CASE("no order of events breaks an invariant: three priorities, all lazy, a leaf that fails") {
  explore("chains of preemption",
          {racks({{"RACK", 1}, {"RACK.NODE", 1}}, {{"RACK.NODE", 1}}, false),
           {gang(0, checked_a, 0, true, {{2, 1}, {1, 2}}), gang(1, checked_a, 1, true, {{2, 2}}),
            gang(2, checked_a, 2, true, {{3, 2}}), gang(3, checked_a, 3, true, {{1, 2}}),
            gang(4, checked_b, 0, true, {{2, 1}}), gang(5, checked_b, -1, false, {{1, 1}})},
           {{0, 1}}},
          states, states);
}

TEST_CASE(
    "no order of events breaks an invariant: three priorities, none lazy, a node that fails") {
  explore("claims on claims",
          {racks({{"RACK", 1}, {"RACK.NODE", 1}}, {{"RACK.NODE.GPU", 2}}, false),
           {gang(0, checked_a, 0, false, {{2, 1}, {1, 2}}), gang(1, checked_a, 1, false, {{2, 2}}),
            gang(2, checked_a, 2, false, {{3, 2}}), gang(3, checked_b, 0, false, {{1, 1}}),
            gang(4, checked_b, 1, true, {{2, 1}}), gang(5, checked_b, -1, false, {{2, 1}})},
           {{1, {}}}},
          states, states);
}

TEST_CASE("no order of events breaks an invariant: gangs of one cell, on nodes that fail") {
  explore("a cell of its own",
          {racks({{"RACK.NODE", 1}}, {{"RACK.NODE.GPU", 1}}, false),
           {gang(0, checked_a, 0, false, {{1, 2}}), gang(1, checked_a, 1, false, {{1, 2}}),
            gang(2, checked_a, 2, false, {{2, 1}}), gang(3, checked_a, 1, true, {{1, 1}}),
            gang(4, checked_b, 0, false, {{1, 1}}), gang(5, checked_b, -1, false, {{1, 2}})},
           {{0, {}}, {1, {}}, {2, 0}}},
          states, states);
}

TEST_CASE("no order of events breaks an invariant: mixed gangs that shrink") {
  explore("mixed",
          {racks({{"RACK.NODE", 2}}, {{"RACK.NODE.GPU", 3}}, false),
           {gang(0, checked_a, 0, true, {{3, 1}}), gang(1, checked_a, 1, false, {{2, 1}, {1, 2}}),
            gang(2, checked_a, 1, false, {{2, 1}}), gang(3, checked_b, 0, true, {{2, 1}}),
            gang(4, checked_b, 1, false, {{2, 1}}), gang(5, checked_a, -1, false, {{3, 1}})},
           {{0, 0}}},
          many_states, many_states);
}

TEST_CASE("no order of events breaks an invariant: restarts, and gangs on suggested nodes") {
  const std::uint64_t beside =
      explore("restarts",
              {racks({{"RACK", 1}}, {{"RACK.NODE", 1}, {"RACK.NODE.GPU", 1}}, false),
               {gang(0, checked_a, 0, true, {{2, 1}}), gang(1, checked_a, 1, false, {{1, 2}}),
                gang(2, checked_b, 0, false, {{1, 1}}), gang(3, checked_b, 0, false, {{1, 2}}),
                gang(4, checked_b, -1, false, {{2, 1}})},
               {{0, 0}},
               {.suggested = {0, 3}, .restarts = true}},
              few_states, few_states);
  CHECK(beside > 0);
}

TEST_CASE("no order of events breaks an invariant: restarts, a pinned node, suggested nodes") {
  const std::uint64_t beside = explore(
      "pinned, restarts",
      {racks({{"RACK.NODE", 1}}, {{"RACK.NODE", 1}, {"RACK.NODE.GPU", 1}}, true),
       {pinned(gang(0, checked_b, 0, true, {{2, 1}})),
        pinned(gang(1, checked_b, 1, false, {{1, 2}})), gang(2, checked_b, 0, true, {{1, 2}}),
        gang(3, checked_a, -1, false, {{2, 2}}), gang(4, checked_a, 1, true, {{2, 1}})},
       {{3, 0}},
       {.suggested = {1, 2}, .restarts = true}},
      states, restarted_states);
  CHECK(beside > 0);
}

TEST_CASE("no order of events breaks an invariant: another configuration, and back") {
  // A node is another one, and tenant b has a node of a's rack.
  hived_config other = racks({{"RACK.NODE", 1}}, {{"RACK.NODE", 2}}, false);
  other.physical_cells[1].children[1].address = "n4";
  const std::uint64_t beside = explore(
      "configurations",
      {racks({{"RACK", 1}}, {{"RACK.NODE", 1}, {"RACK.NODE.GPU", 1}}, false),
       {gang(0, checked_a, 0, true, {{2, 1}}), gang(1, checked_a, 1, false, {{1, 2}, {1, 1}}),
        gang(2, checked_a, 2, true, {{1, 2}}), gang(3, checked_b, 0, false, {{1, 1}}),
        gang(4, checked_b, -1, false, {{2, 2}})},
       {{3, 0}},
       {.other = other}},
      states, states);
  CHECK(beside > 0);
}

TEST_CASE("no order of events breaks an invariant: all kinds of events, with a pinned node") {
  // The pinned node is another one, and no rack is reserved.
  hived_config other = racks({{"RACK.NODE", 2}}, {{"RACK.NODE.GPU", 1}}, true);
  std::swap(other.physical_cells[1].children[0], other.physical_cells[1].children[1]);
  const std::uint64_t beside =
      explore("everything",
              {racks({{"RACK", 1}}, {{"RACK.NODE.GPU", 2}}, true),
               {gang(0, checked_a, 0, true, {{2, 1}}), gang(1, checked_a, 1, false, {{2, 2}}),
                pinned(gang(2, checked_b, 0, true, {{2, 1}})),
                gang(3, checked_b, 1, false, {{2, 1}}), gang(4, checked_b, -1, false, {{1, 2}})},
               {{1, {}}},
               {.suggested = {0, 1}, .restarts = true, .other = other}},
              few_states, few_states);
  CHECK(beside > 0);
}

}  // namespace
