// apiary/tests/gang_scheduler/detail/victim_planner_test.cpp - a search for victims stays within its budget.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/gang_scheduler/detail/filter_views.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/detail/victim_planner.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/placement.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <support/scale.h>
#include <utility>
#include <vector>

namespace victim_planner_tests {
namespace {

using namespace apiary;
using detail::scheduled_gangs;
using detail::victim_planner;

constexpr level_t rack = 1;

// Racks of eight nodes of eight GPUs.
gang_cluster racks(std::uint32_t n) {
  gang_cluster cluster{.levels = {"rack"}};
  for (std::uint32_t i = 0; i < 8 * n; ++i)
    cluster.nodes.push_back({.name = "n" + std::to_string(i),
                             .cells = {"r" + std::to_string(i / 8)},
                             .gpus = 8,
                             .host = {64'000, 0}});
  return cluster;
}
// Starts a gang on given GPUs; all its tasks are equal.
void start(scheduled_gangs& state, std::uint64_t job, const constrained_task_group& group,
           std::vector<placement> where, time_ms started) {
  scheduled_gangs::gang added{.what = {.job = job}, .tasks = std::move(where), .started = started};
  added.what.gang.groups = {group};
  added.gpus = std::uint64_t{group.tasks} * group.gpus;
  state.insert(std::move(added));
}
// Fills the nodes with gangs of one to eight tasks.
void fill(scheduled_gangs& state, std::uint32_t nodes, rng& random) {
  std::vector<std::uint32_t> used(nodes, 0);
  for (std::uint64_t job = 0, misses = 0; misses < 20; ++job) {
    const std::uint32_t gpus = 1 + random.uniform(random.uniform(2) == 0 ? 8 : 3);
    std::vector<placement> where;
    for (std::uint32_t i = 1 + random.uniform(random.uniform(8) == 0 ? 8 : 3); i > 0; --i) {
      const std::uint32_t n = random.uniform(nodes);
      const auto free = static_cast<std::uint32_t>(8 - std::popcount(used[n]));
      if (gpus > free) continue;
      const std::uint32_t mask = ((1U << gpus) - 1) << (8 - free);
      used[n] |= mask;
      where.push_back({node_id(n), mask});
    }
    misses += where.empty() ? 1U : 0U;
    if (where.empty()) continue;
    const auto tasks = static_cast<std::uint32_t>(where.size());
    start(state, job, {.tasks = tasks, .gpus = gpus}, std::move(where), random.uniform(90));
  }
}
topology_constraints random_gang(rng& random) {
  topology_constraints gang;
  gang.groups = {{.tasks = 2 + random.uniform(6), .gpus = 3 + random.uniform(6)}};
  switch (random.uniform(4)) {
    case 0:
      gang.groups[0].spread = {{0, 1}};
      break;
    case 1:
      gang.groups[0] = {.tasks = 8, .gpus = 8, .slices = {{rack, 4}}};
      break;
    case 2:
      gang.groups.push_back({.tasks = 3, .gpus = 2, .spread = {{0, 1 + random.uniform(2)}}});
  }
  if (random.uniform(2) == 0) gang.required = rack;
  return gang;
}

TEST_CASE("victim_planner: all searches together take at most the budget") {
  std::uint32_t found = 0;
  std::uint32_t ended = 0;
  std::uint32_t all_steps = 0;
  for (std::uint64_t seed = 0; seed < std::max(40U, apiary_test::scaled(2'000U)); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    scheduled_gangs state(racks(12));
    fill(state, 96, random);
    gang_scheduler_types::request r{.job = "asked", .priority = 1, .gang = random_gang(random)};
    detail::node_view& view = state.view(r.filter);
    const auto verdict = topology_fit<ragged_tree>()(view.free, r.gang).verdict;
    if (verdict == fit_verdict::fits) continue;
    victim_planner planner;
    std::uint64_t bound = 0;
    std::uint64_t cost = victim_planner::never;
    for (const std::uint64_t budget : {0U, 200U, 1'100U, 3'000U, 10'000U, 30'000U}) {
      CAPTURE(budget);
      const bool is_found =
          planner(state, view, r, verdict == fit_verdict::does_not_fit, false, 100, budget);
      REQUIRE(planner.steps() <= budget);
      REQUIRE(!(is_found && planner.budget_ended()));
      bound = std::max(bound, planner.lower_bound());
      cost = std::min(cost, planner.cost());
      // One gang at least ends if it is certain that the gang does not fit.
      CHECK((planner.lower_bound() > 0) == (verdict == fit_verdict::does_not_fit));
      found += is_found ? 1U : 0U;
      ended += planner.budget_ended() ? 1U : 0U;
      all_steps += planner.steps() == budget ? 1U : 0U;
    }
    CHECK(bound <= cost);
  }
  CHECK(found > 0);
  CHECK(ended > 0);
  CHECK(all_steps > 0);
}

TEST_CASE(
    "victim_planner: a gang that is tried alone counts as 128 steps, changes and those of the "
    "fit") {
  scheduled_gangs state(racks(2));
  std::vector<placement> first;
  for (std::uint32_t n = 0; n < 8; ++n) first.push_back({node_id(n), 255});
  start(state, 1, {.tasks = 8, .gpus = 8}, first, 0);
  for (std::uint32_t n = 8; n < 16; ++n)
    start(state, n, {.tasks = 1, .gpus = 8}, {{node_id(n), 255}}, 0);
  gang_scheduler_types::request r{.job = "asked", .priority = 1};
  r.gang.groups = {{.tasks = 2, .gpus = 8}};
  victim_planner planner;
  // Two gangs of a node cost more than the wide one.
  REQUIRE(planner(state, state.view(r.filter), r, true, false, 0, 8 * 130));
  CHECK(planner.victims().size() == 1);
  CHECK(planner.steps() >= 130);  // its eight nodes are two steps
  CHECK(planner.steps() <= 256);
  CHECK(planner.cost() == planner.lower_bound());
}

TEST_CASE(
    "victim_planner: of many gangs that cost the same only as many are listed as an eighth pays") {
  // 9,600 gangs of one GPU with equal costs: 37 steps to look at all of them, 600 to list them.
  scheduled_gangs state(racks(150));
  for (std::uint32_t job = 0; job < 9'600; ++job)
    start(state, job, {.tasks = 1, .gpus = 1}, {{node_id(job / 8), 1U << job % 8}}, 0);
  gang_scheduler_types::request r{.job = "asked", .priority = 1};
  r.gang.groups = {{.tasks = 1, .gpus = 1}};
  victim_planner planner;
  // Without steps for topology_victim_search. The list for it takes 1,400, the costs 37.
  CHECK(!planner(state, state.view(r.filter), r, true, false, 0, 8 * 300, 0));
  CHECK(planner.budget_ended());
  CHECK(planner.steps() >= 1'400);
  CHECK(planner.steps() <= 300 + 1'437);
  CHECK(planner.lower_bound() > 0);
  REQUIRE(planner(state, state.view(r.filter), r, true, false, 0, 8 * 1'000));
  CHECK(planner.victims().size() == 1);
}

TEST_CASE("victim_planner: gangs beyond the disruption budget of their tenant take steps, too") {
  // Each of 2,048 gangs of a GPU would be enough alone, but no gang of the tenant may end.
  scheduled_gangs state(racks(32));
  for (std::uint32_t job = 0; job < 2'048; ++job) {
    scheduled_gangs::gang added{.what = {.job = job, .tenant = tenant_id(1)},
                                .tasks = {{node_id(job / 8), 1U << job % 8}},
                                .gpus = 1};
    added.what.gang.groups = {{.tasks = 1, .gpus = 1}};
    state.insert(std::move(added));
  }
  gang_scheduler_types::request r{.job = "asked", .priority = 1};
  r.gang.groups = {{.tasks = 1, .gpus = 1}};
  victim_planner planner;
  planner.budgets.set(1, disruption_budget{.gangs = 0});
  CHECK(!planner(state, state.view(r.filter), r, true, false, 0, 100'000, 0));
  CHECK(planner.steps() >= 3 * 2'048);
}

TEST_CASE("victim_planner: gangs that the budget does not pay to read are undecided") {
  // 9,000 tasks without GPUs on one node: 18,001 gangs, their nodes and nodes; 16,384 are free.
  scheduled_gangs state(gang_cluster{.nodes = {{.name = "n", .gpus = 1, .host = {9'000, 0}}}});
  for (std::uint64_t job = 0; job < 9'000; ++job)
    start(state, job, {.tasks = 1, .gpus = 0, .host = {1, 0}}, {{node_id(0), 0}}, 0);
  gang_scheduler_types::request r{.job = "asked", .priority = 1};
  r.gang.groups = {{.tasks = 1, .gpus = 1, .host = {10, 0}}};
  victim_planner planner;
  CHECK(!planner(state, state.view(r.filter), r, true, true, 0, 66));
  CHECK(planner.budget_ended());
  CHECK(planner.steps() == 35);  // it has added up costs, and listed nothing
  // 1,875 steps more pay for the list, 25 more not for reading it.
  CHECK(!planner(state, state.view(r.filter), r, true, true, 0, 1'935));
  CHECK(planner.budget_ended());
  CHECK(planner.steps() == 1'910);
  REQUIRE(planner(state, state.view(r.filter), r, true, true, 0, 100'000));
  CHECK(planner.victims().size() == 10);
}

TEST_CASE("victim_planner: racks that the budget does not pay to read are not searched") {
  // Two racks of a node each, on which 9,000 tasks without GPUs run: 18,001 entries for each rack.
  // 3,000 steps pay for one of them.
  gang_cluster cluster{.levels = {"rack"}};
  for (const char* const rack_name : {"a", "b"})
    cluster.nodes.push_back(
        {.name = rack_name, .cells = {rack_name}, .gpus = 1, .host = {9'000, 0}});
  scheduled_gangs state(cluster);
  for (std::uint32_t job = 0; job < 18'000; ++job)
    start(state, job, {.tasks = 1, .gpus = 0, .host = {1, 0}}, {{node_id(job / 9'000), 0}}, 0);
  gang_scheduler_types::request r{.job = "asked", .priority = 1};
  r.gang.groups = {{.tasks = 1, .gpus = 1, .host = {3, 0}}};
  r.gang.required = rack;
  victim_planner planner;
  CHECK(!planner(state, state.view(r.filter), r, true, true, 0, 60));
  CHECK(planner.budget_ended());
  REQUIRE(planner(state, state.view(r.filter), r, true, true, 0, 3'000));
  CHECK(planner.victims().size() == 3);
  // In the other rack one gang at least must end.
  CHECK(planner.lower_bound() > 0);
  CHECK(planner.lower_bound() * 3 <= planner.cost());
  // Two racks could be listed together, but 700 steps of the search pay only for reading one.
  REQUIRE(planner(state, state.view(r.filter), r, true, true, 0, 10'000, 700));
  CHECK(planner.victims().size() == 3);
}

TEST_CASE("victim_planner: a gang that is listed for one rack costs steps for all of its nodes") {
  scheduled_gangs state(racks(64));
  std::vector<placement> everywhere;
  for (std::uint32_t n = 0; n < 512; ++n) everywhere.push_back({node_id(n), 15});
  start(state, 0, {.tasks = 512, .gpus = 4}, everywhere, 0);
  gang_scheduler_types::request r{.job = "asked", .priority = 1};
  r.gang.groups = {{.tasks = 1, .gpus = 8}};
  r.gang.required = rack;
  victim_planner planner;
  detail::node_view& view = state.view(r.filter);
  CHECK(!planner(state, view, r, true, false, 0, 30));
  CHECK(planner.budget_ended());
  REQUIRE(planner(state, view, r, true, false, 0, 1'000));
  CHECK(planner.victims().size() == 1);
  CHECK(planner.steps() >= 512 / 16);
}

}  // namespace
}  // namespace victim_planner_tests
