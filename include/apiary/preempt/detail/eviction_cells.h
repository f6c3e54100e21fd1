// apiary/preempt/detail/eviction_cells.h - the candidates of each cell, with a lower bound.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/core/sort.h>
#include <apiary/gang/topology_constraints.h>
#include <apiary/model/request.h>
#include <apiary/preempt/detail/eviction_states.h>
#include <apiary/topology/tree.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The cells of a level, to be searched in ascending order of their lower bounds until no bound is
// below the best cost so far. Cost: begin O(cells), next O(log cells), least_bound O(cells).
class bounded_cells {
 public:
  static constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();
  using cell = keyed_number;  // index in the level; no answer there costs less than the key
  void clear() noexcept {
    order_.clear();
    searched_.clear();
  }
  // Begins with the cells whose bound is below `below`.
  void begin(std::span<const std::uint64_t> bounds, std::uint64_t below) {
    clear();
    for (std::uint32_t c = 0; c < bounds.size(); ++c)
      if (bounds[c] < below) order_.push_back({bounds[c], c});
    keyed_number::make_heap(order_);
  }
  // Takes the cell with the least bound and returns true, if the bound is below `below`. The caller
  // appends the cell to searched(), with the bound that its search has proved.
  bool next(cell& at, std::uint64_t below) {
    if (order_.empty() || order_.front().key >= below) return false;
    at = keyed_number::pop(order_);
    return true;
  }
  [[nodiscard]] std::vector<cell>& searched() noexcept { return searched_; }
  // The least bound of all cells, searched or not; `never` if there are none.
  [[nodiscard]] std::uint64_t least_bound() const noexcept {
    std::uint64_t least = never;
    for (const cell& c : order_) least = (std::min)(least, c.key);
    for (const cell& c : searched_) least = (std::min)(least, c.key);
    return least;
  }

 private:
  std::vector<cell> order_;  // a heap of the cells that are not searched
  std::vector<cell> searched_;
};

// The candidates by the cells of one level: a lower bound on the cost of victims in each cell, and
// the candidates of one cell with their GPUs there.
// Bound:    for each task size the cell lacks D slots. The cost of a candidate is spread over its
//           GPUs in the cell. A slot costs at least its number of missing GPUs times the lowest
//           price of a GPU on the node. The sum of the D cheapest slots is a lower bound; the
//           greatest one of all sizes is taken. It is 0 if the level has only one cell.
// Requires: as victim_search; allocations name nodes of the capacity index; groups have different
//           numbers of GPUs, which are not 0.
// Invalid:  allocations of more GPUs than a node may have abort (APIARY_VERIFY).
// Cost:     begin O(cells + allocations + nodes), and for each task size O(nodes + slots), within
//           max_steps: the bounds of other cells are lower; select O(nodes of the cell +
//           allocations of its gangs in all cells * log).
template <CellTree Tree>
class eviction_cells {
 public:
  static constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();

