// apiary/gang/detail/refusals.h - weighings that refuse cells, and the proof with few of them.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/capacity_count.h>
#include <apiary/gang/detail/weight_search.h>
#include <apiary/gang/fit_verdict.h>
#include <apiary/gang/infeasibility_proof.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/resources.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The weighings that refused cells during one search. A weighing counts free GPUs and the
// constraints at the level of nodes, so it may refuse other cells, too. Groups without GPUs have no
// weight. Cost: refuses O(weighings * GPUs of a node), find as weight_search.
template <CellTree Tree>
class cell_weighings {
 public:
  // Weights of a task of each co-located group, and the weight that a node with 0, 1, ... free GPUs
  // can hold.
  struct weighing {
    std::vector<std::uint32_t> weights{};
    lean_vector<std::int64_t> of_free{};
    std::uint64_t needed = 0;  // weight of the gang
  };
  // Begins a search over these arguments, which must not change.
  void begin(const capacity_index<Tree>& capacities, const colocated_groups& groups) {
    capacities_ = &capacities;
    all_.clear();
    sizes_.clear();
    size_of_.assign(groups.size(), none);
    tasks_.clear();
    unlimited_.clear();
    for (std::size_t u = 0; u < groups.size(); ++u) {
      tasks_.push_back(groups[u].tasks);
      if (groups[u].gpus == 0) continue;
      const auto [step, most] = groups.at(u, capacities.node_level());
      if (step == 1 && most == groups[u].tasks) {
        const auto at = std::find_if(unlimited_.begin(), unlimited_.end(), [&](std::size_t s) {
          return sizes_[s].gpus == groups[u].gpus;
        });
        size_of_[u] = at == unlimited_.end() ? sizes_.size() : *at;
        if (at == unlimited_.end()) {
          unlimited_.push_back(sizes_.size());
          sizes_.push_back({groups[u].gpus, 0});
        }
        sizes_[size_of_[u]].tasks += groups[u].tasks;
      } else {
        size_of_[u] = sizes_.size();
        sizes_.push_back({groups[u].gpus, groups[u].tasks, step, most});
      }
    }
  }
  [[nodiscard]] std::span<const weighing> all() const noexcept { return all_; }
  // Whether a weighing from `first` on refuses cell c of level l.
  [[nodiscard]] bool refuse(level_t l, std::uint32_t c, std::size_t first = 0) const {
    const std::span<const std::uint32_t> nodes = capacities_->histogram(l, c);
    for (std::size_t i = first; i < all_.size(); ++i) {
      std::uint64_t held = 0;
      for (std::size_t f = 1; f < nodes.size(); ++f)
        held += nodes[f] * static_cast<std::uint64_t>(all_[i].of_free[f]);
      if (held < all_[i].needed) return true;
    }
    return false;
  }
  // Searches for a weighing that refuses the cell. Returns whether there is one.
  bool find(level_t l, std::uint32_t c, step_budget& steps) {
    if (sizes_.empty() ||
        search_(sizes_, capacities_->histogram(l, c), steps) != fit_verdict::does_not_fit)
      return false;
    weights_.assign(size_of_.size(), 0);
    for (std::size_t u = 0; u < size_of_.size(); ++u)
      if (size_of_[u] != none) weights_[u] = search_.weights()[size_of_[u]];
    add(weights_);
    return true;
  }
  // Adds a weighing. Requires: groups of one size, without constraints, have equal weights.
  void add(std::span<const std::uint32_t> weights) {
    weighing w{{weights.begin(), weights.end()}, {}, 0};
    by_size_.assign(sizes_.size(), 0);
    for (std::size_t u = 0; u < weights.size(); ++u) {
      w.needed += std::uint64_t{weights[u]} * tasks_[u];
      if (size_of_[u] != none) by_size_[size_of_[u]] = weights[u];
    }
    knapsack_.assign(sizes_, by_size_, capacities_->max_free());
    w.of_free.assign(knapsack_.best());
    all_.push_back(std::move(w));
  }

 private:
  static constexpr std::size_t none = ~std::size_t{0};
  const capacity_index<Tree>* capacities_ = nullptr;
  lean_vector<node_knapsack::task_size> sizes_;
  lean_vector<std::size_t> size_of_;    // of each group, in sizes_
  lean_vector<std::size_t> unlimited_;  // the sizes of groups without constraints, in sizes_
  std::vector<std::uint32_t> tasks_;    // of each group
  std::vector<weighing> all_;
  weight_search search_;
  node_knapsack knapsack_;
  std::vector<std::uint32_t> weights_;
  lean_vector<std::int64_t> by_size_;
};

