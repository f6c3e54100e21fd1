// apiary/policy/ruled_preempt.h - the victims of least cost that make room for a gang under rules.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/journal.h>
#include <apiary/alloc/room_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>
#include <apiary/model/tree.h>
#include <apiary/policy/eviction_state.h>
#include <apiary/policy/gang_fit.h>
#include <apiary/policy/gang_rules.h>
#include <apiary/policy/preempt.h>
#include <apiary/policy/ruled_fit.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Searches the set of running gangs of least total cost whose eviction lets a gang fit under its
// rules.
//
// A gang fits one cell of the level it requires, and there only what is evicted from that cell
// counts. So each cell is a search of its own (victim_search), without the other rules: its lower
// bound holds with them, too. In ascending order of these bounds, until a bound reaches the cost of
// the best set so far, cells are searched: with no other rules by victim_search, otherwise beginning
// with its victims, then evicting the cheapest, sparing the dearest, and branch and bound, with
// ruled_fit to say what fits.
//
// All is tried on the rooms themselves and taken back.
// Requires: as victim_search; shares name nodes of the rooms; CPU and memory count as they are.
// Cost:     O(candidates + shares + nodes) and O(log candidates) for each gang tried; a step of the
//           budget is one set tried in one cell.
template <CellTree Tree>
class ruled_victim_search {
 public:
  explicit ruled_victim_search(std::uint64_t budget = 512) noexcept
      : budget_(budget), quick_(0), thorough_(budget) {}

  // does_not_fit: not even with all candidates evicted.
  fit_verdict operator()(room_index<Tree>& rooms, const gang_rules& gang,
                         std::span<const eviction_candidate> candidates,
                         std::span<const node_share> shares,
                         std::span<const resources> hosts = {}) {
    candidates_ = candidates;
    shares_ = shares;
    victims_.clear();
    cost_ = 0;
    bound_ = 0;
    steps_ = 0;
    if (fits(rooms, gang, hosts)) return fit_verdict::fits;
    {
      transaction tx(log_);
      for (std::uint32_t j = 0; j < candidates.size(); ++j) change(tx, rooms, j, true);
      const fit_verdict possible = fit_(rooms, gang, hosts);
      if (possible != fit_verdict::fits) return possible;
    }
    cost_ = never;
    const bool only_level = !has_rules(gang, hosts);
    find_cells(rooms, gang);
    for (std::size_t i = 0; i < cells_.size() && cells_[i].bound < cost_; ++i) {
      select(rooms, cells_[i].cell);
      if (only_level) {
        cells_[i].bound = search_cell(rooms, thorough_);
        keep(thorough_.victims());
      } else {
        search_cell(rooms, quick_);
        if (search_by_rules(rooms, gang, hosts)) cells_[i].bound = never;  // nothing below cost_
      }
    }
    bound_ = cost_;
    for (const cell_bound& c : cells_) bound_ = std::min(bound_, c.bound);
    return cost_ == never ? fit_verdict::budget_ended : fit_verdict::fits;
  }

  // After `fits`: as victim_search.
  [[nodiscard]] std::span<const std::uint32_t> victims() const noexcept { return victims_; }
  [[nodiscard]] std::uint64_t cost() const noexcept { return cost_; }
  [[nodiscard]] std::uint64_t lower_bound() const noexcept { return bound_; }

 private:
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();
  struct cell_bound {
    std::uint64_t bound = 0;
    std::uint32_t cell = 0;
  };

  [[nodiscard]] static bool has_rules(const gang_rules& gang, std::span<const resources> hosts) {
    for (const ruled_member& m : gang.members)
      if (!m.slices.empty() || !m.spread.empty() || m.leader != no_member || m.leaves == 0 ||
          (!hosts.empty() && !(m.host == resources{})))
        return true;
    return false;
  }
  bool fits(const room_index<Tree>& rooms, const gang_rules& gang,
            std::span<const resources> hosts) {
    return fit_(rooms, gang, hosts) == fit_verdict::fits;
  }
  void change(transaction& tx, room_index<Tree>& rooms, std::uint32_t j, bool more) const {
    for (std::uint32_t s = candidates_[j].first; s < candidates_[j].last; ++s) {
      const std::uint32_t f = rooms.free(shares_[s].node);
      set(tx, rooms, shares_[s].node, more ? f + shares_[s].leaves : f - shares_[s].leaves);
    }
  }

