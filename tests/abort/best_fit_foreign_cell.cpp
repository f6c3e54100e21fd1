// apiary/tests/abort/best_fit_foreign_cell.cpp - a cell that the tree does not have is taken back.
// SPDX-License-Identifier: MIT
// EXPECT: best_fit_allocator\.h:[0-9]+: apiary: c\.value < tree_\.num_cells\(\) && is_live\(c\) does not hold
#include <apiary/alloc/best_fit_allocator.h>
#include <apiary/core/ids.h>
#include <apiary/topology/uniform_tree.h>

int main() {
  apiary::best_fit_allocator cells(apiary::uniform_tree({2, 4}));
  cells.release(apiary::cell_id(10));
  return 0;
}
