// apiary/tests/gang/detail/fill_children_test.cpp - which children take how much, against every distribution.
// SPDX-License-Identifier: MIT
#include "support/scale.h"
#include <apiary/core/rng.h>
#include <apiary/gang/detail/capacity_count.h>

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

// The children one by one, in the order of the objective.
std::vector<child_capacity> one_by_one_sorted(const std::vector<child_capacity>& children,
                                              bool few) {
  std::vector<child_capacity> sorted;
  for (const child_capacity& p : children)
    for (std::uint32_t i = 0; i < p.copies; ++i) sorted.push_back({p.cell, p.capacity, p.free, 1});
  std::stable_sort(
      sorted.begin(), sorted.end(), [&](const child_capacity& a, const child_capacity& b) {
        if (few && a.capacity != b.capacity) return a.capacity > b.capacity;
        return std::tuple(a.free, ~a.capacity, a.cell) < std::tuple(b.free, ~b.capacity, b.cell);
      });
  return sorted;
}

}  // namespace

TEST_CASE("fill_children: in the order of the objective, all of n, copies one after the other") {
  for (std::uint64_t seed = 0; seed < scaled(5000U); ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::vector<child_capacity> children;
    const std::uint32_t step = 1 + random.uniform(3);
    std::uint32_t total = 0;
    for (std::uint32_t c = 0; c < 1 + random.uniform(7); ++c) {
      children.push_back(
          {c, step * (1 + random.uniform(4)), random.uniform(5), 1 + random.uniform(3)});
      total += children.back().capacity * children.back().copies;
    }
    const bool few = random.uniform(2) == 0;
    const std::uint32_t n = step * random.uniform(total / step + 1);
    detail::lean_vector<child_capacity> given;
    given.assign(children);
    const detail::lean_vector<tasks_in_cell> used =
        fill_children(given, n, few ? gang_objective::fewest_nodes : gang_objective::whole_cells);
    std::vector<child_capacity> sorted = one_by_one_sorted(children, few);
    std::uint32_t left = n;
    for (std::size_t i = 0; i < used.size(); ++i) {
      REQUIRE(used[i].tasks == std::min(left, children[used[i].cell].capacity));
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
