// apiary/preempt/detail/smallest_n_sum.h - the sum of the n smallest of many numbers.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The sum of the n smallest numbers added so far, or of all of them if there are fewer.
//
// Cost: add O(1) for a number that does not change the sum, else O(log n); sum O(n); 8 bytes for
//       each of the n numbers.
class smallest_n_sum {
 public:
  // Begins a new sum, of the n smallest numbers.
  void clear(std::uint64_t n) noexcept {
    n_ = n;
    heap_.clear();
    below_ = n == 0 ? 0 : (std::numeric_limits<std::uint64_t>::max)();
  }
  void add(std::uint64_t x) {
    if (x < below_) insert(x);  // rare
  }
  [[nodiscard]] std::uint64_t sum() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t x : heap_) sum += x;
    return sum;
  }

 private:
  void insert(std::uint64_t x) {
    if (heap_.size() == n_) {
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.pop_back();
    }
    heap_.push_back(x);
    std::push_heap(heap_.begin(), heap_.end());
    if (heap_.size() == n_) below_ = heap_.front();
  }

  std::uint64_t n_ = 0;
  std::uint64_t below_ = 0;          // only smaller numbers change the sum
  std::vector<std::uint64_t> heap_;  // the greatest number first
};

}  // namespace detail
APIARY_NAMESPACE_END
