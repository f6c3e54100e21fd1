// apiary/tests/support/brute_force_guard.h - which allocations keep every reservation, by trying them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/topology/uniform_tree.h>

#include <cstdint>
#include <vector>

namespace apiary_test {

// At most 64 leaves, as bits of a word; no free lists, no counters kept between calls.
class brute_force_guard {
 public:
  using cell_id = apiary::cell_id;
  using level_t = apiary::level_t;

  explicit brute_force_guard(const apiary::uniform_tree& tree) : tree_(tree) {
    for (std::uint32_t i = 0; i < tree.num_cells(); ++i) {
      std::uint64_t mask = 0;
      for (const cell_id leaf : tree.descendants(cell_id(i), 0))
        mask |= std::uint64_t{1} << tree.index(leaf, 0);
      masks_.push_back(mask);
    }
  }

  // The leaves of c.
  [[nodiscard]] std::uint64_t mask(cell_id c) const { return masks_[c.value]; }

  // HiveD's invariant, as published: with f_k free cells of level k and
  // F_k = (f_(k+1) + F_(k+1) - reserved_(k+1)) * h_(k+1), reserved_k <= f_k + F_k for every k.
  [[nodiscard]] bool invariant(std::uint64_t taken,
                               const std::vector<std::uint32_t>& reserved) const {
    std::int64_t from_above = 0;
    for (level_t l = tree_.num_levels(); l-- > 0;) {
      std::int64_t here = 0;
      for (const cell_id c : tree_.cells(l)) {
        const cell_id above = tree_.parent(c, l);
        const bool whole_above = above.valid() && (mask(above) & taken) == 0;
        here += (mask(c) & taken) == 0 && !whole_above ? 1 : 0;
      }
      if (reserved[l] > here + from_above) return false;
      from_above = (here + from_above - reserved[l]) * tree_.fan_out(l);
    }
    return true;
  }

  // The cells of a level that can be allocated for a reservation: free, and afterwards the invariant
  // holds.
  [[nodiscard]] std::vector<cell_id> safe_cells(level_t level, std::uint64_t taken,
                                                std::vector<std::uint32_t> reserved) const {
    std::vector<cell_id> safe;
    if (reserved[level] == 0) return safe;
    --reserved[level];
    for (const cell_id c : tree_.cells(level))
      if ((mask(c) & taken) == 0 && invariant(taken | mask(c), reserved)) safe.push_back(c);
    return safe;
  }

 private:
  apiary::uniform_tree tree_;
  std::vector<std::uint64_t> masks_;
};

}  // namespace apiary_test
