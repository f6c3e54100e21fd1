// apiary/preempt/detail/slot_bounds.h - lower bounds of victims, from counts of slots and of gangs.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/container/keyed_number.h>
#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/preempt/detail/disruption_tally.h>
#include <apiary/preempt/detail/eviction_states.h>
#include <apiary/preempt/detail/incremental_sort.h>
#include <apiary/preempt/victim_set.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The sum of the n smallest numbers added so far, or of all of them if there are fewer. Cost: add
// O(1) for a number that does not change the sum, else O(log n); sum O(n).
class smallest_n_sum {
 public:
  void clear(std::uint64_t n) noexcept {
    n_ = n;
    heap_.clear();
    below_ = n == 0 ? 0 : (std::numeric_limits<std::uint64_t>::max)();
  }
  void add(std::uint64_t x) {
    if (x < below_) insert(x);  // rare
  }
  [[nodiscard]] std::uint64_t sum() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t x : heap_) sum += x;
    return sum;
  }

 private:
  void insert(std::uint64_t x) {
    if (heap_.size() == n_) {
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.pop_back();
    }
    heap_.push_back(x);
    std::push_heap(heap_.begin(), heap_.end());
    if (heap_.size() == n_) below_ = heap_.front();
  }

  std::uint64_t n_ = 0;
  std::uint64_t below_ = 0;          // only smaller numbers change the sum
  lean_vector<std::uint64_t> heap_;  // the greatest number first
};

// A lower bound on the cost of every set of victims that lets the gang fit: the greatest bound over
// all task sizes, or of the first max_sizes of those that the gang lacks. For each size the gang
// lacks D slots (eviction_state). The cost of each candidate is spread over its GPUs. Then the
// cheapest GPUs of a node are a bound for each of its slots, and the D cheapest slots are a bound
// for the set. If every gang costs the same, this sum bounds the number of victims, n; the n
// cheapest candidates are a second bound. Disruption budgets are ignored: no set costs less because
// of them.
// Requires: no candidate is evicted.
// Cost:     O(nodes + allocations * log + candidates) for each task size.
class victim_lower_bound {
 public:
  std::uint64_t operator()(const eviction_state& state,
                           std::span<const eviction_candidate> candidates,
                           std::uint64_t max_sizes = ~std::uint64_t{0}) {
    std::uint64_t bound = 0;
    std::uint64_t gangs = 0;
    for (const eviction_state::slot_count& s : state.slots()) {
      if (s.present >= s.needed) continue;
      if (max_sizes-- == 0) break;
      by_cost_.clear(s.needed - s.present);
      by_gang_.clear(s.needed - s.present);
      for (std::uint32_t f = 0; f <= eviction_state::max_gpus; ++f)
        missing_[f] = s.size - f % s.size;
      for (std::uint32_t n = 0; n < state.nodes().size(); ++n) add_slots(state, n, s.size);
      bound = (std::max)(bound, by_cost_.sum());
      gangs = (std::max)(gangs, by_gang_.sum());
    }
    by_cost_.clear((gangs + eviction_state::one_gang - 1) / eviction_state::one_gang);
    for (const eviction_candidate& c : candidates) by_cost_.add(c.cost);
    return (std::max)(bound, by_cost_.sum());
  }
  // Whether a count proves that no set within the disruption budgets is enough: a victim gives at
  // most its GPUs on each of its nodes, and the free GPUs there that are not in a slot yet.
  bool is_short_within_budgets(const eviction_state& state,
                               std::span<const eviction_candidate> candidates,
                               std::span<const gpus_on_node> allocations,
                               const disruption_tally& budgets) {
    for (const eviction_state::slot_count& s : state.slots()) {
      if (s.present >= s.needed) continue;
      gpus_from_.clear();
      for (const eviction_candidate& c : candidates) {
        gpus_from_.push_back(0);
        for (std::uint32_t a = c.first; a < c.last; ++a)
          gpus_from_.back() +=
              allocations[a].gpus + state.nodes()[allocations[a].node].free % s.size;
      }
      if (budgets.max_sum(gpus_from_) < (s.needed - s.present) * s.size) return true;
    }
    return false;
  }

