// apiary/hived/detail/node_choice.h - chooses the nodes and GPUs of a gang.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/hived/detail/node_index.h>
#include <apiary/model/request.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The cells of one node as ranges of bits; a cell of level l has sizes[l] GPUs.
struct node_cells {
  std::span<const std::uint32_t> sizes;

  struct cell {
    std::size_t level;
    std::uint32_t first;  // GPU
  };

  static std::uint32_t count(std::uint64_t gpus) noexcept {
    return static_cast<std::uint32_t>(std::popcount(gpus));
  }
  [[nodiscard]] std::uint64_t mask(cell c) const noexcept {
    return ~std::uint64_t{0} >> (64 - sizes[c.level]) << c.first;
  }
  // Step 2 of choose_gpus. Requires: 0 < n <= count(pool).
  [[nodiscard]] cell lowest_cell(std::uint64_t pool, std::uint64_t preferred,
                                 std::uint32_t n) const noexcept {
    for (cell c{0, 0};; ++c.level) {
      if (sizes[c.level] < n) continue;
      std::uint64_t ties = 0;
      std::uint32_t best = 0;
      for (c.first = 0; c.first < sizes.back(); c.first += sizes[c.level]) {
        const std::uint32_t there = count(pool & mask(c));
        if (there < n) continue;
        const std::uint32_t good = count(preferred & mask(c));
        const std::uint32_t rank = (good < n ? good : n) * 128 + (128 - there);
        if (rank > best) ties = 0;
        if (rank >= best) {
          best = rank;
          ties |= mask(c);
        }
      }
      if (ties == 0) continue;
      // Among equals, those in the emptiest parent, then in the emptiest grandparent, ...
      for (cell above{c.level + 1, 0}; above.level + 1 < sizes.size(); ++above.level) {
        std::uint64_t left = 0;
        std::uint32_t fewest = 65;
        for (above.first = 0; above.first < sizes.back(); above.first += sizes[above.level]) {
          if ((ties & mask(above)) == 0) continue;
          const std::uint32_t there = count(pool & mask(above));
          if (there < fewest) left = 0;
          if (there <= fewest) {
            fewest = there;
            left |= ties & mask(above);
          }
        }
        ties = left;
      }
      c.first = static_cast<std::uint32_t>(std::countr_zero(ties));
      return c;
    }
  }
  // Step 3 of choose_gpus. Requires: k <= count(pool & mask(c)).
  [[nodiscard]] std::uint64_t fill(cell c, std::uint64_t pool, std::uint32_t k) const noexcept {
    std::uint64_t chosen = 0;
    pool &= mask(c);
    while (k > 0 && c.level > 1) {
      // Whole children, those with the most GPUs first.
      const cell end{c.level, c.first + sizes[c.level]};
      std::uint32_t next = 0;
      for (std::uint32_t size = k; size > 0; size = next < k ? next : k) {
        next = 0;
        for (cell child{c.level - 1, c.first}; child.first < end.first;
             child.first += sizes[child.level]) {
          const std::uint64_t gpus = pool & mask(child);
          const std::uint32_t there = count(gpus);
          if (there == size && there <= k) {
            chosen |= gpus;
            pool ^= gpus;
            k -= there;
          } else if (there < size && there > next) {
            next = there;
          }
        }
      }
      if (k == 0) return chosen;
      c = lowest_cell(pool, 0, k);
      pool &= mask(c);
    }
    for (; k > 0; --k, pool &= pool - 1) chosen |= pool & -pool;
    return chosen;
  }
};

