// apiary/gang_scheduler/detail/cell_gangs.h - the gangs in each cell of a level, and lower bounds on the cost of victims there.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/sort.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/topology/ragged_tree.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The gangs of each cell of one level. refresh() lists them again for the cells that have changed.
// Cost: mark O(1); refresh O(nodes and gangs of the changed cells), of all cells the first time.
class cell_gangs {
 public:
  struct gang {
    std::uint32_t slot = 0;
    std::uint32_t gpus = 0;   // in the cell
    std::uint32_t nodes = 0;  // in the cell
    friend bool operator==(const gang&, const gang&) = default;
  };
  // The most GPUs, and the most nodes, that 1, ..., few gangs have in a cell; [few]: all gangs.
  static constexpr std::size_t few = 7;
  struct sums {
    std::array<std::uint32_t, few + 1> gpus{};
    std::array<std::uint32_t, few + 1> nodes{};
    friend bool operator==(const sums&, const sums&) = default;
  };

  // Whether begin() has been called.
  [[nodiscard]] bool active() const noexcept { return !sums_.empty(); }
  // All cells have changed.
  void begin(std::uint32_t cells) {
    gangs_.assign(cells, {});
    sums_.assign(cells, {});
    is_marked_.assign(cells, 1);
    marked_.clear();
    for (std::uint32_t c = 0; c < cells; ++c) marked_.push_back(c);
  }
  // The cell has changed.
  void mark(std::uint32_t c) {
    if (is_marked_[c] != 0) return;
    is_marked_[c] = 1;
    marked_.push_back(c);
  }
  // list(c, gangs) appends the gangs of cell c, once for each of their nodes.
  template <class List>
  void refresh(const List& list) {
    for (const std::uint32_t c : marked_) {
      is_marked_[c] = 0;
      gangs_[c].clear();
      list(c, gangs_[c]);
      join(gangs_[c]);
      sums_[c] = sums_of(gangs_[c]);
    }
    marked_.clear();
  }
  // Whether all cells have the same gangs. Requires: both are up to date.
  friend bool operator==(const cell_gangs& a, const cell_gangs& b) {
    return a.gangs_ == b.gangs_ && a.sums_ == b.sums_;
  }
  [[nodiscard]] std::uint32_t num_cells() const noexcept {
    return static_cast<std::uint32_t>(sums_.size());
  }
  [[nodiscard]] std::span<const gang> in(std::uint32_t c) const noexcept { return gangs_[c]; }
  [[nodiscard]] const sums& most(std::uint32_t c) const noexcept { return sums_[c]; }
  // The gangs of a cell, and their nodes there: what a search reads of them.
  [[nodiscard]] std::uint64_t entries(std::uint32_t c) const noexcept {
    return gangs_[c].size() + std::uint64_t{sums_[c].nodes[few]};
  }

 private:
  // One entry for each gang, in the order of slots.
  static void join(std::vector<gang>& gangs) {
    merge_sort(gangs, [](const gang& a, const gang& b) { return a.slot < b.slot; });
    std::size_t kept = 0;
    for (std::size_t i = 0; i < gangs.size(); ++i) {
      if (kept > 0 && gangs[kept - 1].slot == gangs[i].slot) {
        gangs[kept - 1].gpus += gangs[i].gpus;
        gangs[kept - 1].nodes += gangs[i].nodes;
      } else {
        gangs[kept++] = gangs[i];
      }
    }
    gangs.resize(kept);
  }
  [[nodiscard]] static sums sums_of(std::span<const gang> gangs) {
    sums at;
    add_up(gangs, &gang::gpus, at.gpus);
    add_up(gangs, &gang::nodes, at.nodes);
    return at;
  }
  static void add_up(std::span<const gang> gangs, std::uint32_t gang::*number,
                     std::array<std::uint32_t, few + 1>& sums) {
    std::array<std::uint32_t, few> greatest{};  // descending
    for (const gang& g : gangs) {
      sums[few] += g.*number;
      std::uint32_t n = g.*number;
      for (std::uint32_t& at : greatest)
        if (n > at) std::swap(n, at);
    }
    std::uint32_t sum = 0;
    for (std::size_t k = 0; k < few; ++k) sums[k] = sum += greatest[k];
  }

  std::vector<std::vector<gang>> gangs_;  // by cell
  std::vector<sums> sums_;                // by cell
  std::vector<unsigned char> is_marked_;  // by cell
  std::vector<std::uint32_t> marked_;
};

// Lower bounds on the cost of the victims of a gang that must be in one cell of a level. For each
// task size t, the cell lacks D slots of t GPUs. A running gang with G GPUs on N nodes gives back
// at most N * floor(max / t) slots, and at most floor((G + N * (t - 1)) / t).
// Cost: begin O(groups + sizes); fewest, lacks_slots and may_be_enough O(sizes); cost O(sizes *
//       gangs of the cell * log).
class victim_bounds {
 public:
  static constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();
  // A gang in the cell that may be preempted.
  struct candidate {
    std::int32_t priority = 0;  // a gang costs at least as much as one of a lower priority, or all
                                // have the same priority here
    std::uint32_t gpus = 0;     // in the cell
    std::uint32_t nodes = 0;    // in the cell
    std::uint64_t cost = 0;
  };

