// apiary/tests/abort/double_release_lazy.cpp - a cell is released twice to the lazy allocator.
// SPDX-License-Identifier: MIT
// EXPECT: lazy_buddy_allocator\.h:[0-9]+: apiary: c\.value < tree_\.num_cells\(\) && is_live\(c\) does not hold
#include "../../benchmarks/lazy_buddy_allocator.h"
#include <apiary/topology/uniform_tree.h>

int main() {
  apiary_bench::lazy_buddy_allocator cells(apiary::uniform_tree({2, 4}));
  const auto c = cells.allocate(0);
  if (!c) return 1;
  cells.release(*c);
  cells.release(*c);
  return 0;
}
