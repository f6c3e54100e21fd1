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
// Requires: 1 to 10 levels, every fan-out >= 1, fewer than 2^31 cells in all (topology/named_tree.h
//           checks user input).
// Cost:     as in the table of CellTree; parent takes one multiplication.
// Example:  examples/cell_trees.cpp
class uniform_tree {
 public:
  // The most levels that a tree can have.
  static constexpr level_t max_levels = 10;

  // fan_outs: one for each level, from the top.
  explicit uniform_tree(std::span<const std::uint32_t> fan_outs)
      : num_levels_(static_cast<level_t>(fan_outs.size())) {
    APIARY_VERIFY(num_levels_ >= 1 && num_levels_ <= max_levels);
    std::uint64_t cells = 0;
    std::uint64_t width = 1;
    for (std::uint32_t i = 0; i < num_levels_; ++i) {
      const level_t l = num_levels_ - 1 - i;
      first_[l] = static_cast<std::uint32_t>(cells);
      APIARY_VERIFY(fan_outs[i] >= 1);
      width *= fan_outs[i];
      cells += width;
      APIARY_VERIFY(cells < (std::uint64_t{1} << 31));
      if (i > 0) split_[l + 1] = fast_div(fan_outs[i]);
    }
    num_cells_ = static_cast<std::uint32_t>(cells);
    leaves_per_cell_[0] = fast_div(1);
    for (level_t l = 1; l < num_levels_; ++l) {
      leaves_per_cell_[l] = fast_div(leaves_per_cell_[l - 1].divisor() * fan_out(l));
    }
  }
  // The same, with a list of fan-outs.
  explicit uniform_tree(std::initializer_list<std::uint32_t> fan_outs)
      : uniform_tree(std::span<const std::uint32_t>(fan_outs.begin(), fan_outs.size())) {}

  // The number of levels.
  [[nodiscard]] level_t num_levels() const noexcept { return num_levels_; }
  // The number of cells of all levels.
  [[nodiscard]] std::uint32_t num_cells() const noexcept { return num_cells_; }
  // The number of cells of level 0.
  [[nodiscard]] std::uint32_t num_leaves() const noexcept { return num_cells_ - first_[0]; }
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

  // The cells of level l.
  [[nodiscard]] id_range<cell_id> cells(level_t l) const noexcept {
    APIARY_ASSERT(l < num_levels_);
    return {cell_id(first_[l]), cell_id(end(l))};
  }
  // The i-th cell of level l. Requires: level l has more than i cells.
  [[nodiscard]] cell_id at(level_t l, std::uint32_t i) const noexcept { return cells(l)[i]; }
  // The position of c in its level l: at(l, index(c, l)) == c.
  [[nodiscard]] std::uint32_t index(cell_id c, level_t l) const noexcept {
    APIARY_ASSERT(cells(l).contains(c));
    return c.value - first_[l];
  }

  // The level of c.
  [[nodiscard]] level_t level(cell_id c) const noexcept {
    APIARY_ASSERT(c.value < num_cells_);
    level_t l = 0;  // no early exit: a mispredicted branch costs more than the comparisons
    for (level_t k = 0; k + 1 < num_levels_; ++k) l += c.value < first_[k] ? 1U : 0U;
    return l;
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
  [[nodiscard]] std::uint32_t end(level_t l) const noexcept {
    return l == 0 ? num_cells_ : first_[l - 1];
  }

  level_t num_levels_ = 0;
  std::uint32_t num_cells_ = 0;
  std::array<std::uint32_t, max_levels> first_{};  // first cell of each level
  std::array<fast_div, max_levels> split_{};       // children of a cell of each level above 0
  std::array<fast_div, max_levels> leaves_per_cell_{};
};

static_assert(CellTree<uniform_tree> && sizeof(uniform_tree) < 300);

APIARY_NAMESPACE_END
