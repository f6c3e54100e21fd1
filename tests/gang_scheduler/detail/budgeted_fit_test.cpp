// apiary/tests/gang_scheduler/detail/budgeted_fit_test.cpp - the answers of topology_fit with CPU and memory, within the steps.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/gang_scheduler/detail/budgeted_fit.h>
#include <apiary/model/resources.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <support/scale.h>
#include <vector>

namespace budgeted_fit_tests {
namespace {

using namespace apiary;
using detail::budgeted_fit;
using detail::step_budget;
using detail::step_prices;

// Whether the portions are all tasks of the gang, on GPUs, CPU and memory that are there.
bool is_valid(const capacity_index<ragged_tree>& capacities, const std::vector<resources>& hosts,
              const topology_constraints& gang, const budgeted_fit::found& at) {
  std::vector<std::uint64_t> gpus(hosts.size()), cpu(hosts.size()), memory(hosts.size());
  std::vector<std::uint32_t> tasks(gang.groups.size());
  for (const tasks_on_node& p : at.portions) {
    const constrained_task_group& m = gang.groups[p.group];
    gpus[p.node] += std::uint64_t{p.tasks} * m.gpus;
    cpu[p.node] += std::uint64_t{p.tasks} * m.host.cpu_milli;
    memory[p.node] += std::uint64_t{p.tasks} * m.host.memory_mib;
    tasks[p.group] += p.tasks;
  }
  for (std::uint32_t n = 0; n < hosts.size(); ++n)
    if (gpus[n] > capacities.free(n) || cpu[n] > hosts[n].cpu_milli ||
        memory[n] > hosts[n].memory_mib)
      return false;
  for (std::size_t m = 0; m < tasks.size(); ++m)
    if (tasks[m] != gang.groups[m].tasks) return false;
  return true;
}

TEST_CASE("budgeted_fit: fits what fits with CPU and memory, and takes only steps that it may") {
  std::uint32_t fits = 0;
  std::uint32_t refused = 0;
  std::uint32_t ended = 0;
  budgeted_fit fit;  // one for all
  for (std::uint64_t seed = 0; seed < apiary_test::scaled(2'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    capacity_index<ragged_tree> capacities(ragged_tree({{3}, {4, 2, 5}}), 0, 8);
    std::vector<resources> hosts;
    for (std::uint32_t n = 0; n < 11; ++n) {
      capacities.set(n, random.uniform(9));
      hosts.push_back({random.uniform(9), random.uniform(9)});
    }
    topology_constraints gang;
    for (std::uint32_t m = 1 + random.uniform(2); m-- > 0;)
      gang.groups.push_back({.tasks = 1 + random.uniform(4),
                             .gpus = 1 + random.uniform(6),
                             .host = {random.uniform(4), random.uniform(4)}});
    if (random.uniform(2) == 0) gang.required = 1;
    if (random.uniform(4) == 0) gang.groups[0].host = {};
    topology_fit<ragged_tree> all_nodes;
    const bool is_possible = all_nodes(capacities, gang, hosts).verdict == fit_verdict::fits;
    const std::uint64_t if_fits = step_prices::of_placements(gang, 11);
    for (const std::uint64_t most : {0U, 1U, 2U, 5U, 20U, 100'000U}) {
      CAPTURE(most);
      step_budget steps(100'000);
      const budgeted_fit::found found = fit(capacities, gang, hosts, most, steps);
      REQUIRE(steps.steps() <= most + if_fits);
      if (found.verdict == fit_verdict::budget_ended) {
        REQUIRE(most < 100'000);
        ++ended;
        continue;
      }
      REQUIRE((found.verdict == fit_verdict::fits) == is_possible);
      if (is_possible) REQUIRE(is_valid(capacities, hosts, gang, found));
      ++(is_possible ? fits : refused);
    }
  }
  CHECK(fits > 0);
  CHECK(refused > 0);
  CHECK(ended > 0);
}

TEST_CASE("budgeted_fit: where CPU is not scarce the gang runs where it would without") {
  capacity_index<ragged_tree> capacities(ragged_tree({{2}, {3, 3}}), 0, 8);
  for (std::uint32_t n = 0; n < 6; ++n) capacities.set(n, 3 + n);
  topology_constraints gang;
  gang.groups = {{.tasks = 2, .gpus = 3}, {.tasks = 1, .gpus = 5}};
  budgeted_fit fit;
  step_budget steps(1'000);
  const std::vector<resources> hosts(6, resources{10, 0});
  const auto without = fit(capacities, gang, hosts, 500, steps);
  const std::vector<tasks_on_node> where(without.portions.begin(), without.portions.end());
  for (constrained_task_group& m : gang.groups) m.host.cpu_milli = 1;
  const auto with = fit(capacities, gang, hosts, 500, steps);
  REQUIRE(with.portions.size() == where.size());
  for (std::size_t i = 0; i < where.size(); ++i) {
    CHECK(with.portions[i].node == where[i].node);
    CHECK(with.portions[i].tasks == where[i].tasks);
  }
}

TEST_CASE("budgeted_fit: what the budget does not pay for is not searched") {
  // Placing 4,096 tasks takes 640 steps: (1 + 4 / 1) * 4,096 / 32.
  capacity_index<ragged_tree> capacities(ragged_tree({{1}, {4'096}}), 0, 8);
  for (std::uint32_t n = 0; n < 4'096; ++n) capacities.set(n, 8);
  topology_constraints gang;
  gang.groups = {{.tasks = 4'096, .gpus = 1}};
  const std::uint64_t if_fits = step_prices::of_placements(gang, 4'096);
  CHECK(if_fits == 640);
  budgeted_fit fit;
  step_budget few(if_fits - 1);
  CHECK(fit(capacities, gang, {}, 500, few).verdict == fit_verdict::budget_ended);
  CHECK(few.steps() == 0);
  step_budget enough(if_fits + 100);
  CHECK(fit(capacities, gang, {}, 500, enough).verdict == fit_verdict::fits);
  CHECK(enough.steps() >= if_fits);
}

TEST_CASE("budgeted_fit: a proof, and none if the gang fits") {
  capacity_index<ragged_tree> capacities(ragged_tree({{2}, {2, 2}}), 0, 8);
  for (std::uint32_t n = 0; n < 4; ++n) capacities.set(n, 4);
  topology_constraints gang;
  gang.groups = {{.tasks = 5, .gpus = 4}};
  budgeted_fit fit;
  CHECK(fit.prove(capacities, gang, {}, 1'000).cells.size() == 1);
  gang.required = 1;
  CHECK(fit.prove(capacities, gang, {}, 1'000).cells.size() == 2);
  gang.groups[0].tasks = 2;
  CHECK(fit.prove(capacities, gang, {}, 1'000).cells.empty());
}

}  // namespace
}  // namespace budgeted_fit_tests
