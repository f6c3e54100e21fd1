// apiary/preempt/detail/eviction_cells.h - gangs that may be evicted from each cell, and its least price.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/request.h>
#include <apiary/preempt/detail/eviction_state.h>
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

// Candidates for eviction by the cells of one level: what room for a gang costs in each cell at
// least, and one cell's candidates with their shares there.
//
// Bound:    counted in pieces of t leaves (gang/gang_fit.h) the cell is short of D. The cost of a gang
//           is spread over its leaves in the cell; a piece on a node costs no less than its missing
//           leaves at the lowest price there, or than all the node's leaves if it needs them all;
//           the D cheapest pieces of the cell no less than their sum. The greatest over all sizes.
//           0 where the level has one cell, which has to be searched anyway.
// Requires: as victim_search; shares name nodes of the rooms.
// Invalid:  shares of more leaves than a node may have abort (APIARY_VERIFY).
// Cost:     begin O(cells + shares + nodes), and for each size of task O(nodes + pieces); select
//           O(nodes of the cell + shares of its gangs, those elsewhere included, * log).
template <CellTree Tree>
class eviction_cells {
 public:
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  void begin(const capacity_index<Tree>& capacities, level_t level,
             std::span<const eviction_candidate> candidates, std::span<const gpus_on_node> shares,
             std::span<const task_group> members) {
    capacities_ = &capacities;
    level_ = level;
    candidates_ = candidates;
    shares_ = shares;
    nodes_.clear();
    for (const std::uint32_t f : capacities.free()) nodes_.push_back({0, never, f, none});
    name_cells();
    links_.resize(shares.size());
    for (std::uint32_t j = 0; j < candidates.size(); ++j) put_on_nodes(j);
    for (const place& n : nodes_) APIARY_VERIFY(n.leaves <= capacities.max_free());
    bounds_.assign(capacities.num_cells(level), 0);
    if (bounds_.size() == 1) return;
    for (std::size_t m = 0; m < members.size(); ++m) {
      const std::uint32_t size = members[m].gpus;
      const auto same = [&](const task_group& other) { return other.gpus == size; };
      if (size == 0 ||
          std::any_of(members.begin(), members.begin() + static_cast<std::ptrdiff_t>(m), same))
        continue;
      std::uint64_t needed = 0;
      for (const task_group& k : members) needed += std::uint64_t{k.tasks} * (k.gpus / size);
      for (std::uint32_t f = 0; f <= eviction_state::max_leaves; ++f) in_pieces_[f] = f / size;
      for (std::uint32_t c = 0; c < bounds_.size(); ++c)
        if (bounds_[c] != never) bounds_[c] = std::max(bounds_[c], price_of(c, size, needed));
    }
  }

  // What no set of victims costs less than, in each cell; never if none will do.
  [[nodiscard]] std::span<const std::uint64_t> bounds() const noexcept { return bounds_; }
  [[nodiscard]] std::uint32_t cell_of(std::uint32_t node) const noexcept { return cell_of_[node]; }

  // The candidates of a cell as victim_search asks for them; nodes are counted from its first one.
  void select(std::uint32_t cell) {
    const id_range<cell_id> nodes = capacities_->nodes(level_, cell);
    free_.clear();
    here_.clear();
    for (const cell_id n : nodes) {
      free_.push_back(capacities_->free(n.value));
      if (bounds_.size() > 1)
        for (std::uint32_t s = nodes_[n.value].last; s != none; s = links_[s].before)
          here_.push_back(links_[s].candidate);
    }
    if (bounds_.size() > 1) {
      std::sort(here_.begin(), here_.end());
      here_.erase(std::unique(here_.begin(), here_.end()), here_.end());
    } else {
      here_.clear();
      for (std::uint32_t j = 0; j < candidates_.size(); ++j) here_.push_back(j);
    }
    local_.clear();
    local_shares_.clear();
    for (const std::uint32_t j : here_) {
      const auto first = static_cast<std::uint32_t>(local_shares_.size());
      for (std::uint32_t s = candidates_[j].first; s < candidates_[j].last; ++s)
        if (nodes.contains(cell_id(shares_[s].node)))
          local_shares_.push_back({shares_[s].node - nodes.first.value, shares_[s].leaves});
      const auto last = static_cast<std::uint32_t>(local_shares_.size());
      local_.push_back({candidates_[j].cost, first, last});
    }
  }
  // Their numbers among all, ascending, and they themselves; the free leaves of the nodes.
  [[nodiscard]] std::span<const std::uint32_t> here() const noexcept { return here_; }
  [[nodiscard]] std::span<const eviction_candidate> candidates() const noexcept { return local_; }
  [[nodiscard]] std::span<const gpus_on_node> shares() const noexcept { return local_shares_; }
  [[nodiscard]] std::span<const std::uint32_t> free() const noexcept { return free_; }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  // A node, with nobody evicted.
  struct place {
    std::uint64_t cost = 0;          // of all leaves of candidates
    std::uint64_t cheapest = never;  // of one of them
    std::uint32_t leaves = 0;        // free, and those of candidates
    std::uint32_t last = none;       // a share there
  };
  struct link {
    std::uint32_t candidate = 0;
    std::uint32_t before = none;  // another share there
  };

