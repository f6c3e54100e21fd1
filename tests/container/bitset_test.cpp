// apiary/tests/container/bitset_test.cpp - summary_bitset against a set of numbers.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/container/bitset.h>
#include <apiary/core/rng.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace apiary;
using namespace apiary::detail;

static_assert(std::is_nothrow_move_constructible_v<summary_bitset>);
static_assert(std::is_copy_constructible_v<summary_bitset>);
static_assert(!std::is_convertible_v<std::uint32_t, summary_bitset>);
static_assert(summary_bitset::npos == ~std::uint32_t{0});

constexpr std::initializer_list<std::uint32_t> sizes = {
    0, 1, 2, 63, 64, 65, 127, 128, 4095, 4096, 4097, 8192, 9999, 262143, 262144, 262145, 300000};

// The definition: an ordered set, and every question answered from it.
struct naive_bitset {
  std::uint32_t size = 0;
  std::set<std::uint32_t> members{};

  [[nodiscard]] std::uint32_t find_next(std::uint32_t i) const {
    const auto found = members.lower_bound(i);
    return found == members.end() ? summary_bitset::npos : *found;
  }
  [[nodiscard]] std::uint32_t find_prev(std::uint32_t i) const {
    const auto found = members.upper_bound(i);
    return found == members.begin() ? summary_bitset::npos : *std::prev(found);
  }
  [[nodiscard]] std::uint32_t count_of(std::uint32_t first, std::uint32_t last) const {
    return static_cast<std::uint32_t>(
        std::distance(members.lower_bound(first), members.lower_bound(last)));
  }
};

// Where mistakes sit: at both ends and around the borders of words of every level.
std::vector<std::uint32_t> places(std::uint32_t size, rng& random) {
  std::vector<std::uint32_t> result;
  for (const std::uint64_t border : {0U, 64U, 128U, 4096U, 8192U, 262144U}) {
    for (const std::uint64_t i : {border - 1, border, border + 1}) {
      if (i < size) result.push_back(static_cast<std::uint32_t>(i));
    }
  }
  if (size > 0) result.push_back(size - 1);
  for (int i = 0; i < 8 && size > 0; ++i) result.push_back(random.uniform(size));
  return result;
}

void require_same(const summary_bitset& set, const naive_bitset& naive, rng& random) {
  REQUIRE(set.size() == naive.size);
  REQUIRE(set.count() == naive.members.size());
  REQUIRE(set.any() == !naive.members.empty());
  REQUIRE(set.none() == naive.members.empty());
  REQUIRE(set.all() == (naive.members.size() == naive.size));
  REQUIRE(set.find_first() == naive.find_next(0));
  REQUIRE(set.find_next(naive.size) == summary_bitset::npos);
  for (const std::uint32_t i : places(naive.size, random)) {
    CAPTURE(i);
    REQUIRE(set.test(i) == naive.members.contains(i));
    REQUIRE(set.find_next(i) == naive.find_next(i));
    REQUIRE(set.find_prev(i) == naive.find_prev(i));
    const std::uint32_t j = random.uniform(naive.size + 1);
    const std::uint32_t first = std::min(i, j);
    const std::uint32_t last = std::max(i, j);
    CAPTURE(first);
    CAPTURE(last);
    REQUIRE(set.count_of(first, last) == naive.count_of(first, last));
    REQUIRE(set.all_of(first, last) == (naive.count_of(first, last) == last - first));
  }
}

// Every member, walked as callers walk.
std::vector<std::uint32_t> members(const summary_bitset& set) {
  std::vector<std::uint32_t> result;
  for (std::uint32_t i = set.find_first(); i != summary_bitset::npos; i = set.find_next(i + 1)) {
    result.push_back(i);
  }
  return result;
}

TEST_CASE("a new set is empty or full") {
  for (const std::uint32_t size : sizes) {
    CAPTURE(size);
    rng random(size);
    naive_bitset naive{.size = size};
    require_same(summary_bitset(size), naive, random);
    for (std::uint32_t i = 0; i < size; ++i) naive.members.insert(naive.members.end(), i);
    require_same(summary_bitset(size, true), naive, random);
  }
  CHECK(summary_bitset().size() == 0);
  CHECK(summary_bitset().find_first() == summary_bitset::npos);
  CHECK(summary_bitset() == summary_bitset());
}

TEST_CASE("a set that grows keeps its members") {
  for (const std::uint32_t size : sizes) {
    CAPTURE(size);
    rng random(size);
    summary_bitset set(size);
    naive_bitset naive{.size = size};
    for (const std::uint32_t i : places(size, random)) {
      set.set(i);
      naive.members.insert(i);
    }
    for (const std::uint32_t larger : {size, size + 1, size + 64, 2 * size + 5000}) {
      set.grow(larger);
      naive.size = larger;
      require_same(set, naive, random);
    }
    set.set(2 * size);
    naive.members.insert(2 * size);
    require_same(set, naive, random);
  }
}

TEST_CASE("a full set has no member beyond its size") {
  for (const std::uint32_t size : {1U, 63U, 64U, 65U, 4000U, 4097U}) {
    CAPTURE(size);
    summary_bitset full(size, true);
    summary_bitset filled(size);
    for (std::uint32_t i = 0; i < size; ++i) filled.set(i);
    CHECK(full == filled);
    full.reset_range(0, size);
    CHECK(full.none());
  }
}

TEST_CASE("single members are found from everywhere below and nowhere above") {
  for (const std::uint32_t size : sizes) {
    CAPTURE(size);
    rng random(size);
    summary_bitset set(size);
    for (const std::uint32_t i : places(size, random)) {
      set.set(i);
      for (const std::uint32_t from : places(size, random)) {
        CAPTURE(i);
        CAPTURE(from);
        REQUIRE(set.find_next(from) == (from <= i ? i : summary_bitset::npos));
      }
      set.reset(i);
      REQUIRE(set == summary_bitset(size));
    }
  }
}

