// apiary/tests/gang/shared_gpu_fit_test.cpp - gangs on shared GPUs against trying every device.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/explain/proof_check.h>
#include <apiary/fgd/fragmentation_gradient.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/shared_capacity.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/shared_gpu_fit.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/metric/fragmentation.h>
#include <apiary/metric/task_mix.h>
#include <apiary/model/node_table.h>
#include <apiary/model/request.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <support/levels.h>
#include <support/naive_constraints.h>
#include <support/naive_task_requests.h>
#include <support/proof_mutations.h>
#include <support/scale.h>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

namespace {

// Racks of one to four nodes in all; nodes are level 1.
struct shared_cluster {
  explicit shared_cluster(rng& random) : cells(shape_of(random)) {
    for (std::uint32_t n = 0; n < cells.num_nodes(); ++n) {
      const node_id id = nodes.add({{2 + random.uniform(9), 2 + random.uniform(9)},
                                    1 + random.uniform(3),
                                    static_cast<gpu_model>(random.uniform(2))});
      for (std::uint32_t d = 0; d < nodes[id].gpus; ++d) {
        constexpr milli_gpu left[] = {0, 200, 300, 500, 700, 1000, 1000, 1000};
        nodes[id].gpu_left[d] = left[random.uniform(8)];
      }
      nodes[id].healthy = random.uniform(12) > 0;
    }
  }
  static test_cluster shape_of(rng& random) {
    std::vector<std::uint32_t> racks(1 + random.uniform(2));
    std::uint32_t count = 0;
    for (std::uint32_t& r : racks) count += r = 1 + random.uniform(2);
    return {ragged_tree({{static_cast<std::uint32_t>(racks.size())},
                         racks,
                         std::vector<std::uint32_t>(count, 1)}),
            std::vector<std::uint32_t>(count, 1000),
            {}};
  }

  test_cluster cells;
  node_table nodes;
};

topology_constraints random_shared_gang(rng& random) {
  topology_constraints gang;
  std::uint32_t left = 4;
  for (std::uint32_t m = 0; m < 3 && left > 0; ++m) {
    constrained_task_group group{1 + random.uniform(random.uniform(left) + 1),
                                 random.uniform(5) == 0 ? 0 : 1U};
    left -= group.tasks;
    if (group.gpus > 0 && random.uniform(3) > 0) {
      constexpr milli_gpu parts[] = {100, 200, 300, 500, 600};
      group.gpu_milli = parts[random.uniform(5)];
    } else if (group.gpus > 0) {
      group.gpus = 1 + random.uniform(2);
    }
    group.host = {random.uniform(3), random.uniform(3)};
    if (random.uniform(5) == 0) group.models = 1 + random.uniform(3);
    const level_t l = node + random.uniform(2);
    switch (random.uniform(6)) {
      case 0:
        group.spread = {{l, 1 + random.uniform(2)}};
        break;
      case 1:
        group.slices = {{l, group.tasks % 2 == 0 ? 2U : 1U}};
        break;
      case 2:
        if (m > 0 && group.tasks % gang.groups[0].tasks == 0) group.leader = 0;
        break;
      default:
        break;
    }
    if (m > 0 && random.uniform(5) == 0) {
      group = gang.groups[0];
      group.tasks = 1;
      left -= std::min(left, 1U);
    }
    gang.groups.push_back(group);
  }
  if (random.uniform(3) == 0) gang.required = node + random.uniform(2);
  if (random.uniform(3) == 0) gang.preferred = node + random.uniform(2);
  return gang;
}

task_mix small_mix(rng& random) {
  std::vector<std::pair<task_kind, std::uint32_t>> kinds;
  for (std::uint32_t i = 0; i < 3; ++i) {
    const bool whole = random.uniform(3) == 0;
    const auto part = static_cast<milli_gpu>(whole ? 1000 : 100 * (1 + random.uniform(9)));
    kinds.push_back({{.cpu_milli = 1 + random.uniform(3),
                      .gpus = whole ? 1 + random.uniform(2) : 1,
                      .gpu_milli = part,
                      .models = 1 + random.uniform(3)},
                     1 + random.uniform(9)});
  }
  return task_mix(kinds);
}

bool proved(const shared_cluster& cluster, const topology_constraints& gang,
            const infeasibility_proof& why) {
  return proof_check(cluster.cells.tree, node, cluster.nodes, gang)(why);
}

}  // namespace

