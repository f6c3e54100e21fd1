// How do I allocate aligned blocks of GPUs? A buddy allocator grants a GPU, a pair or a node. It
// splits a free block only if no smaller free block is large enough, and merges free neighbours at
// once.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/buddy_allocator.h>
#include <apiary/topology/uniform_tree.h>

#include <cstdio>

int main() {
  enum : apiary::level_t { gpu, pair, node };
  apiary::buddy_allocator cells(apiary::uniform_tree{2, 4, 2});  // 2 nodes of 4 pairs of 2 GPUs

  const auto one = cells.allocate(gpu);     // splits node 0
  const auto two = cells.allocate(pair);    // the next pair of node 0
  const auto whole = cells.allocate(node);  // node 1
  if (!one || !two || !whole) return 1;
  std::printf("a GPU, a pair and a node are in use; free: %u nodes, %u pairs, %u GPUs\n",
              cells.free_count(node), cells.free_count(pair), cells.free_count(gpu));
  std::printf("another node: %s\n", cells.allocate(node) ? "yes" : "none is free");

  cells.release(*one);
  cells.release(*two);  // its buddies are free too, so node 0 is whole again
  std::printf("another node: %s\n", cells.allocate(node) ? "yes" : "none is free");
}
