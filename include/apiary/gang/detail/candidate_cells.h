// apiary/gang/detail/candidate_cells.h - the cells that no count refuses, best first.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/capacity_count.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The sizes and sums of the co-located groups of a gang.
struct group_sizes {
  lean_vector<task_group> sizes{};  // one for each group
  std::uint32_t largest = 0;
  std::uint64_t gpus = 0;  // of the whole gang, as are CPU and memory
  std::uint64_t cpu_milli = 0;
  std::uint64_t memory_mib = 0;
  bool constrained = false;  // more than GPUs count
  bool dividing = false;     // the sizes divide one another, and none exceeds 64

  void assign(const colocated_groups& groups, bool with_hosts) {
    sizes.clear();
    largest = 0;
    gpus = cpu_milli = memory_mib = 0;
    bool without_gpus = false;
    for (std::size_t u = 0; u < groups.size(); ++u) {
      sizes.push_back({.tasks = groups[u].tasks, .gpus = groups[u].gpus});
      largest = (std::max)(largest, groups[u].gpus);
      gpus += std::uint64_t{groups[u].tasks} * groups[u].gpus;
      if (with_hosts) {
        cpu_milli += groups[u].tasks * groups[u].cpu_milli;
        memory_mib += groups[u].tasks * groups[u].memory_mib;
      }
      without_gpus = without_gpus || groups[u].gpus == 0;
    }
    constrained =
        groups.lowest_constraint() != any_level || without_gpus || (groups.hosted() && with_hosts);
    std::uint64_t present = 0;  // bit s-1: a task has s GPUs
    dividing = largest <= 64 && !without_gpus;
    for (const task_group& a : sizes)
      if (dividing) present |= std::uint64_t{1} << (a.gpus - 1);
    std::uint32_t before = 1;
    for (std::uint32_t s = 1; s <= 64 && dividing; ++s) {
      if ((present >> (s - 1) & 1) == 0) continue;
      dividing = s % before == 0;
      before = s;
    }
  }
  // The tasks of each size of at most 64 GPUs.
  [[nodiscard]] std::array<std::uint64_t, 65> tasks_by_gpus() const noexcept {
    std::array<std::uint64_t, 65> tasks{};
    for (const task_group& m : sizes)
      if (m.gpus <= 64) tasks[m.gpus] += m.tasks;
    return tasks;
  }
  // Whether a node has CPU and memory for the whole gang.
  [[nodiscard]] bool fit_host(std::span<const resources> hosts, std::uint32_t node) const noexcept {
    return hosts.empty() ||
           (cpu_milli <= hosts[node].cpu_milli && memory_mib <= hosts[node].memory_mib);
  }
};

// The cells of a level above the nodes that no count refuses: they have enough slots for all sizes
// of a gang and, under constraints, capacity for each group alone. They come in the order of the
// objective: fewest free GPUs first, or fewest nodes for the gang, the emptiest nodes first.
// Cost:     assign O(cells of the level * sizes), under constraints also capacity_count for each
//           group. The first group takes no steps, each of the next three a step for 64 cells or
//           nodes, each other one a step for 32. If the budget ends, the remaining groups refuse no
//           cell. next O(log cells). Memory: O(nodes).
template <CellTree Tree>
class candidate_cells {
 public:
  // Finds the cells of level l. Requires: the arguments do not change while cells are asked for.
  void assign(const capacity_index<Tree>& capacities, const colocated_groups& groups,
              const group_sizes& sizes, std::span<const resources> hosts, level_t l,
              gang_objective objective, step_budget& steps) {
    APIARY_ASSERT(l > capacities.node_level());
    possible_.assign(capacities.num_cells(l), 1);
    unsigned char* const possible = possible_.begin();  // a local variable has no alias
    const std::array<std::uint64_t, 65> tasks = sizes.tasks_by_gpus();
    for (std::uint32_t t = 1; t <= sizes.largest && t <= capacities.max_free(); ++t) {
      if (sizes.dividing && tasks[t] == 0) continue;
      std::uint64_t needed = 0;
      for (std::uint32_t gpus = t; gpus <= 64 && gpus <= sizes.largest; ++gpus)
        needed += tasks[gpus] * (gpus / t);
      const std::span<const std::uint32_t> slots = capacities.slots(l, t);
      for (std::size_t c = 0; c < slots.size(); ++c)
        possible[c] = static_cast<unsigned char>(possible[c] & (slots[c] >= needed ? 1 : 0));
    }
    count_.emplace(capacities, groups, hosts);
    for (std::size_t u = 0; sizes.constrained && u < groups.size(); ++u) {
      const std::uint64_t looks = u == 0 ? 0 : count_->cells_to_count(u, l);
      if (u > 0 && !steps.pay(u < 4 ? looks / 64 : looks / 32 + 1)) break;
      const std::span<const std::uint32_t> capacity = count_->count(u, l);
      bool any = false;
      for (std::size_t c = 0; c < capacity.size(); ++c) {
        if (capacity[c] < groups[u].tasks) possible_[c] = 0;
        any = any || possible_[c] != 0;
      }
      if (!any) break;
    }
    heap_.resize(possible_.size());
    keyed_number* end = heap_.begin();  // a loop of push_back takes half as long again
    for (std::uint32_t c = 0; c < possible_.size(); ++c)
      if (possible[c] != 0) *end++ = {rank(capacities, groups, sizes, l, c, objective), c};
    heap_.erase_from(end);
    keyed_number::make_heap(heap_);
  }
  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
  // The number of cells that are left.
  [[nodiscard]] std::size_t size() const noexcept { return heap_.size(); }
  // Removes the cells for which refuse(cell) is true. Cost: O(cells that are left).
  template <class Refuse>
  void remove_if(const Refuse& refuse) {
    std::size_t kept = 0;
    for (const keyed_number& k : heap_)
      if (!refuse(k.number)) heap_[kept++] = k;
    heap_.resize(kept);
    keyed_number::make_heap(heap_);
  }
  // Removes and returns the best cell that is left, the first of equals. Requires: !empty().
  std::uint32_t next() { return keyed_number::pop(heap_).number; }
  // The capacity for a gang of one group. Requires: the gang has constraints.
  [[nodiscard]] const capacity_count<Tree>& count() const noexcept { return *count_; }

 private:
  [[nodiscard]] static std::uint64_t rank(const capacity_index<Tree>& capacities,
                                          const colocated_groups& groups, const group_sizes& sizes,
                                          level_t l, std::uint32_t c, gang_objective objective) {
    const std::uint64_t free = capacities.free(l, c);
    if (objective == gang_objective::whole_cells) return free;
    const bool one = groups.size() == 1 && groups[0].gpus > 0;
    const std::span<const std::uint32_t> nodes = capacities.histogram(l, c);
    std::uint64_t left = one ? groups[0].tasks : sizes.gpus;
    std::uint64_t used = 0;
    for (std::size_t f = nodes.size(); f-- > 1 && left > 0;) {
      const std::uint64_t each =
          one ? groups.bound(0, capacities.node_level(), f / groups[0].gpus) : f;
      if (each == 0) break;
      const std::uint64_t n = (std::min<std::uint64_t>)(nodes[f], (left + each - 1) / each);
      used += n;
      left -= (std::min)(left, n * each);
    }
    return used << 32 | free;
  }

  lean_vector<unsigned char> possible_;
  std::optional<capacity_count<Tree>> count_;  // of the last group
  lean_vector<keyed_number> heap_;             // cells by their rank
};

}  // namespace detail
APIARY_NAMESPACE_END
