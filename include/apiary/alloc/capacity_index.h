// apiary/alloc/capacity_index.h - free GPUs of each node, counted in each cell above the nodes.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/topology/tree.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Keeps the number of free leaves (GPUs) of each node. For each cell above the nodes it also keeps
// a histogram of its nodes by free leaves and, for each task size t, the number of slots: how many
// tasks of t leaves fit, the sum of floor(free / t) over the nodes. Gang searches read it.
//
// The host decides which leaves count as free: for example those that a priority may use, and none
// on a bad node. Nodes and cells are numbered 0, 1, ... within their level. The level above the
// roots, num_levels(), has one cell, which contains everything.
//
// Requires: 0 <= node_level < num_levels, at most 64 leaves a node.
// Cost:     set O(levels * (1 + sizes whose slots change)); first_node O(log64 nodes); others O(1),
//           but for the constructor and assign().
//           Memory for each leaf of a node: 8 bytes for each cell, 65/64 bits for each node.
template <CellTree Tree>
class capacity_index {
 public:
  // No node has a free leaf. max_free: the most leaves that a node may have free, 1 to 64.
  capacity_index(Tree tree, level_t node_level, std::uint32_t max_free)
      : tree_(std::move(tree)), node_level_(node_level), max_free_(max_free) {
    APIARY_VERIFY(node_level < tree_.num_levels() && max_free >= 1 && max_free <= 64);
    free_.resize(num_cells(node_level));
    APIARY_VERIFY(std::uint64_t{num_nodes()} * (max_free + 1) < summary_bitset::npos - 63);
    for (std::uint32_t f = 0; f <= max_free; ++f)
      for (std::uint32_t t = 1; t <= max_free; ++t) slots_of_.push_back(f / t);
    levels_.resize(std::size_t{top()} - node_level);
    count();
  }

  // The tree of the cluster.
  [[nodiscard]] const Tree& tree() const noexcept { return tree_; }
  // The level of the nodes.
  [[nodiscard]] level_t node_level() const noexcept { return node_level_; }
  // The level above the roots, whose one cell contains everything.
  [[nodiscard]] level_t top() const noexcept { return tree_.num_levels(); }
  // The most leaves that a node may have free.
  [[nodiscard]] std::uint32_t max_free() const noexcept { return max_free_; }
  // The number of nodes.
  [[nodiscard]] std::uint32_t num_nodes() const noexcept {
    return static_cast<std::uint32_t>(free_.size());
  }
  // How many cells level l has; 1 for top().
  [[nodiscard]] std::uint32_t num_cells(level_t l) const noexcept {
    return detail::num_positions(tree_, l);
  }
  // The cells of level `below` <= l in cell c of level l, by their positions in the level.
  [[nodiscard]] id_range<cell_id> inside(level_t l, std::uint32_t c, level_t below) const noexcept {
    APIARY_ASSERT(below <= l);
    return detail::positions_inside(tree_, l, c, below);
  }
  // The nodes in cell c of level l, by their positions in the level.
  [[nodiscard]] id_range<cell_id> nodes(level_t l, std::uint32_t c) const noexcept {
    return inside(l, c, node_level_);
  }

  // Free leaves of a node.
  [[nodiscard]] std::uint32_t free(std::uint32_t node) const noexcept { return free_[node]; }
  // Free leaves of each node.
  [[nodiscard]] std::span<const std::uint32_t> free() const noexcept { return free_; }
  // Free leaves of all nodes in cell c of level l.
  [[nodiscard]] std::uint32_t free(level_t l, std::uint32_t c) const noexcept {
    return l == node_level_ ? free_[c] : slots(l, 1)[c];
  }
  // How many nodes of cell c have 0, ..., max_free() free leaves. Requires: l > node_level().
  [[nodiscard]] std::span<const std::uint32_t> histogram(level_t l,
                                                         std::uint32_t c) const noexcept {
    APIARY_ASSERT(l > node_level_ && l <= top());
    return {above(l).histograms.data() + std::size_t{c} * (max_free_ + 1),
            std::size_t{max_free_} + 1};
  }
  // For each cell of level l, how many tasks of `leaves` leaves fit on its nodes.
  // Requires: l > node_level(), 1 <= leaves <= max_free().
  [[nodiscard]] std::span<const std::uint32_t> slots(level_t l,
                                                     std::uint32_t leaves) const noexcept {
    APIARY_ASSERT(l > node_level_ && l <= top() && leaves >= 1 && leaves <= max_free_);
    const level& at = above(l);
    return {at.slots.data() + std::size_t{leaves - 1} * at.cells, at.cells};
  }
  // The first node at or after `from` with exactly `free` free leaves; npos if there is none.
  [[nodiscard]] std::uint32_t first_node(std::uint32_t free, std::uint32_t from) const noexcept {
    const std::uint32_t base = free * num_nodes();
    const std::uint32_t i = with_free_.find_next(base + from);
    return i < base + num_nodes() ? i - base : summary_bitset::npos;
  }

