// apiary/tests/abort/unsorted_cells.cpp - the nodes of cells that do not ascend.
// SPDX-License-Identifier: MIT
// EXPECT: apiary: .*detail::ascend_on_one_level\(tree, cells\) does not hold
#include <apiary/core/ids.h>
#include <apiary/topology/locality.h>
#include <apiary/topology/uniform_tree.h>

#include <array>

int main() {
  const apiary::uniform_tree tree({2, 4});
  const std::array<apiary::cell_id, 3> gang{tree.at(0, 0), tree.at(0, 4), tree.at(0, 1)};
  return apiary::spanned_cells(tree, gang, 1) > 0 ? 1 : 0;
}
