// apiary/tests/alloc/detail/enclosing_free_level_test.cpp - the free cell that contains a cell.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/buddy_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>

namespace {

using namespace apiary;

TEST_CASE(
    "enclosing_free_level: the lowest free cell above each cell, for every set of free cells") {
  const uniform_tree tree({2, 2, 2});  // cells 0-1, 2-5, 6-13
  int wrong = 0;
  for (std::uint32_t free = 0; free < 1U << tree.num_cells(); ++free) {
    const auto is_free = [free](cell_id c) { return (free >> c.value & 1) != 0; };
    for (std::uint32_t i = 0; i < tree.num_cells(); ++i) {
      const cell_id c(i);
      std::optional<level_t> expected;
      for (level_t l = tree.num_levels(); l-- > tree.level(c);)
        if (is_free(tree.ancestor(c, l))) expected = l;
      if (detail::enclosing_free_level(tree, c, is_free) != expected) ++wrong;
    }
  }
  CHECK(wrong == 0);
}

}  // namespace
