// apiary/tests/gang/detail/cell_parts_test.cpp - which children take how much, against every distribution.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gang/detail/cell_parts.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

using namespace apiary;
using namespace apiary::detail;
using namespace apiary_test;

namespace {

// The parts one by one, in the order of the objective.
std::vector<cell_part> one_by_one_sorted(const std::vector<cell_part>& parts, bool few) {
  std::vector<cell_part> sorted;
  for (const cell_part& p : parts)
    for (std::uint32_t i = 0; i < p.copies; ++i) sorted.push_back({p.cell, p.capacity, p.free, 1});
  std::stable_sort(sorted.begin(), sorted.end(), [&](const cell_part& a, const cell_part& b) {
    if (few && a.capacity != b.capacity) return a.capacity > b.capacity;
    return std::tuple(a.free, ~a.capacity, a.cell) < std::tuple(b.free, ~b.capacity, b.cell);
  });
  return sorted;
}

}  // namespace

TEST_CASE("fill_parts: in the order of the objective, all of n, copies one after the other") {
  for (std::uint64_t seed = 0; seed < scaled(5000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<cell_part> parts;
    const std::uint32_t step = 1 + random.uniform(3);
    std::uint32_t room = 0;
    for (std::uint32_t c = 0; c < 1 + random.uniform(7); ++c) {
      parts.push_back(
          {c, step * (1 + random.uniform(4)), random.uniform(5), 1 + random.uniform(3)});
      room += parts.back().capacity * parts.back().copies;
    }
    const bool few = random.uniform(2) == 0;
    const std::uint32_t n = step * random.uniform(room / step + 1);
    std::vector<cell_part> given = parts;
    const std::vector<tasks_in_cell> used =
        fill_parts(given, n, few ? gang_objective::fewest_nodes : gang_objective::whole_cells);
    std::vector<cell_part> sorted = one_by_one_sorted(parts, few);
    std::uint32_t left = n;
    for (std::size_t i = 0; i < used.size(); ++i) {
      REQUIRE(used[i].tasks == std::min(left, parts[used[i].cell].capacity));
      REQUIRE(used[i].tasks % step == 0);
      left -= used[i].tasks;
      auto expected = sorted.begin();
      if (few && left == 0) {
        for (auto s = sorted.begin(); s != sorted.end(); ++s)
          if (s->capacity >= used[i].tasks &&
              std::tuple(s->capacity, s->free, s->cell) <
                  std::tuple(expected->capacity, expected->free, expected->cell))
            expected = s;
      }
      REQUIRE(used[i].cell == expected->cell);
      sorted.erase(expected);
    }
    REQUIRE(left == 0);
  }
}
