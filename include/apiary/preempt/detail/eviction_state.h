// apiary/preempt/detail/eviction_state.h - what becomes free as gangs are evicted and spared again.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/model/request.h>
#include <apiary/preempt/eviction_candidate.h>

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Nodes by free leaves, and the pieces that a gang is short of, while candidates are evicted.
//
// Requires: as victim_search. Members without tasks or leaves do not count.
// Cost:     begin O(candidates + shares + nodes); set O(shares of the candidate * sizes).
class eviction_state {
 public:
  static constexpr std::uint32_t max_leaves = gang_fit::max_leaves;
  using histogram = std::array<std::uint32_t, max_leaves + 1>;  // nodes by free leaves

  // Counted in pieces of `size` leaves: what the gang needs and what is free.
  struct piece_count {
    std::uint32_t size = 0;
    std::uint64_t needed = 0;
    std::uint64_t present = 0;
  };
  // What a leaf of a candidate costs, and what it costs when each gang costs one_gang.
  struct leaf_price {
    std::uint64_t cost = 0;
    std::uint32_t gang = 0;
  };
  static constexpr std::uint32_t one_gang = std::uint32_t{1} << 20;

  // A node, with nobody evicted.
  struct alignas(32) spot {
    std::uint64_t cost = 0;         // of the candidates on it
    std::uint64_t leaves_cost = 0;  // of their leaves on it
    std::uint32_t leaves_gang = 0;  // the same when each gang costs one_gang
    std::uint32_t free = 0;
    std::uint32_t leaves = 0;  // free, and those of candidates
    std::uint32_t last = none;
  };

  void begin(std::span<const node_class> others, std::span<const std::uint32_t> free,
             std::span<const eviction_candidate> candidates, std::span<const gpus_on_node> shares,
             std::span<const task_group> members) {
    candidates_ = candidates;
    shares_ = shares;
    nodes_.fill(0);
    for (const node_class& c : others) nodes_[c.free] += c.nodes;
    all_evicted_ = nodes_;
    free_.assign(free.begin(), free.end());
    spots_.resize(free.size());
    for (std::size_t n = 0; n < free.size(); ++n) spots_[n] = {0, 0, 0, free[n], free[n], none};
    count(nodes_, &spot::free);
    links_.resize(shares.size());
    prices_.resize(candidates.size());
    for (std::uint32_t j = 0; j < candidates.size(); ++j) put_on_nodes(j);
    count(all_evicted_, &spot::leaves);
    evicted_.assign(candidates.size(), 0);
    evicted_list_.clear();
    pieces_.clear();
    for (const task_group& m : members) {
      if (m.tasks == 0 || m.gpus == 0) continue;
      const auto same = [&](const piece_count& p) { return p.size == m.gpus; };
      if (std::any_of(pieces_.begin(), pieces_.end(), same)) continue;
      piece_count p{m.gpus, 0, 0};
      for (const task_group& k : members) p.needed += std::uint64_t{k.tasks} * (k.gpus / p.size);
      for (std::uint32_t f = 0; f <= max_leaves; ++f)
        p.present += std::uint64_t{nodes_[f]} * (f / p.size);
      pieces_.push_back(p);
    }
    pieces_decide_ = true;
    for (const piece_count& a : pieces_)
      for (const piece_count& b : pieces_)
        pieces_decide_ = pieces_decide_ && (a.size % b.size == 0 || b.size % a.size == 0);
  }

  [[nodiscard]] std::span<const spot> spots() const noexcept { return spots_; }
  [[nodiscard]] const leaf_price& price(std::uint32_t j) const noexcept { return prices_[j]; }
  // Calls use(candidate, leaves) for each share on the node, of the last candidate first.
  template <class Use>
  void for_each_on(std::uint32_t node, const Use& use) const {
    for (std::uint32_t s = spots_[node].last; s != none; s = links_[s].before)
      use(links_[s].candidate, shares_[s].leaves);
  }

