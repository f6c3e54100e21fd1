// apiary/core/rng.h - random numbers that are the same on every platform.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstddef>
#include <cstdint>
#include <utility>

APIARY_NAMESPACE_BEGIN

// A random number generator: xoshiro256**, seeded by splitmix64. The same seed gives the same
// numbers on every platform. It models std::uniform_random_bit_generator.
//
// Model: Blackman, Vigna, "Scrambled linear pseudorandom number generators" (TOMS 2021).
class rng {
 public:
  // The type of the random numbers.
  using result_type = std::uint64_t;

  // Equal seeds give equal numbers.
  constexpr explicit rng(std::uint64_t seed = 0) noexcept {
    for (std::uint64_t& word : state_) {
      seed += 0x9e3779b97f4a7c15U;
      std::uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
      word = z ^ (z >> 31);
    }
  }

  // The smallest random number.
  static constexpr std::uint64_t(min)() noexcept { return 0; }
  // The largest random number.
  static constexpr std::uint64_t(max)() noexcept { return ~std::uint64_t{0}; }

  // The next 64 random bits.
  constexpr std::uint64_t operator()() noexcept {
    const std::uint64_t result = rotate(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotate(state_[3], 45);
    return result;
  }
  // Uniform over 0, ..., n-1, without bias. Requires: n > 0.
  constexpr std::uint32_t uniform(std::uint32_t n) noexcept {
    APIARY_ASSERT(n > 0);
    const std::uint32_t reject_below = (0U - n) % n;  // 2^32 mod n
    while (true) {
      const std::uint64_t product = ((*this)() >> 32) * n;
      if (static_cast<std::uint32_t>(product) >= reject_below)
        return static_cast<std::uint32_t>(product >> 32);
    }
  }
  // Shuffles a random-access container uniformly (Fisher-Yates), alike on every platform.
  template <class Container>
  constexpr void shuffle(Container& items) {
    for (std::size_t i = items.size(); i > 1; --i) {
      using std::swap;
      swap(items[i - 1], items[uniform(static_cast<std::uint32_t>(i))]);
    }
  }

 private:
  static constexpr std::uint64_t rotate(std::uint64_t x, int k) noexcept {
    return (x << k) | (x >> (64 - k));
  }

  std::uint64_t state_[4]{};
};

APIARY_NAMESPACE_END