TEST_CASE("random sets and resets agree with a set of numbers") {
  for (const std::uint32_t size : sizes) {
    if (size == 0) continue;
    // Few values are hit often, so that words fill and empty; the rest lie anywhere.
    for (const std::uint32_t spread : {std::min(size, 130U), size}) {
      const std::uint64_t seed = 1000 + size + spread;
      CAPTURE(size);
      CAPTURE(spread);
      CAPTURE(seed);
      rng random(seed);
      summary_bitset set(size);
      naive_bitset naive{.size = size};
      const std::uint32_t base = size - spread;
      const std::uint32_t steps = apiary_test::scaled(20'000U);
      for (std::uint32_t step = 0; step < steps; ++step) {
        CAPTURE(step);
        // Phases of growth and of shrinking.
        const bool grow = random.uniform(100) < (step / 500 % 2 == 0 ? 80U : 20U);
        const std::uint32_t i = base + random.uniform(spread);
        if (random.uniform(2) == 0) {
          set.assign(i, grow);
        } else {
          grow ? set.set(i) : set.reset(i);
        }
        if (grow) {
          naive.members.insert(i);
        } else {
          naive.members.erase(i);
        }
        if (step % 64 == 0) require_same(set, naive, random);
      }
      require_same(set, naive, random);
      REQUIRE(members(set) ==
              std::vector<std::uint32_t>(naive.members.begin(), naive.members.end()));
    }
  }
}

TEST_CASE("setting twice is setting once, and likewise resetting") {
  summary_bitset set(4097);
  set.set(4096);
  const summary_bitset once = set;
  set.set(4096);
  CHECK(set == once);
  CHECK(set.count() == 1);
  set.reset(4096);
  set.reset(4096);
  CHECK(set == summary_bitset(4097));
  CHECK(set.count() == 0);
}

TEST_CASE("members of both are found as in the intersection") {
  for (const std::uint32_t size : sizes) {
    if (size == 0) continue;
    for (const std::uint32_t density : {1U, 3U, 40U, 1000U}) {  // one of `density` is a member
      const std::uint64_t seed = size * 10 + density;
      CAPTURE(size);
      CAPTURE(density);
      CAPTURE(seed);
      rng random(seed);
      summary_bitset a(size);
      summary_bitset b(size);
      naive_bitset both{.size = size};
      std::uint32_t i = random.uniform(density);
      while (i < size) {
        const std::uint32_t side = random.uniform(4);
        if (side != 0) a.set(i);
        if (side != 1) b.set(i);
        if (side > 1) both.members.insert(i);
        i += 1 + random.uniform(2 * density);
      }
      REQUIRE(find_next_of_both(a, b, 0, a.size()) == both.find_next(0));
      REQUIRE(find_next_of_both(a, b, size, a.size()) == summary_bitset::npos);
      for (int round = 0; round < 20; ++round) {
        for (const std::uint32_t from : places(size, random)) {
          CAPTURE(from);
          REQUIRE(find_next_of_both(a, b, from, a.size()) == both.find_next(from));
          REQUIRE(find_next_of_both(b, a, from, b.size()) == both.find_next(from));
        }
      }
    }
  }
}

TEST_CASE("sets that have members in the same words but none in common have none of both") {
  summary_bitset a(300000);
  summary_bitset b(300000);
  for (std::uint32_t i = 0; i + 1 < 300000; i += 64) {
    a.set(i);
    b.set(i + 1);
  }
  CHECK(find_next_of_both(a, b, 0, a.size()) == summary_bitset::npos);
  b.set(a.size() / 64 * 64);
  CHECK(find_next_of_both(a, b, 0, a.size()) == a.size() / 64 * 64);
}

TEST_CASE("equal means the same members of the same size") {
  summary_bitset a(64);
  summary_bitset b(65);
  CHECK(a != b);
  b = summary_bitset(64);
  CHECK(a == b);
  a.set(3);
  CHECK(a != b);
  b.set(3);
  CHECK(a == b);
}

TEST_CASE("a copy is independent") {
  summary_bitset a(4097, true);
  const summary_bitset before = a;
  a.reset(77);
  CHECK(before.test(77));
  CHECK(before.all());
  CHECK(a.count() == 4096);
}

TEST_CASE("a move takes everything and leaves the empty set over nothing") {
  for (const bool assigned : {false, true}) {
    summary_bitset from(5000);
    from.set(4321);
    const summary_bitset before = from;
    summary_bitset to(70, true);
    if (assigned) {
      to = std::move(from);
    } else {
      to = summary_bitset(std::move(from));
    }
    CHECK(to == before);
    CHECK(to.find_next(100) == 4321);
    // NOLINTBEGIN(bugprone-use-after-move,hicpp-invalid-access-moved)
    CHECK(from.size() == 0);
    CHECK(from == summary_bitset());
    CHECK(from.none());
    CHECK(from.all());
    CHECK(from.count() == 0);
    CHECK(from.find_first() == summary_bitset::npos);
    from &= summary_bitset();
    CHECK(find_next_of_both(from, from, 0, from.size()) == summary_bitset::npos);
    from = before;
    CHECK(from == before);
    // NOLINTEND(bugprone-use-after-move,hicpp-invalid-access-moved)
  }
}

TEST_CASE("memory is a bit for each number and a 64th more") {
  CHECK(summary_bitset(262144).memory_bytes() == 262144 / 8 + 4096 / 8 + 64 / 8);
}

}  // namespace
