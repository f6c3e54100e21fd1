// apiary/tests/explain/unblock_search_test.cpp - nodes that let a gang fit, each of them needed.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/alloc/journal.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/explain/unblock_search.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/model/resources.h>
#include <apiary/topology/cell_names.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <support/levels.h>
#include <support/naive_constraints.h>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary_test;

namespace {

bool fits_with(const test_cluster& cluster, const std::vector<std::uint32_t>& free,
               const topology_constraints& gang) {
  const test_cluster other{cluster.tree, free, cluster.hosts};
  return node_after_node(other, gang)(std::min(gang.required, cluster.tree.num_levels()));
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
  int proved = 0;
  int worse = 0;
  std::uint64_t freed = 0;
  std::uint64_t least_freed = 0;
};

// The fewest GPUs in use on a set of nodes with which the gang fits, over all sets.
std::uint64_t least_to_free(const test_cluster& cluster, const std::vector<std::uint32_t>& capacity,
                            const topology_constraints& gang) {
  std::uint64_t least = ~std::uint64_t{0};
  for (std::uint32_t set = 0; set < 1U << cluster.num_nodes(); ++set) {
    std::vector<std::uint32_t> other = cluster.free;
    std::uint64_t gpus = 0;
    for (std::uint32_t n = 0; n < cluster.num_nodes(); ++n) {
      if ((set >> n & 1) == 0) continue;
      gpus += capacity[n] - cluster.free[n];
      other[n] = capacity[n];
    }
    if (gpus < least && fits_with(cluster, other, gang)) least = gpus;
  }
  return least;
}

// seen: for each budget.
template <CellTree Tree>
void check_unblock(const Tree& tree, rng& random, const std::vector<std::uint64_t>& budgets,
                   std::vector<unblock_counts>& seen) {
  test_cluster cluster{ragged_copy(tree), {}, {}};
  capacity_index<Tree> capacities(tree, node, 4);
  std::vector<std::uint32_t> capacity;
  const bool hosted = random.uniform(3) == 0;
  const bool equal = random.uniform(3) == 0;
  for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n) {
    capacity.push_back(equal ? 4 : random.uniform(5));
    cluster.free.push_back(random.uniform(capacity[n] + 1));
    capacities.set(n, cluster.free[n]);
    if (hosted) cluster.hosts.push_back({random.uniform(5), random.uniform(5)});
  }
  const topology_constraints gang = random_waiting(random, hosted);
  const level_t level = std::min(gang.required, capacities.top());
  REQUIRE(gang.valid(node, capacities.top()));
  const bool fits_now = fits_with(cluster, cluster.free, gang);
  const bool fits_free = fits_with(cluster, capacity, gang);
  const std::uint64_t least = fits_now || !fits_free ? 0 : least_to_free(cluster, capacity, gang);
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    CAPTURE(budgets[b]);
    unblock_search<Tree> search(budgets[b]);
    const unblock_set found = search(capacities, gang, capacity, cluster.hosts);
    REQUIRE(found.steps <= budgets[b]);
    for (std::uint32_t n = 0; n < capacities.num_nodes(); ++n)
      REQUIRE(capacities.free(n) == cluster.free[n]);
    if (found.verdict == fit_verdict::budget_ended) continue;
    REQUIRE((found.verdict == fit_verdict::fits) == fits_free);
    if (!fits_free) continue;
    if (found.all_needed) REQUIRE(found.nodes.empty() == fits_now);
    std::vector<std::uint32_t> after = cluster.free;
    std::uint64_t gpus = 0;
    for (const std::uint32_t n : found.nodes) {
      REQUIRE(after[n] < capacity[n]);
      REQUIRE(cluster.cell(n, level) == found.cell);
      gpus += capacity[n] - cluster.free[n];
      after[n] = capacity[n];
    }
    REQUIRE(gpus == found.gpus);
    REQUIRE(fits_with(cluster, after, gang));
    for (const std::uint32_t n : found.nodes) {
      after[n] = cluster.free[n];
      if (found.all_needed) REQUIRE(!fits_with(cluster, after, gang));
      after[n] = capacity[n];
    }
    REQUIRE(gpus >= least);
    if (found.is_least) REQUIRE(gpus == least);
    if (fits_now) continue;
    ++seen[b].found;
    seen[b].proved += found.is_least ? 1 : 0;
    seen[b].worse += gpus > least ? 1 : 0;
    seen[b].freed += gpus;
    seen[b].least_freed += least;
  }
}

}  // namespace

