// apiary/preempt/detail/bounded_cells.h - cells of a level in the order of their lower bounds.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The cells of a level, to be searched in ascending order of their lower bounds until no bound is
// below the best cost so far. It also keeps the least bound of all cells: no answer costs less.
//
// Cost: begin O(cells), next O(log cells), least_bound O(cells).
class bounded_cells {
 public:
  static constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();
  using cell =
      keyed_number;  // its index in the level; no answer in the cell costs less than its key

  void clear() noexcept {
    order_.clear();
    searched_.clear();
  }
  // Begins with the cells whose bound is below `below`.
  void begin(std::span<const std::uint64_t> bounds, std::uint64_t below) {
    clear();
    for (std::uint32_t c = 0; c < bounds.size(); ++c)
      if (bounds[c] < below) order_.push_back({bounds[c], c});
    keyed_number::make_heap(order_);
  }
  // Takes the cell with the least bound, if that is below `below`; whether there is one. After its
  // search the caller appends it to searched(), with the bound that the search has proved.
  bool next(cell& at, std::uint64_t below) {
    if (order_.empty() || order_.front().key >= below) return false;
    at = keyed_number::pop(order_);
    return true;
  }
  [[nodiscard]] std::vector<cell>& searched() noexcept { return searched_; }
  // The least bound of all cells, searched or not; `never` if there are none.
  [[nodiscard]] std::uint64_t least_bound() const noexcept {
    std::uint64_t least = never;
    for (const cell& c : order_) least = (std::min)(least, c.key);
    for (const cell& c : searched_) least = (std::min)(least, c.key);
    return least;
  }

 private:
  std::vector<cell> order_;  // a heap of the cells that are not searched
  std::vector<cell> searched_;
};

}  // namespace detail
APIARY_NAMESPACE_END