  // Lists the tasks of a gang by their GPUs; tasks without GPUs are left out. False if a task has
  // more than max_free GPUs. Cost: O(task groups).
  [[nodiscard]] static bool list_groups(const topology_constraints& gang, std::uint32_t max_free,
                                        lean_vector<task_group>& to) {
    to.clear();
    std::array<std::size_t, eviction_state::max_gpus + 1> number{};  // in `to`, from 1 on
    for (const constrained_task_group& m : gang.groups) {
      if (m.gpus == 0 || m.tasks == 0) continue;
      if (m.gpus > max_free) return false;
      if (number[m.gpus] == 0) {
        to.push_back({.tasks = 0, .gpus = m.gpus});
        number[m.gpus] = to.size();
      }
      to[number[m.gpus] - 1].tasks += m.tasks;
    }
    return true;
  }
  void begin(const capacity_index<Tree>& capacities, level_t level,
             std::span<const eviction_candidate> candidates,
             std::span<const gpus_on_node> allocations, std::span<const task_group> groups,
             std::uint64_t max_steps) {
    work_ = 0;
    capacities_ = &capacities;
    level_ = level;
    candidates_ = candidates;
    allocations_ = allocations;
    nodes_.clear();
    for (const std::uint32_t f : capacities.free()) nodes_.push_back({0, never, f, none});
    number_cells();
    links_.resize(allocations.size());
    for (std::uint32_t j = 0; j < candidates.size(); ++j) add_to_nodes(j);
    for (const node_sums& n : nodes_) APIARY_VERIFY(n.gpus <= capacities.max_free());
    bounds_.assign(capacities.num_cells(level), 0);
    if (bounds_.size() == 1) return;
    for (const task_group& m : groups) {
      const std::uint32_t size = m.gpus;
      std::uint64_t needed = 0;
      for (const task_group& k : groups) needed += std::uint64_t{k.tasks} * (k.gpus / size);
      for (std::uint32_t f = 0; f <= eviction_state::max_gpus; ++f) slots_[f] = f / size;
      const bool first = size == groups[0].gpus;  // the nodes have been paid for by begin()
      for (std::uint32_t c = 0; c < bounds_.size(); ++c) {
        if (!first && work_ / work_in_a_step >= max_steps) return;
        if (bounds_[c] != never) bounds_[c] = (std::max)(bounds_[c], bound_of(c, size, needed));
        if (!first) work_ += 1 + capacities_->nodes(level_, c).size() / 2;
      }
    }
  }
  // The steps of the bounds and of select() since the last call.
  [[nodiscard]] std::uint64_t take_steps() noexcept {
    const std::uint64_t steps = work_ / work_in_a_step;
    work_ %= work_in_a_step;
    return steps;
  }
  // The lower bound of each cell; `never` if no set of victims is enough there.
  [[nodiscard]] std::span<const std::uint64_t> bounds() const noexcept { return bounds_; }
  // The cell of a node, by its index in the level.
  [[nodiscard]] std::uint32_t cell_of(std::uint32_t node) const noexcept { return cell_of_[node]; }
  // Makes the input of victim_search for one cell. Nodes are numbered from the first node there.
  void select(std::uint32_t cell) {
    const id_range<cell_id> nodes = capacities_->nodes(level_, cell);
    free_.clear();
    ids_.clear();
    for (const cell_id n : nodes) {
      free_.push_back(capacities_->free(n.value));
      if (bounds_.size() > 1)
        for (std::uint32_t a = nodes_[n.value].last; a != none; a = links_[a].before)
          ids_.push_back(links_[a].candidate);
    }
    if (bounds_.size() > 1) {
      sort_unique(ids_);
    } else {
      ids_.clear();
      for (std::uint32_t j = 0; j < candidates_.size(); ++j) ids_.push_back(j);
    }
    local_candidates_.clear();
    local_allocations_.clear();
    for (const std::uint32_t j : ids_) {
      const auto first = static_cast<std::uint32_t>(local_allocations_.size());
      for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a)
        if (nodes.contains(cell_id(allocations_[a].node)))
          local_allocations_.push_back(
              {allocations_[a].node - nodes.first.value, allocations_[a].gpus});
      const auto last = static_cast<std::uint32_t>(local_allocations_.size());
      local_candidates_.push_back({candidates_[j].cost, first, last});
      work_ += 4 + candidates_[j].last - candidates_[j].first;
    }
    work_ += nodes.size() + ids_.size();
  }
  // The numbers of the cell's candidates among all candidates, ascending.
  [[nodiscard]] std::span<const std::uint32_t> ids() const noexcept { return ids_; }
  // The candidates themselves, their GPUs in the cell, and the free GPUs of the cell's nodes.
  [[nodiscard]] std::span<const eviction_candidate> candidates() const noexcept {
    return local_candidates_;
  }
  [[nodiscard]] std::span<const gpus_on_node> allocations() const noexcept {
    return local_allocations_;
  }
  [[nodiscard]] std::span<const std::uint32_t> free() const noexcept { return free_; }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  static constexpr std::uint64_t work_in_a_step = 48;
  // A node while no candidate is evicted.
  struct node_sums {
    std::uint64_t cost = 0;          // of all GPUs of candidates
    std::uint64_t cheapest = never;  // of one of them
    std::uint32_t gpus = 0;          // free GPUs, and GPUs of candidates
    std::uint32_t last = none;       // an allocation there
  };
  struct link {
    std::uint32_t candidate = 0;
    std::uint32_t before = none;  // another allocation there
  };
  void number_cells() {
    const std::uint32_t cells = capacities_->num_cells(level_);
    cell_of_.resize(nodes_.size());
    for (std::uint32_t c = 0; c < cells; ++c)
      for (const cell_id n : capacities_->nodes(level_, c)) cell_of_[n.value] = c;
    gpus_in_.assign(cells, 0);
  }
  void add_to_nodes(std::uint32_t j) {
    const eviction_candidate& c = candidates_[j];
    if (c.first == c.last) return;
    const std::uint32_t cell = cell_of_[allocations_[c.first].node];
    std::uint32_t sum = 0;
    bool in_several_cells = false;
    for (std::uint32_t a = c.first; a < c.last; ++a) {
      sum += allocations_[a].gpus;
      in_several_cells = in_several_cells || cell_of_[allocations_[a].node] != cell;
    }
    if (!in_several_cells) {
      const std::uint64_t price = cost_per_gpu(c.cost, (std::max)(sum, 1U));
      for (std::uint32_t a = c.first; a < c.last; ++a) add_to_node(j, a, price);
      return;
    }
    for (std::uint32_t a = c.first; a < c.last; ++a)
      gpus_in_[cell_of_[allocations_[a].node]] += allocations_[a].gpus;
    for (std::uint32_t a = c.first; a < c.last; ++a)
      add_to_node(j, a,
                  cost_per_gpu(c.cost, (std::max)(gpus_in_[cell_of_[allocations_[a].node]], 1U)));
    for (std::uint32_t a = c.first; a < c.last; ++a) gpus_in_[cell_of_[allocations_[a].node]] = 0;
  }
  void add_to_node(std::uint32_t j, std::uint32_t a, std::uint64_t price) {
    const auto [node, gpus] = allocations_[a];
    node_sums& at = nodes_[node];
    at.cost += price * gpus;
    if (gpus > 0) at.cheapest = (std::min)(at.cheapest, price);
    at.gpus += gpus;
    links_[a] = {j, at.last};
    at.last = a;
  }
  // The lower bound of a cell by slots of this size.
  [[nodiscard]] std::uint64_t bound_of(std::uint32_t cell, std::uint32_t size,
                                       std::uint64_t needed) {
    prices_.clear();
    std::uint64_t present = 0;
    for (const cell_id i : capacities_->nodes(level_, cell)) {
      const node_sums& n = nodes_[i.value];
      const std::uint32_t free = capacities_->free(i.value);
      present += slots_[free];
      std::uint32_t gain = slots_[n.gpus] - slots_[free];
      if (gain == 0) continue;
      std::uint32_t missing = (slots_[free] + 1) * size - free;
      if (n.gpus == free + missing) {
        prices_.push_back(n.cost);
        continue;
      }
      for (; gain > 0; --gain, missing = size) prices_.push_back(n.cheapest * missing);
    }
    work_ += prices_.size() / 2;
    if (present >= needed) return 0;
    const std::uint64_t short_of = needed - present;
    if (prices_.size() < short_of) return never;
    const auto last = prices_.begin() + static_cast<std::ptrdiff_t>(short_of);
    if (last != prices_.end()) std::nth_element(prices_.begin(), last, prices_.end());
    std::uint64_t sum = 0;
    for (auto price = prices_.begin(); price != last; ++price) sum += *price;
    return sum;
  }

  const capacity_index<Tree>* capacities_ = nullptr;
  level_t level_ = 0;
  std::span<const eviction_candidate> candidates_;
  std::span<const gpus_on_node> allocations_;
  std::vector<node_sums> nodes_;
  std::vector<link> links_;                                          // of each allocation
  lean_vector<std::uint32_t> cell_of_;                               // of each node
  lean_vector<std::uint32_t> gpus_in_;                               // of one candidate, by cell
  lean_vector<std::uint64_t> bounds_;                                // of each cell
  std::array<std::uint32_t, eviction_state::max_gpus + 1> slots_{};  // of one size, by GPUs
  lean_vector<std::uint64_t> prices_;                                // of slots
  std::uint64_t work_ = 0;
  lean_vector<std::uint32_t> ids_;
  lean_vector<eviction_candidate> local_candidates_;
  lean_vector<gpus_on_node> local_allocations_;
  lean_vector<std::uint32_t> free_;
};

}  // namespace detail
APIARY_NAMESPACE_END
