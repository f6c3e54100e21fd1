// How well are GPUs used while tasks come and go? Tasks of one, two and eight GPUs run on eight
// nodes; some do not fit. The program measures utilization over time, and how many idle GPUs
// larger tasks cannot use.
// SPDX-License-Identifier: MIT
#include <apiary/alloc/buddy_allocator.h>
#include <apiary/core/rng.h>
#include <apiary/metric/buddy_fragmentation.h>
#include <apiary/metric/utilization.h>
#include <apiary/topology/tree.h>
#include <apiary/topology/uniform_tree.h>

#include <cstdint>
#include <cstdio>
#include <vector>

using namespace apiary;

namespace {

enum : level_t { device, pair, node };

struct task {
  cell_id cell;
  std::uint64_t end;
};

// Releases the cells of the tasks that have ended.
void finish(std::vector<task>& running, buddy_allocator<uniform_tree>& cells, std::uint64_t now) {
  std::erase_if(running, [&](const task& t) {
    if (t.end > now) return false;
    cells.release(t.cell);
    return true;
  });
}

}  // namespace

int main() {
  const uniform_tree tree({8, 4, 2});
  buddy_allocator<uniform_tree> cells(tree);
  utilization use(tree.num_leaves());
  std::vector<task> running;
  rng random(1);
  std::uint32_t refused = 0;

  std::printf("hour  used now  mean use  idle, unusable for a pair  for a node  refused\n");
  for (std::uint64_t minute = 1; minute <= 360; ++minute) {
    finish(running, cells, minute);
    const level_t sizes[] = {device, device, device, pair, pair, node};
    const auto cell = cells.allocate(sizes[random.uniform(6)]);
    if (cell) running.push_back({*cell, minute + 10 + random.uniform(50)});
    if (!cell) ++refused;

    const buddy_fragmentation idle = buddy_fragmentation(tree, cells.free_cells());
    use.set(minute, tree.num_leaves() - idle.leaves_from(device));
    if (minute % 60 != 0) continue;
    std::printf("%4u  %8u  %7.1f%%  %24.1f%%  %9.1f%%  %7u\n", static_cast<unsigned>(minute / 60),
                static_cast<unsigned>(use.used()), 100 * use.mean(minute),
                100 * idle.unusable(pair), 100 * idle.unusable(node), refused);
  }
  std::printf("peak: %u of %u GPUs\n", static_cast<unsigned>(use.peak()), tree.num_leaves());
}
