// apiary/tests/gang_scheduler/detail/candidate_costs_test.cpp - candidates, their costs and disruption budgets.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/detail/candidate_costs.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/placement.h>
#include <apiary/preempt/victim_set.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace candidate_costs_tests {
namespace {

using namespace apiary;
using detail::candidate_costs;
using detail::scheduled_gangs;

// Two racks of two nodes of four GPUs; jobs 0 to 3 have two GPUs on each node, with 6 of 8 CPUs.
scheduled_gangs four_gangs() {
  gang_cluster cluster{.levels = {"rack"}};
  for (std::uint32_t n = 0; n < 4; ++n)
    cluster.nodes.push_back({.name = "n" + std::to_string(n),
                             .cells = {"r" + std::to_string(n / 2)},
                             .gpus = 4,
                             .host = {8'000, 0}});
  scheduled_gangs state(cluster);
  for (std::uint32_t job = 0; job < 4; ++job) {
    scheduled_gangs::gang added{.what = {.job = job, .tenant = tenant_id(job)}};
    added.what.priority = static_cast<std::int32_t>(job / 2);
    added.what.gang.groups = {{.tasks = 1, .gpus = 2, .host = {6'000, 0}}};
    added.tasks = {{node_id(job), 3}};
    added.started = 10 * static_cast<time_ms>(job);
    added.gpus = 2;
    state.insert(std::move(added));
  }
  return state;
}

TEST_CASE("candidate_costs: by class, then gangs, then GPU-time; or by the caller's function") {
  const scheduled_gangs state = four_gangs();
  const auto slot = [&](std::uint32_t job) { return state.slot_of(job); };
  candidate_costs costs;
  const gang_scheduler_types::cost_function none;
  costs.begin(state, 1, 100, none, {});
  CHECK(costs.is_candidate(slot(0)));
  CHECK(!costs.is_candidate(slot(2)));
  CHECK(costs.of(slot(0)) - costs.of(slot(1)) == 2 * 10);
  CHECK(costs.of(slot(1)) == costs.least() + 2 * 90);
  costs.begin(state, 2, 100, none, {});
  CHECK(costs.is_candidate(slot(2)));
  CHECK(costs.of(slot(2)) > costs.of(slot(0)) + costs.of(slot(1)));
  CHECK(!costs.by_function());
  const gang_scheduler_types::cost_function by_job = [](const gang_scheduler_types::running_gang& g,
                                                        time_ms) {
    return g.what.job.number() == 3 ? ~std::uint64_t{0} : g.what.job.number();
  };
  costs.begin(state, 2, 100, by_job, {});
  CHECK(costs.by_function());
  CHECK(costs.least() == 0);
  CHECK(costs.of(slot(2)) == 2);
  CHECK(costs.of(slot(3)) == candidate_costs::max_cost);
}

TEST_CASE("candidate_costs: budgets of tenants") {
  const scheduled_gangs state = four_gangs();
  const std::map<std::uint32_t, disruption_budget> budgets{
      {1, {.gangs = 0}}, {2, {.gpus = 1}}, {3, {.gpus = 2}}};
  candidate_costs costs;
  const gang_scheduler_types::cost_function none;
  costs.begin(state, 9, 0, none, budgets);
  const bool within[] = {true, false, false, true};
  std::vector<std::uint32_t> slots;
  for (std::uint32_t job = 0; job < 4; ++job) {
    slots.push_back(state.slot_of(job));
    CHECK(costs.is_within_budget(slots.back()) == within[job]);
  }
  const disruption_budgets limits = costs.limits(slots);
  REQUIRE(limits.groups.size() == 4);
  CHECK(limits.groups[0] == ~std::uint32_t{0});
  CHECK(limits.max[limits.groups[2]].gpus == 1);
  CHECK(limits.gpus[0] == 2);
  CHECK(costs.more_reading() == 1);
  costs.begin(state, 9, 0, none, {});
  CHECK(costs.limits(slots).groups.empty());
  CHECK(costs.more_reading() == 0);
}

TEST_CASE("candidate_costs: the price counts gangs only if GPU-times have to be added up") {
  scheduled_gangs state = four_gangs();
  const std::map<std::uint32_t, disruption_budget> none;
  CHECK(candidate_costs::price(state, 100, none) == 0);
  for (std::uint32_t job = 4; job < 604; ++job) {
    scheduled_gangs::gang added{.what = {.job = job}, .started = 50};
    added.what.gang.groups = {{.tasks = 1, .gpus = 0, .host = {0, 1}}};
    added.tasks = {{node_id(0), 0}};
    state.insert(std::move(added));
  }
  CHECK(candidate_costs::price(state, 100, none) == 0);
  CHECK(candidate_costs::price(state, 49, none) == 2);
  std::map<std::uint32_t, disruption_budget> tenants;
  for (std::uint32_t t = 0; t < 32; ++t) tenants[t] = {};
  CHECK(candidate_costs::price(state, 100, tenants) == 2);
}

}  // namespace
}  // namespace candidate_costs_tests
