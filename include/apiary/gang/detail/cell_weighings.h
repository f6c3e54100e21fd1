// apiary/gang/detail/cell_weighings.h - weights of tasks that refuse cells, found one after another.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/gang/colocated_groups.h>
#include <apiary/gang/detail/node_knapsack.h>
#include <apiary/gang/detail/weight_search.h>
#include <apiary/gang/fit_verdict.h>
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
    std::vector<std::int64_t> of_free{};
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
    w.of_free.assign(knapsack_.best().begin(), knapsack_.best().end());
    all_.push_back(std::move(w));
  }

 private:
  static constexpr std::size_t none = ~std::size_t{0};
  const capacity_index<Tree>* capacities_ = nullptr;
  std::vector<node_knapsack::task_size> sizes_;
  std::vector<std::size_t> size_of_;    // of each group, in sizes_
  std::vector<std::size_t> unlimited_;  // the sizes of groups without constraints, in sizes_
  std::vector<std::uint32_t> tasks_;    // of each group
  std::vector<weighing> all_;
  weight_search search_;
  node_knapsack knapsack_;
  std::vector<std::uint32_t> weights_;
  std::vector<std::int64_t> by_size_;
};

}  // namespace detail
APIARY_NAMESPACE_END
