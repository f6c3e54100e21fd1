// apiary/container/bitset.h - a set of small integers that finds the next member fast.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// A subset of {0, ..., size-1} with summary bits: bit i of a summary level tells whether word i of
// the level below has a member. So a search for the next member skips empty ranges.
//
// Model: a 64-ary van-Emde-Boas-like trie of words, at most six levels.
// Cost:  test O(1); set, reset, find O(log64 size); memory size * 65/64 bits.
class summary_bitset {
 public:
  // "No member".
  static constexpr std::uint32_t npos = ~std::uint32_t{0};
  // A set of size 0.
  summary_bitset() noexcept = default;
  // The empty set, or the full set if `value` is true. Requires: size < npos - 63.
  explicit summary_bitset(std::uint32_t size, bool value = false) : size_(size) {
    APIARY_ASSERT(size < npos - 63);
    std::uint32_t bits = size;
    std::size_t total = 0;
    do {
      first_[depth_++] = total;
      bits = bits / 64 + (bits % 64 != 0 ? 1 : 0);
      total += bits;
    } while (bits > 1 || depth_ < 2);
    words_.resize(total);
    if (value) fill();
  }

  // A copy is an independent set.
  summary_bitset(const summary_bitset&) = default;
  // Makes this set a copy of the other one.
  summary_bitset& operator=(const summary_bitset&) = default;
  // A moved-from set has size 0.
  summary_bitset(summary_bitset&& other) noexcept { *this = std::move(other); }
  // Takes the members of the other set, which then has size 0.
  summary_bitset& operator=(summary_bitset&& other) noexcept {
    words_ = std::exchange(other.words_, {});
    first_ = other.first_;
    depth_ = std::exchange(other.depth_, 0);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  // Members are below this number.
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  // Whether there is a member.
  [[nodiscard]] bool any() const noexcept { return !words_.empty() && words_.back() != 0; }
  // Whether the set is empty.
  [[nodiscard]] bool none() const noexcept { return !any(); }
  // Whether every number below size() is a member.
  [[nodiscard]] bool all() const noexcept { return all_of(0, size_); }
  // The number of members. Cost: O(size / 64).
  [[nodiscard]] std::uint32_t count() const noexcept { return count_of(0, size_); }

  // Whether i is a member.
  [[nodiscard]] bool test(std::uint32_t i) const noexcept {
    APIARY_ASSERT(i < size_);
    return (words_[i / 64] >> (i % 64) & 1) != 0;
  }

  // Adds i. No effect if it is a member.
  void set(std::uint32_t i) noexcept {
    APIARY_ASSERT(i < size_);
    words_[i / 64] |= bit(i);
    announce(i / 64);
  }
  // Removes i. No effect if it is not a member.
  void reset(std::uint32_t i) noexcept {
    APIARY_ASSERT(i < size_);
    words_[i / 64] &= ~bit(i);
    update(i / 64);
  }
  // Adds i if value is true, otherwise removes it.
  void assign(std::uint32_t i, bool value) noexcept { value ? set(i) : reset(i); }
  // Adds first, ..., last-1. Cost: O((last - first) / 64 + log64 size).
  void set_range(std::uint32_t first, std::uint32_t last) noexcept {
    APIARY_ASSERT(first <= last && last <= size_);
    for (; first < last; first = (first / 64 + 1) * 64) {
      words_[first / 64] |= range_mask(first, last);
      announce(first / 64);
    }
  }
  // Removes first, ..., last-1. Cost: O((last - first) / 64 + log64 size).
  void reset_range(std::uint32_t first, std::uint32_t last) noexcept {
    APIARY_ASSERT(first <= last && last <= size_);
    for (; first < last; first = (first / 64 + 1) * 64) {
      words_[first / 64] &= ~range_mask(first, last);
      update(first / 64);
    }
  }

  // Makes the set one of {0, ..., size-1}, with the same members. Requires: size >= size().
  // Cost: O(size / 64).
  void grow(std::uint32_t size) {
    APIARY_ASSERT(size >= size_);
    summary_bitset larger(size);
    for (std::size_t w = 0; w < end(0); ++w) {
      larger.words_[w] = words_[w];
      if (words_[w] != 0) larger.announce(static_cast<std::uint32_t>(w));
    }
    *this = std::move(larger);
  }

  // Removes the members that are not in `other`. Requires: equal sizes. Cost: O(size / 64).
  summary_bitset& operator&=(const summary_bitset& other) noexcept {
    APIARY_ASSERT(size_ == other.size_);
    for (std::size_t w = 0; w < end(0); ++w) {
      words_[w] &= other.words_[w];
      if (words_[w] == 0) update(static_cast<std::uint32_t>(w));
    }
    return *this;
  }

  // The least member; npos if there is none.
  [[nodiscard]] std::uint32_t find_first() const noexcept { return find_next(0); }
  // The least member >= i; npos if there is none. i may be size().
  [[nodiscard]] std::uint32_t find_next(std::uint32_t i) const noexcept {
    if (i >= size_) return npos;
    if (const std::uint64_t here = words_[i / 64] >> (i % 64); here != 0) return i + low(here);
    for (std::uint32_t l = 1; l < depth_; ++l) {
      i = i / 64 + 1;  // the first word of the level below that was not searched
      const std::size_t w = first_[l] + i / 64;
      if (w >= end(l)) return npos;
      if (const std::uint64_t above = words_[w] >> (i % 64); above != 0) {
        i += low(above);
        while (l-- > 0) i = i * 64 + low(words_[first_[l] + i]);
        return i;
      }
    }
    return npos;
  }
  // The greatest member <= i; npos if there is none. Requires: i < size().
  [[nodiscard]] std::uint32_t find_prev(std::uint32_t i) const noexcept {
    APIARY_ASSERT(i < size_);
    if (const std::uint64_t here = words_[i / 64] << (63 - i % 64); here != 0)
      return i - high(here);
    for (std::uint32_t l = 1; l < depth_; ++l) {
      i /= 64;  // the word of the level below that was searched
      if (i == 0) return npos;
      --i;
      const std::uint64_t above = words_[first_[l] + i / 64] << (63 - i % 64);
      if (above == 0) continue;
      i -= high(above);
      while (l-- > 0) i = i * 64 + 63 - high(words_[first_[l] + i]);
      return i;
    }
    return npos;
  }

  // The least of first, ..., last-1 that is a member of both sets; npos if there is none.
  // Requires: equal sizes, last <= size. Cost: O(log64 size), and one step for each pair of words
  // in the range that both have members but none in common.
  [[nodiscard]] friend std::uint32_t find_next_of_both(const summary_bitset& a,
                                                       const summary_bitset& b, std::uint32_t first,
                                                       std::uint32_t last) noexcept {
    APIARY_ASSERT(a.size_ == b.size_ && last <= a.size_);
    const std::uint32_t i = a.next_common(b, 0, first, last);
    return i < last ? i : npos;
  }

  // Whether all of first, ..., last-1 are members. Cost: O((last - first) / 64 + 1).
  [[nodiscard]] bool all_of(std::uint32_t first, std::uint32_t last) const noexcept {
    APIARY_ASSERT(first <= last && last <= size_);
    for (; first < last; first = (first / 64 + 1) * 64) {
      const std::uint64_t mask = range_mask(first, last);
      if ((words_[first / 64] & mask) != mask) return false;
    }
    return true;
  }
  // Whether all of first, ..., last-1 except i are members. Requires: first <= i < last.
  [[nodiscard]] bool all_but(std::uint32_t i, std::uint32_t first,
                             std::uint32_t last) const noexcept {
    APIARY_ASSERT(first <= i && i < last && last <= size_);
    if ((last - 1) / 64 != first / 64) return all_of(first, i) && all_of(i + 1, last);
    const std::uint64_t mask = range_mask(first, last);
    return ((words_[i / 64] | bit(i)) & mask) == mask;
  }
  // How many of first, ..., last-1 are members. Cost: O((last - first) / 64 + 1).
  [[nodiscard]] std::uint32_t count_of(std::uint32_t first, std::uint32_t last) const noexcept {
    APIARY_ASSERT(first <= last && last <= size_);
    std::uint32_t n = 0;
    for (; first < last; first = (first / 64 + 1) * 64)
      n += ones(words_[first / 64] & range_mask(first, last));
    return n;
  }

  // Bytes on the heap.
  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    return words_.capacity() * sizeof(std::uint64_t);
  }
  friend bool operator==(const summary_bitset& a, const summary_bitset& b) noexcept {
    return a.size_ == b.size_ && a.words_ == b.words_;
  }

