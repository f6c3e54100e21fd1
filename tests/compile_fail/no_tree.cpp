// apiary/tests/compile_fail/no_tree.cpp - the message names the concept that a type lacks.
// SPDX-License-Identifier: MIT
// EXPECT: CellTree
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <vector>

#if BAD
using shape = std::vector<int>;
#else
using shape = apiary::uniform_tree;
#endif

apiary::cell_id above(const shape& tree, apiary::cell_id a, apiary::cell_id b) {
  return apiary::lowest_common_ancestor(tree, a, b);
}
