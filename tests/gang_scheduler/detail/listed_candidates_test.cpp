// apiary/tests/gang_scheduler/detail/listed_candidates_test.cpp - what listed gangs give back in a view and in an excerpt.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/journal.h>
#include <apiary/core/ids.h>
#include <apiary/gang_scheduler/detail/candidate_costs.h>
#include <apiary/gang_scheduler/detail/cluster_excerpt.h>
#include <apiary/gang_scheduler/detail/listed_candidates.h>
#include <apiary/gang_scheduler/detail/node_view.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/placement.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>

namespace listed_candidates_tests {
namespace {

using namespace apiary;
using detail::candidate_costs;
using detail::listed_candidates;
using detail::scheduled_gangs;

TEST_CASE("listed_candidates: what gangs give back in the view and in an excerpt") {
  // Two racks of two nodes of four GPUs; jobs 0 to 3 have two GPUs on each node, with 6 of 8 CPUs.
  gang_cluster cluster{.levels = {"rack"}};
  for (std::uint32_t n = 0; n < 4; ++n)
    cluster.nodes.push_back({.name = "n" + std::to_string(n),
                             .cells = {"r" + std::to_string(n / 2)},
                             .gpus = 4,
                             .host = {8'000, 0}});
  scheduled_gangs state(cluster);
  for (std::uint32_t job = 0; job < 4; ++job) {
    scheduled_gangs::gang added{.what = {.job = job}, .tasks = {{node_id(job), 3}}};
    added.what.gang.groups = {{.tasks = 1, .gpus = 2, .host = {6'000, 0}}};
    added.gpus = 2;
    state.insert(std::move(added));
  }
  state.set_health(1, true, 0);
  detail::node_view& view = state.view({});
  candidate_costs costs;
  const gang_scheduler_types::cost_function none;
  costs.begin(state, 9, 0, none, {});
  listed_candidates list;
  list.begin(state, view, view.hosts);
  for (std::uint32_t job = 0; job < 4; ++job) list.add(state.slot_of(job), costs);
  CHECK(list.slots().size() == 3);  // node n1 is bad
  CHECK(list.allocations()[0].gpus == 2);
  CHECK(list.freed()[0].cpu_milli == 6'000);
  CHECK(!list.overcommitted());
  {
    journal log;
    transaction tx(log);
    list.evict(tx);
    CHECK(view.free.free(state.node(3).position) == 4);
    CHECK(view.hosts[state.node(3).position].cpu_milli == 8'000);
  }
  CHECK(view.free.free(state.node(3).position) == 2);
  detail::cluster_excerpt excerpt;
  const std::uint32_t second[] = {1};
  excerpt.begin(view.free, view.hosts, 1, second);
  list.clear();
  CHECK(list.empty());
  for (std::uint32_t job = 0; job < 4; ++job) list.add(state.slot_of(job), costs, &excerpt);
  CHECK(list.slots().size() == 2);
  list.evict(excerpt);
  CHECK(excerpt.capacities().free(0) == 4);
  CHECK(excerpt.hosts()[1].cpu_milli == 8'000);
}

}  // namespace
}  // namespace listed_candidates_tests
