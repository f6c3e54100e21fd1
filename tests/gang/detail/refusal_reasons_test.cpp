// apiary/tests/gang/detail/refusal_reasons_test.cpp - a reason for every cell, each checked.
// SPDX-License-Identifier: MIT
#include "support/levels.h"
#include "support/naive_cells.h"
#include "support/scale.h"
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/refusals.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>
#include <apiary/topology/ragged_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

namespace {

// Weights of each kind, in the order in which the first of equally good ones is taken: places of a
// kind, then GPUs, then slots of each size that a node may have free, the largest first.
std::vector<naive_cells::counts> refusal_weights(const naive_cells& naive, std::uint32_t most) {
  const std::size_t kinds = naive.kinds().size();
  std::vector<naive_cells::counts> all;
  for (std::size_t k = 0; k < kinds; ++k) {
    all.emplace_back(kinds, 0);
    all.back()[k] = 1;
  }
  if (kinds < 2) return all;
  for (std::uint32_t i = 0; i < most; ++i) {
    const std::uint32_t size = i == 0 ? 1 : most + 1 - i;
    naive_cells::counts& slots = all.emplace_back();
    for (const naive_kind& k : naive.kinds())
      slots.push_back(static_cast<std::uint32_t>(k.leaves / size));
  }
  return all;
}

// Few large tasks and some small ones, which may not fit a rack for many reasons.
topology_constraints large_and_small_tasks(rng& random) {
  topology_constraints gang;
  gang.groups = {{1 + random.uniform(2), 7}, {3 + random.uniform(5), 1 + random.uniform(2)}};
  if (random.uniform(2) == 0) gang.groups.push_back({1 + random.uniform(2), 3});
  if (random.uniform(3) == 0) gang.groups[1].spread = {{node, 1 + random.uniform(2)}};
  if (random.uniform(3) == 0) gang.groups[1].host = {random.uniform(3), random.uniform(3)};
  return gang;
}
// Three racks of four nodes of eight, some racks with a few whole nodes, others with many parts.
test_cluster whole_nodes_and_parts(rng& random) {
  test_cluster cluster{
      ragged_tree({{1}, {3}, {4, 4, 4}, std::vector<std::uint32_t>(12, 8)}), {}, {}};
  for (std::uint32_t r = 0; r < 3; ++r) {
    const std::uint32_t whole = random.uniform(3);
    for (std::uint32_t n = 0; n < 4; ++n)
      cluster.free.push_back(n < whole ? 8 : random.uniform(whole > 0 ? 3 : 7));
  }
  if (random.uniform(3) == 0)
    for (std::uint32_t n = 0; n < 12; ++n) cluster.hosts.push_back({random.uniform(7), 6});
  return cluster;
}

}  // namespace

