// apiary/tests/compile_fail/no_tree.cpp - the message names the concept that a type lacks.
// SPDX-License-Identifier: MIT
// EXPECT: CellTree
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <vector>

#if BAD
using shape = std::vector<int>;
#else
using shape = apiary::uniform_tree;
#endif

bool healthy(const shape& tree, apiary::cell_id c) {
  return apiary::health<shape>(tree).healthy(c);
}
