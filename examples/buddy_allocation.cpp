// How do I allocate aligned blocks of GPUs? A buddy allocator grants a GPU, a pair or a node. It
// splits a free block only if no smaller free block is large enough, and merges free neighbours at
// once.
// A reservation keeps a whole rack, whatever else is allocated.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/buddy_allocator.h>
#include <apiary/alloc/reserving_buddy_allocator.h>
#include <apiary/topology/health.h>
#include <apiary/topology/uniform_tree.h>

#include <cstdio>

using namespace apiary;

namespace {

bool allocate_blocks() {
  enum : level_t { gpu, pair, node };
  buddy_allocator cells(uniform_tree{2, 4, 2});  // 2 nodes of 4 pairs of 2 GPUs

  const auto one = cells.allocate(gpu);     // splits node 0
  const auto two = cells.allocate(pair);    // the next pair of node 0
  const auto whole = cells.allocate(node);  // node 1
  if (!one || !two || !whole) return false;
  std::printf("a GPU, a pair and a node are in use; free: %u nodes, %u pairs, %u GPUs\n",
              cells.free_count(node), cells.free_count(pair), cells.free_count(gpu));
  std::printf("another node: %s\n", cells.allocate(node) ? "yes" : "none is free");

  cells.release(*one);
  cells.release(*two);  // its buddies are free too, so node 0 is whole again
  std::printf("another node: %s\n", cells.allocate(node) ? "yes" : "none is free");
  return true;
}

// Two racks have 2 nodes of 4 GPUs; one rack and six GPUs are reserved. Allocating GPUs never
// splits the reserved rack, not even to avoid a bad node.
void reserve_a_rack() {
  enum : level_t { device, node, rack };
  const uniform_tree tree({2, 2, 4});
  reserving_buddy_allocator cells(tree);
  const auto print_free = [&](const char* when) {
    std::printf("%-24s free: %u racks, %u nodes, %u GPUs\n", when, cells.free_count(rack),
                cells.free_count(node), cells.free_count(device));
  };

  std::printf("reserve a rack: %s\n", cells.reserve(rack, 1) ? "yes" : "no");
  std::printf("reserve 6 GPUs: %s\n", cells.reserve(device, 6) ? "yes" : "no");
  std::printf("reserve a second rack: %s\n", cells.reserve(rack, 1) ? "yes" : "no");
  print_free("nothing allocated");

  const cell_id first = *cells.allocate(device);
  print_free("one GPU allocated");

  health good(tree);
  good.mark_bad(tree.at(node, 0));
  const cell_request healthy{.level = device, .usable = &good.usable()};
  for (int i = 0; i < 5; ++i) {
    const auto c = cells.allocate(healthy);
    if (c) std::printf("healthy GPU %u\n", tree.index(*c, device));
    if (!c) std::printf("the other healthy GPUs are reserved\n");
  }
  print_free("four more allocated");

  std::printf("the reserved rack: %u\n", tree.index(*cells.allocate(rack), rack));
  cells.release(first);
  print_free("first GPU released");
}

}  // namespace

int main() {
  if (!allocate_blocks()) return 1;
  reserve_a_rack();
}
