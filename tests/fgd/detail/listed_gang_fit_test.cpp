// apiary/tests/fgd/detail/listed_gang_fit_test.cpp - gangs on nodes of their task groups, by trying all.
// SPDX-License-Identifier: MIT
#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/fgd/detail/listed_gang_fit.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/node_table.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <support/scale.h>
#include <utility>
#include <vector>

namespace {

using namespace apiary;

// Whether the tasks of these groups fit, from number t on, by trying every node and GPU for each.
bool listed_fit_by_trying(node_table& nodes, const topology_constraints& gang,
                          const std::vector<summary_bitset>& sets,
                          const std::vector<std::uint32_t>& tasks, std::size_t t) {
  if (t == tasks.size()) return true;
  const task_request task = gang.groups[tasks[t]].task();
  for (const node_id n : nodes.ids()) {
    if (!sets[tasks[t]].test(n.value) || !nodes[n].fits(task)) continue;
    for (std::uint32_t i = 0; i < (task.wants_part_of_gpu() ? nodes[n].gpus : 1U); ++i) {
      if (task.wants_part_of_gpu() && nodes[n].gpu_left[i] < task.gpu_milli) continue;
      const placement where{n, task.wants_part_of_gpu() ? std::uint32_t{1} << i
                                                        : nodes[n].first_free_gpus(task.gpus)};
      nodes.place(task, where);
      const bool all = listed_fit_by_trying(nodes, gang, sets, tasks, t + 1);
      nodes.remove(task, where);
      if (all) return true;
    }
  }
  return false;
}

TEST_CASE("listed_gang_fit: it finds a placement if there is one, and takes back what it tried") {
  std::uint32_t fits = 0;
  const std::uint32_t gangs = apiary_test::scaled(4000U);
  for (std::uint32_t seed = 0; seed < gangs; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    node_table nodes;
    for (std::uint32_t n = 0; n < 4; ++n) {
      const node_id id = nodes.add({.host = {.cpu_milli = 1000 * random.uniform(8)},
                                    .gpus = random.uniform(4),
                                    .model = static_cast<gpu_model>(random.uniform(2))});
      for (std::uint32_t i = 0; i < nodes[id].gpus; ++i)
        nodes[id].gpu_left[i] = static_cast<milli_gpu>(200 * (3 + random.uniform(3)));
      nodes[id].healthy = random.uniform(8) > 0;
    }
    if (random.uniform(4) == 0) nodes.erase(node_id(random.uniform(4)));
    topology_constraints gang;
    std::vector<summary_bitset> sets;
    std::vector<std::uint32_t> tasks;
    for (std::uint32_t g = 0; g < 1 + random.uniform(3); ++g) {
      gang.groups.push_back({.tasks = random.uniform(4),
                             .gpus = random.uniform(3),
                             .host = {.cpu_milli = 1000 * random.uniform(3)},
                             .models = random.uniform(4) == 0 ? 0b01U : 0b11U});
      if (gang.groups[g].gpus == 1)
        gang.groups[g].gpu_milli = static_cast<milli_gpu>(200 * (1 + random.uniform(5)));
      tasks.insert(tasks.end(), gang.groups[g].tasks, g);
      sets.emplace_back(4);
      for (std::uint32_t n = 0; n < 4; ++n)
        if (random.uniform(3) > 0) sets[g].set(n);
    }
    const node_table before = nodes;
    const bool expected = listed_fit_by_trying(nodes, gang, sets, tasks, 0);
    detail::listed_gang_fit fit(nodes, gang, sets, 1'000'000);
    REQUIRE(fit() == (expected ? fit_verdict::fits : fit_verdict::does_not_fit));
    REQUIRE(nodes == before);
    detail::listed_gang_fit hurried(nodes, gang, sets, random.uniform(8));
    if (hurried() == fit_verdict::does_not_fit) CHECK(!expected);
    CHECK(nodes == before);
    if (!expected) continue;
    ++fits;
    const std::vector<task_placement> placed = std::move(fit).placements();
    REQUIRE(placed.size() == tasks.size());
    for (std::size_t t = 0; t < tasks.size(); ++t) {
      const task_request task = gang.groups[tasks[t]].task();
      CHECK(placed[t].group == tasks[t]);
      CHECK(sets[tasks[t]].test(placed[t].where.node.value));
      REQUIRE(nodes.can_place(task, placed[t].where));
      nodes.place(task, placed[t].where);
    }
  }
  CHECK(fits > gangs / 8);
  CHECK(fits < gangs - gangs / 8);
}

TEST_CASE("listed_gang_fit: a gang with too many tasks, and one without steps, are not decided") {
  node_table nodes;
  nodes.add({.host = {.cpu_milli = 1'000'000}, .gpus = 1});
  std::vector<summary_bitset> sets(2, summary_bitset(1));
  for (summary_bitset& s : sets) s.set(0);
  topology_constraints gang;
  gang.groups = {{.tasks = 200, .host = {.cpu_milli = 1}}, {.tasks = 56, .host = {.cpu_milli = 1}}};
  CHECK(detail::listed_gang_fit(nodes, gang, sets, 1000)() == fit_verdict::fits);
  CHECK(detail::listed_gang_fit(nodes, gang, sets, 255)() == fit_verdict::budget_ended);
  gang.groups[1].tasks = 57;
  CHECK(detail::listed_gang_fit(nodes, gang, sets, 1000)() == fit_verdict::budget_ended);
}

}  // namespace
