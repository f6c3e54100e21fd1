// apiary/preempt/detail/bounded_cells.h - cells of a level in the order of what a search can find there.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Cells that are searched one after the other, the one of the least bound first, until no bound is
// below the best cost so far; and what no answer costs less than, in any of them.
//
// Cost: begin O(cells), next O(log), least O(cells).
class bounded_cells {
 public:
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();
  struct cell {
    std::uint64_t bound = 0;
    std::uint32_t number = 0;
  };

  void clear() noexcept {
    order_.clear();
    searched_.clear();
  }
  // The cells with a bound below that.
  void begin(std::span<const std::uint64_t> bounds, std::uint64_t below) {
    clear();
    for (std::uint32_t c = 0; c < bounds.size(); ++c)
      if (bounds[c] < below) order_.push_back({bounds[c], c});
    std::make_heap(order_.begin(), order_.end(), after);
  }
  // The next cell with a bound below that; whether there is one. It counts again once it is put
  // among those searched, with the bound that the search proved.
  bool next(cell& at, std::uint64_t below) {
    if (order_.empty() || order_.front().bound >= below) return false;
    at = order_.front();
    std::pop_heap(order_.begin(), order_.end(), after);
    order_.pop_back();
    return true;
  }
  [[nodiscard]] std::vector<cell>& searched() noexcept { return searched_; }
  // Of all bounds, of cells searched and others; never if there are none.
  [[nodiscard]] std::uint64_t least() const noexcept {
    std::uint64_t least = never;
    for (const cell& c : order_) least = std::min(least, c.bound);
    for (const cell& c : searched_) least = std::min(least, c.bound);
    return least;
  }

 private:
  static bool after(const cell& a, const cell& b) noexcept {
    return a.bound != b.bound ? a.bound > b.bound : a.number > b.number;
  }

  std::vector<cell> order_;  // a heap of the cells that are not searched
  std::vector<cell> searched_;
};

}  // namespace detail
APIARY_NAMESPACE_END