  // Now.
  [[nodiscard]] std::uint32_t free(std::uint32_t node) const noexcept { return free_[node]; }
  [[nodiscard]] const histogram& nodes() const noexcept { return nodes_; }
  [[nodiscard]] std::span<const piece_count> pieces() const noexcept { return pieces_; }
  [[nodiscard]] bool short_of_pieces() const noexcept {
    return std::any_of(pieces_.begin(), pieces_.end(),
                       [](const piece_count& p) { return p.present < p.needed; });
  }
  // Whether the sizes divide one another: then the gang fits if it is not short (gang_fit).
  [[nodiscard]] bool pieces_decide() const noexcept { return pieces_decide_; }
  [[nodiscard]] bool evicted(std::uint32_t j) const noexcept { return evicted_[j] != 0; }
  // With all candidates evicted.
  [[nodiscard]] const histogram& all_evicted() const noexcept { return all_evicted_; }

  void set(std::uint32_t j, bool to) noexcept {
    if (evicted(j) == to) return;
    evicted_[j] = to ? 1 : 0;
    for (std::uint32_t s = candidates_[j].first; s < candidates_[j].last; ++s)
      change(shares_[s], to);
  }
  void evict(std::uint32_t j) {
    if (!evicted(j)) evicted_list_.push_back(j);
    set(j, true);
  }
  // Those that evict() was called for since spare_all(); some may be spared.
  [[nodiscard]] std::span<const std::uint32_t> tried() const noexcept { return evicted_list_; }
  void spare_all() noexcept {
    for (const std::uint32_t j : evicted_list_) set(j, false);
    evicted_list_.clear();
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  // A share on its node.
  struct link {
    std::uint32_t candidate = 0;
    std::uint32_t before = none;  // another share there
  };

  // Adds the nodes by this number of theirs; in turns to four sums, for most numbers are equal, and
  // a sum has to wait for itself.
  void count(histogram& nodes, std::uint32_t spot::*leaves) const {
    std::array<histogram, 4> sums{};
    for (std::size_t n = 0; n < spots_.size(); ++n) {
      APIARY_ASSERT(spots_[n].*leaves <= max_leaves);
      ++sums[n % 4][spots_[n].*leaves];
    }
    for (const histogram& sum : sums)
      for (std::size_t f = 0; f < nodes.size(); ++f) nodes[f] += sum[f];
  }

  void put_on_nodes(std::uint32_t j) {
    const eviction_candidate& c = candidates_[j];
    std::uint32_t leaves = 0;
    for (std::uint32_t s = c.first; s < c.last; ++s) leaves += shares_[s].leaves;
    leaves = std::max(leaves, 1U);
    const leaf_price price{cost_a_leaf(c.cost, leaves), cost_a_leaf(one_gang, leaves)};
    prices_[j] = price;
    for (std::uint32_t s = c.first; s < c.last; ++s) {
      spot& at = spots_[shares_[s].node];
      at.cost += c.cost;
      at.leaves_cost += price.cost * shares_[s].leaves;
      at.leaves_gang += price.gang * shares_[s].leaves;
      at.leaves += shares_[s].leaves;
      links_[s] = {j, at.last};
      at.last = s;
    }
  }
  void change(const gpus_on_node& s, bool more) noexcept {
    std::uint32_t& f = free_[s.node];
    const std::uint32_t to = more ? f + s.leaves : f - s.leaves;
    APIARY_ASSERT(to <= max_leaves);
    --nodes_[f];
    ++nodes_[to];
    for (piece_count& p : pieces_) {
      p.present += to / p.size;
      p.present -= f / p.size;
    }
    f = to;
  }

  std::span<const eviction_candidate> candidates_;
  std::span<const gpus_on_node> shares_;
  histogram nodes_{};
  histogram all_evicted_{};
  std::vector<std::uint32_t> free_;  // of each node named
  std::vector<spot> spots_;
  std::vector<link> links_;            // of each share
  std::vector<leaf_price> prices_;     // of each candidate
  std::vector<std::uint8_t> evicted_;  // of each candidate
  std::vector<std::uint32_t> evicted_list_;
  std::vector<piece_count> pieces_;  // of each size of the members
  bool pieces_decide_ = true;
};

}  // namespace detail
APIARY_NAMESPACE_END