// Chooses n GPUs of a node for a task, close together, and keeps the other GPUs in whole cells. Bit
// i of `available` is GPU i. `preferred` GPUs are idle; the others need a preemption.
// 1. If n GPUs are preferred, the pool is the preferred GPUs, otherwise all available ones.
// 2. The cell: on the lowest level where a cell has n GPUs of the pool, the cell with the most
//    preferred GPUs (at most n count), then with the fewest GPUs of the pool, then with the fewest
//    of them in its parent, in its grandparent, ..., then the first one.
// 3. In the cell: its preferred GPUs, if there are fewer than n. The missing k come from its other
//    GPUs of the pool: whole children with at most k of them, the largest first, then the first; if
//    there is none, k GPUs in the cell that step 2 gives for the rest; single GPUs in order.
// The lowest common cell is as low as possible, with the fewest preemptions at that level.
// Model:    HiveD (OSDI 2020), section 3: affinity inside a node; HiveD's search tries subsets.
// Requires: n <= number of available GPUs; `preferred` is a subset of `available`; cell_sizes are
//           the GPUs of a cell of each level: 1 first, each divides the next, at most 64 in the
//           last, the node, which contains all of `available`.
// Cost:     O(GPUs of the node) for each level that step 3 goes down.
[[nodiscard]] inline std::uint64_t choose_gpus(std::uint64_t available, std::uint64_t preferred,
                                               std::uint32_t n,
                                               std::span<const std::uint32_t> cell_sizes) noexcept {
  APIARY_ASSERT(!cell_sizes.empty() && cell_sizes.front() == 1 && cell_sizes.back() <= 64);
  APIARY_ASSERT((preferred & ~available) == 0);
  const node_cells cells{cell_sizes};
  APIARY_ASSERT((available & ~cells.mask({cell_sizes.size() - 1, 0})) == 0);
  APIARY_ASSERT(n <= cells.count(available));
  if (n == 0) return 0;
  if (cells.count(preferred) >= n) {
    const auto cell = cells.lowest_cell(preferred, preferred, n);
    return cells.fill(cell, preferred, n);
  }
  const auto cell = cells.lowest_cell(available, preferred, n);
  const std::uint64_t idle = preferred & cells.mask(cell);
  return idle | cells.fill(cell, available & ~preferred, n - cells.count(idle));
}

// The GPUs of a node that a gang can get: bit i stands for the i-th GPU.
struct node_gpus {
  std::uint64_t available = 0;                  // those that the gang can get
  std::uint64_t preferred = 0;                  // those that need no preemption
  cell_id first{};                              // the first GPU of the node
  std::span<const std::uint32_t> cell_sizes{};  // GPUs of a cell, from the GPU up to the node
};

// Collects the GPUs of tasks, node after node (choose_gpus), ordered by task group, then task.
class gpus_of_tasks {
 public:
  void begin(std::span<const task_group> groups) {
    next_.clear();
    std::uint32_t total = 0;
    for (const task_group& m : groups) {
      next_.push_back(total);
      total += m.tasks * m.gpus;
    }
    gpus_.resize(total);
  }
  // The next tasks of some groups take GPUs of a node, the largest tasks first.
  void take(const node_gpus& node, std::span<const gang_fit::portion> portions,
            std::span<const task_group> groups) {
    portions_.assign(portions);
    if (portions_.size() > 1) {
      merge_sort(portions_, [&](const auto& a, const auto& b) {
        return groups[a.group].gpus > groups[b.group].gpus;
      });
    }
    std::uint64_t available = node.available;
    std::uint64_t preferred = node.preferred;
    for (const gang_fit::portion& p : portions_) {
      for (std::uint32_t t = 0; t < p.tasks; ++t) {
        std::uint64_t mask =
            choose_gpus(available, preferred, groups[p.group].gpus, node.cell_sizes);
        available &= ~mask;
        preferred &= ~mask;
        for (; mask != 0; mask &= mask - 1) {
          gpus_[next_[p.group]++] =
              cell_id(node.first.value + static_cast<std::uint32_t>(std::countr_zero(mask)));
        }
      }
    }
  }
  [[nodiscard]] const lean_vector<cell_id>& gpus() const noexcept { return gpus_; }

 private:
  lean_vector<std::uint32_t> next_;  // by task group: where its next GPU goes
  lean_vector<gang_fit::portion> portions_;
  lean_vector<cell_id> gpus_;
};