  // Sets the free leaves of every node. Cost: O(nodes + cells * max_free^2): for clusters of many
  // nodes a fraction of what set() takes for each of them.
  void assign(std::span<const std::uint32_t> free) {
    APIARY_ASSERT(free.size() == free_.size());
    free_.assign(free.begin(), free.end());
    count();
  }
  // Sets the free leaves of a node. Returns the previous number.
  std::uint32_t set(std::uint32_t node, std::uint32_t free) noexcept {
    APIARY_ASSERT(node < num_nodes() && free <= max_free_);
    const std::uint32_t from = std::exchange(free_[node], free);
    if (from == free) return from;
    with_free_.reset(from * num_nodes() + node);
    with_free_.set(free * num_nodes() + node);
    const std::uint32_t high = from < free ? free : from;
    const std::uint32_t* const before = slots_of_.data() + std::size_t{from} * max_free_;
    const std::uint32_t* const now = slots_of_.data() + std::size_t{free} * max_free_;
    cell_id c = tree_.cells(node_level_)[node];
    for (level_t l = node_level_; l < top(); ++l) {
      level& at = levels_[l - node_level_];
      c = tree_.parent(c, l);
      const std::uint32_t i = l + 1 == top() ? 0 : c.value - tree_.cells(l + 1).first.value;
      --at.histograms[std::size_t{i} * (max_free_ + 1) + from];
      ++at.histograms[std::size_t{i} * (max_free_ + 1) + free];
      for (std::uint32_t t = 1; t <= high; ++t)
        at.slots[std::size_t{t - 1} * at.cells + i] += now[t - 1] - before[t - 1];
    }
    return from;
  }

 private:
  struct level {
    std::uint32_t cells = 0;
    std::vector<std::uint32_t> histograms;  // by cell and free leaves
    std::vector<std::uint32_t> slots;       // by leaves of a task and cell
  };
  [[nodiscard]] const level& above(level_t l) const noexcept {
    return levels_[l - node_level_ - 1];
  }
  // Counts everything from the free leaves of the nodes.
  void count() {
    with_free_ = summary_bitset(num_nodes() * (max_free_ + 1));
    for (std::uint32_t n = 0; n < num_nodes(); ++n) with_free_.set(free_[n] * num_nodes() + n);
    for (level_t l = node_level_ + 1; l <= top(); ++l) {
      level& at = levels_[l - node_level_ - 1];
      at.cells = num_cells(l);
      at.histograms.assign(std::size_t{at.cells} * (max_free_ + 1), 0);
      at.slots.assign(std::size_t{at.cells} * max_free_, 0);
      for (std::uint32_t c = 0; c < at.cells; ++c) {
        std::uint32_t* const nodes_with = at.histograms.data() + std::size_t{c} * (max_free_ + 1);
        for (const cell_id below : inside(l, c, l - 1)) {
          if (l == node_level_ + 1) {
            ++nodes_with[free_[below.value]];
            continue;
          }
          const std::span<const std::uint32_t> part = histogram(l - 1, below.value);
          for (std::size_t f = 0; f < part.size(); ++f) nodes_with[f] += part[f];
        }
        for (std::uint32_t f = 1; f <= max_free_; ++f)
          for (std::uint32_t t = 1; t <= f && nodes_with[f] > 0; ++t)
            at.slots[std::size_t{t - 1} * at.cells + c] += nodes_with[f] * (f / t);
      }
    }
  }

  Tree tree_;
  level_t node_level_;
  std::uint32_t max_free_;
  std::vector<std::uint32_t> free_;      // of each node
  summary_bitset with_free_;             // free * nodes + node
  std::vector<std::uint32_t> slots_of_;  // free * max_free + leaves - 1: free / leaves
  std::vector<level> levels_;            // from the one above the nodes up
};

APIARY_NAMESPACE_END
