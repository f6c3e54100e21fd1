// apiary/tests/abort/free_list_double_release.cpp - a cell of the free lists is taken back twice.
// SPDX-License-Identifier: MIT
// EXPECT: free_list_allocator\.h:[0-9]+: apiary: c\.value < tree_\.num_cells\(\) && is_live\(c\) does not hold
#include "../../benchmarks/free_list_allocator.h"
#include <apiary/topology/uniform_tree.h>

int main() {
  apiary_bench::free_list_allocator cells(apiary::uniform_tree({2, 4}));
  const auto c = cells.allocate(0);
  if (!c) return 1;
  cells.release(*c);
  cells.release(*c);
  return 0;
}
