// apiary/tests/hived/detail/virtual_cluster_test.cpp - a tenant's cells: nodes, use and what is free,
// recounted.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/detail/node_index.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

using numbers = std::vector<std::uint32_t>;

// The nodes as they are documented: cells of the node level, then smaller roots, largest first.
std::vector<cell_id> nodes_of(const virtual_cluster& cluster) {
  std::vector<cell_id> nodes;
  for (level_t l = cluster.node_level() + 1; l-- > 0;) {
    const bool whole = l == cluster.node_level();
    for (const cell_id c : whole ? cluster.tree().cells(l) : cluster.tree().roots(l))
      nodes.push_back(c);
  }
  return nodes;
}

void check(const virtual_cluster& cluster, const std::vector<bool>& taken,
           const std::vector<bool>& usable) {
  const quota_tree& tree = cluster.tree();
  const std::uint32_t first = tree.cells(0).first.value;
  for (std::uint32_t c = 0; c < first; ++c) {
    std::uint32_t active = 0;
    for (const cell_id leaf : tree.descendants(cell_id(c), 0))
      active += taken[leaf.value - first] ? 1U : 0U;
    REQUIRE(cluster.active(cell_id(c)) == active);
  }
  const std::vector<cell_id> nodes = nodes_of(cluster);
  REQUIRE(cluster.num_nodes() == nodes.size());
  for (std::uint32_t n = 0; n < nodes.size(); ++n) {
    const id_range<cell_id> in_node = tree.descendants(nodes[n], 0);
    REQUIRE(cluster.first_leaf(n) == in_node.first);
    REQUIRE(cluster.range_of_node(n).leaves == in_node.size());
    REQUIRE(cluster.range_of_node(n).level == tree.level(nodes[n]));
    std::uint64_t free = 0;
    for (std::uint32_t i = 0; i < in_node.size(); ++i) {
      REQUIRE(cluster.node_of(in_node[i]) == n);
      if (usable[in_node[i].value - first]) free |= std::uint64_t{1} << i;
    }
    REQUIRE(cluster.free(n) == free);
    REQUIRE(cluster.free_nodes().class_of(node_id(n)) == std::popcount(free));
  }
}

}  // namespace

TEST_CASE("nodes are cells of the node level, then what is owned below it") {
  const uniform_tree chain({4, 4, 2, 2});  // racks, nodes, pairs, devices
  const virtual_cluster cluster(tenant_id(3), 2, chain, 2, numbers{1, 2, 3, 1});
  CHECK(cluster.tenant() == tenant_id(3));
  CHECK(cluster.chain() == 2);
  CHECK(cluster.rack_size() == 4);
  CHECK(cluster.num_nodes() == 7 + 2 + 1);
  REQUIRE(cluster.node_ranges().size() == 3);
  CHECK(cluster.node_ranges()[0].leaves == 4);
  CHECK(cluster.node_ranges()[1].first_node == 7);
  CHECK(cluster.node_ranges()[1].nodes == 2);
  CHECK(cluster.node_ranges()[2].first_leaf == 7 * 4 + 2 * 2);
  CHECK(cluster.free(0) == 0b1111);
  CHECK(cluster.free(8) == 0b11);
  CHECK(cluster.free(9) == 0b1);
  CHECK(cluster.free_nodes().count(4) == 7);
  CHECK(cluster.free_nodes().count(1) == 1);
}

TEST_CASE("images") {
  virtual_cluster cluster(tenant_id(0), 0, uniform_tree({2, 2}), 1, numbers{0, 1});
  for (std::uint32_t c = 0; c < cluster.tree().num_cells(); ++c)
    CHECK(!cluster.image(cell_id(c)).valid());
  cluster.set_image(cell_id(2), cell_id(5));
  CHECK(cluster.image(cell_id(2)) == cell_id(5));
  CHECK(!cluster.image(cell_id(1)).valid());
  CHECK(cluster.memory_bytes() > 0);
}

TEST_CASE("nodes of 64 leaves") {
  virtual_cluster cluster(tenant_id(0), 0, uniform_tree({2, 64}), 1, numbers{0, 2});
  CHECK(cluster.free(1) == ~std::uint64_t{0});
  cluster.set_usable(cluster.tree().cells(0)[127], false);
  CHECK(cluster.free(1) == ~std::uint64_t{0} >> 1);
  CHECK(cluster.free_nodes().count(64) == 1);
  CHECK(cluster.free_nodes().count(63) == 1);
}

TEST_CASE("random use and faults against a recount") {
  rng random(41);
  struct shape {
    numbers fan_outs;
    level_t node_level;
    numbers quota;
  };
  for (const shape& s :
       {shape{{4, 4, 2, 2}, 2, {1, 2, 3, 1}}, shape{{3, 4}, 1, {5, 1}}, shape{{3, 4}, 1, {7, 0}},
        shape{{2, 2, 3}, 2, {0, 1, 1}}, shape{{6, 3}, 0, {4, 2}}}) {
    virtual_cluster cluster(tenant_id(0), 0, uniform_tree(s.fan_outs), s.node_level, s.quota);
    const std::uint32_t n = cluster.tree().num_leaves();
    std::vector<bool> taken(n, false);
    std::vector<bool> usable(n, true);
    check(cluster, taken, usable);
    for (int step = 0; step < apiary_test::scaled(1500); ++step) {
      const std::uint32_t i = random.uniform(n);
      const cell_id leaf = cluster.tree().cells(0)[i];
      if (random.uniform(2) == 0) {
        taken[i] = !taken[i];
        cluster.set_active(leaf, taken[i]);
      } else {
        usable[i] = random.uniform(2) == 0;
        cluster.set_usable(leaf, usable[i]);
      }
      check(cluster, taken, usable);
    }
  }
}
