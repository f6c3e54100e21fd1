// apiary/preempt/victim_search.h - the victims of least cost that make room for a gang.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/model/request.h>
#include <apiary/preempt/detail/branch_and_bound.h>
#include <apiary/preempt/detail/eviction_state.h>
#include <apiary/preempt/detail/incremental_sort.h>
#include <apiary/preempt/detail/lower_bound.h>
#include <apiary/preempt/disruption_budget.h>
#include <apiary/preempt/eviction_candidate.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN

// Searches the set of running gangs of least total cost whose eviction lets a gang fit.
//
// First three greedy orders (cheapest gang, cheapest leaf, cheapest node first), each followed by
// sparing what turns out not to be needed, the dearest first: a set of which none can be spared,
// and which costs no more than taking the cheapest first does. Then branch and bound
// (preempt/detail/branch_and_bound.h) within a budget: it ends with the optimum, or with the best set so far and a
// lower bound beside it. The choice is a knapsack over nodes even for one task size, and NP-hard.
//
// One budget is for all of it. A step is one of gang_fit's search, of about 0.1 microseconds; a set
// that branch and bound tries counts as set_steps of them. Where sizes divide one another only such
// sets count. A set may take a quarter of what is left; when that is not enough it counts as one
// that does not fit, and then the lower bound does not follow from the search.
//
// The lower bound is that of preempt/detail/lower_bound.h, or what branch and bound proves.
//
// Who must not be evicted, a protected gang, is no candidate: its leaves are not free and not in the
// shares. A tenant may have a limit on the gangs that it loses, or on their leaves (preempt/disruption_budget.h):
// then the greedy orders pass over gangs beyond it, and where none of them finds a set, all are
// evicted and those of the tenants that lose too much are spared, the dearest first. It may be that
// this does not find one, either.
//
// Model:    HiveD (OSDI 2020) section 3.4 and kube-scheduler take victims greedily, node by node.
// Requires: candidates of less than 2^63 cost in all; shares within the nodes; at most 64 leaves a
//           node and a task.
// Cost:     O(candidates + shares + nodes); for each gang tried O(log candidates), and gang_fit
//           where sizes do not divide one another; the budget. With more candidates than sets that
//           the budget allows there is no branch and bound. Limits cost O(1) a gang more, and where
//           they are in the way O(candidates * log) and as many sets tried.
class victim_search {
 public:
  static constexpr std::uint64_t set_steps = 200;
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  explicit victim_search(std::uint64_t budget = 512 * set_steps) noexcept : budget_(budget) {}
  void set_budget(std::uint64_t budget) noexcept { budget_ = budget; }

  // `free`: free leaves of the nodes that shares name; `others`: all other nodes. does_not_fit: not
  // even with all candidates evicted, or with none of the sets within the limits; budget_ended: not
  // known. Sets that cost `limit` or more are of no use: nothing is searched where the bound leaves
  // no others, and cost() is never.
  fit_verdict operator()(std::span<const node_class> others, std::span<const std::uint32_t> free,
                         std::span<const eviction_candidate> candidates,
                         std::span<const gpus_on_node> shares, std::span<const task_group> members,
                         std::uint64_t limit = never, const disruption_budgets& limits = {}) {
    candidates_ = candidates;
    shares_ = shares;
    limit_ = limit;
    members_.clear();
    for (const task_group& m : members)
      if (m.tasks > 0 && m.gpus > 0) members_.push_back(m);
    steps_ = 0;
    victims_.clear();
    cost_ = 0;
    bound_ = 0;
    state_.begin(others, free, candidates, shares, members_);
    tally_.begin(limits, candidates, shares);
    const fit_verdict possible = pack(state_.all_evicted(), budget_);
    cut_.reset();
    if (possible == fit_verdict::does_not_fit) cut_ = fit_.cut();
    if (possible != fit_verdict::fits) return possible;
    if (fits()) return fit_verdict::fits;
    cost_ = never;
    bound_ = by_pieces_(state_, candidates);
    if (bound_ >= limit) return fit_verdict::fits;
    take_gangs([&](std::uint32_t j) { return candidates_[j].cost; });
    settle();
    take_gangs([&](std::uint32_t j) { return state_.price(j).cost; });
    settle();
    take_nodes();
    settle();
    if (cost_ == never) {  // the limits were in the way
      if (by_pieces_.short_within(state_, candidates, shares, tally_))
        return fit_verdict::does_not_fit;
      take_all();
      settle();
    }
    improve();
    if (cost_ == never && bound_ == never) return fit_verdict::does_not_fit;
    return cost_ == never && bound_ < limit ? fit_verdict::budget_ended : fit_verdict::fits;
  }