  // The cells that can hold the gang at all without the other rules, the least bound first.
  void find_cells(const room_index<Tree>& rooms, const gang_rules& gang) {
    level_ = gang.required == any_level ? rooms.top() : gang.required;
    members_.clear();
    for (const ruled_member& m : gang.members)
      if (m.leaves > 0) members_.push_back({.tasks = m.tasks, .leaves = m.leaves});
    const std::uint32_t cells = rooms.num_cells(level_);
    cell_of_.resize(rooms.num_nodes());
    for (std::uint32_t c = 0; c < cells; ++c)
      for (const cell_id n : rooms.nodes(level_, c)) cell_of_[n.value] = c;
    in_cell_.assign(cells, {});
    for (std::uint32_t j = 0; j < candidates_.size(); ++j) {
      for (std::uint32_t s = candidates_[j].first; s < candidates_[j].last; ++s) {
        std::vector<std::uint32_t>& there = in_cell_[cell_of_[shares_[s].node]];
        if (there.empty() || there.back() != j) there.push_back(j);
      }
    }
    cells_.clear();
    for (std::uint32_t c = 0; c < cells; ++c) {
      select(rooms, c);
      if (const std::uint64_t bound = search_cell(rooms, quick_); bound != never)
        cells_.push_back({bound, c});
    }
    std::stable_sort(cells_.begin(), cells_.end(),
                     [](const cell_bound& a, const cell_bound& b) { return a.bound < b.bound; });
  }
  // The candidates of a cell, with their shares there.
  void select(const room_index<Tree>& rooms, std::uint32_t c) {
    const id_range<cell_id> nodes = rooms.nodes(level_, c);
    free_.clear();
    for (const cell_id n : nodes) free_.push_back(rooms.free(n.value));
    here_ = in_cell_[c];
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
  // What no set can cost less than, in the cell selected and without the other rules; never if it
  // cannot hold the gang.
  std::uint64_t search_cell(const room_index<Tree>& rooms, victim_search& search) {
    for (const gang_member& m : members_)
      if (m.leaves > rooms.most() && m.tasks > 0) return never;
    const fit_verdict verdict = search({}, free_, local_, local_shares_, members_);
    if (verdict == fit_verdict::does_not_fit) return never;
    return verdict == fit_verdict::fits ? search.lower_bound() : 0;
  }
  // Keeps a set of candidates of the cell if it is the best so far.
  void keep(std::span<const std::uint32_t> set) {
    std::uint64_t cost = 0;
    for (const std::uint32_t i : set) cost += local_[i].cost;
    if (cost >= cost_) return;
    cost_ = cost;
    victims_.clear();
    for (const std::uint32_t i : set) victims_.push_back(here_[i]);
    std::sort(victims_.begin(), victims_.end());
  }

  // After search_cell(quick_); whether it is certain that no set of the cell costs less than cost_.
  bool search_by_rules(room_index<Tree>& rooms, const gang_rules& gang,
                       std::span<const resources> hosts) {
    transaction tx(log_);
    chosen_.assign(local_.size(), 0);
    const auto evict = [&](std::uint32_t i) {
      if (chosen_[i] == 0) change(tx, rooms, here_[i], true);
      chosen_[i] = 1;
    };
    for (const std::uint32_t i : quick_.victims()) evict(i);
    order_.resize(local_.size());
    std::iota(order_.begin(), order_.end(), 0U);
    std::stable_sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return local_[a].cost > local_[b].cost;
    });
    bool is = fits(rooms, gang, hosts);
    for (std::size_t k = order_.size(); k-- > 0 && !is;) {
      evict(order_[k]);
      is = fits(rooms, gang, hosts);
    }
    if (!is) return true;  // the rules exclude this cell
    for (const std::uint32_t i : order_) {
      if (chosen_[i] == 0) continue;
      transaction spare(log_);
      change(spare, rooms, here_[i], false);
      if (!fits(rooms, gang, hosts)) continue;
      spare.commit();
      chosen_[i] = 0;
    }
    keep_chosen();
    for (const std::uint32_t i : order_) evict(i);
    const std::uint64_t last = budget_ < never - steps_ ? steps_ + budget_ : never;
    return branch(rooms, gang, hosts, 0, 0, last);
  }
  void keep_chosen() {
    set_.clear();
    for (std::uint32_t i = 0; i < chosen_.size(); ++i)
      if (chosen_[i] != 0) set_.push_back(i);
    keep(set_);
  }
  // Dear gangs are decided first, and spared first; all that are not decided are evicted. False if
  // the budget ended.
  bool branch(room_index<Tree>& rooms, const gang_rules& gang, std::span<const resources> hosts,
              std::size_t k, std::uint64_t cost, std::uint64_t last) {
    if (cost >= cost_) return true;
    if (k == order_.size()) {
      keep_chosen();
      return true;
    }
    if (steps_ == last) return false;
    ++steps_;
    const std::uint32_t i = order_[k];
    bool certain = true;
    {
      transaction spare(log_);
      change(spare, rooms, here_[i], false);
      const fit_verdict verdict = fit_(rooms, gang, hosts);
      certain = verdict != fit_verdict::budget_ended;
      chosen_[i] = 0;
      if (verdict == fit_verdict::fits) certain = branch(rooms, gang, hosts, k + 1, cost, last);
      chosen_[i] = 1;
    }
    return branch(rooms, gang, hosts, k + 1, cost + local_[i].cost, last) && certain;
  }

  std::uint64_t budget_;
  std::uint64_t steps_ = 0;
  victim_search quick_;     // bounds and greedy sets alone
  victim_search thorough_;  // within the budget
  ruled_fit<Tree> fit_;
  journal log_;
  std::span<const eviction_candidate> candidates_;
  std::span<const node_share> shares_;
  level_t level_ = 0;
  std::vector<gang_member> members_;                 // without rules
  std::vector<std::uint32_t> cell_of_;               // of each node
  std::vector<std::vector<std::uint32_t>> in_cell_;  // the candidates of each cell
  std::vector<cell_bound> cells_;
  std::vector<std::uint32_t> here_;  // the candidates of the cell selected, and
  std::vector<eviction_candidate> local_;
  std::vector<node_share> local_shares_;
  std::vector<std::uint32_t> free_;  // leaves of its nodes
  std::vector<std::uint32_t> order_;
  std::vector<std::uint8_t> chosen_;
  std::vector<std::uint32_t> set_;
  std::vector<std::uint32_t> victims_;
  std::uint64_t cost_ = 0;
  std::uint64_t bound_ = 0;
};

APIARY_NAMESPACE_END