TEST_CASE("shared GPUs: the least of all placements, or a proof that there is none") {
  const int rounds = scaled(20'000);
  int fitting = 0;
  int waiting = 0;
  int listed = 0;
  std::uint64_t mutations = 0;
  shared_gpu_fit<ragged_tree> fit;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    const shared_cluster cluster(random);
    const topology_constraints gang = random_shared_gang(random);
    const level_t top = cluster.cells.tree.num_levels();
    if (!gang.valid(node, top)) continue;
    const fragmentation_gradient gradient{fragmentation(small_mix(random))};
    const auto cost = [&](const node_state& before, const node_state& after) {
      return gradient.cost(before, after);
    };
    const auto found = fit(cluster.nodes, cluster.cells.tree, node, gang, cost);
    every_device naive(cluster.nodes, cluster.cells, gang, cost);
    const level_t last = std::min(gang.required, top);
    std::optional<std::int64_t> least;
    level_t l = std::min(gang.preferred, last);
    for (; l <= last && !least; ++l) least = naive(l);
    REQUIRE(found.verdict == (least ? fit_verdict::fits : fit_verdict::does_not_fit));
    if (least) {
      ++fitting;
      REQUIRE(found.level == l - 1);
      REQUIRE(found.is_least);
      REQUIRE(found.cost == *least);
      REQUIRE(naive.cost_of(found.placements, l - 1) == *least);
      continue;
    }
    ++waiting;
    REQUIRE(found.placements.empty());
    const infeasibility_proof why = fit.explain(gang);
    REQUIRE(proved(cluster, gang, why));
    REQUIRE(!why.text(gang, {"node", "rack", "block"}).empty());
    for (const infeasibility_proof::refusal& r : why.cells)
      listed += r.weighing == infeasibility_proof::listed ? 1 : 0;
    if (round % 8 == 0) {
      for_each_mutation(why, [&](const infeasibility_proof& other) {
        ++mutations;
        REQUIRE(!proved(cluster, gang, other));
      });
    }
  }
  MESSAGE(fitting, " fit, ", waiting, " wait, ", listed, " cells listed, ", mutations,
          " mutations refused");
  if (scale() >= 1) {
    CHECK(fitting > rounds / 5);
    CHECK(waiting > rounds / 5);
    CHECK(listed > 50);
    CHECK(mutations > 1000);
  }
}

TEST_CASE("what is missing is said in GPUs, tasks and parts of a GPU") {
  node_table nodes;
  for (int n = 0; n < 2; ++n) {
    const node_id id = nodes.add({{8000, 8000}, 2, 0});
    nodes[id].gpu_left[1] = 400;
  }
  const uniform_tree tree{2};
  const auto said = [&](std::vector<constrained_task_group> groups) {
    topology_constraints gang;
    gang.groups = std::move(groups);
    shared_gpu_fit<uniform_tree> fit;
    const auto cost = [](const node_state&, const node_state&) { return std::int64_t{0}; };
    if (fit(nodes, tree, 0, gang, cost).verdict == fit_verdict::fits) return std::string("fits");
    const infeasibility_proof why = fit.explain(gang);
    REQUIRE(proof_check(tree, 0, nodes, gang)(why));
    return why.text(gang, {"node"});
  };
  CHECK(said({{2, 1}, {.tasks = 2, .gpus = 1, .gpu_milli = 400}}) == "fits");
  CHECK(said({{3, 1}}) == "the gang needs capacity for 3 tasks of 1 GPU; the cluster has 2");
  CHECK(said({{.tasks = 3, .gpus = 1, .gpu_milli = 600}}) ==
        "the gang needs capacity for 3 tasks of 0.6 GPUs; the cluster has 2");
  CHECK(
      said({{2, 1}, {.tasks = 3, .gpus = 1, .gpu_milli = 300}}) ==
      "the gang needs 2.9 free GPUs for its 2 tasks of 1 GPU and 3 tasks of 0.3 GPUs; the cluster "
      "has 2.6 that the tasks can use");
  CHECK(said({{.tasks = 9, .gpus = 0, .host = {2000, 0}}}) ==
        "the gang needs capacity for 9 tasks of 2 CPUs; the cluster has 8");
}

