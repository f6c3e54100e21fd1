// apiary/tests/explain/unblock_verdict_test.cpp - unblock_search with CPU and memory; no answer, or unknown.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/capacity_index.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/explain/unblock_search.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/gang/topology_fit.h>
#include <apiary/model/resources.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <support/levels.h>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

namespace {

// Nodes of eight GPUs: what is free and what they have in all.
struct hosted_nodes {
  uniform_tree tree;
  std::vector<std::uint32_t> free;
  std::vector<std::uint32_t> capacity;
  std::vector<resources> hosts;
  std::vector<resources> host_capacity;
  topology_constraints gang;

  explicit hosted_nodes(uniform_tree t)
      : tree(t),
        free(detail::num_positions(t, node), 0),
        capacity(free.size(), 8),
        hosts(free.size()),
        host_capacity(free.size(), resources{80, 80}) {}
  [[nodiscard]] capacity_index<uniform_tree> capacity_of(
      std::span<const std::uint32_t> leaves) const {
    capacity_index<uniform_tree> capacities(tree, node, 8);
    for (std::uint32_t n = 0; n < leaves.size(); ++n) capacities.set(n, leaves[n]);
    return capacities;
  }
  // Whether the gang fits with these nodes wholly free.
  [[nodiscard]] bool fits_with(std::span<const std::uint32_t> nodes) const {
    std::vector<std::uint32_t> leaves = free;
    std::vector<resources> left = hosts;
    for (const std::uint32_t n : nodes) {
      leaves[n] = capacity[n];
      left[n] = host_capacity[n];
    }
    return topology_fit<uniform_tree>()(capacity_of(leaves), gang, left).verdict ==
           fit_verdict::fits;
  }
  [[nodiscard]] bool fits_with_all() const {
    std::vector<std::uint32_t> all(free.size());
    for (std::uint32_t n = 0; n < all.size(); ++n) all[n] = n;
    return fits_with(all);
  }
  [[nodiscard]] bool none_can_be_spared(std::span<const std::uint32_t> nodes) const {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      std::vector<std::uint32_t> fewer(nodes.begin(), nodes.end());
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      if (fits_with(fewer)) return false;
    }
    return true;
  }
  unblock_set solve(unblock_search<uniform_tree>& search) const {
    capacity_index<uniform_tree> capacities = capacity_of(free);
    const unblock_set found = search(capacities, gang, capacity, hosts, host_capacity);
    REQUIRE(
        std::equal(free.begin(), free.end(), capacities.free().begin(), capacities.free().end()));
    return found;
  }
};

hosted_nodes random_hosted(std::uint64_t seed) {
  rng random(seed);
  hosted_nodes in(uniform_tree{2, 3, 8});
  for (std::uint32_t n = 0; n < 6; ++n) {
    in.capacity[n] = random.uniform(4) == 0 ? random.uniform(9) : 8;
    in.free[n] = random.uniform(in.capacity[n] + 1);
    in.hosts[n] = {random.uniform(81), random.uniform(81)};
  }
  for (std::uint32_t m = 1 + random.uniform(3); m-- > 0;)
    in.gang.groups.push_back(
        {1 + random.uniform(3),
         random.uniform(7),
         {random.uniform(60), random.uniform(3) == 0 ? random.uniform(60) : 0}});
  if (random.uniform(2) == 0) in.gang.required = rack;
  if (random.uniform(3) == 0) in.gang.groups[0].spread = {{node, 1}};
  return in;
}

}  // namespace