// A weighing, and the weight that each cell of a level can hold.
struct weighed_cells {
  infeasibility_proof::weighing what;
  lean_vector<std::uint64_t> most;
};

// Weighings that refuse a cell, in this order: counts of the tasks of each group, of GPUs, of slots
// of each size (the largest first), then those of the search. Users understand the first ones best.
// Cells that are `known` need no weighing. If there are many groups, the counts of their tasks come
// last, only until every cell is refused, and only those that refuse a cell that no other does: a
// search has paid for so many counts.
template <CellTree Tree>
[[nodiscard]] std::vector<weighed_cells> weigh_cells(const capacity_index<Tree>& capacities,
                                                     const colocated_groups& groups,
                                                     std::span<const resources> hosts, level_t l,
                                                     const cell_weighings<Tree>& found,
                                                     lean_vector<unsigned char> known) {
  constexpr std::size_t many_groups = 32;
  std::vector<weighed_cells> all;
  capacity_count<Tree> count(capacities, groups, hosts);
  const auto weigh = [&](const std::vector<std::uint32_t>& weights) {
    infeasibility_proof::weighing what{weights, 0};
    for (std::size_t u = 0; u < groups.size(); ++u)
      what.needed += std::uint64_t{weights[u]} * groups[u].tasks;
    lean_vector<std::uint64_t> most = count.max_weights(weights, l);
    bool any = false;
    for (std::size_t c = 0; c < most.size(); ++c) {
      if (most[c] >= what.needed) continue;
      any = true;
      known[c] = 1;
    }
    if (any) all.push_back({std::move(what), std::move(most)});
  };
  std::vector<std::uint32_t> weights(groups.size());
  const auto weight_of_group = [&](std::size_t u) -> const std::vector<std::uint32_t>& {
    weights.assign(groups.size(), 0);
    weights[u] = 1;
    return weights;
  };
  for (std::size_t u = 0; u < groups.size() && groups.size() <= many_groups; ++u)
    weigh(weight_of_group(u));
  for (std::uint32_t i = 0; groups.size() > 1 && i < capacities.max_free(); ++i) {
    const std::uint32_t t = i == 0 ? 1 : capacities.max_free() + 1 - i;
    for (std::size_t u = 0; u < groups.size(); ++u) weights[u] = groups[u].gpus / t;
    weigh(weights);
  }
  for (const auto& w : found.all()) weigh(w.weights);
  for (std::size_t u = 0; u < groups.size() && groups.size() > many_groups; ++u) {
    if (std::find(known.begin(), known.end(), 0) == known.end()) break;
    const std::span<const std::uint32_t> most = count.count(u, l);
    bool any = false;
    for (std::size_t c = 0; c < most.size(); ++c) {
      if (known[c] != 0 || most[c] >= groups[u].tasks) continue;
      any = true;
      known[c] = 1;
    }
    if (!any) continue;
    all.push_back({{weight_of_group(u), groups[u].tasks}, {}});
    for (const std::uint32_t n : most) all.back().most.push_back(n);
  }
  return all;
}

// Chooses repeatedly the weighing that refuses most of the remaining cells. Cells that no
// weighing refuses get the list of what they can hold, from `listed`.
// Cost: O(cells * weighings^2).
[[nodiscard]] inline infeasibility_proof fewest_reasons(
    level_t l, std::uint32_t cells, const colocated_groups& groups,
    const std::vector<weighed_cells>& tried, std::span<const infeasibility_proof::refusal> listed) {
  infeasibility_proof why;
  why.level = l;
  why.cells.resize(cells);
  for (std::uint32_t c = 0; c < cells; ++c) why.cells[c].cell = c;
  for (const infeasibility_proof::refusal& r : listed) why.cells[r.cell].counts = r.counts;
  for (std::size_t u = 0; u < groups.size(); ++u) {
    why.groups.push_back(groups[u].first_group);
    why.tasks.push_back(groups[u].tasks);
  }
  const auto refuses = [](const weighed_cells& w, const infeasibility_proof::refusal& r) {
    return r.weighing == infeasibility_proof::listed && w.most[r.cell] < w.what.needed;
  };
  while (true) {
    std::size_t best = 0;
    std::size_t refused = 0;
    for (std::size_t i = 0; i < tried.size(); ++i) {
      std::size_t n = 0;
      for (const infeasibility_proof::refusal& r : why.cells)
        if (refuses(tried[i], r)) ++n;
      if (n <= refused) continue;
      refused = n;
      best = i;
    }
    if (refused == 0) break;
    const auto index = static_cast<std::uint32_t>(why.weighings.size());
    for (infeasibility_proof::refusal& r : why.cells)
      if (refuses(tried[best], r)) r = {r.cell, index, tried[best].most[r.cell], {}};
    why.weighings.push_back(tried[best].what);
  }
  for (const infeasibility_proof::refusal& r : why.cells)
    APIARY_VERIFY(r.weighing != infeasibility_proof::listed || !r.counts.empty());
  return why;
}

