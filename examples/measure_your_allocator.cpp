// Is my allocator of cells good? Write a class with two functions and compare it with the allocators
// of the library: how many requests each refuses although enough GPUs are free, and how many racks
// it keeps whole. With --times: also how fast it is, and a picture with --picture FILE.svg.
// SPDX-License-Identifier: MIT
#include "../benchmarks/allocator_bench.h"

// Mine: next fit. It continues the search where the last search ended.
template <class Tree>
struct next_fit {
  Tree tree;
  apiary_bench::used_leaves<Tree> used{tree};
  std::uint32_t next = 0;
  std::optional<apiary::cell_id> allocate(apiary::level_t level) {
    const auto cells = tree.cells(level);
    for (std::uint32_t tried = 0; tried < cells.size(); ++tried)
      if (used.take(cells[++next % cells.size()])) return cells[next % cells.size()];
    return std::nullopt;
  }
  void release(apiary::cell_id c) { used.give_back(c); }
};

int main(int argc, char** argv) { return apiary_bench::compare<next_fit>("mine", argc, argv); }
