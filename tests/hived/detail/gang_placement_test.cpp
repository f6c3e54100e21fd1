// apiary/tests/hived/detail/gang_placement_test.cpp - the leaves of cells, level by level.
// SPDX-License-Identifier: MIT
#include <apiary/core/ids.h>
#include <apiary/hived/gang_record.h>
#include <apiary/topology/uniform_tree.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

using namespace apiary;
using namespace apiary::detail;

TEST_CASE("gang_placement: the sizes of cells up to a level, of the tree assigned last") {
  const std::array<std::uint32_t, 4> fan_outs{3, 4, 2, 2};
  const std::vector<std::uint32_t> of_leaves{1, 2, 4, 16};
  level_sizes sizes;
  sizes.assign(uniform_tree(std::array<std::uint32_t, 3>{5, 7, 11}));
  sizes.assign(uniform_tree(fan_outs));
  for (level_t l = 0; l < of_leaves.size(); ++l) {
    const auto up_to = sizes.up_to(l);
    CHECK(std::equal(up_to.begin(), up_to.end(), of_leaves.begin(), of_leaves.begin() + l + 1));
  }
}
