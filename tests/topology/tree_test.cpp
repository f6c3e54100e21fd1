// apiary/tests/topology/tree_test.cpp - the concept of a cell tree and what follows from it.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/topology/ragged_tree.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <support/archetypes.h>
#include <support/tree_suite.h>
#include <type_traits>
#include <utility>

using namespace apiary;

namespace {

struct no_descendants {
  [[nodiscard]] level_t num_levels() const;
  [[nodiscard]] std::uint32_t num_cells() const;
  [[nodiscard]] id_range<cell_id> cells(level_t) const;
  [[nodiscard]] level_t level(cell_id) const;
  [[nodiscard]] cell_id parent(cell_id, level_t) const;
  [[nodiscard]] id_range<cell_id> children(cell_id, level_t) const;
  [[nodiscard]] cell_id ancestor(cell_id, level_t) const;
};

static_assert(CellTree<uniform_tree>);
static_assert(CellTree<ragged_tree>);
static_assert(!CellTree<no_descendants>);
static_assert(!CellTree<int>);
static_assert(std::is_trivially_copyable_v<uniform_tree>);
static_assert(sizeof(uniform_tree) <= 320);
static_assert(sizeof(ragged_tree) <= 96);

}  // namespace

TEST_CASE("the archetype of a tree is a tree") {
  apiary_test::check_tree(apiary_test::tree_archetype::make(), {{2}, {2, 2}});
}

TEST_CASE("positions inside a cell are counted within their level, as in the whole cluster") {
  const uniform_tree tree{2, 3, 4};  // cells 0-1, 2-7, 8-31
  const auto inside = [&](level_t l, std::uint32_t c, level_t below) {
    const auto found = detail::positions_inside(tree, l, c, below);
    return std::pair(found.first.value, found.last.value);
  };
  CHECK(inside(2, 1, 0) == std::pair(12U, 24U));
  CHECK(inside(2, 1, 1) == std::pair(3U, 6U));
  CHECK(inside(1, 4, 0) == std::pair(16U, 20U));
  CHECK(inside(1, 4, 1) == std::pair(4U, 5U));
  CHECK(inside(3, 0, 1) == std::pair(0U, 6U));
  CHECK(detail::num_positions(tree, 3) == 1);
}
