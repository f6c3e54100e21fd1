// apiary/preempt/detail/lower_bound.h - what no set of victims costs less than, counted in pieces of a node.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/preempt/detail/eviction_state.h>
#include <apiary/preempt/detail/smallest_n_sum.h>
#include <apiary/preempt/disruption_budget.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Counted in pieces of t leaves a gang is short of D (gang/gang_fit.h). A piece on a node needs leaves of
// candidates there; when the cost of each is spread over its leaves, the cheapest leaves of a node
// first bound what any pieces there cost, and the cheapest D pieces over all nodes (convex hulls, the
// last one in part) what all cost together. The bound is the greater of that, for any size, and of
// as many candidates, the cheapest, as the cheapest pieces need when each costs the same. Limits
// (preempt/disruption_budget.h) are left out: with them no set costs less.
//
// Requires: nobody is evicted.
// Cost:     O(nodes + shares * log + candidates) for each size.
class victim_lower_bound {
 public:
  std::uint64_t operator()(const eviction_state& state,
                           std::span<const eviction_candidate> candidates) {
    std::uint64_t bound = 0;
    std::uint64_t gangs = 0;
    for (const eviction_state::piece_count& p : state.pieces()) {
      if (p.present >= p.needed) continue;
      by_cost_.clear(p.needed - p.present);
      by_gang_.clear(p.needed - p.present);
      for (std::uint32_t f = 0; f <= eviction_state::max_leaves; ++f)
        missing_[f] = p.size - f % p.size;
      for (std::uint32_t n = 0; n < state.spots().size(); ++n) add_pieces(state, n, p.size);
      bound = std::max(bound, by_cost_.sum());
      gangs = std::max(gangs, by_gang_.sum());
    }
    by_cost_.clear((gangs + eviction_state::one_gang - 1) / eviction_state::one_gang);
    for (const eviction_candidate& c : candidates) by_cost_.add(c.cost);
    return std::max(bound, by_cost_.sum());
  }
  // Whether a count proves that no set within the limits will do. A victim gives no more than its
  // leaves on each of its nodes, and what is free there beside whole pieces; all that groups may
  // lose gives less than the D pieces have.
  bool short_within(const eviction_state& state, std::span<const eviction_candidate> candidates,
                    std::span<const gpus_on_node> shares, const disruption_tally& limits) {
    for (const eviction_state::piece_count& p : state.pieces()) {
      if (p.present >= p.needed) continue;
      gives_.clear();
      for (const eviction_candidate& c : candidates) {
        gives_.push_back(0);
        for (std::uint32_t s = c.first; s < c.last; ++s)
          gives_.back() += shares[s].leaves + state.spots()[shares[s].node].free % p.size;
      }
      if (limits.most_of(gives_) < (p.needed - p.present) * p.size) return true;
    }
    return false;
  }

 private:
  // What the pieces of a node cost.
  void add_pieces(const eviction_state& state, std::uint32_t n, std::uint32_t size) {
    const eviction_state::spot& at = state.spots()[n];
    const std::uint32_t missing = missing_[at.free];
    if (at.leaves < at.free + missing) return;
    if (at.leaves == at.free + missing) {  // all of it
      by_cost_.add(at.leaves_cost);
      by_gang_.add(at.leaves_gang);
      return;
    }
    add_pieces(state, n, size, missing, by_cost_,
               [&](std::uint32_t j) { return state.price(j).cost; });
    add_pieces(state, n, size, missing, by_gang_,
               [&](std::uint32_t j) { return state.price(j).gang; });
  }
  // The same when a leaf of a gang has this price: the cheapest leaves first.
  template <class Price>
  void add_pieces(const eviction_state& state, std::uint32_t n, std::uint32_t size,
                  std::uint32_t missing, smallest_n_sum& to, const Price& a_leaf) {
    here_.clear();
    state.for_each_on(
        n, [&](std::uint32_t j, std::uint32_t leaves) { here_.emplace_back(a_leaf(j), leaves); });
    if (here_.size() > 1) std::sort(here_.begin(), here_.end());
    std::uint64_t cost = 0;
    for (auto [leaf, leaves] : here_) {
      for (; leaves >= missing; missing = size) {
        to.add(cost + leaf * missing);
        cost = 0;
        leaves -= missing;
      }
      cost += leaf * leaves;
      missing -= leaves;
    }
  }

  smallest_n_sum by_cost_;
  smallest_n_sum by_gang_;
  std::array<std::uint32_t, eviction_state::max_leaves + 1> missing_{};  // leaves to the next piece
  std::vector<std::pair<std::uint64_t, std::uint32_t>> here_;
  std::vector<std::uint64_t> gives_;  // of each candidate
};

}  // namespace detail
APIARY_NAMESPACE_END
