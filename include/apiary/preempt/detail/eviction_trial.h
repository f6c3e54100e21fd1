// apiary/preempt/detail/eviction_trial.h - a capacity index while candidates are evicted from it.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/core/lean_vector.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/victim_set.h>
#include <apiary/topology/tree.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The evictions of topology_victim_search: changes the caller's capacity index, and a copy of the
// free CPU and memory of the hosts.
// Requires: as victim_search; allocations name nodes of the index; no candidate is evicted when
//           begin() is called again. What a host has free and gets back is below 2^32 in sum.
// Invalid:  hosts without `freed` for each allocation, or the reverse, abort (APIARY_VERIFY).
// Cost:     begin O(candidates + nodes); evict and set_evicted O(allocations of the candidate *
//           levels) as capacity_index; reprieve_all that for each candidate tried, or O(nodes *
//           levels) if more than a 32nd as many candidates as nodes were tried.
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
    hosts_before_ = hosts;
    free_before_.assign(capacities.free());
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
    const bool by_node = tried_.size() > free_before_.size() / nodes_of_candidate;
    for (const std::uint32_t j : tried_) {
      if (!by_node) set_evicted(j, false);
      states_[j] = {};
    }
    tried_.clear();
    if (!by_node) return;
    for (std::uint32_t n = 0; n < free_before_.size(); ++n) capacities_->set(n, free_before_[n]);
    if (!hosts_.empty()) hosts_.assign(hosts_before_);
    work_ += free_before_.size();
  }

 private:
  struct state {
    bool evicted = false;
    bool tried = false;
  };

  // To set so many nodes in ascending order takes about as long as to reprieve one candidate.
  static constexpr std::size_t nodes_of_candidate = 32;
  capacity_index<Tree>* capacities_ = nullptr;
  lean_vector<std::uint32_t> free_before_;     // of each node, without evictions
  std::span<const resources> hosts_before_{};  // as free_before_, or empty
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
