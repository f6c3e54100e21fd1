// apiary/hived/detail/guest_fates.h - which opportunistic gangs end for a gang, and what that costs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/ids.h>
#include <apiary/core/lean_vector.h>
#include <apiary/hived/detail/physical_chain.h>
#include <apiary/hived/ids.h>
#include <apiary/topology/tree.h>

#include <cstddef>
#include <cstdint>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Counts the reasons for which each gang on the leaves of a chain ends, and sums up what the gangs
// cost that end. It asks for the cost of a gang only when it is needed.
// Cost: O(leaves of the cell) for each call about a cell.
class guest_fates {
 public:
  // Lower bounds of the cost of ending a gang: `gang`, and `leaf` for each of its leaves.
  struct least_cost {
    std::uint64_t gang = 0;
    std::uint64_t leaf = 0;
  };

  // Forgets everything. The chain must not be destroyed before the next call.
  void begin(const physical_chain& chain, least_cost least) noexcept {
    chain_ = &chain;
    least_ = least;
    ++epoch_;
    undo_.clear();
  }
  [[nodiscard]] gang_slot user(cell_id leaf) const noexcept { return chain_->holders(leaf).user; }
  // The gang ends, whatever undo() undoes.
  void end(gang_slot s) { ++at(s).ended; }
  [[nodiscard]] bool ends(gang_slot s) { return at(s).ended > 0; }
  // The users of the leaves of a cell end. Returns what those cost that did not end before;
  // cost(slot) is the cost of one.
  template <class Cost>
  std::uint64_t end_users(cell_id p, const Cost& cost) {
    std::uint64_t all = 0;
    if (chain_->opportunistic_leaves(p) == 0) return all;
    for (const cell_id leaf : chain_->tree().descendants(p, 0)) {
      const gang_slot s = user(leaf);
      if (!s.valid()) continue;
      if (at(s).ended++ == 0) all += cost_of(s, cost);
      undo_.push_back(s);
    }
    return all;
  }
  // undo(position()) takes back what end_users() has done since position().
  [[nodiscard]] std::size_t position() const noexcept { return undo_.size(); }
  void undo(std::size_t to) {
    for (; undo_.size() > to; undo_.pop_back()) --fates_[undo_.back().value].ended;
  }
  template <class Cost>
  [[nodiscard]] std::uint64_t cost_of(gang_slot s, const Cost& cost) {
    fate& f = at(s);
    if (f.known) return f.cost;
    f.known = true;
    return f.cost = cost(s);
  }
  // A lower bound on the cost of ending all users of a cell that do not end yet. Adds to `steps`
  // one for each eight of them, for each leaf.
  [[nodiscard]] std::uint64_t least_cost_in(cell_id p, std::uint64_t& steps) {
    ++scan_;
    std::uint64_t gangs = 0;
    std::uint64_t leaves = 0;
    for (const cell_id leaf : chain_->tree().descendants(p, 0)) {
      const gang_slot s = user(leaf);
      if (!s.valid()) continue;
      fate& f = at(s);
      if (f.ended > 0) continue;
      ++leaves;
      gangs += f.scan == scan_ ? 0U : 1U;
      f.scan = scan_;
      steps += gangs / 8;
    }
    return gangs * least_.gang + leaves * least_.leaf;
  }

 private:
  struct fate {
    std::uint64_t epoch = 0;  // of the begin() after which the rest was set
    std::uint64_t scan = 0;   // of the last least_cost_in() that has counted it
    std::uint64_t cost = 0;   // if known
    std::uint32_t ended = 0;  // for how many leaves or other reasons it ends
    bool known = false;
  };
  [[nodiscard]] fate& at(gang_slot s) {
    if (fates_.size() <= s.value) fates_.resize(std::size_t{s.value} + 1);
    fate& f = fates_[s.value];
    if (f.epoch != epoch_) f = {.epoch = epoch_};
    return f;
  }

  const physical_chain* chain_ = nullptr;
  least_cost least_{};
  std::uint64_t epoch_ = 0;
  std::uint64_t scan_ = 0;
  lean_vector<fate> fates_;      // by slot
  lean_vector<gang_slot> undo_;  // gangs whose `ended` was raised by end_users()
};

}  // namespace detail
APIARY_NAMESPACE_END
