// apiary/core/lazy_order.h - numbers by price, of which only the cheapest are looked at.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Gives entries in ascending order of price, of equal ones the lowest number first. They are sorted
// a batch at a time, the cheapest first, each batch about four times the last one; a sample says
// where it ends.
//
// Model: incremental sorting (Paredes, Navarro, ALENEX 2006). Differs: one pivot a batch, from a
//        sample.
// Cost:  of n entries, to take k: O(n) a batch, O(k log k) in all; 32 bytes an entry.
class lazy_order {
 public:
  struct entry {
    std::uint64_t price = 0;
    std::uint32_t number = 0;
    friend constexpr bool operator<(const entry& a, const entry& b) noexcept {
      return a.price != b.price ? a.price < b.price : a.number < b.number;
    }
    friend constexpr bool operator==(const entry&, const entry&) noexcept = default;
  };

  // Starts anew, with room for n entries.
  void clear(std::size_t n) {
    if (rest_.size() < n) rest_.resize(n);
    rest_size_ = 0;
    batch_size_ = 0;
    next_batch_ = first_batch;
  }
  // Requires: nothing has been taken yet, and there is room.
  void add(std::uint64_t price, std::uint32_t number) noexcept {
    APIARY_ASSERT(rest_size_ < rest_.size());
    rest_[rest_size_++] = {price, number};
  }

  [[nodiscard]] bool empty() const noexcept { return batch_size_ == 0 && rest_size_ == 0; }
  // The cheapest one. Requires: !empty().
  [[nodiscard]] const entry& top() {
    if (batch_size_ == 0) sort_batch();
    return batch_[batch_size_ - 1];
  }
  // Requires: top() has been called since the last pop().
  void pop() noexcept { --batch_size_; }

 private:
  static constexpr std::size_t first_batch = 128;
  static constexpr std::size_t sample_size = 256;

  void sort_batch() {
    APIARY_ASSERT(rest_size_ > 0);
    if (batch_.size() < rest_.size()) batch_.resize(rest_.size());
    entry last = rest_[0];
    const bool all = rest_size_ <= sample_size || rest_size_ <= next_batch_;
    if (!all) {
      std::array<entry, sample_size> sample;
      for (std::size_t i = 0; i < sample_size; ++i) sample[i] = rest_[i * rest_size_ / sample_size];
      const std::size_t at = next_batch_ * sample_size / rest_size_;
      std::nth_element(sample.begin(), sample.begin() + static_cast<std::ptrdiff_t>(at),
                       sample.end());
      last = sample[at];
    }
    for (std::size_t i = 0; i < rest_size_;) {
      if (!all && last < rest_[i]) {
        ++i;  // nearly always, while batches are small
      } else {
        batch_[batch_size_++] = rest_[i];
        rest_[i] = rest_[--rest_size_];
      }
    }
    next_batch_ *= 4;
    std::sort(batch_.begin(), batch_.begin() + static_cast<std::ptrdiff_t>(batch_size_),
              [](const entry& a, const entry& b) { return b < a; });
  }

  std::vector<entry> rest_;   // the first rest_size_
  std::vector<entry> batch_;  // the first batch_size_, the cheapest last
  std::size_t rest_size_ = 0;
  std::size_t batch_size_ = 0;
  std::size_t next_batch_ = first_batch;
};

APIARY_NAMESPACE_END