TEST_CASE("the nodes with the fewest GPUs in use; leaving one of them out does not suffice") {
  const int rounds = scaled(6'000);
  const std::vector<std::uint64_t> budgets = {1'000'000, 600, 100};
  std::vector<unblock_counts> seen(budgets.size());
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    rng random(static_cast<std::uint64_t>(round));
    if (round % 2 == 0) {
      check_unblock(uniform_tree{2, 3, 4}, random, budgets, seen);
      continue;
    }
    std::vector<std::uint32_t> racks(2 + random.uniform(3));
    std::uint32_t nodes = 0;
    for (std::uint32_t& r : racks) nodes += r = 1 + random.uniform(2);
    const auto num_racks = static_cast<std::uint32_t>(racks.size());
    const ragged_tree tree({{num_racks}, racks, std::vector<std::uint32_t>(nodes, 4)});
    check_unblock(tree, random, budgets, seen);
  }
  for (std::size_t b = 0; b < budgets.size(); ++b)
    MESSAGE("budget ", budgets[b], ": ", seen[b].found, " answers, ", seen[b].proved, " proved, ",
            seen[b].worse, " worse, ", seen[b].freed, " GPUs freed, at least ",
            seen[b].least_freed);
  CHECK(seen[0].found > 0);
  CHECK(seen[0].proved == seen[0].found);
  if (scale() >= 1) {
    CHECK(seen[0].found > 300);
    CHECK(seen[1].found > seen[1].proved);
    for (const unblock_counts& counts : seen) CHECK(counts.freed * 100 <= counts.least_freed * 120);
  }
}

// Nodes of six GPUs with 0, 0 and 4 free, and six tasks of one: the last node lacks least.
TEST_CASE("unblock_search: the node that lacks least is named") {
  capacity_index<uniform_tree> capacities(uniform_tree{1, 3, 6}, node, 6);
  capacities.set(2, 4);
  topology_constraints gang;
  gang.groups = {{.tasks = 6, .gpus = 1}};
  const std::vector<std::uint32_t> capacity(3, 6);
  unblock_search<uniform_tree> search;
  const unblock_set found = search(capacities, gang, capacity);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(std::vector<std::uint32_t>(found.nodes.begin(), found.nodes.end()) ==
        std::vector<std::uint32_t>{2});
  CHECK(found.gpus == 2);
  CHECK(found.is_least);
}