  // After `fits`: the candidates to evict, ascending; what they cost; what no set can cost less
  // than: equal if the set is proved to be optimal.
  [[nodiscard]] std::span<const std::uint32_t> victims() const noexcept { return victims_; }
  [[nodiscard]] std::uint64_t cost() const noexcept { return cost_; }
  [[nodiscard]] std::uint64_t lower_bound() const noexcept { return bound_; }
  // Of the budget.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  // After `does_not_fit`: a count that proves it with all candidates evicted, if there is one.
  [[nodiscard]] const std::optional<gang_fit::shortage>& cut() const noexcept { return cut_; }

 private:
  static constexpr std::uint32_t max_leaves = gang_fit::max_leaves;
  using spot = detail::eviction_state::spot;

  fit_verdict pack(const detail::eviction_state::histogram& nodes, std::uint64_t budget) {
    classes_.clear();
    for (std::uint32_t f = 1; f <= max_leaves; ++f)
      if (nodes[f] > 0) classes_.push_back({f, nodes[f]});
    fit_.set_budget(budget);
    const fit_verdict verdict = fit_(classes_, members_);
    steps_ += fit_.steps();
    return verdict;
  }
  [[nodiscard]] std::uint64_t left() const noexcept { return budget_ - steps_; }
  // The counts come first: they are at hand, say no most of the time, and often yes, too.
  fit_verdict verdict() {
    if (state_.short_of_pieces()) return fit_verdict::does_not_fit;
    if (state_.pieces_decide()) return fit_verdict::fits;
    return pack(state_.nodes(), left() / 4);
  }
  bool fits() { return verdict() == fit_verdict::fits; }

  // Evicts the candidate of the lowest price within the limits, then the next, until the gang is
  // known to fit: with all of them it does.
  template <class Price>
  void take_gangs(const Price& price) {
    cheapest_.begin(static_cast<std::uint32_t>(candidates_.size()));
    tally_.clear();
    for (bool taken = true; !taken || (!all_tried() && !fits()); cheapest_.pop()) {
      const detail::incremental_sort::entry* const top = cheapest_.top(price);
      if (top == nullptr) return;
      taken = tally_.admit(top->number);
      if (taken) state_.evict(top->number);
    }
  }
  [[nodiscard]] bool all_tried() const noexcept {
    return state_.tried().size() == candidates_.size();
  }
  void list_the_dearest_first() {
    order_.clear();
    for (std::uint32_t j = 0; j < candidates_.size(); ++j) order_.push_back(j);
    std::sort(order_.begin(), order_.end(), [&](auto a, auto b) { return is_dearer(a, b); });
  }
  // Evicts all, then spares those of the groups that lose too much, the dearest first.
  void take_all() {
    tally_.clear();
    list_the_dearest_first();
    for (const std::uint32_t j : order_) {
      state_.evict(j);
      tally_.take(j);
    }
    for (const std::uint32_t j : order_) {
      if (tally_.within()) return;
      if (!tally_.over(j)) continue;
      state_.set(j, false);
      if (fits()) {
        tally_.give_back(j);
      } else {
        state_.set(j, true);
      }
    }
    if (!tally_.within()) state_.spare_all();
  }
  [[nodiscard]] bool is_dearer(std::uint32_t a, std::uint32_t b) const noexcept {
    return candidates_[a].cost != candidates_[b].cost ? candidates_[a].cost > candidates_[b].cost
                                                      : a < b;
  }
  // Empties the node of the lowest price a piece of the largest size, then the next, where the
  // limits allow it; gangs that are evicted already cost nothing.
  void take_nodes() {
    tally_.clear();
    std::uint32_t size = 0;
    for (const auto& p : state_.pieces()) size = std::max(size, p.size);
    for (std::uint32_t f = 0; f <= max_leaves; ++f) in_pieces_[f] = f / size;
    const auto dearer = [](const detail::incremental_sort::entry& a,
                           const detail::incremental_sort::entry& b) { return b < a; };
    const std::span<const spot> spots = state_.spots();
    const auto before = [&](std::uint32_t n) {
      const std::uint64_t pieces = in_pieces_[spots[n].leaves] - in_pieces_[spots[n].free];
      return pieces == 0 ? never : pieces == 1 ? spots[n].cost : spots[n].cost / pieces;
    };
    cheapest_.begin(static_cast<std::uint32_t>(spots.size()));
    heap_.clear();  // nodes whose price has changed since
    while (!fits()) {
      const detail::incremental_sort::entry* const top = cheapest_.top(before);
      if (top == nullptr && heap_.empty()) break;
      const bool changed = !heap_.empty() && (top == nullptr || !(*top < heap_.front()));
      const auto [price, node] = changed ? heap_.front() : *top;
      if (changed) {
        std::pop_heap(heap_.begin(), heap_.end(), dearer);
        heap_.pop_back();
      } else {
        cheapest_.pop();
      }
      if (price_of(node) != price) continue;  // it stands there again with its price of now
      if (!admit_all_on(node)) continue;
      state_.for_each_on(node, [&](std::uint32_t j, std::uint32_t) {
        if (state_.evicted(j)) return;
        state_.evict(j);
        for (std::uint32_t s = candidates_[j].first; s < candidates_[j].last; ++s) {
          const std::uint64_t now = price_of(shares_[s].node);
          if (now == never) continue;
          heap_.push_back({now, shares_[s].node});
          std::push_heap(heap_.begin(), heap_.end(), dearer);
        }
      });
    }
  }
  // Whether all on the node may be evicted, and counts them then.
  bool admit_all_on(std::uint32_t node) {
    if (tally_.empty()) return true;
    const auto count = [&](bool more) {
      state_.for_each_on(node, [&](std::uint32_t j, std::uint32_t) {
        if (state_.evicted(j)) return;
        more ? static_cast<void>(tally_.take(j)) : tally_.give_back(j);
      });
    };
    count(true);
    if (tally_.within()) return true;
    count(false);
    return false;
  }
  // What it costs to empty a node, for each piece of the largest size that gives.
  [[nodiscard]] std::uint64_t price_of(std::uint32_t node) const noexcept {
    std::uint64_t cost = 0;
    std::uint32_t freed = state_.free(node);
    state_.for_each_on(node, [&](std::uint32_t j, std::uint32_t leaves) {
      if (state_.evicted(j)) return;
      cost += candidates_[j].cost;
      freed += leaves;
    });
    const std::uint32_t pieces = in_pieces_[freed] - in_pieces_[state_.free(node)];
    return pieces == 0 ? never : cost / pieces;
  }