TEST_CASE("nodes that give CPU and memory back: enough of them, and none too many") {
  std::uint32_t found = 0;
  std::uint32_t for_hosts = 0;
  std::uint32_t none = 0;
  for (std::uint64_t seed = 0; seed < scaled(5'000U); ++seed) {
    CAPTURE(seed);
    const hosted_nodes in = random_hosted(seed);
    for (const std::uint64_t budget : {1'000'000U, 20'000U}) {
      CAPTURE(budget);
      unblock_search<uniform_tree> search(budget);
      const unblock_set remedy = in.solve(search);
      const bool is = remedy.verdict == fit_verdict::fits;
      REQUIRE(is == in.fits_with_all());
      REQUIRE(remedy.verdict != fit_verdict::budget_ended);
      if (!is) {
        ++none;
        continue;
      }
      REQUIRE(in.fits_with(remedy.nodes));
      REQUIRE(remedy.all_needed);
      REQUIRE(in.none_can_be_spared(remedy.nodes));
      std::uint64_t leaves = 0;
      for (const std::uint32_t n : remedy.nodes) {
        leaves += in.capacity[n] - in.free[n];
        if (in.gang.required == rack) REQUIRE(remedy.cell == n / 3);
      }
      REQUIRE(leaves == remedy.gpus);
      found += remedy.nodes.empty() ? 0U : 1U;
      for_hosts += !remedy.nodes.empty() && leaves == 0 ? 1U : 0U;
    }
  }
  MESSAGE(found, " answers, ", for_hosts, " of nodes with all GPUs free, ", none, " without");
  CHECK(found > scaled(5'000U));
  CHECK(for_hosts > 0);
  CHECK(none > scaled(5'000U) / 10);
}

TEST_CASE("hosts that give nothing back stay as they are") {
  hosted_nodes in(uniform_tree{1, 2, 8});
  in.free = {8, 0};
  in.hosts = {{10, 0}, {40, 0}};
  in.gang.groups = {{.tasks = 1, .gpus = 8, .host = {40, 0}}};
  unblock_search<uniform_tree> search;
  capacity_index<uniform_tree> capacities = in.capacity_of(in.free);
  unblock_set remedy = search(capacities, in.gang, in.capacity, in.hosts);
  REQUIRE(remedy.verdict == fit_verdict::fits);
  CHECK(std::vector<std::uint32_t>(remedy.nodes.begin(), remedy.nodes.end()) ==
        std::vector<std::uint32_t>{1});
  remedy = in.solve(search);
  REQUIRE(remedy.verdict == fit_verdict::fits);
  CHECK(std::vector<std::uint32_t>(remedy.nodes.begin(), remedy.nodes.end()) ==
        std::vector<std::uint32_t>{0});
  CHECK(remedy.gpus == 0);
  in.gang.groups[0].host.cpu_milli = 60;
  remedy = search(capacities, in.gang, in.capacity, in.hosts);
  CHECK(remedy.verdict == fit_verdict::does_not_fit);
  remedy = in.solve(search);
  REQUIRE(remedy.verdict == fit_verdict::fits);
  in.gang.groups[0].host.cpu_milli = 81;
  remedy = in.solve(search);
  CHECK(remedy.verdict == fit_verdict::does_not_fit);
}

TEST_CASE("an answer in a cell that is not among the closest") {
  // In the racks with free nodes the other nodes are broken.
  hosted_nodes in(uniform_tree{20, 2, 8});
  for (std::uint32_t n = 0; n < 40; ++n) in.capacity[n] = in.free[n] = n % 2 == 0 ? 8 : 0;
  in.capacity[26] = in.capacity[27] = 8;
  in.free[26] = in.free[27] = 0;
  in.gang.groups = {{.tasks = 2, .gpus = 8}};
  in.gang.required = rack;
  unblock_search<uniform_tree> search;
  unblock_set remedy = in.solve(search);
  REQUIRE(remedy.verdict == fit_verdict::fits);
  CHECK(remedy.cell == 13);
  CHECK(remedy.gpus == 16);
  CHECK(std::vector<std::uint32_t>(remedy.nodes.begin(), remedy.nodes.end()) ==
        std::vector<std::uint32_t>{26, 27});
  in.capacity[26] = 7;
  remedy = in.solve(search);
  CHECK(remedy.verdict == fit_verdict::does_not_fit);
}

TEST_CASE("a budget that ends is no proof, neither of an answer's nodes nor that there is none") {
  std::uint32_t unknown = 0;
  std::uint32_t in_doubt = 0;
  std::uint32_t certain = 0;
  for (std::uint64_t seed = 0; seed < scaled(3'000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    hosted_nodes in = random_hosted(seed);
    in.gang.groups.clear();
    for (std::uint32_t m = 3; m-- > 0;)
      in.gang.groups.push_back(
          {2 + random.uniform(2), 2 + random.uniform(5), {random.uniform(40), random.uniform(40)}});
    in.gang.groups[0].spread = {{node, 1}};
    in.gang.groups[1].spread = {{rack, 1 + random.uniform(2)}};
    for (const std::uint64_t budget : {0U, 100U, 400U, 2'000U}) {
      CAPTURE(budget);
      unblock_search<uniform_tree> search(budget);
      const unblock_set remedy = in.solve(search);
      if (remedy.verdict != fit_verdict::fits) {
        if (remedy.verdict == fit_verdict::does_not_fit) REQUIRE_FALSE(in.fits_with_all());
        unknown += remedy.verdict == fit_verdict::budget_ended ? 1U : 0U;
        continue;
      }
      REQUIRE(remedy.steps <= budget);
      REQUIRE(in.fits_with(remedy.nodes));
      if (remedy.all_needed) {
        REQUIRE(in.none_can_be_spared(remedy.nodes));
        ++certain;
      } else {
        ++in_doubt;
      }
    }
  }
  MESSAGE(unknown, " unknown, ", in_doubt, " in doubt, ", certain, " certain");
  CHECK(unknown > 0);
  CHECK(in_doubt > 0);
  CHECK(certain > 0);
}