// A class of a node index: its nodes have `free` GPUs that the gang can use. The nodes of the class
// `otherwise` have as many, and are taken where that saves racks (pick_either).
struct indexed_class {
  node_index::class_t index = 0;                     // index of the class
  std::uint32_t free = 0;                            // free GPUs of each node of the class
  node_index::class_t otherwise = node_index::none;  // none: there is no such class
};

// Which rack to choose among those with enough nodes for the rest of a gang: the one with the most,
// or the one with the fewest, which keeps fuller racks whole.
enum class rack_choice : std::uint8_t { fullest, tightest };

// Places all tasks of a gang, or none, on the nodes of an index. It decides exactly (gang_fit),
// prefers the classes that come first, takes the nodes of a class in as few racks as possible
// (node_index), and chooses GPUs that are close together (choose_gpus). Call fit(),
// choose_nodes(), choose_gpus_of().
// Model: HiveD (OSDI 2020) section 3.3, "buddy cell" placement inside a virtual cluster. Differs:
//        complete, knows racks, and polynomial inside a node.
// Cost:  gang_fit, node_index::pick and choose_gpus; nothing else grows with the cluster.
class node_choice {
 public:
  // Decides whether the gang fits on nodes of these classes, in order of preference. The result is
  // valid until the next call; its nodes are classes until choose_nodes() chooses nodes.
  const gang_fit::result& fit(const node_index& nodes, std::span<const indexed_class> classes,
                              std::span<const task_group> groups) {
    classes_.clear();
    indices_.clear();
    for (const indexed_class& c : classes) {
      const std::uint32_t also = c.otherwise == node_index::none ? 0 : nodes.count(c.otherwise);
      const std::uint32_t all = nodes.count(c.index) + also;
      if (all == 0) continue;
      classes_.push_back({c.free, all});
      indices_.push_back(c);
    }
    return packed_ = fit_(classes_, groups);
  }
  // After fit() found a packing: chooses nodes. Requires: the index has not changed.
  void choose_nodes(const node_index& nodes, rack_choice racks) {
    const std::span<const gang_fit::used_node> used = packed_.nodes;
    chosen_.resize(used.size());
    order_.resize(used.size());
    for (std::uint32_t i = 0; i < used.size(); ++i) order_[i] = i;
    merge_sort(order_, [&](std::uint32_t a, std::uint32_t b) {
      return used[a].node_class < used[b].node_class;
    });
    for (std::size_t i = 0; i < order_.size();) {
      const std::uint32_t node_class = used[order_[i]].node_class;
      std::size_t end = i;
      while (end < order_.size() && used[order_[end]].node_class == node_class) ++end;
      const auto n = static_cast<std::uint32_t>(end - i);
      const auto sink = [&](node_id node) { chosen_[order_[i++]] = node.value; };
      const indexed_class& c = indices_[node_class];
      if (c.otherwise != node_index::none && nodes.count(c.otherwise) > 0) {
        nodes.pick_either(c.index, c.otherwise, n, sink);
      } else if (racks == rack_choice::tightest) {
        nodes.pick_tightly(c.index, n, sink);
      } else {
        nodes.pick(c.index, n, sink);
      }
    }
  }
  [[nodiscard]] std::span<const std::uint32_t> nodes() const noexcept { return chosen_; }
  // After that: chooses GPUs of these nodes (one entry each), by task group, then task.
  const lean_vector<cell_id>& choose_gpus_of(std::span<const node_gpus> nodes,
                                             std::span<const task_group> groups) {
    APIARY_ASSERT(nodes.size() == chosen_.size());
    tasks_.begin(groups);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const gang_fit::used_node& used = packed_.nodes[i];
      tasks_.take(nodes[i], packed_.portions.subspan(used.first, used.last - used.first), groups);
    }
    return tasks_.gpus();
  }

 private:
  gang_fit fit_;
  gang_fit::result packed_;
  lean_vector<gang_fit::node_class> classes_;
  lean_vector<indexed_class> indices_;  // of each entry of classes_
  lean_vector<std::uint32_t> chosen_;   // the node chosen for each node of packed_
  lean_vector<std::uint32_t> order_;
  gpus_of_tasks tasks_;
};

}  // namespace detail
APIARY_NAMESPACE_END
