// apiary/tests/abort/level_above_the_roots.cpp - a request of a level that the tree does not have.
// SPDX-License-Identifier: MIT
// EXPECT: apiary: .*l <= top\(\) does not hold
#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/topology/uniform_tree.h>

int main(int argc, char**) {
  const apiary::uniform_tree tree({2, 4});
  const apiary::reserving_buddy_allocator cells(tree);
  return cells.find({.level = static_cast<apiary::level_t>(argc) + 100}).has_value() ? 1 : 0;
}