 private:
  static constexpr std::uint64_t bit(std::uint32_t i) noexcept {
    return std::uint64_t{1} << (i % 64);
  }
  static constexpr std::uint32_t low(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(std::countr_zero(word));
  }
  static constexpr std::uint32_t high(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(std::countl_zero(word));
  }
  static constexpr std::uint32_t ones(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(std::popcount(word));
  }
  // The bits of the word of `first` that lie in first, ..., last-1. Requires: first < last.
  static constexpr std::uint64_t range_mask(std::uint32_t first, std::uint32_t last) noexcept {
    const std::uint64_t from = ~std::uint64_t{0} << (first % 64);
    return last / 64 == first / 64 ? from & (bit(last) - 1) : from;
  }
  [[nodiscard]] std::size_t end(std::uint32_t l) const noexcept {
    return l + 1 < depth_ ? first_[l + 1] : words_.size();
  }

  void fill() noexcept {
    std::uint32_t bits = size_;
    for (std::uint32_t l = 0; l < depth_; ++l) {
      for (std::size_t w = first_[l]; w < end(l); ++w, bits -= bits < 64 ? bits : 64) {
        words_[w] = bits >= 64 ? ~std::uint64_t{0} : bit(bits) - 1;
      }
      bits = static_cast<std::uint32_t>(end(l) - first_[l]);
    }
  }

