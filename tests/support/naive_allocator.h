// apiary/tests/support/naive_allocator.h - allocation of cells by definition, without free lists.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/bitset.h>
#include <apiary/core/ids.h>
#include <apiary/topology/tree.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace apiary_test {

// Knows the live cells only; everything else is found by looking at all of the tree.
template <apiary::CellTree Tree>
class naive_allocator {
 public:
  using cell_id = apiary::cell_id;
  using level_t = apiary::level_t;

  explicit naive_allocator(Tree tree) : tree_(std::move(tree)), taken_(tree_.num_cells(), 0) {}

  // No leaf of c is in a live cell.
  [[nodiscard]] bool is_empty(cell_id c) const {
    for (const cell_id leaf : tree_.descendants(c, 0))
      if (taken_[leaf.value] != 0) return false;
    return true;
  }
  // c is empty and the cell above it is not.
  [[nodiscard]] bool is_free(cell_id c) const {
    const cell_id above = tree_.parent(c, tree_.level(c));
    return is_empty(c) && (!above.valid() || !is_empty(above));
  }
  // The level of the largest empty cell that contains c.
  [[nodiscard]] std::optional<level_t> enclosing_free_level(cell_id c) const {
    std::optional<level_t> found;
    for (level_t l = tree_.level(c); c.valid(); c = tree_.parent(c, l++))
      if (is_empty(c)) found = l;
    return found;
  }
  [[nodiscard]] std::uint32_t free_count(level_t l) const {
    std::uint32_t n = 0;
    for (const cell_id c : tree_.cells(l)) n += is_free(c) ? 1U : 0U;
    return n;
  }
  [[nodiscard]] bool is_live(cell_id c) const {
    for (const cell_id l : live_)
      if (l == c) return true;
    return false;
  }

  // Of all usable cells of the level inside free cells of level <= highest: the one in the lowest
  // free cell, then of least cost, then of least id.
  template <class Cost>
  [[nodiscard]] std::optional<cell_id> find(level_t level, level_t highest,
                                            const apiary::summary_bitset* usable,
                                            const Cost& cost) const {
    std::optional<cell_id> best;
    std::pair<level_t, std::uint32_t> least;
    for (const cell_id c : tree_.cells(level)) {
      const std::optional<level_t> from = enclosing_free_level(c);
      if (!from || *from > highest || (usable != nullptr && !usable->test(c.value))) continue;
      const std::pair<level_t, std::uint32_t> price(*from, cost(c));
      if (best && price >= least) continue;
      best = c;
      least = price;
    }
    return best;
  }

  std::optional<cell_id> allocate(level_t level) {
    const auto c = find(level, ~level_t{0}, nullptr, [](cell_id) { return 0U; });
    if (c) grant(*c);
    return c;
  }
  bool allocate_at(cell_id c) {
    if (!is_empty(c)) return false;
    grant(c);
    return true;
  }
  void release(cell_id c) {
    std::erase(live_, c);
    for (const cell_id leaf : tree_.descendants(c, 0)) taken_[leaf.value] = 0;
  }

  [[nodiscard]] const std::vector<cell_id>& live() const { return live_; }

 private:
  void grant(cell_id c) {
    live_.push_back(c);
    for (const cell_id leaf : tree_.descendants(c, 0)) taken_[leaf.value] = 1;
  }

  Tree tree_;
  std::vector<char> taken_;  // by leaf
  std::vector<cell_id> live_;
};

}  // namespace apiary_test