  void name_cells() {
    const std::uint32_t cells = capacities_->num_cells(level_);
    cell_of_.resize(nodes_.size());
    for (std::uint32_t c = 0; c < cells; ++c)
      for (const cell_id n : capacities_->nodes(level_, c)) cell_of_[n.value] = c;
    leaves_in_.assign(cells, 0);
  }
  void put_on_nodes(std::uint32_t j) {
    const eviction_candidate& c = candidates_[j];
    if (c.first == c.last) return;
    const std::uint32_t cell = cell_of_[shares_[c.first].node];
    std::uint32_t sum = 0;
    bool apart = false;  // it is in several cells
    for (std::uint32_t s = c.first; s < c.last; ++s) {
      sum += shares_[s].leaves;
      apart = apart || cell_of_[shares_[s].node] != cell;
    }
    if (!apart) {
      const std::uint64_t price = cost_a_leaf(c.cost, std::max(sum, 1U));
      for (std::uint32_t s = c.first; s < c.last; ++s) put_on_node(j, s, price);
      return;
    }
    for (std::uint32_t s = c.first; s < c.last; ++s)
      leaves_in_[cell_of_[shares_[s].node]] += shares_[s].leaves;
    for (std::uint32_t s = c.first; s < c.last; ++s)
      put_on_node(j, s, cost_a_leaf(c.cost, std::max(leaves_in_[cell_of_[shares_[s].node]], 1U)));
    for (std::uint32_t s = c.first; s < c.last; ++s) leaves_in_[cell_of_[shares_[s].node]] = 0;
  }
  void put_on_node(std::uint32_t j, std::uint32_t s, std::uint64_t price) {
    const auto [node, leaves] = shares_[s];
    place& at = nodes_[node];
    at.cost += price * leaves;
    if (leaves > 0) at.cheapest = std::min(at.cheapest, price);
    at.leaves += leaves;
    links_[s] = {j, at.last};
    at.last = s;
  }

  // The bound of a cell by pieces of this size.
  [[nodiscard]] std::uint64_t price_of(std::uint32_t cell, std::uint32_t size,
                                       std::uint64_t needed) {
    prices_.clear();
    std::uint64_t present = 0;
    for (const cell_id i : capacities_->nodes(level_, cell)) {
      const place& n = nodes_[i.value];
      const std::uint32_t free = capacities_->free(i.value);
      present += in_pieces_[free];
      std::uint32_t gain = in_pieces_[n.leaves] - in_pieces_[free];
      if (gain == 0) continue;
      std::uint32_t missing = (in_pieces_[free] + 1) * size - free;
      if (n.leaves == free + missing) {
        prices_.push_back(n.cost);
        continue;
      }
      for (; gain > 0; --gain, missing = size) prices_.push_back(n.cheapest * missing);
    }
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
  std::span<const gpus_on_node> shares_;
  std::vector<place> nodes_;
  std::vector<link> links_;               // of each share
  std::vector<std::uint32_t> cell_of_;    // of each node
  std::vector<std::uint32_t> leaves_in_;  // of one candidate, by cell
  std::vector<std::uint64_t> bounds_;     // of each cell
  std::array<std::uint32_t, eviction_state::max_leaves + 1> in_pieces_{};  // of a size
  std::vector<std::uint64_t> prices_;                                      // of pieces
  std::vector<std::uint32_t> here_;
  std::vector<eviction_candidate> local_;
  std::vector<gpus_on_node> local_shares_;
  std::vector<std::uint32_t> free_;
};

}  // namespace detail
APIARY_NAMESPACE_END
