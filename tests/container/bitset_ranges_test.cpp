// apiary/tests/container/bitset_ranges_test.cpp - whole ranges and whole sets at once.
// SPDX-License-Identifier: MIT
#include <apiary/container/bitset.h>
#include <apiary/core/rng.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <support/scale.h>
#include <vector>

using namespace apiary;

namespace {

// Every query against a vector of bools. The summaries are right if every search finds its way.
void require_equal(const summary_bitset& set, const std::vector<char>& plain) {
  std::uint32_t count = 0;
  for (const char bit : plain) count += bit != 0 ? 1U : 0U;
  REQUIRE(set.count() == count);
  std::uint32_t found = set.find_first();
  for (std::uint32_t i = 0; i < plain.size(); ++i) {
    REQUIRE(set.test(i) == (plain[i] != 0));
    if (plain[i] == 0) continue;
    REQUIRE(found == i);
    found = set.find_next(i + 1);
  }
  REQUIRE(found == summary_bitset::npos);
}

struct interval {
  std::uint32_t first;
  std::uint32_t last;
};

// Short ones, long ones, and such that begin or end with a word.
interval random_interval(rng& random, std::uint32_t size) {
  std::uint32_t a = random.uniform(size + 1);
  std::uint32_t b = random.uniform(3) == 0 ? random.uniform(size + 1) : a + random.uniform(70);
  if (random.uniform(4) == 0) a = a / 64 * 64;
  if (random.uniform(4) == 0) b = b / 64 * 64;
  if (b > size) b = size;
  return a <= b ? interval{a, b} : interval{b, a};
}

}  // namespace

TEST_CASE("ranges are added, removed and tested as their members one by one") {
  for (const std::uint32_t size : {1U, 63U, 64U, 65U, 4095U, 4097U, 12'345U}) {
    CAPTURE(size);
    rng random(size);
    summary_bitset set(size);
    std::vector<char> plain(size, 0);
    for (int step = 0; step < apiary_test::scaled(300); ++step) {
      const auto [first, last] = random_interval(random, size);
      const bool value = random.uniform(2) == 0;
      value ? set.set_range(first, last) : set.reset_range(first, last);
      for (std::uint32_t i = first; i < last; ++i) plain[i] = static_cast<char>(value);
      require_equal(set, plain);

      const auto [from, to] = random_interval(random, size);
      std::uint32_t members = 0;
      for (std::uint32_t i = from; i < to; ++i) members += plain[i] != 0 ? 1U : 0U;
      REQUIRE(set.count_of(from, to) == members);
      REQUIRE(set.all_of(from, to) == (members == to - from));
      for (std::uint32_t i = from; i < to && i < from + 3; ++i) {
        const std::uint32_t others = members - (plain[i] != 0 ? 1U : 0U);
        REQUIRE(set.all_but(i, from, to) == (others == to - from - 1));
      }
    }
  }
}

TEST_CASE("the members of both sets are kept, and found within bounds") {
  for (const std::uint32_t size : {1U, 64U, 65U, 4097U, 270'000U}) {
    CAPTURE(size);
    rng random(size);
    for (int round = 0; round < apiary_test::scaled(20); ++round) {
      summary_bitset a(size);
      summary_bitset b(size);
      for (int i = 0; i < 20; ++i) {
        const auto [first, last] = random_interval(random, size);
        a.set_range(first, last);
        const auto [from, to] = random_interval(random, size);
        b.set_range(from, to);
        if (random.uniform(3) == 0) b.reset_range(first, last);
      }
      summary_bitset both = a;
      both &= b;
      std::vector<char> plain(size, 0);
      for (std::uint32_t i = 0; i < size; ++i) plain[i] = static_cast<char>(a.test(i) && b.test(i));
      require_equal(both, plain);
      for (int i = 0; i < 50; ++i) {
        const auto [first, last] = random_interval(random, size);
        const std::uint32_t expected = both.find_next(first);
        REQUIRE(find_next_of_both(a, b, first, last) ==
                (expected < last ? expected : summary_bitset::npos));
      }
    }
  }
}
