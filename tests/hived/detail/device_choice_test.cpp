// apiary/tests/hived/detail/device_choice_test.cpp - leaves of a node against all subsets of them.
// SPDX-License-Identifier: MIT
#include <apiary/core/rng.h>
#include <apiary/hived/detail/node_choice.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <support/scale.h>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

namespace {

using sizes_t = std::vector<std::uint32_t>;

std::uint32_t ones(std::uint64_t leaves) {
  return static_cast<std::uint32_t>(std::popcount(leaves));
}

// The cell of level l of a leaf, as a set of leaves.
std::uint64_t cell_of(const sizes_t& sizes, std::size_t l, std::uint32_t leaf) {
  std::uint64_t cell = 0;
  for (std::uint32_t i = 0; i < sizes.back(); ++i)
    if (i / sizes[l] == leaf / sizes[l]) cell |= std::uint64_t{1} << i;
  return cell;
}

// The level of the lowest common cell.
std::size_t spread(const sizes_t& sizes, std::uint64_t leaves) {
  const auto first = static_cast<std::uint32_t>(std::countr_zero(leaves));
  std::size_t l = 0;
  while ((leaves & ~cell_of(sizes, l, first)) != 0) ++l;
  return l;
}

// Checks what choose_gpus guarantees, against every other choice.
void check_reservations(std::uint64_t available, std::uint64_t preferred, std::uint32_t n,
                        const sizes_t& sizes) {
  CAPTURE(sizes);
  CAPTURE(available);
  CAPTURE(preferred);
  CAPTURE(n);
  const std::uint64_t chosen = choose_gpus(available, preferred, n, sizes);
  CAPTURE(chosen);
  REQUIRE(ones(chosen) == n);
  REQUIRE((chosen & ~available) == 0);
  if (n == 0) return;
  const std::uint64_t pool = ones(preferred) >= n ? preferred : available;
  REQUIRE((chosen & ~pool) == 0);
  const std::size_t level = spread(sizes, chosen);
  const auto first = static_cast<std::uint32_t>(std::countr_zero(chosen));
  const std::uint64_t cell = cell_of(sizes, level, first);
  for (std::uint64_t other = pool; other != 0; other = (other - 1) & pool) {
    if (ones(other) != n) continue;
    const std::size_t other_level = spread(sizes, other);
    REQUIRE(other_level >= level);
    if (other_level > level) continue;
    REQUIRE(ones(other & preferred) <= ones(chosen & preferred));
    // A cell as low with as many preferred leaves has as many leaves or more, and if it has as many,
    // its parent has, and so on; if all are equal, it does not come first.
    if (ones(other & preferred) < ones(chosen & preferred)) continue;
    const auto other_first = static_cast<std::uint32_t>(std::countr_zero(other));
    if (cell_of(sizes, level, other_first) == cell) continue;
    std::size_t l = level;
    const auto there = [&](std::uint32_t leaf) { return ones(pool & cell_of(sizes, l, leaf)); };
    while (l < sizes.size() && there(other_first) == there(first)) ++l;
    if (l < sizes.size()) {
      REQUIRE(there(other_first) > there(first));
    } else {
      REQUIRE(other_first > first);
    }
  }
}

}  // namespace

