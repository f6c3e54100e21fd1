// apiary/topology/ragged_tree.h - a cell tree in which cells of a level have different fan-outs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/topology/detail/shared_array.h>
#include <apiary/topology/tree.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A tree of cells for clusters whose nodes or racks differ. It is given level by level from the
// top; each level lists the number of children of each cell of the level above. For example
// {{2}, {1, 3}, {4, 2, 2, 2}} has 2 roots; the first has 1 node, the second 3; the nodes have 4, 2,
// 2 and 2 leaves. The tree is immutable and copies share their storage, so hold it by value.
//
// Requires: 1 to 10 levels, as many fan-outs in a level as the level above has cells, all >= 1,
//           fewer than 2^31 cells in all (topology/named_tree.h checks user input).
// Cost:     as in the table of CellTree. Memory: 8 bytes for each cell above the leaves, 4 bytes
//           for each leaf.
// Example:  examples/cell_trees.cpp
class ragged_tree : public detail::level_order {
 public:
  // fan_outs: for each level from the top, the children of each cell of the level above.
  explicit ragged_tree(const std::vector<std::vector<std::uint32_t>>& fan_outs)
      : level_order(fan_outs.size()) {
    std::uint64_t width = 1;  // cells of the level above; there is one virtual cell above the roots
    for (std::uint32_t i = 0; i < num_levels_; ++i) {
      APIARY_VERIFY(fan_outs[i].size() == width);
      width = 0;
      for (const std::uint32_t n : fan_outs[i]) {
        APIARY_VERIFY(n >= 1);
        width += n;
      }
      add_level(num_levels_ - 1 - i, width);
    }

    std::vector<std::uint32_t> links(std::size_t{num_cells_} + first_[0] + 1);
    std::uint32_t* const parent = links.data();
    std::uint32_t* const first_child = parent + num_cells_;
    std::uint32_t c = 0;
    while (c < fan_outs[0][0]) parent[c++] = cell_id().value;
    std::uint32_t p = 0;
    for (std::uint32_t i = 1; i < num_levels_; ++i) {
      for (const std::uint32_t n : fan_outs[i]) {
        first_child[p] = c;
        for (std::uint32_t k = 0; k < n; ++k) parent[c++] = p;
        ++p;
      }
    }
    first_child[p] = c;
    links_ = detail::shared_array(std::move(links));
    parent_ = links_.data();
    first_child_ = parent_ + num_cells_;
  }

  // The cell of the next level that contains c.
  [[nodiscard]] cell_id parent(cell_id c, level_t l) const noexcept {
    APIARY_ASSERT(cells(l).contains(c));
    static_cast<void>(l);
    return cell_id(parent_[c.value]);
  }
  // The cells of the level below that c contains; none for a leaf.
  [[nodiscard]] id_range<cell_id> children(cell_id c, level_t l) const noexcept {
    APIARY_ASSERT(cells(l).contains(c));
    if (l == 0) return {};
    return {cell_id(first_child_[c.value]), cell_id(first_child_[c.value + 1])};
  }
  // The cell of level l that contains c.
  [[nodiscard]] cell_id ancestor(cell_id c, level_t l) const noexcept {
    level_t at = level(c);
    APIARY_ASSERT(at <= l && l < num_levels_);
    for (; at < l; ++at) c = cell_id(parent_[c.value]);
    return c;
  }
  // The cells of level l that c contains.
  [[nodiscard]] id_range<cell_id> descendants(cell_id c, level_t l) const noexcept {
    level_t at = level(c);
    APIARY_ASSERT(l <= at);
    std::uint32_t begin = c.value;
    std::uint32_t end = c.value + 1;
    for (; at > l; --at) {
      begin = first_child_[begin];
      end = first_child_[end];
    }
    return {cell_id(begin), cell_id(end)};
  }

 private:
  detail::shared_array<std::uint32_t> links_;   // the array that the two pointers below point into
  const std::uint32_t* parent_ = nullptr;       // of each cell
  const std::uint32_t* first_child_ = nullptr;  // of each cell above the leaves, and an end entry
};

static_assert(CellTree<ragged_tree>);

APIARY_NAMESPACE_END
