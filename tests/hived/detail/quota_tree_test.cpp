// apiary/tests/hived/detail/quota_tree_test.cpp - the cells of a quota against trees that are grown one by
// one.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/hived/detail/virtual_cluster.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <support/tree_suite.h>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

static_assert(CellTree<quota_tree>);

namespace {

using numbers = std::vector<std::uint32_t>;

struct grown_cell {
  level_t level = 0;
  cell_id parent{};
  std::vector<cell_id> children{};
};

// Level by level from the top: first the children of the level above, then the roots.
std::vector<grown_cell> grow(const uniform_tree& chain, const numbers& quota) {
  std::vector<grown_cell> cells;
  std::vector<cell_id> above;
  for (level_t l = chain.num_levels(); l-- > 0;) {
    std::vector<cell_id> here;
    const auto add = [&](cell_id parent) {
      const cell_id c(static_cast<std::uint32_t>(cells.size()));
      cells.push_back({.level = l, .parent = parent});
      if (parent.valid()) cells[parent.value].children.push_back(c);
      here.push_back(c);
    };
    for (const cell_id p : above)
      for (std::uint32_t i = 0; i < chain.fan_out(l + 1); ++i) add(p);
    for (std::uint32_t i = 0; i < quota[l]; ++i) add(cell_id());
    above = here;
  }
  return cells;
}

void check_against_grown(const uniform_tree& chain, const numbers& quota) {
  const quota_tree tree(chain, quota);
  const std::vector<grown_cell> cells = grow(chain, quota);
  REQUIRE(tree.num_cells() == cells.size());
  REQUIRE(tree.num_levels() == chain.num_levels());
  numbers in_level(chain.num_levels(), 0);
  numbers roots(chain.num_levels(), 0);
  for (std::uint32_t i = 0; i < cells.size(); ++i) {
    const cell_id c(i);
    const level_t l = cells[i].level;
    REQUIRE(tree.level(c) == l);
    REQUIRE(tree.parent(c, l) == cells[i].parent);
    REQUIRE(tree.cells(l).contains(c));
    REQUIRE(tree.index(c, l) == in_level[l]++);
    REQUIRE(tree.roots(l).contains(c) == !cells[i].parent.valid());
    if (!cells[i].parent.valid()) ++roots[l];
    const id_range<cell_id> children = tree.children(c, l);
    REQUIRE(std::vector<cell_id>(children.begin(), children.end()) == cells[i].children);

    std::vector<cell_id> below{c};  // of each level in turn
    for (level_t k = l;; --k) {
      const id_range<cell_id> found = tree.descendants(c, k);
      REQUIRE(std::vector<cell_id>(found.begin(), found.end()) == below);
      for (const cell_id d : below) REQUIRE(tree.ancestor(d, l) == c);
      if (k == 0) break;
      std::vector<cell_id> next;
      for (const cell_id d : below) {
        next.insert(next.end(), cells[d.value].children.begin(), cells[d.value].children.end());
      }
      below = next;
    }
    REQUIRE(tree.leaves_per_cell(l) == below.size());
  }
  for (level_t l = 0; l < chain.num_levels(); ++l) {
    CHECK(tree.cells(l).size() == in_level[l]);
    CHECK(tree.roots(l).size() == roots[l]);
    CHECK(roots[l] == quota[l]);
  }
  CHECK(tree.num_leaves() == in_level[0]);
}

}  // namespace

TEST_CASE("two nodes and a pair: the documented order") {
  const uniform_tree chain({2, 2, 2, 2});  // racks, nodes, pairs, devices
  const quota_tree tree(chain, numbers{1, 1, 2, 0});
  CHECK(tree.num_cells() == 2 + 5 + 11);
  CHECK(tree.cells(3).empty());
  CHECK(tree.roots(2).size() == 2);
  CHECK(tree.roots(1) == id_range<cell_id>{cell_id(6), cell_id(7)});
  CHECK(tree.roots(0) == id_range<cell_id>{cell_id(17), cell_id(18)});
  CHECK(tree.children(cell_id(6), 1) == id_range<cell_id>{cell_id(15), cell_id(17)});
  CHECK(!tree.parent(cell_id(6), 1).valid());
  CHECK(tree.parent(cell_id(5), 1) == cell_id(1));
}

TEST_CASE("random quotas against forests that are grown") {
  rng random(7);
  for (int round = 0; round < 200; ++round) {
    numbers fan_outs;
    for (std::uint32_t i = 1 + random.uniform(5); i > 0; --i)
      fan_outs.push_back(1 + random.uniform(4));
    const uniform_tree chain(fan_outs);
    // Never more than the chain has: what a level takes is taken from all below.
    numbers quota(chain.num_levels(), 0);
    std::uint32_t left = chain.cells(chain.num_levels() - 1).size();
    for (level_t l = chain.num_levels(); l-- > 0;) {
      quota[l] = random.uniform(left + 1);
      left -= quota[l];
      if (l > 0) left *= chain.fan_out(l);
    }
    CAPTURE(round);
    check_against_grown(chain, quota);
  }
}

TEST_CASE("whole top cells are a uniform tree of that many roots") {
  for (const std::uint32_t roots : {1U, 2U, 5U}) {
    const uniform_tree chain({5, 3, 1, 4});
    const quota_tree tree(chain, numbers{0, 0, 0, roots});
    apiary_test::check_tree(tree, apiary_test::written_out({roots, 3, 1, 4}));
    const uniform_tree same({roots, 3, 1, 4});
    REQUIRE(tree.num_cells() == same.num_cells());
    for (std::uint32_t i = 0; i < same.num_cells(); ++i) {
      const cell_id c(i);
      const level_t l = same.level(c);
      CHECK(tree.level(c) == l);
      CHECK(tree.parent(c, l) == same.parent(c, l));
      CHECK(tree.descendants(c, 0) == same.descendants(c, 0));
    }
  }
}

TEST_CASE("no quota at all is a tree without cells") {
  const quota_tree tree(uniform_tree({2, 2}), numbers{0, 0});
  CHECK(tree.num_cells() == 0);
  CHECK(tree.num_leaves() == 0);
  CHECK(tree.roots(1).empty());
}
