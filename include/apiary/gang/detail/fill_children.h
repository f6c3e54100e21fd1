// apiary/gang/detail/fill_children.h - which children of a cell take how many tasks of one group.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/gang/topology_constraints.h>

#include <algorithm>
#include <cstdint>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// `copies` equal children of a cell. Each has capacity for `capacity` tasks, and `free` free GPUs.
struct child_capacity {
  std::uint32_t cell = 0;
  std::uint32_t capacity = 0;
  std::uint64_t free = 0;
  std::uint32_t copies = 1;
};

// The tasks that a child of a cell takes.
struct tasks_in_cell {
  std::uint32_t cell = 0;
  std::uint32_t tasks = 0;
};

// Distributes n tasks over the children of a cell.
//   whole_cells   fewest free GPUs first, of equals most capacity, then the first. No other way
//                 leaves more of the emptiest children untouched.
//   fewest_nodes  most capacity first, of equals the fewest free GPUs. As soon as one child has
//                 capacity for the rest, the child with the least such capacity is taken.
// If n and all capacities are multiples of a step, each child takes a multiple, too.
// Requires: n is at most the sum of the capacities; no capacity is 0. The vector is used up.
// Cost:     O(children + children used * log children).
[[nodiscard]] inline std::vector<tasks_in_cell> fill_children(std::vector<child_capacity>& children,
                                                              std::uint32_t n,
                                                              gang_objective objective) {
  std::vector<tasks_in_cell> filled;
  const bool few = objective == gang_objective::fewest_nodes;
  const auto later = [&](const child_capacity& a, const child_capacity& b) {
    if (few && a.capacity != b.capacity) return a.capacity < b.capacity;
    if (a.free != b.free) return a.free > b.free;
    return a.capacity != b.capacity ? a.capacity < b.capacity : a.cell > b.cell;
  };
  std::make_heap(children.begin(), children.end(), later);
  while (n > 0) {
    APIARY_ASSERT(!children.empty());
    if (few && children.front().capacity >= n) {
      const child_capacity* best = &children.front();
      for (const child_capacity& p : children) {
        const bool less =
            p.capacity != best->capacity ? p.capacity < best->capacity : later(*best, p);
        if (p.capacity >= n && less) best = &p;
      }
      filled.push_back({best->cell, n});
      break;
    }
    child_capacity& first = children.front();
    const std::uint32_t here = (std::min)(n, first.capacity);
    filled.push_back({first.cell, here});
    n -= here;
    if (--first.copies > 0) continue;
    std::pop_heap(children.begin(), children.end(), later);
    children.pop_back();
  }
  return filled;
}

}  // namespace detail
APIARY_NAMESPACE_END
