// apiary/preempt/detail/eviction_states.h - what is free while gangs are evicted.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/gang/gang_fit.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/tree.h>

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

// The cost of one GPU of a gang with this many GPUs, rounded down. Requires: gpus > 0.
template <std::unsigned_integral Cost>
[[nodiscard]] constexpr Cost cost_per_gpu(Cost cost, std::uint32_t gpus) noexcept {
  // Most gangs have a power of two: a shift takes a tenth of the time of a division.
  return std::has_single_bit(gpus) ? cost >> std::countr_zero(gpus) : cost / gpus;
}

// The evictions of victim_search: counts nodes by their free GPUs, and the slots that a gang lacks.
// A node with f free GPUs has floor(f / t) slots of t GPUs; a task of g GPUs needs floor(g / t).
// Requires: as victim_search. Task groups without tasks or GPUs do not count.
// Cost:     begin O(candidates + allocations + nodes); set_evicted O(allocations of the candidate *
//           task sizes).
class eviction_state {
 public:
  static constexpr std::uint32_t max_gpus = gang_fit::max_gpus;  // of a node
  using histogram = std::array<std::uint32_t, max_gpus + 1>;     // nodes by free GPUs
  // The slots of one size: what the gang needs and what the nodes have.
  struct slot_count {
    std::uint32_t size = 0;  // GPUs of a slot
    std::uint64_t needed = 0;
    std::uint64_t present = 0;
  };
  // The price of one GPU of a candidate: by its cost, and if each gang cost one_gang.
  struct gpu_price {
    std::uint64_t cost = 0;
    std::uint32_t gang = 0;
  };
  static constexpr std::uint32_t one_gang = std::uint32_t{1} << 20;
  // A node while no candidate is evicted.
  struct alignas(32) node_sums {
    std::uint64_t cost = 0;       // of the candidates on it
    std::uint64_t gpus_cost = 0;  // of their GPUs on it
    std::uint32_t gpus_gang = 0;  // of their GPUs on it if each gang cost one_gang
    std::uint32_t free = 0;
    std::uint32_t gpus = 0;  // free GPUs, and GPUs of candidates
    std::uint32_t last = none;
  };
  // others: nodes without candidates. free: free GPUs of the nodes that allocations name.
  void begin(std::span<const gang_fit::node_class> others, std::span<const std::uint32_t> free,
             std::span<const eviction_candidate> candidates,
             std::span<const gpus_on_node> allocations, std::span<const task_group> groups) {
    candidates_ = candidates;
    allocations_ = allocations;
    by_free_.fill(0);
    for (const gang_fit::node_class& c : others) by_free_[c.free] += c.nodes;
    all_evicted_ = by_free_;
    free_.assign(free);
    nodes_.resize(free.size());
    for (std::size_t n = 0; n < free.size(); ++n) nodes_[n] = {0, 0, 0, free[n], free[n], none};
    count(by_free_, &node_sums::free);
    links_.resize(allocations.size());
    prices_.resize(candidates.size());
    for (std::uint32_t j = 0; j < candidates.size(); ++j) add_to_nodes(j);
    count(all_evicted_, &node_sums::gpus);
    evicted_.assign(candidates.size(), 0);
    tried_.clear();
    work_ = 0;
    slots_.clear();
    for (const task_group& m : groups) {
      if (m.tasks == 0 || m.gpus == 0) continue;
      const auto same = [&](const slot_count& s) { return s.size == m.gpus; };
      if (std::any_of(slots_.begin(), slots_.end(), same)) continue;
      slot_count s{m.gpus, 0, 0};
      for (const task_group& k : groups) s.needed += std::uint64_t{k.tasks} * (k.gpus / s.size);
      for (std::uint32_t f = 0; f <= max_gpus; ++f)
        s.present += std::uint64_t{by_free_[f]} * (f / s.size);
      slots_.push_back(s);
    }
    slots_decide_ = true;
    for (const slot_count& a : slots_)
      for (const slot_count& b : slots_)
        slots_decide_ = slots_decide_ && (a.size % b.size == 0 || b.size % a.size == 0);
  }
  // While no candidate is evicted.
  [[nodiscard]] std::span<const node_sums> nodes() const noexcept { return nodes_; }
  [[nodiscard]] const gpu_price& price(std::uint32_t j) const noexcept { return prices_[j]; }
  // Calls use(candidate, gpus) for each allocation on the node, of the last candidate first.
  template <class Use>
  void for_each_on(std::uint32_t node, const Use& use) const {
    for (std::uint32_t a = nodes_[node].last; a != none; a = links_[a].before)
      use(links_[a].candidate, allocations_[a].gpus);
  }
  // With the present evictions.
  [[nodiscard]] std::uint32_t free(std::uint32_t node) const noexcept { return free_[node]; }
  [[nodiscard]] const histogram& by_free() const noexcept { return by_free_; }
  [[nodiscard]] std::span<const slot_count> slots() const noexcept { return slots_; }
  [[nodiscard]] bool is_short_of_slots() const noexcept {
    return std::any_of(slots_.begin(), slots_.end(),
                       [](const slot_count& s) { return s.present < s.needed; });
  }
  // Whether task sizes divide one another: then the gang fits if it has enough slots (gang_fit).
  [[nodiscard]] bool slots_decide() const noexcept { return slots_decide_; }
  [[nodiscard]] bool evicted(std::uint32_t j) const noexcept { return evicted_[j] != 0; }
  // by_free() if all candidates were evicted.
  [[nodiscard]] const histogram& all_evicted() const noexcept { return all_evicted_; }
  // Evicts or reprieves a candidate; tried() stays as it is.
  void set_evicted(std::uint32_t j, bool to) noexcept {
    if (evicted(j) == to) return;
    evicted_[j] = to ? 1 : 0;
    for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a)
      change(allocations_[a], to);
    work_ += 1 + (candidates_[j].last - candidates_[j].first) * (1 + slots_.size() / 2);
  }
  // Operations since begin().
  [[nodiscard]] std::uint64_t work() const noexcept { return work_; }
  void evict(std::uint32_t j) {
    if (!evicted(j)) tried_.push_back(j);
    set_evicted(j, true);
  }
  // The candidates that evict() has evicted since reprieve_all(); some may be reprieved now.
  [[nodiscard]] std::span<const std::uint32_t> tried() const noexcept { return tried_; }
  void reprieve_all() noexcept {
    for (const std::uint32_t j : tried_) set_evicted(j, false);
    tried_.clear();
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  struct link {
    std::uint32_t candidate = 0;
    std::uint32_t before = none;  // another allocation there
  };
  // Adds the nodes by one of their numbers, in four sums because additions to one sum would wait.
  void count(histogram& nodes, std::uint32_t node_sums::*gpus) const {
    std::array<histogram, 4> sums{};
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      APIARY_ASSERT(nodes_[n].*gpus <= max_gpus);
      ++sums[n % 4][nodes_[n].*gpus];
    }
    for (const histogram& sum : sums)
      for (std::size_t f = 0; f < nodes.size(); ++f) nodes[f] += sum[f];
  }
  void add_to_nodes(std::uint32_t j) {
    const eviction_candidate& c = candidates_[j];
    std::uint32_t gpus = 0;
    for (std::uint32_t a = c.first; a < c.last; ++a) gpus += allocations_[a].gpus;
    gpus = (std::max)(gpus, 1U);
    const gpu_price price{cost_per_gpu(c.cost, gpus), cost_per_gpu(one_gang, gpus)};
    prices_[j] = price;
    for (std::uint32_t a = c.first; a < c.last; ++a) {
      node_sums& at = nodes_[allocations_[a].node];
      at.cost += c.cost;
      at.gpus_cost += price.cost * allocations_[a].gpus;
      at.gpus_gang += price.gang * allocations_[a].gpus;
      at.gpus += allocations_[a].gpus;
      links_[a] = {j, at.last};
      at.last = a;
    }
  }
  void change(const gpus_on_node& a, bool more) noexcept {
    std::uint32_t& f = free_[a.node];
    const std::uint32_t to = more ? f + a.gpus : f - a.gpus;
    APIARY_ASSERT(to <= max_gpus);
    --by_free_[f];
    ++by_free_[to];
    for (slot_count& s : slots_) {
      s.present += to / s.size;
      s.present -= f / s.size;
    }
    f = to;
  }

  std::span<const eviction_candidate> candidates_;
  std::span<const gpus_on_node> allocations_;
  histogram by_free_{};
  histogram all_evicted_{};
  lean_vector<std::uint32_t> free_;  // of each node named
  std::vector<node_sums> nodes_;
  lean_vector<link> links_;            // of each allocation
  lean_vector<gpu_price> prices_;      // of each candidate
  lean_vector<std::uint8_t> evicted_;  // of each candidate
  lean_vector<std::uint32_t> tried_;
  lean_vector<slot_count> slots_;  // of each task size
  bool slots_decide_ = true;
  std::uint64_t work_ = 0;
};

