// apiary/core/digest.h - a 64-bit hash of words and texts, the same on every platform.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

APIARY_NAMESPACE_BEGIN

// Hashes a sequence of words and texts to 64 bits. Use it to compare states and logs. It is not
// cryptographic: an attacker can construct two sequences with equal values.
//
// Model: the finalizer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014), chained.
// Cost:  O(1) a word, O(length / 8) a text.
class digest {
 public:
  // Adds a word.
  constexpr digest& add(std::uint64_t word) noexcept {
    std::uint64_t z = (value_ ^ word) + 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    value_ = z ^ (z >> 31);
    return *this;
  }
  // Adds a text and its length, so that "a", "bc" and "ab", "c" have different values.
  constexpr digest& add(std::string_view text) noexcept {
    add(std::uint64_t{text.size()});
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      word = word << 8 | static_cast<unsigned char>(text[i]);
      if (i % 8 == 7 || i + 1 == text.size()) {
        add(word);
        word = 0;
      }
    }
    return *this;
  }

  // The hash of what was added so far, in this order.
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0;
};

APIARY_NAMESPACE_END