  // Updates the summaries after members were added to word i of level 0 (announce) or removed from
  // it (update). Both write every summary: a mispredicted branch would cost more.
  void announce(std::uint32_t i) noexcept {
    for (std::uint32_t l = 1; l < depth_; ++l, i /= 64) {
      words_[first_[l] + i / 64] |= bit(i);
    }
  }
  void update(std::uint32_t i) noexcept {
    bool empty = words_[i] == 0;
    for (std::uint32_t l = 1; l < depth_; ++l, i /= 64) {
      std::uint64_t& above = words_[first_[l] + i / 64];
      above &= ~(std::uint64_t{empty} << (i % 64));
      empty = above == 0;
    }
  }

  // The least index >= i of level l that is set in both. It may be wrong if it is >= last.
  [[nodiscard]] std::uint32_t next_common(const summary_bitset& b, std::uint32_t l, std::uint32_t i,
                                          std::uint32_t last) const noexcept {
    std::uint64_t mask = ~std::uint64_t{0} << (i % 64);
    while (i < last) {
      const std::size_t w = first_[l] + i / 64;
      if (const std::uint64_t here = words_[w] & b.words_[w] & mask; here != 0)
        return i / 64 * 64 + low(here);
      if (l + 1 == depth_) return npos;  // the uppermost level is one word
      i = next_common(b, l + 1, i / 64 + 1, (last - 1) / 64 + 1);
      if (i == npos) return npos;
      i *= 64;
      mask = ~std::uint64_t{0};
    }
    return npos;
  }

  std::vector<std::uint64_t> words_;    // level 0 (the members), then each summary
  std::array<std::size_t, 6> first_{};  // where each level begins
  std::uint32_t depth_ = 0;
  std::uint32_t size_ = 0;
};

APIARY_NAMESPACE_END
