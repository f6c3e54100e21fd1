// apiary/preempt/detail/eviction_trial.h - gangs evicted from rooms to see what fits then, and put back.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/capacity_index.h>
#include <apiary/core/config.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/eviction_candidate.h>
#include <apiary/topology/tree.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// Changes the rooms, and a copy of what the hosts have left, as gangs are evicted and spared.
//
// Requires: as victim_search; shares name nodes of the rooms; no gang is evicted when it begins
//           anew. What a host has left and gets back is below 2^32 in sum.
// Invalid:  hosts without what each share gives back, or this alone, abort (APIARY_VERIFY).
// Cost:     begin O(candidates + nodes if hosts count); evict and spare O(shares of the gang *
//           levels) as capacity_index.
template <CellTree Tree>
class eviction_trial {
 public:
  void begin(capacity_index<Tree>& capacities, std::span<const eviction_candidate> candidates,
             std::span<const gpus_on_node> shares, std::span<const resources> hosts,
             std::span<const resources> freed) {
    APIARY_VERIFY(hosts.empty() ? freed.empty() : freed.size() == shares.size());
    capacities_ = &capacities;
    candidates_ = candidates;
    shares_ = shares;
    hosts_.assign(hosts.begin(), hosts.end());
    freed_ = freed;
    states_.assign(candidates.size(), {});
    tried_.clear();
  }

  [[nodiscard]] const capacity_index<Tree>& capacities() const noexcept { return *capacities_; }
  // What hosts have left now; nothing if CPU and memory do not count.
  [[nodiscard]] std::span<const resources> hosts() const noexcept { return hosts_; }
  [[nodiscard]] bool evicted(std::uint32_t j) const noexcept { return states_[j].evicted; }
  // Those that were evicted since spare_all(), each once; some may be spared again.
  [[nodiscard]] std::span<const std::uint32_t> tried() const noexcept { return tried_; }

  void evict(std::uint32_t j) {
    if (!states_[j].tried) tried_.push_back(j);
    states_[j].tried = true;
    set(j, true);
  }
  void spare(std::uint32_t j) noexcept { set(j, false); }
  void spare_all() noexcept {
    for (const std::uint32_t j : tried_) {
      set(j, false);
      states_[j].tried = false;
    }
    tried_.clear();
  }

 private:
  struct state {
    bool evicted = false;
    bool tried = false;
  };

  void set(std::uint32_t j, bool to) noexcept {
    if (states_[j].evicted == to) return;
    states_[j].evicted = to;
    for (std::uint32_t s = candidates_[j].first; s < candidates_[j].last; ++s) {
      const auto [node, leaves] = shares_[s];
      const std::uint32_t free = capacities_->free(node);
      capacities_->set(node, to ? free + leaves : free - leaves);
      if (hosts_.empty()) continue;
      if (to) {
        hosts_[node] += freed_[s];
      } else {
        hosts_[node] -= freed_[s];
      }
    }
  }

  capacity_index<Tree>* capacities_ = nullptr;
  std::span<const eviction_candidate> candidates_;
  std::span<const gpus_on_node> shares_;
  std::vector<resources> hosts_;
  std::span<const resources> freed_;
  std::vector<state> states_;  // of each candidate
  std::vector<std::uint32_t> tried_;
};

}  // namespace detail
APIARY_NAMESPACE_END