// Finds the slice_gaps of a proof. Cost: O(nodes * levels^2) if the main reason counts tasks in
// slices.
template <CellTree Tree>
class slice_gaps {
 public:
  slice_gaps(const capacity_index<Tree>& capacities, const colocated_groups& groups,
             std::span<const resources> hosts)
      : capacities_(capacities), groups_(groups), hosts_(hosts) {}

  void operator()(infeasibility_proof& why) {
    const infeasibility_proof::reason main = why.main_reason();
    if (main.weighing == infeasibility_proof::listed) return;
    const std::vector<std::uint32_t>& weights = why.weighings[main.weighing].weights;
    for (std::size_t u = 0; u < weights.size(); ++u)
      if (weights[u] > 0) group_ = u;
    for (std::size_t u = 0; u < weights.size(); ++u)
      if (weights[u] != (u == group_ ? 1U : 0U)) return;
    node_level_ = why.node_level;
    std::uint32_t inside = main.best;
    for (level_t l = why.level, above = l;; --l) {
      if (l == node_level_ || step(l) > step(l - 1)) {
        if (step(l) == 1) return;
        const infeasibility_proof::slice_gap gap = closest(above, inside, l);
        if (gap.tasks == 0) return;
        why.gaps.push_back(gap);
        inside = gap.cell;
        above = l;
      }
      if (l == node_level_) return;
    }
  }

 private:
  [[nodiscard]] std::uint32_t step(level_t l) const { return groups_.at(group_, l).step; }
  // The tasks that a cell can hold if slices at its level do not count.
  [[nodiscard]] std::uint64_t without_slices(level_t l, std::uint32_t c) const {
    std::uint64_t sum = 0;
    if (l == node_level_) {
      sum = node_capacity_left(groups_, capacities_.free(c), hosts_, c).capacity(group_);
    } else {
      for (const cell_id i : capacities_.inside(l, c, l - 1))
        sum += groups_.bound(group_, l - 1, without_slices(l - 1, i.value));
    }
    return (std::min<std::uint64_t>)(sum, groups_.at(group_, l).most);
  }
  // Of the cells of level l inside cell c of level `above` whose slices leave capacity unused, the
  // one that lacks the fewest tasks for one more slice; its `tasks` are 0 if there is none.
  [[nodiscard]] infeasibility_proof::slice_gap closest(level_t above, std::uint32_t c,
                                                       level_t l) const {
    infeasibility_proof::slice_gap best{l, 0, 0};
    for (const cell_id i : capacities_.inside(above, c, l)) {
      const std::uint64_t tasks = without_slices(l, i.value);
      if (tasks % step(l) > best.tasks % step(l)) best = {l, i.value, tasks};
    }
    return best;
  }

  const capacity_index<Tree>& capacities_;
  const colocated_groups& groups_;
  std::span<const resources> hosts_;
  level_t node_level_ = 0;
  std::size_t group_ = 0;
};

// Proves with few reasons that a gang fits no cell of level l.
// Requires: `found` has no weighings, or those of the search over the same arguments; `listed`
//           contains every cell that no weighing refuses, in any order.
// Cost:     O(nodes * (groups * GPUs of a node + levels^2)) and
//           O(cells * (groups + GPUs of a node)^2).
template <CellTree Tree>
[[nodiscard]] infeasibility_proof explain_refusal(
    const capacity_index<Tree>& capacities, const colocated_groups& groups,
    std::span<const resources> hosts, level_t l, const cell_weighings<Tree>& found,
    std::span<const infeasibility_proof::refusal> listed) {
  lean_vector<unsigned char> known(capacities.num_cells(l), 0);
  for (const infeasibility_proof::refusal& r : listed) known[r.cell] = 1;
  infeasibility_proof why =
      fewest_reasons(l, capacities.num_cells(l), groups,
                     weigh_cells(capacities, groups, hosts, l, found, std::move(known)), listed);
  why.node_level = capacities.node_level();
  why.node_gpus = capacities.max_free();
  slice_gaps(capacities, groups, hosts)(why);
  return why;
}

}  // namespace detail
APIARY_NAMESPACE_END
