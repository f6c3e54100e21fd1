// apiary/policy/ruled_fit.h - where a gang fits under rules, exactly, or why it does not.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/room_index.h>
#include <apiary/core/config.h>
#include <apiary/core/ids.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>
#include <apiary/model/tree.h>
#include <apiary/policy/certificate.h>
#include <apiary/policy/explain_refusal.h>
#include <apiary/policy/front_search.h>
#include <apiary/policy/gang_fit.h>
#include <apiary/policy/gang_portions.h>
#include <apiary/policy/gang_rules.h>
#include <apiary/policy/room_count.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Which of the cells of one level that can hold a gang: the one with least free leaves, so that
// whole cells stay whole, or the one where it needs fewest nodes (least for one size of task, an
// estimate for several).
enum class gang_objective : std::uint8_t { whole_cells, fewest_nodes };

// Places a gang under its rules, or says that it cannot be placed: exactly, or not at all when the
// budget has ended. From the preferred level up to the required one: in the first level with a cell
// that can hold the gang, one such cell.
//
// * Without rules for slices, spread, CPU or memory the pieces of a cell (room_index) decide for
//   sizes that divide one another; for others they leave few cells, and gang_fit decides there.
// * With rules, one kind of task: how many a cell has room for is counted from the lowest level
//   with a rule up; that is exact.
// * Several kinds under rules, and what gang_fit has no count against: front_search, first with
//   few vectors, then with all. Here the problem is hard and the budget counts: a step is one
//   comparison of two vectors, of some 10 nanoseconds, or one step of gang_search.
//
// Requires: valid(gang) for the tree; hosts: CPU and memory left of each node, or nothing if they
//           do not count.
// Cost:     without rules O(cells of the level * sizes) and gang_fit in the cell; for one kind under
//           rules O(cells of the level of the lowest rule), for CPU and memory O(nodes).
// Example:  examples/three_placements.cpp
template <CellTree Tree>
class ruled_fit {
 public:
  using portion = gang_portion;

  explicit ruled_fit(std::uint64_t budget = 1'000'000,
                     gang_objective objective = gang_objective::whole_cells) noexcept
      : budget_(budget), objective_(objective) {}

  fit_verdict operator()(const room_index<Tree>& rooms, const gang_rules& gang,
                         std::span<const resources> hosts = {}) {
    begin(rooms, gang, hosts);
    const level_t last = gang.required == any_level ? rooms.top() : gang.required;
    fit_verdict verdict = fit_verdict::does_not_fit;
    lowest_ = true;
    for (level_t l = std::min(gang.preferred, last); l <= last; ++l) {
      listed_.clear();
      level_ = l;
      verdict = units_.size() == 0 ? fit_verdict::fits : try_level(l, l == last);
      if (verdict == fit_verdict::fits) {
        portions_of_members(gang, units_, portions_, by_kind_);
        return verdict;
      }
      lowest_ = lowest_ && verdict != fit_verdict::budget_ended;
    }
    return verdict;
  }

  // After `fits`: the cell, by its level and its place there, and the tasks on each node, members
  // and nodes ascending. The tasks of a member, and of those it leads, are in the order of the
  // nodes; so numbered, slices are consecutive tasks.
  [[nodiscard]] level_t level() const noexcept { return level_; }
  [[nodiscard]] std::uint32_t cell() const noexcept { return cell_; }
  [[nodiscard]] std::span<const portion> portions() const noexcept { return portions_; }
  // Whether it is certain that no lower level from the preferred one up would do; false if the
  // budget ended there.
  [[nodiscard]] bool is_lowest() const noexcept { return lowest_; }
  // Steps of the budget that were needed.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

  // After `does_not_fit`: why, with the rooms, gang and hosts of then.
  // Cost: O(nodes * kinds * leaves of a node), for people; a decision does not need it.
  [[nodiscard]] certificate explain(const room_index<Tree>& rooms, const gang_rules& gang,
                                    std::span<const resources> hosts = {}) {
    const level_t l = gang.required == any_level ? rooms.top() : gang.required;
    return explain_refusal(rooms, units_, hosts, l, listed_);
  }

