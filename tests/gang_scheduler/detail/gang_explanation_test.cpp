// apiary/tests/gang_scheduler/detail/gang_explanation_test.cpp - the sentences about plans, each kind once.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang_scheduler/detail/gang_explanation.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/gang_scheduler/gang_cluster.h>
#include <apiary/gang_scheduler/gang_scheduler_types.h>
#include <apiary/model/plan.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gang_explanation_tests {
namespace {

using namespace apiary;
using detail::plan_text;
using detail::scheduled_gangs;

// Ten nodes in two racks; n9 is bad.
scheduled_gangs state_of_ten() {
  gang_cluster cluster{.levels = {"rack"}, .nodes = {}};
  for (int n = 0; n < 10; ++n)
    cluster.nodes.push_back({.name = "n" + std::to_string(n),
                             .cells = {n < 9 ? "a" : "b"},
                             .gpus = 4,
                             .model = "h100"});
  scheduled_gangs state(cluster);
  state.set_health(9, true, 0);
  return state;
}
gang_scheduler_types::explanation planned(plan_result result, std::vector<std::uint32_t> nodes) {
  gang_scheduler_types::explanation e;
  e.plan.result = result;
  for (const std::uint32_t n : nodes) e.plan.tasks.push_back({node_id(n), 15});
  return e;
}

TEST_CASE("gang_explanation: plans that bind or preempt name nodes, their cell and victims") {
  const scheduled_gangs state = state_of_ten();
  const gang_scheduler_types::request r{.job = 7};
  const auto text = [&](const gang_scheduler_types::explanation& e, bool accepts_none) {
    return plan_text(state, r)(e, accepts_none);
  };
  CHECK(text(planned(plan_result::bind, {2}), false) == "job 7 can start now on node n2");
  auto e = planned(plan_result::bind, {2, 0, 2, 1});
  e.plan.level = 1;
  CHECK(text(e, false) == "job 7 can start now on nodes n0, n1 and n2 in rack a");
  CHECK(text(planned(plan_result::bind, {0, 1, 2, 3, 4, 5, 6, 7, 8}), false) ==
        "job 7 can start now on nodes n0, n1, n2, n3, n4, n5, n6 and 2 more");
  e = planned(plan_result::preempt, {2});
  e.plan.victims = {3, "x"};
  e.plan.cost = 5;
  CHECK(text(e, false) == "job 7 can start on node n2 when jobs 3 and x have been preempted");
  e.plan.lower_bound = 5;
  e.plan.victims = {3};
  CHECK(text(e, false) ==
        "job 7 can start on node n2 when job 3 has been preempted; no other choice costs less");
}

TEST_CASE("gang_explanation: plans that wait name the reason and what would help") {
  const scheduled_gangs state = state_of_ten();
  gang_scheduler_types::request r{.job = 7};
  const auto text = [&](const gang_scheduler_types::explanation& e, bool accepts_none = false) {
    return plan_text(state, r)(e, accepts_none);
  };
  auto e = planned(plan_result::wait, {});
  CHECK(text(e) == "job 7 waits");
  e.nodes_to_free = {node_id(9), node_id(1)};
  e.gpus_to_free = 6;
  CHECK(text(e) ==
        "job 7 waits; it would fit if node n1 were free and node n9 were healthy and free (6 more "
        "GPUs)");
  e.nodes_to_free = {node_id(9)};
  e.gpus_to_free = 0;
  e.plan.reason = wait_reason::unhealthy;
  CHECK(text(e) ==
        "job 7 waits: too many nodes or GPUs are bad: 1 of 10 nodes is bad; it would fit if node "
        "n9 were healthy and free "
        "(the GPUs are free, but CPU or memory is not)");
  e = planned(plan_result::wait, {});
  e.plan.reason = wait_reason::undecided;
  CHECK(text(e) ==
        "job 7 waits: it is not known whether it fits, because the search reached its step budget");
  e.plan.reason = wait_reason::not_suggested;
  CHECK(text(e) == "job 7 waits; without the list of nodes it would start now");
  e.plan.reason = wait_reason::never;
  const std::string never = "job 7 can never start in this cluster, even if it is idle";
  CHECK(text(e) == never);
  r.filter = {.labels = {"zone=z"}};
  CHECK(text(e, true) == never + ": no node has label \"zone=z\"");
  r.filter = {.models = {"a100", "v100"}};
  CHECK(text(e, true) == never + ": no node has GPU model \"a100\" or \"v100\"");
  const scheduled_gangs none(gang_cluster{});
  CHECK(plan_text(none, r)(e, true) == never + ": the cluster has no nodes");
}

TEST_CASE("gang_explanation: an idle node holds a task if it has what one of them needs") {
  const auto holds = [](const topology_constraints& gang, const gang_cluster::node& n) {
    return std::ranges::any_of(gang.groups, [&](const constrained_task_group& m) {
      return m.tasks > 0 && m.gpus <= n.gpus && m.host.fits_in(n.host);
    });
  };
  rng random(1);
  std::uint32_t held = 0;
  for (std::uint32_t i = 0; i < 2'000; ++i) {
    topology_constraints gang;
    for (std::uint32_t m = random.uniform(6); m-- > 0;)
      gang.groups.push_back({.tasks = random.uniform(3),
                             .gpus = random.uniform(4) == 0 ? 32 : random.uniform(4),
                             .host = {random.uniform(6), random.uniform(6)}});
    const detail::smallest_tasks smallest(gang);
    for (std::uint32_t n = 0; n < 10; ++n) {
      const gang_cluster::node node{.gpus = random.uniform(8) == 0 ? 32 : random.uniform(4),
                                    .host = {random.uniform(6), random.uniform(6)}};
      REQUIRE(smallest.holds(node) == holds(gang, node));
      held += smallest.holds(node) ? 1U : 0U;
    }
  }
  CHECK(held > 1'000);
  CHECK(held < 19'000);
  // Of many task groups few have to be compared with each node.
  topology_constraints many;
  for (std::uint32_t m = 0; m < 100'000; ++m)
    many.groups.push_back({.tasks = 1, .gpus = m % 4, .host = {1 + m, 5 + m % 3}});
  CHECK(detail::smallest_tasks(many).size() <= 12);
}

}  // namespace
}  // namespace gang_explanation_tests
