// apiary/policy/preempt.h - the victims of least cost that make room for a gang.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/model/request.h>
#include <apiary/policy/gang_fit.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Leaves of a node that become free when a gang is evicted.
struct node_share {
  std::uint32_t node = 0;
  std::uint32_t leaves = 0;
};

// A gang that may be evicted, wholly or not at all: its shares are first, ..., last-1 of a list,
// at most one a node.
struct eviction_candidate {
  std::uint64_t cost = 0;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

// Searches the set of running gangs of least total cost whose eviction lets a gang fit.
//
// First three greedy orders (cheapest gang, cheapest leaf, cheapest node first), each followed by
// sparing what turns out not to be needed, the dearest first: a set of which none can be spared.
// Then branch and bound within a budget: it ends with the optimum, or with the best set so far and a
// lower bound beside it. The choice is a knapsack over nodes even for one size of task, and NP-hard.
//
// Lower bound: counted in pieces of t leaves the gang is short of D (gang_fit.h). A piece on a node
//           needs leaves of gangs there; when the cost of a gang is spread over its leaves, the
//           cheapest leaves of each node first bound what any pieces there cost, and the cheapest D
//           pieces over all nodes (convex hulls, the last one in part) what all cost together.
// Model:    HiveD (OSDI 2020) section 3.4 and kube-scheduler take victims greedily, node by node.
// Requires: candidates of less than 2^63 cost in all; shares within the nodes; at most 64 leaves a
//           node.
// Cost:     O(candidates + shares + nodes), O(log candidates) and gang_fit for each gang tried; a step
//           of the budget is one gang tried; with more candidates than that there is no search.
class victim_search {
 public:
  explicit victim_search(std::uint64_t budget = 512) noexcept : budget_(budget) {}

  // `free`: free leaves of the nodes that shares name; `others`: all other nodes. does_not_fit: not
  // even with all candidates evicted.
  fit_verdict operator()(std::span<const node_class> others, std::span<const std::uint32_t> free,
                         std::span<const eviction_candidate> candidates,
                         std::span<const node_share> shares, std::span<const gang_member> members) {
    candidates_ = candidates;
    shares_ = shares;
    members_ = members;
    begin(others, free);
    const fit_verdict possible = pack_without_all();
    if (possible != fit_verdict::fits) return possible;
    victims_.clear();
    cost_ = 0;
    bound_ = 0;
    if (fits()) return fit_verdict::fits;
    cost_ = std::numeric_limits<std::uint64_t>::max();
    bound_ = lower_bound_by_pieces();
    take_gangs([&](std::uint32_t j) { return candidates_[j].cost; });
    settle();
    take_gangs([&](std::uint32_t j) { return a_leaf_of(j); });
    settle();
    take_nodes();
    settle();
    improve();
    return fit_verdict::fits;
  }

  // After `fits`: the candidates to evict, ascending; what they cost; what no set can cost less
  // than: equal if the set is proved to be optimal.
  [[nodiscard]] std::span<const std::uint32_t> victims() const noexcept { return victims_; }
  [[nodiscard]] std::uint64_t cost() const noexcept { return cost_; }
  [[nodiscard]] std::uint64_t lower_bound() const noexcept { return bound_; }
  // After `does_not_fit`: a count that proves it, if there is one.
  [[nodiscard]] const std::optional<gang_fit::shortage>& cut() const noexcept { return fit_.cut(); }

 private:
  static constexpr std::uint32_t max_leaves = gang_fit::max_leaves;

  struct placed {
    std::uint32_t candidate = 0;
    std::uint32_t leaves = 0;
  };
  struct piece_count {
    std::uint32_t size = 0;
    std::uint64_t needed = 0;
    std::uint64_t present = 0;
  };

  void begin(std::span<const node_class> others, std::span<const std::uint32_t> free) {
    nodes_.fill(0);
    for (const node_class& c : others) nodes_[c.free] += c.nodes;
    free_.assign(free.begin(), free.end());
    for (const std::uint32_t f : free_) ++nodes_[f];
    evicted_.assign(candidates_.size(), false);
    evicted_list_.clear();
    leaves_.assign(candidates_.size(), 0);
    // The shares by node: counted first.
    first_.assign(free_.size() + 1, 0);
    for (const eviction_candidate& c : candidates_)
      for (std::uint32_t s = c.first; s < c.last; ++s) ++first_[shares_[s].node + 1];
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    on_node_.resize(first_.back());
    filled_.assign(first_.begin(), first_.end());
    for (std::uint32_t j = 0; j < candidates_.size(); ++j) {
      for (std::uint32_t s = candidates_[j].first; s < candidates_[j].last; ++s) {
        leaves_[j] += shares_[s].leaves;
        on_node_[filled_[shares_[s].node]++] = {j, shares_[s].leaves};
      }
    }
    pieces_.clear();
    for (const gang_member& m : members_) {
      const auto same = [&](const piece_count& p) { return p.size == m.leaves; };
      if (std::any_of(pieces_.begin(), pieces_.end(), same)) continue;
      piece_count p{m.leaves, 0, 0};
      for (const gang_member& k : members_)
        p.needed += std::uint64_t{k.tasks} * (k.leaves / p.size);
      for (std::uint32_t f = 0; f <= max_leaves; ++f)
        p.present += std::uint64_t{nodes_[f]} * (f / p.size);
      pieces_.push_back(p);
    }
  }

