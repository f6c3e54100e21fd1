// apiary/preempt/detail/eviction_levels.h - cells from the nodes up, with the limits of one group of tasks.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/preempt/detail/node_evictions.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The cells of a cluster from the nodes (height 0) up to those in which a gang must be, with the
// limits of one group of equal tasks.
struct eviction_levels {
  struct level {
    std::uint32_t step = 1;              // a cell holds a multiple of this many tasks
    std::uint32_t most = 0;              // and at most so many
    lean_vector<std::uint32_t> first{};  // the first child of each cell, and one after the last
    lean_vector<std::uint32_t> above{};  // the cell of the next level that each cell is in
  };
  std::vector<level> levels;
  node_amounts task;
  std::uint32_t tasks = 0;

  [[nodiscard]] std::size_t root() const noexcept { return levels.size() - 1; }
  [[nodiscard]] std::uint32_t num_cells(std::size_t h) const noexcept {
    return static_cast<std::uint32_t>(h == 0 ? levels[0].above.size() : levels[h].first.size() - 1);
  }
  [[nodiscard]] std::uint32_t bound(std::size_t h, std::uint64_t n) const noexcept {
    const auto fewer = static_cast<std::uint32_t>((std::min<std::uint64_t>)(n, levels[h].most));
    return levels[h].step == 1 ? fewer : fewer - fewer % levels[h].step;
  }
  // The nodes of a cell: from `first` up to, without, `second`.
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> nodes(std::size_t h,
                                                              std::uint32_t c) const noexcept {
    std::uint32_t first = c;
    std::uint32_t last = c + 1;
    for (; h > 0; --h) {
      first = levels[h].first[first];
      last = levels[h].first[last];
    }
    return {first, last};
  }
  // Nodes without a tree, in cells of 16, for tasks without constraints.
  void assign(std::uint32_t num_nodes, std::uint32_t gpus, std::uint32_t num_tasks) {
    levels.assign(3, {1, num_tasks, {}, {}});
    task = {gpus, 0, 0};
    tasks = num_tasks;
    for (std::uint32_t n = 0; n < num_nodes; ++n) {
      if (n % 16 == 0) levels[1].first.push_back(n);
      levels[0].above.push_back(n / 16);
    }
    levels[1].above.assign(levels[1].first.size(), 0);
    levels[2].first = {0, static_cast<std::uint32_t>(levels[1].first.size())};
    levels[1].first.push_back(num_nodes);
  }
};

}  // namespace detail
APIARY_NAMESPACE_END
