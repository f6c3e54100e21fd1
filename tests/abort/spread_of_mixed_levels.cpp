// apiary/tests/abort/spread_of_mixed_levels.cpp - the spread of a node and a device of it.
// SPDX-License-Identifier: MIT
// EXPECT: apiary: .*detail::ascend_on_one_level\(tree, cells\) does not hold
#include <apiary/core/ids.h>
#include <apiary/topology/locality.h>
#include <apiary/topology/uniform_tree.h>

#include <array>

int main() {
  const apiary::uniform_tree tree({2, 4});
  const std::array<apiary::cell_id, 2> gang{tree.at(1, 0), tree.at(0, 0)};
  return static_cast<int>(apiary::spread_level(tree, gang));
}
