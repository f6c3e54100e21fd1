// apiary/tests/explain/unblock_search_test.cpp - nodes that let a gang fit, each of them needed.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/alloc/journal.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/explain/unblock_search.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <support/levels.h>
#include <support/naive_constraints.h>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

bool fits_with(const ruled_world& world, const std::vector<std::uint32_t>& free,
               const topology_constraints& gang) {
  const ruled_world other{world.tree, free, world.hosts};
  return node_after_node(other, gang)(std::min(gang.required, world.tree.num_levels()));
}

// Up to three task groups: all constraints, CPU and memory, and tasks without GPUs.
topology_constraints random_waiting(rng& random, bool hosted) {
  topology_constraints gang;
  for (std::uint32_t m = 1 + random.uniform(3); m-- > 0;) {
    constrained_task_group& group = gang.groups.emplace_back();
    group.tasks = 1 + random.uniform(3);
    group.gpus = random.uniform(8) == 0 ? 0 : 1 + random.uniform(4);
    if (hosted && random.uniform(2) == 0) group.host = {random.uniform(3), random.uniform(3)};
    if (random.uniform(3) == 0) group.spread = {{node + random.uniform(2), 1 + random.uniform(2)}};
    if (random.uniform(6) == 0) group.slices = {{node + random.uniform(2), group.tasks}};
  }
  if (gang.groups.size() > 1 && random.uniform(4) == 0) {
    gang.groups[1].tasks = gang.groups[0].tasks;
    gang.groups[1].slices.clear();
    gang.groups[1].leader = 0;
  }
  if (random.uniform(6) > 0) gang.required = random.uniform(5) == 0 ? node : rack;
  return gang;
}

struct unblock_counts {
  int found = 0;
  int better = 0;  // in one more cell
  std::uint64_t freed = 0;
  std::uint64_t least_freed = 0;
};

template <CellTree Tree>
void check_unblock(const Tree& tree, rng& random, unblock_counts& seen) {
  ruled_world world{ragged_copy(tree), {}, {}};
  capacity_index<Tree> capacities(tree, node, 4);
  std::vector<std::uint32_t> capacity;
  const bool hosted = random.uniform(3) == 0;
  const bool equal = random.uniform(3) == 0;
  for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n) {
    capacity.push_back(equal ? 4 : random.uniform(5));
    world.free.push_back(random.uniform(capacity[n] + 1));
    capacities.set(n, world.free[n]);
    if (hosted) world.hosts.push_back({random.uniform(5), random.uniform(5)});
  }
  const topology_constraints gang = random_waiting(random, hosted);
  REQUIRE(gang.valid(node, capacities.top()));
  const bool fits_now = fits_with(world, world.free, gang);
  std::uint64_t leaves_before = ~std::uint64_t{0};
  const std::uint32_t cells = capacities.num_cells(std::min(gang.required, capacities.top()));
  for (std::uint32_t tried = 1; tried <= cells + 1; ++tried) {
    CAPTURE(tried);
    unblock_search<Tree> search(tried);
    const auto found = search(capacities, gang, capacity, world.hosts);
    const bool is = found.verdict == fit_verdict::fits;
    for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n)
      REQUIRE(capacities.free(n) == world.free[n]);
    REQUIRE(is == fits_with(world, capacity, gang));
    if (!is) continue;
    REQUIRE(found.nodes.empty() == fits_now);
    std::vector<std::uint32_t> after = world.free;
    std::uint64_t leaves = 0;
    for (const std::uint32_t n : found.nodes) {
      REQUIRE(after[n] < capacity[n]);
      REQUIRE(world.cell(n, std::min(gang.required, capacities.top())) == found.cell);
      leaves += capacity[n] - world.free[n];
      after[n] = capacity[n];
    }
    REQUIRE(leaves == found.gpus);
    REQUIRE(fits_with(world, after, gang));
    for (const std::uint32_t n : found.nodes) {
      after[n] = world.free[n];
      REQUIRE(!fits_with(world, after, gang));
      after[n] = capacity[n];
    }
    REQUIRE(leaves <= leaves_before);
    seen.better += leaves < leaves_before && leaves_before < ~std::uint64_t{0} ? 1 : 0;
    leaves_before = leaves;
  }
  if (fits_now || leaves_before == ~std::uint64_t{0}) return;
  // The least over all sets of nodes.
  std::uint64_t least = leaves_before;
  for (std::uint32_t set = 0; set < 1U << capacities.num_nodes(); ++set) {
    std::vector<std::uint32_t> other = world.free;
    std::uint64_t leaves = 0;
    for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n) {
      if ((set >> n & 1) == 0) continue;
      leaves += capacity[n] - world.free[n];
      other[n] = capacity[n];
    }
    if (leaves < least && fits_with(world, other, gang)) least = leaves;
  }
  ++seen.found;
  seen.freed += leaves_before;
  seen.least_freed += least;
}

}  // namespace

TEST_CASE("freeing the nodes lets the gang fit, leaving one of them out does not") {
  const int rounds = scaled(6'000);
  unblock_counts seen;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    if (round % 2 == 0) {
      check_unblock(uniform_tree{2, 3, 4}, random, seen);
      continue;
    }
    std::vector<std::uint32_t> racks(2 + random.uniform(3));
    std::uint32_t nodes = 0;
    for (std::uint32_t& r : racks) nodes += r = 1 + random.uniform(2);
    const auto num_racks = static_cast<std::uint32_t>(racks.size());
    const ragged_tree tree({{num_racks}, racks, std::vector<std::uint32_t>(nodes, 4)});
    check_unblock(tree, random, seen);
  }
  MESSAGE(seen.found, " answers, ", seen.better, " better in one more, ", seen.freed,
          " GPUs freed, at least ", seen.least_freed);
  CHECK(seen.found > 0);
  if (scale() >= 1) {
    CHECK(seen.found > 300);
    CHECK(seen.better > 50);
    CHECK(seen.freed * 100 < seen.least_freed * 120);
  }
}

TEST_CASE("a placement takes its GPUs until it is rolled back") {
  capacity_index<uniform_tree> capacities(uniform_tree{2, 3, 4}, node, 4);
  for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n) capacities.set(n, 4);
  topology_constraints gang;
  gang.groups = {{2, 3}, {2, 1}};
  gang.groups[1].leader = 0;
  topology_fit<uniform_tree> fit;
  const auto found = fit(capacities, gang);
  REQUIRE(found.verdict == fit_verdict::fits);
  journal log;
  {
    transaction tx(log);
    journaled::place_gang<uniform_tree>(tx, capacities, gang, found.portions);
    CHECK(capacities.slots(capacities.top(), 1)[0] == 16);
    CHECK(capacities.histogram(capacities.top(), 0)[0] == 2);
  }
  CHECK(capacities.slots(capacities.top(), 1)[0] == 24);
}

TEST_CASE("unblock_search: the answer in words, one node or several") {
  const std::vector<std::uint32_t> one = {9};
  CHECK((unblock_search<uniform_tree>::result{.nodes = one, .gpus = 8}.text()) ==
        "it would fit if node 9 were free (8 more GPUs)");
  const std::vector<std::uint32_t> three = {1, 2, 9};
  CHECK((unblock_search<uniform_tree>::result{.nodes = three, .gpus = 1}.text()) ==
        "it would fit if nodes 1, 2 and 9 were free (1 more GPU)");
}
