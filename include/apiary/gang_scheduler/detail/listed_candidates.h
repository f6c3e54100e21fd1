// apiary/gang_scheduler/detail/listed_candidates.h - gangs that may be preempted, with what they would give back.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/journal.h>
#include <apiary/core/config.h>
#include <apiary/explain/what_if.h>
#include <apiary/gang_scheduler/detail/candidate_costs.h>
#include <apiary/gang_scheduler/detail/cluster_excerpt.h>
#include <apiary/gang_scheduler/detail/node_view.h>
#include <apiary/gang_scheduler/detail/scheduled_gangs.h>
#include <apiary/model/resources.h>
#include <apiary/preempt/victim_set.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

APIARY_NAMESPACE_BEGIN
namespace detail {

// A list of gangs as the searches of preempt/ read them. Cost: add O(nodes of the gang), in an
// excerpt O(nodes of the gang * log cells).
class listed_candidates {
 public:
  // Begins with a view of the state. hosts: those of the view, or empty if CPU and memory do not count.
  void begin(const scheduled_gangs& state, node_view& view, std::span<resources> hosts) {
    state_ = &state;
    view_ = &view;
    hosts_ = hosts;
    overcommitted_ = false;
    clear();
  }
  void clear() {
    slots_.clear();
    candidates_.clear();
    allocations_.clear();
    freed_.clear();
  }
  // Appends a gang with what it would give back on the nodes of the view; of the excerpt, if any.
  void add(std::uint32_t slot, const candidate_costs& costs, const cluster_excerpt* in = nullptr) {
    const auto first = static_cast<std::uint32_t>(allocations_.size());
    for (const scheduled_gangs::on_node& o : state_->at(slot).nodes) {
      const scheduled_gangs::usable_node& n = state_->usable(o.node);
      const std::uint32_t node = in == nullptr ? n.position : in->to_local(n.position);
      if (node == cluster_excerpt::none || view_->members[n.position] == 0) continue;
      const auto gpus = static_cast<std::uint32_t>(std::popcount(o.mask & n.gpus));
      if (hosts_.empty()) {
        if (gpus > 0) allocations_.push_back({node, gpus});
        continue;
      }
      const used_node& full = state_->node(o.node);
      if (full.bad) continue;
      allocations_.push_back({node, gpus});
      const resources& has = full.shape.host;
      overcommitted_ =
          overcommitted_ || full.cpu_milli > has.cpu_milli || full.memory_mib > has.memory_mib;
      freed_.push_back({used_node::freed(o.cpu_milli, full.cpu_milli, has.cpu_milli),
                        used_node::freed(o.memory_mib, full.memory_mib, has.memory_mib)});
    }
    const auto last = static_cast<std::uint32_t>(allocations_.size());
    if (first != last) add_listed(slot, costs, first, last);
  }
  // Appends a gang whose allocations are in another list.
  void add_listed(std::uint32_t slot, const candidate_costs& costs, std::uint32_t first,
                  std::uint32_t last) {
    slots_.push_back(slot);
    candidates_.push_back({costs.of(slot), first, last});
  }
  // Evicts the gangs from the view.
  void evict(transaction& tx) const {
    for (const eviction_candidate& c : candidates_)
      journaled::evict_gang(tx, view_->free, c, allocations_, hosts_, freed_);
  }
  // Evicts the gangs from the excerpt to whose nodes they were added.
  void evict(cluster_excerpt& from) const {
    for (std::size_t a = 0; a < allocations_.size(); ++a) {
      const auto [node, gpus] = allocations_[a];
      from.capacities().set(node, from.capacities().free(node) + gpus);
      if (!hosts_.empty()) from.hosts()[node] += freed_[a];
    }
  }

  [[nodiscard]] bool empty() const noexcept { return candidates_.empty(); }
  [[nodiscard]] std::span<const std::uint32_t> slots() const noexcept { return slots_; }
  [[nodiscard]] std::span<const eviction_candidate> candidates() const noexcept {
    return candidates_;
  }
  [[nodiscard]] std::span<const gpus_on_node> allocations() const noexcept { return allocations_; }
  // CPU and memory of each allocation; empty if they do not count.
  [[nodiscard]] std::span<const resources> freed() const noexcept { return freed_; }
  // Whether freed() counts too little where several victims are together, since begin().
  [[nodiscard]] bool overcommitted() const noexcept { return overcommitted_; }

 private:
  const scheduled_gangs* state_ = nullptr;
  node_view* view_ = nullptr;
  std::span<resources> hosts_;
  bool overcommitted_ = false;
  std::vector<std::uint32_t> slots_;
  std::vector<eviction_candidate> candidates_;
  std::vector<gpus_on_node> allocations_;
  std::vector<resources> freed_;
};

}  // namespace detail
APIARY_NAMESPACE_END