 private:
  void begin(const room_index<Tree>& rooms, const gang_rules& gang,
             std::span<const resources> hosts) {
    APIARY_ASSERT(hosts.empty() || hosts.size() == rooms.num_nodes());
    rooms_ = &rooms;
    hosts_ = hosts;
    units_.assign(gang, rooms.node_level(), rooms.top());
    portions_.clear();
    fronts_ready_ = false;
    steps_ = 0;
    cell_ = 0;
    members_.clear();
    largest_ = 0;
    leaves_ = 0;
    bool without_leaves = false;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      members_.push_back({.tasks = units_[u].tasks, .leaves = units_[u].leaves});
      largest_ = std::max(largest_, units_[u].leaves);
      leaves_ += std::uint64_t{units_[u].tasks} * units_[u].leaves;
      without_leaves = without_leaves || units_[u].leaves == 0;
    }
    ruled_ =
        units_.lowest_rule() != any_level || without_leaves || (units_.hosted() && !hosts.empty());
    dividing_ = true;
    for (const gang_member& a : members_)
      for (const gang_member& b : members_)
        dividing_ = dividing_ && a.leaves > 0 && b.leaves > 0 &&
                    (a.leaves % b.leaves == 0 || b.leaves % a.leaves == 0);
  }

  // A no of gang_fit without a count is proved where it matters: at the last level.
  fit_verdict try_level(level_t l, bool last) {
    if (!ruled_ && largest_ > rooms_->most()) return fit_verdict::does_not_fit;
    if (l == rooms_->node_level() && !ruled_) return try_nodes();
    find_candidates(l);
    bool ended = false;
    unsettled_.clear();
    for (std::size_t left = candidates_.size(); left > 0; --left) {
      // The best one left; the first is nearly always enough.
      std::size_t best = 0;
      for (std::size_t i = 1; i < left; ++i)
        if (candidates_[i] < candidates_[best]) best = i;
      cell_ = candidates_[best].second;
      candidates_[best] = candidates_[left - 1];
      const fit_verdict verdict = ruled_ ? try_cell(l, cell_) : pack(l, cell_);
      if (verdict == fit_verdict::fits) return verdict;
      if (ruled_) {
        ended = ended || verdict == fit_verdict::budget_ended;
      } else if (verdict == fit_verdict::budget_ended || (last && !fit_.cut())) {
        unsettled_.push_back(cell_);
      }
    }
    for (const std::uint32_t c : unsettled_) {
      cell_ = c;
      const fit_verdict verdict = search(l, c);
      if (verdict == fit_verdict::fits) return verdict;
      ended = ended || verdict == fit_verdict::budget_ended;
    }
    return ended ? fit_verdict::budget_ended : fit_verdict::does_not_fit;
  }
  // Without rules a node holds whatever has no more leaves.
  fit_verdict try_nodes() {
    for (std::uint64_t f = leaves_; f <= rooms_->most(); ++f) {
      cell_ = rooms_->first_node(static_cast<std::uint32_t>(f), 0);
      if (cell_ == summary_bitset::npos) continue;
      for (std::uint32_t u = 0; u < units_.size(); ++u)
        portions_.push_back({cell_, u, units_[u].tasks});
      return fit_verdict::fits;
    }
    return fit_verdict::does_not_fit;
  }

  // Cells of the level that no count refuses.
  void find_candidates(level_t l) {
    possible_.assign(rooms_->num_cells(l), 1);
    if (l > rooms_->node_level()) {
      for (std::uint32_t t = 1; t <= largest_ && t <= rooms_->most(); ++t) {
        const auto same = [&](const gang_member& m) { return m.leaves == t; };
        if (dividing_ && std::none_of(members_.begin(), members_.end(), same)) continue;
        std::uint64_t needed = 0;
        for (const gang_member& m : members_) needed += std::uint64_t{m.tasks} * (m.leaves / t);
        const std::span<const std::uint32_t> pieces = rooms_->pieces(l, t);
        for (std::size_t c = 0; c < pieces.size(); ++c)
          possible_[c] = static_cast<unsigned char>(possible_[c] & (pieces[c] >= needed ? 1 : 0));
      }
    }
    if (ruled_) {
      counts_.resize(units_.size(), room_count<Tree>(*rooms_, units_, hosts_));
      for (std::size_t u = 0; u < units_.size(); ++u) {
        counts_[u] = room_count<Tree>(*rooms_, units_, hosts_);
        const std::span<const std::uint32_t> rooms = counts_[u].count(u, l);
        for (std::size_t c = 0; c < rooms.size(); ++c)
          if (rooms[c] < units_[u].tasks) possible_[c] = 0;
      }
    }
    candidates_.clear();
    for (std::uint32_t c = 0; c < possible_.size(); ++c)
      if (possible_[c] != 0) candidates_.emplace_back(rank(l, c), c);
  }
  [[nodiscard]] std::uint64_t rank(level_t l, std::uint32_t c) const {
    if (l == rooms_->node_level()) return rooms_->free(c);
    const std::uint64_t free = rooms_->pieces(l, 1)[c];
    if (objective_ == gang_objective::whole_cells) return free;
    // Nodes that it needs, the emptiest first.
    const bool one = units_.size() == 1 && units_[0].leaves > 0;
    const std::span<const std::uint32_t> nodes = rooms_->histogram(l, c);
    std::uint64_t left = one ? units_[0].tasks : leaves_;
    std::uint64_t used = 0;
    for (std::size_t f = nodes.size(); f-- > 1 && left > 0;) {
      const std::uint64_t each = one ? f / units_[0].leaves : f;
      if (each == 0) break;
      const std::uint64_t n = std::min<std::uint64_t>(nodes[f], (left + each - 1) / each);
      used += n;
      left -= std::min(left, n * each);
    }
    return used << 32 | free;
  }

  // Under rules.
  fit_verdict try_cell(level_t l, std::uint32_t c) {
    if (units_.size() == 1) {
      counts_[0].place(0, l, c, units_[0].tasks, [&](std::uint32_t node, std::uint32_t n) {
        portions_.push_back({node, 0, n});
      });
      return fit_verdict::fits;
    }
    return search(l, c);
  }
  // Without rules.
  fit_verdict pack(level_t l, std::uint32_t c) {
    classes_.clear();
    const std::span<const std::uint32_t> nodes = rooms_->histogram(l, c);
    for (std::uint32_t f = 1; f < nodes.size(); ++f)
      if (nodes[f] > 0) classes_.push_back({f, nodes[f]});
    if (objective_ == gang_objective::fewest_nodes) std::reverse(classes_.begin(), classes_.end());
    fit_.set_budget((budget_ - steps_) / 2);  // the other half for a proof
    const fit_verdict verdict = fit_(classes_, members_);
    steps_ += fit_.steps();
    if (verdict != fit_verdict::fits) return verdict;
    next_.assign(nodes.size(), rooms_->nodes(l, c).first.value);
    for (const gang_fit::used_node& used : fit_.nodes()) {
      std::uint32_t& next = next_[classes_[used.node_class].free];
      const std::uint32_t node = rooms_->first_node(classes_[used.node_class].free, next);
      next = node + 1;
      for (std::uint32_t p = used.first; p < used.last; ++p)
        portions_.push_back({node, fit_.portions()[p].member, fit_.portions()[p].tasks});
    }
    return verdict;
  }
  fit_verdict search(level_t l, std::uint32_t c) {
    constexpr std::size_t few = 16;
    for (const std::size_t beam : {few, front_search<Tree>::all}) {
      if (!fronts_ready_) fronts_.begin(*rooms_, units_, hosts_);
      fronts_ready_ = true;
      const bool made = fronts_.make(l, c, beam, budget_ - steps_);
      steps_ += fronts_.steps();
      if (!made) return fit_verdict::budget_ended;
      if (fronts_.holds_gang()) {
        fronts_.place([&](std::uint32_t node, std::size_t u, std::uint32_t n) {
          portions_.push_back({node, static_cast<std::uint32_t>(u), n});
        });
        return fit_verdict::fits;
      }
      if (!fronts_.cut()) break;
    }
    listed_.push_back({c, certificate::listed, 0, fronts_.front().values()});
    return fit_verdict::does_not_fit;
  }

  std::uint64_t budget_;
  gang_objective objective_;
  gang_fit fit_;
  const room_index<Tree>* rooms_ = nullptr;
  std::span<const resources> hosts_;
  gang_units units_;
  std::vector<gang_member> members_;  // the units
  std::uint32_t largest_ = 0;
  std::uint64_t leaves_ = 0;
  bool ruled_ = false;     // more than leaves count
  bool dividing_ = false;  // the sizes divide one another
  std::vector<unsigned char> possible_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> candidates_;  // rank and cell
  std::vector<std::uint32_t> unsettled_;                             // cells
  std::vector<room_count<Tree>> counts_;                             // of each unit
  std::vector<node_class> classes_;
  std::vector<std::uint32_t> next_;  // of each number of free leaves, where to look for a node
  front_search<Tree> fronts_;
  bool fronts_ready_ = false;
  std::vector<certificate::refusal> listed_;  // cells of the last level that are refused by listing
  level_t level_ = 0;
  bool lowest_ = true;
  std::uint32_t cell_ = 0;
  std::vector<portion> portions_;
  std::vector<portion> by_kind_;  // with kinds as members
  std::uint64_t steps_ = 0;
};

APIARY_NAMESPACE_END
