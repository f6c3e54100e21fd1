// apiary/preempt/detail/incremental_sort.h - numbers by price, of which only the cheapest are looked at.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Gives numbers below n in ascending order of price, of equal prices the lowest number first. They
// are picked out and sorted a batch at a time, the cheapest first, each batch about four times the
// last one; a sample says where it ends. Nothing is kept of the others: they are asked again.
//
// Model:    incremental sorting (Paredes, Navarro, ALENEX 2006). Differs: one pivot a batch, from a
//           sample.
// Requires: top() gets the same prices until the next begin().
// Cost:     to take k: for each batch n prices asked for, O(k log k) in all; 16 bytes an entry of a
//           batch.
class incremental_sort {
 public:
  struct entry {
    std::uint64_t price = 0;
    std::uint32_t number = 0;
    friend constexpr bool operator<(const entry& a, const entry& b) noexcept {
      return a.price != b.price ? a.price < b.price : a.number < b.number;
    }
    friend constexpr bool operator==(const entry&, const entry&) noexcept = default;
  };
  // The price of what is left out.
  static constexpr std::uint64_t never = ~std::uint64_t{0};

  // Starts anew, with the numbers 0, ..., n-1.
  void begin(std::uint32_t n) noexcept {
    n_ = n;
    batch_.clear();
    taken_.reset();
    next_batch_ = first_batch;
    all_ = false;
  }
  // The cheapest one, nullptr when there is none. price(number) -> std::uint64_t.
  template <class Price>
  [[nodiscard]] const entry* top(const Price& price) {
    if (batch_.empty() && !all_) sort_batch(price);
    return batch_.empty() ? nullptr : &batch_.back();
  }
  // Requires: top() has been called since the last pop(), and there was one.
  void pop() noexcept { batch_.pop_back(); }

 private:
  static constexpr std::size_t first_batch = 128;
  static constexpr std::uint32_t sample_size = 256;

  template <class Price>
  void sort_batch(const Price& price) {
    entry last{never, 0};
    std::array<entry, sample_size> sample;
    std::size_t sampled = 0;
    for (std::uint32_t i = 0; i < sample_size && n_ > sample_size; ++i) {
      const auto number = static_cast<std::uint32_t>(std::uint64_t{i} * n_ / sample_size);
      const entry e{price(number), number};
      if (is_left(e)) sample[sampled++] = e;
    }
    // Of those that are left as many as the sample says; all of them if the batch is the rest.
    const std::size_t at = next_batch_ * sample_size / std::max(n_, 1U);
    all_ = at >= sampled;
    if (!all_) {
      std::nth_element(sample.begin(), sample.begin() + static_cast<std::ptrdiff_t>(at),
                       sample.begin() + static_cast<std::ptrdiff_t>(sampled));
      last = sample[at];
    }
    for (std::uint32_t i = 0; i < n_; ++i) {
      const entry e{price(i), i};
      // One branch, seldom taken while batches are small, even where many prices are equal.
      const bool before = (e.price < last.price) | ((e.price == last.price) & (i < last.number));
      if (before && is_left(e)) batch_.push_back(e);
    }
    if (!all_) batch_.push_back(last);
    taken_ = last;
    next_batch_ *= 4;
    std::sort(batch_.begin(), batch_.end(), [](const entry& a, const entry& b) { return b < a; });
  }
  [[nodiscard]] bool is_left(const entry& e) const noexcept {
    return e.price != never && (!taken_ || *taken_ < e);
  }

  std::uint32_t n_ = 0;
  std::vector<entry> batch_;    // the cheapest last
  std::optional<entry> taken_;  // the last of all batches so far
  std::size_t next_batch_ = first_batch;
  bool all_ = false;  // no batch is to come
};

}  // namespace detail
APIARY_NAMESPACE_END