TEST_CASE("leaves of one pair, of the emptier one, before leaves of two") {
  const sizes_t sizes{1, 2, 4, 8};
  const auto choose = [&](std::uint64_t available, std::uint32_t n) {
    return choose_gpus(available, available, n, sizes);
  };
  CHECK(choose(0b1111'1111, 0) == 0);
  CHECK(choose(0b1111'1111, 1) == 0b0000'0001);
  CHECK(choose(0b1111'0111, 1) == 0b0000'0100);  // a pair is broken already
  CHECK(choose(0b1111'0110, 2) == 0b0011'0000);  // the only pairs
  CHECK(choose(0b1100'1111, 2) == 0b1100'0000);  // one of a half that is broken already
  CHECK(choose(0b1101'0111, 3) == 0b0000'0111);
  CHECK(choose(0b1101'1111, 3) == 0b1101'0000);
  CHECK(choose(0b1111'1111, 4) == 0b0000'1111);
  CHECK(choose(0b1110'1111, 6) == 0b1100'1111);  // a whole half, of the other one the whole pair
  CHECK(choose(0b0111'1111, 6) == 0b0011'1111);
  CHECK(choose(0b0111'1111, 5) == 0b0100'1111);
  CHECK(choose_gpus(1, 1, 1, sizes_t{1}) == 1);
  CHECK(choose_gpus(~std::uint64_t{0}, 0, 64, sizes_t{1, 64}) == ~std::uint64_t{0});
}

TEST_CASE("idle leaves come before others, and no gang is preempted without need") {
  const sizes_t sizes{1, 2, 4, 8};
  CHECK(choose_gpus(0b1111'1111, 0b1000'0001, 2, sizes) == 0b1000'0001);
  CHECK(choose_gpus(0b1111'1111, 0b1000'0000, 2, sizes) == 0b1100'0000);
  CHECK(choose_gpus(0b1111'1111, 0b0101'0001, 4, sizes) == 0b1111'0000);
  CHECK(choose_gpus(0b1111'1111, 0b0001'1001, 3, sizes) == 0b0001'1001);
  // The idle leaf, and of the others there the whole pair.
  CHECK(choose_gpus(0b1111'1111, 0b0100'0010, 3, sizes) == 0b0000'1110);
}

TEST_CASE("every set of leaves, small nodes of all shapes") {
  for (const sizes_t& sizes :
       {sizes_t{1}, sizes_t{1, 2}, sizes_t{1, 3}, sizes_t{1, 4}, sizes_t{1, 2, 4}, sizes_t{1, 6},
        sizes_t{1, 2, 6}, sizes_t{1, 3, 6}}) {
    const std::uint64_t all = (std::uint64_t{1} << sizes.back()) - 1;
    for (std::uint64_t available = 0; available <= all; ++available) {
      for (std::uint64_t preferred = available;; preferred = (preferred - 1) & available) {
        for (std::uint32_t n = 0; n <= ones(available); ++n)
          check_reservations(available, preferred, n, sizes);
        if (preferred == 0) break;
      }
    }
  }
}

TEST_CASE("nodes of eight leaves") {
  rng random(3);
  for (const sizes_t& sizes :
       {sizes_t{1, 2, 4, 8}, sizes_t{1, 4, 8}, sizes_t{1, 2, 8}, sizes_t{1, 8}}) {
    const int rounds = apiary_test::scaled(3000);
    for (int round = 0; round < rounds; ++round) {
      const std::uint64_t available = random.uniform(256);
      const std::uint64_t preferred = available & random.uniform(256);
      check_reservations(available, preferred, random.uniform(ones(available) + 1), sizes);
    }
  }
}

// In nodes of pairs of pairs no choice as close together leaves more whole halves, or with as many
// of them more whole pairs.
TEST_CASE("what is left is as whole as it can be in a node of halves") {
  const sizes_t sizes{1, 2, 4, 8};
  const auto whole = [](std::uint64_t left, std::uint32_t size) {
    std::uint32_t cells = 0;
    const std::uint64_t cell = (std::uint64_t{1} << size) - 1;
    for (std::uint32_t first = 0; first < 8; first += size)
      cells += (left >> first & cell) == cell ? 1U : 0U;
    return cells;
  };
  for (std::uint64_t available = 1; available < 256; ++available) {
    for (std::uint32_t n = 1; n <= ones(available); ++n) {
      CAPTURE(available);
      CAPTURE(n);
      const std::uint64_t chosen = choose_gpus(available, available, n, sizes);
      const std::uint64_t left = available & ~chosen;
      const std::uint32_t score = whole(left, 4) * 8 + whole(left, 2);
      for (std::uint64_t other = available; other != 0; other = (other - 1) & available) {
        if (ones(other) != n || spread(sizes, other) > spread(sizes, chosen)) continue;
        const std::uint64_t without = available & ~other;
        REQUIRE(whole(without, 4) * 8 + whole(without, 2) <= score);
      }
    }
  }
}

TEST_CASE("nodes of sixty-four leaves") {
  rng random(4);
  for (const sizes_t& sizes : {sizes_t{1, 2, 4, 8, 16, 32, 64}, sizes_t{1, 64}, sizes_t{1, 8, 64},
                               sizes_t{1, 3, 12, 60}, sizes_t{1, 2, 64}}) {
    const int rounds = apiary_test::scaled(20'000);
    const std::uint64_t all = ~std::uint64_t{0} >> (64 - sizes.back());
    for (int round = 0; round < rounds; ++round) {
      const std::uint64_t available = random() & (random.uniform(2) == 0 ? random() : all) & all;
      const std::uint64_t preferred = available & (random.uniform(2) == 0 ? random() : all);
      const std::uint32_t n = random.uniform(ones(available) + 1);
      CAPTURE(sizes);
      CAPTURE(available);
      CAPTURE(preferred);
      CAPTURE(n);
      const std::uint64_t chosen = choose_gpus(available, preferred, n, sizes);
      REQUIRE(ones(chosen) == n);
      if (n == 0) continue;
      const std::uint64_t pool = ones(preferred) >= n ? preferred : available;
      REQUIRE((chosen & ~pool) == 0);
      // No lower cell has n of the pool; no other one of the level has more idle leaves; all of the
      // cell's idle leaves are taken.
      const std::size_t level = spread(sizes, chosen);
      std::size_t least = sizes.size();
      std::uint32_t idle = 0;
      for (std::size_t l = 0; l < sizes.size() && least == sizes.size(); ++l) {
        for (std::uint32_t first = 0; first < sizes.back(); first += sizes[l]) {
          const std::uint64_t cell = cell_of(sizes, l, first);
          if (ones(pool & cell) < n) continue;
          least = l;
          idle = std::max(idle, std::min(n, ones(preferred & cell)));
        }
      }
      REQUIRE(level == least);
      REQUIRE(ones(chosen & preferred) == idle);
    }
  }
}