// The evictions of topology_victim_search: changes the caller's capacity index, and a copy of the
// free CPU and memory of the hosts.
// Requires: as victim_search; allocations name nodes of the index; no candidate is evicted when
//           begin() is called again. What a host has free and gets back is below 2^32 in sum.
// Invalid:  hosts without `freed` for each allocation, or the reverse, abort (APIARY_VERIFY).
// Cost:     begin O(candidates + nodes); evict and set_evicted O(allocations of the candidate *
//           levels) as capacity_index; reprieve_all that for each candidate tried.
template <CellTree Tree>
class eviction_trial {
 public:
  // hosts: free CPU and memory of each node, or empty. freed: what each allocation gives back.
  void begin(capacity_index<Tree>& capacities, std::span<const eviction_candidate> candidates,
             std::span<const gpus_on_node> allocations, std::span<const resources> hosts,
             std::span<const resources> freed) {
    APIARY_VERIFY(hosts.empty() ? freed.empty() : freed.size() == allocations.size());
    capacities_ = &capacities;
    candidates_ = candidates;
    allocations_ = allocations;
    hosts_.assign(hosts);
    freed_ = freed;
    states_.assign(candidates.size(), {});
    tried_.clear();
    work_ = 0;
  }
  [[nodiscard]] const capacity_index<Tree>& capacities() const noexcept { return *capacities_; }
  [[nodiscard]] std::span<const resources> hosts() const noexcept { return hosts_; }
  // What each allocation gives back, or nothing.
  [[nodiscard]] std::span<const resources> freed() const noexcept { return freed_; }
  [[nodiscard]] bool evicted(std::uint32_t j) const noexcept { return states_[j].evicted; }
  // The candidates evicted since reprieve_all(), each once; some may be reprieved now.
  [[nodiscard]] std::span<const std::uint32_t> tried() const noexcept { return tried_; }
  void evict(std::uint32_t j) {
    if (!states_[j].tried) tried_.push_back(j);
    states_[j].tried = true;
    set_evicted(j, true);
  }
  // Evicts or reprieves a candidate; tried() stays as it is.
  void set_evicted(std::uint32_t j, bool to) noexcept {
    if (states_[j].evicted == to) return;
    states_[j].evicted = to;
    for (std::uint32_t a = candidates_[j].first; a < candidates_[j].last; ++a) {
      const auto [node, gpus] = allocations_[a];
      const std::uint32_t free = capacities_->free(node);
      capacities_->set(node, to ? free + gpus : free - gpus);
      if (hosts_.empty()) continue;
      if (to) {
        hosts_[node] += freed_[a];
      } else {
        hosts_[node] -= freed_[a];
      }
    }
    work_ += 1 + std::uint64_t{3} * (candidates_[j].last - candidates_[j].first);
  }
  // Operations since begin().
  [[nodiscard]] std::uint64_t work() const noexcept { return work_; }
  void reprieve_all() noexcept {
    for (const std::uint32_t j : tried_) {
      set_evicted(j, false);
      states_[j].tried = false;
    }
    tried_.clear();
  }

 private:
  struct state {
    bool evicted = false;
    bool tried = false;
  };

  capacity_index<Tree>* capacities_ = nullptr;
  std::span<const eviction_candidate> candidates_;
  std::span<const gpus_on_node> allocations_;
  lean_vector<resources> hosts_;
  std::span<const resources> freed_;
  std::vector<state> states_;  // of each candidate
  lean_vector<std::uint32_t> tried_;
  std::uint64_t work_ = 0;
};

}  // namespace detail
APIARY_NAMESPACE_END
