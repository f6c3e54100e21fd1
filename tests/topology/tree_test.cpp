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
