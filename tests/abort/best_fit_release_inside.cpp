// apiary/tests/abort/best_fit_release_inside.cpp - a cell inside a live one is taken back.
// SPDX-License-Identifier: MIT
// EXPECT: best_fit_allocator\.h:[0-9]+: apiary: c\.value < tree_\.num_cells\(\) && is_live\(c\) does not hold
#include <apiary/alloc/best_fit_allocator.h>
#include <apiary/topology/uniform_tree.h>

int main() {
  const apiary::uniform_tree tree({2, 4});
  apiary::best_fit_allocator cells(tree);
  const auto c = cells.allocate(1);
  if (!c) return 1;
  cells.release(tree.children(*c, 1).first);
  return 0;
}