// In every second rack each node has six of eight GPUs free; in the others every second node is
// free, and the others are full.
TEST_CASE("unblock_search: large gangs within the budget, close to the least") {
  capacity_index<uniform_tree> capacities(uniform_tree{64, 8, 8}, node, 8);
  const std::vector<std::uint32_t> capacity(512, 8);
  std::vector<resources> hosts;
  for (std::uint32_t n = 0; n < 512; ++n) {
    capacities.set(n, n / 8 % 2 == 0 ? 6 : n % 2 == 0 ? 8 : 0);
    hosts.push_back({64'000, 0});
  }
  topology_constraints gang;
  gang.groups = {{.tasks = 256, .gpus = 8, .slices = {{rack, 8}}}};
  for (const bool hosted : {false, true}) {
    CAPTURE(hosted);
    gang.groups[0].host.cpu_milli = hosted ? 1'000 : 0;
    for (const std::uint64_t budget : {20'000U, 1'000'000U}) {
      CAPTURE(budget);
      unblock_search<uniform_tree> search(budget);
      const unblock_set found =
          search(capacities, gang, capacity,
                 hosted ? std::span<const resources>(hosts) : std::span<const resources>());
      CHECK(found.steps <= budget);
      REQUIRE(found.verdict == fit_verdict::fits);
      CHECK(found.gpus == 32U * 16);  // 32 racks of eight nodes that lack two GPUs each
      CHECK(found.is_least);
    }
  }
}

TEST_CASE("unblock_search: tens of thousands of whole nodes with CPU") {
  capacity_index<uniform_tree> capacities(uniform_tree{2'730, 16, 8}, node, 8);
  const std::vector<std::uint32_t> capacity(43'680, 8);
  std::vector<resources> hosts;
  std::uint32_t in_use = 0;
  for (std::uint32_t n = 0; n < 43'680; ++n) {
    const std::uint32_t used = n % 5 == 0 ? 1 + n % 8 : 0;
    capacities.set(n, 8 - used);
    hosts.push_back({96'000 - 8'000 * used, 0});
    in_use += used;
  }
  const std::vector<resources> whole(43'680, resources{96'000, 0});
  topology_constraints gang;
  gang.groups = {{.tasks = 43'680, .gpus = 8, .host = {96'000, 0}}};
  unblock_search<uniform_tree> search(1'000'000);
  const unblock_set found = search(capacities, gang, capacity, hosts, whole);
  CHECK(found.steps <= 1'000'000);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.nodes.size() == 43'680 / 5);
  CHECK(found.gpus == in_use);
}

// Tasks without GPUs of so many kinds that the tables of the exact search exceed its budget: the victim
// search proves the least set.
topology_constraints with_many_small_groups(constrained_task_group first) {
  topology_constraints gang;
  gang.groups.push_back(first);
  for (std::uint32_t i = 0; i < 8; ++i)
    gang.groups.push_back({.tasks = 5, .gpus = 0, .host = {1 + i, 0}});
  gang.required = rack;
  return gang;
}

TEST_CASE("unblock_search: of several racks the one with the fewest GPUs in use, not the closest") {
  capacity_index<uniform_tree> capacities(uniform_tree{2, 4, 8}, node, 8);
  // Rack 0 has three free nodes and a full one; rack 1 lacks one GPU on each node.
  const std::vector<std::uint32_t> free{8, 8, 8, 0, 7, 7, 7, 7};
  for (std::uint32_t n = 0; n < 8; ++n) capacities.set(n, free[n]);
  const std::vector<std::uint32_t> capacity(8, 8);
  const std::vector<resources> hosts(8, resources{64'000, 0});
  unblock_search<uniform_tree> search(20'000);
  const unblock_set found =
      search(capacities, with_many_small_groups({.tasks = 4, .gpus = 8}), capacity, hosts);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.is_least);
  CHECK(found.cell == 1);
  CHECK(found.gpus == 4);
}

TEST_CASE(
    "unblock_search: of nodes that can replace each other the one with most GPUs in use stays") {
  // Five tasks of four GPUs, two of which fit now. Node 2 must be freed, and node 0 or node 1.
  capacity_index<uniform_tree> capacities(uniform_tree{1, 3, 8}, node, 8);
  const std::vector<std::uint32_t> free{6, 5, 0};
  for (std::uint32_t n = 0; n < 3; ++n) capacities.set(n, free[n]);
  const std::vector<std::uint32_t> capacity(3, 8);
  const std::vector<resources> hosts(3, resources{64'000, 0});
  unblock_search<uniform_tree> search(20'000);
  const unblock_set found =
      search(capacities, with_many_small_groups({.tasks = 5, .gpus = 4}), capacity, hosts);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.is_least);
  CHECK(std::vector<std::uint32_t>(found.nodes.begin(), found.nodes.end()) ==
        std::vector<std::uint32_t>{0, 2});
  CHECK(found.gpus == 10);
}

TEST_CASE("unblock_search: a set that costs more than the least is not called the least") {
  // Three tasks of two GPUs more: nodes 0 and 1 gain two each for four GPUs, node 2 gains three for six.
  capacity_index<uniform_tree> capacities(uniform_tree{1, 3, 8}, node, 8);
  const std::vector<std::uint32_t> free{4, 4, 2};
  for (std::uint32_t n = 0; n < 3; ++n) capacities.set(n, free[n]);
  const std::vector<std::uint32_t> capacity(3, 8);
  topology_constraints gang;
  gang.groups = {{.tasks = 8, .gpus = 2}};
  std::size_t worse = 0;
  for (std::uint64_t budget = 1; budget < 200; ++budget) {
    CAPTURE(budget);
    unblock_search<uniform_tree> search(budget);
    const unblock_set found = search(capacities, gang, capacity);
    if (found.verdict != fit_verdict::fits) continue;
    if (found.is_least) CHECK(found.gpus == 6);
    worse += found.gpus > 6 ? 1U : 0U;
  }
  CHECK(worse > 0);
}

// Leaders and workers in a rack, among few nodes: the tries that find sets at first do not place it even on
// free nodes.
TEST_CASE("unblock_search: a set is found although a few greedy tries do not place the gang") {
  const ragged_tree tree({{2}, {2, 3}, {7, 7, 7, 7, 7}});
  capacity_index<ragged_tree> capacities(tree, node, 7);
  const std::vector<std::uint32_t> capacity{4, 7, 5, 2, 7};
  const std::vector<std::uint32_t> free{0, 3, 0, 2, 0};
  for (std::uint32_t n = 0; n < 5; ++n) capacities.set(n, free[n]);
  topology_constraints gang;
  gang.groups = {{.tasks = 2, .gpus = 2},
                 {.tasks = 4, .gpus = 2, .leader = 2, .leader_level = rack},
                 {.tasks = 2, .gpus = 2, .spread = {{rack, 2}}}};
  unblock_search<ragged_tree> search;
  const unblock_set found = search(capacities, gang, capacity);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.steps <= 1'000'000);
  test_cluster after{tree, free, {}};
  CHECK(!node_after_node(after, gang)(capacities.top()));
  for (const std::uint32_t n : found.nodes) after.free[n] = capacity[n];
  CHECK(node_after_node(after, gang)(capacities.top()));
}

// 8 GPUs on each of 64 nodes that differ in CPU, and tasks of so many kinds that there are no tables.
TEST_CASE("unblock_search: a gang of hundreds of kinds of tasks") {
  capacity_index<uniform_tree> capacities(uniform_tree{4, 16, 8}, node, 8);
  const std::vector<std::uint32_t> capacity(64, 8);
  std::vector<resources> hosts;
  for (std::uint32_t n = 0; n < 64; ++n) {
    capacities.set(n, n % 2 == 0 ? 2 : 5);
    hosts.push_back({4'000 + n, 0});
  }
  const std::vector<resources> whole(64, resources{64'000, 0});
  for (const std::uint32_t kinds : {8U, 50U, 200U}) {
    CAPTURE(kinds);
    topology_constraints gang;
    for (std::uint32_t i = 0; i < kinds; ++i)
      gang.groups.push_back({.tasks = 256 / kinds, .gpus = 1, .host = {1'000 + i, 0}});
    unblock_search<uniform_tree> search;
    const unblock_set found = search(capacities, gang, capacity, hosts, whole);
    CHECK(found.steps <= 1'000'000);
    REQUIRE(found.verdict == fit_verdict::fits);
    CHECK(!found.nodes.empty());
    test_cluster after{ragged_copy(uniform_tree{4, 16, 8}), {}, hosts};
    for (std::uint32_t n = 0; n < 64; ++n) after.free.push_back(capacities.free(n));
    for (const std::uint32_t n : found.nodes) {
      after.free[n] = 8;
      after.hosts[n] = whole[n];
      capacities.set(n, 8);
    }
    topology_fit<uniform_tree> fit;
    CHECK(fit(capacities, gang, after.hosts).verdict == fit_verdict::fits);
    for (std::uint32_t n = 0; n < 64; ++n) capacities.set(n, n % 2 == 0 ? 2 : 5);
  }
}

// The exact search is not begun if its steps do not pay for one greedy try. Racks without nodes do not count.
TEST_CASE("unblock_search: many kinds of tasks on many nodes do not take steps in vain") {
  constexpr std::uint32_t nodes = 1'280;
  const ragged_tree tree({{2}, {nodes, 1}, std::vector<std::uint32_t>(nodes + 1, 8)});
  capacity_index<ragged_tree> capacities(tree, node, 8);
  std::vector<std::uint32_t> capacity(nodes + 1, 8);
  capacity[nodes] = 0;
  std::vector<resources> hosts(nodes + 1);
  std::vector<resources> whole(nodes + 1);
  for (std::uint32_t n = 0; n < nodes; ++n) {
    capacities.set(n, 4);
    hosts[n] = {4'000 + n, 0};
    whole[n] = {64'000, 0};
  }
  capacities.set(nodes, 0);
  topology_constraints gang;
  for (std::uint32_t i = 0; i < 125; ++i)
    gang.groups.push_back({.tasks = 1, .gpus = 8, .host = {1'000 + i, 0}});
  gang.required = rack;
  unblock_search<ragged_tree> search;
  const unblock_set found = search(capacities, gang, capacity, hosts, whole);
  REQUIRE(found.verdict == fit_verdict::fits);
  CHECK(found.nodes.size() == 125);
  MESSAGE(found.steps, " steps");
  CHECK(found.steps < 500'000);
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

TEST_CASE("unblock_set: the answer in words") {
  const cell_names names{"GPU", "node", "rack"};
  unblock_set set{.verdict = fit_verdict::fits, .node_level = node, .level = block};
  CHECK(set.text(names) == "the gang fits now");
  const std::vector<std::uint32_t> one = {9};
  set.nodes = one;
  set.gpus = 8;
  CHECK(set.text(names) == "the gang would fit if node 9 were free (8 more GPUs)");
  const std::vector<std::uint32_t> three = {1, 2, 9};
  set.nodes = three;
  set.gpus = 1;
  set.level = rack;
  set.cell = 4;
  CHECK(set.text(names) ==
        "the gang would fit if nodes 1, 2 and 9 in rack 4 were free (1 more GPU)");
  set.gpus = 0;
  set.level = node;
  CHECK(set.text(names) ==
        "the gang would fit if nodes 1, 2 and 9 were free (the GPUs are free, but CPU or memory is "
        "not)");
  set.verdict = fit_verdict::does_not_fit;
  CHECK(set.text(names) == "the gang does not fit even if all nodes are free");
  set.verdict = fit_verdict::budget_ended;
  CHECK(set.text(names) == "it is not known which nodes to free");
}
