// apiary/tests/support/tree_suite.h - what every cell tree must do, run on each of them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/topology/tree.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace apiary_test {

// Level by level from the top, the number of children of each cell of the level above.
using fan_out_table = std::vector<std::vector<std::uint32_t>>;

// A table with one fan-out a level, written out for every cell.
inline fan_out_table written_out(const std::vector<std::uint32_t>& fan_outs) {
  fan_out_table table;
  std::uint32_t width = 1;
  for (const std::uint32_t n : fan_outs) {
    table.emplace_back(width, n);
    width *= n;
  }
  return table;
}

// A random table of 1 to `levels` levels with at most about `leaves` leaves.
inline fan_out_table random_table(apiary::rng& random, std::uint32_t levels, std::uint32_t leaves) {
  fan_out_table table;
  std::uint32_t width = 1;
  const std::uint32_t height = 1 + random.uniform(levels);
  for (std::uint32_t i = 0; i < height; ++i) {
    const std::uint32_t limit = leaves / width < 1 ? 1 : leaves / width;
    const std::uint32_t most = limit < 5 ? limit : 5;
    table.emplace_back();
    std::uint32_t next = 0;
    for (std::uint32_t c = 0; c < width; ++c) {
      table.back().push_back(1 + random.uniform(most));
      next += table.back().back();
    }
    width = next;
  }
  return table;
}

// Checks each expression of the concept against sets of leaves that are spelled out.
template <apiary::CellTree Tree>
void check_tree(const Tree& tree, const fan_out_table& table) {
  using apiary::cell_id;
  using apiary::id_range;
  using apiary::level_t;
  const auto levels = static_cast<level_t>(table.size());
  REQUIRE(tree.num_levels() == levels);

  // Numbered in level order, straight from the table.
  std::vector<level_t> level_of;
  std::vector<cell_id> parent_of;
  std::vector<std::vector<cell_id>> children_of;
  std::vector<std::vector<cell_id>> level_cells(levels);
  for (level_t i = 0; i < levels; ++i) {
    for (std::size_t p = 0; p < table[i].size(); ++p) {
      for (std::uint32_t k = 0; k < table[i][p]; ++k) {
        const cell_id c(static_cast<std::uint32_t>(level_of.size()));
        const cell_id above = i == 0 ? cell_id() : level_cells[levels - i][p];
        level_of.push_back(levels - 1 - i);
        parent_of.push_back(above);
        children_of.emplace_back();
        if (above.valid()) children_of[above.value].push_back(c);
        level_cells[levels - 1 - i].push_back(c);
      }
    }
  }
  REQUIRE(tree.num_cells() == level_of.size());

  const auto listed = [](id_range<cell_id> range) {
    return std::vector<cell_id>(range.begin(), range.end());
  };
  for (level_t l = 0; l < levels; ++l) REQUIRE(listed(tree.cells(l)) == level_cells[l]);
  for (const cell_id c : id_range<cell_id>{cell_id(0), cell_id(tree.num_cells())}) {
    CAPTURE(c.value);
    const level_t l = level_of[c.value];
    REQUIRE(tree.level(c) == l);
    REQUIRE(tree.parent(c, l) == parent_of[c.value]);
    REQUIRE(listed(tree.children(c, l)) == children_of[c.value]);
    cell_id up = c;
    for (level_t k = l; k < levels; ++k) {
      REQUIRE(tree.ancestor(c, k) == up);
      up = parent_of[up.value];
    }
    std::vector<cell_id> down{c};
    for (level_t k = l;; --k) {
      REQUIRE(listed(tree.descendants(c, k)) == down);
      if (k == 0) break;
      std::vector<cell_id> next;
      for (const cell_id d : down)
        next.insert(next.end(), children_of[d.value].begin(), children_of[d.value].end());
      down = next;
    }
    REQUIRE(listed(tree.descendants(c, 0)) == down);
  }
}

}  // namespace apiary_test