  void begin(const capacity_index<ragged_tree>& free, level_t level,
             const topology_constraints& gang) {
    free_ = &free;
    level_ = level;
    std::array<std::uint64_t, 65> tasks{};  // by GPUs of a task
    for (const constrained_task_group& m : gang.groups)
      tasks[(std::min<std::size_t>)(m.gpus, tasks.size() - 1)] += m.tasks;
    sizes_.clear();
    for (std::uint32_t t = 1; t <= free.max_free(); ++t) {
      if (t > 1 && tasks[t] == 0) continue;
      sizes_.push_back({t, 0});
      for (std::uint32_t gpus = t; gpus < tasks.size(); ++gpus)
        sizes_.back().slots += tasks[gpus] * (gpus / t);
    }
  }
  // The sizes of slots that it counts.
  [[nodiscard]] std::size_t num_sizes() const noexcept { return sizes_.size(); }
  // No fewer victims are enough in this cell; more than cell_gangs::few if all are not.
  [[nodiscard]] std::size_t fewest(std::uint32_t cell, const cell_gangs::sums& most) const {
    std::size_t victims = 0;
    for (const size_needed& s : sizes_) {
      const std::uint64_t missing = missing_slots(s, cell);
      const auto slots = [&](std::size_t k) { return gain(s, most.gpus[k], most.nodes[k]); };
      if (missing == 0) continue;
      if (slots(cell_gangs::few) < missing) return cell_gangs::few + 2;
      std::size_t k = 0;
      while (k < cell_gangs::few && slots(k) < missing) ++k;
      victims = (std::max)(victims, k + 1);
    }
    return victims;
  }
  // Whether the cell lacks slots of a size.
  [[nodiscard]] bool lacks_slots(std::uint32_t cell) const {
    return std::any_of(sizes_.begin(), sizes_.end(),
                       [&](const size_needed& s) { return missing_slots(s, cell) > 0; });
  }
  // Whether one gang with so many GPUs on so many nodes may be enough.
  [[nodiscard]] bool may_be_enough(std::uint32_t cell, std::uint64_t gpus,
                                   std::uint64_t nodes) const {
    return std::all_of(sizes_.begin(), sizes_.end(), [&](const size_needed& s) {
      return gain(s, gpus, nodes) >= missing_slots(s, cell);
    });
  }
  // No set of victims in this cell costs less; never: there is none. Reorders the gangs.
  [[nodiscard]] std::uint64_t cost(std::uint32_t cell, std::vector<candidate>& gangs) {
    merge_sort(gangs,
               [](const candidate& a, const candidate& b) { return a.priority < b.priority; });
    std::uint64_t bound = 0;
    for (const size_needed& s : sizes_) {
      const std::uint64_t missing = missing_slots(s, cell);
      if (missing > 0) bound = (std::max)(bound, cost_of(s, missing, gangs));
    }
    return bound;
  }

 private:
  struct size_needed {
    std::uint32_t size = 1;
    std::uint64_t slots = 0;
  };
  [[nodiscard]] std::uint64_t missing_slots(const size_needed& s, std::uint32_t cell) const {
    const std::uint32_t present = free_->slots(level_, s.size)[cell];
    return s.slots > present ? s.slots - present : 0;
  }
  [[nodiscard]] std::uint64_t gain(const size_needed& s, std::uint64_t gpus,
                                   std::uint64_t nodes) const noexcept {
    if (s.size == 1) return gpus;
    return (std::min)(nodes * (free_->max_free() / s.size), (gpus + nodes * (s.size - 1)) / s.size);
  }
  // All gangs of low priorities are not enough: so many of the others are needed.
  [[nodiscard]] std::uint64_t cost_of(const size_needed& s, std::uint64_t missing,
                                      std::span<const candidate> gangs) {
    std::size_t first = 0;  // the first gang of the lowest priority that is needed
    std::uint64_t lower = 0;
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < gangs.size() && sum < missing; ++i) {
      if (gangs[i].priority != gangs[first].priority) {
        first = i;
        lower = sum;
      }
      sum += gain(s, gangs[i].gpus, gangs[i].nodes);
    }
    if (sum < missing) return never;
    const std::span<const candidate> others = gangs.subspan(first);
    gains_.clear();
    for (const candidate& g : others) gains_.push_back(gain(s, g.gpus, g.nodes));
    merge_sort(gains_, std::greater<>());
    std::size_t n = 0;  // fewer than n + 1 others are not enough
    sum = lower;
    while (sum + gains_[n] < missing) sum += gains_[n++];
    // Exactly n + 1 others: then each of them gives at least this much. Or more of them.
    return (std::min)(cheapest(s, others, n + 1, missing - sum), cheapest(s, others, n + 2, 0));
  }
  // The sum of the n lowest costs of gangs that give so many slots; never if there are fewer.
  [[nodiscard]] std::uint64_t cheapest(const size_needed& s, std::span<const candidate> gangs,
                                       std::size_t n, std::uint64_t at_least) {
    costs_.clear();
    for (const candidate& g : gangs)
      if (gain(s, g.gpus, g.nodes) >= at_least) costs_.push_back(g.cost);
    if (costs_.size() < n) return never;
    std::nth_element(costs_.begin(), costs_.begin() + static_cast<std::ptrdiff_t>(n - 1),
                     costs_.end());
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += costs_[i];
    return sum;
  }

  const capacity_index<ragged_tree>* free_ = nullptr;
  level_t level_ = 1;
  std::vector<size_needed> sizes_;
  std::vector<std::uint64_t> gains_;
  std::vector<std::uint64_t> costs_;
};

}  // namespace detail
APIARY_NAMESPACE_END
