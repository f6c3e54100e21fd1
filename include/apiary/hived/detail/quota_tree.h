// apiary/hived/detail/quota_tree.h - the virtual cells of a tenant in one chain, as a tree.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/fast_div.h>
#include <apiary/core/ids.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The tree of the virtual cells of a tenant in one chain: quota[l] whole cells (roots) of every
// level l, and all cells inside them. In each level the roots come last, so that parents and
// children are computed as in a uniform tree.
// Model:    HiveD (OSDI 2020) section 3.2: a virtual private cluster, without its bindings.
// Requires: quota.size() == chain.num_levels(), and no level has more cells than in the chain.
// Cost:     as uniform_tree; it stores nothing per cell.
class quota_tree {
 public:
  quota_tree(const uniform_tree& chain, std::span<const std::uint32_t> quota)
      : num_levels_(chain.num_levels()) {
    APIARY_VERIFY(quota.size() == num_levels_);
    std::uint64_t cells = 0;
    std::uint64_t width = 0;
    for (level_t l = num_levels_; l-- > 0;) {
      if (l + 1 < num_levels_) width *= chain.fan_out(l + 1);
      roots_[l] = static_cast<std::uint32_t>(width);
      width += quota[l];
      APIARY_VERIFY(width <= chain.cells(l).size());
      first_[l] = static_cast<std::uint32_t>(cells);
      cells += width;
      if (l > 0) split_[l] = fast_div(chain.fan_out(l));
      size_[l] = chain.leaves_per_cell(l);
    }
    num_cells_ = static_cast<std::uint32_t>(cells);
  }

  [[nodiscard]] level_t num_levels() const noexcept { return num_levels_; }
  [[nodiscard]] std::uint32_t num_cells() const noexcept { return num_cells_; }
  [[nodiscard]] std::uint32_t num_leaves() const noexcept { return num_cells_ - first_[0]; }
  [[nodiscard]] std::uint32_t leaves_per_cell(level_t l) const noexcept {
    APIARY_ASSERT(l < num_levels_);
    return size_[l];
  }
  [[nodiscard]] id_range<cell_id> cells(level_t l) const noexcept {
    APIARY_ASSERT(l < num_levels_);
    return {cell_id(first_[l]), cell_id(end(l))};
  }
  // The quota[l] whole cells of level l.
  [[nodiscard]] id_range<cell_id> roots(level_t l) const noexcept {
    APIARY_ASSERT(l < num_levels_);
    return {cell_id(first_[l] + roots_[l]), cell_id(end(l))};
  }
  [[nodiscard]] level_t level(cell_id c) const noexcept {
    APIARY_ASSERT(c.value < num_cells_);
    level_t l = 0;
    for (level_t k = 0; k + 1 < num_levels_; ++k) l += c.value < first_[k] ? 1U : 0U;
    return l;
  }
  // The parent of c, a cell of level l; not valid: c is a root.
  [[nodiscard]] cell_id parent(cell_id c, level_t l) const noexcept {
    const std::uint32_t i = index(c, l);
    if (i >= roots_[l]) return cell_id();
    return cell_id(first_[l + 1] + split_[l + 1].quotient(i));
  }
  // The children of c, a cell of level l; none at level 0.
  [[nodiscard]] id_range<cell_id> children(cell_id c, level_t l) const noexcept {
    if (l == 0) return {};
    const std::uint32_t n = split_[l].divisor();
    const std::uint32_t from = first_[l - 1] + index(c, l) * n;
    return {cell_id(from), cell_id(from + n)};
  }
  // The cell of level l around c. Requires: there is one.
  [[nodiscard]] cell_id ancestor(cell_id c, level_t l) const noexcept {
    for (level_t from = level(c); from < l; ++from) c = parent(c, from);
    APIARY_ASSERT(c.valid());
    return c;
  }
  // The cells of level l inside c. Requires: l is not above the level of c.
  [[nodiscard]] id_range<cell_id> descendants(cell_id c, level_t l) const noexcept {
    const level_t from = level(c);
    APIARY_ASSERT(l <= from);
    const std::uint32_t n = size_[from] / size_[l];
    const std::uint32_t begin = first_[l] + index(c, from) * n;
    return {cell_id(begin), cell_id(begin + n)};
  }
  // The position of c among the cells of its level l.
  [[nodiscard]] std::uint32_t index(cell_id c, level_t l) const noexcept {
    APIARY_ASSERT(cells(l).contains(c));
    return c.value - first_[l];
  }

 private:
  [[nodiscard]] std::uint32_t end(level_t l) const noexcept {
    return l == 0 ? num_cells_ : first_[l - 1];
  }

  level_t num_levels_ = 0;
  std::uint32_t num_cells_ = 0;
  std::array<std::uint32_t, uniform_tree::max_levels> first_{};  // first cell of each level
  std::array<std::uint32_t, uniform_tree::max_levels>
      roots_{};  // index of the first root of each level
  std::array<std::uint32_t, uniform_tree::max_levels> size_{};  // leaves of a cell of each level
  std::array<fast_div, uniform_tree::max_levels> split_{};      // children of a cell of each level
};

static_assert(CellTree<quota_tree>);

}  // namespace detail
APIARY_NAMESPACE_END
