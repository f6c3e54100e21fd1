// apiary/preempt/detail/incremental_sort.h - numbers by ascending price, sorted in batches.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Gives the numbers below n in ascending order of price; among equal prices the lowest number
// first. It sorts one batch at a time, the cheapest numbers first. Each batch is about four times
// as large as the one before; a sample decides where it ends. It keeps no prices of the other
// numbers: it asks for them again.
//
// Model:    incremental sorting (Paredes, Navarro, ALENEX 2006). Differs: one pivot a batch, from a
//           sample.
// Requires: top() gets the same prices until the next begin().
// Cost:     for the first k numbers: n prices for each batch, and O(k log k) in all; 16 bytes an
//           entry of a batch.
class incremental_sort {
 public:
  using entry = keyed_number;  // a number with its price
  // The price of numbers to leave out.
  static constexpr std::uint64_t never = ~std::uint64_t{0};

  // Begins again, with the numbers 0, ..., n-1.
  void begin(std::uint32_t n) noexcept {
    n_ = n;
    batch_.clear();
    taken_.reset();
    next_batch_ = first_batch;
    all_ = false;
  }
  // The cheapest number that is left, nullptr if there is none. price(number) -> std::uint64_t.
  template <class Price>
  [[nodiscard]] const entry* top(const Price& price) {
    if (batch_.empty() && !all_) sort_batch(price);
    return batch_.empty() ? nullptr : &batch_.back();
  }
  // Operations since the last call.
  [[nodiscard]] std::uint64_t take_work() noexcept { return std::exchange(work_, 0); }
  // Removes it. Requires: top() has been called since the last pop() and was not nullptr.
  void pop() noexcept { batch_.pop_back(); }

 private:
  static constexpr std::size_t first_batch = 128;
  static constexpr std::uint32_t sample_size = 256;
  static constexpr std::uint32_t prices_of_work = 8;

  template <class Price>
  void sort_batch(const Price& price) {
    for (std::uint32_t i = 0; i < sample_size && n_ > sample_size; ++i) {
      const auto number = static_cast<std::uint32_t>(std::uint64_t{i} * n_ / sample_size);
      const entry e{price(number), number};
      if (is_left(e)) batch_.push_back(e);
    }
    const entry last = end_of_batch();
    for (std::uint32_t i = 0; i < n_; ++i) {
      const entry e{price(i), i};
      // One branch, rarely taken while batches are small, even if many prices are equal.
      const bool before = (e.key < last.key) | ((e.key == last.key) & (i < last.number));
      if (before && is_left(e)) batch_.push_back(e);
    }
    if (!all_) batch_.push_back(last);
    taken_ = last;
    next_batch_ *= 4;
    work_ += n_ / prices_of_work + 2 * batch_.size();
    keyed_number::sort(batch_);
    std::reverse(batch_.begin(), batch_.end());
  }
  // The last number of the next batch, from the sample in batch_, which becomes empty. The batch
  // has as many of the numbers that are left as the sample says; the last batch has all of them.
  entry end_of_batch() {
    const std::size_t at = next_batch_ * sample_size / (std::max)(n_, 1U);
    all_ = at >= batch_.size();
    entry last{never, 0};
    if (!all_) {
      keyed_number::sort(batch_);
      last = batch_[at];
    }
    batch_.clear();
    return last;
  }
  [[nodiscard]] bool is_left(const entry& e) const noexcept {
    return e.key != never && (!taken_ || *taken_ < e);
  }

  std::uint32_t n_ = 0;
  lean_vector<entry> batch_;    // the cheapest entry last
  std::optional<entry> taken_;  // the last of all batches so far
  std::size_t next_batch_ = first_batch;
  std::uint64_t work_ = 0;
  bool all_ = false;  // this is the last batch
};

}  // namespace detail
APIARY_NAMESPACE_END