  // Spares whom it can of those evicted, the dearest first, and keeps the set if it is the best.
  void settle() {
    if (all_tried() || fits()) {
      set_.clear();
      for (const std::uint32_t j : state_.tried())
        if (state_.evicted(j)) set_.push_back(j);
      std::sort(set_.begin(), set_.end(), [&](auto a, auto b) { return is_dearer(a, b); });
      for (const std::uint32_t j : set_) {
        state_.set(j, false);
        if (!fits()) state_.set(j, true);
      }
      keep();
    }
    state_.spare_all();
  }
  void keep() {
    std::uint64_t cost = 0;
    set_.clear();
    for (const std::uint32_t j : state_.tried()) {
      if (!state_.evicted(j)) continue;
      cost += candidates_[j].cost;
      set_.push_back(j);
    }
    if (cost >= cost_) return;
    cost_ = cost;
    victims_ = set_;
    std::sort(victims_.begin(), victims_.end());
  }

  // Branch and bound over few candidates: dear gangs are decided first, and spared first.
  void improve() {
    if (least() <= bound_ || candidates_.size() > left() / set_steps) return;
    list_the_dearest_first();
    costs_.clear();
    tally_.clear();
    for (const std::uint32_t j : order_) {
      state_.evict(j);
      costs_.push_back(candidates_[j].cost);
    }
    const bool certain =
        tally_.empty() ? search_(tries<false>{*this}, costs_) : search_(tries<true>{*this}, costs_);
    if (certain) bound_ = least();
    state_.spare_all();
  }
  // Only sets that cost less matter.
  [[nodiscard]] std::uint64_t least() const noexcept { return std::min(cost_, limit_); }
  // For branch_and_bound.
  template <bool Limited>
  struct tries {
    victim_search& in;

    [[nodiscard]] std::uint64_t least() const { return in.least() <= in.bound_ ? 0 : in.least(); }
    bool pay() {
      if (in.left() < set_steps) return false;
      in.steps_ += set_steps;
      return true;
    }
    fit_verdict spare(std::size_t k) {
      in.state_.set(in.order_[k], false);
      return in.verdict();
    }
    void evict(std::size_t k) { in.state_.set(in.order_[k], true); }
    bool take(std::size_t k) { return !Limited || in.tally_.take(in.order_[k]); }
    void give_back(std::size_t k) {
      if (Limited) in.tally_.give_back(in.order_[k]);
    }
    void keep() { in.keep(); }
  };

  gang_fit fit_;
  std::optional<gang_fit::shortage> cut_;
  detail::branch_and_bound search_;
  std::uint64_t budget_;
  std::uint64_t steps_ = 0;
  std::uint64_t limit_ = never;
  std::span<const eviction_candidate> candidates_;
  std::span<const gpus_on_node> shares_;
  std::vector<task_group> members_;  // those that take leaves
  detail::eviction_state state_;
  disruption_tally tally_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint64_t> costs_;  // in this order
  std::vector<std::uint32_t> set_;
  std::vector<std::uint32_t> victims_;
  std::uint64_t cost_ = 0;
  std::uint64_t bound_ = 0;
  detail::victim_lower_bound by_pieces_;
  std::array<std::uint32_t, max_leaves + 1> in_pieces_{};  // of the largest size
  detail::incremental_sort cheapest_;
  std::vector<detail::incremental_sort::entry> heap_;
  std::vector<node_class> classes_;
};

APIARY_NAMESPACE_END