 private:
  // Adds the bounds of the new slots of a node.
  void add_slots(const eviction_state& state, std::uint32_t n, std::uint32_t size) {
    const eviction_state::node_sums& at = state.nodes()[n];
    const std::uint32_t missing = missing_[at.free];
    if (at.gpus < at.free + missing) return;
    if (at.gpus == at.free + missing) {  // the slot needs all of them
      by_cost_.add(at.gpus_cost);
      by_gang_.add(at.gpus_gang);
      return;
    }
    add_slots(state, n, size, missing, by_cost_,
              [&](std::uint32_t j) { return state.price(j).cost; });
    add_slots(state, n, size, missing, by_gang_,
              [&](std::uint32_t j) { return state.price(j).gang; });
  }
  // The same with this price of one GPU of a candidate: the cheapest GPUs first.
  template <class Price>
  void add_slots(const eviction_state& state, std::uint32_t n, std::uint32_t size,
                 std::uint32_t missing, smallest_n_sum& to, const Price& price_of_gpu) {
    here_.clear();
    state.for_each_on(n, [&](std::uint32_t j, std::uint32_t gpus) {
      here_.push_back({price_of_gpu(j), gpus});
    });
    if (here_.size() > 1) keyed_number::sort(here_);
    std::uint64_t cost = 0;
    for (auto [price, gpus] : here_) {
      for (; gpus >= missing; missing = size) {
        to.add(cost + price * missing);
        cost = 0;
        gpus -= missing;
      }
      cost += price * gpus;
      missing -= gpus;
    }
  }

  smallest_n_sum by_cost_;
  smallest_n_sum by_gang_;
  std::array<std::uint32_t, eviction_state::max_gpus + 1> missing_{};  // GPUs to the next slot
  lean_vector<keyed_number> here_;                                     // GPUs by the price of one
  lean_vector<std::uint64_t> gpus_from_;                               // of each candidate
};

// Raises a lower bound on the cost of a set of candidates. Let n be the least number of gangs that
// can cost as much as the bound: the most expensive gangs that add up to it. A set has at least n
// gangs, so it costs at least as much as the n cheapest gangs. Cost: begin O(1); then as
// incremental_sort for n gangs.
class gang_count_bound {
 public:
  void begin(std::span<const eviction_candidate> candidates) {
    candidates_ = candidates;
    largest_.begin(static_cast<std::uint32_t>(candidates.size()));
    smallest_.begin(static_cast<std::uint32_t>(candidates.size()));
    sums_of_largest_.assign(1, 0);
    sums_of_smallest_.assign(1, 0);
  }
  // Operations since the last call.
  [[nodiscard]] std::uint64_t take_work() noexcept {
    return largest_.take_work() + smallest_.take_work();
  }
  [[nodiscard]] std::uint64_t operator()(std::uint64_t bound) {
    if (bound == incremental_sort::never) return bound;
    std::size_t gangs = 0;
    while (sum_of(gangs, largest_, sums_of_largest_,
                  [&](std::uint32_t j) { return ~candidates_[j].cost; }) < bound &&
           gangs < candidates_.size())
      ++gangs;
    return (std::max)(bound, sum_of(gangs, smallest_, sums_of_smallest_,
                                    [&](std::uint32_t j) { return candidates_[j].cost; }));
  }

 private:
  // The sum of the costs of the first n gangs in this order.
  template <class Price>
  std::uint64_t sum_of(std::size_t n, incremental_sort& order, lean_vector<std::uint64_t>& sums,
                       const Price& price) {
    while (sums.size() <= n) {
      const keyed_number* const top = order.top(price);
      if (top == nullptr) return sums.back();
      sums.push_back(sums.back() + candidates_[top->number].cost);
      order.pop();
    }
    return sums[n];
  }

  std::span<const eviction_candidate> candidates_;
  incremental_sort largest_;  // the most expensive first
  incremental_sort smallest_;
  lean_vector<std::uint64_t> sums_of_largest_;
  lean_vector<std::uint64_t> sums_of_smallest_;
};

}  // namespace detail
APIARY_NAMESPACE_END
