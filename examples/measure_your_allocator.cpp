// Is my allocator of cells good? Write a class with two functions and compare it with the allocators
// of the library: how many requests each refuses although enough GPUs are free, and how many racks
// it keeps whole. With --times: also how fast it is, and a picture with --picture FILE.svg.
// SPDX-License-Identifier: MIT
#include "../benchmarks/allocator_bench.h"
#include <apiary/alloc/best_fit_allocator.h>
#include <apiary/alloc/buddy_allocator.h>
#include <apiary/alloc/free_list_allocator.h>
#include <apiary/core/ids.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace {

// Mine: next fit. It continues the search where the last search of this level ended.
template <apiary::CellTree Tree>
class next_fit {
 public:
  explicit next_fit(const Tree& tree)
      : tree_(tree), used_(tree.num_cells()), next_(tree.num_levels()) {}
  std::optional<apiary::cell_id> allocate(apiary::level_t level) {
    const auto cells = tree_.cells(level);
    for (std::uint32_t tried = 0; tried < cells.size(); ++tried) {
      const apiary::cell_id c = cells[next_[level]++ % cells.size()];
      if (change(c, 0)) return c;
    }
    return std::nullopt;
  }
  void release(apiary::cell_id c) { change(c, 1); }

 private:
  // Changes the leaves of c from `from` to the opposite, if all of them are so.
  bool change(apiary::cell_id c, char from) {
    for (const auto leaf : tree_.descendants(c, 0))
      if (used_[leaf.value] != from) return false;
    for (const auto leaf : tree_.descendants(c, 0)) used_[leaf.value] = from == 0 ? 1 : 0;
    return true;
  }
  Tree tree_;
  std::vector<char> used_;
  std::vector<std::uint32_t> next_;
};

}  // namespace

int main(int argc, char** argv) {
  apiary_bench::allocator_bench bench;
  bench.add<apiary::buddy_allocator>("buddy");
  bench.add<apiary::best_fit_allocator>("best fit");
  bench.add<apiary::free_list_allocator>("free lists");
  bench.add<next_fit>("mine");
  return bench.run(argc, argv);
}