TEST_CASE("shared GPUs: what a node holds of task groups of very many tasks") {
  node_table nodes;
  nodes.add({{8, 8}, 4, 0});
  const auto cost = [](const node_state&, const node_state&) { return std::int64_t{0}; };
  topology_constraints gang;
  for (std::uint32_t m = 0; m < 5; ++m)
    gang.groups.push_back({.tasks = 65'535, .gpus = 1, .host = {m, 0}});
  colocated_groups groups;
  groups.assign(gang, 0, 1);
  REQUIRE(groups.size() == 5);
  shared_capacity capacities;
  REQUIRE(capacities.assign(nodes, groups, 0, ~std::uint64_t{0}, cost));
  using counts = std::vector<std::uint32_t>;
  CHECK(capacities(0, counts{0, 1, 1, 1, 0}).has_value());
  CHECK(capacities(0, counts{4, 0, 0, 0, 0}).has_value());
  CHECK(!capacities(0, counts{5, 0, 0, 0, 0}).has_value());
  CHECK(!capacities(0, counts{0, 0, 0, 1, 2}).has_value());  // CPU
  CHECK(!capacities(0, counts{65'535, 0, 0, 0, 0}).has_value());
  // Tasks without GPUs have no such bound: more vectors than can be numbered.
  for (constrained_task_group& m : gang.groups) m.gpus = 0;
  groups.assign(gang, 0, 1);
  CHECK(!capacities.assign(nodes, groups, 0, ~std::uint64_t{0}, cost));
}

TEST_CASE("shared GPUs: the budget ends without an answer, and no no is wrong") {
  node_table nodes;
  for (std::uint32_t n = 0; n < 4; ++n) {
    const node_id id = nodes.add({{800'000, 800'000}, 16, 0});
    for (std::uint32_t d = 0; d < 16; ++d)
      nodes[id].gpu_left[d] = static_cast<milli_gpu>(500 + 31 * d);
  }
  const uniform_tree tree{4};
  topology_constraints gang;
  for (std::uint32_t m = 0; m < 8; ++m) {
    const auto part = static_cast<milli_gpu>(110 + 37 * m);
    gang.groups.push_back({.tasks = 9, .gpus = 1, .gpu_milli = part});
  }
  const auto cost = [](const node_state&, const node_state&) { return std::int64_t{0}; };
  for (const std::uint64_t budget : {std::uint64_t{0}, std::uint64_t{10'000}}) {
    shared_gpu_fit<uniform_tree> fit(budget);
    // One task group after another finds a placement, where no constraint forbids that.
    const auto greedily = fit(nodes, tree, 0, gang, cost);
    CHECK((greedily.verdict == fit_verdict::fits) == (budget > 0));
    topology_constraints spread = gang;
    spread.groups[0].spread = {{0, 8}};
    const auto found = fit(nodes, tree, 0, spread, cost);
    CHECK(found.verdict == fit_verdict::budget_ended);
    CHECK(found.placements.empty());
  }
  // Tasks led that no node could hold are no work.
  gang.groups = {{.tasks = 1, .gpus = 0},
                 {.tasks = 4'000'000'000, .gpus = 1, .leader = 0, .gpu_milli = 1}};
  shared_gpu_fit<uniform_tree> fit;
  REQUIRE(fit(nodes, tree, 0, gang, cost).verdict == fit_verdict::does_not_fit);
  CHECK(proof_check(tree, 0, nodes, gang)(fit.explain(gang)));
}

namespace {

std::int64_t any_cost(const node_state& /*before*/, const node_state& after) {
  return after.total_gpu_left();
}

// Racks of so many nodes of eight whole GPUs, `free` of them free on each node.
node_table racks_of(std::uint32_t nodes, std::uint32_t free) {
  node_table table;
  for (std::uint32_t n = 0; n < nodes; ++n) {
    const node_id id = table.add({{96'000, 512'000}, 8, 0});
    for (std::uint32_t d = free; d < 8; ++d) table[id].gpu_left[d] = 0;
  }
  return table;
}

// So many task groups of so many tasks of a GPU, each with another number of cores.
topology_constraints many_kinds(std::uint32_t num_groups, std::uint32_t tasks) {
  topology_constraints gang;
  for (std::uint32_t m = 0; m < num_groups; ++m)
    gang.groups.push_back({.tasks = tasks, .gpus = 1, .host = {1000 * (m + 1), 1000}});
  gang.required = 1;
  return gang;
}

// Whether each task has a place that can be taken with those before it, all in one rack.
bool is_taken_whole(node_table nodes, const uniform_tree& tree, const topology_constraints& gang,
                    std::span<const task_placement> places) {
  std::vector<std::uint32_t> missing;
  for (const constrained_task_group& m : gang.groups) missing.push_back(m.tasks);
  for (const task_placement& p : places) {
    const task_request task = gang.groups[p.group].task();
    if (!nodes.can_place(task, p.where) || missing[p.group]-- == 0) return false;
    nodes.place(task, p.where);
    const auto rack_of = [&](node_id n) { return tree.parent(tree.cells(0)[n.value], 0); };
    if (rack_of(p.where.node) != rack_of(places[0].where.node)) return false;
  }
  return std::all_of(missing.begin(), missing.end(), [](std::uint32_t n) { return n == 0; });
}

}  // namespace

TEST_CASE("gangs of many kinds and tasks: what fits easily is placed, though not all is compared") {
  const uniform_tree tree{2, 50};
  for (const auto& size : {std::pair{4U, 64U}, std::pair{5U, 64U}, std::pair{8U, 40U}}) {
    const std::uint32_t num_groups = size.first;
    const std::uint32_t tasks = size.second;
    CAPTURE(num_groups);
    const node_table nodes = racks_of(100, 8);
    const topology_constraints gang = many_kinds(num_groups, tasks);
    shared_gpu_fit<uniform_tree> fit;
    const auto found = fit(nodes, tree, 0, gang, any_cost);
    REQUIRE(found.verdict == fit_verdict::fits);
    CHECK(is_taken_whole(nodes, tree, gang, found.placements));
    CHECK(!found.is_least);
  }
}

TEST_CASE("gangs of many kinds and tasks: one kind, or the GPUs, prove a no") {
  const uniform_tree tree{2, 50};
  const auto said = [&](const node_table& nodes, const topology_constraints& gang) {
    shared_gpu_fit<uniform_tree> fit;
    REQUIRE(fit(nodes, tree, 0, gang, any_cost).verdict == fit_verdict::does_not_fit);
    const infeasibility_proof why = fit.explain(gang);
    REQUIRE(proof_check(tree, 0, nodes, gang)(why));
    return why.text(gang, {"node", "rack"});
  };
  CHECK(said(racks_of(100, 0), many_kinds(5, 32)).find("32 tasks of 1 GPU") != std::string::npos);
  // Enough for each kind, and not for all.
  CHECK(said(racks_of(100, 4), many_kinds(4, 64)) ==
        "the gang needs 256 free GPUs in one rack for its 256 tasks of 1 GPU; rack 0 has the most "
        "that the tasks can use: 200");
}

TEST_CASE("max_units: no node holds more of a kind; as many where that is said to be exact") {
  std::size_t exact = 0;
  for (std::uint64_t seed = 0; seed < scaled(3'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const shared_cluster cluster(random);
    const topology_constraints gang = random_shared_gang(random);
    if (!gang.valid(node, cluster.cells.tree.num_levels())) continue;
    colocated_groups groups;
    groups.assign(gang, node, cluster.cells.tree.num_levels());
    shared_capacity capacities;
    REQUIRE(capacities.assign(cluster.nodes, groups, node, 1'000'000, any_cost));
    for (std::uint32_t u = 0; u < groups.size(); ++u) {
      for (const node_id n : cluster.nodes.ids()) {
        std::vector<std::uint32_t> counts(groups.size(), 0);
        const std::uint32_t most = groups.at(u, node).most;
        while (counts[u] < most) {
          ++counts[u];
          if (capacities(capacities.classes()[n.value], counts)) continue;
          --counts[u];
          break;
        }
        const std::uint32_t said = std::min(most, max_units(cluster.nodes[n], groups[u]));
        REQUIRE(said >= counts[u]);
        if (!is_counted_exactly(groups[u])) continue;
        REQUIRE(said == counts[u]);
        exact += said > 0 ? 1U : 0U;
      }
    }
  }
  CHECK(exact > 0);
}

TEST_CASE("shared_gpu_fit: a large gang on shared GPUs is placed on real devices, in few steps") {
  const auto no_cost = [](const node_state&, const node_state&) -> std::int64_t { return 0; };
  rng random(61);
  std::uint32_t placed = 0;
  for (std::uint32_t round = 0; round < scaled(60U); ++round) {
    node_table nodes;
    const std::uint32_t count = round == 0 ? 100 : 8 + random.uniform(56);
    for (std::uint32_t n = 0; n < count; ++n)
      nodes.add({.host = {1'000'000, 1'000'000}, .gpus = round == 0 ? 16 : 4 + random.uniform(13)});
    const uniform_tree tree{count};
    topology_constraints gang;
    gang.groups = {{.tasks = 30, .gpus = 1, .gpu_milli = 250},
                   {.tasks = 30, .gpus = 1, .gpu_milli = 200},
                   {.tasks = 30, .gpus = 1, .gpu_milli = 150}};
    if (round > 0) {
      gang.groups.push_back({.tasks = 1 + random.uniform(9), .gpus = 1 + random.uniform(4)});
      gang.groups.push_back({.tasks = 1 + random.uniform(9), .host = {1'000, 2}});
      for (constrained_task_group& m : gang.groups) m.host.cpu_milli += random.uniform(30'000);
    }
    shared_gpu_fit<uniform_tree> fit(10'000);
    const auto found = fit(nodes, tree, 0, gang, no_cost);
    REQUIRE(found.steps <= 10'000);
    if (round == 0) REQUIRE(found.verdict == fit_verdict::fits);
    if (found.verdict != fit_verdict::fits) continue;
    ++placed;
    CHECK_FALSE(found.is_least);
    std::vector<std::uint32_t> tasks(gang.groups.size(), 0);
    for (const task_placement& p : found.placements) {
      const task_request task = gang.groups[p.group].task();
      REQUIRE(nodes.can_place(task, p.where));
      nodes.place(task, p.where);
      ++tasks[p.group];
    }
    for (std::size_t m = 0; m < tasks.size(); ++m) REQUIRE(tasks[m] == gang.groups[m].tasks);
    REQUIRE(std::is_sorted(
        found.placements.begin(), found.placements.end(), [](const auto& a, const auto& b) {
          return a.group != b.group ? a.group < b.group : a.where.node < b.where.node;
        }));
  }
  CHECK(placed > scaled(60U) / 2);
}

TEST_CASE("shared_gpu_fit: a large gang goes to one cell of the lowest level that takes it") {
  const auto gpus_used = [](const node_state& before, const node_state& after) -> std::int64_t {
    return before.total_gpu_left() - after.total_gpu_left();
  };
  node_table nodes;
  for (std::uint32_t n = 0; n < 8; ++n)
    nodes.add({.host = {100'000, 100'000}, .gpus = n < 4 ? 4U : 16U});
  const uniform_tree tree{2, 4};
  topology_constraints gang;
  gang.groups = {{.tasks = 40, .gpus = 1, .gpu_milli = 500},
                 {.tasks = 40, .gpus = 1, .gpu_milli = 250},
                 {.tasks = 8, .gpus = 2}};
  gang.preferred = 1;
  shared_gpu_fit<uniform_tree> fit(10'000);
  const auto found = fit(nodes, tree, 0, gang, gpus_used);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.level == 1);
  CHECK(found.cell == 1);
  CHECK(found.is_lowest);
  CHECK(found.cost == 46'000);
  for (const task_placement& p : found.placements) CHECK(p.where.node.value >= 4);
  // With slices it is left to the search, which has too few steps.
  gang.groups[0].slices = {{1, 2}};
  const auto sliced = fit(nodes, tree, 0, gang, gpus_used);
  CHECK(sliced.verdict == fit_verdict::budget_ended);
  CHECK(sliced.steps <= 10'000);
}