TEST_CASE("explain_refusal: the weighing that refuses most of those left, until none refuses any") {
  std::size_t weighed = 0;
  std::size_t listed_cells = 0;
  std::size_t several = 0;
  for (std::uint64_t seed = 0; seed < scaled(2000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    const bool constrained = random.uniform(3) == 0;
    const std::uint32_t most = constrained ? 1 + random.uniform(6) : 8;
    const test_cluster cluster =
        constrained ? random_small_cells(random, most) : whole_nodes_and_parts(random);
    const topology_constraints gang =
        constrained ? random_small_gang(random, most) : large_and_small_tasks(random);
    const naive_cells naive(cluster, gang);
    const auto capacities = capacities_of_cells(cluster, most);
    colocated_groups groups;
    groups.assign(gang, node, capacities.top());
    const level_t l = constrained ? node + random.uniform(capacities.top()) : level_t{rack};
    const naive_cells::counts tasks = naive.tasks();
    if (naive.kinds().empty()) continue;
    bool fits = false;
    for (std::uint32_t c = 0; c < naive.num_cells(l); ++c)
      fits = fits || naive.held(l, c).contains(tasks);
    if (fits) continue;
    // Something is listed of every cell that no weighing refuses, and of others as well.
    std::vector<naive_cells::counts> weights = refusal_weights(naive, most);
    // A search may have found other weights.
    cell_weighings<ragged_tree> found;
    found.begin(capacities, groups);
    if (random.uniform(2) == 0) {
      naive_cells::counts& w = weights.emplace_back();
      for (std::size_t u = 0; u < groups.size(); ++u)
        w.push_back(groups[u].gpus * groups[u].gpus % 7);
      found.add(w);
    }
    const auto refuses = [&](const naive_cells::counts& w, std::uint32_t c) {
      return naive.max_weight(w, l, c) < naive_cells::weight(w, tasks);
    };
    std::vector<infeasibility_proof::refusal> listed;
    std::vector<bool> left(naive.num_cells(l), true);
    for (std::uint32_t c = 0; c < left.size(); ++c) {
      bool refused = false;
      for (const naive_cells::counts& w : weights) refused = refused || refuses(w, c);
      if (refused && random.uniform(3) > 0) continue;
      listed.push_back(
          {c, infeasibility_proof::listed, 0, naive_cells::counts(tasks.size(), c + 1)});
    }
    std::reverse(listed.begin(), listed.end());
    const infeasibility_proof why =
        explain_refusal(capacities, groups, cluster.hosts, l, found, listed);

    infeasibility_proof expected;
    expected.level = l;
    expected.node_level = node;
    expected.node_gpus = most;
    expected.tasks = tasks;
    expected.gaps = why.gaps;  // proof_check verifies them
    for (const naive_kind& k : naive.kinds()) expected.groups.push_back(k.groups[0]);
    for (std::uint32_t c = 0; c < left.size(); ++c)
      expected.cells.push_back(
          {c, infeasibility_proof::listed, 0, naive_cells::counts(tasks.size(), c + 1)});
    while (true) {
      const naive_cells::counts* best = nullptr;
      std::ptrdiff_t most_refused = 0;
      for (const naive_cells::counts& w : weights) {
        std::ptrdiff_t refused = 0;
        for (std::uint32_t c = 0; c < left.size(); ++c)
          if (left[c] && refuses(w, c)) ++refused;
        if (refused > most_refused) best = &w;
        most_refused = std::max(most_refused, refused);
      }
      if (best == nullptr) break;
      const auto index = static_cast<std::uint32_t>(expected.weighings.size());
      expected.weighings.push_back({*best, naive_cells::weight(*best, tasks)});
      for (std::uint32_t c = 0; c < left.size(); ++c) {
        if (!left[c] || !refuses(*best, c)) continue;
        left[c] = false;
        expected.cells[c] = {c, index, naive.max_weight(*best, l, c), {}};
        ++weighed;
      }
    }
    REQUIRE(why == expected);
    listed_cells += static_cast<std::size_t>(std::count(left.begin(), left.end(), true));
    several += why.weighings.size() > 1 ? 1U : 0U;
  }
  MESSAGE(weighed, " cells weighed, ", listed_cells, " listed, ", several, " with several reasons");
  CHECK(weighed > 0);
  if (scale() < 1) return;
  CHECK(listed_cells > 0);
  CHECK(several > 10);
}

// 40 groups. The first rack is full; the second one has too little CPU for a task of the last group.
TEST_CASE("weigh_cells: of many groups only those that refuse a cell that nothing else does") {
  const test_cluster cluster{
      ragged_tree({{2}, {10, 10}, std::vector<std::uint32_t>(20, 8)}), {}, {}};
  capacity_index<ragged_tree> capacities(cluster.tree, node, 8);
  std::vector<resources> hosts(20, resources{64'000, 0});
  for (std::uint32_t n = 10; n < 20; ++n) capacities.set(n, 8);
  for (std::uint32_t n = 0; n < 10; ++n) capacities.set(n, 0);
  topology_constraints gang;
  for (std::uint32_t i = 0; i < 40; ++i)
    gang.groups.push_back({.tasks = 1, .gpus = 1, .host = {i < 39 ? 1'000 + i : 65'000, 0}});
  colocated_groups groups;
  groups.assign(gang, node, capacities.top());
  REQUIRE(groups.size() == 40);
  cell_weighings<ragged_tree> found;
  found.begin(capacities, groups);
  const auto tried = weigh_cells(capacities, groups, hosts, rack, found, {0, 0});
  std::size_t of_one_group = 0;
  for (const weighed_cells& w : tried) {
    std::size_t weighted = 0;
    for (const std::uint32_t weight : w.what.weights) weighted += weight > 0 ? 1U : 0U;
    if (weighted != 1) continue;
    ++of_one_group;
    CHECK(w.what.weights[39] == 1);
    CHECK(w.what.needed == 1);
    CHECK(w.most == detail::lean_vector<std::uint64_t>{0, 0});
  }
  CHECK(of_one_group == 1);
}
