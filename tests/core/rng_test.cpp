// apiary/tests/core/rng_test.cpp - the random sequence is the published one, on every platform.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

namespace {

using namespace apiary;

static_assert(std::uniform_random_bit_generator<rng>);
static_assert(rng(1)() == rng(1)());
static_assert(rng(1)() != rng(2)());

// xoshiro256** and splitmix64 as their authors state them, apart from core/rng.h: word by word.
class reference {
 public:
  explicit reference(std::uint64_t seed) {
    for (std::uint64_t& s : s_) {
      seed += 0x9e3779b97f4a7c15;
      std::uint64_t z = seed;
      z ^= z >> 30;
      z *= 0xbf58476d1ce4e5b9;
      z ^= z >> 27;
      z *= 0x94d049bb133111eb;
      z ^= z >> 31;
      s = z;
    }
  }
  std::uint64_t next() {
    const auto rotl = [](std::uint64_t x, unsigned k) { return (x << k) | (x >> (64 - k)); };
    const std::uint64_t result = rotl(s_[1] * 5, 7) * 9;
    const std::array<std::uint64_t, 4> old = s_;
    s_[2] = old[2] ^ old[0];
    s_[3] = old[3] ^ old[1];
    s_[1] = old[1] ^ s_[2];
    s_[0] = old[0] ^ s_[3];
    s_[2] ^= old[1] << 17;
    s_[3] = rotl(s_[3], 45);
    return result;
  }

 private:
  std::array<std::uint64_t, 4> s_{};
};

TEST_CASE("the sequence is xoshiro256** seeded by splitmix64") {
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    rng random(seed);
    reference expected(seed);
    for (int i = 0; i < 10000; ++i) REQUIRE(random() == expected.next());
  }
}

// Golden values: they go red, on purpose, when the sequence of an old seed changes, because every
// recorded experiment changes with it.
TEST_CASE("the sequence of a seed does not drift") {
  rng zero;
  CHECK(zero() == 0x99ec5f36cb75f2b4);
  CHECK(zero() == 0xbf6e1f784956452a);
  CHECK(zero() == 0x1a5f849d4933e6e0);
  rng random(42);
  std::uint64_t hash = 0;
  for (int i = 0; i < 1000; ++i) hash = hash * 31 + random();
  CHECK(hash == 14358092893230813775U);
  for (int i = 0; i < 1000; ++i) hash = hash * 31 + random.uniform(1000003);
  CHECK(hash == 7752537897575484436U);
  std::vector<int> items(52);
  std::iota(items.begin(), items.end(), 0);
  random.shuffle(items);
  for (const int item : items) hash = hash * 31 + static_cast<std::uint64_t>(item);
  CHECK(hash == 12061033880952148986U);
}

TEST_CASE("uniform stays below its bound and reaches every value") {
  for (const std::uint32_t n : {1U, 2U, 3U, 7U, 64U, 1000U}) {
    CAPTURE(n);
    rng random(n);
    std::vector<bool> seen(n);
    for (std::uint32_t i = 0; i < 30 * n; ++i) {
      const std::uint32_t x = random.uniform(n);
      REQUIRE(x < n);
      seen[x] = true;
    }
    CHECK(std::count(seen.begin(), seen.end(), true) == n);
  }
  rng random(5);
  for (int i = 0; i < 1000; ++i) REQUIRE(random.uniform(1) == 0);
}

// With n = 3 * 2^30, taking the upper word of the product alone would give every third value twice
// as often as the others.
TEST_CASE("uniform has no bias where multiplication alone would have one") {
  constexpr std::uint32_t n = 3U << 30;
  rng random(11);
  const std::uint32_t draws = apiary_test::scaled(300'000U);
  std::array<std::uint32_t, 3> counts{};
  for (std::uint32_t i = 0; i < draws; ++i) ++counts[random.uniform(n) % 3];
  for (const std::uint32_t count : counts) {
    // A third of the draws, within six standard deviations.
    const double deviation = count - draws / 3.0;
    CHECK(deviation * deviation < 36.0 * draws * 2.0 / 9.0);
  }
}

TEST_CASE("shuffle keeps the elements and gives each order as often") {
  rng random(8);
  std::array<std::uint32_t, 6> counts{};
  const std::uint32_t rounds = apiary_test::scaled(60'000U);
  for (std::uint32_t i = 0; i < rounds; ++i) {
    std::vector<std::uint32_t> items{0, 1, 2};
    random.shuffle(items);
    REQUIRE(items[0] + items[1] + items[2] == 3);
    REQUIRE(items[0] * items[1] * items[2] == 0);
    ++counts[items[0] * 2 + (items[1] > items[2] ? 1U : 0U)];
  }
  for (const std::uint32_t count : counts) {
    const double deviation = count - rounds / 6.0;
    CHECK(deviation * deviation < 36.0 * rounds * 5.0 / 36.0);
  }
  std::vector<int> none;
  random.shuffle(none);
  CHECK(none.empty());
}

}  // namespace
