// apiary/tests/abort/free_list_level.cpp - a cell of a level that the tree does not have is requested.
// SPDX-License-Identifier: MIT
// EXPECT: free_list_allocator\.h:[0-9]+: apiary: level <= top\(\) does not hold
#include "../../benchmarks/free_list_allocator.h"
#include <apiary/core/ids.h>
#include <apiary/topology/uniform_tree.h>

int main(int argc, char**) {
  apiary_bench::free_list_allocator cells(apiary::uniform_tree({2, 4}));
  return cells.allocate(static_cast<apiary::level_t>(argc) + 1).has_value() ? 1 : 0;
}
