// apiary/tests/hived/detail/audit_counts_test.cpp - leaves counted afresh, against counting each cell alone.
// SPDX-License-Identifier: MIT
#include "support/audit_scene.h"
#include "support/hived_audit.h"
#include <apiary/core/ids.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary::detail;
using apiary_test::audit_scene;

TEST_CASE("leaves are summed over every cell of a tree") {
  const uniform_tree tree(std::array<std::uint32_t, 3>{2, 2, 3});
  const auto sums = apiary_test::afresh::sum_of_leaves(
      tree, [&](cell_id leaf) { return tree.index(leaf, 0) % 3 == 0 ? 5U : 0U; });
  REQUIRE(sums.size() == tree.num_cells());
  for (level_t l = 0; l < tree.num_levels(); ++l) {
    for (const cell_id c : tree.cells(l)) {
      std::uint32_t n = 0;
      for (const cell_id leaf : tree.descendants(c, 0)) n += tree.index(leaf, 0) % 3 == 0 ? 5U : 0U;
      CHECK(sums[c.value] == n);
    }
  }
}

TEST_CASE("the leaves of a chain are counted by what they are") {
  audit_scene s;
  const physical_chain& chain = s.chain();
  const apiary_test::afresh::chain_counts counts = apiary_test::afresh::count_leaves(chain);
  const std::vector<std::uint32_t> free = apiary_test::afresh::count_healthy_free(chain);
  const uniform_tree& tree = chain.tree();
  for (level_t l = 0; l < tree.num_levels(); ++l) {
    std::uint32_t healthy_free = 0;
    for (const cell_id c : tree.cells(l)) {
      std::uint32_t bad = 0;
      std::uint32_t opportunistic = 0;
      std::uint32_t taken = 0;
      std::uint32_t allocated = 0;
      for (const cell_id leaf : tree.descendants(c, 0)) {
        bad += chain.healthy().healthy(leaf) ? 0U : 1U;
        opportunistic += chain.holders(leaf).user.valid() && !chain.holders(leaf).taken() ? 1U : 0U;
        taken += chain.holders(leaf).taken() ? 1U : 0U;
        allocated += chain.cells().cells().enclosing_free_level(leaf) ? 0U : 1U;
      }
      CHECK(counts.bad[c.value] == bad);
      CHECK(counts.opportunistic[c.value] == opportunistic);
      CHECK(counts.guaranteed[c.value] == taken);
      CHECK(counts.allocated[c.value] == allocated);
      healthy_free += bad == 0 && allocated == 0 ? 1U : 0U;
    }
    CHECK(free[l] == healthy_free);
  }
  const cell_id all = tree.cells(tree.num_levels() - 1)[0];
  const cell_id other = tree.cells(tree.num_levels() - 1)[1];
  CHECK(counts.bad[all.value] + counts.bad[other.value] == 1);
  CHECK(counts.opportunistic[all.value] + counts.opportunistic[other.value] == 1);
  CHECK(counts.guaranteed[all.value] + counts.guaranteed[other.value] == 12);
}

TEST_CASE("a virtual leaf is in use if the physical leaf is that it is bound to") {
  audit_scene s;
  const vc_chain_id c = s.record(4).cluster;
  const cell_id leaf = s.owner(4).cell;
  CHECK(apiary_test::afresh::leaf_image(s.cells, c, leaf) == s.leaf(4));
  CHECK(apiary_test::afresh::leaf_taken(s.cells, c, leaf));
  const cell_id root = s.cluster(4).tree().roots(1).first;
  CHECK(apiary_test::afresh::count_active(s.cells, c)[root.value] == 2);
  // What is bound to anything but a leaf of the chain counts as not bound.
  for (const cell_id nonsense : {cell_id(0), cell_id(7777), cell_id()}) {
    s.cluster(4).set_image(leaf, nonsense);
    CHECK(!apiary_test::afresh::leaf_image(s.cells, c, leaf).valid());
    CHECK(!apiary_test::afresh::leaf_taken(s.cells, c, leaf));
    CHECK(apiary_test::afresh::count_active(s.cells, c)[root.value] == 1);
  }
  s.cluster(4).set_image(leaf, s.idle_leaf());
  CHECK(apiary_test::afresh::leaf_image(s.cells, c, leaf).valid());
  CHECK(!apiary_test::afresh::leaf_taken(s.cells, c, leaf));
}

}  // namespace