  void change(const node_share& s, bool more) noexcept {
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
  void set_evicted(std::uint32_t j, bool to) noexcept {
    if (evicted_[j] == to) return;
    evicted_[j] = to;
    for (std::uint32_t s = candidates_[j].first; s < candidates_[j].last; ++s)
      change(shares_[s], to);
  }
  void evict(std::uint32_t j) {
    if (!evicted_[j]) evicted_list_.push_back(j);
    set_evicted(j, true);
  }
  void spare_all() noexcept {
    for (const std::uint32_t j : evicted_list_) set_evicted(j, false);
    evicted_list_.clear();
  }

  fit_verdict pack(const std::array<std::uint32_t, max_leaves + 1>& nodes) {
    classes_.clear();
    for (std::uint32_t f = 1; f <= max_leaves; ++f)
      if (nodes[f] > 0) classes_.push_back({f, nodes[f]});
    return fit_(classes_, members_);
  }
  // With all candidates evicted.
  fit_verdict pack_without_all() {
    std::array<std::uint32_t, max_leaves + 1> nodes = nodes_;
    for (std::uint32_t n = 0; n < free_.size(); ++n) {
      std::uint32_t f = free_[n];
      for (std::uint32_t i = first_[n]; i < first_[n + 1]; ++i) f += on_node_[i].leaves;
      APIARY_ASSERT(f <= max_leaves);
      --nodes[free_[n]];
      ++nodes[f];
    }
    return pack(nodes);
  }
  // The counts come first: they are at hand, and say no most of the time.
  bool fits() {
    for (const piece_count& p : pieces_)
      if (p.present < p.needed) return false;
    return pack(nodes_) == fit_verdict::fits;
  }

  // Evicts the candidate of the lowest price, then the next, until the gang fits.
  template <class Price>
  void take_gangs(const Price& price) {
    heap_.clear();
    for (std::uint32_t j = 0; j < candidates_.size(); ++j) heap_.push_back({price(j), j});
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    while (!fits()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      evict(heap_.back().second);
      heap_.pop_back();
    }
  }
  // Empties the node of the lowest price a piece of the largest size, then the next; gangs that are
  // evicted already cost nothing.
  void take_nodes() {
    std::uint32_t size = 0;
    for (const piece_count& p : pieces_) size = std::max(size, p.size);
    heap_.clear();
    for (std::uint32_t n = 0; n < free_.size(); ++n)
      if (const std::uint64_t price = price_of(n, size); price != never)
        heap_.push_back({price, n});
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    while (!fits() && !heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const auto [price, node] = heap_.back();
      heap_.pop_back();
      if (price_of(node, size) != price) continue;  // it stands there again with its price of now
      for (std::uint32_t i = first_[node]; i < first_[node + 1]; ++i) {
        const std::uint32_t j = on_node_[i].candidate;
        if (evicted_[j]) continue;
        evict(j);
        for (std::uint32_t s = candidates_[j].first; s < candidates_[j].last; ++s) {
          const std::uint64_t now = price_of(shares_[s].node, size);
          if (now == never) continue;
          heap_.push_back({now, shares_[s].node});
          std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
        }
      }
    }
  }
  // What it costs to empty a node, for each piece that gives.
  [[nodiscard]] std::uint64_t price_of(std::uint32_t node, std::uint32_t size) const noexcept {
    std::uint64_t cost = 0;
    std::uint32_t freed = free_[node];
    for (std::uint32_t i = first_[node]; i < first_[node + 1]; ++i) {
      if (evicted_[on_node_[i].candidate]) continue;
      cost += candidates_[on_node_[i].candidate].cost;
      freed += on_node_[i].leaves;
    }
    const std::uint32_t pieces = freed / size - free_[node] / size;
    return pieces == 0 ? never : cost / pieces;
  }

  // Spares whom it can of those evicted, the dearest first, and keeps the set if it is the best.
  void settle() {
    if (fits()) {
      set_ = evicted_list_;
      std::sort(set_.begin(), set_.end(), [&](std::uint32_t a, std::uint32_t b) {
        if (candidates_[a].cost != candidates_[b].cost)
          return candidates_[a].cost > candidates_[b].cost;
        return a < b;
      });
      for (const std::uint32_t j : set_) {
        set_evicted(j, false);
        if (!fits()) set_evicted(j, true);
      }
      keep();
    }
    spare_all();
  }
  void keep() {
    std::uint64_t cost = 0;
    set_.clear();
    for (const std::uint32_t j : evicted_list_) {
      if (!evicted_[j]) continue;
      cost += candidates_[j].cost;
      set_.push_back(j);
    }
    if (cost >= cost_) return;
    cost_ = cost;
    victims_ = set_;
    std::sort(victims_.begin(), victims_.end());
  }

  [[nodiscard]] std::uint64_t a_leaf_of(std::uint32_t j) const noexcept {
    return leaves_[j] == 0 ? candidates_[j].cost : candidates_[j].cost / leaves_[j];
  }
  // The greater of: the cheapest pieces; and as many gangs, the cheapest, as the cheapest pieces
  // need when each gang costs the same.
  [[nodiscard]] std::uint64_t lower_bound_by_pieces() {
    constexpr std::uint64_t one = std::uint64_t{1} << 20;
    std::uint64_t bound = 0;
    std::uint64_t gangs = 0;
    for (const piece_count& p : pieces_) {
      if (p.present >= p.needed) continue;
      bound = std::max(bound, cheapest(p, [&](std::uint32_t j) { return a_leaf_of(j); }));
      gangs = std::max(
          gangs, cheapest(p, [&](std::uint32_t j) { return one / std::max(leaves_[j], 1U); }));
    }
    costs_.clear();
    for (const eviction_candidate& c : candidates_) costs_.push_back(c.cost);
    return std::max(bound, sum_of_least(static_cast<std::size_t>((gangs + one - 1) / one)));
  }
  // Of costs_; reorders them.
  [[nodiscard]] std::uint64_t sum_of_least(std::size_t n) {
    if (n >= costs_.size()) return std::accumulate(costs_.begin(), costs_.end(), std::uint64_t{0});
    const auto end = costs_.begin() + static_cast<std::ptrdiff_t>(n);
    std::nth_element(costs_.begin(), end, costs_.end());
    return std::accumulate(costs_.begin(), end, std::uint64_t{0});
  }
  // The cheapest pieces that are missing, when a leaf of a gang has this price.
  template <class Price>
  [[nodiscard]] std::uint64_t cheapest(const piece_count& p, const Price& a_leaf) {
    costs_.clear();
    for (std::uint32_t n = 0; n < free_.size(); ++n) {
      here_.clear();
      for (std::uint32_t i = first_[n]; i < first_[n + 1]; ++i)
        here_.push_back({a_leaf(on_node_[i].candidate), on_node_[i].leaves});
      if (here_.size() > 1) std::sort(here_.begin(), here_.end());
      std::uint32_t missing = p.size - free_[n] % p.size;  // to the next piece
      std::uint64_t cost = 0;
      for (auto [price, leaves] : here_) {
        for (; leaves >= missing; missing = p.size) {
          costs_.push_back(cost + price * missing);
          cost = 0;
          leaves -= missing;
        }
        cost += price * leaves;
        missing -= leaves;
      }
    }
    return sum_of_least(static_cast<std::size_t>(p.needed - p.present));
  }

  // Branch and bound over few candidates: dear gangs are decided first, and spared first.
  void improve() {
    if (cost_ <= bound_ || candidates_.size() > budget_) return;
    order_.resize(candidates_.size());
    std::iota(order_.begin(), order_.end(), 0U);
    std::stable_sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return candidates_[a].cost > candidates_[b].cost;
    });
    for (const std::uint32_t j : order_) evict(j);
    steps_ = 0;
    branch(0, 0);
    spare_all();
    if (steps_ <= budget_) bound_ = cost_;
  }
  void branch(std::size_t k, std::uint64_t cost) {
    if (cost >= cost_ || cost_ <= bound_ || steps_ > budget_) return;
    if (k == order_.size()) return keep();
    if (++steps_ > budget_) return;
    set_evicted(order_[k], false);
    if (fits()) branch(k + 1, cost);
    set_evicted(order_[k], true);
    branch(k + 1, cost + candidates_[order_[k]].cost);
  }

  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  gang_fit fit_;
  std::uint64_t budget_;
  std::uint64_t steps_ = 0;
  std::span<const eviction_candidate> candidates_;
  std::span<const node_share> shares_;
  std::span<const gang_member> members_;
  std::array<std::uint32_t, max_leaves + 1> nodes_{};  // by free leaves
  std::vector<std::uint32_t> free_;                    // of each node named
  std::vector<bool> evicted_;                          // of each candidate
  std::vector<std::uint32_t> evicted_list_;            // since spare_all, some spared since
  std::vector<std::uint32_t> leaves_;                  // of each candidate
  std::vector<std::uint32_t> first_;                   // of each node, in on_node_; and the end
  std::vector<std::uint32_t> filled_;
  std::vector<placed> on_node_;      // the shares by node
  std::vector<piece_count> pieces_;  // of each size of the members
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> set_;
  std::vector<std::uint32_t> victims_;
  std::uint64_t cost_ = 0;
  std::uint64_t bound_ = 0;
  std::vector<std::uint64_t> costs_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> here_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> heap_;
  std::vector<node_class> classes_;
};

APIARY_NAMESPACE_END
