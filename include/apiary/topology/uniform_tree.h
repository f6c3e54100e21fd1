// apiary/topology/uniform_tree.h - a cell tree in which all cells of a level have the same fan-out.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/fast_div.h>
#include <apiary/core/ids.h>
#include <apiary/topology/tree.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

APIARY_NAMESPACE_BEGIN

// A tree of cells for clusters of equal nodes. It is given by one fan-out for each level, from the
// top: {2, 4, 4, 2} has 2 roots of 4 cells of 4 cells of 2 leaves. It stores nothing for each cell
// and takes less than 300 bytes, so hold it by value.
//
// Model:    HiveD (OSDI 2020) section 3, hierarchical uniform composability.
// Requires: 1 to 10 levels, fan-outs >= 1, fewer than 2^31 cells (topology/named_tree.h checks it).
// Cost:     as in the table of CellTree; parent takes one multiplication.
// Example:  examples/cell_trees.cpp
class uniform_tree : public detail::level_order {
 public:
  // fan_outs: one for each level, from the top.
  explicit uniform_tree(std::span<const std::uint32_t> fan_outs) : level_order(fan_outs.size()) {
    std::uint64_t width = 1;
    for (std::uint32_t i = 0; i < num_levels_; ++i) {
      const level_t l = num_levels_ - 1 - i;
      APIARY_VERIFY(fan_outs[i] >= 1);
      width *= fan_outs[i];
      add_level(l, width);
      if (i > 0) split_[l + 1] = fast_div(fan_outs[i]);
    }
    leaves_per_cell_[0] = fast_div(1);
    for (level_t l = 1; l < num_levels_; ++l) {
      leaves_per_cell_[l] = fast_div(leaves_per_cell_[l - 1].divisor() * fan_out(l));
    }
  }
  // The same, with a list of fan-outs.
  explicit uniform_tree(std::initializer_list<std::uint32_t> fan_outs)
      : uniform_tree(std::span<const std::uint32_t>(fan_outs.begin(), fan_outs.size())) {}

  // Children of a cell of level l; 0 for a leaf. Requires: l < num_levels().
  [[nodiscard]] std::uint32_t fan_out(level_t l) const noexcept {
    APIARY_ASSERT(l < num_levels_);
    return l == 0 ? 0 : split_[l].divisor();
  }
  // Leaves of a cell of level l. Requires: l < num_levels().
  [[nodiscard]] std::uint32_t leaves_per_cell(level_t l) const noexcept {
    APIARY_ASSERT(l < num_levels_);
    return leaves_per_cell_[l].divisor();
  }

  // The cell of the next level that contains c; not valid for a cell of the top level.
  [[nodiscard]] cell_id parent(cell_id c, level_t l) const noexcept {
    APIARY_ASSERT(cells(l).contains(c));
    if (l + 1 >= num_levels_) return cell_id();
    return cell_id(first_[l + 1] + split_[l + 1].quotient(index(c, l)));
  }
  // The cells of the level below that c contains; none for a leaf.
  [[nodiscard]] id_range<cell_id> children(cell_id c, level_t l) const noexcept {
    if (l == 0) return {};
    const std::uint32_t n = fan_out(l);
    const std::uint32_t from = first_[l - 1] + index(c, l) * n;
    return {cell_id(from), cell_id(from + n)};
  }
  // The cell of level l that contains c.
  [[nodiscard]] cell_id ancestor(cell_id c, level_t l) const noexcept {
    const level_t from = level(c);
    APIARY_ASSERT(from <= l && l < num_levels_);
    const std::uint32_t first_leaf = index(c, from) * leaves_per_cell(from);
    return cell_id(first_[l] + leaves_per_cell_[l].quotient(first_leaf));
  }
  // The cells of level l that c contains.
  [[nodiscard]] id_range<cell_id> descendants(cell_id c, level_t l) const noexcept {
    const level_t from = level(c);
    APIARY_ASSERT(l <= from);
    const std::uint32_t n = leaves_per_cell_[l].quotient(leaves_per_cell(from));
    const std::uint32_t begin = first_[l] + index(c, from) * n;
    return {cell_id(begin), cell_id(begin + n)};
  }

 private:
  std::array<fast_div, max_levels> split_{};  // children of a cell of each level above 0
  std::array<fast_div, max_levels> leaves_per_cell_{};
};

static_assert(CellTree<uniform_tree> && sizeof(uniform_tree) < 300);

APIARY_NAMESPACE_END
