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
// Cost:     O(candidates log candidates + shares + nodes) and gang_fit for each gang tried; a step
//           of the budget is one gang tried.
class victim_search {
 public:
  explicit victim_search(std::uint64_t budget = 2000) noexcept : budget_(budget) {}

  // `free`: free leaves of the nodes that shares name; `others`: all other nodes. does_not_fit: not
  // even with all candidates evicted.
  fit_verdict operator()(std::span<const node_class> others, std::span<const std::uint32_t> free,
                         std::span<const eviction_candidate> candidates,
                         std::span<const node_share> shares, std::span<const gang_member> members) {
    candidates_ = candidates;
    shares_ = shares;
    members_ = members;
    begin(others, free);
    evict_all();
    const fit_verdict possible = pack();
    if (possible != fit_verdict::fits) return possible;
    spare_all();
    victims_.clear();
    cost_ = 0;
    bound_ = 0;
    if (fits()) return fit_verdict::fits;
    cost_ = std::numeric_limits<std::uint64_t>::max();
    bound_ = lower_bound_by_pieces();
    order_.resize(candidates.size());
    std::iota(order_.begin(), order_.end(), 0U);
    for (const bool by_leaf : {false, true}) {
      std::stable_sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
        return by_leaf ? a_leaf_of(a) < a_leaf_of(b) : candidates_[a].cost < candidates_[b].cost;
      });
      for (const std::uint32_t j : order_) {
        evict(j);
        if (fits()) break;
      }
      settle();
    }
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
    std::uint32_t node = 0;
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
    leaves_.assign(candidates_.size(), 0);
    on_node_.clear();
    for (std::uint32_t j = 0; j < candidates_.size(); ++j) {
      for (std::uint32_t s = candidates_[j].first; s < candidates_[j].last; ++s) {
        leaves_[j] += shares_[s].leaves;
        on_node_.push_back({shares_[s].node, j, shares_[s].leaves});
      }
    }
    std::sort(on_node_.begin(), on_node_.end(), [](const placed& a, const placed& b) {
      return a.node != b.node ? a.node < b.node : a.candidate < b.candidate;
    });
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
  void evict(std::uint32_t j) noexcept { set_evicted(j, true); }
  void spare(std::uint32_t j) noexcept { set_evicted(j, false); }
  void evict_all() noexcept {
    for (std::uint32_t j = 0; j < candidates_.size(); ++j) evict(j);
  }
  void spare_all() noexcept {
    for (std::uint32_t j = 0; j < candidates_.size(); ++j) spare(j);
  }

  fit_verdict pack() {
    classes_.clear();
    for (std::uint32_t f = 1; f <= max_leaves; ++f)
      if (nodes_[f] > 0) classes_.push_back({f, nodes_[f]});
    return fit_(classes_, members_);
  }
  // The counts come first: they are at hand, and say no most of the time.
  bool fits() {
    for (const piece_count& p : pieces_)
      if (p.present < p.needed) return false;
    return pack() == fit_verdict::fits;
  }

  // Spares whom it can of those evicted, the dearest first, and keeps the set if it is the best.
  void settle() {
    if (!fits()) return spare_all();
    set_.clear();
    for (std::uint32_t j = 0; j < candidates_.size(); ++j)
      if (evicted_[j]) set_.push_back(j);
    std::stable_sort(set_.begin(), set_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return candidates_[a].cost > candidates_[b].cost;
    });
    for (const std::uint32_t j : set_) {
      spare(j);
      if (!fits()) evict(j);
    }
    keep();
    spare_all();
  }
  void keep() {
    std::uint64_t cost = 0;
    set_.clear();
    for (std::uint32_t j = 0; j < candidates_.size(); ++j) {
      if (!evicted_[j]) continue;
      cost += candidates_[j].cost;
      set_.push_back(j);
    }
    if (cost >= cost_) return;
    cost_ = cost;
    victims_ = set_;
  }

  // Empties nodes, each time the one that costs least for the pieces of the largest size it gives;
  // gangs evicted already cost nothing.
  void take_nodes() {
    std::uint32_t size = 0;
    for (const piece_count& p : pieces_) size = std::max(size, p.size);
    while (!fits()) {
      std::size_t best = on_node_.size();
      std::size_t best_end = 0;
      double least = 0;
      for (std::size_t i = 0; i < on_node_.size();) {
        const std::uint32_t node = on_node_[i].node;
        std::uint64_t cost = 0;
        std::uint32_t freed = free_[node];
        std::size_t end = i;
        for (; end < on_node_.size() && on_node_[end].node == node; ++end) {
          if (evicted_[on_node_[end].candidate]) continue;
          cost += candidates_[on_node_[end].candidate].cost;
          freed += on_node_[end].leaves;
        }
        const std::uint32_t gain = freed / size - free_[node] / size;
        const double price =
            gain > 0 ? static_cast<double>(cost) / gain : std::numeric_limits<double>::infinity();
        if (freed > free_[node] && (best == on_node_.size() || price < least)) {
          best = i;
          best_end = end;
          least = price;
        }
        i = end;
      }
      if (best == on_node_.size()) return;
      for (std::size_t i = best; i < best_end; ++i) evict(on_node_[i].candidate);
    }
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
    const auto count = static_cast<std::size_t>((gangs + one - 1) / one);
    costs_.clear();
    for (const eviction_candidate& c : candidates_) costs_.push_back(c.cost);
    std::sort(costs_.begin(), costs_.end());
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < count && i < costs_.size(); ++i) sum += costs_[i];
    return std::max(bound, sum);
  }
  template <class Price>
  [[nodiscard]] std::uint64_t cheapest(const piece_count& p, const Price& a_leaf) {
    costs_.clear();
    for (std::size_t i = 0; i < on_node_.size();) {
      const std::uint32_t node = on_node_[i].node;
      here_.clear();
      for (; i < on_node_.size() && on_node_[i].node == node; ++i)
        here_.push_back({a_leaf(on_node_[i].candidate), on_node_[i].leaves});
      std::sort(here_.begin(), here_.end());
      std::uint32_t missing = p.size - free_[node] % p.size;  // to the next piece
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
    const std::size_t short_of = std::min<std::size_t>(p.needed - p.present, costs_.size());
    std::sort(costs_.begin(), costs_.end());
    return std::accumulate(costs_.begin(), costs_.begin() + static_cast<std::ptrdiff_t>(short_of),
                           std::uint64_t{0});
  }

  // Branch and bound: dear gangs are decided first, and spared first.
  void improve() {
    if (cost_ <= bound_) return;
    std::stable_sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return candidates_[a].cost > candidates_[b].cost;
    });
    evict_all();
    steps_ = 0;
    branch(0, 0);
    spare_all();
    if (steps_ <= budget_) bound_ = cost_;
  }
  void branch(std::size_t k, std::uint64_t cost) {
    if (cost >= cost_ || cost_ <= bound_ || steps_ > budget_) return;
    if (k == order_.size()) return keep();
    if (++steps_ > budget_) return;
    spare(order_[k]);
    if (fits()) branch(k + 1, cost);
    evict(order_[k]);
    branch(k + 1, cost + candidates_[order_[k]].cost);
  }

  gang_fit fit_;
  std::uint64_t budget_;
  std::uint64_t steps_ = 0;
  std::span<const eviction_candidate> candidates_;
  std::span<const node_share> shares_;
  std::span<const gang_member> members_;
  std::array<std::uint32_t, max_leaves + 1> nodes_{};  // by free leaves
  std::vector<std::uint32_t> free_;                    // of each node named
  std::vector<bool> evicted_;                          // of each candidate
  std::vector<std::uint32_t> leaves_;                  // of each candidate
  std::vector<placed> on_node_;                        // the shares by node
  std::vector<piece_count> pieces_;                    // of each size of the members
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> set_;
  std::vector<std::uint32_t> victims_;
  std::uint64_t cost_ = 0;
  std::uint64_t bound_ = 0;
  std::vector<std::uint64_t> costs_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> here_;
  std::vector<node_class> classes_;
};

APIARY_NAMESPACE_END
