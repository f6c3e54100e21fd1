// apiary/tests/abort/foreign_cell.cpp - a cell that the tree does not have.
// SPDX-License-Identifier: MIT
// EXPECT: apiary: c\.value < num_cells_ does not hold
#include <apiary/topology/uniform_tree.h>

int main() {
  const apiary::uniform_tree tree({2, 4});
  return static_cast<int>(tree.level(apiary::cell_id(10)));
}
